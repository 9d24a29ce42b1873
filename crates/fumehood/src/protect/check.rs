//! After a `rw` run: what slipped in is put aside.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, RenameFlags};
use rustix::io::{Errno, Result};
use serde::Serialize;

use super::hold::{Held, Hold, Stands};
use super::list::List;
use super::plan::{ProtectPlan, parent_of, seen};
use crate::state::{Cross, Dir, path_text};

/// A protected path that is not as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slipped {
    /// Relative to the workspace.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// `appeared`, `changed` or `vanished`.
    pub what: &'static str,
    /// Where it was put; relative to the workspace if it begins with its name, else in the folder of the run.
    pub moved_to: Option<String>,
    /// Why it was left, if it was.
    pub why: Option<String>,
}

/// Compares with the start, after our stubs were removed. What appeared is moved into `aside`. What was there and changed
/// is only told: inside it was read-only, so somebody changed it from outside. What was *replaced* lost its read-only mount
/// then, and may have been written inside: it is put aside too, and a file is put back as it was at the start.
///
/// # Errors
/// What the kernel answers when the workspace cannot be read.
pub fn check(plan: &ProtectPlan, hold: &Hold, below: &Dir, aside: &Dir, list: &List) -> Result<Vec<Slipped>> {
    let mut slipped = Vec::new();
    for bind in &plan.binds {
        let Some(held) = hold.of(&bind.path) else { continue };
        slipped.extend(replaced(held, below, aside, bind.path.clone())?);
    }
    if let Some((root, elsewhere, list)) = hold.elsewhere() {
        for held in list {
            slipped.extend(replaced(held, elsewhere, aside, root.join(&held.path))?);
        }
    }
    let undone: Vec<PathBuf> = slipped.iter().map(|one| one.path.clone()).collect();
    let now = seen(below, list)?;
    for (path, found) in now.iter().filter(|(path, _)| !undone.contains(path)) {
        match plan.before.get(path) {
            Some(before) if before == found => {}
            Some(before) if before.target != found.target => {
                slipped.push(relink(below, path, before.target.as_deref(), aside))
            }
            Some(before) if before.inode == found.inode && is_folder(found.mode) => {}
            Some(_) => slipped.push(told(path, "changed", None)),
            None if harmless(below, path) => {}
            // `.git` alone is a repository that was made inside; its control files are looked at by themselves.
            None if path == Path::new(".git") && is_folder(found.mode) => {}
            None => slipped.push(put_aside(below, path, aside, "appeared")),
        }
    }
    if let Some(git) = &plan.git {
        let elsewhere = Dir::open(&git.git_dir)?;
        let appeared = git.absent.iter().filter(|name| matches!(elsewhere.kind(name), Ok(Some(_))));
        slipped.extend(appeared.map(|name| put_aside(&elsewhere, Path::new(name), aside, "appeared in git's folder")));
    }
    let vanished = plan.before.keys().filter(|path| !now.contains_key(*path) && !undone.contains(path));
    slipped.extend(vanished.map(|path| told(path, "vanished", None)));
    Ok(slipped)
}

/// What stands in the place of a control file, if nobody can say who wrote it.
fn replaced(held: &Held, below: &Dir, aside: &Dir, shown: PathBuf) -> Result<Option<Slipped>> {
    match held.stands(below)? {
        Stands::Same | Stands::Nothing => return Ok(None),
        Stands::Rewritten | Stands::Other => {}
    }
    if harmless(below, &held.path) || only_plainly_more(held, below) {
        return Ok(Some(told(&shown, "was replaced", None)));
    }
    let mut slipped = put_aside(below, &held.path, aside, "was replaced");
    slipped.path = shown;
    if slipped.moved_to.is_some() && !is_folder(held.mode) {
        slipped.why = held.put_back(below).err().map(|errno| format!("the old one could not be put back: {errno}"));
    }
    Ok(Some(slipped))
}

/// git's configuration with other lines than at the start, but none that names a program or another file: somebody called
/// `git config user.name` outside.
fn only_plainly_more(held: &Held, below: &Dir) -> bool {
    if !held.path.ends_with("config") {
        return false;
    }
    let Some(before) = held.content.as_deref().and_then(|bytes| std::str::from_utf8(bytes).ok()) else { return false };
    let Ok(now) = below.read(&held.path, 1 << 16) else { return false };
    let Ok(now) = std::str::from_utf8(&now) else { return false };
    let (Some(before), Some(now)) = (steering(before), steering(now)) else { return false };
    before == now
}

/// A link that was replaced: the new thing is put aside, the old link made again.
fn relink(below: &Dir, path: &Path, target: Option<&[u8]>, aside: &Dir) -> Slipped {
    use std::os::unix::ffi::OsStrExt as _;
    let mut slipped = put_aside(below, path, aside, "changed");
    if let (Some(target), Some(_), Ok(Some((parent, name)))) = (target, &slipped.moved_to, parent_of(below, path)) {
        let made = rustix::fs::symlinkat(Path::new(std::ffi::OsStr::from_bytes(target)), &parent, Path::new(&name));
        slipped.why = made.err().map(|errno| format!("the link could not be made again: {errno}"));
    }
    slipped
}

