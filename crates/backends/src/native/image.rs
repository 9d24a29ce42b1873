//! The tree of an image as root: what it holds, read-only, with our places where a run needs them.
//!
//! Folders in which something of ours has its place are made anew and filled with what the image has in them; all others are
//! shown whole. So nothing has to be made within the image, and no name of it can lead a mount elsewhere.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use guest::config::{Attrs, OwnedOp as Op};
use policy::value::StoredImage;
use sys::paths::Kind;

use super::source::{resolve, seen, text};
use super::tree::Builder;
use crate::StartError;
use crate::backend::GitPart;
use crate::etc::{self, Account};

/// Folders that are the kernel's, or the run's own; the program that a runtime starts first, and the file that Landlock must close.
const OURS: &[&str] = &["/proc", "/sys", "/dev", "/tmp", "/run", "/var/tmp", "/.fumehood", "/.landlock-probe"];
/// Files of `/etc` that are the run's, whatever the image has.
const ETC: &[&str] = &["hosts", "resolv.conf", "hostname", "machine-id", "mtab", "passwd", "group"];
/// A smaller file of `/etc` is copied: that is one file and no mount.
const MAX_COPIED: u64 = 16 << 10;
/// More of them are refused: they go to the guest by its configuration.
const MAX_COPIES: usize = 512;
/// All of them together.
const MAX_COPIED_ALL: usize = 2 << 20;
/// Largest list of accounts that is read.
const MAX_ACCOUNTS: u64 = 1 << 20;

/// Places within the tree that are not the image's.
struct Places {
    all: BTreeSet<PathBuf>,
}

impl Places {
    fn takes(&self, path: &Path) -> bool {
        self.all.contains(path)
    }

    /// Whether something of ours lies below.
    fn opens(&self, path: &Path) -> bool {
        self.all.range(path.to_owned()..).take_while(|place| place.starts_with(path)).any(|place| place != path)
    }
}

