//! The bytes of a connection: what was read ahead comes again, and who takes nothing for long is cut.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::meters::Meters;

/// What begins HTTP/2 without TLS.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long a peer may take nothing of what is sent to it.
pub(super) const STALL: Duration = Duration::from_secs(60);

/// A connection.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection whose first bytes were looked at.
pub(super) struct Wire {
    meters: Arc<Meters>,
    ahead: Vec<u8>,
    io: Box<dyn Io>,
    stall: Option<Pin<Box<Sleep>>>,
}

impl Wire {
    pub(super) fn new(io: Box<dyn Io>, meters: Arc<Meters>) -> Self {
        Self { meters, ahead: Vec::new(), io, stall: None }
    }

    /// Whether the peer speaks HTTP/2 from the start.
    ///
    /// # Errors
    /// The connection is gone.
    pub(super) async fn is_http2(&mut self) -> io::Result<bool> {
        let mut buffer = [0; PREFACE.len()];
        loop {
            let left = PREFACE.len().saturating_sub(self.ahead.len());
            let Some(room) = buffer.get_mut(..left).filter(|room| !room.is_empty()) else { return Ok(true) };
            let count = self.io.read(room).await?;
            self.ahead.extend(room.iter().take(count));
            if count == 0 || !PREFACE.starts_with(&self.ahead) {
                return Ok(false);
            }
        }
    }

    fn count_sent(&self, done: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = done {
            self.meters.sent(*count);
        }
    }

    /// What a write came to; an error where the peer takes nothing for too long.
    fn judged<T>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if done.is_ready() {
            self.stall = None;
            return done;
        }
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(STALL)));
        ready!(stall.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            let before = buffer.filled().len();
            let done = Pin::new(&mut self.io).poll_read(cx, buffer);
            self.meters.received(buffer.filled().len().saturating_sub(before));
            return done;
        }
        let count = self.ahead.len().min(buffer.remaining());
        self.meters.received(count);
        let rest = self.ahead.split_off(count);
        buffer.put_slice(&std::mem::replace(&mut self.ahead, rest));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.count_sent(&done);
        self.judged(cx, done)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_flush(cx);
        self.judged(cx, done)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.io).poll_shutdown(cx);
        self.judged(cx, done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.count_sent(&done);
        self.judged(cx, done)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::{Instant, timeout};

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// A peer that takes so many bytes each 50 s, and stays.
    async fn peer(mut io: DuplexStream, bytes: usize) {
        let mut buffer = vec![0; bytes];
        loop {
            tokio::time::sleep(Duration::from_secs(50)).await;
            if bytes > 0 && io.read_exact(&mut buffer).await.is_err() {
                return;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_cut_and_who_takes_slowly_is_not() {
        // The attack without the bound: all of a day is waited for who takes nothing.
        let (theirs, mut bare) = duplex(16);
        tokio::spawn(peer(theirs, 0));
        assert!(timeout(DAY, bare.write_all(&[0; 64])).await.is_err());
        for (bytes, cut) in [(0, true), (1, false)] {
            let (theirs, ours) = duplex(16);
            tokio::spawn(peer(theirs, bytes));
            let (mut wire, begun) = (Wire::new(Box::new(ours), Arc::default()), Instant::now());
            let sent = timeout(DAY, wire.write_all(&[0; 64])).await.unwrap();
            assert_eq!(sent.map_err(|error| error.kind()), if cut { Err(io::ErrorKind::TimedOut) } else { Ok(()) });
            assert_eq!(begun.elapsed().as_secs(), if cut { STALL.as_secs() } else { 48 * 50 });
        }
    }

    #[tokio::test]
    async fn what_was_looked_at_comes_again() {
        for (sent, http2) in [(&b"GET / HTTP/1.1\r\n"[..], false), (PREFACE, true), (b"PRI", false), (b"", false)] {
            let (mut theirs, ours) = tokio::io::duplex(64);
            theirs.write_all(sent).await.unwrap();
            drop(theirs);
            let mut wire = Wire::new(Box::new(ours), Arc::default());
            assert_eq!(wire.is_http2().await.unwrap(), http2);
            let mut read = Vec::new();
            wire.read_to_end(&mut read).await.unwrap();
            assert_eq!(read, sent);
        }
    }
}