fn put_aside(below: &Dir, path: &Path, aside: &Dir, what: &'static str) -> Slipped {
    let Ok(Some((parent, name))) = parent_of(below, path) else {
        return told(path, what, Some("its folder cannot be opened".into()));
    };
    let flat = path.as_os_str().to_string_lossy().replace('/', "%");
    let mut errno = Errno::EXIST;
    for attempt in 0..100 {
        let to = if attempt == 0 { flat.clone() } else { format!("{flat}.{attempt}") };
        match rustix::fs::renameat_with(&parent, Path::new(&name), aside, to.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => return Slipped { path: path.into(), what, moved_to: Some(to), why: None },
            Err(Errno::EXIST) => {}
            Err(Errno::XDEV) => return disarm(&parent, &name, path, what),
            Err(other) => {
                errno = other;
                break;
            }
        }
    }
    told(path, what, Some(errno.to_string()))
}

/// The state folder lies on another disk: a name that nobody reads, and no permissions, do as well.
fn disarm(parent: &Dir, name: &std::ffi::OsStr, path: &Path, what: &'static str) -> Slipped {
    for attempt in 0..100 {
        let mut to = name.to_owned();
        to.push(format!(".fumehood-put-aside-{attempt}"));
        match rustix::fs::renameat_with(parent, Path::new(name), parent, Path::new(&to), RenameFlags::NOREPLACE) {
            Ok(()) => {
                let closed = parent.enter(&to, Cross::No).and_then(|dir| rustix::fs::fchmod(&dir, Mode::empty()));
                let closed = closed.or_else(|_| {
                    let file = parent.open_file(&to, rustix::fs::OFlags::RDONLY, Mode::empty())?;
                    rustix::fs::fchmod(&file, Mode::empty())
                });
                let moved_to = path.with_file_name(&to).to_string_lossy().into_owned();
                let why = closed.err().map(|errno| format!("its permissions stay: {errno}"));
                return Slipped { path: path.into(), what, moved_to: Some(moved_to), why };
            }
            Err(Errno::EXIST) => {}
            Err(errno) => return told(path, what, Some(errno.to_string())),
        }
    }
    told(path, what, Some("a hundred others were put aside here before".into()))
}

fn told(path: &Path, what: &'static str, why: Option<String>) -> Slipped {
    Slipped { path: path.into(), what, moved_to: None, why }
}

fn is_folder(mode: u32) -> bool {
    rustix::fs::FileType::from_raw_mode(mode) == rustix::fs::FileType::Directory
}

/// What `git init` and `git clone` make, and nothing more: sample hooks that nothing runs, and a configuration without a
/// program in it. Moving those away would break the repository that the work was about.
fn harmless(below: &Dir, path: &Path) -> bool {
    let text = path.to_string_lossy();
    if text.ends_with("/hooks") {
        let names = below.enter(path, Cross::No).and_then(|dir| dir.names());
        return names.is_ok_and(|names| names.iter().all(|n| n.as_encoded_bytes().ends_with(b".sample")));
    }
    text.starts_with(".git/") && text.ends_with("/config") && below.read(path, 1 << 16).is_ok_and(|c| plain_config(&c))
}

/// Only keys that name no program, no folder and no other file. Anything that is not understood is not plain.
fn plain_config(config: &[u8]) -> bool {
    std::str::from_utf8(config).is_ok_and(|text| steering(text).is_some_and(|lines| lines.is_empty()))
}

/// Keys of git's configuration that name no program, no folder and no other file.
const PLAIN: [(&str, &[&str]); 4] = [
    (
        "core",
        &[
            "repositoryformatversion",
            "filemode",
            "bare",
            "logallrefupdates",
            "symlinks",
            "ignorecase",
            "precomposeunicode",
        ],
    ),
    ("user", &["name", "email"]),
    ("branch", &["merge", "rebase"]),
    ("init", &["defaultbranch"]),
];

/// The lines of git's configuration that are not plain, each with its section, in their order; `None` if a line goes on in
/// the next one.
fn steering(text: &str) -> Option<Vec<(&str, &str)>> {
    let mut lines = Vec::new();
    let (mut section, mut keys): (&str, Option<&[&str]>) = ("", None);
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with(['#', ';'])) {
        if line.ends_with('\\') {
            return None;
        }
        if let Some(head) = line.strip_prefix('[') {
            (section, keys) = (line, None);
            let Some(head) = head.strip_suffix(']') else {
                lines.push((section, line));
                continue;
            };
            let name = head.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
            keys = PLAIN.iter().find(|(known, _)| *known == name).map(|(_, keys)| *keys);
            continue;
        }
        let key = line.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        if !keys.is_some_and(|keys| keys.contains(&key.as_str())) {
            lines.push((section, line));
        }
    }
    Some(lines)
}
