//! What git remembers of where branches and `HEAD` were: a line for each that was moved here. Without it `HEAD@{1}` would be where
//! the person was before, and an undo by it would take what they did since.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use policy::json::hex;
use rustix::fs::{Mode, OFlags};

use super::manifest::Entry;
use crate::protect::{Branches, branch_of, id_of, split};
use crate::state::{Dir, RunId};

/// `HEAD` is no larger.
const MAX_HEAD: u64 = 4096;

/// Where `HEAD` and the branches of each repository were before.
pub(super) struct Tips(Vec<(PathBuf, BTreeMap<String, Vec<u8>>)>);

impl Tips {
    /// Of the repositories of which this is taken.
    pub(super) fn of(root: &Dir, chosen: &[&Entry]) -> Self {
        let folders: BTreeSet<PathBuf> =
            chosen.iter().filter_map(|entry| split(&entry.path)).map(|(folder, _)| folder).collect();
        Self(folders.into_iter().map(|folder| (folder.clone(), tips(root, &folder))).collect())
    }

    /// Adds a line to each log that the host keeps. Nothing of the changes depends on it, so what cannot be written is left out.
    pub(super) fn log(self, root: &Dir, run: &RunId, now: Timestamp) {
        for (folder, before) in self.0 {
            for (name, is) in tips(root, &folder) {
                let was = before.get(&name);
                if was == Some(&is) {
                    continue;
                }
                let none = vec![0; is.len()];
                let (was, is) = (hex(was.unwrap_or(&none)), hex(&is));
                let line = format!("{was} {is} fumehood <fumehood> {} +0000\tfumehood apply: {run}\n", now.as_second());
                let log = if name == HEAD { PathBuf::from(HEAD) } else { Path::new("refs").join("heads").join(&name) };
                let flags = OFlags::WRONLY | OFlags::APPEND;
                let log = root.open_file(folder.join("logs").join(log), flags, Mode::empty());
                let _written = log.map(|mut log| log.write_all(line.as_bytes()));
            }
        }
    }
}

/// No branch is called so.
const HEAD: &str = "HEAD";

fn tips(root: &Dir, folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut tips = Branches::of(root, &folder.join("config")).tips();
    let head = root.read(folder.join(HEAD), MAX_HEAD).unwrap_or_default();
    let is = match branch_of(&head) {
        Some(branch) => tips.get(&branch).cloned(),
        None => id_of(&head),
    };
    tips.extend(is.map(|is| (HEAD.to_owned(), is)));
    tips
}
