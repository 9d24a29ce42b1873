//! Frames on the control socket: `length u32, version u8, kind u8, channel u16, request u32`, then the payload;
//! little-endian.
//!
//! # Promises
//! Encoding and decoding allocate nothing and never panic, whatever the bytes: after *go* the supervisor treats the
//! guest as hostile. An unknown version, kind or field value is an error, not something to skip.
//!
//! # Channels and requests
//! A channel is a program: 0 the one that the config names, and each one that a `Start` asks for has its own. A frame that
//! is about no program has channel 0. Channels are taken in order: a `Start` names the next one that was never used, or one
//! whose program has ended.
//!
//! A frame that is answered (`Go`, `Start`, `Ping`) has a request id that its sender chose, not 0, and its answers have
//! the same: `Pong`; `Started` or `ExecFailed`, and later `Exited`. All others have 0.

mod from_guest;
mod posture;
mod start;
mod to_guest;

pub use from_guest::{End, ExecFailure, Exited, FromGuest, Slots};
pub use posture::{Capabilities, MAX_LABEL, MAX_RLIMITS, Posture, ProbeErrnos};
#[cfg(feature = "std")]
pub use start::OwnedStart;
pub use start::{MAX_TEXTS, Start};
pub use to_guest::ToGuest;

use crate::wire::Reader;

/// Version of the frames.
pub const VERSION: u8 = 3;
/// Bytes before the payload.
pub const HEADER: usize = 12;
/// Longest frame.
pub const MAX_FRAME: usize = 64 * 1024;
/// Longest payload.
pub const MAX_PAYLOAD: usize = MAX_FRAME - HEADER;
/// Room that any frame but a `Start` fits in, header included.
pub const MAX_OWN: usize = 1024;
/// Most programs at once in one sandbox; one more is refused with [`ExecFailure::Resources`].
pub const MAX_PROGRAMS: usize = 64;

/// Why bytes are no frame. There is no way to find the next one: close the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Longer than any frame may be.
    TooLong(u32),
    /// Not our version.
    Version(u8),
    /// A kind that this side never gets.
    Kind(u8),
    /// A payload that is not as the other side would have written it.
    Payload(u8),
    /// A channel that a frame of this kind cannot have, or that nobody opened.
    Channel(u16),
    /// A request id where nothing was asked, or none where something was.
    Request(u32),
}

/// Which program a frame is about, and which request it belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// The program.
    pub channel: u16,
    /// The request; 0 = none.
    pub request: u32,
}

impl Address {
    /// Whether a frame can have it: one that is about a program any channel (but `Start` not the first), one that asks or
    /// answers a request.
    const fn check(self, any_channel: bool, request: bool) -> Result<(), FrameError> {
        if !any_channel && self.channel != 0 {
            return Err(FrameError::Channel(self.channel));
        }
        if request == (self.request == 0) { Err(FrameError::Request(self.request)) } else { Ok(()) }
    }
}

/// A frame's frame: who it is for, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// Kind.
    pub kind: u8,
    /// Program and request.
    pub at: Address,
    /// Payload.
    pub payload: &'a [u8],
}

/// The first frame in the bytes and how long it is with its header; `None` = more bytes are needed.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::Version`], as soon as the header tells.
pub fn first(bytes: &[u8]) -> Result<Option<(Raw<'_>, usize)>, FrameError> {
    let mut reader = Reader::new(bytes);
    let Some((len, version, kind, at)) = read_header(&mut reader) else { return Ok(None) };
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let payload = usize::try_from(len).ok().filter(|len| *len <= MAX_PAYLOAD).ok_or(FrameError::TooLong(len))?;
    Ok(reader.take(payload).map(|payload| (Raw { kind, at, payload }, HEADER.saturating_add(payload.len()))))
}

fn read_header(r: &mut Reader<'_>) -> Option<(u32, u8, u8, Address)> {
    Some((r.u32()?, r.u8()?, r.u8()?, Address { channel: r.u16()?, request: r.u32()? }))
}

/// Puts a header before the payload that `write` writes; the whole length, or `None` if it does not fit.
fn encode(to: &mut [u8], kind: u8, at: Address, write: impl FnOnce(&mut crate::wire::Writer<'_>)) -> Option<usize> {
    let (header, rest) = to.split_at_mut_checked(HEADER)?;
    let mut payload = crate::wire::Writer::new(rest);
    write(&mut payload);
    let len = payload.finish().filter(|len| *len <= MAX_PAYLOAD)?;
    let mut writer = crate::wire::Writer::new(header);
    writer.u32(u32::try_from(len).ok()?);
    writer.u8(VERSION);
    writer.u8(kind);
    writer.u16(at.channel);
    writer.u32(at.request);
    writer.finish()?.checked_add(len)
}
