//! References of which a run made a file, and the host has none: where they were says the host's list (`packed-refs`), and git on the host may
//! have moved them since and packed them again. No file shows that.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};

use policy::json::{hex, sha256_hex};
use rustix::fs::{Mode, OFlags};

use super::exchange::parent;
use super::guarded::{Guarding, in_git};
use super::manifest::{Change, Entry, Kind, Manifest, NotedReference};
use crate::protect::{History, MAX_LIST, id_of, references_of};
use crate::state::Dir;

/// The list.
const LIST: &str = "packed-refs";
/// Of a reference of which nobody knows where it was.
const UNKNOWN: &str = "unknown";
/// Why the run's file is not put there.
pub(crate) const LISTED_OTHERWISE: &str = "it was moved, made or removed on the host meanwhile: git's list there (`packed-refs`) says otherwise than when the run began";

/// The lists of the host's folders of git's when a run began, by the folder. They are kept open: git puts another file in their place.
#[derive(Debug, Default)]
pub(super) struct Lists(BTreeMap<PathBuf, Option<File>>);

impl Lists {
    /// Keeps that of a folder, where it has one.
    pub(super) fn keep(&mut self, root: &Dir, folder: &Path) {
        let file = root.open_file(folder.join(LIST), OFlags::RDONLY, Mode::empty()).ok();
        self.0.insert(folder.to_owned(), file);
    }

    /// Another one is there by us.
    pub(super) fn put(&mut self, root: &Dir, path: &Path) {
        if let Some(folder) = path.parent().filter(|folder| path.ends_with(LIST) && self.0.contains_key(*folder)) {
            self.keep(root, folder);
        }
    }

    /// What a list said then; `None` of one that was not kept and was written since.
    fn then(&self, root: &Dir, folder: &Path, is_since: &dyn Fn(&Path) -> bool) -> Option<Vec<u8>> {
        match self.0.get(folder) {
            Some(kept) => Some(kept.as_ref().and_then(read).unwrap_or_default()),
            None => (!is_since(&folder.join(LIST))).then(|| now(root, folder)),
        }
    }

    /// Where each reference was of which a file is among the entries: what a file said then (`loose`) counts.
    pub(super) fn noted(
        &self,
        root: &Dir,
        entries: &[Entry],
        loose: &dyn Fn(&Path, &Path) -> Option<String>,
        is_since: &dyn Fn(&Path) -> bool,
    ) -> Vec<NotedReference> {
        let made = entries.iter().filter(|entry| entry.change == Change::Added && entry.kind == Kind::File);
        let made = by_folder(root, made.map(|entry| entry.path.as_path()));
        let noted = made.into_iter().flat_map(|(folder, paths)| {
            let list = self.then(root, folder, is_since);
            let said = list.as_ref().map(|list| ids_of(list, folder, &paths));
            let noted = |path: &Path| {
                let listed = || said.as_ref().map_or(Some(UNKNOWN), |said| said.get(path).map(String::as_str));
                let id = loose(folder, path).or_else(|| listed().map(str::to_owned)).unwrap_or_default();
                NotedReference { path: path.to_owned(), id }
            };
            paths.into_iter().map(noted).collect::<Vec<_>>()
        });
        noted.collect()
    }
}

impl Manifest {
    /// The files among the entries whose references are elsewhere by now in the host's list, unless that is where the run put them: by the
    /// file, or by a list of its own that is there already.
    pub(crate) fn listed_otherwise(&self, root: &Dir, blobs: Option<&Dir>) -> BTreeSet<&Path> {
        let known = self.listed.iter().filter(|noted| noted.id != UNKNOWN);
        let known: BTreeMap<&Path, &str> = known.map(|noted| (noted.path.as_path(), noted.id.as_str())).collect();
        let noted = |entry: &'_ Entry| known.get(entry.path.as_path()).copied();
        let made: BTreeMap<&Path, (&str, Option<&String>)> = self
            .entries
            .iter()
            .filter_map(|entry| Some((entry.path.as_path(), (noted(entry)?, entry.sha256.as_ref()))))
            .collect();
        let mut found = BTreeSet::new();
        for (folder, paths) in by_folder(root, made.keys().copied()) {
            let said = ids_of(&now(root, folder), folder, &paths);
            let own =
                self.entries.iter().find(|entry| entry.change != Change::Removed && entry.path == folder.join(LIST));
            let own =
                own.and_then(|own| own.content(blobs)).map(|own| ids_of(&own, folder, &paths)).unwrap_or_default();
            // Of all but branches the run's list says what the host's does.
            let heads = folder.join("refs").join("heads");
            let is_branch = |path: &Path| path.starts_with(&heads) && path != heads.join("git-annex");
            let is_own = |path: &Path, is: &str| is_branch(path) && own.get(path).is_some_and(|id| id == is);
            let is_otherwise = |path: &&Path| {
                let is = said.get(path).map_or("", String::as_str);
                let text = sha256_hex(format!("{is}\n").as_bytes());
                made.get(path).is_some_and(|(then, put)| *then != is && *put != Some(&text)) && !is_own(path, is)
            };
            found.extend(paths.into_iter().filter(is_otherwise));
        }
        found
    }

