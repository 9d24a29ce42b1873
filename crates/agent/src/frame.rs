//! Frames: `length u32, kind u8, stream u32`, then the payload; little-endian. The length counts what follows it.
//!
//! # Streams
//! Each request opens a stream, under a number that its sender chose: not 0, and of no stream that is still open. The other
//! side answers with `Reply`, `Event` and `Data`, and with `End` last: from then on the number is free.
//!
//! # Flow
//! Each side may send [`WINDOW`] bytes of data on a stream, and more when the other says so with `Credit`. So nobody holds
//! more than that for a stream whose reader is slow, and no stream waits for another.

/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Bytes of a frame before the payload.
pub const HEADER: usize = 9;
/// Longest payload of a `Data` frame, bytes, with its lane.
pub const MAX_DATA: usize = 64 * 1024;
/// Longest payload of any other frame, bytes.
pub const MAX_WORDS: usize = 256 * 1024;
/// Bytes of data that may be on the way in one direction of a stream before the first `Credit`.
pub const WINDOW: u32 = 256 * 1024;
/// Most streams that are open at once between two sides.
pub const MAX_STREAMS: usize = 1024;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A request, as JSON; it opens the stream.
    Open,
    /// What is known at once, as JSON; at most one, before all events and data.
    Reply,
    /// Something that happened, as JSON.
    Event,
    /// A lane ([`Lane`]) and bytes.
    Data,
    /// The sender has no more data for this stream.
    Eof,
    /// What is asked of an open stream, as JSON; nothing answers it.
    Control,
    /// How many bytes of data the other side may send more: u32.
    Credit,
    /// The opener has no use for the stream any more; it is ended with `End` all the same.
    Cancel,
    /// The result or the error, as JSON; the stream is over.
    End,
}

impl Kind {
    /// All, by number from 1.
    pub const ALL: [Self; 9] = [
        Self::Open,
        Self::Reply,
        Self::Event,
        Self::Data,
        Self::Eof,
        Self::Control,
        Self::Credit,
        Self::Cancel,
        Self::End,
    ];

    /// Its number in a frame.
    #[must_use]
    pub fn number(self) -> u8 {
        let at = Self::ALL.iter().position(|kind| *kind == self).unwrap_or_default();
        u8::try_from(at).map_or(0, |at| at.saturating_add(1))
    }

    fn of(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    const fn longest(self) -> usize {
        match self {
            Self::Data => MAX_DATA,
            Self::Open | Self::Reply | Self::Event | Self::Control | Self::End => MAX_WORDS,
            Self::Credit => 4,
            Self::Eof | Self::Cancel => 0,
        }
    }
}

/// Which way bytes of a `Data` frame go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// To what was opened: a program's input, a file's content.
    In,
    /// From it: a program's output, a file's content.
    Out,
    /// A program's errors.
    Err,
}

impl Lane {
    /// Its byte.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::In => 0,
            Self::Out => 1,
            Self::Err => 2,
        }
    }

    /// The lane and the bytes of a `Data` frame's payload.
    #[must_use]
    pub fn split(payload: &[u8]) -> Option<(Self, &[u8])> {
        let (number, bytes) = payload.split_first()?;
        [Self::In, Self::Out, Self::Err].into_iter().find(|lane| lane.number() == *number).map(|lane| (lane, bytes))
    }
}

/// A frame whose payload lies elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What it is.
    pub kind: Kind,
    /// The stream.
    pub stream: u32,
    /// Payload.
    pub payload: &'a [u8],
}

/// Why bytes are no frame. There is no way to find the next one: the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Longer or shorter than a frame of its kind may be; the length that it states.
    Length(u32),
    /// A kind that does not exist.
    Kind(u8),
    /// Stream 0.
    Stream,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(length) => write!(f, "a frame states a length of {length} bytes"),
            Self::Kind(kind) => write!(f, "a frame is of kind {kind}, which does not exist"),
            Self::Stream => f.write_str("a frame names stream 0"),
        }
    }
}

impl std::error::Error for FrameError {}

