//! Names of tools, servers and variables: what they may be made of, so that no two of them look or map alike.

/// Longest name of a server.
pub const MAX_SERVER: usize = 40;
/// Longest name of a tool, its server included.
pub const MAX_NAME: usize = 200;

/// Why a name is none, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameFlaw {
    /// Why.
    pub why: String,
    /// What to write.
    pub fix: String,
}

/// A server's name: letters, digits, `-` and `_`, neither at its ends, no two `_` together, so that `server__tool`
/// can be divided in one way only.
#[must_use]
pub fn is_server(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    name.len() <= MAX_SERVER
        && name.chars().all(inner)
        && end(name.chars().next())
        && end(name.chars().last())
        && !name.contains("__")
}

/// Whether a text can name a variable of the environment.
#[must_use]
pub fn is_env_name(name: &str) -> bool {
    name.len() <= 256
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// What is wrong with the name of an entry, `tool`, `server.tool`, or a glob in which `*` is any run of characters.
#[must_use]
pub fn flaw_of_entry(name: &str) -> Option<NameFlaw> {
    if let Some((server, _)) = name.split_once('.')
        && server != "*"
        && server.contains('*')
    {
        let why = "a glob is about the tools of one server".to_owned();
        return Some(NameFlaw { why, fix: "name the server: `server.*`".to_owned() });
    }
    // A star stands for a letter as far as the rest of the name goes.
    flaw_of_tool(&name.replace('*', "x"))
}

/// What is wrong with the name of a tool, `tool` or `server.tool`.
#[must_use]
pub fn flaw_of_tool(name: &str) -> Option<NameFlaw> {
    let flaw = |why: &str, fix: String| Some(NameFlaw { why: why.to_owned(), fix });
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(fits) {
        let odd = name.chars().find(|c| !fits(*c)).map(|c| format!("; U+{:04X} is none of them", u32::from(c)));
        let why = format!("names are 1 to 200 of A-Z a-z 0-9 _ - . / (and, in globs, *){}", odd.unwrap_or_default());
        return flaw(&why, "write it as the tool is called: `tool`, `server.tool`, `server.*`".to_owned());
    }
    if let Some((server, tool)) = name.split_once('.') {
        if tool.is_empty() {
            return flaw("behind the dot stands the tool", format!("write {server}.* for all tools of `{server}`"));
        }
        if !is_server(server) {
            let why = "before the first dot stands the server: letters, digits, - and single _, neither at its ends";
            return flaw(why, "write server.tool".to_owned());
        }
        return None;
    }
    if name.contains('/') || name.len() > 64 {
        let why = "a tool without a server is called by 1 to 64 letters, digits, _ and -";
        return flaw(why, "write server.tool".to_owned());
    }
    let parts = name.strip_prefix("mcp__").unwrap_or(name).split_once("__");
    let (server, tool) = parts?;
    let why = "that is how a client sees the tool of a server; here it would name another tool";
    flaw(why, format!("write {server}.{tool}"))
}
