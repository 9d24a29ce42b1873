//! What a program sends, read by our own strict reader before anybody else: nothing ambiguous comes through.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use egress::http::framing::Framing;
use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::meter::{Meter, Way};

/// What the reader found.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    inner: Mutex<(Framing, Option<&'static str>)>,
}

impl Seen {
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

/// The connection of a program, as the proxy reads and writes it; its bytes are counted.
pub(crate) struct Guarded {
    stream: Arc<TcpStream>,
    /// Read before, not handed on yet.
    first: Vec<u8>,
    meter: Arc<Meter>,
    seen: Arc<Seen>,
    read_after: Option<Pin<Box<Sleep>>>,
    write_after: Option<Pin<Box<Sleep>>>,
}

impl Guarded {
    pub(crate) fn new(stream: Arc<TcpStream>, first: Vec<u8>, meter: Arc<Meter>, seen: Arc<Seen>) -> Self {
        Self { stream, first, meter, seen, read_after: None, write_after: None }
    }

    /// Reads into a buffer without looking at it.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(buf.len());
            for (to, from) in buf.iter_mut().zip(self.first.drain(..count)) {
                *to = from;
            }
            return Poll::Ready(Ok(count));
        }
        loop {
            ready!(self.stream.poll_read_ready(cx))?;
            match self.stream.try_read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return Poll::Ready(other),
            }
        }
    }
}

fn waited(until: &mut Option<Pin<Box<Sleep>>>, cx: &mut Context<'_>) -> Poll<()> {
    if let Some(sleep) = until {
        ready!(sleep.as_mut().poll(cx));
        *until = None;
    }
    Poll::Ready(())
}

impl AsyncRead for Guarded {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(waited(&mut this.read_after, cx));
        if this.seen.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        let room = this.meter.room(buf.remaining());
        if room == 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let count = ready!(this.poll_bytes(cx, buf.initialize_unfilled_to(room)))?;
        let bytes = buf.initialize_unfilled().get(..count).unwrap_or_default();
        // To the proxy the program has ended; why is said when it ends, too.
        if this.seen.feed(bytes).is_err() {
            return Poll::Ready(Ok(()));
        }
        this.read_after = this.meter.count(Way::Out, count).map(|wait| Box::pin(sleep(wait)));
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(waited(&mut this.write_after, cx));
        let room = this.meter.room(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        loop {
            ready!(this.stream.poll_write_ready(cx))?;
            match this.stream.try_write(bytes.get(..room).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    this.write_after = this.meter.count(Way::In, count).map(|wait| Box::pin(sleep(wait)));
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // What was refused is still to be told why.
        if self.seen.refused().is_some() {
            return Poll::Ready(Ok(()));
        }
        match rustix::net::shutdown(&*self.stream, Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }
}
