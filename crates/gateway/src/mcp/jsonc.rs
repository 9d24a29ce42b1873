//! JSON as editors keep it: comments, commas before an end, a byte order mark.

use jsonc_parser::ParseOptions;
use jsonc_parser::cst::CstRootNode;
use serde_json::Value as Json;

/// Most bytes of a client's file.
pub const MAX: usize = 4 << 20;

const OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_loose_object_property_names: false,
    allow_trailing_commas: true,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// A file of a client as a tree that keeps every byte; without the byte order mark.
///
/// # Errors
/// Why it is no JSON, with line and column.
pub fn parse(text: &str) -> Result<CstRootNode, String> {
    if text.len() > MAX {
        return Err("it is larger than 4 MiB".to_owned());
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    CstRootNode::parse(text, &OPTIONS).map_err(|error| error.to_string())
}

/// Reads a file of a client; an empty one is an empty object. Of a key that stands twice the last counts.
///
/// # Errors
/// Why it is no JSON, with line and column.
pub fn read(text: &str) -> Result<Json, String> {
    let root = parse(text)?;
    match root.value() {
        None => Ok(Json::Object(serde_json::Map::new())),
        Some(value) => value.to_serde_value().ok_or_else(|| "a string or number in it is none of JSON's".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn comments_and_commas_are_read_over() {
        let text = "\u{feff}{ // ä, comment }\n  \"a//b\": [1, 2, /* x, */ ], /* y */\n  \"c\": \"\\\"/*\",\n}\n";
        assert_eq!(read(text).unwrap(), json!({"a//b": [1, 2], "c": "\"/*"}));
        assert_eq!(read("").unwrap(), json!({}));
        assert_eq!(read("{\"a\": 1, \"a\": 2.5e3}").unwrap(), json!({"a": 2.5e3}));
    }

    #[test]
    fn what_is_broken_is_told_with_its_place() {
        for bad in ["{,}", "{\"a\": /* never ends", "{\"a\": 1,, }", "[1 2]", "{\"a\" 1}", "{'a': 1}", "{a: 1}", "[+1]"]
        {
            let why = read(bad).unwrap_err();
            assert!(why.contains("line 1 column"), "{bad}: {why}");
        }
        let deep = "[".repeat(100_000);
        assert!(read(&deep).unwrap_err().contains("depth"));
    }
}
