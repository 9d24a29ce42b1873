//! What git on the host tidied up since the run began (`git gc`, `git pack-refs`, `git maintenance`): a reference that went from its file
//! into the list is where it was, and a folder that is empty no more there is no change of anybody's.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::apply::Conflict;
use super::exchange::parent;
use super::guarded::{Guarding, MAX_JUDGED, in_git};
use super::manifest::{Change, Entry, Kind, Manifest};
use crate::fault::{show_bytes, show_short};
use crate::protect;
use crate::state::{Cross, Dir};
use policy::json::{hex, sha256_hex};

/// So many branches are told with their commits.
const MAX_TOLD: usize = 8;
/// Why a list of references is a conflict.
const PACKED_BY_BOTH: &str = "git wrote it anew on the host meanwhile, as the run did (`git gc`, `git pack-refs`)";
/// What stands between why something is a conflict and how the run's commits are taken all the same.
pub(crate) const BESIDE: &str = "; the run's commits: ";
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
        let is_packed = |entry: &&&Entry| guarding.packed_since(entry).is_some() && !guarding.is_packed_inside(entry);
        for entry in chosen.iter().filter(is_packed) {
            if entry.change == Change::Removed {
                let why = "git on the host has it in `packed-refs` since the run began: remove it there (`git branch -D`), and apply again";
                tidied.conflicts.push(Conflict { path: entry.path.clone(), id: "changed", why: why.to_owned() });
            } else {
                let again = Entry { change: Change::Added, base: None, ..(*entry).clone() };
                tidied.again.insert(entry.path.clone(), again);
            }
        }
        tidied.conflicts.extend(chosen.iter().flat_map(|entry| guarding.brought_back(entry)));
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
        let text = format!("{}\n", hex(listed)).into_bytes();
        let is_as_it_was = base.sha256.as_ref() == Some(&sha256_hex(&text));
        (is_as_it_was && !self.has_file(&entry.path)).then_some(text)
    }

    /// References that somebody on the host removed since the run began, and that the run's list has elsewhere than they were.
    fn brought_back(&self, entry: &Entry) -> Vec<Conflict> {
        let folder = in_git(&self.repositories, &entry.path).filter(|(_, rest)| rest == Path::new("packed-refs"));
        let refs = folder.and_then(|(folder, _)| Some((folder, self.references.get(folder)?)));
        let Some((folder, refs)) = refs else { return Vec::new() };
        let noted = self
            .manifest
            .moved
            .iter()
            .filter_map(|noted| Some((noted, noted.path.strip_prefix(folder).ok()?.to_str()?)));
        let is_back = |name: &str| refs.list.contains_key(name.as_bytes()) && !refs.host.has_reference(name);
        let back = noted.filter(|(_, name)| is_back(name));
        let why = "it was removed on the host meanwhile, and the run moved it".to_owned();
        back.map(|(noted, _)| Conflict { path: noted.path.clone(), id: "missing", why: why.clone() }).collect()
    }

    /// Of the run's list: a reference that it moved or made there, and of which the host has a file meanwhile that says otherwise. Git would
    /// see the file alone.
    pub(super) fn is_under_file(&self, entry: &Entry) -> Option<String> {
        let (folder, _) =
            in_git(&self.repositories, &entry.path).filter(|(_, rest)| rest == Path::new("packed-refs"))?;
        let refs = self.references.get(folder).filter(|refs| refs.is_of_run)?;
        let is_under = |name: &str, id: &Option<Vec<u8>>| {
            let is_hosts = refs.host.listed(name).is_some_and(|listed| Some(listed) == id.as_ref());
            let loose = if is_hosts { None } else { refs.host.loose(name) };
            // Of one that was in a file when the run began the run removed that, or wrote it.
            loose.is_some() && loose != *id && self.entry_at(&folder.join(name)).is_none()
        };
        let mut listed = refs.list.iter().filter_map(|(name, id)| Some((std::str::from_utf8(name).ok()?, id)));
        let (name, _) = listed.find(|(name, id)| is_under(name, id))?;
        Some(format!(
            "the host has {} in a file of its own meanwhile, and git would not see where the run's is",
            show_short(name.as_bytes())
        ))
    }

    /// Whether the host has a file at a path, or nobody can say. A folder is none: it may be empty, as where a branch below it was packed.
    fn has_file(&self, path: &Path) -> bool {
        self.host.is_some_and(|host| match parent(host, path).and_then(|(dir, name)| dir.kind(name)) {
            Ok(None) | Err(Errno::NOENT) => false,
            Ok(Some(kind)) => kind != FileType::Directory,
            Err(_other) => true,
        })
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

    /// Whether the run removed the file of a reference because its list has it as it is: on the host the file stays, and says the same; or
    /// somebody removed it there meanwhile. So does a folder of such.
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
        if refs.is_in_untaken(&name) {
            return true;
        }
        let listed = refs.list.get(name.as_bytes()).and_then(Option::as_ref);
        let is_gone = || refs.host.now(&name).is_none() && !self.has_file(&entry.path);
        // Git on the host may have packed it as well.
        let is_same = |listed: &Vec<u8>| {
            refs.host.loose(&name).as_ref() == Some(listed) || refs.is_of_run && refs.host.listed(&name) == Some(listed)
        };
        listed.map_or_else(is_gone, is_same)
    }

    /// Why the run's list of references does not take the place of the host's, which is another one by now.
    pub(super) fn packed_by_both(&self, entry: &Entry) -> Option<&'static str> {
        let (_, rest) = in_git(&self.repositories, &entry.path)?;
        (rest == Path::new("packed-refs")).then_some(PACKED_BY_BOTH)
    }

    /// Why what says where the run's branches are does not take the place of what the host has by now, and how its commits are taken beside
    /// that.
    pub(super) fn beside(&self, entry: &Entry, why: String) -> String {
        let Some((folder, rest)) = in_git(&self.repositories, &entry.path) else { return why };
        let Some(refs) = self.references.get(folder) else { return why };
        let now = |entry: &Entry| entry.content(self.blobs).unwrap_or_default();
        let is_list = rest == Path::new("packed-refs");
        let heads = folder.join("refs").join("heads");
        let moved = if is_list {
            let mut moved: BTreeMap<String, Vec<u8>> = moved_in(&now(entry), &refs.tips).into_iter().collect();
            // What a file of its own says counts, whatever the list says.
            let below = self.changed.range::<Path, _>((Bound::Included(heads.as_path()), Bound::Unbounded));
            let below = below.take_while(|(path, _)| path.starts_with(&heads));
            moved
                .extend(below.filter_map(|(path, entry)| Some((name_in(&heads, path)?, protect::id_of(&now(entry))?))));
            moved
        } else {
            let Some(name) = name_in(&heads, &entry.path) else { return why };
            protect::id_of(&now(entry)).map(|id| (name, id)).into_iter().collect()
        };
        if moved.is_empty() {
            return if is_list { format!("{why}: its branches are where the host's are") } else { why };
        }
        let more = if moved.len() > MAX_TOLD { " and so on" } else { "" };
        let named: Vec<String> =
            moved.iter().take(MAX_TOLD).map(|(name, id)| naming(name, &hex(id), &refs.tips)).collect();
        format!(
            "{why}{BESIDE}`fumehood apply {} -- {}` takes them over, and git on the host names them: {}{more}",
            self.manifest.run,
            show_bytes(folder.join("objects").as_os_str().as_encoded_bytes()),
            named.join(", ")
        )
    }
}

