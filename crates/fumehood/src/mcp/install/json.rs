//! One entry in a client's JSON file: put in, replaced or taken out, so that comments, order and blanks of all the rest
//! stay as they are. What comes out is read again and compared with what was meant.

use gateway::mcp::jsonc;
use jsonc_parser::cst::{CstInputValue, CstObject, CstObjectProp};
use serde_json::{Map, Value as Json};

/// Puts `entry` under `table.name`, or takes it out; `None` if that is not there.
///
/// # Errors
/// Why the file cannot be changed.
pub(super) fn edit(text: &str, table: &str, name: &str, entry: Option<&Json>) -> Result<Option<String>, String> {
    let mut wanted = jsonc::read(text)?;
    let Some(root) = wanted.as_object_mut() else { return Err("it is no object".to_owned()) };
    let inner = root.entry(table).or_insert_with(|| Json::Object(Map::new()));
    let Some(inner) = inner.as_object_mut() else { return Err(format!("`{table}` in it is no object")) };
    match entry {
        Some(entry) => drop(inner.insert(name.to_owned(), entry.clone())),
        None if inner.remove(name).is_none() => return Ok(None),
        None => {}
    }
    let mark = if text.starts_with('\u{feff}') { "\u{feff}" } else { "" };
    let made = format!("{mark}{}", change(text, table, name, entry)?);
    if jsonc::read(&made).as_ref() == Ok(&wanted) {
        Ok(Some(made))
    } else {
        Err("the change would have changed more".to_owned())
    }
}

fn change(text: &str, table: &str, name: &str, entry: Option<&Json>) -> Result<String, String> {
    let root = jsonc::parse(text)?;
    let object = root.object_value_or_create().ok_or("it is no object")?;
    let inner = match last(&object, table) {
        Some(property) => property.object_value().ok_or_else(|| format!("`{table}` in it is no object"))?,
        None => object.object_value_or_set(table),
    };
    match (last(&inner, name), entry) {
        (Some(property), Some(entry)) => property.set_value(value(entry)),
        (None, Some(entry)) => drop(inner.append(name, value(entry))),
        (Some(property), None) => property.remove(),
        (None, None) => {}
    }
    let made = root.to_string();
    Ok(if text.trim().is_empty() { format!("{}\n", made.trim()) } else { made })
}

/// Of a key that stands twice readers take the last.
fn last(object: &CstObject, name: &str) -> Option<CstObjectProp> {
    object.properties().into_iter().rfind(|property| property.decoded_name().as_deref() == Some(name))
}

fn value(json: &Json) -> CstInputValue {
    match json {
        Json::Null => CstInputValue::Null,
        Json::Bool(bool) => CstInputValue::Bool(*bool),
        Json::Number(number) => CstInputValue::Number(number.to_string()),
        Json::String(text) => CstInputValue::String(text.clone()),
        Json::Array(list) => CstInputValue::Array(list.iter().map(value).collect()),
        Json::Object(map) => CstInputValue::Object(map.iter().map(|(key, json)| (key.clone(), value(json))).collect()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn put(text: &str) -> String {
        edit(text, "mcpServers", "fumehood", Some(&json!({"command": "f", "args": ["x"]}))).unwrap().unwrap()
    }

    #[test]
    fn an_entry_goes_in_and_everything_else_stays_to_the_byte() {
        for text in [
            "",
            "{}",
            "{\n}\n",
            "{\"a\": 1}",
            "{\n  // mine\n  \"a\": 1 // last\n}\n",
            "{\n\t\"mcpServers\": {}\n}",
            "{\n  \"mcpServers\": {\n    \"git\": {\"command\": \"uvx\"} /* x, */\n  }\n}\n",
            "{\n  \"mcpServers\": {\n    \"git\": {\"command\": \"uvx\"}, // trailing\n  },\n}\n",
            "{\"mcpServers\":{\"git\":{\"command\":\"uvx\"}},\"b\":[1,2,]}",
            "{\"mcpServers\": {\"x\": {\"env\": {\"mcpServers\": \"}\"}}}}",
        ] {
            let made = put(text);
            let read = jsonc::read(&made).unwrap();
            assert_eq!(read["mcpServers"]["fumehood"]["command"], "f", "{made}");
            // Every line of the old text is still there, but for a comma at its end.
            for line in text.lines().filter(|line| line.trim().len() > 4 && text.contains('\n')) {
                let bare = |text: &str| text.replace([',', ' '], "");
                assert!(bare(&made).contains(&bare(line.trim_end_matches('}'))), "{line:?} is not in {made}");
            }
            let back = edit(&made, "mcpServers", "fumehood", None).unwrap().unwrap();
            let mut wanted = jsonc::read(text).unwrap();
            wanted.as_object_mut().unwrap().entry("mcpServers").or_insert_with(|| json!({}));
            assert_eq!(jsonc::read(&back).unwrap(), wanted, "{back}");
        }
    }

    #[test]
    fn an_entry_that_is_there_is_replaced_in_its_place() {
        let text = "{\n  \"mcpServers\": {\n    \"fumehood\": {\"old\": 1}, // keep\n    \"z\": {}\n  }\n}\n";
        let made = put(text);
        assert!(made.contains("// keep") && !made.contains("old") && made.contains("\"z\": {}"), "{made}");
        assert!(made.find("fumehood").unwrap() < made.find("\"z\"").unwrap());
    }

    #[test]
    fn a_file_that_is_not_understood_is_left_alone() {
        for bad in ["[1]", "{\"mcpServers\": []}", "{\"a\": ", "null", "{'a': 1}"] {
            assert!(edit(bad, "mcpServers", "fumehood", Some(&json!({}))).is_err(), "{bad}");
        }
        assert_eq!(edit("{}", "mcpServers", "fumehood", None), Ok(None));
    }
}
