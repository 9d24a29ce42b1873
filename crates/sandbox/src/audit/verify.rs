//! Reading the whole log with suspicion.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;

use super::checkpoint::{Checkpoint, Keys};
use super::event::{Event, GENESIS, NotAnEvent};
use super::log::{ACTIVE, LOCK, folder_of};
use super::{AuditError, archives};
use crate::state::{Dir, State, errno_of};

/// No line that we wrote is longer.
pub(super) const MAX_LINE: u64 = 1 << 20;

/// What is bad: an event, or a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// A line of the log, or its end.
    Event,
    /// A line of the checkpoints, or all of them.
    Checkpoint,
}

/// The first bad part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Broken {
    /// What it is.
    pub part: Part,
    /// The number of the event, also where a checkpoint of it is bad: what it says, or what it should have been. 0 if a
    /// checkpoint says none.
    pub seq: u64,
    /// File.
    pub file: PathBuf,
    /// Line in that file, from 1; 0 if there is no line.
    pub line: u64,
    /// What is wrong.
    pub why: String,
}

/// What the log is worth.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// Good events, up to the first bad one.
    pub events: u64,
    /// The hash of the last good event.
    pub head: String,
    /// Checkpoints whose signature and event are right.
    pub checkpoints: u64,
    /// The event of the last of them: up to here a truncation would have been seen.
    pub sealed_to: u64,
    /// The public key that the checkpoints were checked against.
    pub key: Option<String>,
    /// Bytes of a last line that was cut short by a crash; the next append cuts them off and says so.
    pub torn: u64,
    /// The first bad event.
    pub broken: Option<Broken>,
}

/// Checks the log in the state folder, or in `folder`, against its own chain and its checkpoints; with `key` (hex) the
/// checkpoints must be signed by that key, else by the one in the keys folder.
///
/// # Errors
/// [`AuditError`] if it cannot be read; a broken log is a verdict and no error.
pub fn verify(state: &State, folder: Option<&Path>, key: Option<&str>) -> Result<Verdict, AuditError> {
    let (dir, path) = folder_of(state, folder)?;
    let (keys, keys_path) = state.keys()?;
    let keys = Keys::of(keys, keys_path, &path, state.path());
    let lock = match dir.open_file(LOCK, OFlags::RDONLY, Mode::empty()) {
        Ok(lock) => Some(lock),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(AuditError::Read { path: path.join(LOCK), errno }),
    };
    if let Some(lock) = &lock {
        rustix::fs::flock(lock, FlockOperation::LockShared)
            .map_err(|errno| AuditError::Read { path: path.join(LOCK), errno })?;
    }
    let trusted = match key {
        Some(key) => Some(key.to_ascii_lowercase()),
        None => keys.public()?,
    };
    let mut reader = Reader {
        verdict: Verdict { key: trusted, head: GENESIS.into(), ..Verdict::default() },
        signed: BTreeMap::new(),
        due: false,
    };
    // What was signed for in this place counts more than what lies here now.
    let log = match keys.known()? {
        Some(known) => Some(known),
        None => super::identity(&dir).map_err(|errno| AuditError::Read { path: path.clone(), errno })?,
    };
    let log = log.unwrap_or_default();
    if reader.take_checkpoints(&keys, &log)? {
        reader.walk(&dir, &path)?;
        reader.miss_checkpoints(&keys, &log);
    }
    Ok(reader.verdict)
}

struct Reader {
    verdict: Verdict,
    /// What the checkpoints say: event to hash.
    signed: BTreeMap<u64, String>,
    /// There is an event after which a log has a checkpoint.
    due: bool,
}

impl Reader {
    /// `false` if a checkpoint is itself bad.
    fn take_checkpoints(&mut self, keys: &Keys, log: &str) -> Result<bool, AuditError> {
        for (at, line) in keys.read(log)?.into_iter().enumerate() {
            let why = match &line {
                None => "this line is no checkpoint",
                Some(c) if self.verdict.key.as_ref() != Some(&c.key) => "this checkpoint is signed by another key",
                Some(c) if !c.holds() => "the signature of this checkpoint is wrong",
                Some(c) if self.signed.get(&c.seq).is_some_and(|hash| *hash != c.hash) => {
                    "two checkpoints of the same event differ"
                }
                Some(_) => "",
            };
            let seq = line.as_ref().map_or(0, |c| c.seq);
            if !why.is_empty() {
                let line = u64::try_from(at).unwrap_or(0) + 1;
                let file = keys.path.join(Keys::file(log));
                self.verdict.broken = Some(Broken { part: Part::Checkpoint, seq, file, line, why: why.into() });
                return Ok(false);
            }
            if let Some(Checkpoint { seq, hash, .. }) = line {
                self.signed.insert(seq, hash);
            }
        }
        Ok(true)
    }

