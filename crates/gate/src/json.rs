//! JSON as arguments of tools: read in one way only, written in one form only.
//!
//! Parsers disagree on duplicate keys, lone surrogates, NaN, huge numbers and what follows the end; whoever judges one
//! reading and lets the tool take another has judged nothing. So everything that can be read in two ways is refused, and
//! what a tool gets is the value that was judged, written again ([`canonical`], RFC 8785).

use std::ops::Range;

use policy::diagnostic::quote;
use policy::strict_json::{self, Build, Fault, Limits, Problem, Scalar};
use serde_json::{Map, Number, Value as Json};

pub use policy::json::canonical;

/// Longest text that is read.
pub const MAX_BYTES: usize = 8 << 20;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 64;
/// Most values in one text.
pub const MAX_VALUES: usize = 1_000_000;
/// The last whole number before two neighbours become one double.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Why a text or value is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// Stable id, `tools.json/duplicate`.
    pub id: &'static str,
    /// Byte in the text; 0 for a value.
    pub at: usize,
    /// What is wrong.
    pub what: String,
    /// Why that is refused.
    pub why: &'static str,
    /// What to send instead.
    pub fix: &'static str,
}

impl std::fmt::Display for JsonError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at byte {}: {}; {}", self.what, self.at, self.why, self.fix)
    }
}

impl std::error::Error for JsonError {}

/// Reads one value, strictly.
///
/// # Errors
/// The first thing that is no JSON, or that two parsers could read differently.
pub fn read(text: &str) -> Result<Json, JsonError> {
    if text.len() > MAX_BYTES {
        let what = format!("the text has {} bytes", text.len());
        return Err(flaw("tools.json/size", MAX_BYTES, what, "8 MiB is the most that is read", "send less"));
    }
    strict_json::read(text, Limits { depth: MAX_DEPTH, values: MAX_VALUES }, &mut Values { text })
}

/// Brings a value that another reader made into the one form: numbers without a fraction are whole numbers.
///
/// # Errors
/// Numbers that other readers change, and nesting beyond [`MAX_DEPTH`].
pub fn settle(value: &Json) -> Result<Json, JsonError> {
    settle_at(value, 0)
}

fn settle_at(value: &Json, depth: usize) -> Result<Json, JsonError> {
    if depth > MAX_DEPTH {
        return Err(too_deep(0));
    }
    Ok(match value {
        Json::Null | Json::Bool(_) | Json::String(_) => value.clone(),
        Json::Number(number) => match number.as_i64() {
            Some(whole) if whole.unsigned_abs() <= 1 << 53 => value.clone(),
            Some(_) | None => Json::Number(exact(number.as_f64().unwrap_or(f64::NAN), 0, &number.to_string())?),
        },
        Json::Array(items) => {
            Json::Array(items.iter().map(|item| settle_at(item, depth + 1)).collect::<Result<_, _>>()?)
        }
        Json::Object(map) => {
            let mut out = Map::new();
            for (key, item) in map {
                out.insert(key.clone(), settle_at(item, depth + 1)?);
            }
            Json::Object(out)
        }
    })
}

/// SHA-256, hex, over the canonical form of a tool's name and its arguments: what an approval is bound to.
#[must_use]
pub fn hash(tool: &str, args: &Json) -> String {
    let args = canonical(args);
    let mut text = String::with_capacity(args.len() + tool.len() + 24);
    text.push_str("{\"args\":");
    text.push_str(&args);
    text.push_str(",\"tool\":");
    policy::json::write_text(&mut text, tool);
    text.push('}');
    policy::json::sha256_hex(text.as_bytes())
}

fn flaw(id: &'static str, at: usize, what: impl Into<String>, why: &'static str, fix: &'static str) -> JsonError {
    JsonError { id, at, what: what.into(), why, fix }
}

fn too_deep(at: usize) -> JsonError {
    flaw(
        "tools.json/depth",
        at,
        "values are nested more than 64 deep",
        "parsers end at different depths",
        "send less deep",
    )
}

/// A number in its one form, if every reader of doubles takes it for the same.
fn exact(number: f64, at: usize, written: &str) -> Result<Number, JsonError> {
    let far = number.abs() > EXACT;
    let whole = number.fract() == 0.0;
    if !number.is_finite() || far {
        let why = "beyond 2^53 readers of JSON take different numbers for it";
        let what = format!("the number {}", quote(written));
        return Err(flaw("tools.json/number", at, what, why, "send a smaller number, or text"));
    }
    #[expect(clippy::cast_possible_truncation, reason = "whole and at most 2^53")]
    let number = if whole { Some(Number::from(number as i64)) } else { Number::from_f64(number) };
    number.ok_or_else(|| flaw("tools.json/number", at, "no number", "it is not finite", "send a finite number"))
}

