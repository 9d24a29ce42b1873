//! Appending: one lock, one look at the end, one write.
//!
//! The lock is a file of its own, because the log is renamed when it is rotated. The head of the chain is remembered and
//! trusted only while the file is the same and as long as we left it; else the last line is read, never the whole log.
//! A write that was cut short is taken back; one that a crash cut short is cut off by the next append, which says so.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use jiff::Timestamp;
use policy::report::AuditPointer;
use policy::value::Sync;
use rustix::fs::{FlockOperation, Mode, OFlags, RenameFlags, Timespec, Timestamps};
use rustix::io::Errno;
use serde_json::{Value, json};

use super::body::{Redactor, clean_text, spell};
use super::checkpoint::{Checkpoint, Keys};
use super::event::{Event, GENESIS, Kind, Unsealed};
use super::{AuditError, archive_name, archives};
use crate::state::{Dir, State, errno_of, named_folder};
use policy::json::sha256_hex;

/// The file that is appended to.
pub(super) const ACTIVE: &str = "audit.jsonl";
pub(super) const LOCK: &str = "lock";
/// Its modification time is the last fdatasync.
const SYNCED: &str = "synced";
/// With `sync = "batch"`: at most this many seconds of events are lost when the machine (not we) dies.
const BATCH_SECONDS: i64 = 5;
/// A checkpoint is due after so many events (and at rotation, and when asked).
pub const CHECKPOINT_EVERY: u64 = 128;
/// When one is due, the next so many events look whether it was signed.
const DUE: u64 = 32;
/// The first look at the end of the log, in bytes; most events are shorter.
const TAIL: u64 = 4096;
const MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// How the log is kept.
#[derive(Debug)]
pub struct Options {
    /// Durability.
    pub sync: Sync,
    /// What is not written.
    pub redact: Redactor,
    /// A file that would grow beyond this is put aside.
    pub rotate_at: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self { sync: Sync::Batch, redact: Redactor::default(), rotate_at: 64 << 20 }
    }
}

/// The log, open for appending. Threads share one; processes open one each.
#[derive(Debug)]
pub struct Log {
    dir: Dir,
    path: PathBuf,
    keys: Keys,
    options: Options,
    clock: fn() -> Timestamp,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    lock: File,
    active: Option<Active>,
    synced: Option<File>,
    /// What the log is known by, once that was looked up.
    identity: Option<String>,
}

#[derive(Debug)]
struct Active {
    file: File,
    inode: (u64, u64),
    length: u64,
    seq: u64,
    hash: String,
}

/// Holds the lock among processes until dropped.
struct LogLock<'a> {
    inner: MutexGuard<'a, Inner>,
}

impl Drop for LogLock<'_> {
    #[expect(
        clippy::let_underscore_must_use,
        reason = "unlocking an open descriptor cannot fail, and drop cannot tell"
    )]
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.inner.lock, FlockOperation::Unlock);
    }
}

impl Log {
    /// Opens the log in the state folder, or in the folder that `audit.path` names.
    ///
    /// # Errors
    /// [`AuditError`] if it cannot be written: the run is refused.
    pub fn open(state: &State, folder: Option<&Path>, options: Options) -> Result<Self, AuditError> {
        Self::open_at(state, folder, options, Timestamp::now)
    }

    /// As [`Log::open`], with a clock of the caller's.
    ///
    /// # Errors
    /// As [`Log::open`].
    pub fn open_at(
        state: &State,
        folder: Option<&Path>,
        options: Options,
        clock: fn() -> Timestamp,
    ) -> Result<Self, AuditError> {
        let (dir, path) = folder_of(state, folder)?;
        let (keys, keys_path) = state.keys()?;
        let failed = |errno| AuditError::Write { path: path.join(LOCK), errno };
        let lock = dir.open_file(LOCK, OFlags::RDWR | OFlags::CREATE, MODE).map_err(failed)?;
        let mut keys = Keys::of(keys, keys_path, &path, state.path());
        keys.durable = options.sync != Sync::None;
        let inner = Mutex::new(Inner { lock, active: None, synced: None, identity: None });
        let log = Self { dir, path, keys, options, clock, inner };
        let mut held = log.hold()?;
        log.active(&mut held.inner)?;
        drop(held);
        Ok(log)
    }

