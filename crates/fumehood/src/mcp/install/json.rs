//! One entry in a client's JSON file: put in, replaced or taken out as text, so that comments, order and blanks of all the
//! rest stay as they are. What comes out is read again and compared with what was meant.

use gateway::mcp::jsonc;
use serde_json::{Map, Value as Json};

/// A member of an object: where its key begins and its value ends.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Member {
    key: String,
    from: usize,
    value: (usize, usize),
}

/// The members of the object that begins at `open` (the place of its brace), and the place of its closing brace.
fn members(plain: &[u8], open: usize) -> Option<(Vec<Member>, usize)> {
    let mut list = Vec::new();
    let mut at = skip(plain, open.checked_add(1)?);
    loop {
        match plain.get(at)? {
            b'}' => return Some((list, at)),
            b'"' => {
                let from = at;
                let end = jsonc::end_of_string(plain, at);
                let key: String = serde_json::from_slice(plain.get(from..end)?).ok()?;
                at = skip(plain, end);
                if plain.get(at)? != &b':' {
                    return None;
                }
                let begin = skip(plain, at.checked_add(1)?);
                let end = end_of_value(plain, begin)?;
                list.push(Member { key, from, value: (begin, end) });
                at = skip(plain, end);
                if plain.get(at)? == &b',' {
                    at = skip(plain, at.checked_add(1)?);
                }
            }
            _ => return None,
        }
    }
}

fn skip(plain: &[u8], from: usize) -> usize {
    let rest = plain.get(from..).unwrap_or_default();
    from.saturating_add(rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count())
}

fn end_of_value(plain: &[u8], from: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = from;
    loop {
        match plain.get(at)? {
            b'"' => {
                at = jsonc::end_of_string(plain, at);
                if depth == 0 {
                    return Some(at);
                }
                continue;
            }
            b'{' | b'[' => depth = depth.checked_add(1)?,
            b'}' | b']' => match depth {
                0 => return Some(at),
                1 => return at.checked_add(1),
                _ => depth = depth.saturating_sub(1),
            },
            b',' if depth == 0 => return Some(at),
            byte if depth == 0 && byte.is_ascii_whitespace() => return Some(at),
            _ => {}
        }
        at = at.checked_add(1)?;
    }
}

/// Puts `entry` under `table.name`, or takes it out; `None` if that is not there.
///
/// # Errors
/// Why the file cannot be changed.
pub(super) fn edit(text: &str, table: &str, name: &str, entry: Option<&Json>) -> Result<Option<String>, String> {
    let before = jsonc::read(text)?;
    let Json::Object(root) = &before else { return Err("it is no object".to_owned()) };
    if root.get(table).is_some_and(|table| !table.is_object()) {
        return Err(format!("`{table}` in it is no object"));
    }
    let there = root.get(table).and_then(|table| table.get(name)).is_some();
    if entry.is_none() && !there {
        return Ok(None);
    }
    let made = if jsonc::plain(text).trim().is_empty() {
        let mut inner = Map::new();
        inner.insert(name.to_owned(), entry.cloned().unwrap_or_default());
        let mut outer = Map::new();
        outer.insert(table.to_owned(), Json::Object(inner));
        format!("{:#}\n", Json::Object(outer))
    } else {
        change(text, table, name, entry).ok_or("its text could not be followed")?
    };
    let mut wanted = before;
    if let Some(root) = wanted.as_object_mut() {
        let inner = root.entry(table).or_insert_with(|| Json::Object(Map::new()));
        if let Some(inner) = inner.as_object_mut() {
            match entry {
                Some(entry) => drop(inner.insert(name.to_owned(), entry.clone())),
                None => drop(inner.remove(name)),
            }
        }
    }
    if jsonc::read(&made).as_ref() == Ok(&wanted) {
        Ok(Some(made))
    } else {
        Err("the change would have changed more".to_owned())
    }
}

