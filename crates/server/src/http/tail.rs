//! What of a request's body nobody read.
//!
//! A connection of HTTP/1.1 goes on only after the whole of a request. An answer that comes before says that the connection ends with
//! it: who asked again there would be hung up on, and could not know whether it was heard.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body::{Frame, SizeHint};

/// Most of it that is read to keep a connection, and how long that may take.
const MAX_TAIL: usize = 64 * 1024;
const TAIL_TIMEOUT: Duration = Duration::from_millis(250);

/// A body that is read by a handler, and to its end by nobody or by us.
struct Rest<B> {
    body: B,
    is_over: bool,
}

impl<B: http_body::Body<Data = Bytes> + Unpin> Rest<B> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        self.is_over |= matches!(polled, Poll::Ready(None));
        polled
    }

    fn is_over(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }
}

type Shared<B> = Arc<Mutex<Rest<B>>>;

fn locked<B>(rest: &Shared<B>) -> MutexGuard<'_, Rest<B>> {
    rest.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The handler's side.
struct Reader<B>(Shared<B>);

/// Ours, for after its answer.
pub(super) struct Tail<B>(Shared<B>);

impl<B> Tail<B>
where
    B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<axum::BoxError>,
{
    /// The body as a handler reads it, and what is left of it then.
    pub(super) fn of(body: B) -> (Body, Self) {
        let rest = Arc::new(Mutex::new(Rest { body, is_over: false }));
        (Body::new(Reader(Arc::clone(&rest))), Self(rest))
    }

    /// Says at any time whether all of it was read, or nobody wants more of it.
    pub(super) fn watch(&self) -> impl Fn() -> bool + Send + Unpin + use<B> {
        let rest = Arc::downgrade(&self.0);
        move || rest.strong_count() < 2 || rest.upgrade().is_some_and(|rest| locked(&rest).is_over())
    }

    /// Whether all of it was read; a little that nobody wants is read here, if it may be.
    pub(super) async fn finished(self, may_read: bool) -> bool {
        let read = async {
            let mut left = if may_read { MAX_TAIL } else { return };
            // Where the handler gave its body on, the reader is somebody else.
            while !locked(&self.0).is_over() && Arc::strong_count(&self.0) == 1 {
                let frame = std::future::poll_fn(|cx| locked(&self.0).poll(cx)).await;
                let Some(Ok(frame)) = frame else { break };
                let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, Bytes::len)) else { break };
                left = rest;
            }
        };
        let _late = tokio::time::timeout(TAIL_TIMEOUT, read).await;
        locked(&self.0).is_over()
    }
}

impl<B: http_body::Body<Data = Bytes> + Unpin> http_body::Body for Reader<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        locked(&self.0).poll(cx)
    }

    fn is_end_stream(&self) -> bool {
        locked(&self.0).is_over()
    }

    fn size_hint(&self) -> SizeHint {
        locked(&self.0).body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn a_request_is_whole_when_it_was_read_or_nobody_wants_more() {
        let (mut body, tail) = Tail::of(Body::from("asked"));
        let is_whole = tail.watch();
        assert!(!is_whole());
        while body.frame().await.is_some() {}
        assert!(is_whole());
        let (body, tail) = Tail::of(Body::from("asked"));
        let is_whole = tail.watch();
        drop(body);
        assert!(is_whole());
        assert!(Tail::of(Body::empty()).1.watch()());
    }
}
