//! What became of the copy of a workspace in a machine, unpacked on the host: a tar stream that a hostile program may have
//! written as it likes.
//!
//! Promises: nothing is made outside the empty folder that it is unpacked into, and no more than the bounds allow; whatever our
//! own agent would not write refuses the whole, since half of what changed is not what changed. Does not promise that the
//! content is what the program left: a machine that was taken over says what it likes, as a program writes what it likes.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::{Errno, Result as KernelResult};

use crate::changes::{Bounds, MAX_DEPTH};
use crate::fault::show_bytes;
use crate::members::{Kind, Member, Members};
use crate::state::{Cross, Dir};

/// Bytes of a name.
const MAX_NAME: usize = 4096;

/// An unpacking.
struct Unpacking<'a> {
    into: &'a Dir,
    /// What all names begin with.
    top: &'a OsStr,
    /// What is left of the bounds.
    left: Bounds,
    /// Modes that folders get when all is in them.
    modes: BTreeMap<PathBuf, u32>,
}

/// Unpacks a stream whose names begin with `top` into an empty folder; why it cannot be.
pub(super) fn unpack(stream: File, top: &OsStr, into: &Dir, bounds: Bounds) -> Result<(), String> {
    let mut members = Members::new(BufReader::new(stream));
    let mut unpacking = Unpacking { into, top, left: bounds, modes: BTreeMap::new() };
    let mut first = true;
    while let Some(member) = members.next_member().map_err(|error| error.to_string())? {
        let told =
            |why: String| format!("`{}`: {why}", show_bytes(member.name.get(..200).unwrap_or(member.name.as_slice())));
        let path = below(&member.name, top).map_err(told)?;
        // Our agent tells the folder itself, once and before all else.
        if first != (path == Path::new("")) {
            return Err(told("it is not where it should be".to_owned()));
        }
        if first && member.kind != Kind::Folder {
            return Err(told("it is no folder".to_owned()));
        }
        if !first {
            unpacking.member(&path, &member, &mut members).map_err(told)?;
        }
        first = false;
    }
    if first {
        return Err("nothing came".to_owned());
    }
    unpacking.end()
}

/// The path of a name below the folder that all names begin with.
fn below(name: &[u8], top: &OsStr) -> Result<PathBuf, String> {
    if name.len() > MAX_NAME {
        return Err("the name is too long".to_owned());
    }
    let name = name.strip_suffix(b"/").unwrap_or(name);
    let mut parts = name.split(|byte| *byte == b'/');
    if parts.next() != Some(top.as_bytes()) {
        return Err("it is not in the workspace".to_owned());
    }
    let mut path = PathBuf::new();
    let mut depth = 0_usize;
    for part in parts {
        if part.is_empty() || part == b"." || part == b".." || part.contains(&0) {
            return Err("it is no name below the workspace".to_owned());
        }
        path.push(OsStr::from_bytes(part));
        depth = depth.saturating_add(1);
    }
    if depth > MAX_DEPTH { Err(format!("it lies more than {MAX_DEPTH} folders deep")) } else { Ok(path) }
}

impl Unpacking<'_> {
    fn member(&mut self, path: &Path, member: &Member, content: &mut impl Read) -> Result<(), String> {
        self.left.entries =
            self.left.entries.checked_sub(1).ok_or("there are more entries than `limits.files` allows")?;
        let (folder, name) = self.parent(path).map_err(|errno| error_text(errno, "the folder above it"))?;
        let mode = member.mode & 0o777;
        let made = match &member.kind {
            Kind::Folder => {
                self.modes.insert(path.to_owned(), mode);
                folder.make(&name, Mode::RWXU).and_then(|made| if made { Ok(()) } else { Err(Errno::EXIST) })
            }
            Kind::File => {
                let left = self.left.bytes.checked_sub(member.size);
                self.left.bytes = left.ok_or("there are more bytes than `limits.disk` allows")?;
                return file(&folder, &name, (member.size, mode), content);
            }
            Kind::Symlink(target) => rustix::fs::symlinkat(OsStr::from_bytes(target), &folder, Path::new(&name)),
            Kind::Link(of) => return self.link(of, path, (&folder, &name)),
            Kind::Other(what) => return Err((*what).to_owned()),
        };
        made.map_err(|errno| error_text(errno, "it"))
    }

    /// One more name of a file that came before.
    fn link(&self, of: &[u8], path: &Path, (folder, name): (&Dir, &OsStr)) -> Result<(), String> {
        let of = below(of, self.top)?;
        if of == path {
            return Err("it is a link to itself".to_owned());
        }
        let (from, first) = self.parent(&of).map_err(|errno| error_text(errno, "what it is a link to"))?;
        let linked = rustix::fs::linkat(&from, Path::new(&first), folder, Path::new(name), AtFlags::empty());
        linked.map_err(|errno| error_text(errno, "what it is a link to"))
    }

    /// The folder of a path, by way of no link.
    fn parent(&self, path: &Path) -> KernelResult<(Dir, OsString)> {
        let name = path.file_name().ok_or(Errno::INVAL)?.to_owned();
        let above = path.parent().filter(|above| *above != Path::new("")).unwrap_or(Path::new("."));
        Ok((self.into.enter(above, Cross::No)?, name))
    }

    /// Deepest first: a folder that is closed hides those in it.
    fn end(self) -> Result<(), String> {
        for (path, mode) in self.modes.iter().rev() {
            let set = self.into.enter(path, Cross::No);
            let set = set.and_then(|dir| rustix::fs::fchmod(dir, Mode::from_raw_mode(*mode)));
            set.map_err(|errno| {
                format!("`{}`: {}", show_bytes(path.as_os_str().as_bytes()), error_text(errno, "its mode"))
            })?;
        }
        Ok(())
    }
}

fn file(folder: &Dir, name: &OsStr, (size, mode): (u64, u32), content: &mut impl Read) -> Result<(), String> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let opened = folder.open_file(name, flags, Mode::RUSR | Mode::WUSR);
    let mut file = opened.map_err(|errno| error_text(errno, "it"))?;
    let copied = std::io::copy(&mut content.take(size), &mut file).map_err(|error| error.to_string())?;
    if copied != size {
        return Err("it ends too early".to_owned());
    }
    rustix::fs::fchmod(&file, Mode::from_raw_mode(mode)).map_err(|errno| error_text(errno, "its mode"))
}

fn error_text(errno: Errno, what: &str) -> String {
    format!("{what}: {}", errno.to_string().to_lowercase())
}

#[cfg(test)]
mod tests;
