//! What git on the host tidied up since the run began (`git gc`, `git pack-refs`, `git maintenance`): a reference that went from its file
//! into the list is where it was, and a folder that is empty no more there is no change of anybody's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::apply::Conflict;
use super::exchange::parent;
use super::guarded::{Guarding, MAX_JUDGED, in_git};
use super::manifest::{Change, Entry, Kind};
use crate::fault::show_bytes;
use crate::protect;
use crate::state::{Cross, Dir};
use policy::json::{hex, sha256_hex};

/// So many branches are told with their commits.
const MAX_TOLD: usize = 8;
/// Folders that git removes when they are empty.
const TIDIED: [&str; 2] = ["objects", "refs"];

/// What is put otherwise than the list of changes says, for that.
#[derive(Default)]
pub(super) struct Tidied {
    /// References whose files are not there any more.
    again: BTreeMap<PathBuf, Entry>,
    /// Folders that are made again for what is put there.
    folders: Vec<Entry>,
    /// What the run removed, and the host's list has by now.
    pub(super) conflicts: Vec<Conflict>,
}

impl Tidied {
    pub(super) fn of(root: &Dir, chosen: &[&Entry], guarding: &Guarding<'_>) -> Self {
        let mut tidied = Self::default();
        for entry in chosen.iter().filter(|entry| guarding.packed_since(entry).is_some()) {
            if entry.change == Change::Removed {
                let why = "git on the host has it in `packed-refs` since the run began: remove it there (`git branch -D`), and apply again";
                tidied.conflicts.push(Conflict { path: entry.path.clone(), id: "changed", why: why.to_owned() });
            } else {
                let again = Entry { change: Change::Added, base: None, ..(*entry).clone() };
                tidied.again.insert(entry.path.clone(), again);
            }
        }
        let mut known: BTreeSet<PathBuf> = chosen.iter().map(|entry| entry.path.clone()).collect();
        for entry in chosen.iter().filter(|entry| entry.change != Change::Removed) {
            tidied.make_folders(root, entry, (guarding, &mut known));
        }
        tidied
    }

