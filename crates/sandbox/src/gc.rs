//! Taking away what dead runs left: their processes, cgroups and temporary trees, and changes nobody wanted.
//!
//! Promises: never anything of a run that lives, in whatever pid namespace; the same sweep twice removes nothing more; a
//! name or a mode made to trip it is reported and does not stop the rest. Nothing is removed by a path alone: a cgroup must
//! lie in a cgroup file system and carry the run's id, a tree must carry the id.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use jiff::{SignedDuration, Timestamp};
use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use serde::Serialize;

use crate::changes::{ASIDE, interrupted, unlock};
use crate::protect::{Slipped, late};
use crate::state::{
    BEGINNING_SECONDS, Cross, Dir, Resource, RunId, State, StateError, Watched, carries, cgroup, dead, path_text,
    rights_of,
};

/// Changes are kept for so long.
pub const KEEP_CHANGES: SignedDuration = SignedDuration::from_hours(14 * 24);
/// What was made so long after a run was last known to live is not its work.
const AFTERWARDS_SECONDS: i64 = 60;
/// How many journals the look at each start judges, of all in turn; a busy host has as many live runs.
const QUICK: usize = 16;

/// What [`Removed::what`] says of a control file that was put aside.
pub const CONTROL_FILE: &str = "control file";

/// How thoroughly to sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// At each start: a few journals of all, nothing else.
    Start,
    /// `fumehood gc`: everything.
    All,
}

/// One thing that was removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Removed {
    /// Run; empty for what is of none.
    pub run: String,
    /// `processes`, `cgroup`, `temp`, `changes`, `snapshot`, `machine`, `journal`, or `control file`: that one was put aside, among the changes.
    pub what: &'static str,
    /// Where it was.
    #[serde(with = "path_text")]
    pub path: PathBuf,
}

/// One thing that could not be removed, or is not ours to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotRemoved {
    /// Run.
    pub run: String,
    /// Where it is.
    #[serde(with = "path_text")]
    pub path: PathBuf,
    /// Why it stays.
    pub why: String,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sweep {
    /// Removed.
    pub removed: Vec<Removed>,
    /// Left.
    pub kept: Vec<NotRemoved>,
    /// Runs that live.
    pub live: u64,
}

/// Removes what dead runs left.
///
/// # Errors
/// [`StateError`] if the state folder cannot be read; what cannot be removed is in the answer.
pub fn sweep(state: &State, now: Timestamp, scope: Scope) -> Result<Sweep, StateError> {
    let mut sweep = Sweep::default();
    let runs = state.runs()?;
    let mut names = Vec::new();
    runs.each_name(|name| {
        names.push(name.to_vec());
        true
    })
    .map_err(|errno| StateError::NotReadable { path: state.path().join("runs"), errno })?;
    names.sort_unstable();
    if scope == Scope::Start && names.len() > QUICK {
        // Not the same ones each time: journals of runs that live for long must not stand before those of dead ones.
        let first = usize::try_from(now.subsec_nanosecond()).unwrap_or_default() % names.len();
        names.rotate_left(first);
        names.truncate(QUICK);
    }
    for name in names {
        let id = std::str::from_utf8(&name).ok().and_then(|n| n.strip_suffix(".json")?.parse::<RunId>().ok());
        match id {
            Some(id) => sweep.run(state, &runs, &id, now),
            None => sweep.kept.push(NotRemoved {
                run: String::new(),
                path: state.path().join("runs").join(crate::fault::show_bytes(&name)),
                why: "it is no journal of ours".into(),
            }),
        }
    }
    if scope == Scope::All {
        sweep.old_changes(state, &runs, now)?;
        for path in backends::sweep_machines(&state.path().join("machines"), usize::MAX) {
            sweep.removed.push(Removed { run: String::new(), what: "machine", path });
        }
        for (name, removed) in crate::snapshot::sweep(state)? {
            let path = state.path().join("snapshots").join(name);
            match removed {
                Ok(()) => sweep.removed.push(Removed { run: String::new(), what: "snapshot", path }),
                Err(errno) => sweep.kept.push(NotRemoved { run: String::new(), path, why: errno.to_string() }),
            }
        }
    }
    Ok(sweep)
}

