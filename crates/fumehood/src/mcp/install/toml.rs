//! One table in a client's TOML file: put in, replaced or taken out; the rest stays to the byte.

use toml_edit::{DocumentMut, Item, Table};

/// Puts a server under `[mcp_servers.NAME]`, or takes it out; `None` if it is not there.
///
/// # Errors
/// Why the file cannot be changed.
pub(super) fn edit(text: &str, name: &str, entry: Option<&toml::Table>) -> Result<Option<String>, String> {
    let wanted = wanted(text, name, entry)?;
    let mut document: DocumentMut =
        text.parse().map_err(|error: toml_edit::TomlError| error.message().to_lowercase())?;
    let mut implicit = Table::new();
    implicit.set_implicit(true);
    let servers = document.entry("mcp_servers").or_insert(Item::Table(implicit));
    let servers = servers.as_table_like_mut().ok_or("`mcp_servers` in it is no table")?;
    match entry {
        Some(entry) => {
            let made: DocumentMut =
                entry.to_string().parse().map_err(|error: toml_edit::TomlError| error.message().to_owned())?;
            drop(servers.insert(name, Item::Table(made.as_table().clone())));
        }
        None if servers.remove(name).is_none() => return Ok(None),
        None => {}
    }
    let made = as_before(text, document.to_string())?;
    let read = made.parse::<toml::Table>().map_err(|error| error.message().to_lowercase())?;
    if with_servers(read) != wanted {
        return Err("it is written so that more than this entry would change".to_owned());
    }
    Ok(Some(made))
}

/// What the file is to say.
fn wanted(text: &str, name: &str, entry: Option<&toml::Table>) -> Result<toml::Table, String> {
    let mut table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_lowercase())?;
    let servers = table.entry("mcp_servers").or_insert_with(|| toml::Value::Table(toml::Table::new()));
    let servers = servers.as_table_mut().ok_or("`mcp_servers` in it is no table")?;
    drop(servers.remove(name));
    if let Some(entry) = entry {
        servers.insert(name.to_owned(), toml::Value::Table(entry.clone()));
    }
    Ok(with_servers(table))
}

/// No servers and an empty table of them are the same.
fn with_servers(mut table: toml::Table) -> toml::Table {
    table.entry("mcp_servers").or_insert_with(|| toml::Value::Table(toml::Table::new()));
    table
}

/// With the ends of lines that the file has.
fn as_before(text: &str, made: String) -> Result<String, String> {
    let crlf = text.matches("\r\n").count();
    if crlf == 0 {
        return Ok(made);
    }
    if crlf != text.matches('\n').count() {
        return Err("some of its lines end with CRLF and some with LF".to_owned());
    }
    Ok(made.replace("\r\n", "\n").replace('\n', "\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_goes_in_and_out_and_the_rest_stays() {
        let entry: toml::Table = "command = \"f\"\nargs = [\"x\"]\n".parse().unwrap();
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
    fn ends_of_lines_stay() {
        let entry: toml::Table = "command = \"f\"\n".parse().unwrap();
        let text = "a = 1 # mine\r\n\r\n[b]\r\nc = 2\r\n";
        let made = edit(text, "fumehood", Some(&entry)).unwrap().unwrap();
        assert!(made.starts_with(text) && made.matches('\n').count() == made.matches("\r\n").count(), "{made:?}");
        assert!(edit("a = 1\r\nb = 2\n", "fumehood", Some(&entry)).is_err());
    }

    #[test]
    fn an_entry_in_a_line_is_replaced_and_what_is_no_table_is_left_alone() {
        let entry: toml::Table = "command = \"f\"\n".parse().unwrap();
        let text = "mcp_servers = { fumehood = { command = \"x\" }, git = { command = \"g\" } } # mine\n";
        let made = edit(text, "fumehood", Some(&entry)).unwrap().unwrap();
        let read: toml::Table = made.parse().unwrap();
        assert_eq!(read["mcp_servers"]["fumehood"]["command"].as_str(), Some("f"), "{made}");
        assert_eq!(read["mcp_servers"]["git"]["command"].as_str(), Some("g"), "{made}");
        assert!(made.ends_with("# mine\n"), "{made}");
        assert!(edit("mcp_servers = 1\n", "fumehood", Some(&entry)).is_err());
        assert!(edit("a = \n", "fumehood", Some(&entry)).is_err());
        assert_eq!(edit("a = 1\n", "fumehood", None), Ok(None));
    }
}
