//! What may be written: secrets taken out, control characters spelled out, length bounded. All before anything is hashed.
//!
//! Does not promise: to recognise a secret that is encoded, or split over two values.

use std::borrow::Cow;
use std::sync::OnceLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use super::AuditError;
use crate::fault::is_unsafe_to_show;
use policy::json::{canonical, sha256_hex};

/// What stands where a secret was.
pub const REDACTED: &str = "[redacted]";
/// The longest canonical body, in bytes.
pub(super) const MAX_BODY: usize = 48 * 1024;
/// The longest single text in a body that is too long.
const MAX_TEXT: usize = 1024;
/// The most items of a list in a body that is too long.
const MAX_ITEMS: usize = 64;

/// The patterns whose matches are not written.
#[derive(Debug, Default)]
pub struct Redactor {
    patterns: Vec<String>,
    compiled: OnceLock<Vec<Regex>>,
}

impl Redactor {
    /// Takes patterns; they are compiled when the first body comes, since most runs are over before that matters.
    #[must_use]
    pub fn new(patterns: &[String]) -> Self {
        Self { patterns: patterns.to_vec(), compiled: OnceLock::new() }
    }

    /// Compiles the patterns now.
    ///
    /// # Errors
    /// [`AuditError::Pattern`] for the first that is no regular expression.
    pub fn compile(&self) -> Result<&[Regex], AuditError> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(compiled);
        }
        let mut compiled = Vec::with_capacity(self.patterns.len());
        for pattern in &self.patterns {
            let regex = Regex::new(pattern)
                .map_err(|error| AuditError::Pattern { pattern: pattern.clone(), why: error.to_string() })?;
            compiled.push(regex);
        }
        Ok(self.compiled.get_or_init(|| compiled))
    }

    /// One text without what the patterns match in it.
    ///
    /// # Errors
    /// As of [`Self::compile`].
    pub(crate) fn without<'a>(&self, text: &'a str) -> Result<Cow<'a, str>, AuditError> {
        Ok(redacted(text, self.compile()?))
    }
}

fn redacted<'a>(text: &'a str, patterns: &[Regex]) -> Cow<'a, str> {
    let mut text = Cow::Borrowed(text);
    for pattern in patterns {
        if let Cow::Owned(without) = pattern.replace_all(&text, regex::NoExpand(REDACTED)) {
            text = Cow::Owned(without);
        }
    }
    text
}

/// The canonical spelling of a body after redaction, escaping and cutting.
///
/// # Errors
/// [`AuditError::Pattern`].
pub(super) fn spell(body: &Value, redactor: &Redactor) -> Result<String, AuditError> {
    let patterns = redactor.compile()?;
    // Hardly any body has something to take out.
    let clean = if is_clean(body, patterns) { Cow::Borrowed(body) } else { Cow::Owned(clean_value(body, patterns)) };
    let spelled = canonical(&clean);
    if spelled.len() <= MAX_BODY {
        return Ok(spelled);
    }
    let shorter = canonical(&shorten(&clean));
    let marker = json!({ "bytes": spelled.len(), "sha256": sha256_hex(spelled.as_bytes()) });
    if shorter.len() <= MAX_BODY - 256 {
        return Ok(canonical(
            &json!({ "cut": marker, "body": serde_json::from_str::<Value>(&shorter).unwrap_or_default() }),
        ));
    }
    let mut head = spelled;
    let end = head.floor_char_boundary(MAX_TEXT);
    head.truncate(end);
    Ok(canonical(&json!({ "cut": marker, "head": head })))
}

/// One text, redacted and escaped; for fields that are not part of a body.
pub(super) fn clean_text<'a>(text: &'a str, patterns: &[Regex]) -> Cow<'a, str> {
    let text = redacted(text, patterns);
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return text;
    }
    // Line ends and tabs are harmless in JSON, and code without them cannot be read.
    let hidden = |c: char| is_unsafe_to_show(c) && c != '\n' && c != '\t';
    if !text.chars().any(hidden) {
        return text;
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if hidden(c) { spelled.extend(c.escape_unicode()) } else { spelled.push(c) }
    }
    Cow::Owned(spelled)
}

fn is_clean(value: &Value, patterns: &[Regex]) -> bool {
    let same = |text: &str| matches!(clean_text(text, patterns), Cow::Borrowed(_));
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => same(text),
        Value::Array(items) => items.iter().all(|item| is_clean(item, patterns)),
        Value::Object(members) => members.iter().all(|(key, item)| same(key) && is_clean(item, patterns)),
    }
}

fn clean_value(value: &Value, patterns: &[Regex]) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => Value::String(clean_text(text, patterns).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(|item| clean_value(item, patterns)).collect()),
        Value::Object(members) => {
            let clean =
                |(key, item): (&String, &Value)| (clean_text(key, patterns).into_owned(), clean_value(item, patterns));
            Value::Object(members.iter().map(clean).collect::<Map<_, _>>())
        }
    }
}

fn shorten(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) if text.len() > MAX_TEXT => {
            let (head, rest) = text.split_at(text.floor_char_boundary(MAX_TEXT));
            Value::String(format!("{head}…[{} bytes cut]", rest.len()))
        }
        Value::String(_) => value.clone(),
        Value::Array(items) => {
            let mut kept: Vec<_> = items.iter().take(MAX_ITEMS).map(shorten).collect();
            if items.len() > MAX_ITEMS {
                kept.push(Value::String(format!("…[{} items cut]", items.len() - MAX_ITEMS)));
            }
            Value::Array(kept)
        }
        Value::Object(members) => {
            Value::Object(members.iter().map(|(key, item)| (key.clone(), shorten(item))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(body: &Value, patterns: &[&str]) -> String {
        let patterns: Vec<_> = patterns.iter().map(|&p| p.to_owned()).collect();
        spell(body, &Redactor::new(&patterns)).unwrap()
    }

    #[test]
    fn a_secret_is_gone_from_values_and_keys_however_deep() {
        let body = json!({"a": ["x password=hunter2 y", {"password=k": 1}], "$1": "password=z"});
        let text = spelled(&body, &[r"password=\S+"]);
        assert!(!text.contains("hunter2") && !text.contains("password=") && text.contains("x [redacted] y"), "{text}");
    }

    #[test]
    fn what_a_terminal_acts_on_is_spelled_out_and_redaction_comes_first() {
        let text = spelled(&json!({"m": "a\u{1b}]0;x\u{7}\u{9b}31m\u{202e}b\nc\u{200b}"}), &[]);
        assert_eq!(text, r#"{"m":"a\\u{1b}]0;x\\u{7}\\u{9b}31m\\u{202e}b\nc\\u{200b}"}"#);
    }

    #[test]
    fn a_body_that_is_too_long_is_cut_and_says_so() {
        let text = spelled(&json!({"code": "x".repeat(1 << 20), "n": 1}), &[]);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["body"]["n"], 1);
        assert_eq!(value["cut"]["bytes"], (1 << 20) + 17);
        let wide: Map<_, _> = (0..20_000).map(|i| (format!("key{i}"), json!(i))).collect();
        let text = spelled(&Value::Object(wide), &[]);
        assert!(text.len() < MAX_BODY && text.contains("\"cut\""));
    }

    #[test]
    fn a_pattern_that_is_none_is_an_error_and_not_a_leak() {
        assert!(matches!(spell(&json!("x"), &Redactor::new(&["(".into()])), Err(AuditError::Pattern { .. })));
    }
}
