//! Where the objects of a repository lie: in what the run added, on the host, and in what the host's borrows from.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::guarded::Guarding;
use super::manifest::Change;
use crate::protect::{self, Hash, ObjectsFolder, StoredObjects};
use crate::state::{Cross, Dir, rights_of};

/// A longer list of other folders is not read.
const MAX_LIST: u64 = 64 << 10;
/// So many other folders are looked into.
const MAX_BORROWED: usize = 16;

impl<'a> Guarding<'a> {
    /// The objects of a repository; `None` where nobody can say how they are named.
    pub(super) fn stored(&self, folder: &Path) -> Option<StoredObjects<'a>> {
        let (host, blobs, top) = (self.host?, self.blobs, folder.join("objects"));
        let hash = Hash::of(host, &folder.join("index"))?;
        let below = (Bound::Included(top.as_path()), Bound::Unbounded);
        let added = self.changed.range::<Path, _>(below).take_while(|(path, _)| path.starts_with(&top));
        // What nobody looked into may say anything of what it is.
        let added = added.filter(|(_, entry)| self.is_looked_into(entry));
        let added = added
            .filter_map(|(path, entry)| Some((path.strip_prefix(&top).ok()?.to_owned(), entry.sha256.as_deref()?)));
        let added: BTreeMap<PathBuf, &'a str> = added.collect();
        let indices = added.keys().filter(|path| is_index(path)).cloned().collect();
        let open = move |path: &Path| blobs?.open_file(added.get(path)?, OFlags::RDONLY, Mode::empty()).ok();
        let mut folders = Vec::new();
        // What the host has is what it was, whatever the run added under the same name.
        if let Ok(dir) = host.enter(&top, Cross::No) {
            let borrowed = borrowed(host, (&dir, self.manifest.workspace.join(&top)));
            folders.push(of_host(host, dir));
            folders.extend(borrowed);
        }
        folders.push(ObjectsFolder { open: Box::new(open), indices });
        Some(StoredObjects::new(hash, folders))
    }

    /// What of them the host has by itself: without the files that the run added, for of these an `apply` that ended half-way may have
    /// brought some.
    pub(super) fn hosts_objects(&self, folder: &Path) -> Option<StoredObjects<'a>> {
        let (host, top) = (self.host?, folder.join("objects"));
        let hash = Hash::of(host, &folder.join("index"))?;
        let Ok(dir) = host.enter(&top, Cross::No) else { return Some(StoredObjects::new(hash, Vec::new())) };
        let below = (Bound::Included(top.as_path()), Bound::Unbounded);
        let added = self.changed.range::<Path, _>(below).take_while(|(path, _)| path.starts_with(&top));
        let added = added.filter(|(_, entry)| entry.change == Change::Added);
        let added: BTreeSet<PathBuf> =
            added.filter_map(|(path, _)| Some(path.strip_prefix(&top).ok()?.to_owned())).collect();
        let borrowed = borrowed(host, (&dir, self.manifest.workspace.join(&top)));
        let ObjectsFolder { open, mut indices } = of_host(host, dir);
        indices.retain(|path| !added.contains(path));
        let open = move |path: &Path| if added.contains(path) { None } else { open(path) };
        let own = ObjectsFolder { open: Box::new(open), indices };
        Some(StoredObjects::new(hash, std::iter::once(own).chain(borrowed).collect()))
    }
}

fn is_index(path: &Path) -> bool {
    path.starts_with("pack") && path.extension().is_some_and(|end| end == "idx")
}

/// With the rights of the workspace's owner: what they may not read says nothing here.
fn of_host<'a>(host: &'a Dir, dir: Dir) -> ObjectsFolder<'a> {
    let names = dir.enter("pack", Cross::No).and_then(|packs| packs.names()).unwrap_or_default();
    let indices = names.into_iter().map(|name| Path::new("pack").join(name)).filter(|path| is_index(path)).collect();
    let open = move |path: &Path| {
        let _rights = rights_of(host).ok()?;
        dir.open_file(path, OFlags::RDONLY, Mode::empty()).ok()
    };
    ObjectsFolder { open: Box::new(open), indices }
}

/// The folders that `info/alternates` names, and those that they name in turn.
fn borrowed<'a>(host: &'a Dir, (own, place): (&Dir, PathBuf)) -> Vec<ObjectsFolder<'a>> {
    let Ok(_rights) = rights_of(host) else { return Vec::new() };
    let listed = |dir: &Dir, place: &Path| {
        let list = dir.read(Path::new("info").join("alternates"), MAX_LIST).unwrap_or_default();
        let lines = list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#"));
        let paths = lines.flat_map(protect::as_written_and_quoted);
        paths.filter_map(|path| protect::resolve(place, Path::new(OsStr::from_bytes(path)))).collect::<Vec<_>>()
    };
    let (mut ahead, mut found) = (listed(own, &place), Vec::new());
    while let Some(place) = ahead.pop().filter(|_| found.len() < MAX_BORROWED) {
        let Some(dir) = place.canonicalize().ok().and_then(|place| Dir::open(&place).ok()) else { continue };
        ahead.extend(listed(&dir, &place));
        found.push(of_host(host, dir));
    }
    found
}