    /// The folder of the log.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends one event. `run` is empty for events of no run.
    ///
    /// With `sync = "batch"` the events before *go* (`run.planned`, `run.started`) are written but not waited for; a later
    /// event of the run makes them durable.
    ///
    /// # Errors
    /// [`AuditError`]; the log is then as it was before.
    pub fn append(&self, run: &str, kind: &Kind, body: &Value) -> Result<AuditPointer, AuditError> {
        let body = spell(body, &self.options.redact)?;
        let run = clean_text(run, self.options.redact.compile()?);
        let mut held = self.hold()?;
        let pointer = self.add(&mut held.inner, &run, kind, &body)?;
        let before_go = is_before_go(kind.as_str());
        self.settle(&mut held.inner, before_go)?;
        if !before_go {
            self.sign_if_due(&mut held.inner, &pointer)?;
        }
        Ok(pointer)
    }

    /// Signs the newest event now; `None` if the log is empty.
    ///
    /// # Errors
    /// [`AuditError`].
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, AuditError> {
        let mut held = self.hold()?;
        let active = self.active(&mut held.inner)?;
        if active.seq == 0 {
            return Ok(None);
        }
        rustix::fs::fdatasync(&active.file).map_err(|errno| self.failed(errno))?;
        let (seq, hash) = (active.seq, active.hash.clone());
        self.sign(&mut held.inner, seq, &hash).map(Some)
    }

    fn sign(&self, inner: &mut Inner, seq: u64, hash: &str) -> Result<Checkpoint, AuditError> {
        let log = self.identity(inner)?;
        self.keys.sign(&log, seq, hash, &self.now())
    }

    /// What the log is known by. There is an event: who asks is about to sign one.
    fn identity(&self, inner: &mut Inner) -> Result<String, AuditError> {
        let known = match inner.identity.take() {
            Some(known) => known,
            None => super::identity(&self.dir)
                .map_err(|errno| self.failed(errno))?
                .ok_or_else(|| AuditError::Damaged { path: self.path.clone(), offset: 0 })?,
        };
        Ok(inner.identity.insert(known).clone())
    }

