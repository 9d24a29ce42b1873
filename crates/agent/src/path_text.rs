//! Paths as texts. A path is bytes without a zero, and JSON has texts alone: each byte that is part of no text (UTF-8) is written as a
//! zero and two small hexadecimal digits, `caf\u{0}e9`. So every path has one text, and every text that is a path at all one path.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// The text of a path, or of a name in one.
#[must_use]
pub fn of(path: impl AsRef<Path>) -> String {
    let bytes = path.as_ref().as_os_str().as_bytes();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            text.push_str(&format!("\0{byte:02x}"));
        }
    }
    text
}

/// The path of a text; `None`: the text is of none, since it has a zero that does not begin such a byte, or writes a path in another
/// way than [`of`] does.
#[must_use]
pub fn path(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('\0');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    let path = PathBuf::from(OsString::from_vec(bytes));
    (of(&path) == text).then_some(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_text_is_itself_and_what_is_none_has_one_way_to_be_written() {
        for text in ["", "/a/b c", "häß", "日本"] {
            assert_eq!(path(text), Some(PathBuf::from(text)));
        }
        let latin = PathBuf::from(OsString::from_vec(b"/caf\xe9/x".to_vec()));
        assert_eq!(of(&latin), "/caf\0e9/x");
        assert_eq!(path("/caf\0e9/x"), Some(latin));
        // No second way to write `/`, `.`, a zero or `é`; nor half a byte.
        for none in ["a\0", "a\0e", "a\0zz", "a\x002f", "a\x002e", "a\x0000", "a\0E9", "\0c3\0a9", "\0+9", "a\0é"] {
            assert_eq!(path(none), None, "{none:?}");
        }
    }

    proptest! {
        #[test]
        fn every_path_comes_back(bytes in proptest::collection::vec(1_u8.., 0..64)) {
            let name = PathBuf::from(OsString::from_vec(bytes));
            prop_assert_eq!(path(&of(&name)), Some(name));
        }

        #[test]
        fn every_text_that_is_a_path_comes_back(text in any::<String>()) {
            if let Some(found) = path(&text) {
                prop_assert_eq!(of(found), text);
            }
        }
    }
}