    /// After these paths were put there by us: what a list of them says is no work of somebody else's.
    pub(super) fn note_lists(&mut self, root: &Dir, put: &[&Path]) {
        let is_put = |folder: &Path| put.contains(&folder.join(LIST).as_path());
        let paths: Vec<PathBuf> = self.listed.iter().map(|noted| noted.path.clone()).collect();
        for (folder, paths) in by_folder(root, paths.iter().map(PathBuf::as_path)) {
            if !is_put(folder) {
                continue;
            }
            let said = ids_of(&now(root, folder), folder, &paths);
            let of_it = self.listed.iter_mut().filter(|noted| paths.contains(&noted.path.as_path()));
            of_it.for_each(|noted| noted.id = said.get(noted.path.as_path()).cloned().unwrap_or_default());
        }
    }
}

impl Guarding<'_> {
    /// Whether a file that is new moves a reference that the host has in its list alone, as it has them after a clone and each `git gc`.
    pub(super) fn moves_listed(&self, entry: &Entry) -> bool {
        let is_made = entry.change == Change::Added && entry.kind == Kind::File;
        let found = in_git(&self.repositories, &entry.path).filter(|(_, rest)| is_made && rest.starts_with("refs"));
        let Some((host, name)) = found.and_then(|(folder, rest)| {
            let host = &self.references.get(folder)?.host;
            let name = rest.into_os_string().into_string().ok()?;
            host.listed(&name).map(|_| (host, name))
        }) else {
            return false;
        };
        host.now(&name) != entry.content(self.blobs).as_deref().and_then(id_of)
    }

    /// Whether the run's file of a reference, of which nobody knows where it was, would leave behind what the host's list says of it.
    pub(super) fn leaves_behind(&self, entry: &Entry) -> bool {
        let found = in_git(&self.repositories, &entry.path).filter(|(_, rest)| rest.starts_with("refs"));
        let Some((folder, rest)) = found.filter(|_| entry.change == Change::Added && entry.kind == Kind::File) else {
            return false;
        };
        let is_unknown = || self.manifest.listed.iter().any(|noted| noted.path == entry.path && noted.id == UNKNOWN);
        let refs = self.references.get(folder);
        let Some(listed) = refs.and_then(|refs| refs.host.listed(&rest.to_string_lossy())).filter(|_| is_unknown())
        else {
            return false;
        };
        let put = entry.content(self.blobs).as_deref().and_then(id_of);
        let mut history = History::default();
        if let Some(stored) = self.objects.get(folder) {
            history.walk(stored, put.clone());
        }
        put.as_ref() != Some(listed) && !history.has(listed)
    }
}

/// Files of references, by the folder of git's that they lie in: the outermost with a `HEAD` on the host.
fn by_folder<'p>(root: &Dir, paths: impl Iterator<Item = &'p Path>) -> BTreeMap<&'p Path, Vec<&'p Path>> {
    let mut known: BTreeMap<&Path, bool> = BTreeMap::new();
    let mut found: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
    for path in paths {
        let tops = path.ancestors().skip(1).filter(|above| above.ends_with("refs")).filter_map(Path::parent);
        let mut folder = None;
        for top in tops {
            let has_head =
                || matches!(parent(root, &top.join("HEAD")).and_then(|(dir, name)| dir.kind(name)), Ok(Some(_)));
            if *known.entry(top).or_insert_with(has_head) {
                folder = Some(top);
            }
        }
        if let Some(folder) = folder {
            found.entry(folder).or_default().push(path);
        }
    }
    found
}

/// What a list says of these paths, in hexadecimal digits.
fn ids_of<'p>(list: &[u8], folder: &Path, paths: &[&'p Path]) -> BTreeMap<&'p Path, String> {
    let named = |path: &'p Path| Some((path.strip_prefix(folder).ok()?.as_os_str().as_encoded_bytes(), path));
    let named: BTreeMap<&[u8], &'p Path> = paths.iter().copied().filter_map(named).collect();
    references_of(list).filter_map(|(name, id)| Some((*named.get(name)?, hex(&id_of(id)?)))).collect()
}

/// What the host's list says now; nothing where it has none.
fn now(root: &Dir, folder: &Path) -> Vec<u8> {
    root.read(folder.join(LIST), MAX_LIST).unwrap_or_default()
}

fn read(file: &File) -> Option<Vec<u8>> {
    use std::os::unix::fs::FileExt as _;
    let size = file.metadata().ok()?.len();
    let mut content = vec![0; usize::try_from(size).ok().filter(|_| size <= MAX_LIST)?];
    file.read_exact_at(&mut content, 0).ok()?;
    Some(content)
}
