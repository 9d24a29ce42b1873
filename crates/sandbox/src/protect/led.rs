//! Where links among control files lead, and where the documents of a policy lie: what `apply` holds beside the list, and what
//! no grant may make writable.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

use super::gitdir::{DATA, is_git, is_repository};
use super::links::files;
use super::list::List;
use super::plan::{Top, expand, follow};
use super::{git, home, users};
use crate::mounts::Mounts;
use crate::state::{Cross, Dir};
use crate::steps::passed;

/// How many folders are looked through for links.
const MAX_FOLDERS: usize = 1_000_000;
/// So much is looked at in a folder of control files out of the workspace.
const MAX_ABOVE: usize = 1024;

/// What the links among the control files of a workspace lead to, whether anything is there or not.
#[derive(Debug, Default)]
pub struct Led {
    /// Relative to the workspace, with every link on the way.
    pub within: BTreeSet<PathBuf>,
    /// Out of the workspace, without links.
    pub out: BTreeSet<PathBuf>,
    /// Folders that are one of git's, or have one called `.git`: their configurations name more.
    pub repositories: BTreeSet<PathBuf>,
    /// There are more folders than were looked through, or more in a home folder.
    pub cut: bool,
}

/// Looks through a workspace, at any depth: a repository or an editor may be opened in any of its folders.
#[must_use]
pub fn led(root: &Path, below: &Dir, list: &List) -> Led {
    let ways = Ways::of(root, below);
    let (within, cut) = ways.led_from_above(list);
    let mut led = Led { within, cut, ..Led::default() };
    // With each folder whether it is one of git's, or lies in one.
    let mut queue = vec![(PathBuf::new(), false)];
    for left in (0..MAX_FOLDERS).rev() {
        let Some((at, above)) = queue.pop() else { return led };
        led.cut |= left == 0;
        let names = below.enter(&at, Cross::Yes).and_then(|dir| dir.kinds()).unwrap_or_default();
        let is_one = is_repository(names.iter().map(|(name, _)| name.as_os_str()));
        let of_git = above || is_one;
        led.repositories.extend((is_one && !is_git(&at)).then(|| at.clone()));
        for (name, kind) in names {
            let (path, is_git) = (at.join(&name), is_git(Path::new(&name)));
            led.repositories.extend(is_git.then(|| at.clone()));
            if kind == FileType::Directory && !(of_git && DATA.iter().any(|data| name == *data)) {
                queue.push((path, of_git || is_git));
            } else if kind == FileType::Symlink && (of_git || is_git || list.covering(&path, false).is_some()) {
                led.link(&ways, (&path, &path), is_git);
            } else if kind == FileType::Symlink {
                list.beyond(&path).iter().for_each(|file| led.link(&ways, (&path, file), false));
            }
        }
    }
    led
}

impl Led {
    /// A link, with the path of the control file that it or what lies behind it is.
    fn link(&mut self, ways: &Ways<'_>, (link, path): (&Path, &Path), is_git: bool) {
        let within = &mut self.within;
        if let Some(led) = follow(ways, path, |link| within.extend([link])) {
            // What is in a repository is judged as git's.
            let names = ways.below.enter(&led, Cross::Yes).and_then(|dir| dir.names()).unwrap_or_default();
            if !(is_git && is_repository(names.iter().map(|name| name.as_os_str()))) {
                within.insert(led);
            }
            return;
        }
        let Some(out) = ways.leads(&ways.root.join(link)) else { return };
        match out.strip_prefix(ways.root) {
            Ok(inner) => within.extend([inner.to_owned()]),
            Err(_out) => {
                within.extend(ways.leading_in(&out));
                self.out.extend([out]);
            }
        }
    }
}

/// The links in a folder, at any depth.
fn links_below(folder: &Path, looked: &mut usize) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop().filter(|_| *looked < MAX_ABOVE) {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            *looked = looked.saturating_add(1);
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_symlink() => found.push(entry.path()),
                Ok(_) | Err(_) => {}
            }
        }
    }
    found
}

/// Of what is held, the folders with all that links in them lead to, and what links there lead to.
#[must_use]
pub fn with_links(root: &Path, below: &Dir, held: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let ways = Ways::of(root, below);
    let mut led = Led { within: held, ..Led::default() };
    let mut looked = BTreeSet::new();
    loop {
        let new: Vec<PathBuf> = led.within.iter().filter(|path| looked.insert((*path).clone())).cloned().collect();
        if new.is_empty() {
            return led.within;
        }
        // All of the workspace is held as it is.
        let folders = new.iter().filter(|path| !path.as_os_str().is_empty());
        for link in folders.flat_map(|folder| files(below, folder, &[], FileType::Symlink)) {
            led.link(&ways, (&link, &link), false);
        }
    }
}

/// A workspace, and where paths of the host lead for it.
pub(super) struct Ways<'a> {
    pub(super) root: &'a Path,
    pub(super) below: &'a Dir,
    mounts: Mounts,
}