/// What a list of a run's names. Without it, a file that git packed into it was not removed.
pub(super) enum ListedNames {
    /// Nobody can say, and all may be in it.
    Unread,
    Known(BTreeSet<Vec<u8>>),
}

impl ListedNames {
    pub(super) fn of(list: &Entry, blobs: Option<&Dir>) -> Self {
        let names = |list: Vec<u8>| protect::references_of(&list).map(|(name, _)| name.to_vec()).collect();
        list.content(blobs).map_or(Self::Unread, |list| Self::Known(names(list)))
    }

    pub(super) fn has(&self, name: &[u8]) -> bool {
        match self {
            Self::Unread => true,
            Self::Known(names) => names.contains(name),
        }
    }
}

/// The files of references that are no removals without these lists, of a run's changes: git packed them there.
pub(super) fn packed_into(lists: &[PathBuf], manifest: &Manifest, blobs: Option<&Dir>) -> BTreeSet<PathBuf> {
    let is_list = |entry: &&Entry| {
        entry.change != Change::Removed && entry.path.ends_with("packed-refs") && lists.contains(&entry.path)
    };
    let mut packed = BTreeSet::new();
    for list in manifest.entries.iter().filter(is_list) {
        let names = ListedNames::of(list, blobs);
        let Some(folder) = list.path.parent() else { continue };
        let removed = manifest.entries.iter().filter(|entry| entry.change == Change::Removed);
        let files = removed.filter(|entry| {
            let rest = entry.path.strip_prefix(folder).ok().filter(|rest| rest.starts_with("refs"));
            rest.is_some_and(|rest| names.has(rest.as_os_str().as_encoded_bytes()))
        });
        packed.extend(files.map(|entry| entry.path.clone()));
    }
    packed
}

/// The name of the branch whose file this is.
fn name_in(heads: &Path, path: &Path) -> Option<String> {
    Some(path.strip_prefix(heads).ok()?.to_string_lossy().into_owned())
}

/// The branches of a run's list that are elsewhere than the host's, and where.
pub(crate) fn moved_in(list: &[u8], tips: &BTreeMap<String, Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    let moved = protect::branches_of(list).filter_map(|(name, id)| {
        let short = String::from_utf8_lossy(name.strip_prefix(b"refs/heads/")?).into_owned();
        let id = protect::id_of(id)?;
        (tips.get(&short) != Some(&id)).then_some((short, id))
    });
    moved.collect()
}

/// The command that names a commit of the run's on the host: git makes no branch that is there already. A name that is more than a word to a
/// shell is left to whoever writes it.
pub(crate) fn naming(branch: &str, id: &str, tips: &BTreeMap<String, Vec<u8>>) -> String {
    let is_plain = branch.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte));
    let name = if !is_plain || branch.starts_with('-') {
        "NAME".to_owned()
    } else if branch == "HEAD" || tips.contains_key(branch) {
        format!("{branch}-by-run")
    } else {
        branch.to_owned()
    };
    format!("`git branch {name} {id}`")
}
