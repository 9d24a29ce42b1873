//! `live/ID/` in the state folder: what is known of each sandbox, also when nobody holds it any more.
//!
//! `record.json` is the last word of its supervisor, replaced whole; `lock` is held by the supervisor for as long as it lives,
//! which tells the living from the dead across pid namespaces too; `socket` is where it answers. A record that does not say
//! `ended` and whose lock is free is of a supervisor that was killed: whoever reads it says so.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::fs::{AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, Owner, State, errno_of};
use serde::{Deserialize, Serialize};

use crate::error::LiveError;
use crate::words::{EndReason, Info, State as Doing};

const RECORD: &str = "record.json";
const NEW_RECORD: &str = "record.new";
const LOCK: &str = "lock";
const SOCKET: &str = "socket";
/// Held by whoever makes or removes a sandbox's folder.
const ALL: &str = "lock";
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// No record is longer.
const MAX_RECORD: u64 = 8 << 20;
/// Bytes that are kept free for the next one.
const RESERVED: u64 = 16 << 10;
/// How long an id is, in characters.
const ID: usize = 20;
/// Ended sandboxes are known for so long.
const KEEP_SECONDS: i64 = 24 * 60 * 60;
/// And so many of them.
const KEEP: usize = 1000;
/// Who makes a sandbox looks for what is too old, unless somebody did so lately: with a thousand that ended the looking takes longer
/// than all else of a start's records.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// A folder without a record is one that is being begun, unless it is older than this.
const BEGINNING_SECONDS: i64 = 60;

/// How long ago something was written.
#[derive(Clone, Copy, Debug)]
struct Age {
    nanoseconds: i128,
    /// It is that of a record, not of a folder that has none.
    recorded: bool,
}

impl Age {
    fn seconds(self) -> i64 {
        seconds(self.nanoseconds)
    }
}

fn seconds(nanoseconds: i128) -> i64 {
    i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX)
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    schema: u32,
    owner: Owner,
    info: Info,
}

/// Where live sandboxes are found.
#[derive(Debug)]
pub struct Home {
    folder: Dir,
    path: PathBuf,
    /// Those that were seen to have ended: none of them lives again, so who lists the living asks no second time.
    ended: Mutex<BTreeSet<String>>,
}

/// What a sweep did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Ids of the records that are gone.
    pub removed: Vec<String>,
    /// Sandboxes that live.
    pub live: u64,
    /// Those that are nobody's yet: ready in a pool, or being begun.
    pub begun: u64,
}

impl Home {
    /// Opens the folder of live sandboxes, made if it is missing.
    ///
    /// # Errors
    /// [`LiveError::State`].
    pub fn new(state: &State) -> Result<Self, LiveError> {
        Ok(Self { folder: state.live()?, path: state.path().join("live"), ended: Mutex::default() })
    }

    /// The sandboxes, the newest first; with `all` also those that ended.
    ///
    /// # Errors
    /// [`LiveError::Folder`].
    pub fn list(&self, all: bool) -> Result<Vec<Info>, LiveError> {
        self.list_and_count(all).map(|(found, _)| found)
    }

    /// The same, and how many more there may be: somebody holds them, and their record cannot be read.
    ///
    /// # Errors
    /// [`LiveError::Folder`]: that a caller, or the host, has nothing left to read with says nothing of what is there.
    pub fn list_and_count(&self, all: bool) -> Result<(Vec<Info>, usize), LiveError> {
        let names = self.folder.names().map_err(|errno| self.failed(None, errno))?;
        let names: BTreeSet<&str> = names.iter().filter_map(|name| name.to_str()).collect();
        let ended = if all { BTreeSet::new() } else { self.ended_of(&names) };
        let (mut found, mut unread) = (Vec::new(), 0_usize);
        for name in names.into_iter().filter(|name| !ended.contains(*name)) {
            match self.read(name, all) {
                Ok(info) => found.extend(info),
                Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => return Err(self.failed(Some(name), errno)),
                // What is wrong with one record alone leaves that one out.
                Err(_) => unread = unread.saturating_add(1),
            }
        }
        found.sort_by(|a: &Info, b: &Info| (b.created_ms, &b.id).cmp(&(a.created_ms, &a.id)));
        Ok((found, unread))
    }

