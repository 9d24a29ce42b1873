//! A kept copy of what a sandbox sees as `/etc`: one read-only mount at each start instead of two dozen.
//!
//! # Promises
//! The copy shows what `resources/etc.toml` names, the synthetic files, and nothing else; files and folders that not
//! everybody may read are left out. Whatever changes on the host is noticed at the next start: an index lists every
//! folder and file that was looked at with its inode and change time (which nobody can set), and one difference makes a
//! new copy. A copy in use is never removed: each run holds a shared lock on it.
//!
//! It lies in a runtime folder, whose path names no user: `/proc/self/mountinfo` shows that path inside.
//!
//! # Must not
//! Stand in the way. Whatever it does not understand (a strange owner, a chain of links, a file system without room) is
//! no error: the caller then binds the host's files one by one.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::hash::{Hash as _, Hasher as _};
use std::io::{Error, ErrorKind, Result, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::etc::{self, Names};
use crate::host::CAREFUL;

/// The folder that is copied.
const HOST: &str = "/etc";
/// Changes with the format of the index and of the copy.
const FORMAT: &str = "fumehood-etc 1";
/// Bounds of a copy; a host with more than this binds.
const MAX_ENTRIES: usize = 8192;
const MAX_BYTES: u64 = 16 << 20;
const MAX_DEPTH: usize = 12;
/// Kept copies: one for each user and host name of the policies. More than these are bound.
const MAX_COPIES: usize = 8;
/// An index is dropped after so long, its copy once nobody uses it; the next start makes both anew.
const KEEP: Duration = Duration::from_secs(30 * 24 * 3600);
/// An index that is being written is younger than this.
const WRITING: Duration = Duration::from_secs(60);
/// A file that changed so shortly before it was copied may change again without a new change time.
const SETTLED: Duration = Duration::from_millis(100);

/// A copy, held for as long as this lives.
#[derive(Debug)]
pub(super) struct Copy {
    /// Its folder.
    pub(super) path: PathBuf,
    /// Who and what it is.
    pub(super) meta: Metadata,
    /// Its folder with the shared lock.
    pub(super) lock: File,
}

/// The copy for this user and host name, made if there is none that is up to date.
///
/// # Errors
/// None can be had; the reason is for nobody but a debugger.
pub(super) fn copy(cache: &Path, names: Names<'_>) -> Result<Copy> {
    match std::fs::DirBuilder::new().mode(0o700).create(cache) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => ours(&cache.symlink_metadata()?)?,
        made => made?,
    }
    let header = header(names)?;
    let index = cache.join(format!("etc-{:016x}.index", hash(&header)));
    match current(cache, &index, &header) {
        Ok(copy) => Ok(copy),
        Err(_) => make(cache, &index, &header, names),
    }
}