struct Values<'t> {
    text: &'t str,
}

impl Values<'_> {
    fn syntax(&self, at: usize, what: &str) -> JsonError {
        let here = self.text.get(at..).and_then(|rest| rest.chars().next());
        let what = match here {
            Some(c) => format!("{what}, and {} stands there", quote(&c.to_string())),
            None => format!("{what}, and the text ends"),
        };
        let why = match here {
            Some('\u{feff}') => "a byte order mark is no part of JSON",
            Some('/' | '#') => "JSON has no comments",
            Some(_) | None => "it is no JSON",
        };
        flaw("tools.json/syntax", at, what, why, "send JSON as RFC 8259 has it")
    }
}

impl Build for Values<'_> {
    type Value = Json;
    type Table = Map<String, Json>;
    type Error = JsonError;

    fn fault(&self, Fault { problem, range }: Fault) -> JsonError {
        let at = range.start;
        let expected = match problem {
            Problem::Value => "a value was expected",
            Problem::Key => "a key in quotes was expected",
            Problem::Colon => "`:` was expected",
            Problem::ListEnd | Problem::TableEnd => "`,` or the end was expected",
            Problem::TextEnd => return self.syntax(range.end, "the end of a text was expected"),
            Problem::Control => "control characters in texts are escaped",
            Problem::Escape => "an escape was expected",
            Problem::Hex => "four hexadecimal digits were expected",
            Problem::Digit => "a digit was expected",
            Problem::LeadingZero => "a number without leading zeros was expected",
            Problem::Surrogate => {
                let why = "half of a character: readers drop it, replace it or fail";
                return flaw("tools.json/surrogate", at, "a lone surrogate", why, "send whole characters");
            }
            Problem::Trailing => {
                let why = "some parsers stop there and others do not";
                return flaw("tools.json/trailing", at, "something follows the value", why, "send one value");
            }
            Problem::Depth => return too_deep(at),
            Problem::Values => {
                let what = "more than 1000000 values";
                return flaw("tools.json/size", at, what, "no tool needs that", "send less");
            }
        };
        self.syntax(at, expected)
    }

    fn scalar(&mut self, scalar: Scalar<'_>, range: Range<usize>) -> Result<Json, JsonError> {
        Ok(match scalar {
            Scalar::Null => Json::Null,
            Scalar::Bool(bool) => Json::Bool(bool),
            Scalar::Text(text) => Json::String(text),
            Scalar::Number(written) => Json::Number(number(written, range.start)?),
        })
    }

    fn list(&mut self, items: Vec<Json>, _: Range<usize>) -> Json {
        Json::Array(items)
    }

    fn key(&mut self, table: &Self::Table, key: &str, range: Range<usize>) -> Result<(), JsonError> {
        if !table.contains_key(key) {
            return Ok(());
        }
        let what = format!("the key {} stands twice", quote(key));
        let why = "some readers take the first and others the last";
        Err(flaw("tools.json/duplicate", range.start, what, why, "send each key once"))
    }

    fn entry(
        &mut self,
        table: &mut Self::Table,
        (key, _): (String, Range<usize>),
        value: Json,
    ) -> Result<(), JsonError> {
        table.insert(key, value);
        Ok(())
    }

    fn table(&mut self, table: Self::Table, _: Range<usize>) -> Json {
        Json::Object(table)
    }
}

