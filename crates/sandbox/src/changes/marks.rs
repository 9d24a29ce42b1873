//! What a person should look at before taking a change.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::manifest::{Change, Entry, Kind, target_bytes};
use crate::fault::is_unsafe_to_show;
use crate::protect::{List, is_short, split};

/// So many links of the host's are followed, as by the kernel.
const MAX_LINKS: usize = 40;

/// One thing to look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Mark {
    /// `protected`, `executes`, `instructs`, `configures`, `shadows`, `repository`, `hidden-text`, `hard-name`, `link-leaves`,
    /// `executable`, `stripped`, `touched`, `left-out`.
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
    let mut parts = name.split(|&b| b == b'/');
    let hard = std::str::from_utf8(name).map_or(true, |text| text.chars().any(is_unsafe_to_show))
        || parts.clone().any(|part| part.starts_with(b"-") || part.contains(&b'$') || part.contains(&b'`'));
    if parts.any(is_other_elsewhere) {
        mark("hard-name", "on other file systems (FAT, NTFS) its name is another file's".into());
    } else if hard {
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

/// Whether FAT and NTFS take a name for that of another file: a short name, one that they shorten, or one that Windows takes apart.
fn is_other_elsewhere(part: &[u8]) -> bool {
    is_short(part) || part.ends_with(b".") || part.ends_with(b" ") || part.contains(&b'\\')
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
    if let Some(why) = leaves(workspace, entry) {
        mark("link-leaves", why.into());
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

const LEADS_OUT: &str = "the link leads out of the workspace, or could";

/// Why an entry is a link that is taken only where somebody asks for it: by its spelling it can lead out of the workspace, or the
/// links lead out that the host has on its way, or it ends among git's own files.
#[must_use]
pub fn leaves(workspace: &Path, entry: &Entry) -> Option<&'static str> {
    if entry.kind != Kind::Symlink || entry.change == Change::Removed {
        return None;
    }
    let Some(target) = entry.target.as_deref().and_then(target_bytes) else { return Some(LEADS_OUT) };
    let folder = entry.path.parent().unwrap_or(Path::new(""));
    if climbs(folder.components().count(), Path::new(&target)) {
        return Some(LEADS_OUT);
    }
    let Some(end) = on_the_host(workspace, folder, Path::new(&target)) else { return Some(LEADS_OUT) };
    let into_git = split(&end).is_some() && split(&entry.path).is_none();
    into_git.then_some("the link leads to git's own files")
}

/// Where a link in a folder of the workspace ends by what stands on the host; `None` where that is not in the workspace, or where
/// there are too many links on the way.
fn on_the_host(workspace: &Path, folder: &Path, target: &Path) -> Option<PathBuf> {
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect::<Vec<_>>();
    let (mut at, mut ahead, mut links) = (folder.to_owned(), parts(target), 0_usize);
    while let Some(part) = ahead.pop() {
        match Path::new(&part).components().next() {
            None | Some(Component::CurDir) => {}
            Some(Component::RootDir | Component::Prefix(_)) => return None,
            Some(Component::ParentDir) if at.pop() => {}
            Some(Component::ParentDir) => return None,
            Some(Component::Normal(name)) => {
                let there = std::fs::read_link(workspace.join(&at).join(name));
                let Ok(led) = there else {
                    at.push(name);
                    continue;
                };
                links = links.saturating_add(1);
                if links > MAX_LINKS {
                    return None;
                }
                ahead.extend(parts(&led));
            }
        }
    }
    Some(at)
}

/// Whether a link so many folders below the top can lead above the top: it is absolute, climbs above it, or climbs after going down
/// (then where it leads depends on other links). Of links that do not, no chain can lead out.
#[must_use]
pub fn climbs(mut depth: usize, target: &Path) -> bool {
    let mut down = false;
    for part in target.components() {
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
