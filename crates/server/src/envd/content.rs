//! Bodies that are made while they are sent, and that break off when the sandbox is gone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// Pieces that wait to be sent, at most: a client that does not read is waited for.
const QUEUE: usize = 8;

/// The pieces of a body; cancelled, it breaks off in the middle, so that no client takes it for whole.
pub(crate) struct CutStream {
    from: mpsc::Receiver<io::Result<Bytes>>,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    is_cut: bool,
}

impl std::fmt::Debug for CutStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutStream").field("is_cut", &self.is_cut).finish_non_exhaustive()
    }
}

impl CutStream {
    /// A body, and where its pieces are put.
    pub(crate) fn body(cut: CancellationToken) -> (mpsc::Sender<io::Result<Bytes>>, Body) {
        let (to, from) = mpsc::channel(QUEUE);
        let stream = Self { from, cut: Box::pin(cut.cancelled_owned()), is_cut: false };
        (to, Body::from_stream(stream))
    }
}

/// Why a body breaks off.
pub(crate) fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox is gone")
}

impl Stream for CutStream {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_cut {
            return Poll::Ready(None);
        }
        // What is there already goes out first: it was said before the end.
        match self.from.poll_recv(cx) {
            Poll::Ready(piece) => return Poll::Ready(piece),
            Poll::Pending => {}
        }
        if self.cut.as_mut().poll(cx).is_ready() {
            self.is_cut = true;
            return Poll::Ready(Some(Err(broken())));
        }
        Poll::Pending
    }
}