    /// Those of these names that are known to have ended; what has no folder any more is forgotten.
    fn ended_of(&self, names: &BTreeSet<&str>) -> BTreeSet<String> {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.retain(|id| names.contains(id.as_str()));
        ended.clone()
    }

    /// The sandbox with this id, or the one with this name: the live one, else the newest.
    ///
    /// # Errors
    /// [`LiveError::Unknown`], [`LiveError::Folder`].
    pub fn find(&self, word: &str) -> Result<Info, LiveError> {
        if let Some(info) = self.read(word, true).map_err(|errno| self.failed(Some(word), errno))? {
            return Ok(info);
        }
        for ended_too in [false, true] {
            let named = self.list(ended_too)?.into_iter().find(|info| info.name.as_deref() == Some(word));
            if let Some(info) = named {
                return Ok(info);
            }
        }
        Err(LiveError::Unknown { word: word.to_owned() })
    }

    /// As [`Home::find`], for what needs a supervisor.
    ///
    /// # Errors
    /// [`LiveError::Over`] if it has ended, and those of [`Home::find`].
    pub fn find_live(&self, word: &str) -> Result<Info, LiveError> {
        let info = self.find(word)?;
        if info.state == Doing::Ended {
            let message = info.message.unwrap_or_default();
            return Err(LiveError::Over { id: info.id, message });
        }
        Ok(info)
    }

    /// Where the supervisor of a sandbox answers.
    #[must_use]
    pub fn socket_of(&self, id: &str) -> PathBuf {
        self.path.join(id).join(SOCKET)
    }

    /// Makes a place for a new sandbox under an id of its own, and under this name if there is one.
    ///
    /// # Errors
    /// [`LiveError::Name`], [`LiveError::Taken`], [`LiveError::Folder`].
    pub fn claim(&self, name: Option<&str>) -> Result<Claim, LiveError> {
        if let Some(name) = name.filter(|name| !is_name(name)) {
            return Err(LiveError::Name { name: name.to_owned() });
        }
        let held = self.hold()?;
        self.remove_old_now_and_then(&held)?;
        if let Some(name) = name {
            self.is_free(name)?;
        }
        let id = new_id().ok_or(LiveError::State(sandbox::state::StateError::NoRandom))?;
        let failed = |errno| self.failed(Some(&id), errno);
        self.folder.make(&id, Mode::RWXU).map_err(failed)?;
        let folder = self.folder.enter(&id, Cross::No).map_err(failed)?;
        let mut lock = folder.open_file(LOCK, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL, MODE).map_err(failed)?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(failed)?;
        // Until there is a record, this says which name is taken.
        lock.write_all(name.unwrap_or_default().as_bytes()).map_err(|error| failed(errno_of(&error)))?;
        let path = self.path.join(&id);
        Ok(Claim {
            home: self.folder.enter(".", Cross::No).map_err(failed)?,
            folder,
            path,
            id,
            lock,
            name: name.map(str::to_owned),
            kept: false,
        })
    }

    /// Gives a sandbox that is being begun this name, unless it has it.
    ///
    /// # Errors
    /// As [`Home::claim`].
    pub(crate) fn name(&self, claim: &mut Claim, name: &str) -> Result<(), LiveError> {
        if claim.name.as_deref() == Some(name) {
            return Ok(());
        }
        if !is_name(name) {
            return Err(LiveError::Name { name: name.to_owned() });
        }
        let _held = self.hold()?;
        self.is_free(name)?;
        let written = claim.lock.write_all(name.as_bytes());
        written.map_err(|error| self.failed(Some(&claim.id), errno_of(&error)))?;
        claim.name = Some(name.to_owned());
        Ok(())
    }

