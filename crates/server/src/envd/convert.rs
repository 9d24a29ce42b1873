//! Fields of E2B's messages: both spellings in, theirs out.

use agent::words::{Entry, FileKind, Hello};
use live::words::Which;
use serde_json::{Map, Value as Json, json};

use crate::clock::rfc3339_fine;
use crate::rpc::{RpcCode, RpcError};

pub(super) type Message = Map<String, Json>;

pub(super) fn invalid(message: impl Into<String>) -> RpcError {
    RpcError::new(RpcCode::InvalidArgument, message)
}

/// A field in camel case, or as the protocol's source spells it.
pub(super) fn field<'a>(message: &'a Message, name: &str) -> Option<&'a Json> {
    let snake = || {
        let mut snake = String::new();
        for c in name.chars() {
            if c.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(c.to_ascii_lowercase());
        }
        message.get(&snake)
    };
    message.get(name).or_else(snake).filter(|value| !value.is_null())
}

pub(super) fn text<'a>(message: &'a Message, name: &str) -> Result<&'a str, RpcError> {
    match field(message, name) {
        None => Ok(""),
        Some(Json::String(text)) => Ok(text),
        Some(_) => Err(invalid(format!("`{name}` is no text"))),
    }
}

/// A number, which may stand in quotes.
pub(super) fn number(message: &Message, name: &str) -> Result<Option<u32>, RpcError> {
    let Some(value) = field(message, name) else { return Ok(None) };
    let read = value.as_u64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    let read = read.and_then(|number| u32::try_from(number).ok());
    read.map(Some).ok_or_else(|| invalid(format!("`{name}` is no number of 32 bits")))
}

pub(super) fn flag(message: &Message, name: &str) -> Result<Option<bool>, RpcError> {
    match field(message, name) {
        None => Ok(None),
        Some(Json::Bool(yes)) => Ok(Some(*yes)),
        Some(_) => Err(invalid(format!("`{name}` is neither true nor false"))),
    }
}

pub(super) fn table<'a>(message: &'a Message, name: &str) -> Result<Option<&'a Message>, RpcError> {
    match field(message, name) {
        None => Ok(None),
        Some(Json::Object(table)) => Ok(Some(table)),
        Some(_) => Err(invalid(format!("`{name}` is no table"))),
    }
}

/// `process: {pid}` or `process: {tag}`.
pub(super) fn which(message: &Message) -> Result<Which, RpcError> {
    let table = table(message, "process")?.ok_or_else(|| invalid("`process` is missing"))?;
    if let Some(pid) = number(table, "pid")? {
        return Ok(Which::Pid(pid));
    }
    match text(table, "tag")? {
        "" => Err(invalid("`process` names neither `pid` nor `tag`")),
        tag => Ok(Which::Tag(tag.to_owned())),
    }
}

/// An entry as E2B's `EntryInfo`.
pub(super) fn entry(entry: &Entry, hello: &Hello) -> Json {
    let is_link = entry.kind == FileKind::Link;
    let shown = if is_link { entry.target_kind.unwrap_or(FileKind::Link) } else { entry.kind };
    let (seconds, nanoseconds) = entry.modified;
    let mut info = json!({
        "name": entry.name, "type": kind(shown), "path": entry.path, "size": entry.size.to_string(), "mode": entry.mode & 0o7777,
        "permissions": permissions(entry), "owner": owner(entry.uid, hello.uid, &hello.user),
        "group": owner(entry.gid, hello.gid, &hello.user), "modifiedTime": rfc3339_fine(seconds, nanoseconds),
    });
    if let Json::Object(map) = &mut info {
        if let Some(target) = &entry.target {
            map.insert("symlinkTarget".to_owned(), json!(led_to(&entry.path, target)));
        }
        if is_link {
            map.insert("isSymlink".to_owned(), json!(true));
        }
        if !entry.metadata.is_empty() {
            map.insert("metadata".to_owned(), json!(entry.metadata));
        }
    }
    info
}

