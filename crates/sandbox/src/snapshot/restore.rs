//! What a new sandbox needs to become what the snapshot was.

use std::collections::BTreeSet;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use tar::{Builder, EntryType};

use super::pack::{append_link, plain};
use super::{CHANGES, Snapshot, SnapshotError};
use crate::changes::{BLOBS, Change, Entry, Kind, Manifest, read_list, target_bytes};
use crate::state::{Cross, Dir, errno_of};

impl Snapshot {
    /// The changes of the workspace; `None` if the sandbox had no layer.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`].
    pub fn changes(&self) -> Result<Option<Manifest>, SnapshotError> {
        let dir = match self.dir.enter(CHANGES, Cross::No) {
            Ok(dir) => dir,
            Err(Errno::NOENT) => return Ok(None),
            Err(_) => return Err(self.damaged()),
        };
        let read = read_list(&dir, &self.about.run);
        read.ok().flatten().map(Some).ok_or_else(|| self.damaged())
    }

    /// Paths of the workspace that are to be removed before [`Snapshot::write_tar`] is unpacked, each with all that is in
    /// it; what is not there is removed already.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`].
    pub fn deletions(&self) -> Result<Vec<PathBuf>, SnapshotError> {
        let Some(manifest) = self.changes()? else { return Ok(Vec::new()) };
        let gone = manifest.entries.iter().filter(|entry| entry.change == Change::Removed);
        let gone: BTreeSet<&Path> = gone.map(|entry| entry.path.as_path()).collect();
        let topmost = |path: &&&Path| !path.ancestors().skip(1).any(|above| gone.contains(above));
        Ok(gone.iter().filter(topmost).map(|path| path.to_path_buf()).collect())
    }

    /// Writes what the sandbox added to its workspace or changed there as a tar stream, names relative to the workspace.
    /// Contents are checked against their sums. All of it is as old as the snapshot: a list of changes knows no times.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`], or [`SnapshotError::Read`] with what `to` answered.
    pub fn write_tar(&self, to: &mut impl Write) -> Result<(), SnapshotError> {
        let mut builder = Builder::new(to);
        if let Some(manifest) = self.changes()? {
            let blobs = self.dir.enter(Path::new(CHANGES).join(BLOBS), Cross::No).ok();
            let made = self.about.made.parse::<Timestamp>().map_or(0, Timestamp::as_second);
            let made = u64::try_from(made).unwrap_or(0);
            for entry in manifest.entries.iter().filter(|entry| entry.change != Change::Removed) {
                append(&mut builder, blobs.as_ref(), entry, made).map_err(|errno| match errno {
                    Errno::BADMSG | Errno::NOENT => self.damaged(),
                    errno => SnapshotError::Read { path: entry.path.clone(), errno },
                })?;
            }
        }
        let read = |error: std::io::Error| SnapshotError::Read { path: PathBuf::new(), errno: errno_of(&error) };
        builder.finish().map_err(read)
    }
}

/// EBADMSG: it is not what the list says.
fn append(builder: &mut Builder<impl Write>, blobs: Option<&Dir>, entry: &Entry, made: u64) -> Result<(), Errno> {
    let told = |error: std::io::Error| errno_of(&error);
    let of = |kind, mode| {
        let mut header = plain(kind, mode);
        header.set_mtime(made);
        header
    };
    match entry.kind {
        Kind::Dir => {
            let mut header = of(EntryType::Directory, entry.mode);
            builder.append_data(&mut header, &entry.path, std::io::empty()).map_err(told)
        }
        Kind::Symlink => {
            let target = entry.target.as_deref().and_then(target_bytes).ok_or(Errno::BADMSG)?;
            let mut header = of(EntryType::Symlink, 0o777);
            append_link(builder, &mut header, &entry.path, Path::new(&target)).map_err(told)
        }
        Kind::File => {
            let sum = entry.sha256.as_deref().ok_or(Errno::BADMSG)?;
            let file = blobs.ok_or(Errno::BADMSG)?.open_file(sum, OFlags::RDONLY, Mode::empty())?;
            let size = rustix::fs::fstat(&file)?.st_size;
            if u64::try_from(size) != Ok(entry.size) {
                return Err(Errno::BADMSG);
            }
            let mut header = of(EntryType::Regular, entry.mode);
            header.set_size(entry.size);
            let mut content = Summed { file: file.take(entry.size), hash: Default::default() };
            builder.append_data(&mut header, &entry.path, &mut content).map_err(told)?;
            if content.is(sum) { Ok(()) } else { Err(Errno::BADMSG) }
        }
        Kind::Special => Err(Errno::BADMSG),
    }
}

/// What is read, and its sum.
struct Summed<R> {
    file: R,
    hash: sha2::Sha256,
}

impl<R> Summed<R> {
    fn is(self, sum: &str) -> bool {
        policy::json::hex(&sha2::Digest::finalize(self.hash)) == sum
    }
}

impl<R: std::io::Read> std::io::Read for Summed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read(buffer)?;
        sha2::Digest::update(&mut self.hash, buffer.get(..count).unwrap_or_default());
        Ok(count)
    }
}
