//! What of git's files is taken otherwise than as the run left it: of a configuration its harmless keys, and the rest stays with
//! the run; of an index and a list of references what git does not believe unseen. And of all files no new rights for others.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Result as KernelResult;

use super::ChangesError;
use super::apply::KeysLeft;
use super::exchange::parent;
use super::guarded::{Guarding, MAX_JUDGED};
use super::manifest::{BLOBS, Change, Entry, Fingerprint, Kind, Manifest};
use crate::protect::{self, Branches, Hash, List, Part, makes_repository, settled, split};
use crate::state::{Cross, Dir};
use policy::json::sha256_hex;

/// Rights of the owner: the run's own.
const OWNER: u32 = 0o700;
/// The right of everybody to write, which nothing new has.
const OTHERS_WRITE: u32 = 0o002;

/// A configuration that is taken in part: as the run left it, and which keys stay.
pub(super) struct Parted {
    whole: Entry,
    keys: String,
}

/// Puts what may be taken of each held configuration into the list, in the place of the whole. The list on the disk is not
/// changed.
pub(super) fn part(
    manifest: &mut Manifest,
    paths: Option<&[PathBuf]>,
    list: &List,
    (root, blobs): (&Dir, Option<&Dir>),
) -> Result<Vec<Parted>, ChangesError> {
    let Some(blobs) = blobs else { return Ok(Vec::new()) };
    let cut = paths.map(|paths| manifest.cut_to(paths));
    let judged = cut.as_ref().unwrap_or(&*manifest);
    let guarding = Guarding::of(list, judged, Some(root), Some(blobs));
    let held = judged.entries.iter().filter(|entry| guarding.why(entry).is_some());
    let found: Vec<(PathBuf, Part)> =
        held.filter_map(|entry| Some((entry.path.clone(), guarding.part(entry)?))).collect();
    drop(guarding);
    let mut parted = Vec::new();
    for (path, Part { merged, left }) in found {
        for entry in manifest.entries.iter_mut().filter(|entry| entry.path == path && entry.base.is_some()) {
            parted.push(Parted { whole: entry.clone(), keys: left.clone() });
            put(entry, &merged, blobs)?;
        }
    }
    Ok(parted)
}

/// Puts what may be taken into the list: of an index what git does not believe unseen, and of all files no new rights for others; who
/// may read may execute. The list on the disk is not changed.
pub(super) fn settle(
    manifest: &mut Manifest,
    paths: Option<&[PathBuf]>,
    (root, blobs): (&Dir, Option<&Dir>),
) -> Result<(), ChangesError> {
    let present = |entry: &&Entry| entry.change != Change::Removed;
    let chosen: BTreeSet<PathBuf> =
        manifest.choose(paths)?.into_iter().filter(present).map(|entry| entry.path.clone()).collect();
    let was = References::of(manifest);
    let mut others = BTreeMap::new();
    for entry in manifest.entries.iter_mut().filter(|entry| present(&&**entry) && chosen.contains(&entry.path)) {
        entry.mode &= entry.base.as_ref().map_or(!OTHERS_WRITE, |base| OWNER | base.mode | (base.mode & 0o044) >> 2);
        let mut is_other =
            |folder: &Path| *others.entry(folder.to_owned()).or_insert_with(|| is_repository(root, folder));
        if split(&entry.path).is_none() && !entry.path.ancestors().any(&mut is_other) {
            continue;
        }
        let before = || root.read(&entry.path, MAX_JUDGED).unwrap_or_default();
        let of = |name: &str| {
            let sum = entry.sha256.as_deref().filter(|_| is_called(entry, name));
            sum.and_then(|sum| blobs?.read(sum, MAX_JUDGED).ok())
        };
        let merged = of("packed-refs").map(|list| {
            let host = Branches::of(root, &entry.path);
            let list = was.followed(&list, entry.path.parent().unwrap_or(Path::new("")), &host);
            protect::merged(&before(), &list, |name| host.loose(std::str::from_utf8(name).ok()?))
        });
        let now = of("index");
        // What an index is read with is asked of indices alone.
        let index = now.and_then(|now| settled(&before(), &now, Hash::of(root, &entry.path)?));
        if let Some((blobs, settled)) = blobs.zip(index) {
            put(entry, &settled, blobs)?;
        } else if let Some((blobs, merged)) = blobs.zip(merged) {
            put(entry, &merged, blobs)?;
        }
    }
    Ok(())
}

/// What files of the host's said of references when the run began, or at its end where they said the same, each with the sum of that: git
/// inside packed what the run did not move.
struct References(BTreeSet<(PathBuf, String)>);

impl References {
    fn of(manifest: &Manifest) -> Self {
        let removed = manifest.entries.iter().filter(|entry| entry.change == Change::Removed);
        let removed = removed.filter_map(|entry| Some((entry.path.clone(), entry.base.as_ref()?.sha256.clone()?)));
        let moved =
            manifest.moved.iter().map(|noted| (noted.path.clone(), sha256_hex(format!("{}\n", noted.id).as_bytes())));
        Self(removed.chain(moved).collect())
    }

    /// A list in which those are where the host has them by now.
    fn followed(&self, list: &[u8], folder: &Path, host: &Branches) -> Vec<u8> {
        protect::followed(list, |name, id| {
            let said = (folder.join(OsStr::from_bytes(name)), sha256_hex(&[id, b"\n"].concat()));
            let name = std::str::from_utf8(name).ok().filter(|_| self.0.contains(&said))?;
            let now = host.now(name);
            let is_known = now.is_some() || !host.has_reference(name);
            (is_known && now != protect::id_of(id)).then_some(now)
        })
    }
}

fn is_called(entry: &Entry, wanted: &str) -> bool {
    entry.kind == Kind::File && entry.path.file_name().is_some_and(|name| name == wanted)
}

fn is_repository(root: &Dir, folder: &Path) -> bool {
    let dir = root.enter(folder, Cross::No);
    dir.is_ok_and(|dir| makes_repository(|name| !matches!(dir.kind(name), Ok(None))))
}

/// Gives an entry another content.
fn put(entry: &mut Entry, content: &[u8], blobs: &Dir) -> Result<(), ChangesError> {
    let sum = sha256_hex(content);
    let failed = |errno| ChangesError::Write { path: PathBuf::from(BLOBS).join(&sum), errno };
    write(blobs, &sum, content).map_err(failed)?;
    entry.size = u64::try_from(content.len()).unwrap_or(u64::MAX);
    entry.sha256 = Some(sum);
    Ok(())
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
