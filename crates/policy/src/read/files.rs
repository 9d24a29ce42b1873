//! `[fs]` and `[workspace]`.

use globset::GlobBuilder;

use super::allowed::Spelled;
use super::scalar::Least;
use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};
use crate::load::default_at;
use crate::value::{
    Fs, Grant, Image, ImageNotFound, Policy, Root, Sockets, Tier, TierChoice, Workspace, WorkspaceMode,
};

/// Why no path is ever matched by this glob, and what to write instead.
fn matches_nothing(glob: &str) -> Option<(&'static str, String)> {
    let names: Vec<&str> = glob.split('/').collect();
    if glob.is_empty() {
        return Some(("no path is empty", "remove it".to_owned()));
    }
    if names.iter().any(|name| [".", ".."].contains(name)) || names.iter().skip(1).any(|name| name.is_empty()) {
        let kept: Vec<&str> = names.iter().copied().filter(|name| !["", ".", ".."].contains(name)).collect();
        let root = if glob.starts_with('/') { "/" } else { "" };
        let fix = match (kept.is_empty(), root.is_empty()) {
            (true, true) => "remove it, or write `*` for all that lies there".to_owned(),
            (true, false) => "remove it, or name a path".to_owned(),
            (false, _) => format!("write {}", quote(&format!("{root}{}", kept.join("/")))),
        };
        return Some(("paths are compared name by name, without `.`, `..` and empty names", fix));
    }
    let first = names.first().copied().filter(|first| is_for_a_shell(first, names.len() > 1))?;
    let (sign, rest) = first.split_at_checked(1)?;
    let escaped = glob.replacen(first, &format!("[{sign}]{rest}"), 1);
    let fix = format!(
        "write the absolute path that it has inside, or one below the workspace or a grant; a name that begins so is {}",
        quote(&escaped)
    );
    Some(("no shell reads it: `~` and variables are not replaced, and it would stand for a name that begins so", fix))
}

/// `~`, `~NAME/`, `$NAME` and `${NAME}`: what a shell would replace, and no name that anybody gives. `~$a.doc` and `$RECYCLE.BIN`
/// are names.
fn is_for_a_shell(first: &str, has_more: bool) -> bool {
    let is_word = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if let Some(user) = first.strip_prefix('~') {
        return user.is_empty() || (has_more && is_word(user));
    }
    first.strip_prefix('$').is_some_and(|name| {
        is_word(name) || name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).is_some_and(is_word)
    })
}

pub(crate) const FS: &[&str] = &[
    "root",
    "read",
    "dangerous-read",
    "write",
    "dangerous-write",
    "hide",
    "sockets",
    "landlock",
    "exec",
    "noexec",
    "tmp",
    "shm",
    "run",
    "protect",
];
pub(crate) const WORKSPACE: &[&str] = &["path", "at", "mode"];

const LEAST_TMPFS: Least = Least {
    value: 4096,
    why: "a file system without a page holds nothing, and the kernel takes a size of 0 as unlimited",
    example: "64K",
};