    /// A log that was ever more than begun has checkpoints: where they are not, nothing says that it is whole.
    fn miss_checkpoints(&mut self, keys: &Keys, log: &str) {
        if self.due && self.verdict.checkpoints == 0 && self.verdict.broken.is_none() {
            self.verdict.broken = Some(Broken {
                part: Part::Checkpoint,
                seq: self.verdict.events,
                file: keys.path.join(Keys::file(log)),
                line: 0,
                why: "the checkpoints of this log are not there, so a truncation would not be seen; they lie in the keys \
                      folder of where it was written ($FUMEHOOD_KEYS)"
                    .into(),
            });
        }
    }

    fn walk(&mut self, dir: &Dir, path: &Path) -> Result<(), AuditError> {
        let aside = archives(dir).map_err(|errno| AuditError::Read { path: path.into(), errno })?;
        let active = dir.stat(ACTIVE).map_err(|errno| AuditError::Read { path: path.join(ACTIVE), errno })?;
        let files = aside.iter().map(|(last, name)| (Some(*last), name.as_str()));
        for (last, name) in files.chain(active.map(|_| (None, ACTIVE))) {
            let file = path.join(name);
            if !self.file(dir, name, &file, last.is_none())? {
                return Ok(());
            }
            if last.is_some_and(|last| last != self.verdict.events) {
                self.verdict.broken = Some(Broken {
                    part: Part::Event,
                    seq: self.verdict.events + 1,
                    file,
                    line: 0,
                    why: "the events at the end of this file are missing".into(),
                });
                return Ok(());
            }
        }
        let last = self.signed.last_key_value().map_or(0, |(seq, _)| *seq);
        if last > self.verdict.events {
            self.verdict.broken = Some(Broken {
                part: Part::Event,
                seq: self.verdict.events + 1,
                file: path.join(ACTIVE),
                line: 0,
                why: format!("the log ends here, but event {last} was signed: it was cut off"),
            });
        }
        Ok(())
    }

    /// `false` at the first bad event.
    fn file(&mut self, dir: &Dir, name: &str, path: &Path, last: bool) -> Result<bool, AuditError> {
        let failed = |errno| AuditError::Read { path: path.into(), errno };
        let file = dir.open_file(name, OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        match FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(failed)?.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(failed(Errno::ISDIR)),
            // A pipe would be read as a log that ends at once.
            FileType::Symlink
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(failed(Errno::INVAL)),
        }
        let mut lines = BufReader::with_capacity(1 << 16, file);
        let mut number = 0;
        let mut line = Vec::new();
        loop {
            line.clear();
            (&mut lines).take(MAX_LINE).read_until(b'\n', &mut line).map_err(|e| failed(errno_of(&e)))?;
            if line.is_empty() {
                return Ok(true);
            }
            number += 1;
            if line.pop_if(|b| *b == b'\n').is_none() {
                if last && u64::try_from(line.len()).unwrap_or(u64::MAX) < MAX_LINE {
                    self.verdict.torn = u64::try_from(line.len()).unwrap_or(0);
                    return Ok(true);
                }
                self.broken(path, number, "this line has no end".into());
                return Ok(false);
            }
            if let Some(why) = self.event(&line) {
                self.broken(path, number, why);
                return Ok(false);
            }
        }
    }

    /// Why this line is not the next event; `None` if it is.
    fn event(&mut self, line: &[u8]) -> Option<String> {
        let expected = self.verdict.events + 1;
        let event = match Event::parse(line) {
            Ok(event) => event,
            Err(NotAnEvent::Shape) => return Some("this line is no event".into()),
            Err(NotAnEvent::Spelling) => return Some("this line is not spelled as we spell it: it was edited".into()),
            Err(NotAnEvent::Hash) => return Some("its content does not have its hash: it was edited".into()),
        };
        if event.seq != expected {
            return Some(format!("event {} stands where {expected} should: events were removed or moved", event.seq));
        }
        if event.prev != self.verdict.head {
            return Some("it does not follow from the event before: one of the two was replaced".into());
        }
        match self.signed.get(&expected) {
            Some(hash) if *hash != event.hash => {
                return Some("its checkpoint was signed with another hash: it was rewritten".into());
            }
            Some(_) => {
                self.verdict.checkpoints += 1;
                self.verdict.sealed_to = expected;
            }
            None => {}
        }
        // A log that was only begun, or mended after a crash, has none yet.
        self.due |= !super::log::is_before_go(&event.kind) && event.kind != "audit.recovered";
        self.verdict.events = expected;
        self.verdict.head = event.hash;
        None
    }

    fn broken(&mut self, path: &Path, line: u64, why: String) {
        let seq = self.verdict.events + 1;
        self.verdict.broken = Some(Broken { part: Part::Event, seq, file: path.into(), line, why });
    }
}
