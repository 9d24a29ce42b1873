//! What a request begins is finished, also when its client hangs up before the answer.
//!
//! A connection that ends drops the work for its answer. Work whose request came whole goes on as a task of its own then, so that
//! nothing is left half done, and the audit log says how it ended. A request that broke off is dropped: what it wants is not known.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::body::Body;
use axum::http::{Method, Response};

/// Whether the work for a request goes on without its client.
#[derive(Clone, Debug)]
pub(super) struct Finish(Arc<AtomicBool>);

impl Finish {
    /// What only looks is for who asked alone.
    pub(super) fn of(method: &Method) -> Self {
        let looks = matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS);
        Self(Arc::new(AtomicBool::new(!looks)))
    }

    /// The work is for who asked, and ends with the connection.
    pub(super) fn not(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

type Work = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// Work that is finished when its client is gone, if its request came whole.
struct Finished<W: Fn() -> bool> {
    work: Option<Work>,
    finish: Finish,
    is_whole: W,
}

/// The answer that `work` comes to. `is_whole`: all of the request's body has been read.
pub(super) fn finished(
    work: impl Future<Output = Response<Body>> + Send + 'static,
    finish: Finish,
    is_whole: impl Fn() -> bool + Send + Unpin,
) -> impl Future<Output = Response<Body>> + Send {
    Finished { work: Some(Box::pin(work)), finish, is_whole }
}

impl<W: Fn() -> bool + Unpin> Future for Finished<W> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_ready() {
            self.work = None;
        }
        polled
    }
}

impl<W: Fn() -> bool> Drop for Finished<W> {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.finish.is_wanted() && (self.is_whole)()) else { return };
        // Without a runtime the server itself is gone.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    /// Whether work of a request is done whose connection ended while it waited.
    async fn is_done(method: Method, is_whole: bool, gives_up: bool) -> bool {
        let (go, gone) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel::<()>();
        let finish = Finish::of(&method);
        if gives_up {
            finish.not();
        }
        let work = async move {
            drop(gone.await);
            drop(done.send(()));
            Response::new(Body::empty())
        };
        let mut answer = Box::pin(finished(work, finish, move || is_whole));
        // It has begun, and waits.
        assert!(tokio::time::timeout(Duration::from_millis(1), answer.as_mut()).await.is_err());
        drop(answer);
        drop(go);
        is_done.await.is_ok()
    }

    #[tokio::test]
    async fn what_was_begun_is_finished_unless_it_looks_or_broke_off_or_ends_with_its_client() {
        assert!(is_done(Method::POST, true, false).await);
        assert!(!is_done(Method::GET, true, false).await);
        assert!(!is_done(Method::POST, false, false).await);
        assert!(!is_done(Method::POST, true, true).await);
    }
}
