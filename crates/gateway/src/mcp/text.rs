//! Texts of servers before a model or a person sees them: what hides, reorders or acts is written out.

use gate::invisible::is_invisible;
use serde_json::Value as Json;

/// Characters that no reader sees, or that reorder what they see: format, bidi, tag and variation characters, and every
/// control but tab and line feed.
#[must_use]
pub fn hides(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t') || is_invisible(c)
}

/// Whether a text hides something.
#[must_use]
pub fn is_hidden(text: &str) -> bool {
    text.chars().any(hides)
}

/// The text with all that hides written out as `\u{..}`; true if there was any.
#[must_use]
pub fn escaped(text: &str) -> (String, bool) {
    if !is_hidden(text) {
        return (text.to_owned(), false);
    }
    let mut shown = String::with_capacity(text.len().saturating_add(32));
    for c in text.chars() {
        if hides(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    (shown, true)
}

/// A text for a message: escaped, on one line, cut at about `most` bytes.
#[must_use]
pub fn shown(text: &str, most: usize) -> String {
    let (mut text, _) = escaped(text);
    if text.contains(['\n', '\t']) {
        text = text.replace(['\n', '\t'], " ");
    }
    if text.len() > most {
        let cut = text.floor_char_boundary(most);
        text.truncate(cut);
        text.push('…');
    }
    text
}

/// Keys whose text is only read, never compared: writing it out changes no meaning.
const PROSE: &[&str] = &["description", "title", "$comment", "markdownDescription"];

/// What became of the hidden characters of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// There were none.
    Clean,
    /// They stood in prose and are written out now.
    Escaped,
    /// They stand where a name or value is compared: the schema cannot be shown as it is meant.
    Unsafe,
}

/// Writes out what hides in the prose of a schema.
pub fn clean_schema(schema: &mut Json) -> Cleaned {
    match schema {
        Json::Null | Json::Bool(_) | Json::Number(_) => Cleaned::Clean,
        Json::String(text) => {
            if is_hidden(text) {
                Cleaned::Unsafe
            } else {
                Cleaned::Clean
            }
        }
        Json::Array(items) => items.iter_mut().map(clean_schema).fold(Cleaned::Clean, worse),
        Json::Object(map) => {
            let mut all = if map.keys().any(|key| is_hidden(key)) { Cleaned::Unsafe } else { Cleaned::Clean };
            for (key, value) in map.iter_mut() {
                all = worse(
                    all,
                    match value {
                        Json::String(text) if PROSE.contains(&key.as_str()) => {
                            let (clean, changed) = escaped(text);
                            *text = clean;
                            if changed { Cleaned::Escaped } else { Cleaned::Clean }
                        }
                        Json::Null
                        | Json::Bool(_)
                        | Json::Number(_)
                        | Json::String(_)
                        | Json::Array(_)
                        | Json::Object(_) => clean_schema(value),
                    },
                );
            }
            all
        }
    }
}

fn worse(one: Cleaned, other: Cleaned) -> Cleaned {
    match (one, other) {
        (Cleaned::Unsafe, _) | (_, Cleaned::Unsafe) => Cleaned::Unsafe,
        (Cleaned::Escaped, _) | (_, Cleaned::Escaped) => Cleaned::Escaped,
        (Cleaned::Clean, Cleaned::Clean) => Cleaned::Clean,
    }
}

/// Writes out what hides in every text of a value, keys included; true if there was any.
pub fn clean_all(value: &mut Json) -> bool {
    match value {
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
        Json::String(text) => {
            let (clean, changed) = escaped(text);
            if changed {
                *text = clean;
            }
            changed
        }
        Json::Array(items) => items.iter_mut().map(clean_all).filter(|changed| *changed).count() > 0,
        Json::Object(map) => {
            let hidden = map.keys().any(|key| is_hidden(key));
            if hidden {
                *map = std::mem::take(map).into_iter().map(|(key, value)| (escaped(&key).0, value)).collect();
            }
            let below = map.values_mut().map(clean_all).filter(|changed| *changed).count() > 0;
            hidden || below
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_hides_is_written_out() {
        let (text, changed) = escaped("a\u{200b}b\u{202e}c\u{e0041}\u{1b}[31m");
        assert!(changed);
        assert_eq!(text, "a\\u{200b}b\\u{202e}c\\u{e0041}\\u{1b}[31m");
        assert_eq!(escaped("zwölf\n\tзабор 日本"), ("zwölf\n\tзабор 日本".to_owned(), false));
    }

    #[test]
    fn a_schema_with_a_hidden_name_is_unsafe_and_hidden_prose_is_escaped() {
        let mut schema = json!({"properties": {"a": {"description": "x\u{200b}"}}});
        assert_eq!(clean_schema(&mut schema), Cleaned::Escaped);
        assert_eq!(schema["properties"]["a"]["description"], "x\\u{200b}");
        assert_eq!(clean_schema(&mut json!({"properties": {"a\u{200b}": {}}})), Cleaned::Unsafe);
        assert_eq!(clean_schema(&mut json!({"enum": ["a\u{202e}"]})), Cleaned::Unsafe);
        assert_eq!(clean_schema(&mut json!({"enum": ["a"]})), Cleaned::Clean);
    }
}
