//! Whose files a run works on decides who it is.

use std::path::{Path, PathBuf};

use super::blueprint::{Blueprint, TreeAccess};
use crate::StartError;
use crate::host::Capabilities;
use crate::identity::{Identity, unused};

/// `nobody` and `nogroup`.
const NOBODY: u32 = 65_534;

/// Chooses the ids: the caller's; as root the owner's of the workspace, else of the first write grant that is not root's,
/// else an unused pair. What belongs to somebody else is written through id-mapped mounts, and refused in the
/// process tier, which has none.
pub(crate) fn choose(blueprint: &Blueprint, host: &Capabilities, run: &str) -> Result<Identity, StartError> {
    if !host.root() {
        return Ok(Identity { uid: host.euid, gid: host.egid, maps: false });
    }
    let container = blueprint.container;
    let workspace = blueprint.workspace.as_ref().map(|shown| owner("workspace", &shown.from)).transpose()?;
    let grants = blueprint.writes.iter().map(|shown| owner("fs.write", &shown.from));
    let grants = grants.collect::<Result<Vec<_>, _>>()?;
    let id = if container { unused(run) } else { NOBODY };
    let first = workspace.iter().chain(&grants).find(|owner| owner.uid != 0);
    let (uid, gid) = first.map_or((id, id), |owner| (owner.uid, owner.gid));
    if !container {
        let direct = blueprint.workspace.as_ref().is_some_and(|shown| shown.how == TreeAccess::Writable);
        let written = workspace.iter().filter(|_| direct);
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