    fn hold(&self) -> Result<LogLock<'_>, AuditError> {
        let inner = self.inner.lock().or(Err(AuditError::Poisoned))?;
        loop {
            match rustix::fs::flock(&inner.lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(LogLock { inner }),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(AuditError::Write { path: self.path.join(LOCK), errno }),
            }
        }
    }

    /// The open file and the head of the chain, looked up again if somebody else was there.
    fn active<'a>(&self, inner: &'a mut Inner) -> Result<&'a mut Active, AuditError> {
        let stat = self.dir.stat(ACTIVE).map_err(|errno| self.failed(errno))?;
        let found = stat.map(|s| ((s.st_dev, s.st_ino), u64::try_from(s.st_size).unwrap_or(0)));
        let current = inner.active.take().filter(|a| found == Some((a.inode, a.length)));
        let active = match current {
            Some(active) => active,
            None => self.open_active(inner)?,
        };
        Ok(inner.active.insert(active))
    }

    fn open_active(&self, inner: &Inner) -> Result<Active, AuditError> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE;
        let file = self.dir.open_file(ACTIVE, flags, MODE).map_err(|errno| self.failed(errno))?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.failed(errno))?;
        if !crate::state::is_regular(stat.st_mode) {
            return Err(self.failed(Errno::INVAL));
        }
        let length = u64::try_from(stat.st_size).unwrap_or(0);
        let mut active = Active { file, inode: (stat.st_dev, stat.st_ino), length, seq: 0, hash: GENESIS.to_owned() };
        if length == 0 {
            self.head_of_archive(&mut active)?;
            return Ok(active);
        }
        let tail = Tail::read(&active.file, length).map_err(|errno| self.failed(errno))?;
        let start = length - u64::try_from(tail.torn.len()).unwrap_or(0);
        match tail.last {
            Some(line) => self.take_head(&mut active, &line, start)?,
            None => self.head_of_archive(&mut active)?,
        }
        if !tail.torn.is_empty() {
            self.recover(&mut active, start, &tail.torn)?;
        }
        // `inner` is borrowed to say that the lock is held: what is cut off here nobody else is writing.
        let _: &File = &inner.lock;
        Ok(active)
    }

    fn take_head(&self, active: &mut Active, line: &[u8], end: u64) -> Result<(), AuditError> {
        // Whether its hash is right is for `verify` to say: an edited log must not stop work, it must be found.
        let Ok(event) = Event::parse_unchecked(line) else {
            let offset = end.saturating_sub(u64::try_from(line.len() + 1).unwrap_or(0));
            return Err(AuditError::Damaged { path: self.path.join(ACTIVE), offset });
        };
        active.seq = event.seq;
        active.hash = event.hash;
        Ok(())
    }

    /// An empty file right after a rotation: the chain goes on from the newest file that was put aside.
    fn head_of_archive(&self, active: &mut Active) -> Result<(), AuditError> {
        let Some((_, name)) = archives(&self.dir).map_err(|errno| self.failed(errno))?.pop() else { return Ok(()) };
        let failed = |errno| AuditError::Read { path: self.path.join(&name), errno };
        let file = self.dir.open_file(&name, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let length = u64::try_from(rustix::fs::fstat(&file).map_err(failed)?.st_size).unwrap_or(0);
        let tail = Tail::read(&file, length).map_err(failed)?;
        match tail.last.as_deref().map(Event::parse_unchecked) {
            Some(Ok(event)) => {
                active.seq = event.seq;
                active.hash = event.hash;
                Ok(())
            }
            Some(Err(_)) | None => Err(AuditError::Damaged { path: self.path.join(&name), offset: length }),
        }
    }

    fn recover(&self, active: &mut Active, whole: u64, torn: &[u8]) -> Result<(), AuditError> {
        rustix::fs::ftruncate(&active.file, whole).map_err(|errno| self.failed(errno))?;
        active.length = whole;
        let body = json!({ "what": "a torn last line was cut off", "bytes": torn.len(), "sha256": sha256_hex(torn) });
        let body = spell(&body, &Redactor::default())?;
        self.write(active, "", Kind::audit_recovered().as_str(), &body).map(drop)
    }

    fn add(&self, inner: &mut Inner, run: &str, kind: &Kind, body: &str) -> Result<AuditPointer, AuditError> {
        let coming = u64::try_from(body.len() + 512).unwrap_or(u64::MAX);
        let active = self.active(inner)?;
        if active.length > 0 && active.length.saturating_add(coming) > self.options.rotate_at {
            self.rotate(inner)?;
        }
        let active = self.active(inner)?;
        self.write(active, run, kind.as_str(), body)
    }

    fn write(&self, active: &mut Active, run: &str, kind: &str, body: &str) -> Result<AuditPointer, AuditError> {
        let seq = active.seq + 1;
        let time = self.now();
        let (line, hash) = Unsealed { seq, time: &time, run, kind, body, prev: &active.hash }.seal();
        let written = loop {
            match active.file.write(line.as_bytes()) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.map_err(|e| errno_of(&e)),
            }
        };
        let whole = match written {
            Ok(count) if count == line.len() => Ok(()),
            Ok(_) => Err(Errno::NOSPC),
            Err(errno) => Err(errno),
        };
        if let Err(errno) = whole {
            // Half an event is worse than none. If even this fails, the next append cuts it off.
            let errno = rustix::fs::ftruncate(&active.file, active.length).err().unwrap_or(errno);
            return Err(self.failed(errno));
        }
        active.length += u64::try_from(line.len()).unwrap_or(0);
        active.seq = seq;
        active.hash.clone_from(&hash);
        Ok(AuditPointer { file: self.path.join(ACTIVE).display().to_string(), seq, hash })
    }

    fn rotate(&self, inner: &mut Inner) -> Result<(), AuditError> {
        let active = self.active(inner)?;
        rustix::fs::fdatasync(&active.file).map_err(|errno| self.failed(errno))?;
        let name = archive_name(active.seq);
        rustix::fs::renameat_with(&self.dir, ACTIVE, &self.dir, name.as_str(), RenameFlags::NOREPLACE)
            .map_err(|errno| self.failed(errno))?;
        let (seq, hash) = (active.seq, active.hash.clone());
        inner.active = None;
        self.sign(inner, seq, &hash).map(drop)
    }

    /// Makes what is written durable, as the policy says.
    fn settle(&self, inner: &mut Inner, before_go: bool) -> Result<(), AuditError> {
        match self.options.sync {
            Sync::None => Ok(()),
            Sync::Each => self.sync(inner),
            Sync::Batch if before_go => Ok(()),
            Sync::Batch => self.sync_if_old(inner),
        }
    }

    /// Signs about every [`CHECKPOINT_EVERY`] events, and a young log whenever it has doubled, by an event that nobody waits
    /// for. The log goes to the disk first: a checkpoint that outlived its events would look like a truncation.
    fn sign_if_due(&self, inner: &mut Inner, newest: &AuditPointer) -> Result<(), AuditError> {
        let young = newest.seq < CHECKPOINT_EVERY;
        if !young && newest.seq % CHECKPOINT_EVERY >= DUE {
            return Ok(());
        }
        let log = self.identity(inner)?;
        let signed = self.keys.newest(&log)?;
        let due = if young {
            newest.seq >= signed.saturating_mul(2)
        } else {
            newest.seq / CHECKPOINT_EVERY > signed / CHECKPOINT_EVERY
        };
        if !due {
            return Ok(());
        }
        self.sync(inner)?;
        self.keys.sign(&log, newest.seq, &newest.hash, &self.now()).map(drop)
    }

    fn sync(&self, inner: &Inner) -> Result<(), AuditError> {
        let Some(active) = inner.active.as_ref().filter(|_| self.keys.durable) else { return Ok(()) };
        rustix::fs::fdatasync(&active.file).map_err(|errno| self.failed(errno))
    }

    fn sync_if_old(&self, inner: &mut Inner) -> Result<(), AuditError> {
        let failed = |errno| AuditError::Write { path: self.path.join(SYNCED), errno };
        let now = (self.clock)().as_second();
        if inner.synced.is_none() {
            let fresh = self.dir.stat(SYNCED).map_err(failed)?.is_some_and(|s| is_fresh(s.st_mtime, now));
            if fresh {
                return Ok(());
            }
            let flags = OFlags::RDWR | OFlags::CREATE;
            inner.synced = Some(self.dir.open_file(SYNCED, flags, MODE).map_err(failed)?);
        }
        let Some(marker) = &inner.synced else { return Ok(()) };
        // A marker that was only just made is as new as it can be, and yet nothing was synced: size 0 says so.
        let stat = rustix::fs::fstat(marker).map_err(failed)?;
        if stat.st_size > 0 && is_fresh(stat.st_mtime, now) {
            return Ok(());
        }
        self.sync(inner)?;
        let Some(marker) = &inner.synced else { return Ok(()) };
        rustix::fs::ftruncate(marker, 1).map_err(failed)?;
        let at = Timespec { tv_sec: now, tv_nsec: 0 };
        rustix::fs::futimens(marker, &Timestamps { last_access: at, last_modification: at }).map_err(failed)
    }

    fn now(&self) -> String {
        (self.clock)().to_string()
    }

    fn failed(&self, errno: Errno) -> AuditError {
        AuditError::Write { path: self.path.join(ACTIVE), errno }
    }
}

