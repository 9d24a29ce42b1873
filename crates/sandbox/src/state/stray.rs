//! Control groups that runs of *other* state folders left: named, and never removed.
//!
//! The folder of the groups is shared by all runs of one caller, each state folder knows its own runs alone, and of the
//! others nobody can say here whether they live. So only what cannot be of a live run is named: a group in which nothing
//! runs though its run began a while ago. Removing it is left to who knows, by a command that does nothing to a live one.

use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{Access, AtFlags, CWD};
use serde::Serialize;
use sys::cgroup::Hierarchies;

use super::{Cross, Dir, RunId, State, StateError, path_text};

/// Between the making of a group and the first process in it lie milliseconds, on a stalled host seconds.
const BORN: SignedDuration = SignedDuration::from_secs(60);

/// A group of a run that this state folder knows nothing of, and in which nothing runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stray {
    /// Run.
    pub run: String,
    /// Where it is.
    #[serde(with = "path_text")]
    pub path: PathBuf,
}

/// The strays among the groups in `folder` that this caller could remove.
///
/// # Errors
/// [`StateError::NotWritable`] if the state folder cannot be looked at.
pub fn strays(state: &State, groups: &Hierarchies, folder: &str, now: Timestamp) -> Result<Vec<Stray>, StateError> {
    let runs = state.runs()?;
    let unknown = |id: &RunId| runs.stat(format!("{id}.json")).is_ok_and(|journal| journal.is_none());
    // What cannot be listed has nothing of ours to name.
    let names = groups.names(folder).unwrap_or_default();
    let ids = names.iter().filter_map(|name| name.parse::<RunId>().ok());
    let old = ids.filter(|id| id.time().is_some_and(|began| now.duration_since(began) > BORN) && unknown(id));
    let mut found = Vec::new();
    for id in old {
        let Ok(Some(group)) = groups.open(folder, id.as_str()) else { continue };
        let paths: Vec<_> = group.paths().map(|(path, ..)| path.to_owned()).collect();
        if paths.iter().all(|path| is_empty(path)) {
            let removable = paths.into_iter().filter(|path| may_remove(path));
            found.extend(removable.map(|path| Stray { run: id.to_string(), path }));
        }
    }
    Ok(found)
}

/// Nothing runs in it, nor in a group below it.
fn is_empty(path: &Path) -> bool {
    let Ok(group) = Dir::open(path) else { return false };
    let names = group.names().unwrap_or_default();
    let below = names.iter().any(|name| group.enter(name, Cross::No).is_ok());
    !below && group.read("cgroup.procs", 1).is_ok_and(|procs| procs.is_empty())
}

fn may_remove(path: &Path) -> bool {
    let writable = |parent| rustix::fs::accessat(CWD, parent, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
    path.parent().is_some_and(writable)
}
