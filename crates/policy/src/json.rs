//! Canonical JSON (RFC 8785), digests of it, hex, and the texts of TOML that are those of JSON.

use std::fmt::Write as _;

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// Lower-case hex.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
    }
    text
}

/// The bytes of a hex text; `None` if it is none.
#[must_use]
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A text as a value of TOML, quoted: TOML escapes one character more than JSON.
#[must_use]
pub fn toml_text(text: &str) -> String {
    Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

/// The digest of a value: SHA-256 over its canonical form.
#[must_use]
pub fn digest(value: &Value) -> String {
    sha256_hex(canonical(value).as_bytes())
}

/// RFC 8785: no spaces, keys by UTF-16 code units, shortest numbers.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(1024);
    write_canonical(&mut out, value);
    out
}

fn write_canonical(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_text(out, text),
        Value::Array(items) => {
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_canonical(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            entries.sort_unstable_by(|(a, _), (b, _)| by_utf16(a, b));
            out.push('{');
            for (index, (key, item)) in entries.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_text(out, key);
                out.push(':');
                write_canonical(out, item);
            }
            out.push('}');
        }
    }
}

/// Byte order and UTF-16 order differ only when a character beyond the BMP meets one from U+E000 on.
fn by_utf16(a: &str, b: &str) -> std::cmp::Ordering {
    if a.is_ascii() && b.is_ascii() { a.cmp(b) } else { a.encode_utf16().cmp(b.encode_utf16()) }
}

fn write_number(out: &mut String, number: &Number) {
    // A double holds integers exactly up to 2^53; RFC 8785 knows doubles only.
    const EXACT: u64 = 1 << 53;
    if let Some(n) = number.as_i64().filter(|n| n.unsigned_abs() <= EXACT) {
        push(out, format_args!("{n}"));
        return;
    }
    let n = number.as_f64().unwrap_or(0.0);
    let size = n.abs();
    if n == 0.0 {
        out.push('0');
    } else if (1e-6..1e21).contains(&size) {
        push(out, format_args!("{n}"));
    } else {
        let text = format!("{n:e}");
        out.push_str(&if text.contains("e-") { text } else { text.replace('e', "e+") });
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    if out.write_fmt(text).is_err() {
        out.push('0');
    }
}

/// A JSON string literal (RFC 8785, section 3.2.2.2).
pub fn write_text(out: &mut String, text: &str) {
    out.push('"');
    // Hardly any text has something to escape.
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push_str(text);
    } else {
        text.chars().for_each(|c| write_char(out, c));
    }
    out.push('"');
}

fn write_char(out: &mut String, c: char) {
    match c {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\u{8}' => out.push_str("\\b"),
        '\u{c}' => out.push_str("\\f"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        c if c < ' ' => push(out, format_args!("\\u{:04x}", u32::from(c))),
        c => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_sorted_by_utf16_and_nothing_is_escaped_without_need() {
        // From RFC 8785 section 3.2.3: the emoji sorts before U+FB33 by UTF-16, after it by code point.
        let value = json!({"\u{fb33}": 1, "\u{1f600}": 2, "\r": 3, "1": 4, "\u{80}": 5, "ö": "\u{f}\n/é\\\""});
        assert_eq!(
            canonical(&value),
            "{\"\\r\":3,\"1\":4,\"\u{80}\":5,\"ö\":\"\\u000f\\n/é\\\\\\\"\",\"\u{1f600}\":2,\"\u{fb33}\":1}"
        );
    }

    #[test]
    fn numbers_are_spelled_as_in_the_rfc() {
        let cases: [(f64, &str); 14] = [
            (0.0, "0"),
            (-0.0, "0"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_992.0, "9007199254740992"),
            (295_147_905_179_352_830_000.0, "295147905179352830000"),
            (1e21, "1e+21"),
            (9.999_999_999_999_997e22, "9.999999999999997e+22"),
            (0.000_001, "0.000001"),
            (1e-7, "1e-7"),
            (333_333_333.333_333_3, "333333333.3333333"),
            (-1.5, "-1.5"),
            (100.0, "100"),
            (0.001_5, "0.0015"),
        ];
        for (number, spelled) in cases {
            assert_eq!(canonical(&json!(number)), spelled, "{number}");
        }
        // RFC 8785 knows doubles alone: beyond 2^53 an integer is spelled as the double that it becomes.
        assert_eq!(
            canonical(&json!([u64::MAX, 1_u64 << 53, null, true])),
            "[18446744073709552000,9007199254740992,null,true]"
        );
    }

    #[test]
    fn hex_reads_back() {
        assert_eq!(unhex(&hex(&[0, 15, 255])).unwrap(), [0, 15, 255]);
        assert!(unhex("abc").is_none() && unhex("+1").is_none());
    }
}