    /// Whether a name is nobody's; asked while all is held.
    fn is_free(&self, name: &str) -> Result<(), LiveError> {
        let taken = self.list(false)?.into_iter().find(|info| info.name.as_deref() == Some(name));
        let begun = || self.begun_as(name);
        match taken.map(|info| info.id).or_else(begun) {
            Some(id) => Err(LiveError::Taken { name: name.to_owned(), id }),
            None => Ok(()),
        }
    }

    /// Removes what is known of sandboxes that ended long ago, and what was begun and never came to be.
    ///
    /// # Errors
    /// [`LiveError::Folder`].
    pub fn sweep(&self, now: Timestamp) -> Result<Swept, LiveError> {
        let _held = self.hold()?;
        let removed = self.remove_old(now)?;
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let (live, begun) = (self.list(false)?.len(), self.begun()?.count());
        Ok(Swept { removed, live: number(live), begun: number(begun) })
    }

    /// The sandboxes whose supervisor was killed and of which nobody has said so yet ([`Home::told`]).
    ///
    /// # Errors
    /// [`LiveError::Folder`].
    pub fn lost(&self) -> Result<Vec<Info>, LiveError> {
        let mut found = self.list(true)?;
        found.retain(|info| info.reason == Some(EndReason::Lost) && self.is_untold(&info.id));
        Ok(found)
    }

    /// Whether its record does not say that it has ended.
    fn is_untold(&self, id: &str) -> bool {
        let folder = self.folder.enter(id, Cross::No);
        let text = folder.and_then(|folder| folder.read(RECORD, MAX_RECORD)).unwrap_or_default();
        let said: Option<Record> = serde_json::from_slice(&text).ok();
        said.is_some_and(|said| said.info.state != Doing::Ended)
    }

    /// It is written down that one is lost: from now on its record says so itself.
    ///
    /// # Errors
    /// [`LiveError::Folder`].
    pub fn told(&self, lost: &Info) -> Result<(), LiveError> {
        let _held = self.hold()?;
        let written = self.folder.enter(&lost.id, Cross::No).and_then(|folder| write(&folder, lost));
        written.map_err(|errno| self.failed(Some(&lost.id), errno))
    }

    /// Unless it was done lately: the lock of all says when, by its time.
    fn remove_old_now_and_then(&self, all: &File) -> Result<(), LiveError> {
        let failed = |error: std::io::Error| self.failed(Some(ALL), errno_of(&error));
        let (now, last) = (SystemTime::now(), all.metadata().and_then(|about| about.modified()).map_err(failed)?);
        // A time that is still to come is of a clock that was set back.
        if now.duration_since(last).is_ok_and(|since| since < SWEEP_EVERY) {
            return Ok(());
        }
        all.set_modified(now).map_err(failed)?;
        self.remove_old(Timestamp::now()).map(drop)
    }

    fn remove_old(&self, now: Timestamp) -> Result<Vec<String>, LiveError> {
        let mut ended = Vec::new();
        let mut removed = Vec::new();
        for name in self.folder.names().map_err(|errno| self.failed(None, errno))? {
            let Some(id) = name.to_str().filter(|id| is_id(id)) else { continue };
            let Some(age) = self.age(id, now) else { continue };
            if self.is_held(id) {
                continue;
            }
            match age {
                Age { recorded: true, .. } => ended.push((age.nanoseconds, id.to_owned())),
                Age { recorded: false, .. } if age.seconds() > BEGINNING_SECONDS => removed.push(id.to_owned()),
                Age { recorded: false, .. } => {}
            }
        }
        // The one that ended last comes first: its supervisor's last word is when it ended.
        ended.sort_unstable();
        let old = ended.into_iter().enumerate();
        let old = old.filter(|(at, (nanoseconds, _))| *at >= KEEP || seconds(*nanoseconds) > KEEP_SECONDS);
        // That a supervisor was killed is in no log yet: the record is all that tells of it, however long it had lived.
        let old = old.filter(|(_, (_, id))| !self.is_untold(id));
        removed.extend(old.map(|(_, (_, id))| id));
        for id in &removed {
            self.folder.remove_tree(id).map_err(|errno| self.failed(Some(id), errno))?;
        }
        Ok(removed)
    }

