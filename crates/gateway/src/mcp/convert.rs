//! Results of tools between their form on the wire and the broker's.
//!
//! Only what is understood passes: content of an unknown kind is named to the model instead of being handed on. Whether a
//! picture is one, and structure fits its schema, the broker judges for every front door.

use gate::result::{Content, ToolFailure, ToolResult};
use serde_json::{Map, Value as Json};

use super::{protocol, text};

/// Most parts of one result.
const MAX_PARTS: usize = 1000;

/// Reads a result of `tools/call`.
///
/// # Errors
/// What is wrong with it as a whole.
pub(super) fn read(result: Json) -> Result<ToolResult, ToolFailure> {
    let Json::Object(mut map) = result else {
        return Err(ToolFailure { message: "the tool answered with something that is no result".to_owned() });
    };
    let is_error = map.get("isError") == Some(&Json::Bool(true));
    let meta = Some(protocol::strip_meta(map.get("_meta"))).filter(|meta| !meta.is_empty()).map(Json::Object);
    let structured = map.remove("structuredContent").filter(|value| !value.is_null());
    let parts = match map.remove("content") {
        Some(Json::Array(parts)) => parts,
        Some(_) => return Err(ToolFailure { message: "the tool's `content` is no list".to_owned() }),
        None => Vec::new(),
    };
    let dropped = parts.len().saturating_sub(MAX_PARTS);
    let mut content: Vec<Content> = parts.iter().take(MAX_PARTS).map(part).collect();
    if dropped > 0 {
        content.push(Content::Text(format!("[fumehood: {dropped} more parts of the result were left out]")));
    }
    Ok(ToolResult { content, structured, is_error, meta })
}

fn part(part: &Json) -> Content {
    let of = |map: &Json, key: &str| map.get(key).and_then(Json::as_str).map(str::to_owned);
    let withheld = |why: &str| Content::Text(format!("[fumehood: a part of the result was withheld: {why}]"));
    match part.get("type").and_then(Json::as_str) {
        Some("text") => match of(part, "text") {
            Some(text) => Content::Text(text),
            None => withheld("a text without text"),
        },
        Some(kind @ ("image" | "audio")) => {
            let (Some(mime), Some(data)) = (of(part, "mimeType"), of(part, "data")) else {
                return withheld("data without a type");
            };
            if kind == "image" { Content::Image { mime, data } } else { Content::Audio { mime, data } }
        }
        Some("resource") => {
            let Some(resource) = part.get("resource") else { return withheld("a resource that is not there") };
            let Some(uri) = of(resource, "uri") else { return withheld("a resource without a name") };
            let mime = of(resource, "mimeType");
            match (of(resource, "text"), of(resource, "blob")) {
                (Some(text), None) => Content::ResourceText { uri, mime, text },
                (None, Some(blob)) => Content::ResourceBlob { uri, mime, blob },
                (None, None) | (Some(_), Some(_)) => withheld("a resource that is neither text nor data"),
            }
        }
        Some("resource_link") => match (of(part, "uri"), of(part, "name")) {
            (Some(uri), Some(name)) => {
                Content::Link { uri, name, description: of(part, "description"), mime: of(part, "mimeType") }
            }
            (None, _) | (_, None) => withheld("a link to nothing"),
        },
        Some(other) => withheld(&format!("its kind `{}` is not known", text::shown(other, 40))),
        None => withheld("it has no kind"),
    }
}

/// As it stands on the wire.
#[must_use]
pub fn written(result: &ToolResult) -> Json {
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
    let mut value = part.to_json();
    drop_nulls(&mut value);
    value
}

fn drop_nulls(value: &mut Json) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(drop_nulls);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PNG: &str =
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    #[test]
    fn every_known_part_passes_unchanged() {
        let wire = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": PNG},
            {"type": "resource", "resource": {"uri": "x://1", "mimeType": "text/plain", "text": "t"}},
            {"type": "resource", "resource": {"uri": "x://2", "blob": "AAEC"}},
            {"type": "resource_link", "uri": "x://3", "name": "n"},
        ], "structuredContent": {"a": 1}, "isError": false, "_meta": {"k": 1}});
        assert_eq!(written(&read(wire.clone()).unwrap()), wire);
    }

    #[test]
    fn what_is_not_understood_is_named_and_not_handed_on() {
        let unknown = json!({"content": [{"type": "video"}, {"text": "x"}, 5, {"type": "image", "data": "x"}, {"type": "resource"}]});
        let result = read(unknown).unwrap();
        assert!(result.content.iter().all(|part| matches!(part, Content::Text(text) if text.contains("withheld"))));
        assert!(read(json!({"content": {}})).is_err());
        assert!(read(json!([])).is_err());
        let many = json!({"content": vec![json!({"type": "text", "text": ""}); MAX_PARTS + 5]});
        assert_eq!(read(many).unwrap().content.len(), MAX_PARTS + 1);
    }
}