/// The first frame in the bytes and how long it is with its header; `None` = more bytes are needed.
///
/// # Errors
/// As soon as the header tells.
pub fn first(bytes: &[u8]) -> Result<Option<(Frame<'_>, usize)>, FrameError> {
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else { return Ok(None) };
    let &[a, b, c, d, kind, e, f, g, h] = header else { return Ok(None) };
    let (length, stream) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
    let kind = Kind::of(kind).ok_or(FrameError::Kind(kind))?;
    let payload = usize::try_from(length).ok().and_then(|length| length.checked_sub(HEADER - 4));
    let fits = |length: &usize| match kind {
        Kind::Credit => *length == 4,
        Kind::Data => (1..=MAX_DATA).contains(length),
        Kind::Open | Kind::Reply | Kind::Event | Kind::Eof | Kind::Control | Kind::Cancel | Kind::End => {
            *length <= kind.longest()
        }
    };
    let payload = payload.filter(fits).ok_or(FrameError::Length(length))?;
    if stream == 0 {
        return Err(FrameError::Stream);
    }
    let Some(payload) = rest.get(..payload) else { return Ok(None) };
    Ok(Some((Frame { kind, stream, payload }, HEADER.saturating_add(payload.len()))))
}

/// Appends a frame; false, and nothing is appended, where its kind has no such payload.
#[must_use]
pub fn put(to: &mut Vec<u8>, frame: Frame<'_>) -> bool {
    put_parts(to, frame.kind, frame.stream, &[frame.payload])
}

/// Appends a `Data` frame with at most [`MAX_DATA`] - 1 bytes; false if there are more.
#[must_use]
pub fn put_data(to: &mut Vec<u8>, stream: u32, lane: Lane, bytes: &[u8]) -> bool {
    put_parts(to, Kind::Data, stream, &[&[lane.number()], bytes])
}

fn put_parts(to: &mut Vec<u8>, kind: Kind, stream: u32, parts: &[&[u8]]) -> bool {
    let payload: usize = parts.iter().map(|part| part.len()).sum();
    let Ok(length) = u32::try_from(payload.saturating_add(HEADER - 4)) else { return false };
    if payload > kind.longest() || stream == 0 {
        return false;
    }
    to.extend(length.to_le_bytes());
    to.push(kind.number());
    to.extend(stream.to_le_bytes());
    parts.iter().for_each(|part| to.extend_from_slice(part));
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        assert!(put(&mut bytes, Frame { kind, stream, payload }));
        bytes
    }

    #[test]
    fn a_frame_is_read_as_it_was_written_and_not_before_it_is_whole() {
        for (kind, payload) in
            [(Kind::Open, &b"{}"[..]), (Kind::Data, b"\x01x"), (Kind::Eof, b""), (Kind::Credit, b"1234")]
        {
            let bytes = frame(kind, 7, payload);
            for cut in 0..bytes.len() {
                assert_eq!(first(&bytes[..cut]), Ok(None), "{kind:?} {cut}");
            }
            let whole = Frame { kind, stream: 7, payload };
            assert_eq!(first(&bytes), Ok(Some((whole, bytes.len()))));
        }
    }

    #[test]
    fn what_no_frame_may_be_is_an_error_at_once() {
        let header = |length: u32, kind: u8, stream: u32| {
            let mut bytes = length.to_le_bytes().to_vec();
            bytes.push(kind);
            bytes.extend(stream.to_le_bytes());
            bytes
        };
        assert_eq!(first(&header(5, 0, 1)), Err(FrameError::Kind(0)));
        assert_eq!(first(&header(5, 10, 1)), Err(FrameError::Kind(10)));
        assert_eq!(first(&header(5, Kind::Eof.number(), 0)), Err(FrameError::Stream));
        assert_eq!(first(&header(6, Kind::Eof.number(), 1)), Err(FrameError::Length(6)));
        assert_eq!(first(&header(5, Kind::Data.number(), 1)), Err(FrameError::Length(5)));
        assert_eq!(first(&header(4, Kind::Open.number(), 1)), Err(FrameError::Length(4)));
        assert_eq!(first(&header(8, Kind::Credit.number(), 1)), Err(FrameError::Length(8)));
        let most = u32::try_from(MAX_WORDS + 6).unwrap();
        assert_eq!(first(&header(most, Kind::Open.number(), 1)), Err(FrameError::Length(most)));
        let most = u32::try_from(MAX_DATA + 6).unwrap();
        assert_eq!(first(&header(most, Kind::Data.number(), 1)), Err(FrameError::Length(most)));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(Some((frame, length))) = first(&bytes) {
                let mut again = Vec::new();
                prop_assert!(put(&mut again, frame));
                prop_assert_eq!(&again[..], &bytes[..length]);
            }
        }
    }
}
