//! Results of tools between their form on the wire and the broker's.
//!
//! Only what is understood passes: content of an unknown kind, pictures that are none and structure that its own schema
//! does not allow are named to the model instead of being handed on.

use serde_json::{Map, Value as Json, json};

use super::{era, text};
use crate::result::{Content, ToolFailure, ToolResult};

/// Most parts of one result.
const MOST_PARTS: usize = 1000;

/// Reads a result of `tools/call`.
///
/// # Errors
/// What is wrong with it as a whole.
pub(super) fn read(result: Json, output: Option<&jsonschema::Validator>) -> Result<ToolResult, ToolFailure> {
    let Json::Object(mut map) = result else {
        return Err(ToolFailure { message: "the tool answered with something that is no result".to_owned() });
    };
    let is_error = map.get("isError") == Some(&Json::Bool(true));
    let meta = Some(era::strip_meta(map.get("_meta"))).filter(|meta| !meta.is_empty()).map(Json::Object);
    let structured = map.remove("structuredContent").filter(|value| !value.is_null());
    if let (Some(value), Some(schema), false) = (&structured, output, is_error)
        && let Err(error) = schema.validate(value)
    {
        let at = text::shown(&error.instance_path().to_string(), 200);
        return Err(ToolFailure { message: format!("the tool's structured result is not what its own schema says, at `{at}`") });
    }
    let parts = match map.remove("content") {
        Some(Json::Array(parts)) => parts,
        Some(_) => return Err(ToolFailure { message: "the tool's `content` is no list".to_owned() }),
        None => Vec::new(),
    };
    let dropped = parts.len().saturating_sub(MOST_PARTS);
    let mut content: Vec<Content> = parts.into_iter().take(MOST_PARTS).map(part).collect();
    if dropped > 0 {
        content.push(Content::Text(format!("[fumehood: {dropped} more parts of the result were left out]")));
    }
    Ok(ToolResult { content, structured, is_error, meta })
}

fn part(part: Json) -> Content {
    let of = |map: &Json, key: &str| map.get(key).and_then(Json::as_str).map(str::to_owned);
    let withheld = |why: &str| Content::Text(format!("[fumehood: a part of the result was withheld: {why}]"));
    match part.get("type").and_then(Json::as_str) {
        Some("text") => match of(&part, "text") {
            Some(text) => Content::Text(text),
            None => withheld("a text without text"),
        },
        Some(kind @ ("image" | "audio")) => {
            let (Some(mime), Some(data)) = (of(&part, "mimeType"), of(&part, "data")) else {
                return withheld("data without a type");
            };
            match check_media(kind, &mime, &data) {
                Err(why) => withheld(why),
                Ok(()) if kind == "image" => Content::Image { mime, data },
                Ok(()) => Content::Audio { mime, data },
            }
        }
        Some("resource") => {
            let Some(resource) = part.get("resource") else { return withheld("a resource that is not there") };
            let Some(uri) = of(resource, "uri") else { return withheld("a resource without a name") };
            let mime = of(resource, "mimeType");
            match (of(resource, "text"), of(resource, "blob")) {
                (Some(text), None) => Content::ResourceText { uri, mime, text },
                (None, Some(blob)) if is_base64(&blob) => Content::ResourceBlob { uri, mime, blob },
                _ => withheld("a resource that is neither text nor data"),
            }
        }
        Some("resource_link") => match (of(&part, "uri"), of(&part, "name")) {
            (Some(uri), Some(name)) => {
                Content::Link { uri, name, description: of(&part, "description"), mime: of(&part, "mimeType") }
            }
            _ => withheld("a link to nothing"),
        },
        Some(other) => withheld(&format!("its kind `{}` is not known", text::shown(other, 40))),
        None => withheld("it has no kind"),
    }
}

/// As it stands on the wire.
#[must_use]
pub(super) fn write(result: &ToolResult) -> Json {
    let mut map = Map::new();
    map.insert("content".to_owned(), result.content.iter().map(write_part).collect());
    if let Some(structured) = &result.structured {
        map.insert("structuredContent".to_owned(), structured.clone());
    }
    // `false` is what its absence means, but some clients look for it.
    map.insert("isError".to_owned(), result.is_error.into());
    if let Some(meta) = &result.meta {
        map.insert("_meta".to_owned(), meta.clone());
    }
    Json::Object(map)
}

