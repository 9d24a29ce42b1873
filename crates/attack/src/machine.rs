//! The root of a machine that is attacked: the probe's program and what a row grants for reading, each under its own path, since
//! nothing of the host is shown in a machine but its root.

use std::io;
use std::path::{Path, PathBuf};

use crate::confined::ProbeCall;
use crate::stage::Stage;

/// Where the folders of rows are: below `/tmp` a machine has a place of its own, and nothing of its root.
pub const BASE: &str = "/var/tmp";

/// Most entries of what is granted: rows grant a handful.
const MAX_ENTRIES: usize = 1000;

/// The root of one call, gone when it is dropped.
#[derive(Debug)]
pub struct MachineRoot {
    path: PathBuf,
    _stage: Stage,
}

impl MachineRoot {
    /// Makes it.
    ///
    /// # Errors
    /// There is no room, or something of it cannot be read.
    pub fn make(call: &ProbeCall, root: bool) -> io::Result<Self> {
        let stage = Stage::make(Path::new(BASE), root)?;
        let path = stage.folder("root")?;
        let mut left = MAX_ENTRIES;
        for shown in call.read.iter().chain([&call.program]) {
            let to = path.join(shown.strip_prefix("/").map_err(io::Error::other)?);
            std::fs::create_dir_all(to.parent().unwrap_or(&path))?;
            copied(shown, &to, &mut left)?;
        }
        Ok(Self { path, _stage: stage })
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Files and folders alone, with their modes.
fn copied(from: &Path, to: &Path, left: &mut usize) -> io::Result<()> {
    *left = left.checked_sub(1).ok_or_else(|| io::Error::other("too much is granted"))?;
    let meta = from.symlink_metadata()?;
    if meta.is_file() {
        return std::fs::copy(from, to).map(drop);
    }
    if meta.is_dir() {
        std::fs::create_dir_all(to)?;
        for entry in std::fs::read_dir(from)? {
            let entry = entry?;
            copied(&entry.path(), &to.join(entry.file_name()), left)?;
        }
        std::fs::set_permissions(to, meta.permissions())?;
    }
    Ok(())
}
