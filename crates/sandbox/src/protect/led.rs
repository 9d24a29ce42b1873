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
use super::{git, users};
use crate::state::{Cross, Dir};

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
    /// There are more folders than were looked through.
    pub cut: bool,
}

/// Looks through a workspace, at any depth: a repository or an editor may be opened in any of its folders.
#[must_use]
pub fn led(root: &Path, below: &Dir, list: &List) -> Led {
    let mut led = Led { within: from_above(root, list), ..Led::default() };
    // With each folder whether it is one of git's, or lies in one.
    let mut queue = vec![(PathBuf::new(), false)];
    for left in (0..MAX_FOLDERS).rev() {
        let Some((at, above)) = queue.pop() else { return led };
        led.cut = left == 0;
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
                led.link(root, below, (&path, &path), is_git);
            } else if kind == FileType::Symlink {
                list.beyond(&path).iter().for_each(|file| led.link(root, below, (&path, file), false));
            }
        }
    }
    led
}

impl Led {
    /// A link, with the path of the control file that it or what lies behind it is.
    fn link(&mut self, root: &Path, below: &Dir, (link, path): (&Path, &Path), is_git: bool) {
        let within = &mut self.within;
        if let Some(led) = follow(root, below, path, |link| within.extend([link])) {
            // What is in a repository is judged as git's.
            let names = below.enter(&led, Cross::Yes).and_then(|dir| dir.names()).unwrap_or_default();
            if !(is_git && is_repository(names.iter().map(|name| name.as_os_str()))) {
                within.insert(led);
            }
            return;
        }
        let Some(out) = real(&root.join(link)) else { return };
        let out = mirrored(root, &out).unwrap_or(out);
        match out.strip_prefix(root) {
            Ok(inner) => within.extend([inner.to_owned()]),
            Err(_out) => {
                within.extend(leading_in(root, &out));
                self.out.extend([out]);
            }
        }
    }
}

/// Where control files of the folders above a workspace, and of home folders, lead into it.
pub(super) fn from_above(root: &Path, list: &List) -> BTreeSet<PathBuf> {
    let owner = std::fs::metadata(root).ok().map(|stat| stat.uid());
    let folders = users::homes(root, owner).into_iter().filter(|folder| folder != root && !folder.starts_with(root));
    let mut found = BTreeSet::new();
    for above in folders {
        let Ok(dir) = Dir::open(&above) else { continue };
        let top = Top::of(&dir);
        let entries = list.path.iter().filter(|entry| top.may_have(&entry.pattern));
        let paths = entries.flat_map(|entry| expand(&dir, &top, &entry.pattern)).map(|path| above.join(path));
        for control in paths.filter(|path| !root.starts_with(path)) {
            found.extend(leading_in(root, &control));
        }
    }
    found
}

/// Where a control file, or links in a folder of such, lead into a workspace.
pub(super) fn leading_in(root: &Path, control: &Path) -> Vec<PathBuf> {
    let (mut queue, mut looked, mut found) = (vec![control.to_owned()], 0_usize, Vec::new());
    while let Some(path) = queue.pop() {
        let Some(led) = real(&path) else { continue };
        let led = mirrored(root, &led).unwrap_or(led);
        if let Ok(inner) = led.strip_prefix(root) {
            found.extend(Some(inner.to_owned()).filter(|inner| !inner.as_os_str().is_empty()));
        } else if !path.is_symlink() {
            let links = links_below(&path, &mut looked);
            queue.extend(links);
        }
    }
    found
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

/// A path out of a workspace that a mount shows there is one in it.
pub(super) fn mirrored(root: &Path, path: &Path) -> Option<PathBuf> {
    let is = |path: &Path| std::fs::metadata(path).ok().map(|stat| (stat.dev(), stat.ino()));
    let root_is = is(root).filter(|_| !path.starts_with(root))?;
    let above = path.ancestors().find(|above| is(above) == Some(root_is))?;
    Some(root.join(path.strip_prefix(above).ok()?))
}

/// Of what is held, the folders with all that links in them lead to, and what links there lead to.
#[must_use]
pub fn with_links(root: &Path, below: &Dir, held: BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
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
            led.link(root, below, (&link, &link), false);
        }
    }
}

/// Where a path leads; the last part need not be there.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    let missing = || {
        let target = std::fs::read_link(path).ok()?;
        let target = path.parent()?.join(target);
        Some(target.parent()?.canonicalize().ok()?.join(target.file_name()?))
    };
    path.canonicalize().ok().or_else(missing)
}

/// Where a path leads, as far as anything is there.
pub(super) fn led_to(path: &Path) -> Option<PathBuf> {
    let of_a_part = || {
        path.ancestors().find_map(|above| {
            let rest = path.strip_prefix(above).ok()?;
            above.canonicalize().ok().and_then(|above| git::resolve(&above, rest))
        })
    };
    real(path).or_else(of_a_part)
}

/// Where in a workspace the documents of a policy lie, relative to it: by their names, by every link of the way, and where
/// they lead.
#[must_use]
pub fn documents(root: &Path, documents: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    let spelled = documents.iter().flat_map(|path| path.ancestors()).filter_map(|path| {
        let (above, name) = (path.parent()?.canonicalize().ok()?, path.file_name()?);
        let here = above.join(name);
        // A folder that is none of a link is no way for another document.
        (documents.contains(path) || here.is_symlink()).then_some(here)
    });
    let led = documents.iter().filter_map(|path| path.canonicalize().ok());
    let within = spelled.chain(led).filter_map(|path| path.strip_prefix(root).map(Path::to_owned).ok());
    within.filter(|path| !path.as_os_str().is_empty()).collect()
}
