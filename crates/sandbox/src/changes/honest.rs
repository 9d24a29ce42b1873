//! Whether the objects that a run added to a folder of git's are what they are called.
//!
//! What names objects - branches, the index, logs - waits for them: where one is not taken, nothing of its folder is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::guarded::MAX_JUDGED;
use super::manifest::{Change, Entry};
use crate::protect::{Kind, MAX_UNPACKED, Name, NewObjects, beside, is_loose};
use crate::state::Dir;

/// Why a folder of git's is held with all that is in it.
pub(crate) const LIES: &str = "version control: not all objects in it are what their names or the index of their pack say (or they are too large to \
                               be looked at here): git would show others under ids that were reviewed. In the place of an index that the run \
                               made take the `.pack` alone and run `git index-pack` on it";

/// What the objects of a run are.
pub(super) struct Judged<'a> {
    pub(super) lies: Vec<&'a Entry>,
    /// By their folder of git's.
    pub(super) seen: BTreeMap<&'a Path, NewObjects>,
}

/// Looks into the objects of one run.
pub(super) struct Honest<'a> {
    blobs: Option<&'a Dir>,
    objects: BTreeMap<&'a Path, (&'a Entry, Kind)>,
    left: u64,
    seen: NewObjects,
}

impl<'a> Honest<'a> {
    pub(super) fn of(blobs: Option<&'a Dir>, objects: BTreeMap<&'a Path, (&'a Entry, Kind)>) -> Self {
        Self { blobs, objects, left: MAX_UNPACKED, seen: NewObjects::default() }
    }

    /// The objects that are not what they are called, and those of which nobody can say; and what was seen of the others, by the
    /// folder of git's that `of_git` says.
    pub(super) fn judged(mut self, of_git: impl Fn(&'a Path) -> &'a Path) -> Judged<'a> {
        let all: Vec<_> = self.objects.iter().map(|(path, object)| (*path, *object)).collect();
        let (mut lies, mut seen) = (Vec::new(), BTreeMap::new());
        for (path, (entry, kind)) in all {
            let folder = of_git(path);
            self.seen = seen.remove(folder).unwrap_or_default();
            if !self.is_honest(entry, kind) {
                lies.push(entry);
            }
            seen.insert(folder, std::mem::take(&mut self.seen));
        }
        Judged { lies, seen }
    }

    fn is_honest(&mut self, entry: &Entry, kind: Kind) -> bool {
        match kind {
            Kind::Large(name) => entry.sha256.as_deref() == Some(name.text().as_str()),
            Kind::Loose(name) => match self.content(entry) {
                Some(file) => is_loose(&name, &file, &mut self.left, &mut self.seen),
                None => false,
            },
            Kind::Pack(name) => self.is_indexed(entry, &name),
            // The pack decides.
            Kind::BesidePack => self.objects.contains_key(entry.path.with_extension("pack").as_path()),
            Kind::Config | Kind::Head | Kind::Index | Kind::Reference | Kind::PackedRefs => true,
        }
    }

    /// Whether what the run put beside a pack is what is made from it here. A pack without an index holds nothing for git.
    fn is_indexed(&mut self, entry: &Entry, name: &Name) -> bool {
        let Some(pack) = self.content(entry) else { return false };
        let Some(made) = beside(name, &pack, &mut self.left, &mut self.seen) else { return false };
        let same = |end: &str, made: &[u8]| {
            let path: PathBuf = entry.path.with_extension(end);
            let there = self.objects.get(path.as_path());
            there.is_none_or(|(entry, _)| self.content(entry).is_some_and(|file| file == made))
        };
        same("idx", &made.index) && same("rev", &made.reverse)
    }

    fn content(&self, entry: &Entry) -> Option<Vec<u8>> {
        // What was there is never changed.
        let sum = entry.sha256.as_deref().filter(|_| entry.change == Change::Added)?;
        self.blobs?.read(sum, MAX_JUDGED).ok()
    }
}
