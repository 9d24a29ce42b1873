//! Signed statements "event N had hash H", kept apart from the log: whoever shortens or rewrites the log would have to
//! forge them.
//!
//! Does not promise: anything against somebody who has the key too. Keep `$FUMEHOOD_KEYS` on another disk, or note the
//! public key elsewhere and verify with `--key`.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::AuditError;
use crate::state::{Dir, errno_of};
use policy::json::{canonical, hex, sha256_hex, unhex};

const KEY: &str = "audit.key";
const PUBLIC: &str = "audit.pub";
/// What is signed begins so, so that the signature fits nothing else.
const DOMAIN: &str = "fumehood audit checkpoint 1\n";
/// The longest line of a checkpoint file.
const MAX_LINE: usize = 4096;

/// One signed statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkpoint {
    /// The event.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
    /// When it was signed.
    pub time: String,
    /// The public key, hex.
    pub key: String,
    /// The signature, hex.
    pub signature: String,
}

/// The folder of the key and of the checkpoints of logs.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) dir: Dir,
    pub(super) path: PathBuf,
    /// The name of the file that says which log was signed for at this place.
    place: String,
    /// Whether what is written is brought to the disk.
    pub(super) durable: bool,
}

impl Keys {
    /// The keys for the log in the folder `log`, of the state folder `state`. Checkpoints are found by the log's identity,
    /// so that they are found for a copy too; and beside them it is written down which log lay in which place, so that one
    /// that was removed or replaced altogether is missed. Of a log in the state folder the place is told within that folder:
    /// it may be moved as a whole.
    pub(super) fn of(dir: Dir, path: PathBuf, log: &Path, state: &Path) -> Self {
        use std::os::unix::ffi::OsStrExt as _;
        let within = path.strip_prefix(state).and_then(|_| log.strip_prefix(state));
        let id = sha256_hex(within.unwrap_or(log).as_os_str().as_bytes());
        let place = format!("log-{}", id.get(..16).unwrap_or_default());
        Self { dir, path, place, durable: true }
    }

    /// The name of the file of a log's checkpoints.
    pub(super) fn file(log: &str) -> String {
        format!("checkpoints-{}.jsonl", log.get(..16).unwrap_or_default())
    }

    /// The identity of the log that was signed for at this place first.
    pub(super) fn known(&self) -> Result<Option<String>, AuditError> {
        self.text(&self.place)
    }

