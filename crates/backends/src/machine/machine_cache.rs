//! Prepared machines: what the memory and the devices of one were while its first process waited, before anything of a run was
//! in it, so that later ones begin there and need not boot.
//!
//! # Promises
//! One that is used belongs to the caller alone, has the digest that its name says, was made by the same emulator with the same
//! words, the same kernel and the same agent, and is not older than a day. What is not so is no error: the machine boots then.
//! # Must not
//! Hold anything of a run, or be shared: machines that began with the same memory have the same addresses in their kernels.

use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{Error, Result, Seek as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest as _, Sha256};

use super::outer;
use crate::host::{CAREFUL, Emulation};

/// Changes with what init and supervisor say to each other before the machine is a run's.
const FORMAT: &str = "fumehood-machine 1";
/// No machine begins with older memory.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// One that is being written is younger than this.
const WRITING: Duration = Duration::from_secs(600);
/// Most of them: one for each size of memory and number of processors that is in use.
const MAX_KEPT: usize = 4;
/// What one that is being written ends with.
const NEW: &str = ".new";
/// Read at once.
const CHUNK: usize = 256 * 1024;

/// Where those of one kind are.
#[derive(Debug)]
pub(super) struct MachineCache {
    folder: PathBuf,
    /// The digest of what all of its kind have in common.
    kind: String,
}

impl MachineCache {
    /// Those that this emulator made with these words.
    pub(super) fn of(folder: &Path, emulation: &Emulation, words: &[OsString]) -> Result<Self> {
        Ok(Self { folder: folder.to_owned(), kind: kind(emulation, words)? })
    }

    /// One that can be used, open at its beginning.
    pub(super) fn find(&self) -> Option<File> {
        let entries = std::fs::read_dir(&self.folder).ok()?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter_map(|name| Some(self.open(&name, name.strip_prefix(&self.kind)?.strip_prefix('.')?)))
            .find_map(Result::ok)
    }

    /// Removes all of the kind: one could not be read, and the next machine boots.
    pub(super) fn forget(&self) {
        for entry in std::fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&self.kind) {
                drop(std::fs::remove_file(entry.path()));
            }
        }
    }

    fn open(&self, name: &str, digest: &str) -> Result<File> {
        let mut file = OpenOptions::new().read(true).custom_flags(CAREFUL).open(self.folder.join(name))?;
        ours(&file.metadata()?)?;
        if hashed(&mut file, &mut std::io::sink(), u64::MAX)?.0 != digest {
            return Err(Error::other("its digest is another"));
        }
        file.rewind()?;
        Ok(file)
    }

    /// Keeps all that can be read, of at most so many bytes; what is too much of the others goes.
    pub(super) fn keep(&self, from: &mut dyn std::io::Read, most: u64) -> Result<()> {
        let _gone = sweep(&self.folder, MAX_KEPT.saturating_sub(1));
        let new = self.folder.join(format!("{}-{}{NEW}", self.kind, std::process::id()));
        let kept = self.write(&new, from, most);
        if kept.is_err() {
            drop(std::fs::remove_file(&new));
        }
        kept
    }

    fn write(&self, new: &Path, from: &mut dyn std::io::Read, most: u64) -> Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(new)?;
        let (digest, _bytes) = hashed(from, &mut file, most)?;
        std::fs::rename(new, self.folder.join(format!("{}.{digest}", self.kind)))
    }
}

/// Copies all of it, at most so many bytes; its digest, and how many it were.
pub(super) fn hashed(from: &mut dyn std::io::Read, to: &mut dyn std::io::Write, most: u64) -> Result<(String, u64)> {
    let (mut all, mut count, mut part) = (Sha256::new(), 0_u64, vec![0; CHUNK]);
    loop {
        let read = from.read(&mut part)?;
        let bytes = part.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok((hexadecimal(all), count));
        }
        count = count.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        if count > most {
            return Err(Error::other("it is more than a machine has"));
        }
        all.update(bytes);
        to.write_all(bytes)?;
    }
}

/// The digest of all that machines must have in common for one to begin with the memory of another.
pub(super) fn kind(emulation: &Emulation, words: &[OsString]) -> Result<String> {
    let program = emulation.program.metadata()?;
    let mut all = Sha256::new();
    let mut part = |bytes: &[u8]| {
        all.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_le_bytes());
        all.update(bytes);
    };
    part(FORMAT.as_bytes());
    part(agent::ELF);
    part(emulation.kernel.digest().as_bytes());
    part(emulation.version.as_bytes());
    // The emulator is the system's: a change of its file shows in these.
    for number in [program.dev(), program.ino(), program.len(), program.ctime().unsigned_abs()] {
        part(&number.to_le_bytes());
    }
    words.iter().for_each(|word| part(word.as_encoded_bytes()));
    // A processor of the host's goes on from nothing but what the same one was under the same kernel.
    if words.iter().any(|word| word == outer::ON_KVM) {
        part(processor(&std::fs::read_to_string("/proc/cpuinfo")?).as_bytes());
        part(sys::caller::kernel_release().as_bytes());
    }
    Ok(hexadecimal(all))
}

/// What tells the first of these processors from others: maker, model, microcode and what it can do.
fn processor(list: &str) -> String {
    let facts = ["vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags"];
    let lines = list.lines().take_while(|line| !line.is_empty());
    let of = |line: &&str| line.split_once(':').is_some_and(|(name, _)| facts.contains(&name.trim_end()));
    lines.filter(of).collect::<Vec<_>>().join("\n")
}