impl Sweep {
    fn run(&mut self, state: &State, runs: &Dir, id: &RunId, now: Timestamp) {
        let name = format!("{id}.json");
        let path = state.path().join("runs").join(&name);
        let (things, lived) = match dead(runs, &name, now) {
            Ok(Some(things)) => things,
            Ok(None) => return self.live += 1,
            Err(Errno::NOENT) => return,
            Err(errno) => return self.keep(id, path, errno.to_string()),
        };
        let before = self.kept.len();
        for backend in backends::ALL {
            match backend.end_left(&id.to_string()) {
                Ok(0) => {}
                Ok(_) => self.gone(id, "processes", PathBuf::from("/proc")),
                Err(why) => self.keep(id, PathBuf::from("/proc"), why),
            }
        }
        // Processes first, so that nothing writes while the rest is removed.
        let (groups, rest): (Vec<_>, Vec<_>) = things.into_iter().partition(|t| matches!(t, Resource::Cgroup(_)));
        let paths = groups.iter().filter_map(|thing| match thing {
            Resource::Cgroup(path) => Some(path.as_path()),
            Resource::Temp(_) | Resource::Watched(_) => None,
        });
        cgroup::kill_all(&paths.collect::<Vec<_>>(), id);
        for thing in groups.into_iter().chain(rest) {
            self.thing(state, id, thing, lived);
        }
        if self.kept.len() == before {
            match rustix::fs::unlinkat(runs, name.as_str(), AtFlags::empty()) {
                Ok(()) => self.gone(id, "journal", path),
                Err(Errno::NOENT) => {}
                Err(errno) => self.keep(id, path, errno.to_string()),
            }
        }
    }

    fn thing(&mut self, state: &State, id: &RunId, thing: Resource, lived: i64) {
        match thing {
            Resource::Cgroup(path) => match cgroup::remove(&path, id) {
                Ok(true) => self.gone(id, "cgroup", path),
                Ok(false) => {}
                Err(why) => self.keep(id, path, why),
            },
            Resource::Temp(path) => match remove_temp(&path, id) {
                Ok(true) => self.gone(id, "temp", path),
                Ok(false) => {}
                Err(why) => self.keep(id, path, why),
            },
            Resource::Watched(watched) => match control_files(state, id, &watched, lived) {
                Ok(slipped) => {
                    for one in slipped {
                        let path = watched.root.join(&one.path);
                        match (one.moved_to, one.why) {
                            (Some(_), _) => self.gone(id, CONTROL_FILE, path),
                            (None, why) => self.keep(id, path, why.unwrap_or_else(|| "it cannot be put aside".into())),
                        }
                    }
                }
                Err(why) => self.keep(id, watched.root, why),
            },
        }
    }

    fn old_changes(&mut self, state: &State, runs: &Dir, now: Timestamp) -> Result<(), StateError> {
        let changes = state.changes()?;
        let folder = state.path().join("changes");
        let names = changes.names().map_err(|errno| StateError::NotReadable { path: folder.clone(), errno })?;
        for name in names {
            // What was put aside at the end of a run lies beside its changes.
            let of = name.to_str().map(|name| name.strip_suffix(ASIDE).unwrap_or(name));
            let Some(id) = of.and_then(|n| n.parse::<RunId>().ok()) else { continue };
            // What an `apply` that was killed holds of git's on the host, it holds no more.
            if let Err(error) = unlock(state, &id) {
                self.keep(&id, folder.join(&name), error.to_string());
            }
            let lives = runs.stat(format!("{id}.json")).is_ok_and(|journal| journal.is_some());
            let made = changes.stat(&name).unwrap_or(None).and_then(|s| Timestamp::from_second(s.st_mtime).ok());
            let keep =
                if is_half_kept(&changes, &name) { SignedDuration::from_secs(BEGINNING_SECONDS) } else { KEEP_CHANGES };
            // The other half of an `apply` that was killed: nobody else has it.
            let is_half_applied = || !matches!(interrupted(state, &id), Ok(None));
            if lives || made.is_none_or(|made| now.duration_since(made) < keep) || is_half_applied() {
                continue;
            }
            match changes.remove_tree(&name) {
                Ok(()) => self.gone(&id, "changes", folder.join(&name)),
                Err(errno) => self.keep(&id, folder.join(&name), errno.to_string()),
            }
        }
        Ok(())
    }

