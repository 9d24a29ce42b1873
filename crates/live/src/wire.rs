//! Frames from and to a stream of bytes.

use agent::frame::{self, Frame, FrameError, Kind, Lane};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::UnboundedReceiver;

/// Bytes that are read at once.
const CHUNK: usize = 128 * 1024;

/// A frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    pub(crate) kind: Kind,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// Why no more frames come.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WireError {
    /// The connection broke.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// What came is no frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// It ended within a frame.
    #[error("the connection ended within a frame")]
    Torn,
}

/// Frames as they come in.
#[derive(Debug)]
pub(crate) struct Frames<R> {
    from: R,
    buffer: Vec<u8>,
    /// What of the buffer was given out already.
    taken: usize,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(crate) const fn new(from: R) -> Self {
        Self { from, buffer: Vec::new(), taken: 0 }
    }

    /// The next frame; none at the end. May be dropped while it waits: nothing is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Owned>, WireError> {
        loop {
            let rest = self.buffer.get(self.taken..).unwrap_or_default();
            if let Some((found, length)) = frame::first(rest)? {
                let owned = Owned { kind: found.kind, stream: found.stream, payload: found.payload.to_vec() };
                self.taken = self.taken.saturating_add(length);
                return Ok(Some(owned));
            }
            let torn = !rest.is_empty();
            self.buffer.drain(..self.taken);
            self.taken = 0;
            // An idle connection keeps no room for the largest frame that it ever saw.
            if self.buffer.is_empty() {
                self.buffer.shrink_to(CHUNK);
            }
            self.buffer.reserve(CHUNK);
            if self.from.read_buf(&mut self.buffer).await? == 0 {
                return if torn { Err(WireError::Torn) } else { Ok(None) };
            }
        }
    }
}

/// A frame of words, as bytes; none where the words are too long.
pub(crate) fn encode(kind: Kind, stream: u32, payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(payload.len().saturating_add(frame::HEADER));
    frame::put(&mut bytes, Frame { kind, stream, payload }).then_some(bytes)
}

/// A frame of data, as bytes; none where there are too many.
pub(crate) fn data(stream: u32, lane: Lane, payload: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(payload.len().saturating_add(frame::HEADER + 1));
    frame::put_data(&mut bytes, stream, lane, payload).then_some(bytes)
}

/// A frame that gives credit.
pub(crate) fn credit(stream: u32, bytes: u32) -> Option<Vec<u8>> {
    encode(Kind::Credit, stream, &bytes.to_le_bytes())
}

/// The number in a `Credit`.
pub(crate) fn credit_of(payload: &[u8]) -> u32 {
    payload.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// Writes what is handed over until nobody is left who could, or the other side is gone. `written` hears how much went out.
pub(crate) async fn write_all<W: AsyncWrite + Unpin>(
    mut to: W,
    mut from: UnboundedReceiver<Vec<u8>>,
    written: impl Fn(usize),
) -> std::io::Result<()> {
    while let Some(bytes) = from.recv().await {
        to.write_all(&bytes).await?;
        written(bytes.len());
    }
    to.shutdown().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_whole_however_the_bytes_are_cut() {
        let mut bytes = encode(Kind::Open, 7, b"{\"op\":\"info\"}").unwrap();
        bytes.extend(data(7, Lane::Out, &[9; 60_000]).unwrap());
        let (mut to, from) = tokio::io::duplex(100);
        let whole = bytes.clone();
        let writer = tokio::spawn(async move {
            for chunk in whole.chunks(77) {
                to.write_all(chunk).await.unwrap();
            }
        });
        let mut frames = Frames::new(from);
        let first = frames.next().await.unwrap().unwrap();
        assert_eq!((first.kind, first.stream, first.payload.as_slice()), (Kind::Open, 7, &b"{\"op\":\"info\"}"[..]));
        let second = frames.next().await.unwrap().unwrap();
        assert_eq!(Lane::split(&second.payload), Some((Lane::Out, &[9_u8; 60_000][..])));
        assert!(frames.next().await.unwrap().is_none());
        writer.await.unwrap();
    }

    #[tokio::test]
    async fn an_end_within_a_frame_is_no_end() {
        let bytes = encode(Kind::Open, 7, b"{}").unwrap();
        let mut frames = Frames::new(&bytes[..bytes.len() - 1]);
        assert!(matches!(frames.next().await, Err(WireError::Torn)));
    }
}
