//! Images that are made here, of the host's files or of packages. Their digest is that of the manifest that an export writes.

use std::io;

use rustix::fs::Mode;
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};

use crate::config::Defaults;
use crate::error::ImageError;
use crate::export::{documents, layer};
use crate::record::Record;
use crate::resolve::is_name;
use crate::store::{Listed, Stage, Staged, Store};
use crate::unpack::UnpackNotes;

/// Where programs are looked for in what is made here.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders that programs take for granted, and their modes.
const FOLDERS: [(&str, u32); 12] = [
    ("dev", 0o755),
    ("etc", 0o755),
    ("home", 0o755),
    ("opt", 0o755),
    ("proc", 0o755),
    ("root", 0o700),
    ("run", 0o755),
    ("sys", 0o755),
    ("tmp", 0o777),
    ("usr", 0o755),
    ("var", 0o755),
    ("var/tmp", 0o777),
];
/// Files without which names of users and hosts are not found; what is there stays.
const FILES: [(&str, &str); 3] = [
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\nservices: files\nprotocols: files\n"),
];

impl Store {
    /// Keeps what `fill` puts into an empty tree, under a name that then means this image and no other.
    pub(crate) fn make(
        &self,
        name: &str,
        fill: impl FnOnce(&Stage) -> Result<UnpackNotes, ImageError>,
    ) -> Result<Listed, ImageError> {
        let defaults =
            Defaults { env: Some(vec![PATH.to_owned()]), cmd: Some(vec!["/bin/sh".to_owned()]), ..Defaults::default() };
        self.make_with(name, |stage| Ok((fill(stage)?, defaults)))
    }

    /// As [`Store::make`], where `fill` says how the image is run.
    pub(crate) fn make_with(
        &self,
        name: &str,
        fill: impl FnOnce(&Stage) -> Result<(UnpackNotes, Defaults), ImageError>,
    ) -> Result<Listed, ImageError> {
        if !is_name(name) {
            return Err(ImageError::Name { name: name.to_owned() });
        }
        self.alone(|| {
            let stage = self.new_stage()?;
            let failed = |errno| ImageError::Io { path: stage.path.clone(), errno };
            let (told, defaults) = fill(&stage)?;
            let written = layer(&stage.root, io::sink()).and_then(|layer| documents(&defaults, &layer));
            let documents = written.map_err(|error| failed(errno_of(&error)))?;
            let digest = documents.manifest.0.digest;
            let record = Record { manifest: Some(documents.manifest.1), config: documents.config.1 };
            let there = self.has(&digest)?;
            if !there {
                self.describe(&stage, &digest, &record, &told)?;
            }
            let staged = Staged { stage: (!there).then_some(stage.name), digest, names: vec![name.to_owned()] };
            let mut kept = self.keep_all(vec![staged])?;
            kept.pop().ok_or_else(|| ImageError::None { reference: name.to_owned() })
        })
    }
}

/// What every tree that is made here has.
pub(crate) fn folders(root: &Dir) -> Result<(), Errno> {
    for (path, mode) in FOLDERS {
        let (above, name) = path.rsplit_once('/').unwrap_or((".", path));
        let above = root.enter(above, Cross::No)?;
        if above.make(name, Mode::RWXU)? {
            rustix::fs::fchmod(above.enter(name, Cross::No)?, Mode::from_raw_mode(mode))?;
        }
    }
    Ok(())
}

/// What every tree that is made here has, unless something has put another there.
pub(crate) fn files(root: &Dir) -> Result<(), Errno> {
    for (path, text) in FILES {
        if root.enter("etc", Cross::No)?.kind(path.strip_prefix("etc/").unwrap_or(path))?.is_none() {
            write(root, path, text.as_bytes())?;
        }
    }
    Ok(())
}

/// A new file, readable by all, of no time.
pub(crate) fn write(root: &Dir, path: &str, bytes: &[u8]) -> Result<(), Errno> {
    use rustix::fs::OFlags;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = root.open_file(path, flags, Mode::from_raw_mode(0o600))?;
    io::Write::write_all(&mut file, bytes).map_err(|error| errno_of(&error))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
    rustix::fs::futimens(&file, &crate::tree::times(0))
}
