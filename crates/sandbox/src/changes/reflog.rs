//! What git remembers of where branches and `HEAD` were: a line for each that was moved here. Without it `HEAD@{1}` would be where
//! the person was before, and an undo by it would take what they did since.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use policy::json::{hex, unhex};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::guarded::in_git;
use super::manifest::Entry;
use crate::protect::{Branches, MAX_REFERENCE, branch_of, id_of};
use crate::state::{Cross, Dir, PathText, RunId, rights_of};

/// No branch is called so.
const HEAD: &str = "HEAD";
/// Where git keeps what is a linked worktree's own.
const WORKTREES: &str = "worktrees";
/// Where it remembers.
const LOGS: &str = "logs";
/// No longer log is looked into.
const MAX_LOG: u64 = 64 << 20;

/// Where `HEAD`, those of linked worktrees and the branches of each repository were before, by their logs.
pub(super) struct Tips(Vec<(PathBuf, Moved)>);

/// The same of one log, written down: for whoever goes on after an `apply` that was ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NotedTip {
    /// Relative to the workspace.
    pub(super) log: PathText,
    /// Hex.
    is: String,
    on: Option<String>,
}

/// What is named, by the path of its log in git's folder; and of `HEAD` the branch that it is on, or the commit.
type Moved = BTreeMap<PathBuf, (Vec<u8>, Option<String>)>;

impl Tips {
    /// Of the repositories of which this is taken; `repositories`: those that have another name than `.git`.
    pub(super) fn of(root: &Dir, chosen: &[&Entry], repositories: &BTreeSet<&Path>) -> Self {
        let folders: BTreeSet<&Path> =
            chosen.iter().filter_map(|entry| in_git(repositories, &entry.path)).map(|(folder, _)| folder).collect();
        Self(folders.into_iter().map(|folder| (folder.to_owned(), tips(root, folder))).collect())
    }

    pub(super) fn noted(&self) -> Vec<NotedTip> {
        let of = |folder: &Path, (log, (is, on)): (&PathBuf, &(Vec<u8>, Option<String>))| NotedTip {
            log: PathText(folder.join(log)),
            is: hex(is),
            on: on.clone(),
        };
        self.0.iter().flat_map(|(folder, moved)| moved.iter().map(|one| of(folder, one))).collect()
    }

    /// Where one that was ended found them, if git's own log ends there: what it moved has no line yet.
    pub(super) fn since(mut self, root: &Dir, noted: &[NotedTip]) -> Self {
        let noted: BTreeMap<&Path, &NotedTip> = noted.iter().map(|one| (one.log.0.as_path(), one)).collect();
        for (folder, moved) in &mut self.0 {
            for (log, tip) in moved {
                let path = folder.join(log);
                let Some(then) = noted.get(path.as_path()).filter(|then| ends_at(root, &path, &then.is)) else {
                    continue;
                };
                *tip = (unhex(&then.is).unwrap_or_default(), then.on.clone());
            }
        }
        self
    }

    /// Adds a line to each log that the host keeps. Nothing of the changes depends on it, so what cannot be written is left out, as is
    /// a file that has other names: what it is there nobody knows.
    pub(super) fn log(&self, root: &Dir, run: &RunId, now: Timestamp) {
        let Ok(_rights) = rights_of(root) else { return };
        for (folder, before) in &self.0 {
            for (log, now_is) in tips(root, folder) {
                let was = before.get(&log);
                if was == Some(&now_is) {
                    continue;
                }
                let (is, to) = now_is;
                // By these words git finds where `git checkout -` goes.
                let on = was.and_then(|(_, on)| on.as_ref()).zip(to).filter(|(from, to)| *from != to);
                let said = match on {
                    Some((from, to)) => format!("checkout: moving from {from} to {to} (fumehood apply: {run})"),
                    None => format!("fumehood apply: {run}"),
                };
                let none = vec![0; is.len()];
                let (was, is) = (hex(was.map_or(&none, |(was, _)| was)), hex(&is));
                let line = format!("{was} {is} fumehood <fumehood> {} +0000\t{said}\n", now.as_second());
                let log = root.open_file(folder.join(log), OFlags::WRONLY | OFlags::APPEND, Mode::empty());
                let is_one = |log: &std::fs::File| rustix::fs::fstat(log).is_ok_and(|stat| stat.st_nlink == 1);
                let _written = log.ok().filter(is_one).map(|mut log| log.write_all(line.as_bytes()));
            }
        }
    }
}

/// Whether the last line of a log says that it came to a commit.
fn ends_at(root: &Dir, log: &Path, id: &str) -> bool {
    let Ok(content) = root.read(log, MAX_LOG) else { return false };
    let last = content.trim_ascii_end().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    last.split(|byte| *byte == b' ').nth(1) == Some(id.as_bytes())
}

fn tips(root: &Dir, folder: &Path) -> Moved {
    let tips = Branches::of(root, &folder.join("config")).tips();
    let at = |own: &Path| {
        let head = root.read(folder.join(own).join(HEAD), MAX_REFERENCE).unwrap_or_default();
        let (is, on) = match branch_of(&head) {
            Some(branch) => (tips.get(&branch)?.clone(), branch),
            None => id_of(&head).map(|id| (id.clone(), hex(&id)))?,
        };
        Some((own.join(LOGS).join(HEAD), (is, Some(on))))
    };
    let linked = root.enter(folder.join(WORKTREES), Cross::No).and_then(|linked| linked.names()).unwrap_or_default();
    let heads = linked.into_iter().map(|name| Path::new(WORKTREES).join(name)).chain([PathBuf::new()]);
    let mut moved: Moved = heads.filter_map(|own| at(&own)).collect();
    let heads = Path::new(LOGS).join("refs").join("heads");
    moved.extend(tips.iter().map(|(branch, is)| (heads.join(branch), (is.clone(), None))));
    moved
}