    /// Since its last word, or since it was begun if it said none; none if it is gone.
    fn age(&self, id: &str, now: Timestamp) -> Option<Age> {
        let folder = self.folder.enter(id, Cross::No).ok()?;
        let record = folder.stat(RECORD).ok().flatten();
        let recorded = record.is_some();
        let stat = record.or_else(|| rustix::fs::fstat(&folder).ok())?;
        let written = Timestamp::new(stat.st_mtime, i32::try_from(stat.st_mtime_nsec).ok()?).ok()?;
        Some(Age { nanoseconds: now.as_nanosecond().saturating_sub(written.as_nanosecond()), recorded })
    }

    /// Those that somebody holds and of which nothing is written down.
    fn begun(&self) -> Result<impl Iterator<Item = String>, LiveError> {
        let has_record = |id: &str| self.folder.enter(id, Cross::No)?.stat(RECORD).map(|record| record.is_some());
        let names = self.folder.names().map_err(|errno| self.failed(None, errno))?;
        let ids = names.into_iter().filter_map(|id| id.into_string().ok());
        Ok(ids.filter(move |id| is_id(id) && self.is_held(id) && has_record(id) == Ok(false)))
    }

    /// The sandbox that is being begun under this name.
    fn begun_as(&self, name: &str) -> Option<String> {
        let ids = self.folder.names().ok()?.into_iter().filter_map(|id| id.into_string().ok());
        let mut begun = ids.filter(|id| is_id(id) && self.is_held(id));
        begun.find(|id| {
            let lock = self.folder.enter(id, Cross::No).and_then(|folder| folder.read(LOCK, 4096));
            lock.is_ok_and(|text| text == name.as_bytes())
        })
    }

    /// What is known of a sandbox, with what its supervisor could not say any more. One that has ended is only read if it is
    /// asked for: there may be many, with long records.
    fn read(&self, id: &str, ended_too: bool) -> Result<Option<Info>, Errno> {
        if !is_id(id) {
            return Ok(None);
        }
        let Some(folder) = there(self.folder.enter(id, Cross::No))? else { return Ok(None) };
        // Asked before the record is read: one that ends in between has said so in it.
        let held = is_locked(&folder);
        if !held && !ended_too {
            // Without a record it may be one that is being begun.
            if folder.stat(RECORD).is_ok_and(|record| record.is_some()) {
                self.ended.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned());
            }
            return Ok(None);
        }
        let text = match folder.read(RECORD, MAX_RECORD) {
            // Of one that has ended nothing is counted.
            Err(_) if !held => None,
            read => there(read)?,
        };
        let Some(text) = text else { return Ok(None) };
        let Ok(Record { mut info, .. }) = serde_json::from_slice(&text) else {
            return if held { Err(Errno::BADMSG) } else { Ok(None) };
        };
        if info.state == Doing::Ended {
            // Its supervisor is not quite gone yet.
            return Ok(ended_too.then_some(info));
        }
        if !held {
            // When, nobody knows: its record is as old as its last change.
            info.state = Doing::Ended;
            info.reason = Some(EndReason::Lost);
            info.message = Some(
                "its supervisor is gone without a word: it was killed, or the host went down; nothing of it runs"
                    .to_owned(),
            );
        }
        Ok(Some(info))
    }

    fn is_held(&self, id: &str) -> bool {
        self.folder.enter(id, Cross::No).is_ok_and(|folder| is_locked(&folder))
    }

    fn hold(&self) -> Result<File, LiveError> {
        let failed = |errno| self.failed(Some(ALL), errno);
        let lock = self.folder.open_file(ALL, OFlags::RDWR | OFlags::CREATE, MODE).map_err(failed)?;
        loop {
            match rustix::fs::flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(lock),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
    }

    fn failed(&self, below: Option<&str>, errno: Errno) -> LiveError {
        LiveError::Folder { path: below.map_or_else(|| self.path.clone(), |below| self.path.join(below)), errno }
    }
}