fn change(text: &str, table: &str, name: &str, entry: Option<&Json>) -> Option<String> {
    let plain = jsonc::plain(text).into_bytes();
    let open = skip(&plain, 0);
    let (outer, outer_end) = members(&plain, open)?;
    // Of a key that stands twice readers take the last.
    let inner_member = outer.iter().rfind(|member| member.key == table);
    let Some(inner_member) = inner_member else {
        let step = indent_of(text, outer.last().map(|member| member.from)).unwrap_or_else(|| "  ".to_owned());
        let mut inner = Map::new();
        inner.insert(name.to_owned(), entry?.clone());
        return insert(text, (open, outer_end), outer.last(), table, &Json::Object(inner), &step);
    };
    let (inner, inner_end) = members(&plain, inner_member.value.0)?;
    let outer_indent = indent_of(text, Some(inner_member.from)).unwrap_or_else(|| "  ".to_owned());
    let found = inner.iter().position(|member| member.key == name);
    match (found.and_then(|at| inner.get(at)), entry) {
        (Some(member), Some(entry)) => {
            let indent = indent_of(text, Some(member.from)).unwrap_or_default();
            let (from, to) = member.value;
            Some(format!("{}{}{}", text.get(..from)?, shaped(entry, &indent), text.get(to..)?))
        }
        (Some(member), None) => remove(text, member),
        (None, Some(entry)) => {
            let indent = indent_of(text, inner.last().map(|member| member.from))
                .unwrap_or_else(|| format!("{outer_indent}{outer_indent}"));
            insert(text, (inner_member.value.0, inner_end), inner.last(), name, entry, &indent)
        }
        (None, None) => None,
    }
}

/// The blanks before a place, if nothing else stands before it on its line.
fn indent_of(text: &str, at: Option<usize>) -> Option<String> {
    let before = text.get(..at?)?;
    let line = before.rsplit('\n').next()?;
    (before.contains('\n') && line.chars().all(char::is_whitespace)).then(|| line.to_owned())
}

/// A value over several lines, the later ones as deep as `indent`.
fn shaped(value: &Json, indent: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{indent}"))
}

/// One more member at the end of an object.
fn insert(
    text: &str,
    (open, close): (usize, usize),
    last: Option<&Member>,
    key: &str,
    value: &Json,
    indent: &str,
) -> Option<String> {
    let line = format!("{}: {}", Json::from(key), shaped(value, indent));
    let Some(last) = last else {
        let outer =
            indent_of(text, Some(text.get(..open)?.rfind('\n').map_or(0, |n| n.saturating_add(1)))).unwrap_or_default();
        let closing: String =
            text.get(..open)?.rsplit('\n').next()?.chars().take_while(|c| c.is_whitespace()).collect();
        let closing = if closing.is_empty() { outer } else { closing };
        return Some(format!("{}\n{indent}{line}\n{closing}{}", text.get(..open.checked_add(1)?)?, text.get(close..)?));
    };
    // A comma that stands there already (before comments, perhaps) is not written again, and a comment behind the last
    // member stays behind it.
    let end = last.value.1;
    let comments_out = jsonc::without_comments(text);
    let comma = comments_out.get(end..close)?.find(',');
    let after = comma.map_or(end, |comma| end.saturating_add(comma).saturating_add(1));
    let rest_of_line = comments_out.get(after..close)?.split('\n').next()?;
    let is_last_on_line = after.saturating_add(rest_of_line.len()) < close && rest_of_line.trim().is_empty();
    let place = if is_last_on_line { after.saturating_add(rest_of_line.len()) } else { after };
    let (first, second) = if comma.is_some() { ("", ",") } else { (",", "") };
    Some(format!(
        "{}{first}{}\n{indent}{line}{second}{}",
        text.get(..after)?,
        text.get(after..place)?,
        text.get(place..)?
    ))
}

/// Takes a member out, with the comma that goes with it.
fn remove(text: &str, member: &Member) -> Option<String> {
    let comments_out = jsonc::without_comments(text);
    let bytes = comments_out.as_bytes();
    let (from, to) = (member.from, member.value.1);
    let next = skip(bytes, to);
    let before = bytes.get(..from)?;
    let previous = before.iter().rposition(|byte| !byte.is_ascii_whitespace())?;
    if bytes.get(next) == Some(&b',') {
        // Up to what follows, so that its own blanks stay in front of it.
        let end = next.checked_add(1)?;
        let start = if before.get(previous) == Some(&b'{') || before.get(previous) == Some(&b',') {
            previous.checked_add(1)?
        } else {
            from
        };
        return Some(format!("{}{}", text.get(..start)?, text.get(end..)?));
    }
    let start = if before.get(previous) == Some(&b',') { previous } else { previous.checked_add(1)? };
    let rest = text.get(to..)?;
    // An object that is empty now closes on its own line.
    let rest =
        if before.get(previous) == Some(&b'{') { rest.trim_start_matches([' ', '\t', '\n', '\r']) } else { rest };
    Some(format!("{}{rest}", text.get(..start)?))
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
