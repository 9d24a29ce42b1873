//! Frames on the control socket: `length u32, version u8, kind u8, channel u16`, then the payload; little-endian.
//!
//! # Promises
//! Encoding and decoding allocate nothing and never panic, whatever the bytes: after *go* the supervisor treats the
//! guest as hostile. An unknown version, kind or field value is an error, not something to skip.
//!
//! The channel is 0 for the payload that the config names; later ones (exec, files, ports) get their own numbers.

mod from_guest;
mod posture;
mod to_guest;

pub use from_guest::{End, ExecFailure, Exited, FromGuest, Slots};
pub use posture::{Capabilities, MAX_LABEL, MAX_RLIMITS, Posture, ProbeErrnos};
pub use to_guest::ToGuest;

use crate::wire::Reader;

/// Version of the frames.
pub const VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER: usize = 8;
/// Longest payload.
pub const MAX_PAYLOAD: usize = 64 * 1024 - HEADER;
/// Room that any frame of ours fits in, header included.
pub const MAX_OWN: usize = 1024;

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
}

/// A frame's frame: who it is for, and what is in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// Kind.
    pub kind: u8,
    /// Channel.
    pub channel: u16,
    /// Payload.
    pub payload: &'a [u8],
}

/// The first frame in the bytes and how long it is with its header; `None` = more bytes are needed.
///
/// # Errors
/// [`FrameError::TooLong`], [`FrameError::Version`], as soon as the header tells.
pub fn first(bytes: &[u8]) -> Result<Option<(Raw<'_>, usize)>, FrameError> {
    let mut reader = Reader::new(bytes);
    let (Some(len), Some(version), Some(kind), Some(channel)) = (reader.u32(), reader.u8(), reader.u8(), reader.u16())
    else {
        return Ok(None);
    };
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let payload = usize::try_from(len).ok().filter(|len| *len <= MAX_PAYLOAD).ok_or(FrameError::TooLong(len))?;
    Ok(reader.take(payload).map(|payload| (Raw { kind, channel, payload }, HEADER.saturating_add(payload.len()))))
}

/// Puts a header before the payload that `write` writes; the whole length, or `None` if it does not fit.
fn encode(to: &mut [u8], kind: u8, channel: u16, write: impl FnOnce(&mut crate::wire::Writer<'_>)) -> Option<usize> {
    let (header, rest) = to.split_at_mut_checked(HEADER)?;
    let mut payload = crate::wire::Writer::new(rest);
    write(&mut payload);
    let len = payload.finish().filter(|len| *len <= MAX_PAYLOAD)?;
    let mut writer = crate::wire::Writer::new(header);
    writer.u32(u32::try_from(len).ok()?);
    writer.u8(VERSION);
    writer.u8(kind);
    writer.u16(channel);
    writer.finish()?.checked_add(len)
}
