//! The bytes of a program's connection: metered as they come, whatever is spoken on it.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::copy::BUFFER;
use crate::meter::{Direction, Meter};

/// What bytes go over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The connection of a program; its bytes are counted.
pub(crate) struct Metered {
    stream: Arc<TcpStream>,
    /// Read before, not handed on yet.
    first: Vec<u8>,
    meter: Arc<Meter>,
    read_after: Option<Pin<Box<Sleep>>>,
    write_after: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    pub(crate) fn new(stream: Arc<TcpStream>, first: Vec<u8>, meter: Arc<Meter>) -> Self {
        Self { stream, first, meter, read_after: None, write_after: None }
    }

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

/// Waits until more may go; what all connections owe is asked anew after each wait.
fn waited(until: &mut Option<Pin<Box<Sleep>>>, meter: &Meter, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if let Some(sleep) = until {
            ready!(sleep.as_mut().poll(cx));
            *until = None;
        }
        let Some(wait) = meter.owed() else { return Poll::Ready(()) };
        *until = Some(Box::pin(sleep(wait)));
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(waited(&mut this.read_after, &this.meter, cx));
        let room = this.meter.room(buf.remaining().min(BUFFER));
        if room == 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let count = ready!(this.poll_bytes(cx, buf.initialize_unfilled_to(room)))?;
        this.meter.count(Direction::Out, count);
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(waited(&mut this.write_after, &this.meter, cx));
        let room = this.meter.room(bytes.len().min(BUFFER));
        if room == 0 && !bytes.is_empty() {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        loop {
            ready!(this.stream.poll_write_ready(cx))?;
            match this.stream.try_write(bytes.get(..room).unwrap_or_default()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    this.meter.count(Direction::In, count);
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
        match rustix::net::shutdown(&*self.stream, Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }
}

/// One connection with two holders: the proxy, and who says why when the proxy has ended.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Box<dyn Io>>>);

impl Shared {
    pub(crate) fn new(io: Box<dyn Io>) -> Self {
        Self(Arc::new(Mutex::new(io)))
    }

    fn with<T>(&self, poll: impl FnOnce(Pin<&mut Box<dyn Io>>) -> T) -> T {
        poll(Pin::new(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl AsyncRead for Shared {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_read(cx, buf))
    }
}

impl AsyncWrite for Shared {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.with(|io| io.poll_write(cx, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.with(|io| io.poll_shutdown(cx))
    }
}
