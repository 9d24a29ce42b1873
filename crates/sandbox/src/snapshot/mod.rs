//! What a sandbox was at one moment, kept so that others can be made of it: `snapshots/ID/`.
//!
//! A snapshot holds the changes of the workspace (`changes/`, in the form of a run's), what lay in `/tmp` and the home
//! folder (`tmp.tar`), and `snapshot.json`, which says what it was made of. Memory and processes are no part of it, nor is
//! what the sandbox did not change: that is the host's, as it is when a new sandbox is made. Of a machine (vm tier) it holds all
//! that the machine was instead, its memory included (`memory`), and the image of its root (`root`).
//!
//! Promises: all of it is of one moment (its maker stands still meanwhile); a snapshot is there whole or not at all; names
//! are unique; what a maker that was killed left is taken by `gc`. Must not: know how a sandbox is made of it.

mod error;
mod memory;
mod pack;
mod restore;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use error::SnapshotError;
pub use memory::Memory;
pub use pack::{OfOthers, Packed, Packing, pack};
pub use writer::{SnapshotRequest, Writer, begin};

use crate::changes::Refused;
use crate::state::{Cross, Dir, State, StateError};

/// At most so many snapshots are kept in one state folder.
pub const MAX_SNAPSHOTS: usize = 256;
/// At most so many of them are of machines, each of which may be as large as the machine's memory and its root.
pub const MAX_MEMORIES: usize = 16;
/// What lay in `/tmp` and, below `.home` or beside it, in the home folder.
pub const TMP: &str = "tmp.tar";

const ABOUT: &str = "snapshot.json";
const CHANGES: &str = "changes";
/// Held while one is begun, named or removed.
const LOCK: &str = "lock";
/// Before the name of one that is being made, or removed.
const UNFINISHED: &str = ".new-";
/// No `snapshot.json` that we wrote is larger.
const MAX_ABOUT: u64 = 16 << 20;
/// Characters of an id.
const ID: usize = 20;

/// What is written down of a snapshot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// Always 1.
    pub schema: u32,
    /// Its id: 20 characters of `0-9a-f`.
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The run that it was made of.
    pub run: String,
    /// When, RFC 3339.
    pub made: String,
    /// `container`, `process` or `vm`: what lies in the home folder fits no other.
    pub tier: String,
    /// Name of the policy.
    pub policy: String,
    /// Digest of the policy.
    pub policy_digest: String,
    /// The layers that the policy was made of, as its maker wants them back.
    #[serde(default)]
    pub layers: Value,
    /// The workspace on the host, escaped; absent if it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Changed paths of the workspace.
    pub changes: usize,
    /// Members of `tmp.tar`.
    pub files: u64,
    /// Bytes that all of it takes, contents that it shares with the changes of the run included.
    pub bytes: u64,
    /// What is not in it, and why: of the workspace, and of `/tmp`.
    #[serde(default)]
    pub left_out: Vec<Refused>,
    /// All that a machine was; absent on other tiers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// A snapshot, open.
#[derive(Debug)]
pub struct Snapshot {
    about: About,
    dir: Dir,
}

impl Snapshot {
    /// Opens one by its id or name.
    ///
    /// # Errors
    /// [`SnapshotError::None`], [`SnapshotError::Damaged`], or the state folder's.
    pub fn open(state: &State, word: &str) -> Result<Self, SnapshotError> {
        let none = || SnapshotError::None { word: word.to_owned() };
        if is_id(word) {
            return read(&state.snapshots()?, word)?.ok_or_else(none);
        }
        let named = |snapshot: &Self| snapshot.about.name.as_deref() == Some(word);
        all(state)?.into_iter().filter_map(Result::ok).find(named).ok_or_else(none)
    }

    /// What is written down of it.
    #[must_use]
    pub const fn about(&self) -> &About {
        &self.about
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.about.id
    }

    /// One of its files ([`TMP`], or another that its [`Writer`] was asked for), for reading; `None` if it has none such.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`].
    pub fn file(&self, name: &str) -> Result<Option<File>, SnapshotError> {
        match self.dir.open_file(name, OFlags::RDONLY, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(_) => Err(self.damaged()),
        }
    }

    fn damaged(&self) -> SnapshotError {
        SnapshotError::Damaged { id: self.about.id.clone() }
    }
}

/// The snapshots, the oldest first; damaged ones are left out.
///
/// # Errors
/// The state folder's.
pub fn list(state: &State) -> Result<Vec<About>, SnapshotError> {
    let mut found: Vec<About> = all(state)?.into_iter().filter_map(|one| Some(one.ok()?.about)).collect();
    found.sort_by(|one, other| (&one.made, &one.id).cmp(&(&other.made, &other.id)));
    Ok(found)
}

