//! Who the run is, outside and inside.

use std::path::Path;

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
    /// The workspace belongs to root: show it through an id-mapped mount.
    pub(crate) map_workspace: bool,
}

/// Chooses the ids: the caller's; as root the workspace's owner, or an unused pair when that is root (DESIGN 6a).
pub(crate) fn choose(policy: &Policy, host: &Capabilities, run: &str, container: bool) -> Result<Identity, StartError> {
    if !host.root() {
        return Ok(Identity { uid: host.euid, gid: host.egid, map_workspace: false });
    }
    if let (Some(path), true) = (&policy.workspace.path, policy.workspace.mode != WorkspaceMode::None) {
        let (uid, gid) = owner(path)?;
        if uid != 0 {
            return Ok(Identity { uid, gid, map_workspace: false });
        }
        if container {
            let id = unused(run);
            return Ok(Identity { uid: id, gid: id, map_workspace: true });
        }
        if policy.workspace.mode == WorkspaceMode::Rw {
            // The run is nobody: without an id-mapped mount it could write nothing there.
            let why = "the process tier has no id-mapped mounts, and the run is an ordinary user".to_owned();
            return Err(StartError::Mapping { path: path.clone(), why });
        }
    }
    let id = if container { unused(run) } else { NOBODY };
    Ok(Identity { uid: id, gid: id, map_workspace: false })
}

fn owner(path: &Path) -> Result<(u32, u32), StartError> {
    use std::os::unix::fs::MetadataExt;
    let meta = std::fs::symlink_metadata(path).map_err(|e| StartError::path("workspace", path, &e))?;
    Ok((meta.uid(), meta.gid()))
}

/// An id of its own for each run, so that two runs cannot touch each other's files or signal each other.
fn unused(run: &str) -> u32 {
    // FNV-1a over the run id, which is random.
    let hash = run.bytes().fold(0x811c_9dc5_u32, |h, b| (h ^ u32::from(b)).wrapping_mul(0x0100_0193));
    UNUSED + (hash & 0x00ff_ffff)
}