impl Builder<'_> {
    /// Shows the tree of an image.
    pub(super) fn image(&mut self, found: &StoredImage) -> Result<(), StartError> {
        if self.blueprint.noexec && self.blueprint.written(&found.tree) {
            return Err(StartError::among_tools(&found.tree));
        }
        let tree = resolve("fs.root", &found.tree)?.path;
        if found.built {
            return self.built(&tree);
        }
        let places = self.our_places();
        self.merge(&tree, Path::new("/"), &places)?;
        let etc = tree.join("etc");
        // A link there would lead to the host's own.
        let own = etc.symlink_metadata().is_ok_and(|meta| meta.is_dir());
        self.image_etc(Some(&etc).filter(|_| own).map(PathBuf::as_path))
    }

    /// The tree of an image that is being built: its folders can be written, and are the image's whole.
    fn built(&mut self, tree: &Path) -> Result<(), StartError> {
        let unread = |e: std::io::Error| StartError::path("fs.root", tree, &e);
        let mut names: Vec<_> =
            std::fs::read_dir(tree).map_err(unread)?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        names.sort();
        for name in names {
            let (from, to) = (tree.join(&name), Path::new("/").join(&name));
            if OURS.iter().any(|ours| to == Path::new(ours)) {
                continue;
            }
            let meta = from.symlink_metadata().map_err(unread)?;
            if meta.is_symlink() {
                let target = std::fs::read_link(&from).map_err(unread)?;
                self.op(Op::Symlink { path: text(&to), target: text(&target) });
                continue;
            }
            let resolved = seen("fs.root", &from, &meta)?;
            let source = self.workspace_source(&resolved);
            let attrs = self.writable_attrs();
            self.op(Op::Bind { source, path: text(&to), attrs, file: !resolved.dir });
            self.allow(&to, self.writable(), resolved.dir);
        }
        Ok(())
    }

    /// Where a program begins that has no workspace; a folder that the image lacks is made.
    pub(super) fn begins_at(&mut self, found: &StoredImage) {
        let Some(at) = &found.workdir else { return };
        if !sys::paths::is_within(&found.tree, at) {
            self.op(Op::Dir { path: text(at), mode: 0o755 });
        }
        self.tree.cwd.clone_from(at);
    }

    fn our_places(&self) -> Places {
        let blueprint = self.blueprint;
        let shown = blueprint.reads.iter().chain(&blueprint.writes).chain(&blueprint.workspace);
        let shown = shown.map(|shown| self.really(&shown.at));
        let ours = self.launch.show.iter().map(|grant| self.really(&grant.to));
        let git = self.launch.git.iter().map(|part| match part {
            GitPart::Link { at, to: _ } => self.really(at),
            GitPart::ReadOnly(path) | GitPart::Layered(path, _) => self.really(path),
        });
        let fixed = OURS.iter().map(PathBuf::from).chain(ETC.iter().map(|name| Path::new("/etc").join(name)));
        let home = Path::new("/home").join(self.user());
        let begins = self.begins().into_iter().filter_map(Path::parent).map(|above| above.join(".fumehood"));
        Places { all: shown.chain(ours).chain(git).chain(fixed).chain([home]).chain(begins).collect() }
    }

    /// The folder that [`Builder::begins_at`] will make.
    fn begins(&self) -> Option<&Path> {
        let found = self.found()?;
        let at = found.workdir.as_deref()?;
        Some(at).filter(|at| !sys::paths::is_within(&found.tree, at))
    }

    /// The tree may be somebody else's, who changes it meanwhile: what is looked at below a folder is looked at by its descriptor.
    fn merge(&mut self, from: &Path, at: &Path, places: &Places) -> Result<(), StartError> {
        let unread = |path: &Path, e: &std::io::Error| StartError::path("fs.root", path, e);
        let folder = sys::paths::open_folder(from).map_err(|e| unread(from, &e.errno.into()))?;
        let held = PathBuf::from(format!("/proc/self/fd/{}", folder.as_raw_fd()));
        let entries = std::fs::read_dir(&held).map_err(|e| unread(from, &e))?;
        let mut names: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
        names.sort();
        for name in names {
            let (from, to) = (from.join(&name), at.join(&name));
            if places.takes(&to) {
                continue;
            }
            let meta = held.join(&name).symlink_metadata().map_err(|e| unread(&from, &e))?;
            if at == Path::new("/") && !meta.is_symlink() {
                self.allow(&to, self.readable(), meta.is_dir());
            }
            if meta.is_symlink() {
                // What is ours below needs a folder.
                if !places.opens(&to) {
                    let target = std::fs::read_link(held.join(&name)).map_err(|e| unread(&from, &e))?;
                    self.op(Op::Symlink { path: text(&to), target: text(&target) });
                }
            } else if let Some(bytes) = to.starts_with("/etc").then(|| small(&folder, Path::new(&name))).flatten() {
                self.copies(&from, bytes.len())?;
                self.op(Op::File { path: text(&to), mode: meta.mode() & 0o777, bytes });
            } else {
                self.entry(&from, &to, &meta, places)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path, meta: &Metadata, places: &Places) -> Result<(), StartError> {
        if meta.is_dir() && places.opens(to) {
            self.op(Op::Dir { path: text(to), mode: meta.mode() & 0o777 });
            // Shown whole, a folder that others may not enter would be closed to who the run is.
            let open = meta.mode() & 0o1 != 0 || meta.uid() == self.identity.uid;
            return if open { self.merge(from, to, places) } else { Ok(()) };
        }
        let resolved = seen("fs.root", from, meta)?;
        self.bind(&resolved, to, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
        Ok(())
    }

    /// Refuses a file that is one too many to be copied.
    fn copies(&self, from: &Path, size: usize) -> Result<(), StartError> {
        let sizes =
            self.tree.ops.iter().filter_map(|op| if let Op::File { bytes, .. } = op { Some(bytes) } else { None });
        let (count, all) = sizes
            .fold((0_usize, size), |(count, all), bytes| (count.saturating_add(1), all.saturating_add(bytes.len())));
        if count < MAX_COPIES && all <= MAX_COPIED_ALL {
            return Ok(());
        }
        let why = format!(
            "there are more than {MAX_COPIES} files of up to {} KiB directly in it, or {} MiB of them",
            MAX_COPIED >> 10,
            MAX_COPIED_ALL >> 20
        );
        Err(StartError::Etc { path: from.parent().unwrap_or(from).to_owned(), why })
    }

    /// The image's own accounts with the run's user, and what only the run knows.
    fn image_etc(&mut self, etc: Option<&Path>) -> Result<(), StartError> {
        let id = self.blueprint.user.as_ref().map_or(0, |(_, id)| *id);
        let account = Account { name: self.user().to_owned(), id };
        for (name, content) in etc::synthetic(self.names()) {
            let images = etc.map(|etc| etc.join(name)).filter(|path| path.symlink_metadata().is_ok());
            let content = match (name, images) {
                ("passwd" | "group", images) => {
                    let listed = images.map_or(Ok(None), |images| accounts(&images))?;
                    account.added(name, &listed.unwrap_or_else(|| account.once(&content)))
                }
                ("nsswitch.conf", Some(_)) => continue,
                (_, _) => content,
            };
            self.op(Op::File { path: text(&Path::new("/etc").join(name)), mode: 0o644, bytes: content });
        }
        self.op(Op::Symlink { path: c"/etc/mtab".into(), target: c"/proc/self/mounts".into() });
        self.allow(Path::new("/etc"), self.readable(), true);
        Ok(())
    }
}

/// A small file that everybody may read; any other is shown as it is, so that its mode and owner say who reads it.
fn small(folder: &OwnedFd, name: &Path) -> Option<Vec<u8>> {
    let place = sys::paths::open_place_below(folder, name).ok()?;
    let facts = sys::paths::facts(&place).ok()?;
    let copied = facts.kind == Kind::File && facts.mode & 0o4 != 0 && facts.size <= MAX_COPIED;
    let most = usize::try_from(MAX_COPIED).ok()?;
    copied.then(|| sys::paths::read_place(&place, most).ok()).flatten()
}

/// A list of accounts of an image, which must be a file: a link could lead to the host's. `None`: not everybody may read it.
fn accounts(path: &Path) -> Result<Option<Vec<u8>>, StartError> {
    let unread = |e: sys::error::Error| StartError::path("fs.root", path, &e.errno.into());
    let wrong = || {
        let why =
            format!("a list of accounts of an image is a file of at most {} MiB, and no link", MAX_ACCOUNTS >> 20);
        StartError::Path { clause: "fs.root", path: path.to_owned(), why, missing: false }
    };
    let Ok(place) = sys::paths::open_place(path) else { return Err(wrong()) };
    let facts = sys::paths::facts(&place).map_err(unread)?;
    if facts.kind != Kind::File || facts.size > MAX_ACCOUNTS {
        return Err(wrong());
    }
    if facts.mode & 0o4 == 0 {
        return Ok(None);
    }
    let most = usize::try_from(MAX_ACCOUNTS).unwrap_or(usize::MAX);
    sys::paths::read_place(&place, most).map(Some).map_err(unread)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_copied_is_a_small_file_of_everybody_s_and_no_link() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name);
        let file = |name: &str, mode: u32, size: usize| {
            std::fs::write(at(name), vec![b'x'; size]).unwrap();
            std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
        };
        file("open", 0o644, 3);
        file("closed", 0o600, 3);
        file("of-a-group", 0o640, 3);
        file("large", 0o644, usize::try_from(MAX_COPIED).unwrap().saturating_add(1));
        std::os::unix::fs::symlink("open", at("link")).unwrap();
        let _listens = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let folder = sys::paths::open_folder(&scratch.path().canonicalize().unwrap()).unwrap();
        assert_eq!(small(&folder, Path::new("open")), Some(b"xxx".to_vec()));
        for name in ["closed", "of-a-group", "large", "link", "socket", "none"] {
            assert_eq!(small(&folder, Path::new(name)), None, "{name}");
        }
        // What was looked at as a file is not looked at again, though a link stands there by now.
        let meta = at("open").symlink_metadata().unwrap();
        std::fs::rename(at("link"), at("open")).unwrap();
        assert_eq!(seen("fs.root", &at("open"), &meta).unwrap().path, at("open"));
        assert!(accounts(&at("open")).is_err() && accounts(&at("socket")).is_err());
        assert_eq!(accounts(&at("closed")).unwrap(), None);
    }
}
