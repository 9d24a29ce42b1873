//! Paths: absolute, normal, and not dangerous unless said so.

use std::path::{Component, Path, PathBuf};

use super::{Reader, fault};
use crate::diagnostic::quote;
use crate::document::{Node, Value};

/// Whether a grant was spelled `dangerous-`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelled {
    Plain,
    Dangerous,
}

/// Places inside that are ours: nothing may be shown over, above or below them.
const OURS: &[&str] = &["/proc", "/sys", "/dev", "/run/fumehood", "/etc/passwd", "/etc/group"];
/// File systems of ours in which things may be shown, but not over them: their size would no longer hold.
const MOUNTS: &[&str] = &["/tmp", "/run"];

/// What of ours a place inside would cover.
pub(crate) fn over(place: &Path) -> Option<&'static str> {
    let ours = OURS.iter().find(|ours| place.starts_with(ours) || Path::new(ours).starts_with(place));
    ours.or_else(|| MOUNTS.iter().find(|mount| Path::new(mount) == place)).copied()
}

impl Reader<'_> {
    /// A host path: relative ones start at the folder of their document, or at the current directory.
    pub(crate) fn host_path(&mut self, path: &str, node: &Node) -> Option<PathBuf> {
        let text = self.text(path, node)?;
        self.host_path_text(path, node, &text)
    }

    pub(crate) fn host_path_text(&mut self, path: &str, node: &Node, text: &str) -> Option<PathBuf> {
        let base = self.source(node.place).map_or(self.caller.dir.as_path(), |source| source.base.as_path());
        match normal(base, text) {
            Ok(full) => Some(full),
            Err((id, why, fix)) => {
                self.note(path, node.place, fault(id, format!("`{path}` has the path {}", quote(text)), why, fix));
                None
            }
        }
    }

    /// A path inside the sandbox: absolute, and not over what is ours.
    pub(crate) fn inside_path(&mut self, path: &str, node: &Node, text: &str) -> Option<PathBuf> {
        let full = if text.starts_with('/') {
            normal(Path::new("/"), text)
        } else {
            Err((
                "path/relative",
                "paths inside the sandbox are absolute".to_owned(),
                format!("write /{}", text.trim_start_matches("./")),
            ))
        };
        let what = format!("`{path}` would be shown at {}", quote(text));
        match full {
            Ok(full) if full == Path::new("/") => {
                self.note(
                    path,
                    node.place,
                    fault("path/ours", what, "the root of the sandbox is `fs.root`", "give a folder below /"),
                );
                None
            }
            Ok(full) => match over(&full) {
                Some(ours) => {
                    let why = format!("`{ours}` inside is made by fumehood");
                    self.note(path, node.place, fault("path/ours", what, why, "give another folder"));
                    None
                }
                None => Some(full),
            },
            Err((id, why, fix)) => {
                self.note(path, node.place, fault(id, what, why, fix));
                None
            }
        }
    }

    /// Refuses dangerous paths that are not spelled so.
    pub(crate) fn judge(&mut self, path: &str, node: &Node, host: &Path, spelled: Spelled) -> bool {
        let Some(why) = self.danger(host) else { return true };
        if spelled == Spelled::Dangerous {
            return true;
        }
        let word = if path.ends_with("write") { "dangerous-write" } else { "dangerous-read" };
        let what = format!("`{path}` grants {}", quote(&host.to_string_lossy()));
        let fix = if matches!(&node.value, Value::Bare(_)) {
            format!("grant less, or spell it --{word} {}", host.to_string_lossy())
        } else {
            format!("grant less, or list it under fs.{word}")
        };
        self.note(path, node.place, fault("grant/dangerous", what, why, fix));
        false
    }
}

type PathProblem = (&'static str, String, String);

/// Makes a path absolute and normal without asking the file system. `..` stands for a parent only at the start of a
/// relative path: elsewhere a link could make it mean something else than it says.
pub(crate) fn normal(base: &Path, text: &str) -> Result<PathBuf, PathProblem> {
    if text.is_empty() {
        return Err((
            "path/empty",
            "an empty path names nothing".to_owned(),
            "write . for the folder itself".to_owned(),
        ));
    }
    if text.len() > 4095 {
        return Err(("path/long", "the kernel ends paths at 4095 bytes".to_owned(), "give a shorter one".to_owned()));
    }
    if text.contains('\0') {
        return Err(("path/nul", "the kernel ends paths at a NUL".to_owned(), "remove it".to_owned()));
    }
    if text.starts_with('~') {
        let why = "`~` is not replaced: a policy means the same for everybody who runs it";
        return Err((
            "path/tilde",
            why.to_owned(),
            "write the path out, or let the shell replace it in a flag".to_owned(),
        ));
    }
    if has_variable(text) {
        let why = "variables are not replaced: a policy means the same wherever it runs";
        return Err((
            "path/variable",
            why.to_owned(),
            "write the path out, or let the shell replace it in a flag".to_owned(),
        ));
    }
    let mut full = if text.starts_with('/') { PathBuf::from("/") } else { base.to_path_buf() };
    let mut only_parents = !text.starts_with('/');
    for part in Path::new(text).components() {
        match part {
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
            Component::ParentDir if only_parents => {
                full.pop();
            }
            Component::ParentDir => {
                let why = "`..` behind a name may lead elsewhere when that name is a link";
                return Err(("path/parent", why.to_owned(), "write the path without it".to_owned()));
            }
            Component::Normal(name) => {
                only_parents = false;
                full.push(name);
            }
        }
    }
    Ok(full)
}

fn has_variable(text: &str) -> bool {
    let after = |(at, _): (usize, &str)| text.get(at + 1..).and_then(|rest| rest.chars().next());
    text.match_indices('$').filter_map(after).any(|c| c == '{' || c == '(' || c == '_' || c.is_ascii_alphabetic())
}
