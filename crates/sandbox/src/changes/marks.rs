//! What a person should look at before taking a change.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::manifest::{Change, Entry, Kind, target_bytes};
use crate::fault::is_unsafe_to_show;
use crate::protect::List;

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mark {
    /// `protected`, `executes`, `instructs`, `shadows`, `repository`, `hidden-text`, `hard-name`, `link-leaves`,
    /// `executable`, `stripped`, `touched`.
    pub id: &'static str,
    /// Why.
    pub why: String,
}

/// The marks of one entry. `held` says why it is protected, if it is; `content` is its new text, if it is known; `search` are
/// the folders of the caller's PATH.
#[must_use]
pub fn marks(
    (list, held): (&List, Option<String>),
    workspace: &Path,
    search: &[PathBuf],
    entry: &Entry,
    content: Option<&[u8]>,
) -> Vec<Mark> {
    let mut found = Vec::new();
    let mut mark = |id, why: String| found.push(Mark { id, why });
    if let Some(why) = held {
        mark("protected", why);
    }
    if let Some(why) = list.executes(&entry.path) {
        mark("executes", why.into());
    }
    if let Some(who) = list.instructs(&entry.path) {
        mark("instructs", who.into());
    }
    let name = entry.path.as_os_str().as_bytes();
    let hard = std::str::from_utf8(name).map_or(true, |text| text.chars().any(is_unsafe_to_show))
        || name
            .split(|&b| b == b'/')
            .any(|part| part.starts_with(b"-") || part.contains(&b'$') || part.contains(&b'`'));
    if hard {
        mark("hard-name", "its name can be taken for an option, a command or an instruction to the terminal".into());
    }
    if entry.touched {
        mark("touched", "somebody changed it on the host while the run lasted".into());
    }
    if entry.change != Change::Removed {
        present(workspace, search, entry, content, &mut mark);
    }
    found.sort();
    found
}

fn present(
    workspace: &Path,
    search: &[PathBuf],
    entry: &Entry,
    content: Option<&[u8]>,
    mark: &mut impl FnMut(&'static str, String),
) {
    if entry.stripped {
        mark("stripped", "it had a set-user-id or set-group-id bit, which stays behind".into());
    }
    let was_executable = entry.base.as_ref().is_some_and(|base| base.mode & 0o111 != 0);
    if entry.kind == Kind::File && entry.mode & 0o111 != 0 && !was_executable {
        mark("executable", "it becomes executable".into());
    }
    let folder = workspace.join(&entry.path).parent().map(Path::to_owned);
    if entry.kind != Kind::Dir && folder.is_some_and(|folder| search.contains(&folder)) {
        mark("shadows", "its folder is in your PATH".into());
    }
    if entry.kind == Kind::Symlink && leaves(entry) {
        mark("link-leaves", "the link leads out of the workspace, or could".into());
    }
    if entry.path.file_name().is_some_and(|n| n == "HEAD") && entry.change == Change::Added {
        mark(
            "repository",
            "git takes a folder with `HEAD`, `objects` and `refs` for a repository and reads its `config`".into(),
        );
    }
    let text = content.and_then(|content| std::str::from_utf8(content).ok());
    if text.is_some_and(|text| {
        text.chars().any(|c| is_unsafe_to_show(c) && !matches!(c, '\n' | '\t' | '\r' | '\u{c}' | '\u{fe0f}'))
    }) {
        mark("hidden-text", "it holds characters that hide or reorder text, or that a terminal acts on".into());
    }
}

/// Whether a link can lead out of the workspace: it is absolute, climbs above it, or climbs after going down (then where
/// it leads depends on other links). Of links that do not, no chain can lead out.
#[must_use]
pub fn leaves(entry: &Entry) -> bool {
    let Some(target) = entry.target.as_deref().and_then(target_bytes) else { return true };
    let mut depth = entry.path.components().count().saturating_sub(1);
    let mut down = false;
    for part in Path::new(&target).components() {
        match part {
            Component::RootDir | Component::Prefix(_) => return true,
            Component::CurDir => {}
            Component::ParentDir if down || depth == 0 => return true,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => down = true,
        }
    }
    false
}