/// A written number in its one form, if no reader takes it for another one.
fn number(written: &str, at: usize) -> Result<Number, JsonError> {
    let number: f64 = written.parse().unwrap_or(f64::NAN);
    let mantissa = written.split(['e', 'E']).next().unwrap_or_default();
    if number == 0.0 && mantissa.bytes().any(|c| matches!(c, b'1'..=b'9')) {
        let what = format!("the number {}", quote(written));
        let why = "it is not 0, and readers take it for 0";
        return Err(flaw("tools.json/number", at, what, why, "send 0, or text"));
    }
    // 2^53 + 1 has no double: as a double it would look like its neighbour, which is exact.
    let close = |whole: i64| whole.unsigned_abs() <= 1 << 53;
    if mantissa.len() == written.len() && !written.contains('.') && !written.parse::<i64>().is_ok_and(close) {
        return exact(f64::INFINITY, at, written);
    }
    exact(number, at, written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn id(text: &str) -> &'static str {
        read(text).unwrap_err().id
    }

    #[test]
    fn gw_03_what_two_parsers_could_read_differently_is_refused() {
        for (text, wanted) in [
            (r#"{"a": 1, "a": 2}"#, "tools.json/duplicate"),
            (r#"{"a": 1, "\u0061": 2}"#, "tools.json/duplicate"),
            (r#"{"a": 1} x"#, "tools.json/trailing"),
            (r#"{"a": 1}{"a": 2}"#, "tools.json/trailing"),
            ("{} // note", "tools.json/trailing"),
            ("{/* note */}", "tools.json/syntax"),
            ("\u{feff}{}", "tools.json/syntax"),
            ("{\"a\": NaN}", "tools.json/syntax"),
            ("{\"a\": Infinity}", "tools.json/syntax"),
            ("{\"a\": 01}", "tools.json/syntax"),
            ("{\"a\": +1}", "tools.json/syntax"),
            ("{\"a\": .5}", "tools.json/syntax"),
            ("{\"a\": 1.}", "tools.json/syntax"),
            ("{\"a\": 1,}", "tools.json/syntax"),
            ("{'a': 1}", "tools.json/syntax"),
            ("{a: 1}", "tools.json/syntax"),
            ("{\"a\": \"\n\"}", "tools.json/syntax"),
            (r#"{"a": "\ud800"}"#, "tools.json/surrogate"),
            (r#"{"a": "\ud800x"}"#, "tools.json/surrogate"),
            (r#"{"a": "\udc00\ud800"}"#, "tools.json/surrogate"),
            (r#"{"a": "\x41"}"#, "tools.json/syntax"),
            ("", "tools.json/syntax"),
            ("\u{a0}{}", "tools.json/syntax"),
        ] {
            assert_eq!(id(text), wanted, "{text:?}");
        }
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(id(&deep), "tools.json/depth");
        assert_eq!(read(r#"{"a": "\ud83d\ude00"}"#).unwrap(), json!({"a": "\u{1f600}"}));
    }

    #[test]
    fn gw_04_numbers_have_one_form_or_are_refused() {
        for text in [
            "1e400",
            "-1e400",
            "9007199254740993",
            "-9007199254740993",
            "18446744073709551616",
            "1e300",
            "1e-400",
            "9007199254740992.5e1",
            "123456789012345678901234567890",
        ] {
            assert_eq!(id(text), "tools.json/number", "{text}");
        }
        for (text, form) in [
            ("-0", "0"),
            ("-0.0", "0"),
            ("0e5", "0"),
            ("1.0", "1"),
            ("1e2", "100"),
            ("100E-2", "1"),
            ("9007199254740992", "9007199254740992"),
            ("0.1", "0.1"),
            ("1e-7", "1e-7"),
            ("0.30000000000000004", "0.30000000000000004"),
            ("12.50", "12.5"),
        ] {
            assert_eq!(canonical(&read(text).unwrap()), form, "{text}");
        }
    }

    #[test]
    fn a_value_of_another_reader_gets_the_same_form() {
        let value: Json = serde_json::from_str(r#"{"a": 1.0, "b": [2e0, -0.0, 0.5]}"#).unwrap();
        assert_eq!(settle(&value).unwrap(), read(r#"{"a": 1.0, "b": [2e0, -0.0, 0.5]}"#).unwrap());
        assert!(settle(&json!(u64::MAX)).is_err() && settle(&json!(1e300)).is_err());
    }

    #[test]
    fn the_hash_is_over_tool_and_arguments_in_any_order_of_keys() {
        let one = hash("t", &json!({"a": 1, "b": 2}));
        assert_eq!(one, hash("t", &json!({"b": 2, "a": 1})));
        assert_ne!(one, hash("u", &json!({"a": 1, "b": 2})));
        assert_ne!(one, hash("t", &json!({"a": 1, "b": 3})));
        assert_eq!(hash("t", &json!({})), policy::json::sha256_hex(br#"{"args":{},"tool":"t"}"#));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_reader_panic_and_what_it_reads_serde_reads_alike(text in "[\\[\\]{}\",:0-9a-e.\\\\u+-]{0,24}") {
            if let Ok(value) = read(&text) {
                let other: Json = serde_json::from_str(&text).unwrap();
                proptest::prop_assert_eq!(canonical(&value), canonical(&other));
                proptest::prop_assert_eq!(read(&canonical(&value)).unwrap(), value);
            }
        }
    }
}
