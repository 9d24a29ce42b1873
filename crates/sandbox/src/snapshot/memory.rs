//! All that a machine was: its memory in a file, the image of its root in another. Both are checked by their digests before a
//! machine goes on from them.

use std::fs::File;
use std::io::{Error, Seek as _, Write};
use std::os::unix::fs::MetadataExt as _;

use backends::{Remembered, Running};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::writer::has_room;
use super::{Snapshot, SnapshotError, Writer};
use crate::changes::{Timed, stream};
use crate::state::errno_of;

/// Memory and devices of a machine.
const MEMORY: &str = "memory";
/// The image of its root.
const ROOT: &str = "root";

/// What is written down of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// [`backends::Memory::kind`].
    pub kind: String,
    /// SHA-256 of `memory`, in hexadecimal digits.
    pub digest: String,
    /// SHA-256 of `root`.
    pub root: String,
    /// [`backends::Memory::machine_id`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
}

/// What the writer below answered first, other than that it wrote.
struct Noting<W> {
    to: W,
    failed: Option<Errno>,
}

impl<W: Write> Write for Noting<W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.to.write(bytes).inspect_err(|error| {
            // Whoever was interrupted tries again.
            if error.kind() != std::io::ErrorKind::Interrupted {
                self.failed.get_or_insert(errno_of(error));
            }
        })
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.to.flush()
    }
}

impl Writer {
    /// Takes all that a machine is, which goes on afterwards.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) fn memory(&mut self, machine: &mut dyn Running) -> Result<(), SnapshotError> {
        has_room(&self.state, self.about.name.as_deref(), true)?;
        let mut to = self.file(MEMORY)?;
        let until = self.until.clone();
        let mut to = Noting { to: Timed { to: &mut to, until: &until }, failed: None };
        let written = machine.remember(&mut to);
        let ended = |_over| SnapshotError::Ended;
        until.go_on().map_err(ended)?;
        // A folder that is full is no fault of the machine's.
        let failed = to.failed;
        let memory = written.map_err(|why| match failed {
            Some(errno) => self.failed(MEMORY, errno),
            None => SnapshotError::Machine { why },
        })?;
        let failed = |error: Error| self.failed(ROOT, errno_of(&error));
        let image = File::open(&memory.root).map_err(failed)?;
        let to = Timed { to: self.file(ROOT)?, until: &until };
        let (root, _bytes) = hashed(&image, to).map_err(|errno| self.failed(ROOT, errno))?;
        let backends::Memory { kind, digest, machine_id, .. } = memory;
        self.about.memory = Some(Memory { kind, digest, root, machine_id });
        Ok(())
    }
}

impl Snapshot {
    /// All that a machine was, checked; `None` where it is of no machine.
    ///
    /// # Errors
    /// [`SnapshotError::Damaged`].
    pub fn memory(&self) -> Result<Option<Remembered>, SnapshotError> {
        let Some(memory) = &self.about.memory else { return Ok(None) };
        let open = |name, digest: &str| {
            let damaged = || SnapshotError::Damaged { id: self.about.id.clone() };
            let mut file = self.file(name)?.ok_or_else(damaged)?;
            let ours = file.metadata().is_ok_and(|meta| meta.is_file() && meta.uid() == sys::caller::euid());
            let (found, _bytes) = hashed(&file, std::io::sink()).or(Err(damaged()))?;
            file.rewind().or(Err(damaged()))?;
            if ours && found == digest { Ok(file) } else { Err(damaged()) }
        };
        Ok(Some(Remembered {
            kind: memory.kind.clone(),
            state: open(MEMORY, &memory.digest)?,
            root: open(ROOT, &memory.root)?,
            machine_id: memory.machine_id.clone(),
        }))
    }
}

/// Copies all of a file; its digest, and its bytes.
fn hashed(from: &File, mut to: impl std::io::Write) -> Result<(String, u64), Errno> {
    // The image is bounded by what made it, and the memory by its machine.
    stream(from, &mut to, u64::MAX)?.ok_or(Errno::FBIG)
}
