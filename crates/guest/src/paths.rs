//! Absolute paths of the inside, cut into parents and names in a fixed buffer.

use core::ffi::CStr;

use sys::bare::Errno;

/// Longest path, its NUL included (`PATH_MAX`).
pub(crate) const MAX: usize = 4096;

/// A path under construction, always with a NUL behind it.
pub(crate) struct Path {
    // INVARIANT: bytes[len] == 0 and no NUL lies before it.
    bytes: [u8; MAX],
    len: usize,
}

impl Path {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; MAX], len: 0 }
    }

    pub(crate) fn push(&mut self, part: &[u8]) -> Result<(), Errno> {
        let end = self.len.checked_add(part.len()).filter(|end| *end < MAX).ok_or(Errno::ENAMETOOLONG)?;
        let place = self.bytes.get_mut(self.len..end).ok_or(Errno::ENAMETOOLONG)?;
        place.copy_from_slice(part);
        self.len = end;
        if let Some(after) = self.bytes.get_mut(end) {
            *after = 0;
        }
        Ok(())
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.bytes[0] = 0;
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.bytes).unwrap_or(c"")
    }
}

/// A decimal number as a text.
pub(crate) struct Decimal {
    digits: [u8; 24],
    from: usize,
}

impl Decimal {
    pub(crate) fn new(mut number: u64) -> Self {
        let mut decimal = Self { digits: [0; 24], from: 23 };
        loop {
            decimal.from = decimal.from.saturating_sub(1);
            if let Some(place) = decimal.digits.get_mut(decimal.from) {
                *place = b"0123456789".get(usize::try_from(number % 10).unwrap_or(0)).copied().unwrap_or(b'0');
            }
            number /= 10;
            if number == 0 {
                return decimal;
            }
        }
    }

    pub(crate) fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_until_nul(self.digits.get(self.from..).unwrap_or(&[0])).unwrap_or(c"0")
    }
}

/// What lies behind the leading slash; `.` for the root itself. The text keeps its NUL.
pub(crate) fn relative(path: &CStr) -> Result<&CStr, Errno> {
    let mut rest = path.to_bytes_with_nul();
    if rest.first() != Some(&b'/') {
        return Err(Errno::EINVAL);
    }
    while let Some((b'/', tail)) = rest.split_first() {
        rest = tail;
    }
    let rest = CStr::from_bytes_with_nul(rest).or(Err(Errno::EINVAL))?;
    if rest.is_empty() { Ok(c".") } else { Ok(rest) }
}

/// Parent and name of a relative path: `a/b/c` is `a/b` and `c`, `c` is `.` and `c`. A last part that is no name
/// (`.`, `..`, nothing) is refused.
pub(crate) fn split(path: &CStr) -> Result<(&[u8], &CStr), Errno> {
    let bytes = path.to_bytes_with_nul();
    let text = path.to_bytes();
    let slash = text.iter().rposition(|byte| *byte == b'/');
    let (parent, name) = match slash {
        Some(at) => (text.get(..at).unwrap_or(&[]), bytes.get(at.saturating_add(1)..).unwrap_or(&[])),
        None => (&b"."[..], bytes),
    };
    let name = CStr::from_bytes_with_nul(name).or(Err(Errno::EINVAL))?;
    if name.is_empty() || name == c"." || name == c".." { Err(Errno::EINVAL) } else { Ok((parent, name)) }
}

#[cfg(all(test, feature = "std"))]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_cut_at_its_last_slash() {
        assert_eq!(split(c"a/b/c"), Ok((&b"a/b"[..], c"c")));
        assert_eq!(split(c"c"), Ok((&b"."[..], c"c")));
    }

    #[test]
    fn a_last_part_that_is_no_name_is_refused() {
        for path in [c"a/", c"a/..", c".", c"", c"a/."] {
            assert_eq!(split(path), Err(Errno::EINVAL), "{path:?}");
        }
    }

    #[test]
    fn only_absolute_paths_are_taken() {
        assert_eq!(relative(c"/usr/lib"), Ok(c"usr/lib"));
        assert_eq!(relative(c"//usr"), Ok(c"usr"));
        assert_eq!(relative(c"/"), Ok(c"."));
        assert_eq!(relative(c"usr"), Err(Errno::EINVAL));
        assert_eq!(relative(c""), Err(Errno::EINVAL));
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 7, 10, 4096, u64::MAX] {
            assert_eq!(Decimal::new(number).as_c_str().to_str().unwrap(), number.to_string());
        }
    }

    #[test]
    fn a_path_that_would_not_fit_is_refused() {
        let mut path = Path::new();
        assert_eq!(path.push(&[b'a'; MAX]), Err(Errno::ENAMETOOLONG));
        assert_eq!(path.push(&[b'a'; MAX - 1]), Ok(()));
        assert_eq!(path.as_c_str().to_bytes().len(), MAX - 1);
    }
}
