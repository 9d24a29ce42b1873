//! The readings of a request's path.
//!
//! Servers differ in what they decode, fold and cut. A path is judged after it was decoded once; where another reader could see
//! another path (dots that climb, backslashes, `;` parameters, empty segments, anything decoded twice), there is no reading at
//! all, and a rule with paths does not let it through. An encoded slash has two readings: a rule may say that it means both.

use crate::pattern;

/// What servers may take a path for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// Decoded once, slashes as well.
    pub decoded: String,
    /// Where slashes are encoded: for servers that leave these as they are. They are written as `%2F`, which nothing else is.
    pub kept: Option<String>,
}

impl Read {
    /// Whether globs name it, in every reading that it may have. `two`: whether an encoded slash is taken at all, which has two.
    #[must_use]
    pub fn is_of(&self, globs: &[String], two: bool) -> bool {
        let named = |path: &String| globs.iter().any(|glob| pattern::path(glob, path));
        named(&self.decoded) && self.kept.as_ref().is_none_or(|kept| two && named(kept))
    }
}

/// An encoded slash that was left as it is.
const SLASH: &str = "%2F";

/// A path (without query) as servers may take it; the reason where it has more readings than those two.
///
/// # Errors
/// In words that end a sentence "the path has ...".
pub fn read(path: &str) -> Result<Read, &'static str> {
    if !path.starts_with('/') {
        return Err("no `/` at its beginning");
    }
    let kept = decode(path)?;
    let decoded = kept.replace(SLASH, "/");
    // Of the two this one has every `/` that there may be, and so every segment that could be empty or climb.
    if decoded.contains('\\') {
        return Err("a backslash");
    }
    if decoded.contains(';') {
        return Err("a `;`, which some servers cut at");
    }
    if decoded.chars().any(char::is_control) {
        return Err("a control character");
    }
    if decoded.contains(['?', '#']) {
        return Err("an encoded `?` or `#`");
    }
    if decoded.contains("//") {
        return Err("an empty segment (`//`)");
    }
    let folded: String = decoded.chars().map(plainest).collect();
    if folded.split('/').any(is_of_dots) {
        return Err("a segment of dots (`.`, `..`)");
    }
    let kept = (kept != decoded).then_some(kept);
    Ok(Read { decoded, kept })
}

/// The same of a path that may have no encoded slashes.
///
/// # Errors
/// As [`read`], and for an encoded slash.
pub fn plain(path: &str) -> Result<String, &'static str> {
    let Read { decoded, kept } = read(path)?;
    if kept.is_some() { Err("an encoded slash") } else { Ok(decoded) }
}

/// What some servers fold a character into: dots, and what ends a segment (slashes of either kind, `;`), have other forms (of full
/// width, as leaders, as an operator, the backslash of Japanese and Korean code pages), and some blanks are seen by nobody.
const fn plainest(c: char) -> char {
    match c {
        '\u{2024}'..='\u{2026}' | '\u{fe19}' | '\u{fe30}' | '\u{fe52}' | '\u{ff0e}' => '.',
        '\u{a5}' | '\u{20a9}' | '\u{20e5}' | '\u{2216}' | '\u{29f5}' | '\u{fe68}' | '\u{ff3c}' | '\u{ffe5}'
        | '\u{ffe6}' => '/',
        '\u{2044}' | '\u{2215}' | '\u{29f8}' | '\u{ff0f}' | '\u{37e}' | '\u{fe14}' | '\u{fe54}' | '\u{ff1b}' => '/',
        '\u{ad}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}' => ' ',
        other => other,
    }
}

/// Whether a segment climbs for somebody: blanks beside dots are cut by some, and more than two dots taken for two.
fn is_of_dots(segment: &str) -> bool {
    segment.contains('.') && segment.chars().all(|c| c == '.' || c.is_whitespace())
}

