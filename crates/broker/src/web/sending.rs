//! The body of a request on its way to a server, which is taken back where no server takes it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

/// A body that two hold: who sends it, and who may have to answer instead of a server.
#[derive(Clone)]
pub(super) struct Sending(Arc<Mutex<Held>>);

struct Held {
    body: Option<Incoming>,
    /// The program sends it when it is asked to, which nobody did yet.
    waits: bool,
}

impl Sending {
    /// A body, and the same again. `waits`: its head says that it waits to be asked for.
    pub(super) fn new(body: Incoming, waits: bool) -> (Self, Self) {
        let one = Self(Arc::new(Mutex::new(Held { body: Some(body), waits })));
        (one.clone(), one)
    }

    /// What still comes of it, where anything does; whoever sent it has nothing more to send.
    pub(super) fn take(&self) -> Option<Incoming> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = held.waits;
        held.body.take().filter(|body| !waits && !body.is_end_stream())
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.waits = false;
        match &mut held.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}
