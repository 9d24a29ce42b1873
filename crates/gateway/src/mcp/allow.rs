//! What of `[mcp]` is allowed: resources, prompts, and what servers may ask of clients. Empty lists allow nothing.

use std::collections::BTreeSet;

use globset::{GlobBuilder, GlobMatcher};
use policy::span::{Documents, Spanned};
use policy::tools::Mcp;

use super::servers::ServerError;
use super::text;

/// Compiled allowlists.
#[derive(Clone, Debug, Default)]
pub struct Allow {
    resources: Vec<(String, GlobMatcher)>,
    prompts: Vec<(String, GlobMatcher)>,
    sampling: BTreeSet<String>,
    elicitation: BTreeSet<String>,
    roots: BTreeSet<String>,
}

/// What a server may ask of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Its model.
    Sampling,
    /// Its user.
    Elicitation,
    /// Its folders.
    Roots,
}

impl Asking {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sampling, Self::Elicitation, Self::Roots];

    /// By the method of the request.
    #[must_use]
    pub fn of(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|asking| asking.method() == method)
    }

    /// The method of the request.
    #[must_use]
    pub const fn method(self) -> &'static str {
        match self {
            Self::Sampling => "sampling/createMessage",
            Self::Elicitation => "elicitation/create",
            Self::Roots => "roots/list",
        }
    }

    /// The capability, and the key of `[mcp]`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sampling => "sampling",
            Self::Elicitation => "elicitation",
            Self::Roots => "roots",
        }
    }
}

impl Allow {
    /// Compiles the lists.
    ///
    /// # Errors
    /// Every entry that is none.
    pub fn new(mcp: &Mcp, documents: &Documents) -> Result<Self, Vec<ServerError>> {
        let mut wrong = Vec::new();
        let mut globs = |list: &[Spanned<String>], between: char, key: &str| {
            let compile = |entry: &Spanned<String>| {
                let split =
                    entry.value.split_once(between).filter(|(server, glob)| !server.is_empty() && !glob.is_empty());
                let glob = split.map(|(server, glob)| (server, GlobBuilder::new(glob).literal_separator(true).build()));
                match glob {
                    Some((server, Ok(glob))) => Some((server.to_owned(), glob.compile_matcher())),
                    Some((_, Err(_))) | None => {
                        wrong.push(ServerError {
                            id: "mcp/allow",
                            what: format!("`{}` in `mcp.{key}` names nothing", text::shown(&entry.value, 100)),
                            place: documents.locate(entry.at).to_string(),
                            why: format!("an entry is SERVER{between}GLOB, and a glob stays within one server"),
                            fix: format!("for instance \"git{between}*\""),
                        });
                        None
                    }
                }
            };
            list.iter().filter_map(compile).collect::<Vec<_>>()
        };
        let resources = globs(&mcp.resources, ':', "resources");
        let prompts = globs(&mcp.prompts, '.', "prompts");
        let names = |list: &[Spanned<String>]| list.iter().map(|name| name.value.clone()).collect();
        let allow = Self {
            resources,
            prompts,
            sampling: names(&mcp.sampling),
            elicitation: names(&mcp.elicitation),
            roots: names(&mcp.roots),
        };
        if wrong.is_empty() { Ok(allow) } else { Err(wrong) }
    }

    /// Whether any resource of a server is allowed (of any server, without one).
    #[must_use]
    pub fn any_resource(&self, server: Option<&str>) -> bool {
        self.resources.iter().any(|(name, _)| server.is_none_or(|server| server == name))
    }

    /// Whether any prompt of a server is allowed (of any server, without one).
    #[must_use]
    pub fn any_prompt(&self, server: Option<&str>) -> bool {
        self.prompts.iter().any(|(name, _)| server.is_none_or(|server| server == name))
    }

    /// Whether a resource may be listed and read.
    #[must_use]
    pub fn resource(&self, server: &str, uri: &str) -> bool {
        is_plain_uri(uri) && self.resources.iter().any(|(name, glob)| name == server && glob.is_match(uri))
    }

    /// Whether a template may be listed: it can stand for something allowed. What it stands for is judged when it is read.
    #[must_use]
    pub fn template(&self, server: &str, template: &str) -> bool {
        let begins = beginning(template, &['{']);
        self.beginnings(server).any(|allowed| begins.starts_with(allowed) || allowed.starts_with(begins))
    }

    /// Whether the variables of a template may be completed: all that it stands for lies where an allowed glob begins.
    #[must_use]
    pub fn completes(&self, server: &str, template: &str) -> bool {
        let begins = beginning(template, &['{']);
        // With something for its variables it must be an address that can be compared at all.
        let filled = template.split(['{', '}']).step_by(2).collect::<Vec<_>>().join("x");
        is_plain_uri(&filled) && self.beginnings(server).any(|allowed| begins.starts_with(allowed))
    }

