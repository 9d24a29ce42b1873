//! Whether the objects that a run added to a folder of git's are what they are called.
//!
//! What names objects - branches, the index, logs - waits for them: where one is not taken, nothing of its folder is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::guarded::MAX_JUDGED;
use super::manifest::{Change, Entry};
use crate::protect::{Kind, MAX_UNPACKED, Name, ServerFiles, beside, is_loose};
use crate::state::Dir;

/// Why a folder of git's is held with all that is in it.
pub(crate) const LIES: &str = "version control: not all objects in it are what their names or the index of their pack say (or they are too large to \
                               be looked at here): git would show others under ids that were reviewed. In the place of an index that the run \
                               made take the `.pack` alone and run `git index-pack` on it";

/// Looks into the objects of one run.
pub(super) struct Honest<'a> {
    blobs: Option<&'a Dir>,
    objects: BTreeMap<&'a Path, (&'a Entry, Kind)>,
    left: u64,
    files: ServerFiles,
}

impl<'a> Honest<'a> {
    pub(super) fn of(blobs: Option<&'a Dir>, objects: BTreeMap<&'a Path, (&'a Entry, Kind)>) -> Self {
        Self { blobs, objects, left: MAX_UNPACKED, files: ServerFiles::default() }
    }

    /// The objects that are not what they are called, and those of which nobody can say; and what each of the others brings of the
    /// files that say which servers are asked.
    pub(super) fn lies(mut self) -> (Vec<&'a Entry>, Vec<(&'a Entry, ServerFiles)>) {
        let all: Vec<_> = self.objects.values().copied().collect();
        let (mut lies, mut files) = (Vec::new(), Vec::new());
        for (entry, kind) in all {
            if !self.is_honest(entry, kind) {
                lies.push(entry);
            }
            files.extend(Some((entry, std::mem::take(&mut self.files))).filter(|(_, files)| !files.is_empty()));
        }
        (lies, files)
    }

    fn is_honest(&mut self, entry: &Entry, kind: Kind) -> bool {
        match kind {
            Kind::Large(name) => entry.sha256.as_deref() == Some(name.text().as_str()),
            Kind::Loose(name) => match self.content(entry) {
                Some(file) => is_loose(&name, &file, &mut self.left, &mut self.files),
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
        let Some(made) = beside(name, &pack, &mut self.left, &mut self.files) else { return false };
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
