//! A file from what is sent: under a name of its own until it is whole, then in its place.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::read::regular;
use super::{Progress, Task};
use crate::files::failure::{at, failure};
use crate::files::{entry, place};
use crate::flow::Io;
use crate::inside::Inside;
use crate::words::{Code, Failure};

/// Permission bits of a new file.
const MODE: u32 = 0o644;
/// Most pairs and bytes of metadata.
const METADATA: usize = 16 * 1024;
/// Longest value of it: a program sets no attribute of a kilobyte (`resources/seccomp/attributes.toml`).
const MAX_ATTRIBUTE: usize = 1023;

/// How the name of a file begins that is not whole yet; 16 hexadecimal digits follow, and what it is going to be.
const TEMPORARY: &str = ".fumehood-";

/// What a file is going to be that is not whole yet: its name says it, for those who watch the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// A file that was not there.
    New,
    /// Other content of one that was.
    Other,
}

impl Becomes {
    const fn letter(self) -> &'static str {
        match self {
            Self::New => "n",
            Self::Other => "o",
        }
    }

    /// Of a name; none where it is not one of a file that is not whole yet.
    pub(super) fn of(name: &OsStr) -> Option<Self> {
        let rest = name.to_str()?.strip_prefix(TEMPORARY)?;
        let (digits, letter) = rest.split_at_checked(16)?;
        let becomes = [Self::New, Self::Other].into_iter().find(|becomes| becomes.letter() == letter)?;
        digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(becomes)
    }
}

pub(super) struct Write {
    path: PathBuf,
    folder: OwnedFd,
    name: OsString,
    temporary: Option<String>,
    file: OwnedFd,
    mode: u32,
    metadata: BTreeMap<String, String>,
}

impl Write {
    pub(super) fn new(
        path: &Path,
        mode: Option<u32>,
        metadata: Option<BTreeMap<String, String>>,
    ) -> Result<Self, Failure> {
        let metadata = metadata.unwrap_or_default();
        let size: usize = metadata.iter().map(|(key, value)| key.len().saturating_add(value.len())).sum();
        let fits =
            |(key, value): (&String, &String)| !key.is_empty() && !key.contains('\0') && value.len() <= MAX_ATTRIBUTE;
        if size > METADATA || !metadata.iter().all(fits) {
            let message = format!(
                "metadata is at most {METADATA} bytes, a value of it {MAX_ATTRIBUTE}, and no key is empty or has a zero byte"
            );
            return Err(failure(Code::Invalid, message));
        }
        if mode.is_some_and(|mode| mode & !0o777 != 0) {
            return Err(failure(Code::Invalid, "a mode is permission bits alone (at most 0o777)"));
        }
        let path = place::followed(path)?;
        let (folder, name) = place::parts(&path)?;
        place::make_folders(folder)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = rustix::fs::open(folder, flags, Mode::empty()).map_err(at("opening the folder", folder))?;
        let before = match rustix::fs::statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                regular(&path, stat.st_mode)?;
                // What may not be written is not exchanged for another file either.
                rustix::fs::accessat(&opened, name, Access::WRITE_OK, AtFlags::empty())
                    .map_err(at("writing", &path))?;
                Some(stat.st_mode & 0o777)
            }
            Err(Errno::NOENT) => None,
            Err(errno) => return Err(at("writing", &path)(errno)),
        };
        let becomes = if before.is_some() { Becomes::Other } else { Becomes::New };
        let (temporary, file) = temporary(&opened, &path, becomes)?;
        Ok(Self {
            name: name.to_owned(),
            path: path.clone(),
            folder: opened,
            temporary: Some(temporary),
            file,
            mode: mode.or(before).unwrap_or(MODE),
            metadata,
        })
    }

    fn finish(&mut self) -> Result<Progress, Failure> {
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(self.mode))
            .map_err(at("setting the mode of", &self.path))?;
        entry::set_metadata(&self.file, &self.metadata).map_err(|errno| {
            if matches!(errno, Errno::OPNOTSUPP | Errno::NOSYS) {
                let message = format!("no extended attributes, so no metadata, where `{}` is", self.path.display());
                return failure(Code::Unsupported, message);
            }
            at("setting the metadata of", &self.path)(errno)
        })?;
        if let Some(temporary) = &self.temporary {
            rustix::fs::renameat(&self.folder, temporary, &self.folder, &self.name)
                .map_err(at("writing", &self.path))?;
        }
        self.temporary = None;
        Progress::done(entry::of(&self.path, false)?)
    }
}

/// A new file beside the one that it is going to be.
fn temporary(folder: &OwnedFd, path: &Path, becomes: Becomes) -> Result<(String, OwnedFd), Failure> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    for _ in 0..16 {
        let mut random = [0; 8];
        if !sys::random::fill(&mut random) {
            return Err(failure(Code::Failed, "the kernel gives no random bytes"));
        }
        let name = format!("{TEMPORARY}{:016x}{}", u64::from_ne_bytes(random), becomes.letter());
        match rustix::fs::openat(folder, &name, flags, Mode::from_raw_mode(0o600)) {
            Ok(file) => return Ok((name, file)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(at("writing", path)(errno)),
        }
    }
    Err(at("writing", path)(Errno::EXIST))
}

impl Drop for Write {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            let _removed = rustix::fs::unlinkat(&self.folder, temporary, AtFlags::empty());
        }
    }
}

impl Task for Write {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        let input = io.input();
        if input.is_empty() {
            return if io.is_over() { self.finish() } else { Ok(Progress::Wait) };
        }
        match rustix::io::write(&self.file, input) {
            Ok(0) => return Err(at("writing", &self.path)(Errno::NOSPC)),
            Ok(count) => io.take(count),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(at("writing", &self.path)(errno)),
        }
        Ok(Progress::More)
    }
}