    /// What stands before the first wild mark of each glob of a server.
    fn beginnings<'a>(&'a self, server: &'a str) -> impl Iterator<Item = &'a str> {
        let of_server = self.resources.iter().filter(move |(name, _)| name == server);
        of_server.map(|(_, glob)| beginning(glob.glob().glob(), &['*', '?', '[', '{', '\\']))
    }

    /// Whether a prompt may be listed and taken.
    #[must_use]
    pub fn prompt(&self, server: &str, name: &str) -> bool {
        self.prompts.iter().any(|(allowed, glob)| allowed == server && glob.is_match(name))
    }

    /// Whether a server may ask this of a client.
    #[must_use]
    pub fn asks(&self, server: &str, asking: Asking) -> bool {
        let list = match asking {
            Asking::Sampling => &self.sampling,
            Asking::Elicitation => &self.elicitation,
            Asking::Roots => &self.roots,
        };
        list.contains(server)
    }
}

/// What stands before the first of some marks.
fn beginning<'t>(text: &'t str, marks: &[char]) -> &'t str {
    text.split(marks).next().unwrap_or_default()
}

/// Whether an address can be compared with a glob at all: what a server would resolve, decode or drop is refused.
#[must_use]
pub fn is_plain_uri(uri: &str) -> bool {
    let lower = uri.to_ascii_lowercase();
    let odd = |c: char| c.is_control() || c.is_whitespace() || c == '\\' || text::hides(c);
    let encoded = ["%2e", "%2f", "%5c", "%00", "%0a", "%0d"].iter().any(|code| lower.contains(code));
    let Some((scheme, rest)) = uri.split_once(':') else { return false };
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let path = rest.split(['?', '#']).next().unwrap_or_default();
    let climbs = path.split('/').any(|part| part == "." || part == "..");
    is_scheme && !rest.is_empty() && uri.len() <= 4096 && !uri.contains(odd) && !encoded && !climbs
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A place of nothing: only the reader of documents makes places.
    fn spot() -> policy::span::Span {
        let text = "version = 1\n[tools]\n[mcp]\nresources = [\"a:b\"]\n".to_owned();
        let mut layers = policy::Layers::new(policy::Caller { dir: "/".into(), ..policy::Caller::default() });
        layers.policy("./p.toml", &|_: &std::path::Path| Ok(text.clone()));
        let loaded = layers.finish().unwrap();
        loaded.policy.tools.unwrap().mcp.resources[0].at
    }

    fn allow(resources: &[&str], prompts: &[&str]) -> Result<Allow, Vec<ServerError>> {
        let spotted =
            |list: &[&str]| list.iter().map(|text| Spanned { value: (*text).to_owned(), at: spot() }).collect();
        let mcp = Mcp { resources: spotted(resources), prompts: spotted(prompts), ..Mcp::default() };
        Allow::new(&mcp, &Documents::default())
    }

    #[test]
    fn a_glob_holds_within_its_server_and_its_folder() {
        let allow = allow(&["fs:file:///work/**", "fs:memo://*"], &["git.commit-*"]).unwrap();
        assert!(allow.resource("fs", "file:///work/a/b.txt") && allow.resource("fs", "memo://x"));
        for bad in [
            "file:///work/../etc/passwd",
            "file:///work/%2e%2e/etc/passwd",
            "file:///work/a/..%2f..%2fetc/passwd",
            "file:///worker/a",
            "file:///etc/passwd",
            "FILE:///work\\..\\x",
            "memo://a/b",
            "file:///work/a\u{200b}",
            "file:///work/a b",
            "",
        ] {
            assert!(!allow.resource("fs", bad), "{bad}");
        }
        assert!(!allow.resource("other", "file:///work/a"));
        assert!(
            allow.prompt("git", "commit-message") && !allow.prompt("git", "push") && !allow.prompt("x", "commit-a")
        );
    }

    #[test]
    fn a_template_is_completed_only_where_all_that_it_stands_for_is_allowed() {
        let allow = allow(&["fs:file:///work/**", "fs:memo://*"], &[]).unwrap();
        for (template, listed, completed) in [
            ("file:///work/{name}", true, true),
            ("memo://{id}", true, true),
            ("file:///{+path}", true, false),
            ("{scheme}://x", true, false),
            ("file:///work/../{name}", true, false),
            ("file:///secret/{name}", false, false),
            ("file:///worker/{name}", false, false),
        ] {
            assert_eq!(
                (allow.template("fs", template), allow.completes("fs", template)),
                (listed, completed),
                "{template}"
            );
            assert!(!allow.template("other", template) && !allow.completes("other", template));
        }
    }

    #[test]
    fn empty_lists_allow_nothing_and_entries_need_a_server() {
        let none = allow(&[], &[]).unwrap();
        assert!(!none.resource("a", "file:///x") && !none.prompt("a", "b") && !none.asks("a", Asking::Sampling));
        assert_eq!(allow(&["*"], &["x", ".y"]).unwrap_err().len(), 3);
    }
}