/// Decoded once, but for slashes. No other `%` is left.
fn decode(path: &str) -> Result<String, &'static str> {
    let mut out = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|b| char::from(b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
        let (Some(high), Some(low)) = (digit(bytes.next()), digit(bytes.next())) else {
            return Err("a `%` without two hexadecimal digits");
        };
        match high.wrapping_shl(4) | low {
            b'/' => out.extend_from_slice(SLASH.as_bytes()),
            b'%' => return Err("an encoded `%`, which some servers decode twice"),
            other => out.push(other),
        }
    }
    String::from_utf8(out).map_err(|_not_utf8| "bytes that are no UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_is_decoded_once() {
        for (written, read) in [
            ("/", "/"),
            ("/a/b.c", "/a/b.c"),
            ("/%61%2Db", "/a-b"),
            ("/a%20b", "/a b"),
            ("/b%C3%BCcher", "/b\u{fc}cher"),
            ("/a..b/.git", "/a..b/.git"),
            ("/a...b/c\u{2026}/\u{ff0f}d", "/a...b/c\u{2026}/\u{ff0f}d"),
            ("/\u{a5}100/\u{3000}x\u{ff1b}\u{200b}", "/\u{a5}100/\u{3000}x\u{ff1b}\u{200b}"),
            ("/a/", "/a/"),
            ("/@scope%40x/~u/!$&'()*+,=:", "/@scope@x/~u/!$&'()*+,=:"),
        ] {
            assert_eq!(plain(written).as_deref(), Ok(read), "{written}");
        }
    }

    #[test]
    fn what_has_more_than_one_reading_has_none() {
        for bad in [
            "",
            "a",
            "*",
            "//a",
            "/a//b",
            "/a/../b",
            "/a/..",
            "/./a",
            "/%2e%2e/a",
            "/.%2E/a",
            "/a%2fb",
            "/a%2Fb",
            "/a\\b",
            "/a%5cb",
            "/a;b",
            "/a%3Bb",
            "/a%00",
            "/a%0d%0a",
            "/%252e",
            "/%25",
            "/%",
            "/%2",
            "/%zz",
            "/%ff",
            "/%c0%ae",
            "/a%3fb",
            "/a%23b",
            "/a/%2e%2e%20/b",
            "/a/.. /b",
            "/a/.. ./b",
            "/a/.../b",
            "/a/%ef%bc%8e%ef%bc%8e/b",
            "/a/\u{2025}/b",
            "/a/.\u{ff0e}\u{ff0f}b",
            "/a/..\u{a5}b",
            "/a/..%e2%82%a9b",
            "/a/..\u{20e5}b",
            "/a/..%ef%bc%9bx/b",
            "/a/..\u{37e}/b",
            "/a/.%e2%80%8b./b",
            "/a/\u{feff}../b",
            "/a\u{2215}..",
            "/a\u{7f}",
        ] {
            assert!(plain(bad).is_err(), "{bad:?} reads as {:?}", plain(bad));
        }
    }

    #[test]
    fn an_encoded_slash_has_two_readings() {
        for (written, decoded, kept) in [
            ("/a/b", "/a/b", None),
            ("/@s%2fn", "/@s/n", Some("/@s%2Fn")),
            ("/%40s%2Fn/x%2fy", "/@s/n/x/y", Some("/@s%2Fn/x%2Fy")),
            ("/a%2f", "/a/", Some("/a%2F")),
        ] {
            let expected = Read { decoded: decoded.to_owned(), kept: kept.map(str::to_owned) };
            assert_eq!(read(written), Ok(expected), "{written}");
        }
        // What climbs, is empty or is decoded twice in one of them has no reading.
        for bad in [
            "/a/..%2fb",
            "/a%2f..%2fb",
            "/a%2f%2e%2e",
            "/a%2f.%2fb",
            "/a%2F%2Fb",
            "/%2fa",
            "/a/%2fb",
            "/a%252fb",
            "/a%2f%5cb",
            "/a%2f..%20/b",
            "/a%2f;b",
            "/a%2",
            "/a%2f%00",
        ] {
            assert!(read(bad).is_err(), "{bad:?} reads as {:?}", read(bad));
        }
    }

    proptest! {
        #[test]
        fn both_readings_are_of_one_path(path in "(/[a-z%2fFe.]{0,8}){0,5}") {
            if let Ok(Read { decoded, kept }) = read(&path) {
                prop_assert!(!decoded.contains('%') && !decoded.contains("//") && !decoded.contains("/../"));
                prop_assert_eq!(read(&decoded), Ok(Read { decoded: decoded.clone(), kept: None }));
                let lower = path.to_lowercase();
                prop_assert_eq!(kept.is_some(), lower.contains("%2f"));
                prop_assert!(kept.is_none_or(|kept| kept.replace("%2F", "/") == decoded));
            }
        }

        #[test]
        fn what_is_read_reads_as_itself(path in "(/[a-zA-Z0-9%.;\\\\ ?#-]{0,8}){0,5}") {
            if let Ok(read) = plain(&path) {
                prop_assert!(read.starts_with('/') && !read.contains("/../") && !read.contains('%'));
                prop_assert_eq!(plain(&read), Ok(read.clone()));
            }
        }
    }
}
