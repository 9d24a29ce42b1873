//! The tree of a run as an OCI bundle: a folder that is its root, and the document that says what is mounted over it.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Identity, OwnedOp as Op, OwnedSource as Source};
use serde_json::{Value, json};

use crate::StartError;
use crate::native::identity::INSIDE;
use crate::native::source::text;
use crate::native::tree::{HOME, OURS, Tree};

/// Where the guest is inside.
const GUEST: &str = "/.fumehood";
/// Folders that the runtime mounts over whatever stands there.
const RUNTIMES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A tree or file of the host, shown by the runtime.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) from: PathBuf,
    /// What must be found there.
    pub(super) is: Identity,
    pub(super) at: PathBuf,
    pub(super) write: bool,
    noexec: bool,
    /// With what is mounted below it.
    whole: bool,
}

/// A tmpfs of the host in the run's own mount namespace.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) at: PathBuf,
    pub(super) bytes: u64,
    pub(super) inodes: u64,
    mode: u32,
    pub(super) noexec: bool,
    /// Its descriptor is handed out under this number.
    pub(super) slot: Option<u32>,
    /// The supervisor fills it before the program is let go.
    pub(super) filled: bool,
}

impl Place {
    /// For mount(2).
    pub(super) fn options(&self) -> CString {
        let Self { bytes, inodes, mode, .. } = self;
        // A size of 0 would be none at all.
        let (bytes, inodes) = ((*bytes).max(1), (*inodes).max(1));
        let text = format!("size={bytes},nr_inodes={inodes},mode={mode:o},uid={INSIDE},gid={INSIDE}");
        CString::new(text).unwrap_or_default()
    }
}

/// What stands in the root's folder.
#[derive(Clone, Debug)]
enum Made {
    Folder(PathBuf),
    File(PathBuf, u32, Vec<u8>),
    Link(PathBuf, PathBuf),
}

/// A run's folder, as it will be.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    folder: PathBuf,
    made: Vec<Made>,
    /// Files of the run itself, shown read-only.
    files: Vec<(PathBuf, u32, Vec<u8>)>,
    pub(super) shown: Vec<Shown>,
    pub(super) places: Vec<Place>,
    hostname: String,
}

fn path(text: &std::ffi::CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()))
}

const fn has(attrs: Attrs, attr: Attrs) -> bool {
    attrs.bits() & attr.bits() != 0
}

