//! Heads of HTTP/1.1: each is there a while after its first byte. Who says nothing is not hurried.
//!
//! A connection that is closed while its client still sends is reset, and a client that first sends all of its request never sees the
//! answer. So what comes after such an answer is read a while, for nobody.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use super::wire::Wire;
use crate::places::ConnectionSlot;

/// How long a head may take from its first byte on.
const HEAD: Duration = Duration::from_secs(30);

/// How much is read so, and for how long.
const MAX_LEFT: usize = 64 << 20;
const LINGER: Duration = Duration::from_secs(5);

/// A connection, whose requests its place counts.
pub(super) struct Heads {
    wire: Wire,
    place: Arc<ConnectionSlot>,
    head: Option<Head>,
    linger: Option<Linger>,
}

/// Our last word is out, and the client still speaks.
struct Linger {
    left: usize,
    late: Pin<Box<Sleep>>,
}

impl Linger {
    /// Done when the client has hung up, or has said or waited enough.
    fn poll(&mut self, cx: &mut Context<'_>, wire: &mut Wire) -> Poll<()> {
        let mut room = [0; 8192];
        loop {
            if self.late.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut room);
            let read = ready!(Pin::new(&mut *wire).poll_read(cx, &mut buffer));
            let count = buffer.filled().len();
            match self.left.checked_sub(count) {
                Some(left) if read.is_ok() && count > 0 => self.left = left,
                Some(_) | None => return Poll::Ready(()),
            }
        }
    }
}

/// A head that has begun.
struct Head {
    /// So many requests were there before it.
    before: u64,
    late: Pin<Box<Sleep>>,
}

impl Heads {
    pub(super) fn of(wire: Wire, place: Arc<ConnectionSlot>) -> Self {
        Self { wire, place, head: None, linger: None }
    }
}

impl AsyncRead for Heads {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (begun, is_busy) = this.place.work();
        // What comes while one is answered is its body, or is looked at when it is answered.
        this.head.take_if(|head| is_busy || head.before != begun);
        if let Some(head) = &mut this.head
            && head.late.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = buffer.filled().len();
        let done = Pin::new(&mut this.wire).poll_read(cx, buffer);
        if !is_busy && buffer.filled().len() > before {
            this.head.get_or_insert_with(|| Head { before: begun, late: Box::pin(sleep(HEAD)) });
        }
        done
    }
}

impl AsyncWrite for Heads {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.wire).poll_shutdown(cx))?;
        if !this.place.is_unheard() {
            return Poll::Ready(Ok(()));
        }
        let linger = this.linger.get_or_insert_with(|| Linger { left: MAX_LEFT, late: Box::pin(sleep(LINGER)) });
        linger.poll(cx, &mut this.wire).map(Ok)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }
}
