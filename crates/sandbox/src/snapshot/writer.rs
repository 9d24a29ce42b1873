//! Making a snapshot: nobody sees it before it is whole.

use std::fs::File;
use std::path::{Path, PathBuf};

use policy::Plan;
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, Result as KernelResult};
use serde_json::Value;

use super::pack::{Packing, pack};
use super::{
    ABOUT, About, CHANGES, MAX_MEMORIES, MAX_SNAPSHOTS, Snapshot, SnapshotError, TMP, UNFINISHED, all, check_name,
    locked, new_id, unwritable,
};
use crate::changes::{BLOBS, Manifest, Until};
use crate::fault::show_bytes;
use crate::state::{Cross, Dir, RunId, State, errno_of};

/// What whoever asks for a snapshot says about it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotRequest {
    /// A name by which it can be found; unique.
    pub name: Option<String>,
    /// The layers of the policy that a sandbox of it is to have, as the asker reads them.
    pub layers: Value,
}

/// A snapshot that is being made. Dropped before its end, it leaves nothing.
#[derive(Debug)]
pub struct Writer {
    pub(super) state: State,
    pub(super) about: About,
    /// Held as long as we live: that tells it from what a killed maker left.
    dir: Option<Dir>,
    pub(super) until: Until,
}

/// Begins a snapshot of a run.
///
/// # Errors
/// [`SnapshotError`]: the name cannot be one or is taken, there are too many, or the state folder's.
pub fn begin(state: State, run: &RunId, wish: SnapshotRequest) -> Result<Writer, SnapshotError> {
    if let Some(name) = &wish.name {
        check_name(name)?;
    }
    let (id, made) = new_id()?;
    let dir = {
        let (folder, _lock) = locked(&state)?;
        has_room(&state, wish.name.as_deref(), false)?;
        let name = format!("{UNFINISHED}{id}");
        let failed = |errno| unwritable::<SnapshotError>(&state, &name, errno);
        rustix::fs::mkdirat(&folder, name.as_str(), Mode::RWXU).map_err(failed)?;
        let dir = folder.enter(name.as_str(), Cross::No).map_err(failed)?;
        rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive).map_err(failed)?;
        dir
    };
    let about = About {
        schema: 1,
        id,
        name: wish.name,
        run: run.to_string(),
        made,
        tier: String::new(),
        policy: String::new(),
        policy_digest: String::new(),
        layers: wish.layers,
        workspace: None,
        changes: 0,
        files: 0,
        bytes: 0,
        left_out: Vec::new(),
        memory: None,
    };
    Ok(Writer { state, about, dir: Some(dir), until: Until::default() })
}

/// Whether one more may be made, of this name, and of a machine.
pub(super) fn has_room(state: &State, name: Option<&str>, of_a_machine: bool) -> Result<(), SnapshotError> {
    let others = all(state)?;
    if others.len() >= MAX_SNAPSHOTS {
        return Err(SnapshotError::TooMany { most: MAX_SNAPSHOTS });
    }
    let of_machines = || others.iter().flatten().filter(|other| other.about.memory.is_some()).count();
    if of_a_machine && of_machines() >= MAX_MEMORIES {
        return Err(SnapshotError::TooManyMachines { most: MAX_MEMORIES });
    }
    let mut others = others.iter().filter_map(|other| Some(&other.as_ref().ok()?.about));
    match (name, others.find(|other| name.is_some() && other.name.as_deref() == name)) {
        (Some(name), Some(other)) => Err(SnapshotError::Taken { name: name.to_owned(), by: other.id.clone() }),
        (_, _) => Ok(()),
    }
}

