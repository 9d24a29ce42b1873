//! Trees of steps, kept for the next build: `steps/HEX/` of the store, with the digest of what was put there.

use std::path::Path;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};

use super::tree::{Problem, copy_all};
use super::{NEW, OWN};
use crate::check::sum;
use crate::store::{Stage, Store};

const STEPS: &str = "steps";
const SUM: &str = "sum";
const ROOT: &str = "root";
/// Older ones go.
const MAX_KEPT: usize = 32;

/// The tree that is kept under a key, if it is what was put there: all of it is read.
pub(super) fn tree(store: &Store, key: &str) -> Option<Dir> {
    let dir = store.dir().enter(Path::new(STEPS).join(key), Cross::No).ok()?;
    let digest = dir.read(SUM, 1000).ok()?;
    let root = dir.enter(ROOT, Cross::No).ok()?;
    let found = sum(&root).ok()?;
    (found.digest.as_bytes() == digest).then_some(())?;
    // What was used last goes last.
    let now = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
        last_modification: rustix::fs::Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW },
    };
    rustix::fs::futimens(&dir, &now).ok()?;
    Some(root)
}

/// Keeps a copy of a tree under a key.
pub(super) fn keep(store: &Store, key: &str, tree: &Stage, copy: &Stage) -> Result<(), Problem> {
    let kernel = |errno| Problem::Kernel(Path::new(STEPS).join(key), errno);
    copy_all(&tree.root, &copy.root)?;
    let digest = sum(&copy.root).map_err(kernel)?.digest;
    let write = || -> Result<(), Errno> {
        use std::io::Write as _;
        let mut file = copy.dir.open_file(SUM, NEW, OWN)?;
        file.write_all(digest.as_bytes()).map_err(|error| sandbox::state::errno_of(&error))?;
        store.dir().make(STEPS, Mode::RWXU)?;
        let steps = store.dir().enter(STEPS, Cross::No)?;
        steps.remove_tree(key)?;
        rustix::fs::renameat(store.dir(), copy.name.as_str(), &steps, key)?;
        room(&steps)
    };
    write().map_err(kernel)
}

/// Removes those that were not used for the longest time.
fn room(steps: &Dir) -> Result<(), Errno> {
    let mut all = Vec::new();
    for name in steps.names()? {
        let Ok(dir) = steps.open_file(&name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()) else { continue };
        let used = dir.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
        all.push((used, name));
    }
    all.sort();
    let over = all.len().saturating_sub(MAX_KEPT);
    all.into_iter().take(over).try_for_each(|(_, name)| steps.remove_tree(name))
}
