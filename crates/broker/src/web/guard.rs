//! What a program sends, read by our own strict reader before anybody else: nothing ambiguous comes through.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use egress::http::framing::Framing;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::wire::Shared;
use crate::run::MAX_HEADS;

/// Bytes of an unfinished head that every connection has for itself: nearly all heads are shorter.
const OWN: usize = 8 << 10;

/// What the reader found.
#[derive(Debug)]
pub(crate) struct FramingState {
    inner: Mutex<Read>,
}

#[derive(Debug)]
struct Read {
    framing: Framing,
    /// Why nothing more is read.
    refused: Option<&'static str>,
    /// The room of all connections, and what this one has of it.
    room: Arc<Semaphore>,
    taken: Option<OwnedSemaphorePermit>,
}

impl Read {
    fn feed(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        self.framing.feed(bytes)?;
        let wanted = self.framing.unfinished().saturating_sub(OWN);
        if wanted == 0 {
            self.taken = None;
            return Ok(());
        }
        let has = self.taken.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let more = u32::try_from(wanted.saturating_sub(has)).unwrap_or(u32::MAX);
        let more = Arc::clone(&self.room).try_acquire_many_owned(more);
        let more = more.map_err(|_full| "a long head that does not end, as too many others")?;
        match &mut self.taken {
            Some(taken) => taken.merge(more),
            None => self.taken = Some(more),
        }
        Ok(())
    }
}

impl Default for FramingState {
    fn default() -> Self {
        Self::new(Arc::new(Semaphore::new(MAX_HEADS)))
    }
}

impl FramingState {
    /// Of a connection that shares this room for unfinished heads with others.
    pub(crate) fn new(room: Arc<Semaphore>) -> Self {
        let inner = Mutex::new(Read { framing: Framing::default(), refused: None, room, taken: None });
        Self { inner }
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn feed(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut read = self.read();
        if let Some(why) = read.refused {
            return Err(why);
        }
        let fed = read.feed(bytes);
        read.refused = fed.err();
        fed
    }

    /// Why nothing more is read.
    pub(crate) fn refused(&self) -> Option<&'static str> {
        self.read().refused
    }

    /// The server agreed to another protocol.
    pub(crate) fn raw(&self) {
        self.read().framing.raw();
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
