//! What a program sends, read by our own strict reader before anybody else: nothing ambiguous comes through.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use egress::http::framing::Framing;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::wire::Shared;

/// What the reader found.
#[derive(Debug, Default)]
pub(crate) struct FramingState {
    inner: Mutex<(Framing, Option<&'static str>)>,
}

impl FramingState {
    fn feed(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(why) = inner.1 {
            return Err(why);
        }
        let fed = inner.0.feed(bytes);
        inner.1 = fed.err();
        fed
    }

    /// Why nothing more is read.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).1
    }

    /// The server agreed to another protocol.
    pub(crate) fn raw(&self) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).0.raw();
    }
}

/// The connection of a program, as the proxy reads and writes it.
pub(crate) struct Guarded {
    io: Shared,
    seen: Arc<FramingState>,
}

impl Guarded {
    pub(crate) fn new(io: Shared, seen: Arc<FramingState>) -> Self {
        Self { io, seen }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.seen.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        // To the proxy the program has ended; why is said when it ends, too.
        if this.seen.feed(buf.filled().get(before..).unwrap_or_default()).is_err() {
            buf.set_filled(before);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was refused is still to be told why.
        if self.seen.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