impl<'a> Ways<'a> {
    pub(super) fn of(root: &'a Path, below: &'a Dir) -> Self {
        Self { root, below, mounts: Mounts::default() }
    }

    /// Where a path leads, as far as anything is there: in the workspace, if that shows the same by any mount.
    pub(super) fn leads(&self, path: &Path) -> Option<PathBuf> {
        let of_a_part = || {
            path.ancestors().find_map(|above| {
                let rest = path.strip_prefix(above).ok()?;
                above.canonicalize().ok().and_then(|above| git::resolve(&above, rest))
            })
        };
        real(path).or_else(of_a_part).map(|led| self.here(led))
    }

    /// Where the workspace shows by another mount what is at a path without links, or the path.
    pub(super) fn here(&self, path: PathBuf) -> PathBuf {
        if path.starts_with(self.root) { path } else { self.mounts.within(self.root, &path).unwrap_or(path) }
    }

    /// Where a control file, or links in a folder of such, lead into the workspace.
    pub(super) fn leading_in(&self, control: &Path) -> Vec<PathBuf> {
        self.leading_to(control, |_led| false)
    }

    /// [`Self::leading_in`], and the empty path where a link leads to all of the workspace.
    fn leading_to(&self, control: &Path, is_whole: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
        let (mut queue, mut looked, mut found) = (vec![control.to_owned()], 0_usize, Vec::new());
        while let Some(path) = queue.pop() {
            let Some(led) = self.leads(&path) else { continue };
            let is_link = path.is_symlink();
            if is_link && is_whole(&led) {
                found.push(PathBuf::new());
            } else if let Ok(inner) = led.strip_prefix(self.root) {
                found.extend(Some(inner.to_owned()).filter(|inner| !inner.as_os_str().is_empty()));
            } else if !is_link {
                let links = links_below(&path, &mut looked);
                queue.extend(links);
            }
        }
        found
    }

    /// The folders above the workspace, and the home folders of those who work in it.
    fn homes(&self) -> impl Iterator<Item = PathBuf> {
        let owner = std::fs::metadata(self.root).ok().map(|stat| stat.uid());
        users::homes(self.root, owner).into_iter().filter(|folder| !folder.starts_with(self.root))
    }

    /// Files there that programs read by themselves and that have other names, without links on the way.
    pub(super) fn of_homes(&self) -> BTreeSet<PathBuf> {
        let found = self.homes().flat_map(|home| home::with_other_names(&home, self.root));
        found.filter_map(|path| in_its_folder(&path)).collect()
    }

    /// Where control files of the folders above the workspace, and of home folders, lead into it, the empty path where all of it is what
    /// one leads to; and whether there is more than was looked at.
    pub(super) fn led_from_above(&self, list: &List) -> (BTreeSet<PathBuf>, bool) {
        let (mut found, mut cut) = (BTreeSet::new(), false);
        for above in self.homes() {
            let Ok(dir) = Dir::open(&above) else { continue };
            let top = Top::of(&dir);
            let entries = list.path.iter().filter(|entry| top.may_have(&entry.pattern));
            let paths = entries.flat_map(|entry| expand(&dir, &top, &entry.pattern)).map(|path| above.join(path));
            // What the home folder lies in itself is no folder of control files.
            let real = above.canonicalize().unwrap_or_else(|_| above.clone());
            let is_whole = |led: &Path| self.root.starts_with(led) && !real.starts_with(led);
            for control in paths.filter(|path| !self.root.starts_with(path)) {
                found.extend(self.leading_to(&control, is_whole));
            }
            let home = home::links(&above, self.root);
            cut |= home.cut;
            found.extend(home.links.iter().flat_map(|link| self.leading_in(link)));
        }
        (found, cut)
    }
}

/// Where a path leads; the last part need not be there.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let missing = || in_its_folder(&path.parent()?.join(std::fs::read_link(path).ok()?));
    path.canonicalize().ok().or_else(missing)
}

/// A path without links on the way to its last part.
pub(super) fn in_its_folder(path: &Path) -> Option<PathBuf> {
    Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?))
}

/// Where in a workspace the documents of a policy lie, relative to it, by whichever mount: by every link of the way, and where they
/// lead, whether anything is there or not. The empty path where the workspace itself is one, a folder of certificates.
#[must_use]
pub fn documents(root: &Path, documents: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let mounts = Mounts::default();
    let mut within = BTreeSet::new();
    for path in documents {
        let passed = passed(path);
        // A folder that is none of a link is no way for another document.
        let steps = passed.iter().filter(|step| step.is_symlink()).chain(passed.last());
        within.extend(steps.filter_map(|step| match step.strip_prefix(root) {
            Ok(inner) => Some(inner.to_owned()),
            Err(_out) => mounts.within(root, step)?.strip_prefix(root).map(Path::to_owned).ok(),
        }));
    }
    within
}