/// Removes one by its id or name.
///
/// # Errors
/// [`SnapshotError::None`], or the state folder's.
pub fn remove(state: &State, word: &str) -> Result<(), SnapshotError> {
    // A damaged one goes by its id.
    let id = if is_id(word) { word.to_owned() } else { Snapshot::open(state, word)?.about.id };
    let (dir, _lock) = locked(state)?;
    let failed = |errno| unwritable(state, &id, errno);
    // From here on it is none: whoever is killed in between leaves it to `gc`.
    let gone = format!("{UNFINISHED}{id}");
    match rustix::fs::renameat(&dir, id.as_str(), &dir, gone.as_str()) {
        Err(Errno::NOENT) => return Err(SnapshotError::None { word: word.to_owned() }),
        other => other.map_err(failed)?,
    }
    dir.remove_tree(&gone).map_err(failed)
}

/// What a killed maker left, and whether it could be removed.
pub(crate) type Swept = (String, Result<(), Errno>);

/// Removes what makers that are gone left behind.
///
/// # Errors
/// The state folder's.
pub(crate) fn sweep(state: &State) -> Result<Vec<Swept>, StateError> {
    let (dir, _lock) = locked(state)?;
    let names = dir.names().map_err(|errno| unreadable(state, errno))?;
    let mut swept = Vec::new();
    for name in names.iter().filter_map(|name| name.to_str()).filter(|name| name.starts_with(UNFINISHED)) {
        // Its maker holds it as long as it lives.
        let held = dir.enter(name, Cross::No);
        let held = held.and_then(|one| rustix::fs::flock(&one, FlockOperation::NonBlockingLockExclusive));
        if held != Err(Errno::WOULDBLOCK) {
            swept.push((name.to_owned(), dir.remove_tree(name)));
        }
    }
    Ok(swept)
}

/// Each snapshot, or why it cannot be read.
fn all(state: &State) -> Result<Vec<Result<Snapshot, SnapshotError>>, SnapshotError> {
    let dir = state.snapshots()?;
    let names = dir.names().map_err(|errno| unreadable(state, errno))?;
    let ids = names.iter().filter_map(|name| name.to_str()).filter(|name| is_id(name));
    Ok(ids.filter_map(|id| read(&dir, id).transpose()).collect())
}

/// `None` if there is none.
fn read(dir: &Dir, id: &str) -> Result<Option<Snapshot>, SnapshotError> {
    let damaged = || SnapshotError::Damaged { id: id.to_owned() };
    let dir = match dir.enter(id, Cross::No) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(_) => return Err(damaged()),
    };
    let text = dir.read(ABOUT, MAX_ABOUT).or(Err(damaged()))?;
    let about: About = serde_json::from_slice(&text).or(Err(damaged()))?;
    if about.schema == 1 && about.id == id { Ok(Some(Snapshot { about, dir })) } else { Err(damaged()) }
}

/// The folder, and the lock under which names are given and folders come and go.
fn locked(state: &State) -> Result<(Dir, File), StateError> {
    let dir = state.snapshots()?;
    let mode = Mode::RUSR | Mode::WUSR;
    let lock = dir.open_file(LOCK, OFlags::RDWR | OFlags::CREATE, mode);
    let lock = lock.map_err(|errno| unwritable(state, LOCK, errno))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|errno| unwritable(state, LOCK, errno))?;
    Ok((dir, lock))
}

fn unwritable<E: From<StateError>>(state: &State, name: &str, errno: Errno) -> E {
    let path = state.path().join("snapshots").join(name);
    StateError::NotWritable { path, variable: "FUMEHOOD_STATE", errno }.into()
}

fn unreadable(state: &State, errno: Errno) -> StateError {
    StateError::NotReadable { path: state.path().join("snapshots"), errno }
}

fn is_id(word: &str) -> bool {
    word.len() == ID && word.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// A name that is no id, no path and no option.
fn check_name(name: &str) -> Result<(), SnapshotError> {
    let first = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let plain =
        name.bytes().all(|b| first(b) || matches!(b, b'.' | b'_' | b'-')) && name.bytes().next().is_some_and(first);
    if plain && name.len() < 64 && !is_id(name) { Ok(()) } else { Err(SnapshotError::Name { name: name.to_owned() }) }
}

/// A new id, and now.
fn new_id() -> Result<(String, String), StateError> {
    let mut random = [0; ID / 2];
    if !sys::random::fill(&mut random) {
        return Err(StateError::NoRandom);
    }
    Ok((policy::json::hex(&random), Timestamp::now().to_string()))
}
