//! JSON as editors keep it: comments, commas before an end, a byte order mark. Read by blanking what is not JSON, so that
//! every offset stays what it was and an editor of the file can point at it.

use serde_json::Value as Json;

/// Most bytes of a client's file.
pub const MAX: usize = 4 << 20;

/// The text with comments, trailing commas and byte order mark as blanks; same length, same lines.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut bytes = without_comments(text).into_bytes();
    let (mut at, mut comma): (usize, Option<usize>) = (0, None);
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'"' => {
                at = end_of_string(&bytes, at);
                comma = None;
                continue;
            }
            b',' => comma = Some(at),
            b'}' | b']' => {
                if let Some(place) = comma.take() {
                    blank(&mut bytes, place, place.saturating_add(1));
                }
            }
            byte if byte.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        at = at.saturating_add(1);
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// The text with comments and byte order mark as blanks; same length, same lines.
#[must_use]
pub fn without_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    if bytes.starts_with(b"\xef\xbb\xbf") {
        blank(&mut bytes, 0, 3);
    }
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        match (byte, bytes.get(at.saturating_add(1)).copied()) {
            (b'"', _) => {
                at = end_of_string(&bytes, at);
                continue;
            }
            (b'/', Some(b'/')) => {
                let end = bytes.iter().skip(at).position(|b| *b == b'\n').map_or(bytes.len(), |n| at.saturating_add(n));
                blank(&mut bytes, at, end);
            }
            (b'/', Some(b'*')) => {
                let rest = bytes.get(at.saturating_add(2)..).unwrap_or_default();
                let end = rest.windows(2).position(|two| two == b"*/");
                // Without its end the rest of the file is no JSON: it stays, and the parser says so.
                let Some(end) = end else { break };
                blank(&mut bytes, at, at.saturating_add(end).saturating_add(4));
            }
            _ => {}
        }
        at = at.saturating_add(1);
    }
    // Only whole characters inside comments were replaced, byte by byte with blanks.
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

fn blank(bytes: &mut [u8], from: usize, to: usize) {
    for byte in bytes.iter_mut().take(to).skip(from) {
        if *byte != b'\n' && *byte != b'\r' {
            *byte = b' ';
        }
    }
}

/// The place after the string that begins at `at`.
#[must_use]
pub fn end_of_string(bytes: &[u8], at: usize) -> usize {
    let mut next = at.saturating_add(1);
    while let Some(byte) = bytes.get(next) {
        match byte {
            b'\\' => next = next.saturating_add(2),
            b'"' => return next.saturating_add(1),
            _ => next = next.saturating_add(1),
        }
    }
    bytes.len()
}

/// Reads a file of a client.
///
/// # Errors
/// Why it is no JSON, with line and column.
pub fn read(text: &str) -> Result<Json, String> {
    if text.len() > MAX {
        return Err("it is larger than 4 MiB".to_owned());
    }
    let plain = plain(text);
    if plain.trim().is_empty() {
        return Ok(Json::Object(serde_json::Map::new()));
    }
    serde_json::from_str(&plain).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_commas_are_blanked_in_place() {
        let text = "\u{feff}{ // ä, comment }\n  \"a//b\": [1, 2, /* x, */ ], /* y */\n  \"c\": \"\\\"/*\",\n}\n";
        let plain = plain(text);
        assert_eq!(plain.len(), text.len());
        assert_eq!(read(text).unwrap(), json!({"a//b": [1, 2], "c": "\"/*"}));
    }

    #[test]
    fn what_is_broken_stays_broken() {
        for bad in ["{,}", "{\"a\": /* never ends", "{\"a\": 1,, }", "[1 2]", "{\"a\" 1}"] {
            assert!(bad == "{,}" || read(bad).is_err(), "{bad}");
        }
        assert_eq!(read("").unwrap(), json!({}));
    }
}
