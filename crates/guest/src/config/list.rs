//! A checked list inside the config: read again on each walk, never copied.

use core::marker::PhantomData;

use crate::wire::{Reader, Writer};

/// Something that a list can hold.
pub(crate) trait Item<'a>: Sized {
    /// Reads one from the front.
    fn read(reader: &mut Reader<'a>) -> Option<Self>;
}

impl<'a> Item<'a> for &'a core::ffi::CStr {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        reader.text()
    }
}

impl<'a> Item<'a> for super::Rlimit {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self { resource: reader.u32()?, value: reader.u64()? })
    }
}

impl<'a> Item<'a> for super::Inlet {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self { ipv6: reader.flag()?, udp: reader.flag()?, port: reader.u16()? })
    }
}

/// A list whose items were all checked when the config was opened.
#[derive(Debug)]
pub struct List<'a, T> {
    count: usize,
    bytes: &'a [u8],
    items: PhantomData<T>,
}

impl<T> Clone for List<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<'_, T> {}

/// Lists of the same items have the same bytes: there is one way to write each.
impl<T> PartialEq for List<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        (self.count, self.bytes) == (other.count, other.bytes)
    }
}

impl<T> Eq for List<'_, T> {}

#[expect(private_bounds, reason = "only this crate knows what a list can hold")]
impl<'a, T: Item<'a>> List<'a, T> {
    /// How many items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The items, in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let mut reader = Reader::new(self.bytes);
        (0..self.count).map_while(move |_| T::read(&mut reader))
    }

    pub(crate) fn read(reader: &mut Reader<'a>) -> Option<Self> {
        let count = usize::try_from(reader.u32()?).ok()?;
        let bytes = reader.bytes()?;
        let mut items = Reader::new(bytes);
        // An item has at least one byte, so this ends after as many rounds as there are bytes.
        for _ in 0..count {
            T::read(&mut items)?;
        }
        (items.remaining() == 0).then_some(Self { count, bytes, items: PhantomData })
    }
    /// Writes it as it was read.
    pub(crate) fn put(&self, to: &mut Writer<'_>) {
        // It was read from four bytes.
        to.u32(u32::try_from(self.count).unwrap_or(u32::MAX));
        to.bytes(self.bytes);
    }
}