impl Reader<'_> {
    pub(crate) fn fs(&mut self, tree: &Node, fs: &mut Fs) {
        let Some(node) = tree.get("fs") else { return };
        if self.table("fs", node, FS).is_none() {
            return;
        }
        self.put(tree, "fs.root", &mut fs.root, Self::root);
        let mut dangerous = Vec::new();
        self.put(tree, "fs.read", &mut fs.read, |r, p, n| r.grants(p, n, Spelled::Plain));
        self.put(tree, "fs.dangerous-read", &mut dangerous, |r, p, n| r.grants(p, n, Spelled::Dangerous));
        fs.read.append(&mut dangerous);
        self.put(tree, "fs.write", &mut fs.write, |r, p, n| r.grants(p, n, Spelled::Plain));
        self.put(tree, "fs.dangerous-write", &mut dangerous, |r, p, n| r.grants(p, n, Spelled::Dangerous));
        fs.write.append(&mut dangerous);
        self.put(tree, "fs.hide", &mut fs.hide, |r, p, n| r.globs(p, n));
        self.put(tree, "fs.sockets", &mut fs.sockets, Self::sockets);
        self.put(tree, "fs.landlock", &mut fs.landlock, |r, p, n| r.limit(p, n, |r, p, n| r.small(p, n, 1, 32)));
        self.put(tree, "fs.exec", &mut fs.exec, |r, p, n| r.limit(p, n, Self::executables));
        self.put(tree, "fs.noexec", &mut fs.noexec, Self::truth);
        self.put(tree, "fs.tmp", &mut fs.tmp, |r, p, n| r.size(p, n, LEAST_TMPFS));
        self.put(tree, "fs.shm", &mut fs.shm, |r, p, n| r.size(p, n, LEAST_TMPFS));
        self.put(tree, "fs.run", &mut fs.run, |r, p, n| r.size(p, n, LEAST_TMPFS));
        self.put(tree, "fs.protect", &mut fs.protect, Self::truth);
    }

    fn root(&mut self, path: &str, node: &Node) -> Option<Root> {
        let text = self.text(path, node)?;
        match text.split_once(':') {
            None if text == "host" => Some(Root::Host),
            None if text == "empty" => Some(Root::Empty),
            Some(("dir", folder)) => {
                let host = self.host_path_text(path, node, folder)?;
                self.judge_root(path, node, &host).then_some(Root::Dir(host))
            }
            Some(("image", name)) if !name.is_empty() && !name.contains(char::is_whitespace) => {
                Some(Root::Image(Image { name: name.to_owned(), found: Err(ImageNotFound::unasked()) }))
            }
            _ => {
                let what = format!("{} is not a value of `{path}`", quote(&text));
                let fix = if text.starts_with(['/', '.']) {
                    self.suggest(path, node.place, &format!("dir:{text}"))
                } else {
                    self.suggest(path, node.place, "host")
                };
                self.note(
                    path,
                    node.place,
                    fault("value/word", what, "it is `host`, `empty`, `dir:PATH` or `image:REF`", fix),
                );
                None
            }
        }
    }

    fn judge_root(&mut self, path: &str, node: &Node, host: &std::path::Path) -> bool {
        let Some(why) = self.danger(host) else { return true };
        let what = format!("`{path}` is {}", quote(&host.to_string_lossy()));
        self.note(
            path,
            node.place,
            fault("grant/dangerous", what, why, "name a folder that holds a root tree and nothing else"),
        );
        false
    }

    fn grants(&mut self, path: &str, node: &Node, spelled: Spelled) -> Option<Vec<Grant>> {
        let items = self.items(path, node)?;
        Some(items.iter().filter_map(|item| self.grant(path, item, spelled)).collect())
    }

    fn grant(&mut self, path: &str, node: &Node, spelled: Spelled) -> Option<Grant> {
        let (from, to) = match &node.value {
            Value::Table(_) => {
                let table = self.table(path, node, &["from", "to"])?;
                let Some(from) = table.get("from") else {
                    let fix = "write { from = \"./models\", to = \"/models\" }";
                    self.note(
                        path,
                        node.place,
                        fault(
                            "value/incomplete",
                            format!("a grant of `{path}` has no `from`"),
                            "it must name a host path",
                            fix,
                        ),
                    );
                    return None;
                };
                let from = self.host_path(path, from)?;
                let to = match table.get("to") {
                    Some(to) => {
                        let text = self.text(path, to)?;
                        Some(self.inside_path(path, to, &text)?)
                    }
                    None => None,
                };
                (from, to)
            }
            // In a flag `FROM:TO` is one word.
            Value::Bare(text) => match text.rsplit_once(":/").filter(|(from, _)| !from.is_empty()) {
                Some((from, to)) => {
                    let to = self.inside_path(path, node, &format!("/{to}"))?;
                    (self.host_path_text(path, node, from)?, Some(to))
                }
                None => (self.host_path(path, node)?, None),
            },
            Value::Null | Value::Bool(_) | Value::Integer(_) | Value::Float(_) | Value::Text(_) | Value::Array(_) => {
                (self.host_path(path, node)?, None)
            }
        };
        if !self.judge(path, node, &from, spelled) {
            return None;
        }
        let dangerous = spelled == Spelled::Dangerous;
        Some(Grant { to: to.unwrap_or_else(|| from.clone()), from, dangerous })
    }

    fn sockets(&mut self, path: &str, node: &Node) -> Option<Sockets> {
        match &node.value {
            Value::Text(text) | Value::Bare(text) if text == "own" => Some(Sockets::Own),
            Value::Text(_) => {
                let fix = format!("write {}", self.suggest(path, node.place, "own"));
                self.wrong_type(path, node, "true, false or \"own\"", fix);
                None
            }
            Value::Bare(_)
            | Value::Bool(_)
            | Value::Null
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Array(_)
            | Value::Table(_) => self.truth(path, node).map(|host| if host { Sockets::Host } else { Sockets::Pairs }),
        }
    }

    pub(crate) fn globs(&mut self, path: &str, node: &Node) -> Option<Vec<String>> {
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            match GlobBuilder::new(&text).literal_separator(true).build() {
                Ok(_) => match matches_nothing(&text) {
                    None => list.push(text),
                    Some((why, fix)) => {
                        let what = format!("{} in `{path}` can match nothing", quote(&text));
                        self.note(path, item.place, fault("value/glob", what, why, fix));
                    }
                },
                Err(error) => {
                    let what = format!("{} in `{path}` is not a glob", quote(&text));
                    self.note(
                        path,
                        item.place,
                        fault("value/glob", what, error.kind().to_string(), "escape literal characters as [*]"),
                    );
                }
            }
        }
        Some(list)
    }

    fn executables(&mut self, path: &str, node: &Node) -> Option<Vec<std::path::PathBuf>> {
        let mut list = Vec::new();
        for item in self.items(path, node)? {
            let Some(text) = self.text(path, item) else { continue };
            if !text.starts_with('/') {
                let what = format!("`{path}` names {}", quote(&text));
                let why =
                    "executables are named by their absolute path inside: a search path would let the program choose";
                self.note(
                    path,
                    item.place,
                    fault("path/relative", what, why, format!("write /usr/bin/{}", text.trim_start_matches("./"))),
                );
                continue;
            }
            list.extend(self.host_path_text(path, item, &text));
        }
        list.sort();
        list.dedup();
        if matches!(&node.value, Value::Array(items) if items.is_empty()) {
            let what = format!("`{path}` is an empty list");
            self.note(
                path,
                node.place,
                fault(
                    "value/incomplete",
                    what,
                    "nothing could be executed",
                    "name the executables, or write \"none\" for no such limit",
                ),
            );
            return None;
        }
        Some(list)
    }

    pub(crate) fn workspace(&mut self, tree: &Node, policy: &mut Policy) {
        let tier = match policy.tier {
            TierChoice::Fixed(tier) => tier,
            TierChoice::Auto => policy.threat.least_tier().max(Tier::Process),
        };
        policy.workspace.at = default_at(tier);
        let Some(node) = tree.get("workspace") else { return };
        if self.table("workspace", node, WORKSPACE).is_none() {
            return;
        }
        let mut path = None;
        self.put(tree, "workspace.path", &mut path, |r, p, n| r.host_path(p, n).map(Some));
        let mut mode = if path.is_some() { WorkspaceMode::Overlay } else { WorkspaceMode::None };
        self.put(tree, "workspace.mode", &mut mode, |r, p, n| r.keyword(p, n, WorkspaceMode::WORDS));
        let mut at = default_at(tier);
        self.put(tree, "workspace.at", &mut at, |r, p, n| {
            let text = r.text(p, n)?;
            if text == "same" { Some(None) } else { r.inside_path(p, n, &text).map(Some) }
        });
        if mode == WorkspaceMode::None {
            path = None;
        } else if path.is_none() && node.get("path").is_none() {
            path = Some(self.caller.dir.clone());
        }
        policy.workspace = Workspace { path, at, mode };
    }
}
