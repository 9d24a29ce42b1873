//! Hard links: another name of a control file in the workspace is the same file, and as protected.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Result;

use super::gitdir::{DATA, NodeChange, Verdict, judge};
use super::list::Shape;
use super::plan::{Bind, ProtectPlan, parent_of};
use crate::state::{Cross, Dir};

/// How many entries are looked at for another name.
const MAX_ENTRIES: usize = 100_000;

/// A control file with more names than one: how many are left to be found.
struct Linked {
    path: PathBuf,
    left: u64,
    category: String,
    why: String,
}

/// Everything of one kind in a folder, at any depth, up to [`MAX_ENTRIES`]; folders with these names are left out.
pub(super) fn files(below: &Dir, folder: &Path, but: &[&str], wanted: FileType) -> Vec<PathBuf> {
    let (mut found, mut queue) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(at) = queue.pop() {
        for (name, kind) in below.look_into(&at, Cross::No).and_then(|dir| dir.kinds()).unwrap_or_default() {
            let path = at.join(&name);
            if kind == FileType::Directory && !but.iter().any(|one| name == *one) {
                queue.push(path);
            } else if kind == wanted && found.len() < MAX_ENTRIES {
                found.push(path);
            }
        }
    }
    found
}

/// The files of a folder of git's that are not harmless. Objects and references are left out: there may be many, and those
/// of a local clone have more names than one.
fn steering(below: &Dir, layer: &Path) -> Vec<PathBuf> {
    let mut found = files(below, layer, &DATA, FileType::RegularFile);
    found.push(layer.join("objects/info/alternates"));
    found.retain(|path| judge(path.strip_prefix(layer).unwrap_or(path), NodeChange::File) != Verdict::Harmless);
    found
}

impl ProtectPlan {
    /// Binds every other name of a bound file too. What is not found within the workspace lies outside, where nobody
    /// inside can reach it, unless the search was cut short.
    /// `outside`: files out of it of which no name here may be written either, those of home folders with a `true`, each name once.
    pub(super) fn other_names(&mut self, below: &Dir, outside: &[(PathBuf, bool)]) -> Result<()> {
        let mut linked = BTreeMap::new();
        let mut look = |path: &Path, category: &str, why: &str| -> Result<()> {
            let Some((parent, name)) = parent_of(below, path)? else { return Ok(()) };
            let Some(stat) = parent.stat(name)? else { return Ok(()) };
            if stat.st_nlink > 1 && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                let (category, why) = (category.to_owned(), format!("another name of a control file: {why}"));
                let one = Linked { path: path.to_owned(), left: stat.st_nlink, category, why };
                linked.entry((stat.st_dev, stat.st_ino)).or_insert(one);
            }
            Ok(())
        };
        for bind in self.binds.iter().filter(|bind| bind.kind == Shape::File) {
            look(&bind.path, &bind.category, &bind.why)?;
        }
        for bind in self.binds.iter().filter(|bind| bind.kind == Shape::Dir) {
            for path in files(below, &bind.path, &[], FileType::RegularFile) {
                look(&path, &bind.category, &bind.why)?;
            }
        }
        for path in self.layers.iter().flat_map(|layer| steering(below, layer)) {
            look(&path, "version control", "git obeys it")?;
        }
        add_outside(&mut linked, outside);
        if linked.is_empty() {
            return Ok(());
        }
        let mut entries = MAX_ENTRIES;
        let mut queue = vec![PathBuf::new()];
        while let Some(at) = queue.pop() {
            let Ok(dir) = below.look_into(&at, Cross::No) else { continue };
            for name in dir.names().unwrap_or_default() {
                let Some(left) = entries.checked_sub(1) else {
                    self.linked = linked.into_values().filter(|one| one.left > 0).map(|one| one.path).collect();
                    return Ok(());
                };
                entries = left;
                let Ok(Some(stat)) = dir.stat(&name) else { continue };
                if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                    queue.push(at.join(&name));
                    continue;
                }
                let Some(one) = linked.get_mut(&(stat.st_dev, stat.st_ino)) else { continue };
                one.left = one.left.saturating_sub(1);
                let (path, category, why) = (at.join(&name), one.category.clone(), one.why.clone());
                // What lies in a layer cannot be reached by its own name.
                let layered = self.layers.iter().any(|layer| path.starts_with(layer));
                if !layered && !self.bound.contains(&path) {
                    self.bind(Bind { path, kind: Shape::File, category, why });
                }
            }
        }
        Ok(())
    }
}

/// Files out of the workspace that have other names. All names of one at home may be there: then none is here.
fn add_outside(linked: &mut BTreeMap<(u64, u64), Linked>, outside: &[(PathBuf, bool)]) {
    let mut at_home = BTreeMap::new();
    for (path, of_home) in outside {
        let Ok(stat) = std::fs::metadata(path) else { continue };
        if !stat.is_file() || stat.nlink() < 2 {
            continue;
        }
        let (category, why) = if *of_home {
            ("shell", "another name of a file in a home folder that programs read by themselves")
        } else {
            ("version control", "another name of a file out of the workspace that git obeys")
        };
        let file = (stat.dev(), stat.ino());
        let names: &mut u64 = at_home.entry(file).or_default();
        *names = names.saturating_add(u64::from(*of_home));
        let (category, why) = (category.to_owned(), why.to_owned());
        linked.entry(file).or_insert(Linked { path: path.clone(), left: stat.nlink(), category, why });
    }
    linked.retain(|file, one| at_home.get(file).is_none_or(|names| *names < one.left));
}