/// None of what is not there. That a caller has no descriptor left says nothing of what is.
fn there<T>(found: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Whether somebody holds a sandbox. What cannot be asked is taken for held: nothing of it is removed.
fn is_locked(folder: &Dir) -> bool {
    match folder.open_file(LOCK, OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOENT) => false,
        Err(_) => true,
        Ok(lock) => rustix::fs::flock(&lock, FlockOperation::NonBlockingLockShared).is_err(),
    }
}

fn write(folder: &Dir, info: &Info) -> Result<(), Errno> {
    let record = Record { schema: 1, owner: Owner::this(), info: info.clone() };
    let text = serde_json::to_vec(&record).or(Err(Errno::INVAL))?;
    // Not emptied before: what is there is the room for it.
    let mut file = folder.open_file(NEW_RECORD, OFlags::WRONLY | OFlags::CREATE, MODE)?;
    file.write_all(&text).map_err(|error| errno_of(&error))?;
    rustix::fs::ftruncate(&file, u64::try_from(text.len()).unwrap_or(u64::MAX))?;
    rustix::fs::renameat(folder, NEW_RECORD, folder, RECORD)?;
    if info.state != Doing::Ended {
        reserve(folder);
    }
    Ok(())
}

/// Room for the next record: how a sandbox ends is written down on a disk that is full by then too.
fn reserve(folder: &Dir) {
    let file = folder.open_file(NEW_RECORD, OFlags::WRONLY | OFlags::CREATE, MODE);
    // Where there is none, the next record needs its own.
    let _kept = file.and_then(|file| rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, RESERVED));
}

/// The place of a sandbox, held by its supervisor. Dropped without a record, it is removed.
#[derive(Debug)]
pub struct Claim {
    home: Dir,
    folder: Dir,
    path: PathBuf,
    id: String,
    /// Held for as long as the supervisor lives; says the name.
    lock: File,
    name: Option<String>,
    kept: bool,
}

impl Claim {
    /// The id of the sandbox.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Where its supervisor is to listen.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.path.join(SOCKET)
    }

    /// Writes down how it is; readers see the old record or the new one.
    ///
    /// # Errors
    /// [`LiveError::Folder`].
    pub fn write(&mut self, info: &Info) -> Result<(), LiveError> {
        write(&self.folder, info).map_err(|errno| LiveError::Folder { path: self.path.join(RECORD), errno })?;
        self.kept = true;
        Ok(())
    }

    /// Nobody answers here any more.
    pub fn close_socket(&self) {
        // A socket at which nobody listens refuses as well.
        if rustix::fs::unlinkat(&self.folder, SOCKET, AtFlags::empty()).is_err() {}
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept && self.home.remove_tree(&self.id).is_err() {
            // The next sweep does it.
        }
    }
}

/// Whether a sandbox may be named so: `[a-zA-Z0-9][a-zA-Z0-9_.-]{0,62}`, and not as an id of a sandbox or a run: who looks for that
/// one would find another, by whoever took the name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes.next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    let is_of_us = is_id(name) || name.parse::<sandbox::state::RunId>().is_ok();
    first && !is_of_us && name.len() <= 63 && bytes.all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
}

/// Whether a text has the shape of an id: `[a-z][a-z0-9]{19}`.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let shape = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    text.len() == ID && shape && text.starts_with(|first: char| first.is_ascii_lowercase())
}

/// A new id; about 103 bits of it cannot be guessed.
fn new_id() -> Option<String> {
    let mut id = String::with_capacity(ID);
    while id.len() < ID {
        let mut random = [0; 64];
        if !sys::random::fill(&mut random) {
            return None;
        }
        for byte in random {
            let letters = if id.is_empty() { 26 } else { 36 };
            // The largest multiple that fits: no letter is likelier than another.
            if id.len() < ID && byte < 255 / letters * letters {
                let at = byte % letters;
                id.push(char::from(if at < 26 { b'a' + at } else { b'0' + (at - 26) }));
            }
        }
    }
    Some(id)
}

#[cfg(test)]
mod tests;
