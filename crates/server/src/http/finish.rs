//! What a request begins is finished, also when its client hangs up before the answer.
//!
//! A connection that ends drops the work for its answer. Work whose request came whole goes on as a task of its own then, so that
//! nothing is left half done, and the audit log says how it ended. A request that broke off is dropped: what it wants is not known.
//! Nobody waits for such work, so it is bounded in number and time, and ends with the server.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Response};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

/// Most works at once whose clients are gone; more end with their clients: one of HTTP/2 begins and leaves as fast as it writes.
const MAX_DETACHED: usize = 256;
/// How long one may take without its client.
const MAX_TIME: Duration = Duration::from_secs(3600);

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

/// The works whose clients are gone; none once the server ends.
#[derive(Clone, Debug)]
pub(super) struct Detached {
    works: Arc<Mutex<Option<JoinSet<()>>>>,
    max_time: Duration,
}

impl Default for Detached {
    fn default() -> Self {
        Self { works: Arc::new(Mutex::new(Some(JoinSet::new()))), max_time: MAX_TIME }
    }
}

impl Detached {
    fn lock(&self) -> MutexGuard<'_, Option<JoinSet<()>>> {
        self.works.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes on with this; gives it back where there is too much already, or the server ends.
    fn keep(&self, work: Work) -> Result<(), Work> {
        let Ok(runtime) = Handle::try_current() else { return Err(work) };
        let (mut kept, max_time) = (self.lock(), self.max_time);
        let Some(works) = kept.as_mut() else { return Err(work) };
        while works.try_join_next().is_some() {}
        if works.len() >= MAX_DETACHED {
            return Err(work);
        }
        works.spawn_on(async move { drop(timeout(max_time, work).await) }, &runtime);
        Ok(())
    }

    /// Takes no more; what is not finished by then is dropped.
    pub(super) async fn end(self, until: Instant) {
        let Some(mut works) = self.lock().take() else { return };
        if timeout_at(until, async { while works.join_next().await.is_some() {} }).await.is_err() {
            works.shutdown().await;
        }
    }
}

/// Work that is finished when its client is gone, if its request came whole.
struct Finished<W: Fn() -> bool> {
    work: Option<Work>,
    finish: Finish,
    is_whole: W,
    detached: Detached,
}

/// The answer that `work` comes to. `is_whole`: all of the request's body has been read.
pub(super) fn finished(
    work: impl Future<Output = Response<Body>> + Send + 'static,
    finish: Finish,
    is_whole: impl Fn() -> bool + Send + Unpin,
    detached: Detached,
) -> impl Future<Output = Response<Body>> + Send {
    Finished { work: Some(Box::pin(work)), finish, is_whole, detached }
}

impl<W: Fn() -> bool + Unpin> Future for Finished<W> {
    type Output = Response<Body>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Response<Body>> {
        // Taken out, so that what panics is not gone on with.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<W: Fn() -> bool> Drop for Finished<W> {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.finish.is_wanted() && (self.is_whole)()) else { return };
        // What is not kept ends here, and is recorded so.
        drop(self.detached.keep(work));
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    /// Whether work of a request is done whose connection ended while it waited.
    async fn is_done(method: Method, is_whole: bool, gives_up: bool, detached: &Detached) -> bool {
        let (go, gone) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel::<()>();
        let finish = Finish::of(&method);
        if gives_up {
            finish.not();
        }
        let work = async move {
            let _gone = gone.await;
            let _heard = done.send(());
            Response::new(Body::empty())
        };
        let mut answer = Box::pin(finished(work, finish, move || is_whole, detached.clone()));
        // It has begun, and waits.
        assert!(timeout(Duration::ZERO, answer.as_mut()).await.is_err());
        drop(answer);
        drop(go);
        is_done.await.is_ok()
    }

    #[tokio::test]
    async fn what_was_begun_is_finished_unless_it_looks_or_broke_off_or_ends_with_its_client() {
        let detached = Detached::default();
        assert!(is_done(Method::POST, true, false, &detached).await);
        assert!(!is_done(Method::GET, true, false, &detached).await);
        assert!(!is_done(Method::POST, false, false, &detached).await);
        assert!(!is_done(Method::POST, true, true, &detached).await);
    }

    /// Hangs up on work that never ends; who waits for the sender learns when it was dropped.
    fn leave(detached: &Detached) -> oneshot::Receiver<()> {
        let (held, dropped) = oneshot::channel::<()>();
        let work = async move {
            std::future::pending::<()>().await;
            drop(held);
            Response::new(Body::empty())
        };
        drop(finished(work, Finish::of(&Method::POST), || true, detached.clone()));
        dropped
    }

    #[tokio::test]
    async fn it_is_bounded_in_number_and_ends_with_the_server() {
        let detached = Detached::default();
        let mut left: Vec<_> = (0..MAX_DETACHED).map(|_| leave(&detached)).collect();
        assert!(!is_done(Method::POST, true, false, &detached).await, "one too many");
        detached.clone().end(Instant::now()).await;
        for dropped in &mut left {
            assert!(dropped.await.is_err());
        }
        assert!(!is_done(Method::POST, true, false, &detached).await, "the server ends");
    }

    #[tokio::test]
    async fn it_is_bounded_in_time_and_makes_room() {
        let detached = Detached { max_time: Duration::from_millis(1), ..Detached::default() };
        let left: Vec<_> = (0..MAX_DETACHED).map(|_| leave(&detached)).collect();
        for dropped in left {
            assert!(dropped.await.is_err());
        }
        let detached = Detached { max_time: MAX_TIME, ..detached };
        assert!(is_done(Method::POST, true, false, &detached).await);
    }

    #[tokio::test]
    async fn what_is_on_its_way_at_the_end_is_waited_for() {
        let detached = Detached::default();
        let (done, is_done) = oneshot::channel::<()>();
        let work = async move {
            tokio::task::yield_now().await;
            let _heard = done.send(());
            Response::new(Body::empty())
        };
        drop(finished(work, Finish::of(&Method::POST), || true, detached.clone()));
        detached.end(Instant::now() + Duration::from_secs(60)).await;
        assert!(is_done.await.is_ok());
    }
}