    /// Those above an entry in git's folder that are not there, as their top is.
    fn make_folders(&mut self, root: &Dir, entry: &Entry, (guarding, known): (&Guarding<'_>, &mut BTreeSet<PathBuf>)) {
        let Some((folder, rest)) = in_git(&guarding.repositories, &entry.path) else { return };
        let Some(top) = TIDIED.iter().find(|top| rest.starts_with(top)).map(|top| folder.join(top)) else { return };
        let within = entry.path.ancestors().skip(1).take_while(|above| *above != top);
        let missing = within.filter(|above| {
            matches!(parent(root, above).and_then(|(dir, name)| dir.kind(name)), Ok(None) | Err(Errno::NOENT))
        });
        let missing: Vec<&Path> = missing.filter(|above| known.insert(above.to_path_buf())).collect();
        let mode = root.enter(&top, Cross::No).and_then(rustix::fs::fstat).map(|stat| stat.st_mode & 0o777);
        let Ok(mode) = mode else { return };
        let made = |path: &Path| Entry {
            path: path.to_owned(),
            change: Change::Added,
            kind: Kind::Dir,
            mode,
            size: 0,
            sha256: None,
            target: None,
            stripped: false,
            base: None,
            touched: false,
        };
        self.folders.extend(missing.into_iter().rev().map(made));
    }

    /// What is put, in the place of what was chosen.
    pub(super) fn put<'e>(&'e self, chosen: &[&'e Entry]) -> Vec<&'e Entry> {
        let again = |entry: &&'e Entry| self.again.get(&entry.path).unwrap_or(entry);
        self.folders.iter().chain(chosen.iter().map(again)).collect()
    }
}

impl Guarding<'_> {
    /// What the file of a reference said that git on the host has in its list since the run began, with what it was.
    pub(super) fn packed_since(&self, entry: &Entry) -> Option<Vec<u8>> {
        let base = entry.base.as_ref().filter(|base| base.kind == Kind::File)?;
        let (folder, rest) = in_git(&self.repositories, &entry.path).filter(|(_, rest)| rest.starts_with("refs"))?;
        let listed = self.references.get(folder)?.host.listed(&rest.to_string_lossy())?;
        let is_there = |host: &Dir| match parent(host, &entry.path).and_then(|(dir, name)| dir.kind(name)) {
            Ok(None) | Err(Errno::NOENT) => false,
            // An empty folder, as where a branch below it was packed.
            Ok(Some(kind)) => kind != FileType::Directory,
            Err(_other) => true,
        };
        let text = format!("{}\n", hex(listed)).into_bytes();
        let is_as_it_was = base.sha256.as_ref() == Some(&sha256_hex(&text));
        (is_as_it_was && !self.host.is_some_and(is_there)).then_some(text)
    }

    /// What the host's list of references says by now, and, of what a run's list says, what files of the host's say as well: git packed it
    /// inside.
    pub(super) fn list_before(&self, entry: &Entry, before: Vec<u8>, now: &[u8]) -> Vec<u8> {
        let there = || self.host.and_then(|host| host.read(&entry.path, MAX_JUDGED).ok()).unwrap_or_default();
        let mut list = if before.is_empty() { there() } else { before };
        let Some(refs) = self.references.get(self.of_git(&entry.path)) else { return list };
        let known: BTreeSet<&[u8]> = protect::references_of(&list).map(|(name, _)| name).collect();
        let is_loose_so = |name: &[u8], id: &[u8]| {
            let loose = std::str::from_utf8(name).ok().and_then(|name| refs.host.loose(name));
            loose.is_some() && loose == protect::id_of(id)
        };
        let said = protect::references_of(now).filter(|(name, id)| !known.contains(name) && is_loose_so(name, id));
        let lines: Vec<u8> = said.flat_map(|(name, id)| [id, b" ", name, b"\n"].concat()).collect();
        if !list.is_empty() && !list.ends_with(b"\n") {
            list.push(b'\n');
        }
        list.extend(lines);
        list
    }

    /// Whether the run removed the file of a reference because its list has it as it is: on the host the file stays, and says the same. So
    /// does a folder of such.
    pub(super) fn is_packed_inside(&self, entry: &Entry) -> bool {
        let Some((folder, rest)) = in_git(&self.repositories, &entry.path) else { return false };
        if entry.change != Change::Removed
            || !rest.starts_with("refs")
            || self.changed.contains_key(entry.path.as_path())
        {
            return false;
        }
        if entry.kind == Kind::Dir {
            let entries = &self.manifest.entries;
            let first = entries.partition_point(|one| one.path <= entry.path);
            let mut below =
                entries.get(first..).into_iter().flatten().take_while(|one| one.path.starts_with(&entry.path));
            return below.any(|one| one.kind == Kind::File && self.is_packed_inside(one));
        }
        let Some(refs) = self.references.get(folder) else { return false };
        let name = rest.to_string_lossy();
        let listed = refs.list.get(name.as_bytes()).and_then(Option::as_ref);
        listed.is_some() && refs.host.loose(&name).as_ref() == listed
    }

    /// Why the run's list of references does not take the place of the host's, which is another one by now.
    pub(super) fn packed_by_both(&self, entry: &Entry) -> Option<String> {
        let (folder, _) =
            in_git(&self.repositories, &entry.path).filter(|(_, rest)| rest == Path::new("packed-refs"))?;
        let (refs, (_, now)) = (self.references.get(folder)?, self.contents(entry)?);
        let moved = protect::branches_of(&now).filter_map(|(name, id)| {
            let short = String::from_utf8_lossy(name.strip_prefix(b"refs/heads/")?).into_owned();
            let id = protect::id_of(id)?;
            (refs.tips.get(&short) != Some(&id))
                .then(|| format!("`git branch {} {}`", show_bytes(short.as_bytes()), hex(&id)))
        });
        let mut moved: Vec<String> = moved.take(MAX_TOLD.saturating_add(1)).collect();
        let more = if moved.len() > MAX_TOLD { " and so on" } else { "" };
        moved.truncate(MAX_TOLD);
        let told = if moved.is_empty() {
            "its branches are where the host's are".to_owned()
        } else {
            format!("{}{more}", moved.join(", "))
        };
        Some(format!(
            "git wrote it anew on the host meanwhile, as the run did (`git gc`, `git pack-refs`): take the objects \
             (`fumehood apply -- {}`) and name what the run's list names: {told}",
            show_bytes(folder.join("objects").as_os_str().as_encoded_bytes())
        ))
    }
}
