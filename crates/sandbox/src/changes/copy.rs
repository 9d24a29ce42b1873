//! Workspace mode `copy`: the tree is copied before the run, and what differs afterwards is what changed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};

use super::ChangesError;
use super::manifest::{Change, Entry, Fingerprint, HASHED, Kind, Refused, listed};
use super::store::{Bounds, FOREIGN, MAX_DEPTH, Store, stream, too_deep};
use super::upper::special;
use crate::state::{Cross, Dir};

const REPLACED: &str = "it was replaced while it was read";

/// Why a copy lacks what is mounted.
pub const MOUNTED: &str = "a file system is mounted there, and a copy does not enter those";

/// What was copied: the host's side and ours of each path.
#[derive(Clone, Debug, Default)]
pub struct Baseline {
    /// By path: what the host had, and what our copy was.
    pub entries: BTreeMap<PathBuf, (Fingerprint, Fingerprint)>,
    /// Not copied, and why.
    pub refused: Vec<Refused>,
    left: Option<Bounds>,
}

/// Copies a tree. Links are copied as links, pipes, sockets and devices are left out, other mounts are not entered, and
/// set-user-id bits stay behind. It is done with the rights that the calling thread has: what those do not open is left
/// out, and what is made belongs to them.
///
/// # Errors
/// [`ChangesError`]; `TooLarge` if the tree is beyond `bounds`: half a copy is none.
pub fn copy_in(from: &Dir, into: &Dir, bounds: Bounds) -> Result<Baseline, ChangesError> {
    let mut baseline = Baseline { left: Some(bounds), ..Baseline::default() };
    let mut at = PathBuf::new();
    match baseline.folder(from, into, &mut at, 0) {
        Ok(()) => Ok(baseline),
        Err(errno @ (Errno::FBIG | Errno::NOSPC | Errno::DQUOT)) => Err(ChangesError::TooLarge { path: at, errno }),
        Err(errno) => Err(ChangesError::Read { path: at, errno }),
    }
}

impl Baseline {
    fn folder(&mut self, from: &Dir, into: &Dir, at: &mut PathBuf, depth: usize) -> KernelResult<()> {
        for name in from.names()? {
            at.push(&name);
            self.child(from, into, &name, at, depth)?;
            at.pop();
        }
        Ok(())
    }

    fn child(&mut self, from: &Dir, into: &Dir, name: &OsStr, at: &mut PathBuf, depth: usize) -> KernelResult<()> {
        let Some(stat) = from.stat(name)? else { return Ok(()) };
        let mut host = Fingerprint::from_stat(&stat);
        let file_name = Path::new(name);
        let left = self.left.get_or_insert_default();
        left.entries = left.entries.checked_sub(1).ok_or(Errno::FBIG)?;
        if host.kind == Kind::File && host.size > left.bytes {
            // Before a byte of it is read: a sparse file may be larger than all disks.
            return Err(Errno::FBIG);
        }
        match host.kind {
            Kind::Special => {
                self.refused.push(Refused::new(at.clone(), special(stat.st_mode)));
                return Ok(());
            }
            Kind::Symlink => {
                let target = rustix::fs::readlinkat(from, file_name, Vec::new())?;
                rustix::fs::symlinkat(&target, into, file_name)?;
                host.target = Some(policy::json::hex(target.as_bytes()));
            }
            Kind::File => match from.open_file(name, OFlags::RDONLY, Mode::empty()) {
                Ok(source) => {
                    host = Fingerprint::from_stat(&rustix::fs::fstat(&source)?);
                    if host.kind != Kind::File {
                        self.refused.push(Refused::new(at.clone(), REPLACED));
                        return Ok(());
                    }
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
                    let mut copy = into.open_file(name, flags, Mode::RUSR | Mode::WUSR)?;
                    let (sha256, length) = stream(&source, &mut copy, left.bytes)?.ok_or(Errno::FBIG)?;
                    left.bytes -= length;
                    host = Fingerprint::from_stat(&rustix::fs::fstat(&source)?);
                    let is_copied = |content: &Vec<u8>| policy::json::sha256_hex(content) == sha256;
                    let index = (name == "index").then(|| from.read(name, HASHED).ok().filter(is_copied));
                    host.listed = index.flatten().and_then(|content| listed(name, &content));
                    host.sha256 = Some(sha256);
                    rustix::fs::fchmod(&copy, Mode::from_raw_mode(host.mode & 0o777))?;
                }
                Err(errno) => {
                    self.refused.push(Refused::new(at.clone(), unreadable(errno)));
                    return Ok(());
                }
            },
            Kind::Dir => {
                let inner = match from.enter(name, Cross::No) {
                    Ok(inner) if depth < MAX_DEPTH => inner,
                    Ok(_) => return Err(Errno::NAMETOOLONG),
                    Err(errno) => {
                        let why = if errno == Errno::XDEV { MOUNTED.to_owned() } else { unreadable(errno) };
                        self.refused.push(Refused::new(at.clone(), why));
                        return Ok(());
                    }
                };
                rustix::fs::mkdirat(into, file_name, Mode::RWXU)?;
                let copy = into.enter(name, Cross::No)?;
                self.folder(&inner, &copy, at, depth + 1)?;
                rustix::fs::fchmod(&copy, Mode::from_raw_mode(host.mode & 0o777))?;
            }
        }
        let copied = into.stat(name)?.ok_or(Errno::NOENT)?;
        self.entries.insert(at.clone(), (host, Fingerprint::from_stat(&copied)));
        Ok(())
    }
}

