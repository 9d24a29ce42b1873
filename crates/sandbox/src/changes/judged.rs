//! What an `apply` had judged of git's files when it was ended half-way. The same one does not judge them anew: by then the host is
//! what that `apply` made of it, and a branch that it moved would be somebody else's work. That holds while nobody else did anything to
//! references there; who did is compared with as ever.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::{Deserialize, Serialize};

use super::apply::{Guarded, Request};
use super::manifest::{Change, Entry};
use super::turns::Turn;
use crate::fault::show_bytes;
use crate::protect::{Branches, MAX_LIST, split};
use crate::state::{Cross, Dir, PathText};
use policy::json::{hex, sha256_hex};

/// So many references of a folder are noted, each in a file of its own.
const MAX_NOTED: usize = 1 << 16;
/// So many paths stand in a command that is told.
const MAX_TOLD: usize = 8;
/// What says where a working tree is, and what else says of references.
const SAYING: [&str; 3] = ["HEAD", "config", "packed-refs"];
/// Where parts of linked worktrees lie.
const WORKTREES: &str = "worktrees";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    paths: Option<Vec<PathText>>,
    leave: bool,
    take: Vec<PathText>,
    leaving_links: bool,
}

impl Asked {
    pub(super) fn of(request: &Request) -> Self {
        let texts = |paths: &[PathBuf]| paths.iter().cloned().map(PathText).collect();
        let (leave, take) = match &request.guarded {
            Guarded::Refuse => (false, Vec::new()),
            Guarded::Leave => (true, Vec::new()),
            Guarded::Take(paths) => (false, texts(paths)),
        };
        let paths = request.paths.as_deref().map(texts);
        Self { paths, leave, take, leaving_links: request.leaving_links }
    }

    /// Whether a path is at or below what was asked for.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.paths.as_ref().is_none_or(|paths| paths.iter().any(|named| path.starts_with(&named.0)))
    }

    /// The command that asks for it; `None` where its paths are too many, or no words to a shell.
    pub(super) fn command(&self, run: &str) -> Option<String> {
        let is_plain = |path: &&PathText| {
            let bytes = path.0.as_os_str().as_encoded_bytes();
            !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"/._-+=@%,".contains(byte))
        };
        let named = self.paths.as_deref().unwrap_or_default();
        if named.len() + self.take.len() > MAX_TOLD || !named.iter().chain(&self.take).all(|path| is_plain(&path)) {
            return None;
        }
        let mut command = format!("fumehood apply {run}");
        if self.leave {
            command.push_str(" --leave-protected");
        }
        let word = |path: &PathText| show_bytes(path.0.as_os_str().as_encoded_bytes());
        command.extend(self.take.iter().map(|path| format!(" --take-protected {}", word(path))));
        if self.leaving_links {
            command.push_str(" --leaving-links");
        }
        if self.paths.is_some() {
            command.push_str(" --");
            command.extend(named.iter().map(|path| format!(" {}", word(path))));
        }
        Some(command)
    }
}

/// What one `apply` had judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) asked: Asked,
    /// Of all that it was to take.
    digest: String,
    /// Git's files, but objects, as they were to be exchanged.
    pub(super) entries: Vec<Entry>,
    /// What others said of references then, beside those.
    others: Vec<(PathText, String)>,
}

impl Judged {
    pub(super) fn of(root: &Dir, (asked, digest): (Asked, &str), put: &[&Entry]) -> Self {
        let entries: Vec<Entry> = put.iter().filter(|entry| is_judged(entry)).map(|entry| (*entry).clone()).collect();
        let others = others(root, &entries);
        Self { asked, digest: digest.to_owned(), entries, others }
    }

    /// Whether the same is asked for, of a host on which nobody else moved a reference since, and what was to be put is there still.
    pub(super) fn holds(&self, root: &Dir, blobs: Option<&Dir>, (asked, digest): (&Asked, &str)) -> bool {
        let has = |sum: &str| blobs.is_some_and(|blobs| matches!(blobs.kind(sum), Ok(Some(FileType::RegularFile))));
        self.asked == *asked
            && self.digest == digest
            && self.entries.iter().filter_map(|entry| entry.sha256.as_deref()).all(has)
            && others(root, &self.entries) == self.others
    }

    /// The changes of the list that were to be taken; one that git on the host packed meanwhile is put otherwise.
    pub(super) fn taken(&self) -> BTreeSet<(&Path, Change)> {
        let also = |change| if change == Change::Added { Change::Modified } else { change };
        let of = |entry: &'_ Entry| [entry.change, also(entry.change)];
        self.entries.iter().flat_map(|entry| of(entry).map(|change| (entry.path.as_path(), change))).collect()
    }
}

/// A file of git's that is no object.
fn is_judged(entry: &Entry) -> bool {
    let is_object = |rest: &Path| {
        let data = rest.iter().find(|part| ["objects", "lfs", "refs"].iter().any(|data| part == data));
        data.is_some_and(|data| data != "refs")
    };
    Turn::of(entry) != Turn::Files && split(&entry.path).is_some_and(|(_, rest)| !is_object(&rest))
}

/// What the files of git's folders in which these lie say of references, but these.
fn others(root: &Dir, entries: &[Entry]) -> Vec<(PathText, String)> {
    let own: BTreeSet<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
    let folders: BTreeSet<PathBuf> = entries.iter().filter_map(|entry| Some(split(&entry.path)?.0)).collect();
    let mut found = Vec::new();
    for folder in folders {
        let linked = root.enter(folder.join(WORKTREES), Cross::No).and_then(|linked| linked.names());
        let linked = linked.unwrap_or_default().into_iter().map(|name| folder.join(WORKTREES).join(name).join("HEAD"));
        for path in SAYING.iter().map(|name| folder.join(name)).chain(linked) {
            let said = root.read(&path, MAX_LIST).map(|text| sha256_hex(&text)).unwrap_or_default();
            found.push((path, said));
        }
        let files = Branches::of(root, &folder.join("config")).in_files(MAX_NOTED);
        found.extend(files.into_iter().map(|(name, id)| (folder.join(name), hex(&id))));
    }
    found.retain(|(path, _)| !own.contains(path.as_path()));
    found.sort();
    found.into_iter().map(|(path, said)| (PathText(path), said)).collect()
}