/// Events that a start does not wait for, and after which nothing is signed.
pub(super) fn is_before_go(kind: &str) -> bool {
    matches!(kind, "run.planned" | "run.started")
}

/// A marker from the future (the clock was set back) is not fresh.
fn is_fresh(marked: i64, now: i64) -> bool {
    (0..BATCH_SECONDS).contains(&now.saturating_sub(marked))
}

/// The folder of a log, opened as the caller's.
pub(super) fn folder_of(state: &State, folder: Option<&Path>) -> Result<(Dir, PathBuf), AuditError> {
    Ok(match folder {
        None => (state.audit()?, state.audit_path()),
        Some(path) => (named_folder(path, "audit.path", state.caller())?, path.to_owned()),
    })
}

/// The end of a file of lines.
struct Tail {
    /// The last whole line, without its end.
    last: Option<Vec<u8>>,
    /// What follows it.
    torn: Vec<u8>,
}

impl Tail {
    fn read(file: &File, length: u64) -> rustix::io::Result<Self> {
        let mut span = TAIL;
        loop {
            let from = length.saturating_sub(span);
            let mut bytes = vec![0; usize::try_from(length - from).or(Err(Errno::FBIG))?];
            let mut filled = 0;
            while let Some(rest) = bytes.get_mut(filled..).filter(|r| !r.is_empty()) {
                let read = rustix::io::pread(file, rest, from + u64::try_from(filled).unwrap_or(0))?;
                if read == 0 {
                    break;
                }
                filled += read;
            }
            bytes.truncate(filled);
            let end = bytes.iter().rposition(|&b| b == b'\n');
            let begin = end.and_then(|e| bytes.get(..e)?.iter().rposition(|&b| b == b'\n'));
            if from > 0 && begin.is_none() {
                span = span.saturating_mul(16);
                continue;
            }
            let torn = bytes.split_off(end.map_or(0, |e| e + 1));
            bytes.pop();
            let last = end.map(|_| bytes.split_off(begin.map_or(0, |b| b + 1)));
            return Ok(Self { last, torn });
        }
    }
}