/// Who else could write into it could show the payload anything.
fn ours(folder: &Metadata) -> Result<()> {
    let ours = folder.is_dir() && folder.uid() == sys::caller::euid() && folder.mode() & 0o077 == 0;
    if ours { Ok(()) } else { Err(stale("a folder of somebody else")) }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// Everything beside the sources that a copy depends on. It is never flushed to a disk, so none outlives a boot.
fn header(Names { user, hostname, resolver }: Names<'_>) -> Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let resolver = if resolver { "resolver" } else { "none" };
    Ok(format!("{FORMAT} {} {:016x} {user} {hostname} {resolver}", boot.trim_end(), hash(etc::TABLE)))
}

fn stale(why: &str) -> Error {
    Error::other(why)
}

/// The copy that the index names, if nothing has changed since.
fn current(cache: &Path, index: &Path, header: &str) -> Result<Copy> {
    let text = std::fs::read(index)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    if lines.next() != Some(header.as_bytes()) {
        return Err(stale("another header"));
    }
    let name = lines.next().filter(|name| !name.is_empty() && !name.contains(&b'/')).ok_or_else(|| stale("no name"))?;
    let copy = hold(cache.join(OsStr::from_bytes(name)))?;
    let mut complete = false;
    for line in lines {
        let Some((stamp, path)) = cut(line) else {
            complete = line == b"end";
            break;
        };
        if Stamp::read(stamp) != Some(Stamp::of(&Path::new(OsStr::from_bytes(path)).symlink_metadata()?)) {
            return Err(stale("something changed"));
        }
    }
    if complete { Ok(copy) } else { Err(stale("a torn index")) }
}

/// `stamp/path`; the path keeps its slash.
fn cut(line: &[u8]) -> Option<(&[u8], &[u8])> {
    line.split_at_checked(line.iter().position(|byte| *byte == b'/')?)
}

fn hold(path: PathBuf) -> Result<Copy> {
    let lock = OpenOptions::new().read(true).custom_flags(CAREFUL).open(&path)?;
    // Whoever removes it has an exclusive lock.
    lock.try_lock_shared().map_err(|_held| stale("it is being removed"))?;
    let meta = lock.metadata()?;
    // A folder that was removed before we had the lock has no links any more.
    if !meta.is_dir() || meta.nlink() == 0 {
        return Err(stale("it was removed"));
    }
    Ok(Copy { path, meta, lock })
}

/// What must be the same for a source to be unchanged.
#[derive(PartialEq, Eq)]
struct Stamp([u64; 4]);

impl Stamp {
    fn of(meta: &Metadata) -> Self {
        Self([meta.dev(), meta.ino(), meta.ctime().unsigned_abs(), meta.ctime_nsec().unsigned_abs()])
    }

    /// The text of one: numbers with a blank behind each.
    fn read(text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let mut next = || u64::from_str_radix(words.next()?, 16).ok();
        Some(Self([next()?, next()?, next()?, next()?]))
    }

    fn text(&self) -> String {
        let [dev, ino, seconds, nanos] = self.0;
        format!("{dev:x} {ino:x} {seconds:x} {nanos:x} ")
    }
}

/// Makes a copy and its index. Both become visible by a rename.
fn make(cache: &Path, index: &Path, header: &str, names: Names<'_>) -> Result<Copy> {
    let others =
        std::fs::read_dir(cache)?.flatten().filter(|entry| entry.path() != index).map(|entry| entry.file_name());
    if others.filter(|name| name.as_bytes().ends_with(b".index")).count() >= MAX_COPIES {
        return Err(stale("too many copies"));
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let name = format!("etc-{}-{}", std::process::id(), since.as_nanos());
    let to = cache.join(&name);
    std::fs::DirBuilder::new().mode(0o755).create(&to)?;
    std::fs::set_permissions(&to, Permissions::from_mode(0o755))?;
    let copy = hold(to)?;
    let mut work =
        Work { index: format!("{header}\n{name}\n").into_bytes(), entries: 0, bytes: 0, newest: Duration::ZERO };
    let made = work.all(&copy.path, names).and_then(|()| {
        if work.newest + SETTLED > since {
            return Err(stale("the sources have not settled"));
        }
        work.index.extend_from_slice(b"end\n");
        let fresh = cache.join(format!("{name}.index-new"));
        let written = std::fs::write(&fresh, &work.index).and_then(|()| std::fs::rename(&fresh, index));
        if written.is_err() {
            drop(std::fs::remove_file(&fresh));
        }
        written
    });
    match made {
        Ok(()) => {
            // What is left over now is a copy that the index named before, unless a run still holds it.
            let _removed = sweep(cache);
            Ok(copy)
        }
        Err(error) => {
            drop(std::fs::remove_dir_all(&copy.path));
            Err(error)
        }
    }
}

struct Work {
    index: Vec<u8>,
    entries: usize,
    bytes: u64,
    newest: Duration,
}

impl Work {
    fn all(&mut self, to: &Path, shown: Names<'_>) -> Result<()> {
        let host = Path::new(HOST);
        // First the stamp, then the look: a change between the two is noticed at the next start.
        self.trusted_folder(host, &host.symlink_metadata()?)?;
        let mut names = Vec::new();
        for entry in std::fs::read_dir(host)? {
            names.extend(entry?.file_name().into_string().ok());
        }
        for name in etc::shown(&names) {
            let from = host.join(name);
            let meta = from.symlink_metadata()?;
            let (from, meta) = if meta.is_symlink() {
                match direct_target(&from)? {
                    // A dangling link (a half-removed package) is as good as a missing file.
                    None => continue,
                    Some(target) => (target.clone(), target.symlink_metadata()?),
                }
            } else {
                (from, meta)
            };
            self.one(&from, &meta, &to.join(name), 0)?;
        }
        for (name, content) in etc::synthetic(shown) {
            write_new(&to.join(name), 0o644)?.write_all(&content)?;
        }
        symlink("/proc/self/mounts", to.join("mtab"))
    }

    fn stamp(&mut self, path: &Path, meta: &Metadata) -> Result<()> {
        let bytes = path.as_os_str().as_bytes();
        if bytes.contains(&b'\n') {
            return Err(stale("a name with a line break"));
        }
        let changed = Duration::new(meta.ctime().unsigned_abs(), u32::try_from(meta.ctime_nsec()).unwrap_or(0));
        self.newest = self.newest.max(changed);
        self.index.extend_from_slice(Stamp::of(meta).text().as_bytes());
        self.index.extend_from_slice(bytes);
        self.index.push(b'\n');
        Ok(())
    }

    fn count(&mut self, bytes: u64) -> Result<()> {
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        if self.entries > MAX_ENTRIES || self.bytes > MAX_BYTES { Err(stale("too large")) } else { Ok(()) }
    }

    /// Nobody but root and we may be able to swap what is in it.
    fn trusted_folder(&mut self, path: &Path, meta: &Metadata) -> Result<()> {
        self.stamp(path, meta)?;
        if meta.uid() != 0 && meta.uid() != sys::caller::euid() || meta.mode() & 0o022 != 0 {
            return Err(stale("a folder that others write to"));
        }
        Ok(())
    }

    fn one(&mut self, from: &Path, meta: &Metadata, to: &Path, depth: usize) -> Result<()> {
        self.count(meta.len())?;
        let kind = meta.file_type();
        if kind.is_symlink() {
            symlink(std::fs::read_link(from)?, to)
        } else if kind.is_dir() {
            self.folder(from, meta, to, depth)
        } else if kind.is_file() {
            self.file(from, meta, to)
        } else {
            Ok(())
        }
    }

    fn folder(&mut self, from: &Path, meta: &Metadata, to: &Path, depth: usize) -> Result<()> {
        self.trusted_folder(from, meta)?;
        if depth > MAX_DEPTH {
            return Err(stale("too deep"));
        }
        // Private keys, for one.
        if meta.mode() & 0o005 != 0o005 {
            return Ok(());
        }
        std::fs::DirBuilder::new().mode(0o755).create(to)?;
        std::fs::set_permissions(to, Permissions::from_mode(0o755))?;
        for entry in std::fs::read_dir(from)? {
            let name = entry?.file_name();
            let (from, to) = (from.join(&name), to.join(&name));
            self.one(&from, &from.symlink_metadata()?, &to, depth + 1)?;
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, meta: &Metadata, to: &Path) -> Result<()> {
        self.stamp(from, meta)?;
        if meta.mode() & 0o004 == 0 {
            return Ok(());
        }
        let mut source = OpenOptions::new().read(true).custom_flags(CAREFUL).open(from)?;
        if Stamp::of(&source.metadata()?).0 != Stamp::of(meta).0 {
            return Err(stale("it changed meanwhile"));
        }
        let mode = if meta.mode() & 0o111 == 0 { 0o644 } else { 0o755 };
        let mut file = write_new(to, mode)?;
        let copied = std::io::copy(&mut std::io::Read::take(&mut source, MAX_BYTES), &mut file)?;
        if copied != meta.len() || Stamp::of(&source.metadata()?).0 != Stamp::of(meta).0 {
            return Err(stale("it changed meanwhile"));
        }
        file.set_modified(meta.modified()?)
    }
}

/// The umask of the caller does not count: the payload is somebody else.
fn write_new(path: &Path, mode: u32) -> Result<File> {
    let file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    Ok(file)
}

/// Where a link leads, if it leads there without a second link (whose change nobody would notice).
fn direct_target(link: &Path) -> Result<Option<PathBuf>> {
    let Some(way) = link.metadata().ok().and_then(|_there| sys::path_walk::of(link)) else { return Ok(None) };
    if way.links == [link] { Ok(Some(way.end)) } else { Err(stale("a chain of links")) }
}

/// Removes copies that no index names and no run holds, and indexes that are old. How many copies it removed.
#[must_use]
pub fn sweep(cache: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(cache) else { return 0 };
    let (mut copies, mut named) = (Vec::new(), Vec::new());
    for entry in entries.flatten() {
        let name = entry.file_name().into_vec();
        let age = entry.metadata().and_then(|meta| meta.modified()).ok().and_then(|at| at.elapsed().ok());
        let keep = if name.ends_with(b".index") { KEEP } else { WRITING };
        if name.starts_with(b"etc-") && !name.windows(6).any(|part| part == b".index") {
            copies.push(name);
        } else if age.is_some_and(|age| age > keep) {
            drop(std::fs::remove_file(entry.path()));
        } else if let Ok(text) = std::fs::read(entry.path()) {
            named.extend(text.split(|byte| *byte == b'\n').nth(1).map(<[u8]>::to_vec));
        }
    }
    copies.iter().filter(|name| !named.contains(name) && remove(&cache.join(OsStr::from_bytes(name)))).count()
}

fn remove(copy: &Path) -> bool {
    let lock = OpenOptions::new().read(true).custom_flags(CAREFUL).open(copy);
    lock.is_ok_and(|lock| lock.try_lock().is_ok() && std::fs::remove_dir_all(copy).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'static> = Names { user: "user", hostname: "sandbox", resolver: false };

    fn cache() -> PathBuf {
        static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        PathBuf::from(format!("/tmp/fumehood-etc-{}-{number}", std::process::id()))
    }

    fn copies(cache: &Path) -> usize {
        std::fs::read_dir(cache).unwrap().flatten().filter(|entry| entry.path().is_dir()).count()
    }

    #[test]
    fn a_copy_shows_no_account_and_no_private_file_of_the_host() {
        let cache = cache();
        let made = copy(&cache, NAMES).unwrap();
        assert_eq!(std::fs::read(made.path.join("hostname")).unwrap(), b"sandbox\n");
        assert!(std::fs::read_to_string(made.path.join("passwd")).unwrap().contains("user:x:1000"));
        assert!(!made.path.join("shadow").exists());
        assert!(!made.path.join("ssl/private").exists());
        let table: Vec<String> =
            std::fs::read_dir(HOST).unwrap().flatten().map(|e| e.file_name().into_string().unwrap()).collect();
        let ours = ["passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "hostname", "machine-id", "mtab"];
        let shown = etc::shown(&table);
        for entry in std::fs::read_dir(&made.path).unwrap().flatten() {
            let name = entry.file_name().into_string().unwrap();
            assert!(shown.contains(&name.as_str()) || ours.contains(&name.as_str()), "{name}");
        }
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn a_copy_is_used_again_until_something_changes() {
        let cache = cache();
        let first = copy(&cache, NAMES).unwrap();
        assert_eq!(copy(&cache, NAMES).unwrap().path, first.path);
        let index = cache.join(format!("etc-{:016x}.index", hash(&header(NAMES).unwrap())));
        let text = std::fs::read_to_string(&index).unwrap();
        let line = text.lines().find(|line| line.ends_with(" /etc")).unwrap();
        std::fs::write(&index, text.replace(line, "1 2 3 4 /etc")).unwrap();
        assert_ne!(copy(&cache, NAMES).unwrap().path, first.path);
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn a_copy_in_use_stays_and_goes_when_it_is_let_go() {
        let cache = cache();
        let held = copy(&cache, NAMES).unwrap();
        for entry in std::fs::read_dir(&cache).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            std::fs::remove_file(entry.path()).unwrap();
        }
        assert_eq!(sweep(&cache), 0);
        drop(held);
        assert_eq!((sweep(&cache), copies(&cache)), (1, 0));
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn a_folder_that_others_write_to_is_not_believed() {
        let cache = cache();
        drop(copy(&cache, NAMES).unwrap());
        std::fs::set_permissions(&cache, Permissions::from_mode(0o777)).unwrap();
        assert!(copy(&cache, NAMES).is_err());
        std::fs::remove_dir_all(cache).unwrap();
    }

    #[test]
    fn a_link_is_followed_where_no_second_one_could_change_its_end() {
        let folder = cache();
        std::fs::create_dir_all(folder.join("real")).unwrap();
        std::fs::write(folder.join("real/file"), "").unwrap();
        for (name, target) in [
            ("one", "real/../real/file"),
            ("two", "one"),
            ("way", "real"),
            ("through", "way/file"),
            ("dangling", "none"),
            ("above-nothing", "none/../real/file"),
            ("round", "round"),
        ] {
            symlink(target, folder.join(name)).unwrap();
        }
        let of = |name: &str| direct_target(&folder.join(name)).ok();
        assert_eq!(of("one"), Some(Some(folder.join("real/file"))));
        assert_eq!([of("two"), of("through")], [None, None], "a chain");
        assert_eq!([of("dangling"), of("above-nothing"), of("round")], [Some(None), Some(None), Some(None)]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_torn_index_is_not_believed() {
        let cache = cache();
        let first = copy(&cache, NAMES).unwrap();
        let index = cache.join(format!("etc-{:016x}.index", hash(&header(NAMES).unwrap())));
        let text = std::fs::read(&index).unwrap();
        std::fs::write(&index, &text[..text.len() / 2]).unwrap();
        assert_ne!(copy(&cache, NAMES).unwrap().path, first.path);
        std::fs::remove_dir_all(cache).unwrap();
    }
}