    fn gone(&mut self, id: &RunId, what: &'static str, path: PathBuf) {
        self.removed.push(Removed { run: id.to_string(), what, path });
    }

    fn keep(&mut self, id: &RunId, path: PathBuf, why: String) {
        self.kept.push(NotRemoved { run: id.to_string(), path, why });
    }
}

/// Whether a run ended while its changes were being kept, or the disk was full then: without a list they are no use.
fn is_half_kept(changes: &Dir, name: &OsStr) -> bool {
    let has = |file| changes.enter(name, Cross::No).and_then(|of| of.stat(file)).map(|there| there.is_some());
    has("blobs") == Ok(true) && has("manifest.json") == Ok(false)
}

/// Puts aside the control files that a run made just before its supervisor was killed. Where the tree is gone or another one
/// has its name, there is nothing to be found.
fn control_files(state: &State, id: &RunId, watched: &Watched, lived: i64) -> Result<Vec<Slipped>, String> {
    // From the top: the run may have closed it.
    let from_top = watched.root.strip_prefix("/").unwrap_or(&watched.root);
    let below = match Dir::open(Path::new("/")).and_then(|top| top.look_into(from_top, Cross::Yes)) {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
        other => other.map_err(|errno| errno.to_string())?,
    };
    let stat = rustix::fs::fstat(&below).map_err(|errno| errno.to_string())?;
    if (stat.st_dev, stat.st_ino) != watched.is {
        return Ok(Vec::new());
    }
    let changes = state.changes().map_err(|error| error.fault().why)?;
    let name = format!("{id}{ASIDE}");
    let aside = changes.make(&name, Mode::RWXU).and_then(|_new| changes.enter(&name, Cross::No));
    let aside = aside.map_err(|errno| errno.to_string())?;
    let slipped = late(watched, below, aside, lived.saturating_add(AFTERWARDS_SECONDS));
    if changes.enter(&name, Cross::No).and_then(|aside| aside.names()).is_ok_and(|names| names.is_empty()) {
        changes.remove_tree(&name).unwrap_or_default();
    }
    slipped.map_err(|errno| errno.to_string())
}

fn remove_temp(path: &Path, id: &RunId) -> Result<bool, String> {
    if !carries(path, id) {
        return Err("its path does not carry the run's id".into());
    }
    let Some((parent, name)) = parent_of(path) else { return Ok(false) };
    match parent.kind(name) {
        Ok(None) => return Ok(false),
        Ok(Some(_)) => {}
        Err(errno) => return Err(errno.to_string()),
    }
    let _rights = rights_of(&parent).map_err(|errno| errno.to_string())?;
    // An empty one goes whosesoever it is: `apply` may have died before it gave it away.
    if rustix::fs::unlinkat(&parent, Path::new(name), AtFlags::REMOVEDIR).is_ok() {
        return Ok(true);
    }
    parent.remove_tree(name).map(|()| true).map_err(|errno| errno.to_string())
}

fn parent_of(path: &Path) -> Option<(Dir, &OsStr)> {
    let name = path.file_name()?;
    Dir::open(path.parent()?).ok().map(|dir| (dir, name))
}