/// The path that a link names, whole: what it says is seen from its folder. Links on the way are not followed.
fn led_to(link: &str, target: &str) -> String {
    let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
    let whole = if target.starts_with('/') { target.to_owned() } else { format!("{folder}/{target}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

const fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "FILE_TYPE_FILE",
        FileKind::Dir => "FILE_TYPE_DIRECTORY",
        FileKind::Link => "FILE_TYPE_SYMLINK",
        FileKind::Other => "FILE_TYPE_UNSPECIFIED",
    }
}

fn owner(id: u32, own: u32, name: &str) -> String {
    if let Some((_, known)) = [(0, "root"), (65534, "nobody")].into_iter().find(|(known, _)| *known == id) {
        return known.to_owned();
    }
    if id == own && !name.is_empty() { name.to_owned() } else { id.to_string() }
}

/// `-rw-r--r--`
fn permissions(entry: &Entry) -> String {
    let first = match entry.kind {
        FileKind::File => '-',
        FileKind::Dir => 'd',
        FileKind::Link => 'L',
        FileKind::Other => '?',
    };
    let bit = |shift: u32, c: char| if entry.mode >> shift & 1 == 1 { c } else { '-' };
    let bits = (0..9_u32)
        .rev()
        .map(|shift| bit(shift, ['x', 'w', 'r'].get(usize::try_from(shift % 3).unwrap_or(0)).copied().unwrap_or('-')));
    std::iter::once(first).chain(bits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        serde_json::from_value(json!({
            "version": 1, "pid": 1, "uid": 1000, "gid": 1000, "home": "/home/user", "cwd": "/", "user": "user", "guarded": true,
        }))
        .unwrap()
    }

    #[test]
    fn an_entry_says_what_clients_read() {
        let of = |value: Json| entry(&serde_json::from_value(value).unwrap(), &hello());
        let file = of(json!({
            "name": "a", "path": "/a", "kind": "file", "size": 5, "mode": 0o644, "uid": 1000, "gid": 0, "modified": [1, 2],
        }));
        assert_eq!(file["permissions"], "-rw-r--r--");
        assert_eq!((&file["owner"], &file["group"], &file["size"]), (&json!("user"), &json!("root"), &json!("5")));
        assert_eq!((&file["type"], &file["mode"]), (&json!("FILE_TYPE_FILE"), &json!(0o644)));
        let link = of(json!({
            "name": "l", "path": "/l", "kind": "link", "size": 1, "mode": 0o777, "uid": 7, "gid": 65534, "modified": [0, 0],
            "target": "a", "target_kind": "dir", "metadata": { "k": "v" },
        }));
        assert_eq!((&link["type"], &link["isSymlink"]), (&json!("FILE_TYPE_DIRECTORY"), &json!(true)));
        assert_eq!(
            (&link["symlinkTarget"], &link["owner"], &link["metadata"]),
            (&json!("/a"), &json!("7"), &json!({ "k": "v" }))
        );
        for (target, whole) in [("../b/./c", "/home/b/c"), ("/etc/x", "/etc/x"), ("../../../x", "/x"), (".", "/home/u")]
        {
            assert_eq!(led_to("/home/u/l", target), whole);
        }
    }

    #[test]
    fn both_spellings_are_read() {
        let message = |value: Json| value.as_object().unwrap().clone();
        assert_eq!(flag(&message(json!({ "include_entry": true })), "includeEntry"), Ok(Some(true)));
        assert_eq!(flag(&message(json!({ "includeEntry": true })), "includeEntry"), Ok(Some(true)));
        assert_eq!(which(&message(json!({ "process": { "pid": "5" } }))), Ok(Which::Pid(5)));
        assert_eq!(which(&message(json!({ "process": { "tag": "t" } }))), Ok(Which::Tag("t".to_owned())));
        assert!(which(&message(json!({ "process": {} }))).is_err() && which(&message(json!({}))).is_err());
    }
}
