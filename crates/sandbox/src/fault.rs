//! A failure as its reader needs it: what, where, why, and what to do about it.
//!
//! Every room has an error enum of its own, by stage; each of them turns into a [`Fault`], which is what is printed and
//! what `--json` shows. No part holds a line break or a control character.

use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;

/// The longest user text shown in a message, in bytes.
const SHOWN: usize = 200;

/// What is said about a failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Stable id, e.g. `state/not-writable`.
    pub id: &'static str,
    /// What failed.
    pub what: String,
    /// Where.
    #[serde(rename = "where")]
    pub place: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Fault {
    /// What is said of an error, whose own text is what failed.
    #[must_use]
    pub fn of(error: &dyn fmt::Display, id: &'static str, place: String, why: &str, fix: &str) -> Self {
        Self { id, what: error.to_string(), place, why: show_text(why), fix: fix.to_owned() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  --> {}\n  why: {}\n  fix: {}", self.what, self.place, self.why, self.fix)
    }
}

/// A character that a terminal acts on, or that hides or reorders text: never shown as it is.
#[must_use]
pub fn is_unsafe_to_show(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}' | '\u{891}' | '\u{8e2}'
            | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{e000}'..='\u{f8ff}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffc}' | '\u{110bd}' | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..)
}

/// Text with everything that a terminal acts on written out as `\u{..}`.
#[must_use]
pub fn show_text(text: &str) -> String {
    if !text.chars().any(is_unsafe_to_show) {
        return text.to_owned();
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe_to_show(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// JSON text of ours with everything that a terminal acts on as JSON's own escapes: a reader gets the same value, and a
/// terminal that shows the text sees letters. Line ends between the tokens stay.
#[must_use]
pub fn show_json(text: String) -> String {
    let hidden = |c: char| is_unsafe_to_show(c) && c != '\n';
    if !text.chars().any(hidden) {
        return text;
    }
    let mut shown = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if hidden(c) {
            // JSON counts in UTF-16; outside of strings there is nothing but ASCII.
            shown.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Bytes that are mostly text: invalid UTF-8 as `\xNN`, and [`show_text`] for the rest.
#[must_use]
pub fn show_bytes(bytes: &[u8]) -> String {
    let mut shown = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        shown.push_str(&show_text(chunk.valid()));
        for byte in chunk.invalid() {
            shown.push_str(&format!("\\x{byte:02x}"));
        }
    }
    shown
}

/// A path for a message: in backticks, escaped, cut at 200 bytes.
#[must_use]
pub fn show_path(path: &Path) -> String {
    show_short(path.as_os_str().as_bytes())
}

/// Bytes that are mostly text, and may be many: in backticks, escaped, cut at 200 bytes.
#[must_use]
pub fn show_short(bytes: &[u8]) -> String {
    // Escaped, no byte is shorter.
    let mut shown = show_bytes(bytes.get(..=SHOWN).unwrap_or(bytes));
    if shown.len() > SHOWN {
        let cut = shown.floor_char_boundary(SHOWN);
        shown.truncate(cut);
        shown.push('…');
    }
    format!("`{shown}`")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_hostile_name_is_shown_without_what_a_terminal_acts_on() {
        let name = OsStr::from_bytes(b"a\n\x1b[31m\xff\xe2\x80\xaeb");
        assert_eq!(show_path(Path::new(name)), "`a\\u{a}\\u{1b}[31m\\xff\\u{202e}b`");
    }

    #[test]
    fn json_that_a_terminal_would_act_on_has_escapes_and_the_same_value() {
        let raw = "a\u{9b}31m\u{85}\u{202e}b\u{2066}\u{e0041}\u{fe0f}ä\u{1f600}\u{7f}";
        let text = serde_json::to_string_pretty(&serde_json::json!({ raw: [raw, 1] })).unwrap();
        assert!(text.contains('\u{9b}') && text.contains('\u{e0041}'), "it is raw before");
        let shown = show_json(text.clone());
        assert!(!shown.chars().any(|c| is_unsafe_to_show(c) && c != '\n'), "{shown}");
        assert!(shown.contains("\\u009b31m\\u0085\\u202eb\\u2066\\udb40\\udc41\\ufe0fä\u{1f600}\\u007f"), "{shown}");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&shown), value(&text));
        assert_eq!(show_json("{\n  \"ä\": 1\n}".to_owned()), "{\n  \"ä\": 1\n}");
    }

    #[test]
    fn a_long_name_is_cut() {
        let shown = show_path(Path::new(&"ä".repeat(500)));
        assert!(shown.len() < 210 && shown.ends_with("…`"), "{shown}");
    }
}
