//! Who the run is, outside and inside.

use std::path::{Path, PathBuf};

use policy::value::{Policy, WorkspaceMode};

use crate::StartError;
use crate::host::Capabilities;

/// uid and gid inside the container tier.
pub(crate) const INSIDE: u32 = 1000;
/// `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;
/// First of a range of ids that no distribution hands out (systemd's map ends at 0x6FFF_FFFF).
const UNUSED: u32 = 0x7000_0000;

/// The ids of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// uid outside.
    pub(crate) uid: u32,
    /// gid outside.
    pub(crate) gid: u32,
    /// What belongs to another user than this one is written through an id-mapped mount.
    pub(crate) maps: bool,
}

impl Identity {
    /// Whether files of this user must be shown with other numbers, so that they are the run's own.
    pub(crate) const fn must_map(&self, uid: u32) -> bool {
        self.maps && uid != self.uid
    }
}

/// Chooses the ids: the caller's; as root the owner's of the workspace, else of the first write grant that is not root's,
/// else an unused pair. What belongs to somebody else is written through id-mapped mounts, and refused in the
/// process tier, which has none.
pub(crate) fn choose(policy: &Policy, host: &Capabilities, run: &str, container: bool) -> Result<Identity, StartError> {
    if !host.root() {
        return Ok(Identity { uid: host.euid, gid: host.egid, maps: false });
    }
    let workspace = policy.workspace.path.as_ref().filter(|_| policy.workspace.mode != WorkspaceMode::None);
    let workspace = workspace.map(|path| owner("workspace", path)).transpose()?;
    let grants = policy.fs.write.iter().map(|grant| owner("fs.write", &grant.from));
    let grants = grants.collect::<Result<Vec<_>, _>>()?;
    let id = if container { unused(run) } else { NOBODY };
    let first = workspace.iter().chain(&grants).find(|owner| owner.uid != 0);
    let (uid, gid) = first.map_or((id, id), |owner| (owner.uid, owner.gid));
    if !container {
        let written = workspace.iter().filter(|_| policy.workspace.mode == WorkspaceMode::Rw);
        // Without an id-mapped mount the run could write nothing there.
        if let Some(other) = written.chain(&grants).find(|owner| owner.uid != uid && !owner.by_anybody) {
            let whose = if other.uid == 0 { "root".to_owned() } else { format!("uid {}", other.uid) };
            let why =
                format!("it belongs to {whose}, the run is uid {uid}, and the process tier has no id-mapped mounts");
            return Err(StartError::Mapping { path: other.path.clone(), why });
        }
    }
    Ok(Identity { uid, gid, maps: container })
}

/// Whose a path is.
struct Owner {
    path: PathBuf,
    uid: u32,
    gid: u32,
    /// Its mode lets everybody write.
    by_anybody: bool,
}

fn owner(clause: &'static str, path: &Path) -> Result<Owner, StartError> {
    use std::os::unix::fs::MetadataExt;
    const OTHERS_WRITE: u32 = 0o002;
    let meta = std::fs::metadata(path).map_err(|e| StartError::path(clause, path, &e))?;
    let by_anybody = meta.mode() & OTHERS_WRITE != 0;
    Ok(Owner { path: path.to_owned(), uid: meta.uid(), gid: meta.gid(), by_anybody })
}

/// An id of its own for each run, so that two runs cannot touch each other's files or signal each other.
pub(crate) fn unused(run: &str) -> u32 {
    // FNV-1a over the run id, which is random.
    let hash = run.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    UNUSED + (hash & 0x00ff_ffff)
}
