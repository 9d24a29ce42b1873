//! The bytes of a program's connection and of those to its servers: metered as they come, whatever is spoken on them.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::Shutdown;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use crate::copy::BUFFER;
use crate::meter::{Carried, Direction, Side};
use crate::stop::orderly;

/// What bytes go over.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The connection of a program, or one to a server of it; its bytes are counted.
pub(crate) struct Metered {
    stream: Arc<TcpStream>,
    /// Read before, not handed on yet.
    first: Vec<u8>,
    side: Side,
    carried: Arc<Carried>,
    read_after: Option<Pin<Box<Sleep>>>,
    write_after: Option<Pin<Box<Sleep>>>,
}

impl Metered {
    /// A program's.
    pub(crate) fn inside(stream: Arc<TcpStream>, first: Vec<u8>, carried: Arc<Carried>) -> Self {
        Self { stream, first, side: Side::Inside, carried, read_after: None, write_after: None }
    }

    /// One to a server; its end is orderly, unless the broker itself comes to no end.
    pub(crate) fn outside(stream: TcpStream, carried: Arc<Carried>) -> Self {
        let (stream, first) = (Arc::new(stream), Vec::new());
        Self { stream, first, side: Side::Outside, carried, read_after: None, write_after: None }
    }

    /// Which way bytes go that are read here.
    fn read(&self) -> Direction {
        if self.side == Side::Inside { Direction::Out } else { Direction::In }
    }

    /// And those that are written.
    fn written(&self) -> Direction {
        if self.side == Side::Inside { Direction::In } else { Direction::Out }
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

    /// Writes once more may go, as much as there is room for.
    fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        write: impl Fn(&TcpStream, usize) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let (side, way, wanted) = (self.side, self.written(), wanted.min(BUFFER));
        ready!(waited(&mut self.write_after, || self.carried.owed(side, way, wanted), cx));
        let room = self.carried.room(side, way, wanted);
        if room == 0 && wanted > 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match write(&self.stream, room) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Ok(count) => {
                    self.carried.count(side, way, count);
                    return Poll::Ready(Ok(count));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Drop for Metered {
    fn drop(&mut self) {
        match self.side {
            // Who accepted it says how it ends.
            Side::Inside => {}
            Side::Outside => orderly(&self.stream),
        }
    }
}

/// As much of these pieces as there is room for.
fn within<'a>(pieces: &'a [IoSlice<'_>], mut room: usize) -> Vec<IoSlice<'a>> {
    let fit = |piece: &'a IoSlice<'_>| {
        let bytes = piece.get(..piece.len().min(room)).filter(|_| room > 0)?;
        room = room.saturating_sub(bytes.len());
        Some(IoSlice::new(bytes))
    };
    pieces.iter().map_while(fit).collect()
}

/// Waits until more may go; what all connections owe is asked anew after each wait.
fn waited(until: &mut Option<Pin<Box<Sleep>>>, owed: impl Fn() -> Option<Duration>, cx: &mut Context<'_>) -> Poll<()> {
    loop {
        if let Some(sleep) = until {
            ready!(sleep.as_mut().poll(cx));
            *until = None;
        }
        let Some(wait) = owed() else { return Poll::Ready(()) };
        *until = Some(Box::pin(sleep(wait)));
    }
}

impl AsyncRead for Metered {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let (side, way, wanted) = (this.side, this.read(), buf.remaining().min(BUFFER));
        ready!(waited(&mut this.read_after, || this.carried.owed(side, way, wanted), cx));
        let room = this.carried.room(side, way, wanted);
        if room == 0 {
            return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
        }
        let count = ready!(this.poll_bytes(cx, buf.initialize_unfilled_to(room)))?;
        this.carried.count(side, way, count);
        buf.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let write = |stream: &TcpStream, room: usize| stream.try_write(bytes.get(..room).unwrap_or_default());
        self.get_mut().poll_written(cx, bytes.len(), write)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = pieces.iter().map(|piece| piece.len()).sum();
        self.get_mut().poll_written(cx, wanted, |stream, room| stream.try_write_vectored(&within(pieces, room)))
    }

    fn is_write_vectored(&self) -> bool {
        true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_cut_where_the_room_ends() {
        let pieces = [b"".as_slice(), b"ab", b"cde", b"", b"f"].map(IoSlice::new);
        for room in 0..8 {
            let cut = within(&pieces, room).iter().flat_map(|piece| piece.to_vec()).collect::<Vec<_>>();
            assert_eq!(cut, &b"abcdef"[..room.min(6)]);
        }
    }
}
