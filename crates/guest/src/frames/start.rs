//! A program that is to be started beside the first.

use core::ffi::CStr;
#[cfg(feature = "std")]
use std::ffi::CString;

use super::MAX_PAYLOAD;
#[cfg(feature = "std")]
use super::{Address, MAX_FRAME, ToGuest};
use crate::config::List;
use crate::wire::{Reader, Writer};

/// Most texts that fit into a frame: each has its length and its NUL.
pub const MAX_TEXTS: usize = MAX_PAYLOAD / 5;

/// What is started; its stdin, stdout and stderr come along with the first byte of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start<'a> {
    /// The program and its arguments; never empty.
    pub argv: List<'a, &'a CStr>,
    /// `KEY=VALUE`.
    pub env: List<'a, &'a CStr>,
    /// Working directory; empty = `/`.
    pub cwd: &'a CStr,
}

impl<'a> Start<'a> {
    pub(super) fn read(r: &mut Reader<'a>) -> Option<Self> {
        let start = Self { argv: List::read(r)?, env: List::read(r)?, cwd: r.text()? };
        (!start.argv.is_empty()).then_some(start)
    }

    pub(super) fn put(&self, payload: &mut Writer<'_>) {
        self.argv.put(payload);
        self.env.put(payload);
        payload.bytes(self.cwd.to_bytes_with_nul());
    }
}

/// A [`Start`] that owns its texts: the supervisor's side.
#[cfg(feature = "std")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedStart {
    /// The program and its arguments.
    pub argv: Vec<CString>,
    /// `KEY=VALUE`.
    pub env: Vec<CString>,
    /// Working directory; empty = `/`.
    pub cwd: CString,
}

#[cfg(feature = "std")]
impl OwnedStart {
    /// The frame; `None` if there is no program, if it would be longer than [`MAX_FRAME`], or if no `Start` can have
    /// this address.
    #[must_use]
    pub fn encode(&self, at: Address) -> Option<Vec<u8>> {
        use crate::config::Put as _;
        let mut payload = Vec::new();
        self.argv.put(&mut payload);
        self.env.put(&mut payload);
        self.cwd.put(&mut payload);
        let start = Start::read(&mut Reader::new(&payload))?;
        let mut frame = vec![0; MAX_FRAME];
        let length = ToGuest::Start(start).encode(at, &mut frame)?;
        frame.truncate(length);
        Some(frame)
    }
}
