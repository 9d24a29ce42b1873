//! One table in a client's TOML file, as text: the rest stays to the byte.

use toml::{Table, Value};

/// Puts a server under `[mcp_servers.NAME]`, or takes it out; `None` if it is not there.
///
/// # Errors
/// Why the file cannot be changed.
pub(super) fn edit(text: &str, name: &str, entry: Option<&Table>) -> Result<Option<String>, String> {
    let before: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_lowercase())?;
    let there = before.get("mcp_servers").and_then(Value::as_table).is_some_and(|servers| servers.contains_key(name));
    if !there && entry.is_none() {
        return Ok(None);
    }
    let mut made = if there { without(text, name) } else { text.to_owned() };
    if let Some(entry) = entry {
        if !made.is_empty() && !made.ends_with('\n') {
            made.push('\n');
        }
        if !made.is_empty() && !made.ends_with("\n\n") {
            made.push('\n');
        }
        made.push_str(&format!("[mcp_servers.{name}]\n{entry}"));
    }
    let mut wanted = before;
    let servers = wanted.entry("mcp_servers").or_insert_with(|| Value::Table(Table::new()));
    if let Some(servers) = servers.as_table_mut() {
        match entry {
            Some(entry) => drop(servers.insert(name.to_owned(), Value::Table(entry.clone()))),
            None => drop(servers.remove(name)),
        }
    }
    if wanted.get("mcp_servers").and_then(Value::as_table).is_some_and(Table::is_empty) && !made.contains("mcp_servers")
    {
        wanted.remove("mcp_servers");
    }
    let read: Result<Table, _> = made.parse();
    if read.as_ref() == Ok(&wanted) {
        Ok(Some(made))
    } else {
        Err(format!("`mcp_servers.{name}` is not written as a table of its own there, and cannot be followed"))
    }
}

/// The text without the table and what is below it.
fn without(text: &str, name: &str) -> String {
    let (table, below) = (format!("[mcp_servers.{name}]"), format!("[mcp_servers.{name}."));
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for line in text.split_inclusive('\n') {
        let word = line.trim();
        if word.starts_with('[') {
            inside = word == table || word.starts_with(&format!("{table} ")) || word.starts_with(&below);
        }
        if !inside {
            out.push_str(line);
        }
    }
    while out.ends_with("\n\n") {
        out.pop();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_in_and_out_and_the_rest_stays() {
        let entry: Table = "command = \"f\"\nargs = [\"x\"]\n".parse().unwrap();
        for text in [
            "",
            "model = \"x\" # mine\n",
            "[mcp_servers.git]\ncommand = \"uvx\"\n\n[mcp_servers.git.env]\nA = \"1\"\n",
            "a = 1",
        ] {
            let made = edit(text, "fumehood", Some(&entry)).unwrap().unwrap();
            assert!(made.starts_with(text), "{made}");
            let again = edit(&made, "fumehood", Some(&entry)).unwrap().unwrap();
            assert_eq!(again.matches("[mcp_servers.fumehood]").count(), 1);
            let back = edit(&made, "fumehood", None).unwrap().unwrap();
            assert_eq!(back.trim_end(), text.trim_end());
        }
    }

    #[test]
    fn an_entry_that_is_written_otherwise_is_left_alone() {
        let entry: Table = "command = \"f\"\n".parse().unwrap();
        assert!(edit("mcp_servers = { fumehood = { command = \"x\" } }\n", "fumehood", Some(&entry)).is_err());
        assert!(edit("a = \n", "fumehood", Some(&entry)).is_err());
        assert_eq!(edit("a = 1\n", "fumehood", None), Ok(None));
    }
}
