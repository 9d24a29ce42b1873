//! Whether a run lives, and what is its own.

use std::path::{Component, Path};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::journal::{MAX_JOURNAL, Resource, parse};
use super::{Cross, Dir, RunId, State, StateError};

/// A journal without a first line is one that is being begun, unless it is older than this.
pub(crate) const BEGINNING_SECONDS: i64 = 60;

/// Whether a run goes on, whoever supervises it.
///
/// # Errors
/// [`StateError::NotReadable`].
pub(crate) fn lives(state: &State, id: &RunId) -> Result<bool, StateError> {
    let name = format!("{id}.json");
    let path = state.path().join("runs").join(&name);
    match dead(&state.runs()?, &name, Timestamp::now()) {
        Ok(things) => Ok(things.is_none()),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(StateError::NotReadable { path, errno }),
    }
}

/// What a dead run wrote down, and when it last lived, in seconds; `None` while it does.
pub(crate) fn dead(runs: &Dir, name: &str, now: Timestamp) -> rustix::io::Result<Option<(Vec<Resource>, i64)>> {
    let file = runs.open_file(name, OFlags::RDONLY, Mode::empty())?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(None),
        other => other?,
    }
    let lived = rustix::fs::fstat(&file)?.st_mtime;
    let (head, things) = parse(&runs.read(name, MAX_JOURNAL)?);
    match head {
        // Begun and not locked yet, if it is young.
        None => {
            let young = now.as_second().saturating_sub(lived) < BEGINNING_SECONDS;
            Ok(if young { None } else { Some((Vec::new(), lived)) })
        }
        Some(head) if head.owner.is_running() => Ok(None),
        Some(_) => Ok(Some((things, lived))),
    }
}

/// Whether a part of the path holds the run's id.
pub(crate) fn carries(path: &Path, id: &RunId) -> bool {
    let holds = |part: Component<'_>| {
        part.as_os_str().as_encoded_bytes().windows(id.as_str().len()).any(|w| w == id.as_str().as_bytes())
    };
    path.is_absolute() && !path.components().any(|c| c == Component::ParentDir) && path.components().any(holds)
}

/// Opens the folder of one run's changes, made if it is missing.
///
/// # Errors
/// [`StateError::NotWritable`].
pub(crate) fn changes_of(state: &State, id: &RunId) -> Result<Dir, StateError> {
    let changes = state.changes()?;
    let made = changes.make(id.as_str(), Mode::RWXU).and_then(|_| changes.enter(id.as_str(), Cross::No));
    made.map_err(|errno| StateError::NotWritable {
        path: state.path().join("changes").join(id.as_str()),
        variable: "FUMEHOOD_STATE",
        errno,
    })
}
