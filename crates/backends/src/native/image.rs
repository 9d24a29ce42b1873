//! The tree of an image as root: what it holds, read-only, with our places where a run needs them.
//!
//! Folders in which something of ours has its place are made anew and filled with what the image has in them; all others are
//! shown whole. So nothing has to be made within the image, and no name of it can lead a mount elsewhere.

use std::collections::BTreeSet;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use guest::config::{Attrs, OwnedOp as Op};
use policy::value::StoredImage;

use super::source::{resolve, resolve_entry, text};
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
            let resolved = resolve_entry("fs.root", &from)?;
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

    fn merge(&mut self, from: &Path, at: &Path, places: &Places) -> Result<(), StartError> {
        let entries = std::fs::read_dir(from).map_err(|e| StartError::path("fs.root", from, &e))?;
        let mut names: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.file_name())).collect();
        names.sort();
        for name in names {
            let (from, to) = (from.join(&name), at.join(&name));
            if places.takes(&to) {
                continue;
            }
            let meta = from.symlink_metadata().map_err(|e| StartError::path("fs.root", &from, &e))?;
            if at == Path::new("/") && !meta.is_symlink() {
                self.allow(&to, self.readable(), meta.is_dir());
            }
            self.entry(&from, &to, &meta, places)?;
        }
        Ok(())
    }

    fn entry(&mut self, from: &Path, to: &Path, meta: &Metadata, places: &Places) -> Result<(), StartError> {
        let unread = |e: std::io::Error| StartError::path("fs.root", from, &e);
        if meta.is_symlink() && places.opens(to) {
            // What is ours below needs a folder.
            return Ok(());
        }
        if meta.is_symlink() {
            let target = std::fs::read_link(from).map_err(unread)?;
            self.op(Op::Symlink { path: text(to), target: text(&target) });
        } else if meta.is_dir() && places.opens(to) {
            self.op(Op::Dir { path: text(to), mode: meta.mode() & 0o777 });
            self.merge(from, to, places)?;
        } else if meta.is_file() && meta.len() <= MAX_COPIED && to.starts_with("/etc") {
            let bytes = std::fs::read(from).map_err(unread)?;
            self.copies(from, bytes.len())?;
            self.op(Op::File { path: text(to), mode: meta.mode() & 0o777, bytes });
        } else {
            let resolved = resolve_entry("fs.root", from)?;
            self.bind(&resolved, to, Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV);
        }
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
            "the image's `/etc` has more than {MAX_COPIES} small files, or {} MiB of them",
            MAX_COPIED_ALL >> 20
        );
        Err(StartError::Path { clause: "fs.root", path: from.to_owned(), why, missing: false })
    }

    /// The image's own accounts with the run's user, and what only the run knows.
    fn image_etc(&mut self, etc: Option<&Path>) -> Result<(), StartError> {
        let id = self.blueprint.user.as_ref().map_or(0, |(_, id)| *id);
        let account = Account { name: self.user().to_owned(), id };
        for (name, content) in etc::synthetic(self.names()) {
            let images = etc.map(|etc| etc.join(name)).filter(|path| path.symlink_metadata().is_ok());
            let content = match (name, images) {
                ("passwd" | "group", Some(images)) => account.added(name, &accounts(&images)?),
                ("passwd" | "group", None) => account.added(name, &content),
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

/// A list of accounts of an image, which must be a file: a link could lead to the host's.
fn accounts(path: &Path) -> Result<Vec<u8>, StartError> {
    let unread = |e: std::io::Error| StartError::path("fs.root", path, &e);
    let meta = path.symlink_metadata().map_err(unread)?;
    if !meta.is_file() || meta.len() > MAX_ACCOUNTS {
        return Err(StartError::special("fs.root", path));
    }
    std::fs::read(path).map_err(unread)
}