impl Bundle {
    /// From what the native guest would build by itself.
    pub(super) fn of(tree: &Tree, folder: &Path, hostname: &str) -> Result<Self, StartError> {
        let folder = folder.to_owned();
        let (made, files, shown, places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut bundle = Self { folder, made, files, shown, places, hostname: hostname.to_owned() };
        for op in &tree.ops {
            bundle.add(op, &tree.sources)?;
        }
        Ok(bundle)
    }

    fn add(&mut self, op: &Op, sources: &[Source]) -> Result<(), StartError> {
        let runtimes = |at: &Path| RUNTIMES.iter().any(|own| at.starts_with(own));
        match op {
            // The root's folder, and what the other kernel brings itself.
            Op::Root { .. }
            | Op::Device { .. }
            | Op::Devpts { .. }
            | Op::Proc { .. }
            | Op::Mqueue { .. }
            | Op::SetAttr { .. } => {}
            Op::Dir { path: at, mode: _ } if path(at) == Path::new(HOME) => {}
            Op::Dir { path: at, mode: _ } => self.made.push(Made::Folder(path(at))),
            Op::File { path: at, mode, bytes } => match path(at).strip_prefix(OURS) {
                Ok(name) => self.files.push((name.to_owned(), *mode, bytes.clone())),
                Err(_) => self.made.push(Made::File(path(at), *mode, bytes.clone())),
            },
            Op::Symlink { path: at, target } if !runtimes(&path(at)) => {
                self.made.push(Made::Link(path(at), path(target)));
            }
            Op::Symlink { .. } => {}
            Op::Bind { source, path: at, attrs, file: _ } => self.show(sources, *source, (&path(at), true), *attrs)?,
            Op::Overlay { lowers, path: at, size: 0, attrs, .. } => {
                let source = lowers.iter().next().unwrap_or(u32::MAX);
                self.show(sources, source, (&path(at), false), *attrs)?;
            }
            Op::Tmpfs { path: at, size, inodes, mode, attrs, export } => {
                let (bytes, inodes, mode, noexec) = (*size, *inodes, *mode, has(*attrs, Attrs::NOEXEC));
                self.places.push(Place { at: path(at), bytes, inodes, mode, noexec, slot: *export, filled: false });
            }
            Op::Fill { path: at, size, inodes, attrs, slot } => {
                let (bytes, inodes, noexec) = (*size, *inodes, has(*attrs, Attrs::NOEXEC));
                let slot = Some(*slot);
                self.places.push(Place { at: path(at), bytes, inodes, mode: 0o755, noexec, slot, filled: true });
            }
            // Of the host's /proc nothing is there to be masked; the run's own files are mounted read-only.
            Op::Mask { path: at, .. } if runtimes(&path(at)) => {}
            Op::ReadOnly { path: at, .. } if runtimes(&path(at)) || path(at) == Path::new(OURS) => {}
            Op::Mask { path: at, .. }
            | Op::ReadOnly { path: at, .. }
            | Op::Pin { path: at }
            | Op::Overlay { path: at, .. } => {
                let at = path(at);
                return Err(StartError::Internal(format!("{} has no place in a bundle", at.display())));
            }
        }
        Ok(())
    }

    fn show(
        &mut self,
        sources: &[Source],
        source: u32,
        (at, whole): (&Path, bool),
        attrs: Attrs,
    ) -> Result<(), StartError> {
        let found = usize::try_from(source).ok().and_then(|index| sources.get(index));
        let Some(Source::Path { path: from, is }) = found else {
            return Err(StartError::Internal(format!("{} has no source", at.display())));
        };
        let (write, noexec) = (!has(attrs, Attrs::RDONLY), has(attrs, Attrs::NOEXEC));
        self.shown.push(Shown { from: path(from), is: *is, at: at.to_owned(), write, noexec, whole });
        Ok(())
    }

    /// Where a place is mounted, in the run's own mount namespace.
    pub(super) fn place_folder(&self, index: usize) -> PathBuf {
        self.folder.join(format!("place{index}"))
    }

    /// Where the runtime keeps its own state.
    pub(super) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// What the runtime says when it fails.
    pub(super) fn log(&self) -> PathBuf {
        self.folder.join("runsc.log")
    }

    /// The folder that the runtime is given.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Writes all of it.
    pub(super) fn write(&self) -> Result<(), StartError> {
        self.write_all().map_err(|error| StartError::system("writing the bundle", error))
    }

    fn write_all(&self) -> std::io::Result<()> {
        let root = self.root();
        for folder in [&root, &self.state(), &self.files_folder()] {
            std::fs::create_dir(folder)?;
        }
        // Inside nobody is root: the folders must be open to whom the program is.
        for folder in [&root, &self.files_folder()] {
            std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        }
        for index in 0..self.places.len() {
            std::fs::create_dir(self.place_folder(index))?;
        }
        let below = |at: &Path| root.join(at.strip_prefix("/").unwrap_or(at));
        for made in &self.made {
            match made {
                Made::Folder(at) => folders(&below(at))?,
                Made::File(at, mode, bytes) => file(&below(at), *mode, bytes)?,
                Made::Link(at, target) => {
                    let at = below(at);
                    at.parent().map_or(Ok(()), folders)?;
                    symlink(target, at)?;
                }
            }
        }
        file(&below(Path::new(GUEST)), 0o555, guest::ELF)?;
        for (name, mode, bytes) in &self.files {
            file(&self.files_folder().join(name), *mode, bytes)?;
        }
        std::fs::write(self.folder.join("config.json"), self.document().to_string())
    }

    fn files_folder(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Everything that is mounted, in order: its place, whether it can be written to, whether executed from.
    pub(super) fn mounts(&self) -> Vec<(PathBuf, bool, bool)> {
        let places = self.places.iter().map(|place| (place.at.clone(), true, place.noexec));
        let shown = self.shown.iter().map(|shown| (shown.at.clone(), shown.write, shown.noexec));
        let ours = (!self.files.is_empty()).then(|| (PathBuf::from(OURS), false, false));
        // What lies within another is mounted on top of it.
        let mut all: Vec<_> = places.chain(shown).chain(ours).collect();
        all.sort_by_key(|(at, ..)| at.components().count());
        all
    }

    fn source(&self, at: &Path) -> PathBuf {
        let place = self.places.iter().position(|place| place.at == at);
        let shown = self.shown.iter().find(|shown| shown.at == at).map(|shown| shown.from.clone());
        place.map(|index| self.place_folder(index)).or(shown).unwrap_or_else(|| self.files_folder())
    }

    fn document(&self) -> Value {
        let mut mounts = vec![json!({ "destination": "/proc", "type": "proc", "source": "proc" })];
        for (at, write, noexec) in self.mounts() {
            let below = self.shown.iter().any(|shown| shown.at == at && shown.whole);
            let mut options =
                vec![if below { "rbind" } else { "bind" }, "nosuid", "nodev", if write { "rw" } else { "ro" }];
            options.extend(noexec.then_some("noexec"));
            let source = self.source(&at);
            mounts.push(
                json!({ "destination": shown(&at), "type": "bind", "source": shown(&source), "options": options }),
            );
        }
        let none: [&str; 0] = [];
        let kinds = ["pid", "network", "ipc", "uts", "mount"];
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": INSIDE, "gid": INSIDE },
                "args": [GUEST],
                "env": none,
                "cwd": "/",
                "capabilities": { "bounding": none, "effective": none, "inheritable": none, "permitted": none, "ambient": none },
                "noNewPrivileges": true,
            },
            "root": { "path": shown(&self.root()), "readonly": true },
            "hostname": self.hostname,
            "mounts": mounts,
            "linux": { "namespaces": kinds.map(|kind| json!({ "type": kind })) },
        })
    }

    /// A path that the document cannot say is no path of a bundle.
    pub(super) fn all_text(&self) -> Result<(), StartError> {
        let paths = self.shown.iter().flat_map(|shown| [&shown.from, &shown.at]);
        match paths.into_iter().find(|path| path.to_str().is_none()) {
            Some(path) => Err(StartError::Path {
                clause: "fs",
                path: path.clone(),
                why: "its name is no UTF-8, which a bundle of the gvisor tier cannot say".to_owned(),
                missing: false,
            }),
            None => Ok(()),
        }
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The folder and those above it, open to all whatever our umask is.
fn folders(path: &Path) -> std::io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    path.parent().map_or(Ok(()), folders)?;
    std::fs::create_dir(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))
}

fn file(path: &Path, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), folders)?;
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// The home folder lies in a place that is empty until the guest runs.
pub(super) fn home() -> Op {
    Op::Dir { path: text(Path::new(HOME)), mode: 0o700 }
}