fn write_part(part: &Content) -> Json {
    let mut value = match part {
        Content::Text(text) => json!({ "type": "text", "text": text }),
        Content::Image { mime, data } => json!({ "type": "image", "mimeType": mime, "data": data }),
        Content::Audio { mime, data } => json!({ "type": "audio", "mimeType": mime, "data": data }),
        Content::ResourceText { uri, mime, text } => {
            json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "text": text } })
        }
        Content::ResourceBlob { uri, mime, blob } => {
            json!({ "type": "resource", "resource": { "uri": uri, "mimeType": mime, "blob": blob } })
        }
        Content::Link { uri, name, description, mime } => {
            json!({ "type": "resource_link", "uri": uri, "name": name, "description": description, "mimeType": mime })
        }
    };
    drop_nulls(&mut value);
    value
}

fn drop_nulls(value: &mut Json) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

fn is_base64(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    text.len().saturating_sub(body.len()) <= 2
        && body.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/')
        && body.len() % 4 != 1
}

/// The first bytes of Base64 text.
fn first_bytes(text: &str) -> Vec<u8> {
    let digit = |b: u8| match b {
        b'A'..=b'Z' => Some(b.wrapping_sub(b'A')),
        b'a'..=b'z' => Some(b.wrapping_sub(b'a').wrapping_add(26)),
        b'0'..=b'9' => Some(b.wrapping_sub(b'0').wrapping_add(52)),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut held, mut bytes) = (0_u32, 0_u32, Vec::with_capacity(18));
    for value in text.bytes().take(24).map_while(digit) {
        bits = (bits << 6) | u32::from(value);
        held = held.saturating_add(6);
        if held >= 8 {
            held = held.saturating_sub(8);
            bytes.push(u8::try_from((bits >> held) & 0xff).unwrap_or(0));
        }
    }
    bytes
}

/// A picture must be a picture of its type: text that calls itself one would reach a reader that nobody bounded.
fn check_media(kind: &str, mime: &str, data: &str) -> Result<(), &'static str> {
    if !is_base64(data) {
        return Err("its data is no Base64");
    }
    let head = first_bytes(data);
    let begins = |magic: &[&[u8]]| magic.iter().any(|magic| head.starts_with(magic));
    let riff = |kind: &[u8]| head.starts_with(b"RIFF") && head.get(8..12) == Some(kind);
    let fits = match mime {
        "image/png" => begins(&[b"\x89PNG\r\n\x1a\n"]),
        "image/jpeg" | "image/jpg" => begins(&[b"\xff\xd8\xff"]),
        "image/gif" => begins(&[b"GIF87a", b"GIF89a"]),
        "image/webp" => riff(b"WEBP"),
        "image/bmp" => begins(&[b"BM"]),
        "audio/wav" | "audio/x-wav" | "audio/wave" => riff(b"WAVE"),
        "audio/mpeg" | "audio/mp3" => begins(&[b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xf2"]),
        "audio/ogg" => begins(&[b"OggS"]),
        "audio/flac" => begins(&[b"fLaC"]),
        _ => return Err("its type is none of the known pictures and sounds"),
    };
    match (fits, mime.starts_with(kind)) {
        (true, true) => Ok(()),
        _ => Err("its data is not of the type that it names"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    #[test]
    fn every_known_part_passes_unchanged() {
        let wire = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": PNG},
            {"type": "resource", "resource": {"uri": "x://1", "mimeType": "text/plain", "text": "t"}},
            {"type": "resource", "resource": {"uri": "x://2", "blob": "AAEC"}},
            {"type": "resource_link", "uri": "x://3", "name": "n"},
        ], "structuredContent": {"a": 1}, "isError": false, "_meta": {"k": 1}});
        assert_eq!(write(&read(wire.clone(), None).unwrap()), wire);
    }

    #[test]
    fn a_picture_that_is_text_is_withheld() {
        for (mime, data) in [("image/png", "SGVsbG8gd29ybGQ="), ("image/svg+xml", "PHN2Zz4="), ("image/png", "not base64!"), ("audio/wav", PNG)] {
            let wire = json!({"content": [{"type": "image", "mimeType": mime, "data": data}]});
            let Content::Text(text) = &read(wire, None).unwrap().content[0] else { panic!("{mime} passed") };
            assert!(text.contains("withheld"));
        }
        let unknown = json!({"content": [{"type": "video"}, {"text": "x"}, 5]});
        assert!(read(unknown, None).unwrap().content.iter().all(|part| matches!(part, Content::Text(t) if t.contains("withheld"))));
    }

    #[test]
    fn structure_that_its_schema_does_not_allow_is_a_failure() {
        let schema = jsonschema::validator_for(&json!({"type": "object", "properties": {"n": {"type": "integer"}}})).unwrap();
        assert!(read(json!({"content": [], "structuredContent": {"n": 1}}), Some(&schema)).is_ok());
        assert!(read(json!({"content": [], "structuredContent": {"n": "1"}}), Some(&schema)).is_err());
        assert!(read(json!({"content": {}}), None).is_err());
        assert!(read(json!([]), None).is_err());
    }
}
