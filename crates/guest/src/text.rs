//! A short text of bounded length, without allocation.

/// At most `N` bytes; longer input is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    /// The first `N` bytes of `from`.
    #[must_use]
    pub fn new(from: &[u8]) -> Self {
        let mut text = Self::default();
        for (to, byte) in text.bytes.iter_mut().zip(from) {
            *to = *byte;
            text.len += 1;
        }
        text
    }

    /// What it holds.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self { bytes: [0; N], len: 0 }
    }
}

impl<const N: usize> core::fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "\"{}\"", self.as_bytes().escape_ascii())
    }
}