    /// Signs and appends one statement about the log of that identity; the caller holds the lock of the log.
    pub(super) fn sign(&self, log: &str, seq: u64, hash: &str, time: &str) -> Result<Checkpoint, AuditError> {
        let name = Self::file(log);
        if self.dir.stat(&self.place).is_ok_and(|there| there.is_none()) {
            let put = self.put(&self.place, log.as_bytes());
            put.map_err(|errno| AuditError::Write { path: self.path.join(&self.place), errno })?;
        }
        let key = self.signing_key()?;
        let public = hex(key.verifying_key().as_bytes());
        let signature = hex(&key.sign(statement(seq, hash, time, &public).as_bytes()).to_bytes());
        let checkpoint = Checkpoint { seq, hash: hash.to_owned(), time: time.to_owned(), key: public, signature };
        let line =
            json!({ "seq": seq, "hash": hash, "time": time, "key": checkpoint.key, "signature": checkpoint.signature });
        let mut line = canonical(&line);
        line.push('\n');
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND;
        let failed = |errno| AuditError::Write { path: self.path.join(&name), errno };
        let mut file = self.dir.open_file(&name, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?;
        cut_torn_end(&file).map_err(failed)?;
        file.write_all(line.as_bytes()).map_err(|e| failed(errno_of(&e)))?;
        if self.durable {
            rustix::fs::fdatasync(&file).map_err(failed)?;
        }
        Ok(checkpoint)
    }

    /// All statements, oldest first; `None` in place of a line that is none.
    pub(super) fn read(&self, log: &str) -> Result<Vec<Option<Checkpoint>>, AuditError> {
        let name = Self::file(log);
        let failed = |errno| AuditError::Read { path: self.path.join(&name), errno };
        let content = match self.dir.read(&name, 1 << 30) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let whole = content.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        let lines = content.get(..whole).unwrap_or_default().split_inclusive(|&b| b == b'\n');
        Ok(lines.map(parse).collect())
    }

    /// The event of the newest statement, by its last line alone; 0 if there is none.
    pub(super) fn newest(&self, log: &str) -> Result<u64, AuditError> {
        let name = Self::file(log);
        let failed = |errno| AuditError::Read { path: self.path.join(&name), errno };
        let file = match self.dir.open_file(&name, OFlags::RDONLY, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(0),
            other => other.map_err(failed)?,
        };
        let size = u64::try_from(rustix::fs::fstat(&file).map_err(failed)?.st_size).unwrap_or(0);
        let mut tail = vec![0; MAX_LINE];
        let from = size.saturating_sub(u64::try_from(MAX_LINE).unwrap_or(0));
        let read = rustix::io::pread(&file, tail.as_mut_slice(), from).map_err(failed)?;
        tail.truncate(read);
        Ok(tail.split(|&b| b == b'\n').rev().find_map(parse).map_or(0, |newest| newest.seq))
    }

    /// The public key in hex, if one was made.
    pub(super) fn public(&self) -> Result<Option<String>, AuditError> {
        self.text(PUBLIC)
    }

    /// One line of a small file; `None` if it is not there.
    fn text(&self, name: &str) -> Result<Option<String>, AuditError> {
        match self.dir.read(name, 256) {
            Ok(text) => Ok(Some(String::from_utf8_lossy(&text).trim().to_owned())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(AuditError::Read { path: self.path.join(name), errno }),
        }
    }

    fn signing_key(&self) -> Result<SigningKey, AuditError> {
        let bad = |why| AuditError::Key { path: self.path.join(KEY), why };
        let file = match self.dir.open_file(KEY, OFlags::RDONLY, Mode::empty()) {
            Err(Errno::NOENT) => return self.make_key(),
            other => other.map_err(|errno| AuditError::Read { path: self.path.join(KEY), errno })?,
        };
        let stat = rustix::fs::fstat(&file).map_err(|errno| AuditError::Read { path: self.path.join(KEY), errno })?;
        if stat.st_mode & 0o077 != 0 {
            return Err(bad("others may read it: it proves nothing any more"));
        }
        let mut text = Zeroizing::new(String::new());
        if file.take(256).read_to_string(&mut text).is_err() {
            return Err(bad("it is not text"));
        }
        let seed = Zeroizing::new(unhex(text.trim()).ok_or_else(|| bad("it is not hex"))?);
        let seed: &[u8; 32] = seed.as_slice().try_into().or(Err(bad("it is not 32 bytes long")))?;
        let key = SigningKey::from_bytes(seed);
        // Whoever made it had no room for the other half.
        if self.dir.stat(PUBLIC).is_ok_and(|there| there.is_none()) {
            self.put_public(&key)?;
        }
        Ok(key)
    }

    /// Makes the key at first use. A link makes it appear whole or not at all; whoever comes second takes the first's.
    fn make_key(&self) -> Result<SigningKey, AuditError> {
        let failed = |errno| AuditError::Write { path: self.path.join(KEY), errno };
        let mut seed = Zeroizing::new([0; 32]);
        if !sys::random::fill(seed.as_mut_slice()) {
            return Err(AuditError::State(crate::state::StateError::NoRandom));
        }
        let key = SigningKey::from_bytes(&seed);
        let temporary = format!("{KEY}.{}", std::process::id());
        self.put(&temporary, Zeroizing::new(hex(seed.as_slice())).as_bytes()).map_err(failed)?;
        let linked = rustix::fs::linkat(&self.dir, temporary.as_str(), &self.dir, KEY, AtFlags::empty());
        rustix::fs::unlinkat(&self.dir, temporary.as_str(), AtFlags::empty()).map_err(failed)?;
        match linked {
            Ok(()) => {}
            Err(Errno::EXIST) => return self.signing_key(),
            Err(errno) => return Err(failed(errno)),
        }
        self.put_public(&key)?;
        Ok(key)
    }

    fn put_public(&self, key: &SigningKey) -> Result<(), AuditError> {
        let put = self.put(PUBLIC, hex(key.verifying_key().as_bytes()).as_bytes());
        put.map_err(|errno| AuditError::Write { path: self.path.join(PUBLIC), errno })
    }

    /// A file of this text, or none.
    fn put(&self, name: &str, text: &[u8]) -> rustix::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let mut file = self.dir.open_file(name, flags, Mode::RUSR | Mode::WUSR)?;
        let written = file.write_all(text).and_then(|()| file.write_all(b"\n")).map_err(|e| errno_of(&e));
        if written.is_err() {
            rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()).unwrap_or_default();
        }
        if self.durable { written.and_then(|()| rustix::fs::fsync(&file)) } else { written }
    }
}

impl Checkpoint {
    /// Whether the signature is the statement's, under its own key.
    #[must_use]
    pub fn holds(&self) -> bool {
        let text = statement(self.seq, &self.hash, &self.time, &self.key);
        let key = unhex(&self.key).and_then(|k| k.try_into().ok()).and_then(|k| VerifyingKey::from_bytes(&k).ok());
        let signature = unhex(&self.signature).and_then(|s| s.try_into().ok()).map(|s| Signature::from_bytes(&s));
        match (key, signature) {
            (Some(key), Some(signature)) => key.verify_strict(text.as_bytes(), &signature).is_ok(),
            (None, _) | (_, None) => false,
        }
    }
}

fn statement(seq: u64, hash: &str, time: &str, key: &str) -> String {
    format!("{DOMAIN}{}", canonical(&json!({ "seq": seq, "hash": hash, "time": time, "key": key })))
}

fn parse(line: &[u8]) -> Option<Checkpoint> {
    let value: Value = serde_json::from_slice(line).ok()?;
    let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Checkpoint {
        seq: value.get("seq")?.as_u64()?,
        hash: text("hash")?,
        time: text("time")?,
        key: text("key")?,
        signature: text("signature")?,
    })
}

/// A crash in the middle of an append leaves half a line: what comes next must not be glued to it.
fn cut_torn_end(file: &File) -> rustix::io::Result<()> {
    let size = u64::try_from(rustix::fs::fstat(file)?.st_size).unwrap_or(0);
    let from = size.saturating_sub(u64::try_from(MAX_LINE).unwrap_or(u64::MAX));
    let mut tail = vec![0; MAX_LINE];
    let read = rustix::io::pread(file, tail.as_mut_slice(), from)?;
    tail.truncate(read);
    match tail.iter().rposition(|&b| b == b'\n') {
        Some(at) if at + 1 == tail.len() => Ok(()),
        Some(at) => rustix::fs::ftruncate(file, from + u64::try_from(at).unwrap_or(0) + 1),
        None if from == 0 => rustix::fs::ftruncate(file, 0),
        None => Err(Errno::IO),
    }
}
