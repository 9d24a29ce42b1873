//! Little-endian reading and writing with every length checked. No allocation, no panic, no index.

use core::ffi::CStr;

/// Reads from the front of a slice; `None` from any method means that the bytes are malformed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.rest.split_at_checked(len)?;
        self.rest = tail;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.rest.split_first_chunk::<N>()?;
        self.rest = tail;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Exactly 0 or 1: a second spelling of `true` would be a place to hide things.
    pub(crate) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            2.. => None,
        }
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.take(len)
    }

    /// A text that ends with its only NUL, so that it can go to the kernel as it lies.
    pub(crate) fn text(&mut self) -> Option<&'a CStr> {
        CStr::from_bytes_with_nul(self.bytes()?).ok()
    }

    pub(crate) fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }
}

/// Writes to the front of a slice; a write that does not fit makes [`Writer::finish`] answer `None`.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    to: &'a mut [u8],
    len: usize,
    fits: bool,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(to: &'a mut [u8]) -> Self {
        Self { to, len: 0, fits: true }
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        let end = self.len.saturating_add(bytes.len());
        match self.to.get_mut(self.len..end) {
            Some(place) => {
                place.copy_from_slice(bytes);
                self.len = end;
            }
            None => self.fits = false,
        }
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.put(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.put(&value.to_le_bytes());
    }

    /// With its length first, as [`Reader::bytes`] reads it.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        match u32::try_from(bytes.len()) {
            Ok(len) => self.u32(len),
            Err(_) => self.fits = false,
        }
        self.put(bytes);
    }

    pub(crate) fn finish(self) -> Option<usize> {
        self.fits.then_some(self.len)
    }
}