impl Writer {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.about.id
    }

    /// What it is made of.
    pub(crate) fn of(&mut self, plan: &Plan, until: Until) {
        self.about.tier = plan.tier.as_str().to_owned();
        let policy = &plan.policy;
        self.about.policy.clone_from(&policy.name);
        self.about.policy_digest = plan.policy_digest().to_owned();
        self.about.workspace =
            policy.workspace.path.as_ref().map(|path| show_bytes(path.as_os_str().as_encoded_bytes()));
        self.until = until;
    }

    /// Takes the changes of the workspace as they were kept under the id of the run, which nobody changes meanwhile.
    /// Contents are shared with those where the file system lets them.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn changes(&mut self, manifest: &Manifest) -> Result<(), SnapshotError> {
        self.link_changes(manifest).map_err(|errno| self.failed(CHANGES, errno))?;
        self.about.changes = manifest.entries.len();
        self.about.left_out.extend(manifest.refused.iter().filter(|refused| !refused.taken).take(1000).cloned());
        let sums: std::collections::BTreeMap<&str, u64> =
            manifest.entries.iter().filter_map(|entry| Some((entry.sha256.as_deref()?, entry.size))).collect();
        self.about.bytes = sums.values().fold(self.about.bytes, |all, size| all.saturating_add(*size));
        Ok(())
    }

    fn link_changes(&self, manifest: &Manifest) -> KernelResult<()> {
        let dir = self.dir()?;
        dir.make(CHANGES, Mode::RWXU)?;
        let changes = dir.enter(CHANGES, Cross::No)?;
        let sums: std::collections::BTreeSet<&str> =
            manifest.entries.iter().filter_map(|entry| entry.sha256.as_deref()).collect();
        if !sums.is_empty() {
            changes.make(BLOBS, Mode::RWXU)?;
            let to = changes.enter(BLOBS, Cross::No)?;
            let path = Path::new(&manifest.run).join(BLOBS);
            let folder = self.state.changes().or(Err(Errno::ACCESS))?;
            let from = folder.enter(path, Cross::No)?;
            for sum in sums {
                self.until.go_on()?;
                share(&from, &to, sum)?;
            }
        }
        manifest.save(&changes)
    }

    /// Packs a folder as one of its files, e.g. [`super::TMP`].
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub(crate) fn tmp(&mut self, folder: &Dir, packing: &Packing<'_>) -> Result<(), SnapshotError> {
        let mut to = std::io::BufWriter::with_capacity(1 << 18, self.file(TMP)?);
        let packed = pack(folder, &mut to, packing).map_err(|errno| self.failed(TMP, errno))?;
        to.into_inner().map_err(|error| self.failed(TMP, errno_of(error.error())))?;
        self.about.files = packed.members;
        let mut below = packed.left_out;
        below.iter_mut().for_each(|left| left.path = PathBuf::from("/tmp").join(&left.path));
        self.about.left_out.append(&mut below);
        Ok(())
    }

    /// A new file of the snapshot, for writing.
    ///
    /// # Errors
    /// [`SnapshotError`]; one of that name may be there.
    pub fn file(&self, name: &str) -> Result<File, SnapshotError> {
        let ours = Path::new(name).components().count() != 1 || [ABOUT, CHANGES].contains(&name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let made = if ours {
            Err(Errno::INVAL)
        } else {
            self.dir().and_then(|dir| dir.open_file(name, flags, Mode::RUSR | Mode::WUSR))
        };
        made.map_err(|errno| self.failed(name, errno))
    }

    /// It is whole: from here on others find it.
    ///
    /// # Errors
    /// [`SnapshotError`]: the name was taken meanwhile, or the state folder's; nothing is left then.
    pub fn finish(mut self) -> Result<Snapshot, SnapshotError> {
        let (folder, _lock) = locked(&self.state)?;
        has_room(&self.state, self.about.name.as_deref(), self.about.memory.is_some())?;
        let seal = self.seal(&folder);
        seal.map_err(|errno| self.failed(ABOUT, errno))?;
        let dir = self.dir.take().ok_or(SnapshotError::Ended)?;
        // It needs no keeper any more, and this descriptor may live on in the snapshot.
        rustix::fs::flock(&dir, FlockOperation::Unlock).unwrap_or_default();
        Ok(Snapshot { about: self.about.clone(), dir })
    }

    fn seal(&mut self, folder: &Dir) -> KernelResult<()> {
        let dir = self.dir()?;
        let mut bytes = self.about.bytes;
        for name in dir.names()? {
            if dir.kind(&name)? == Some(FileType::RegularFile) {
                let file = dir.open_file(&name, OFlags::RDONLY, Mode::empty())?;
                rustix::fs::fsync(&file)?;
                bytes = bytes.saturating_add(u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0));
            }
        }
        self.about.bytes = bytes;
        let dir = self.dir()?;
        let mut file = dir.open_file(ABOUT, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL, Mode::RUSR | Mode::WUSR)?;
        serde_json::to_writer(&mut file, &self.about).map_err(|error| errno_of(&error.into()))?;
        rustix::fs::fsync(&file)?;
        rustix::fs::fsync(dir)?;
        let (from, to) = (self.unfinished(), self.about.id.as_str());
        rustix::fs::renameat_with(folder, from.as_str(), folder, to, RenameFlags::NOREPLACE)?;
        rustix::fs::fsync(folder)
    }

    fn unfinished(&self) -> String {
        format!("{UNFINISHED}{}", self.about.id)
    }

    fn dir(&self) -> KernelResult<&Dir> {
        self.dir.as_ref().ok_or(Errno::BADF)
    }

    /// Why a step failed: nothing that is only read answers that there is no room.
    pub(super) fn failed(&self, name: &str, errno: Errno) -> SnapshotError {
        match errno {
            Errno::CANCELED => SnapshotError::Ended,
            errno => unwritable(&self.state, &format!("{}/{name}", self.unfinished()), errno),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.dir.is_some()
            && let Ok((folder, _lock)) = locked(&self.state)
        {
            // What stays is taken by `gc`.
            folder.remove_tree(self.unfinished()).unwrap_or_default();
        }
    }
}

/// The same content under the same name in another folder: one file with two names where that goes, else a copy.
fn share(from: &Dir, to: &Dir, name: &str) -> KernelResult<()> {
    match rustix::fs::linkat(from, name, to, name, AtFlags::empty()) {
        // Another file system, no links there, or too many of them.
        Err(Errno::XDEV | Errno::PERM | Errno::OPNOTSUPP | Errno::MLINK) => {
            let mut source = from.open_file(name, OFlags::RDONLY, Mode::empty())?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            let mut copy = to.open_file(name, flags, Mode::RUSR | Mode::WUSR)?;
            // By copy_file_range(2), which shares the blocks where the file system can.
            std::io::copy(&mut source, &mut copy).map_err(|error| errno_of(&error))?;
            rustix::fs::fsync(&copy)
        }
        other => other,
    }
}
