//! One reading of a request's path.
//!
//! Servers differ in what they decode, fold and cut. A path is judged after it was decoded once; where another reader could see
//! another path (encoded slashes, dots that climb, backslashes, `;` parameters, empty segments, anything decoded twice), there is
//! no reading at all, and a rule with paths does not let it through.

/// A path (without query) decoded once; the reason where it has more than one reading.
///
/// # Errors
/// In words that end a sentence "the path has ...".
pub fn plain(path: &str) -> Result<String, &'static str> {
    if !path.starts_with('/') {
        return Err("no `/` at its beginning");
    }
    let decoded = decode(path)?;
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
    if decoded.split('/').any(|segment| matches!(segment.trim(), "." | "..")) {
        return Err("a segment `.` or `..`");
    }
    Ok(decoded)
}

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
            b'/' => return Err("an encoded slash"),
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
            "/a\u{7f}",
        ] {
            assert!(plain(bad).is_err(), "{bad:?} reads as {:?}", plain(bad));
        }
    }

    proptest! {
        #[test]
        fn what_is_read_reads_as_itself(path in "(/[a-zA-Z0-9%.;\\\\ ?#-]{0,8}){0,5}") {
            if let Ok(read) = plain(&path) {
                prop_assert!(read.starts_with('/') && !read.contains("/../") && !read.contains('%'));
                prop_assert_eq!(plain(&read), Ok(read.clone()));
            }
        }
    }
}
