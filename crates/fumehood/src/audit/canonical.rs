//! RFC 8785: one JSON value has one spelling, so that a hash over it can be computed again by anybody.
//!
//! Keys are sorted by UTF-16 code units, numbers are spelled as ECMAScript does, nothing is escaped that need not be.

use std::fmt::Write as _;

use serde_json::{Number, Value};
use sha2::{Digest as _, Sha256};

/// The canonical spelling of a value.
#[must_use]
pub fn canonical(value: &Value) -> String {
    let mut out = String::with_capacity(256);
    write_value(&mut out, value);
    out
}

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

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (i, (key, item)) in members.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                write_value(out, item);
            }
            out.push('}');
        }
    }
}

/// A JSON string literal.
pub(super) fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 => write_all(out, format_args!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write_all(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a `String` cannot fail.
    if out.write_fmt(text).is_err() {
        out.push_str("null");
    }
}

/// Integers as they are (beyond 2^53 too: we read them back as integers), the rest as ECMAScript's `Number::toString`.
fn write_number(out: &mut String, number: &Number) {
    let float = match (number.is_f64(), number.as_f64()) {
        (true, Some(float)) => float,
        (true, None) | (false, _) => return write_all(out, format_args!("{number}")),
    };
    if float == 0.0 {
        return out.push('0');
    }
    let shortest = format!("{:e}", float.abs());
    let (mantissa, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let point = exponent.parse::<i32>().unwrap_or(0) + 1;
    if float < 0.0 {
        out.push('-');
    }
    if count <= point && point <= 21 {
        out.push_str(&digits);
        out.extend((count..point).map(|_| '0'));
    } else if 0 < point && point <= 21 {
        let split = usize::try_from(point).unwrap_or(0);
        let (whole, part) = digits.split_at_checked(split).unwrap_or((&digits, ""));
        write_all(out, format_args!("{whole}.{part}"));
    } else if -6 < point && point <= 0 {
        out.push_str("0.");
        out.extend((point..0).map(|_| '0'));
        out.push_str(&digits);
    } else {
        let (first, rest) = digits.split_at_checked(1).unwrap_or((&digits, ""));
        let dot = if rest.is_empty() { "" } else { "." };
        let sign = if point > 0 { '+' } else { '-' };
        write_all(out, format_args!("{first}{dot}{rest}e{sign}{}", (point - 1).abs()));
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
        assert_eq!(
            canonical(&json!([u64::MAX, i64::MIN, null, true])),
            "[18446744073709551615,-9223372036854775808,null,true]"
        );
    }

    #[test]
    fn hex_reads_back() {
        assert_eq!(unhex(&hex(&[0, 15, 255])).unwrap(), [0, 15, 255]);
        assert!(unhex("abc").is_none() && unhex("+1").is_none());
    }
}
