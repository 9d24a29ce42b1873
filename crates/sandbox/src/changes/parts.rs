//! A configuration of git's that cannot be taken whole: its harmless keys are, and the rest stays with the run.

use std::io::Write as _;
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::io::Result as KernelResult;

use super::ChangesError;
use super::apply::KeysLeft;
use super::exchange::parent;
use super::guarded::Guarding;
use super::manifest::{BLOBS, Entry, Fingerprint, Manifest};
use crate::protect::{List, Part};
use crate::state::Dir;
use policy::json::sha256_hex;

/// One that is taken in part: as the run left it, and which keys stay.
pub(super) struct Parted {
    whole: Entry,
    keys: String,
}

/// Puts what may be taken of each held configuration into the list, in the place of the whole. The list on the disk is not
/// changed.
pub(super) fn split(
    manifest: &mut Manifest,
    paths: Option<&[PathBuf]>,
    list: &List,
    (root, blobs): (&Dir, Option<&Dir>),
) -> Result<Vec<Parted>, ChangesError> {
    let Some(blobs) = blobs else { return Ok(Vec::new()) };
    let guarding = Guarding::of(list, manifest, Some(root), Some(blobs));
    let found: Vec<(PathBuf, Part)> = manifest
        .choose(paths)?
        .into_iter()
        .filter(|entry| guarding.why(entry).is_some())
        .filter_map(|entry| Some((entry.path.clone(), guarding.part(entry)?)))
        .collect();
    let mut parted = Vec::new();
    for (path, Part { merged, left }) in found {
        let sum = sha256_hex(&merged);
        let failed = |errno| ChangesError::Write { path: PathBuf::from(BLOBS).join(&sum), errno };
        write(blobs, &sum, &merged).map_err(failed)?;
        for entry in manifest.entries.iter_mut().filter(|entry| entry.path == path && entry.base.is_some()) {
            parted.push(Parted { whole: entry.clone(), keys: left.clone() });
            entry.size = u64::try_from(merged.len()).unwrap_or(u64::MAX);
            entry.sha256 = Some(sum.clone());
        }
    }
    Ok(parted)
}

/// After the parts were taken: the whole stays in the list, compared with what is on the host now.
pub(super) fn keep(manifest: &mut Manifest, parted: Vec<Parted>, root: &Dir) -> Vec<KeysLeft> {
    let mut keys = Vec::new();
    for Parted { mut whole, keys: left } in parted {
        let now = parent(root, &whole.path).and_then(|(dir, name)| Fingerprint::of(&dir, &name));
        // What cannot be looked at is a conflict when somebody takes the rest.
        if let Ok(Some(now)) = now {
            whole.base = Some(now);
        }
        keys.push(KeysLeft { path: whole.path.clone(), keys: left });
        let at = manifest.entries.partition_point(|entry| entry.path < whole.path);
        manifest.entries.insert(at, whole);
    }
    keys
}

fn write(blobs: &Dir, name: &str, content: &[u8]) -> KernelResult<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = blobs.open_file(name, flags, Mode::RUSR | Mode::WUSR)?;
    file.write_all(content).map_err(|error| crate::state::errno_of(&error))
}
