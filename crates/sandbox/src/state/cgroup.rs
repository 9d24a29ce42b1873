//! Ending and removing a control group that a dead run left.
//!
//! Kernel facts: `cgroup.kill` (5.14, v2) kills all at once; v1 has none, so processes are ended one by one, by pidfd, after
//! each was seen to belong to the group (its pid could have been used again). A group can be removed once it is empty.

use std::io::Write as _;
use std::path::Path;

use rustix::event::{Timespec, poll};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::carries;
use super::{Cross, Dir, RunId};

const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
const CGROUP_SUPER_MAGIC: i64 = 0x0027_e0eb;
/// Rounds of killing and waiting, 5 ms each.
const ROUNDS: u32 = 400;
const ROUND: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
const MAX_DEPTH: u32 = 32;

/// Kills what is in the groups of a run and lets it die: what is frozen by v1, of a sandbox that was paused, dies only when it
/// thaws, and thaws in another group than those where it counts.
pub(crate) fn kill_all(paths: &[&Path], id: &RunId) {
    let groups = || paths.iter().filter_map(|path| open(path, id).ok().flatten());
    // Killed before it thaws, nothing of it runs.
    groups().for_each(|(_, group)| kill(&group, id, 0));
    groups().for_each(|(_, group)| thaw(&group));
}

fn thaw(group: &Dir) {
    let state = group.open_file("freezer.state", OFlags::WRONLY, Mode::empty());
    // What cannot be thawed shows when its group is removed, which is bounded.
    drop(state.map(|mut state| state.write_all(b"THAWED")));
}

/// A group of the run and the folder that it is in; none if it is gone.
fn open(path: &Path, id: &RunId) -> Result<Option<(Dir, Dir)>, String> {
    if !carries(path, id) {
        return Err("its path does not carry the run's id".into());
    }
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err("it has no name".into()) };
    let (parent, group) = match Dir::open(parent).and_then(|p| p.enter(name, Cross::Yes).map(|g| (p, g))) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.to_string()),
    };
    let magic = rustix::fs::fstatfs(&group).map_err(|e| e.to_string())?.f_type;
    if magic != CGROUP2_SUPER_MAGIC && magic != CGROUP_SUPER_MAGIC {
        return Err("it does not lie in a cgroup file system".into());
    }
    Ok(Some((parent, group)))
}

/// Kills what is in the group and removes it. `false` if it is gone already.
pub(crate) fn remove(path: &Path, id: &RunId) -> Result<bool, String> {
    let Some(name) = path.file_name() else { return Err("it has no name".into()) };
    let Some((parent, group)) = open(path, id)? else { return Ok(false) };
    for _ in 0..ROUNDS {
        kill(&group, id, 0);
        match remove_empty(&parent, Path::new(name), 0) {
            Ok(()) | Err(Errno::NOENT) => return Ok(true),
            Err(Errno::BUSY) => {}
            Err(errno) => return Err(errno.to_string()),
        }
        // Killed processes leave the group when they are reaped or their memory is gone; a signal may wake us early.
        match poll(&mut [], Some(&ROUND)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.to_string()),
        }
    }
    Err("processes in it did not end within two seconds".into())
}

fn kill(group: &Dir, id: &RunId, depth: u32) {
    if let Ok(mut all) = group.open_file("cgroup.kill", OFlags::WRONLY, Mode::empty())
        && all.write_all(b"1").is_ok()
    {
        return;
    }
    for pid in group.read("cgroup.procs", 1 << 20).unwrap_or_default().split(|&b| b == b'\n') {
        let pid = std::str::from_utf8(pid).ok().and_then(|p| p.parse().ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_one(pid, id);
        }
    }
    if depth < MAX_DEPTH {
        for inner in groups_in(group) {
            if let Ok(inner) = group.enter(&inner, Cross::No) {
                kill(&inner, id, depth + 1);
            }
        }
    }
}

fn kill_one(pid: Pid, id: &RunId) {
    let Ok(fd) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The descriptor now names one process for good: only if that one is in the group is it the one to end.
    let path = format!("/proc/{}", pid.as_raw_nonzero());
    let Ok(groups) = Dir::open(Path::new(&path)).and_then(|proc| proc.read("cgroup", 1 << 16)) else { return };
    let ours = groups.windows(id.as_str().len()).any(|w| w == id.as_str().as_bytes());
    if ours && pid.as_raw_nonzero().get().unsigned_abs() != std::process::id() {
        // ESRCH: it ended by itself. Anything else shows in the next round, which is bounded.
        let (Ok(()) | Err(_)) = pidfd_send_signal(&fd, Signal::KILL);
    }
}

fn remove_empty(parent: &Dir, name: &Path, depth: u32) -> rustix::io::Result<()> {
    if depth < MAX_DEPTH
        && let Ok(group) = parent.enter(name, Cross::Yes)
    {
        for inner in groups_in(&group) {
            remove_empty(&group, Path::new(&inner), depth + 1)?;
        }
    }
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn groups_in(group: &Dir) -> Vec<std::ffi::OsString> {
    let mut names = group.names().unwrap_or_default();
    names.retain(|name| group.kind(name) == Ok(Some(FileType::Directory)));
    names
}
