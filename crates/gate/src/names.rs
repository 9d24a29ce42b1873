//! Names of tools: `tool` or `server.tool` inside, `server__tool` for clients.
//!
//! Names are compared byte for byte. Only ASCII letters, digits, `_`, `-`, `.` and `/` can stand in one, so there is no
//! second spelling: no case folding, no normal forms, no look-alikes. A name that is anything else is an unknown tool.

use std::collections::BTreeMap;

use policy::names::{flaw_of_tool, is_server};

/// Longest name that clients take.
const MAX_PUBLIC: usize = 64;

/// Whether a name can be that of a tool.
#[must_use]
pub fn is_name(name: &str) -> bool {
    flaw_of_tool(name).is_none()
}

/// Whether an entry's name, exact or a glob, means this tool. Globs do not reach over the dot between server and tool,
/// apart from `*` alone, which means every tool.
#[must_use]
pub fn matches(entry: &str, tool: &str) -> bool {
    if !entry.contains('*') {
        return entry == tool;
    }
    if entry == "*" {
        return true;
    }
    match (entry.split_once('.'), tool.split_once('.')) {
        (Some((entry_server, entry_tool)), Some((server, tool))) => {
            (entry_server == "*" || entry_server == server) && glob(entry_tool.as_bytes(), tool.as_bytes())
        }
        (None, None) => glob(entry.as_bytes(), tool.as_bytes()),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// `*` is any run of bytes.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    policy::wild::matches(pattern, text, |one| *one == b'*', |one, byte| one == byte)
}

/// The names that clients see, one to one with the tools behind them.
#[derive(Clone, Debug, Default)]
pub struct Public {
    tools: BTreeMap<String, String>,
}

/// Why a tool gets no public name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unnamed {
    /// The server's or the tool's own name cannot be one.
    Unfit,
    /// Another tool has this public name already; both are to be hidden.
    Taken {
        /// The tool that has it.
        by: String,
    },
}

impl Public {
    /// Gives the tool of a server (or of none: a function) its name for clients.
    ///
    /// # Errors
    /// Names that are none, and names that are taken.
    pub fn insert(&mut self, server: Option<&str>, tool: &str) -> Result<String, Unnamed> {
        let own = match server {
            Some(server) if is_server(server) => format!("{server}.{tool}"),
            Some(_) => return Err(Unnamed::Unfit),
            None => tool.to_owned(),
        };
        if !is_name(&own) {
            return Err(Unnamed::Unfit);
        }
        let public = public(server, tool);
        match self.tools.get(&public) {
            Some(by) if *by != own => Err(Unnamed::Taken { by: by.clone() }),
            Some(_) | None => {
                self.tools.insert(public.clone(), own);
                Ok(public)
            }
        }
    }

    /// The tool behind a public name, `server.tool`; byte for byte.
    #[must_use]
    pub fn tool(&self, public: &str) -> Option<&str> {
        self.tools.get(public).map(String::as_str)
    }
}

/// `server__tool` within `[A-Za-z0-9_-]{1,64}`. What does not fit is spelled otherwise and told apart by a hash.
fn public(server: Option<&str>, tool: &str) -> String {
    let whole = server.map_or_else(|| tool.to_owned(), |server| format!("{server}__{tool}"));
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if whole.len() <= MAX_PUBLIC && whole.chars().all(fits) {
        return whole;
    }
    let mark: String = policy::json::sha256_hex(whole.as_bytes()).chars().take(12).collect();
    let spelled: String =
        whole.chars().map(|c| if fits(c) { c } else { '-' }).take(MAX_PUBLIC - 1 - mark.len()).collect();
    format!("{spelled}-{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_stay_within_their_server() {
        for (entry, tool, wanted) in [
            ("mail.*", "mail.send", true),
            ("mail.*", "mail2.send", false),
            ("mail.*", "mail", false),
            ("*", "mail.send", true),
            ("*", "send", true),
            ("*.send", "mail.send", true),
            ("*.send", "send", false),
            ("get_*", "get_all", true),
            ("get_*", "get_.all", false),
            ("s.a*b*c", "s.aXbYc", true),
            ("s.a*b*c", "s.aXcYb", false),
            ("s.*a", "s.aaaa", true),
            ("s.t", "s.T", false),
        ] {
            assert_eq!(matches(entry, tool), wanted, "{entry} {tool}");
        }
        // The last star alone moves back: no pattern of stars takes long.
        assert!(!matches(&format!("s.{}b", "*a".repeat(60)), &format!("s.{}", "a".repeat(180))));
    }

    #[test]
    fn gw_15_a_public_name_stands_for_one_tool() {
        let mut public = Public::default();
        assert_eq!(public.insert(Some("mail"), "send").unwrap(), "mail__send");
        assert_eq!(public.insert(Some("mail"), "send").unwrap(), "mail__send");
        assert_eq!(public.tool("mail__send"), Some("mail.send"));
        assert_eq!(public.tool("Mail__send"), None);
        assert_eq!(public.insert(None, "mail__send"), Err(Unnamed::Unfit));
        assert_eq!(public.insert(Some("ma__il"), "x"), Err(Unnamed::Unfit));
        assert_eq!(public.insert(Some("mail"), "s\u{435}nd"), Err(Unnamed::Unfit));
        let spelled = public.insert(Some("mail"), "send.now").unwrap();
        assert!(spelled.len() <= 64 && spelled.starts_with("mail__send-now-"), "{spelled}");
        // A tool that is called as another's spelling is refused.
        let taken = spelled.strip_prefix("mail__").unwrap();
        assert_eq!(public.insert(Some("mail"), taken), Err(Unnamed::Taken { by: "mail.send.now".to_owned() }));
        assert!(public.insert(Some("mail"), &"x".repeat(150)).unwrap().len() <= 64);
    }
}