/// Takes over what is different in `copy` from what was copied. What belongs to anybody but the copy's owner is not taken:
/// where the copy shares its file system, that user can move files of others in, which then would be read as the caller.
///
/// # Errors
/// [`ChangesError`] if the copy cannot be read, or what changed cannot be kept.
pub fn read_copy(store: &mut Store, copy: &Dir, baseline: &Baseline) -> Result<(), ChangesError> {
    let mut found = CopyContents::default();
    let mut at = PathBuf::new();
    let owner = rustix::fs::fstat(copy).map_err(|errno| store.failed(at.clone(), errno))?.st_uid;
    store.of_owner(owner);
    compare(store, copy, baseline, &mut found, &mut at, 0).map_err(|errno| store.failed(at, errno))?;
    for (path, (host, _)) in &baseline.entries {
        if found.is_gone(path, host) {
            store.add(Entry {
                path: path.clone(),
                change: Change::Removed,
                kind: host.kind,
                mode: host.mode & 0o777,
                size: host.size,
                sha256: None,
                target: None,
                stripped: false,
                base: Some(host.clone()),
                touched: false,
            });
        }
    }
    Ok(())
}

/// What a copy has of what was copied.
#[derive(Debug, Default)]
struct CopyContents {
    kinds: BTreeMap<PathBuf, Kind>,
    /// What nobody could look into: nothing is known of what lies there or below it.
    unread: BTreeSet<PathBuf>,
}

impl CopyContents {
    /// Whether a path was removed, or gave way to something else. What could not be looked into was not removed.
    fn is_gone(&self, path: &Path, host: &Fingerprint) -> bool {
        let gone = self.kinds.get(path).is_none_or(|kind| (*kind == Kind::Dir) != (host.kind == Kind::Dir));
        gone && !path.ancestors().any(|above| self.unread.contains(above))
    }

    /// Nothing at this path, or below it, is carried over.
    fn leave(&mut self, store: &mut Store, at: &Path, why: impl Into<String>) {
        self.unread.insert(at.to_owned());
        store.refuse(at, why);
    }
}

fn unreadable(errno: Errno) -> String {
    format!("it cannot be read: {errno}")
}

fn compare(
    store: &mut Store,
    dir: &Dir,
    baseline: &Baseline,
    found: &mut CopyContents,
    at: &mut PathBuf,
    depth: usize,
) -> KernelResult<()> {
    for name in dir.names()? {
        at.push(&name);
        compare_one(store, dir, &name, baseline, found, at, depth)?;
        at.pop();
    }
    Ok(())
}

#[expect(clippy::too_many_arguments, reason = "a walk carries where it is and what it found")]
fn compare_one(
    store: &mut Store,
    dir: &Dir,
    name: &OsStr,
    baseline: &Baseline,
    found: &mut CopyContents,
    at: &mut PathBuf,
    depth: usize,
) -> KernelResult<()> {
    let Some(stat) = dir.stat(name)? else { return Ok(()) };
    if store.is_foreign(stat.st_uid) {
        found.leave(store, at, FOREIGN);
        return Ok(());
    }
    let mut now = Fingerprint::from_stat(&stat);
    let then = baseline.entries.get(at.as_path());
    if then.is_some() {
        found.kinds.insert(at.clone(), now.kind);
    }
    // The base of a change is what the host had; a folder that became a file (or the other way round) is a removal too.
    let base = then.map(|(host, _)| host).filter(|host| (host.kind == Kind::Dir) == (now.kind == Kind::Dir)).cloned();
    match now.kind {
        Kind::Special => store.refuse(at, special(stat.st_mode)),
        Kind::Dir => {
            if let Some(why) = too_deep(at, depth) {
                found.leave(store, at, why);
                return Ok(());
            }
            // Before its mode is taken over: a folder that was closed is left as the host has it, whole.
            let inner = match dir.enter_to_list(name) {
                Ok(inner) => inner,
                Err(errno) => {
                    found.leave(store, at, unreadable(errno));
                    return Ok(());
                }
            };
            if store.is_foreign(rustix::fs::fstat(&inner)?.st_uid) {
                found.leave(store, at, FOREIGN);
                return Ok(());
            }
            if base.as_ref().is_none_or(|base| base.mode & 0o777 != now.mode & 0o777) {
                store.took(at, &now, None, base);
            }
            compare(store, &inner, baseline, found, at, depth + 1)?;
        }
        Kind::Symlink => {
            now.target = Some(policy::json::hex(rustix::fs::readlinkat(dir, Path::new(name), Vec::new())?.as_bytes()));
            if base.as_ref().is_none_or(|base| base.target != now.target) {
                store.took(at, &now, None, base);
            }
        }
        Kind::File => {
            // The change time of our own copy cannot be set back by the program: the same means untouched.
            let untouched = then
                .is_some_and(|(_, copy)| copy.inode == now.inode && copy.ctime == now.ctime && copy.size == now.size);
            if !untouched {
                store.file(dir, name, at, &now, base)?;
            }
        }
    }
    Ok(())
}
