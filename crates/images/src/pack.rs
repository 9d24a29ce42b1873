//! A tree as one layer: the same tree always gives the same bytes. Names are sorted, all is root's, a folder has no time,
//! and no compressor has a say.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, Read as _, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir};
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};

use crate::decode::hex;

/// Bytes that the fields of a header have for a name.
const SHORT: usize = 100;

/// Hashes and counts what is written through it.
pub(crate) struct Digested<W> {
    inner: W,
    hash: Sha256,
    count: u64,
}

impl<W: Write> Digested<W> {
    pub(crate) fn new(inner: W) -> Self {
        Self { inner, hash: Sha256::new(), count: 0 }
    }

    /// `sha256:HEX`, and how many bytes there were.
    pub(crate) fn finish(mut self) -> io::Result<(String, u64)> {
        self.inner.flush()?;
        Ok((format!("sha256:{}", hex(&self.hash.finalize())), self.count))
    }
}

impl<W: Write> Write for Digested<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hash.update(bytes.get(..written).unwrap_or_default());
        self.count = self.count.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes all of a tree.
pub(crate) fn pack(root: &Dir, out: impl Write) -> io::Result<()> {
    let mut packer = Packer { out, names: BTreeMap::new(), buffer: vec![0; 128 << 10] };
    let mode = rustix::fs::fstat(root)?.st_mode;
    packer.header(EntryType::Directory, b"./", b"", &HeaderFields { mode, ..HeaderFields::default() })?;
    packer.folder(root, b"")?;
    packer.out.write_all(&[0; 1024])
}

/// What a header says beside names.
#[derive(Default)]
struct HeaderFields {
    mode: u32,
    modified: u64,
    size: u64,
}

impl HeaderFields {
    fn of(stat: &Stat) -> Self {
        Self { mode: stat.st_mode, modified: u64::try_from(stat.st_mtime).unwrap_or(0), size: 0 }
    }
}

struct Packer<W> {
    out: W,
    /// First name of each file that has several.
    names: BTreeMap<(u64, u64), Vec<u8>>,
    buffer: Vec<u8>,
}

impl<W: Write> Packer<W> {
    fn folder(&mut self, dir: &Dir, above: &[u8]) -> io::Result<()> {
        for name in dir.names()? {
            let stat = dir.stat(&name)?.ok_or(Errno::STALE)?;
            let path = [above, name.as_bytes()].concat();
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Directory => {
                    let path = [&path, &b"/"[..]].concat();
                    self.header(
                        EntryType::Directory,
                        &path,
                        b"",
                        &HeaderFields { modified: 0, ..HeaderFields::of(&stat) },
                    )?;
                    self.folder(&dir.enter(Path::new(&name), Cross::No)?, &path)?;
                }
                FileType::RegularFile => self.file(dir, &name, &path, &stat)?,
                FileType::Symlink => {
                    let target = rustix::fs::readlinkat(dir, Path::new(&name), Vec::new())?;
                    self.header(EntryType::Symlink, &path, target.as_bytes(), &HeaderFields::of(&stat))?;
                }
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Err(Errno::INVAL.into()),
            }
        }
        Ok(())
    }

    fn file(&mut self, dir: &Dir, name: &OsStr, path: &[u8], stat: &Stat) -> io::Result<()> {
        if stat.st_nlink > 1 {
            if let Some(first) = self.names.get(&(stat.st_dev, stat.st_ino)).cloned() {
                return self.header(EntryType::Link, path, &first, &HeaderFields::of(stat));
            }
            self.names.insert((stat.st_dev, stat.st_ino), path.to_owned());
        }
        let mut file = dir.open_file(name, OFlags::RDONLY, Mode::empty())?;
        let size = u64::try_from(stat.st_size).map_err(|_negative| Errno::INVAL)?;
        self.header(EntryType::Regular, path, b"", &HeaderFields { size, ..HeaderFields::of(stat) })?;
        let mut left = size;
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let read = file.read(self.buffer.get_mut(..most).unwrap_or_default())?;
            if read == 0 {
                return Err(Errno::STALE.into());
            }
            self.out.write_all(self.buffer.get(..read).unwrap_or_default())?;
            left = left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
        }
        self.fill(size)
    }

    fn header(&mut self, kind: EntryType, name: &[u8], link: &[u8], facts: &HeaderFields) -> io::Result<()> {
        for (long, kind) in [(name, EntryType::GNULongName), (link, EntryType::GNULongLink)] {
            if long.len() > SHORT {
                let size = u64::try_from(long.len()).unwrap_or(u64::MAX).saturating_add(1);
                let facts = HeaderFields { size, mode: 0o644, modified: 0 };
                self.out.write_all(header(kind, b"././@LongLink", b"", &facts).as_bytes())?;
                self.out.write_all(long)?;
                self.out.write_all(&[0])?;
                self.fill(size)?;
            }
        }
        self.out.write_all(header(kind, name, link, facts).as_bytes())
    }

    /// Up to the next block.
    fn fill(&mut self, size: u64) -> io::Result<()> {
        io::copy(&mut io::repeat(0).take(padding(size)), &mut self.out).map(drop)
    }
}

/// Bytes from the end of a content to the next block.
pub(crate) const fn padding(size: u64) -> u64 {
    size.wrapping_neg() % 512
}

fn header(kind: EntryType, name: &[u8], link: &[u8], facts: &HeaderFields) -> Header {
    let mut header = Header::new_gnu();
    let old = header.as_old_mut();
    for (field, text) in [(&mut old.name, name), (&mut old.linkname, link)] {
        for (to, from) in field.iter_mut().zip(text) {
            *to = *from;
        }
    }
    header.set_entry_type(kind);
    header.set_mode(facts.mode & 0o7777);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(facts.modified);
    header.set_size(facts.size);
    header.set_cksum();
    header
}

/// The header of a file of an archive.
pub(crate) fn file_header(name: &str, size: u64) -> Header {
    header(EntryType::Regular, name.as_bytes(), b"", &HeaderFields { mode: 0o644, modified: 0, size })
}