/// Removes prepared machines of a folder: what is too old, of nobody who writes it any more, or beyond the newest `most`; the files
/// that are gone.
#[must_use]
pub fn sweep(folder: &Path, most: usize) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut whole = Vec::new();
    let mut gone = Vec::new();
    for entry in entries.flatten() {
        let (path, age) = (entry.path(), entry.metadata().ok().and_then(|meta| age(&meta)));
        let new = path.extension().is_some_and(|ending| ending == "new");
        match age {
            Some(age) if new && age < WRITING => {}
            Some(age) if !new && age < OLDEST => whole.push((age, path)),
            Some(_) | None => gone.push(path),
        }
    }
    whole.sort();
    gone.extend(whole.into_iter().skip(most).map(|(_, path)| path));
    gone.retain(|path| std::fs::remove_file(path).is_ok());
    gone
}

/// How old a file is; `None` where it is of the future.
fn age(meta: &Metadata) -> Option<Duration> {
    SystemTime::now().duration_since(meta.modified().ok()?).ok()
}

/// A file of the caller's alone that is not too old.
fn ours(meta: &Metadata) -> Result<()> {
    let ours = meta.is_file() && meta.uid() == sys::caller::euid() && meta.mode() & 0o177 == 0 && meta.nlink() == 1;
    if !ours {
        return Err(Error::other("it is not a file of the caller's alone"));
    }
    match age(meta) {
        Some(age) if age < OLDEST => Ok(()),
        Some(_) | None => Err(Error::other("it is too old")),
    }
}

fn hexadecimal(all: Sha256) -> String {
    all.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct CacheFixture {
        folder: tempfile::TempDir,
        kept: MachineCache,
    }

    impl CacheFixture {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let kept = Self::kind(folder.path(), "512M");
            Self { folder, kept }
        }

        fn kind(folder: &Path, word: &str) -> MachineCache {
            let emulation = Emulation { program: std::env::current_exe().unwrap(), ..Emulation::assumed() };
            MachineCache::of(folder, &emulation, &[word.into()]).unwrap()
        }

        fn only(&self) -> PathBuf {
            let mut all = std::fs::read_dir(self.folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let only = all.next().unwrap();
            assert!(all.next().is_none());
            only
        }

        fn found(&self) -> Option<String> {
            self.kept.find().map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            })
        }
    }

    #[test]
    fn what_was_kept_is_found_by_its_own_kind_alone() {
        let place = CacheFixture::new();
        assert_eq!(place.found(), None);
        place.kept.keep(&mut &b"memory"[..], 100).unwrap();
        assert_eq!(place.found().as_deref(), Some("memory"));
        assert_eq!(place.only().metadata().unwrap().mode() & 0o777, 0o600);
        assert!(CacheFixture::kind(place.folder.path(), "256M").find().is_none());
    }

    #[test]
    fn on_kvm_it_is_of_one_kind_of_processor() {
        let list = |microcode: &str, speed: &str| {
            format!(
                "processor\t: 0\nmodel name\t: A\nmicrocode\t: {microcode}\ncpu MHz\t\t: {speed}\nflags\t\t: fpu\n\nprocessor\t: 1\nflags\t: z\n"
            )
        };
        assert_eq!(processor(&list("1", "800")), "model name\t: A\nmicrocode\t: 1\nflags\t\t: fpu");
        assert_eq!(processor(&list("1", "800")), processor(&list("1", "900")));
        assert_ne!(processor(&list("1", "800")), processor(&list("2", "800")));
        let kind = |word: &str| {
            let emulation = Emulation { program: std::env::current_exe().unwrap(), ..Emulation::assumed() };
            super::kind(&emulation, &[word.into()]).unwrap()
        };
        assert_ne!(kind(outer::ON_KVM), kind("tcg"));
    }

    #[test]
    fn what_is_not_whole_or_not_the_callers_alone_is_not_used() {
        let place = CacheFixture::new();
        place.kept.keep(&mut &b"memory"[..], 100).unwrap();
        let path = place.only();
        std::fs::write(&path, "memorY").unwrap();
        assert_eq!(place.found(), None, "another digest");
        std::fs::write(&path, "memory").unwrap();
        assert_eq!(place.found().as_deref(), Some("memory"));
        for mode in [0o640, 0o602, 0o700] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(place.found(), None, "{mode:o}");
        }
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        let aside = place.folder.path().join("aside");
        std::fs::hard_link(&path, &aside).unwrap();
        assert_eq!(place.found(), None, "another name for it");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&aside, &path).unwrap();
        assert_eq!(place.found(), None, "a link");
    }

    #[test]
    fn one_that_is_a_day_old_or_of_the_future_is_not_used_and_is_removed() {
        let place = CacheFixture::new();
        for (by, past) in [(OLDEST, true), (WRITING, false)] {
            place.kept.keep(&mut &b"memory"[..], 100).unwrap();
            let now = SystemTime::now();
            let then = if past { now.checked_sub(by) } else { now.checked_add(by) };
            OpenOptions::new().write(true).open(place.only()).unwrap().set_modified(then.unwrap()).unwrap();
            assert_eq!(place.found(), None);
            assert_eq!(sweep(place.folder.path(), MAX_KEPT).len(), 1);
        }
    }

    #[test]
    fn more_than_a_machine_has_is_not_kept_and_only_the_newest_stay() {
        let place = CacheFixture::new();
        assert!(place.kept.keep(&mut &b"memory"[..], 5).is_err());
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), 0);
        for number in 0..MAX_KEPT + 2 {
            CacheFixture::kind(place.folder.path(), &number.to_string()).keep(&mut &b"memory"[..], 100).unwrap();
        }
        assert_eq!(std::fs::read_dir(place.folder.path()).unwrap().count(), MAX_KEPT);
        assert!(CacheFixture::kind(place.folder.path(), &(MAX_KEPT + 1).to_string()).find().is_some());
    }
}
