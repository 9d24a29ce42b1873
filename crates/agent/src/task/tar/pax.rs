//! Extended headers: what does not fit into a block. `LENGTH KEY=VALUE\n`, the length counting itself.

/// Appends a record.
pub(super) fn put(to: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len().saturating_add(value.len()).saturating_add(3);
    // The length has as many digits as make it true.
    let digits = |number: usize| number.to_string().len();
    let mut length = rest.saturating_add(digits(rest));
    length = rest.saturating_add(digits(length));
    to.extend_from_slice(format!("{length} {key}=").as_bytes());
    to.extend_from_slice(value);
    to.push(b'\n');
}

/// What a member's extended header says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Extended {
    pub(super) path: Option<Vec<u8>>,
    pub(super) link: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    /// Seconds and nanoseconds.
    pub(super) modified: Option<(i64, u32)>,
    /// It is in a form of its own (holes left out).
    pub(super) sparse: bool,
}

impl Extended {
    /// Takes in the records of a header; `None`: they cannot be read.
    pub(super) fn read(&mut self, mut bytes: &[u8]) -> Option<()> {
        while !bytes.is_empty() {
            let space = bytes.iter().position(|byte| *byte == b' ')?;
            let length: usize = std::str::from_utf8(bytes.get(..space)?).ok()?.parse().ok()?;
            let record = bytes.get(space.checked_add(1)?..length)?.strip_suffix(b"\n")?;
            bytes = bytes.get(length..)?;
            let equals = record.iter().position(|byte| *byte == b'=')?;
            let (key, value) = (record.get(..equals)?, record.get(equals.checked_add(1)?..)?);
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => self.size = Some(std::str::from_utf8(value).ok()?.parse().ok()?),
                b"mtime" => self.modified = Some(time(value)?),
                _ => self.sparse |= key.starts_with(b"GNU.sparse."),
            }
        }
        Some(())
    }
}

fn time(text: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(text).ok()?;
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let whole: i64 = seconds.parse().ok()?;
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    // -0.5 is half a second before 0.
    if text.starts_with('-') && nanos > 0 {
        return Some((whole.checked_sub(1)?, 1_000_000_000_u32.checked_sub(nanos)?));
    }
    Some((whole, nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_says_how_long_it_is() {
        for length in [0, 1, 80, 81, 82, 83, 84, 85, 86, 87, 88, 89, 90, 91, 970, 980, 990, 1000, 9980, 9990] {
            let mut bytes = Vec::new();
            put(&mut bytes, "path", &vec![b'x'; length]);
            let stated: usize = std::str::from_utf8(&bytes).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert_eq!(stated, bytes.len(), "{length}");
            let mut read = Extended::default();
            read.read(&bytes).unwrap();
            assert_eq!(read.path.map(|path| path.len()), Some(length));
        }
    }

    #[test]
    fn what_is_no_record_is_an_error() {
        for bytes in
            [&b"x"[..], b"5 a=", b"99 a=b\n", b"0 a=b\n", b"1 ", b"6 ab\n\n", b"12 size=-1\n", b"13 mtime=1.x\n"]
        {
            assert_eq!(Extended::default().read(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn times_have_fractions_and_may_lie_before_1970() {
        assert_eq!(time(b"12"), Some((12, 0)));
        assert_eq!(time(b"12.5"), Some((12, 500_000_000)));
        assert_eq!(time(b"12.1234567899"), Some((12, 123_456_789)));
        assert_eq!(time(b"-0.25"), Some((-1, 750_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"1.-5"), None);
    }
}
