//! The tree of a run as an OCI bundle: a folder that is its root, and the document that says what is mounted over it.
//!
//! # Promises
//! All of it comes from the operations by which the native guest would build the same tree; one that a bundle cannot say is an
//! error.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use guest::config::{Attrs, Identity, OwnedOp as Op, OwnedSource as Source};
use serde_json::{Value, json};

use super::linux::Linux;
use crate::StartError;
use crate::backend::FIRST_EXTRA;
use crate::native::source::text;
use crate::native::tree::{HOME, Mapped, OURS};

/// Where the guest is inside.
const GUEST: &str = "/.fumehood";
/// Folders that the runtime mounts over whatever stands there.
const RUNTIMES: [&str; 3] = ["/proc", "/sys", "/dev"];

/// A tree or file of the host, shown by the runtime.
#[derive(Clone, Debug)]
pub(crate) struct BundleMount {
    pub(crate) from: PathBuf,
    /// What must be found there.
    pub(crate) is: Identity,
    pub(crate) at: PathBuf,
    pub(crate) write: bool,
    /// How it is mounted.
    pub(crate) attrs: Attrs,
    /// With what is mounted below it.
    pub(crate) whole: bool,
    /// A file, and no folder.
    pub(crate) file: bool,
    /// Whose it is on disk, where it is shown as the run's own.
    pub(crate) owner: Option<(u32, u32)>,
    /// Written in this layer over it.
    pub(crate) layer: Option<Layer>,
}

/// What a run writes over a tree of the host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layer {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    /// Its descriptor is handed out under this number.
    pub(crate) slot: Option<u32>,
}

/// A tmpfs of the host in the run's own mount namespace.
#[derive(Clone, Debug)]
pub(crate) struct HostTmpfs {
    pub(crate) at: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
    mode: u32,
    pub(crate) noexec: bool,
    /// Its descriptor is handed out under this number.
    pub(crate) slot: Option<u32>,
    /// The supervisor fills it before the program is let go.
    pub(crate) filled: bool,
}

impl HostTmpfs {
    /// For mount(2); `owner`: uid and gid outside.
    fn options(&self, (uid, gid): (u32, u32)) -> CString {
        let Self { bytes, inodes, mode, .. } = self;
        // A size of 0 would be none at all.
        let (bytes, inodes) = ((*bytes).max(1), (*inodes).max(1));
        let text = format!("size={bytes},nr_inodes={inodes},mode={mode:o},uid={uid},gid={gid}");
        CString::new(text).unwrap_or_default()
    }
}

/// What stands in the root's folder.
#[derive(Clone, Debug)]
enum RootEntry {
    Folder(PathBuf),
    File(PathBuf, u32, Vec<u8>),
    Link(PathBuf, PathBuf),
}

/// Who runs in it.
#[derive(Clone, Debug)]
pub(crate) enum UserMapping {
    /// A user of this number inside, and outside as well: another kernel stands between.
    Same(u32),
    /// By a runtime on Linux, which is told how numbers are mapped.
    Mapped(Linux),
}

impl UserMapping {
    pub(crate) const fn linux(&self) -> Option<&Linux> {
        match self {
            Self::Same(_) => None,
            Self::Mapped(linux) => Some(linux),
        }
    }

    /// uid and gid outside.
    const fn owner(&self) -> (u32, u32) {
        match self {
            Self::Same(user) => (*user, *user),
            Self::Mapped(linux) => linux.owner,
        }
    }

    fn takes(&mut self, op: &Op) -> bool {
        match self {
            Self::Same(_) => false,
            Self::Mapped(linux) => linux.takes(op),
        }
    }
}

/// A run's folder, as it will be.
#[derive(Clone, Debug)]
pub(crate) struct Bundle {
    folder: PathBuf,
    made: Vec<RootEntry>,
    /// Files of the run itself, shown read-only.
    files: Vec<(PathBuf, u32, Vec<u8>)>,
    /// Those of them that are shown at another place as well: where, and which.
    again: Vec<(PathBuf, PathBuf)>,
    pub(crate) shown: Vec<BundleMount>,
    pub(crate) places: Vec<HostTmpfs>,
    hostname: String,
    pub(crate) whose: UserMapping,
    /// The network namespace that the runtime enters, where it is not a new one.
    pub(crate) network: Option<PathBuf>,
}

fn path(text: &std::ffi::CStr) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(text.to_bytes()))
}

const fn has(attrs: Attrs, attr: Attrs) -> bool {
    attrs.bits() & attr.bits() != 0
}

impl Bundle {
    /// From what the native guest would build by itself, of `sources`, some of which are `mapped`.
    pub(crate) fn of(
        ops: &[Op],
        (sources, mapped): (&[Source], &[Mapped]),
        folder: &Path,
        hostname: &str,
        whose: UserMapping,
    ) -> Result<Self, StartError> {
        let folder = folder.to_owned();
        let (made, files, again, shown, places) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let hostname = hostname.to_owned();
        let mut bundle = Self { folder, made, files, again, shown, places, hostname, whose, network: None };
        for op in ops {
            if !bundle.whose.takes(op) {
                bundle.add(op, (sources, mapped))?;
            }
        }
        bundle.guest_is_ours()?;
        Ok(bundle)
    }

    /// What the runtime starts is the guest: nothing is shown in its place, or it would start that.
    fn guest_is_ours(&self) -> Result<(), StartError> {
        let made = self.made.iter().map(|made| match made {
            RootEntry::Folder(at) | RootEntry::File(at, ..) | RootEntry::Link(at, _) => at,
        });
        let again = self.again.iter().map(|(at, _)| at);
        let mut all =
            made.chain(again).chain(self.shown.iter().map(|one| &one.at)).chain(self.places.iter().map(|one| &one.at));
        match all.find(|at| at.starts_with(GUEST)) {
            Some(at) => Err(refused(at, "the sandbox's own first program stands there: show it at another path")),
            None => Ok(()),
        }
    }

    fn add(&mut self, op: &Op, sources: (&[Source], &[Mapped])) -> Result<(), StartError> {
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
            Op::Dir { path: at, mode: _ } => self.made.push(RootEntry::Folder(path(at))),
            Op::File { path: at, mode, bytes } => match path(at).strip_prefix(OURS) {
                Ok(name) => self.files.push((name.to_owned(), *mode, bytes.clone())),
                Err(_) => self.made.push(RootEntry::File(path(at), *mode, bytes.clone())),
            },
            Op::Symlink { path: at, target } if !runtimes(&path(at)) => {
                self.made.push(RootEntry::Link(path(at), path(target)));
            }
            Op::Symlink { .. } => {}
            Op::Bind { source, path: at, attrs, file } => {
                self.show(sources, *source, (&path(at), true, *file), *attrs, None)?;
            }
            // How it is mounted follows: it is one of the run's own files.
            Op::BindInner { from, path: at, attrs: _ } => match path(from).strip_prefix(OURS) {
                Ok(name) => self.again.push((path(at), name.to_owned())),
                Err(_) => return Err(StartError::Internal(format!("{} has no source", path(at).display()))),
            },
            Op::Overlay { lowers, path: at, size: 0, attrs, .. } => {
                let source = lowers.iter().next().unwrap_or(u32::MAX);
                self.show(sources, source, (&path(at), false, false), *attrs | Attrs::RDONLY, None)?;
            }
            Op::Overlay { lowers, path: at, size, inodes, attrs, export } if self.whose.linux().is_some() => {
                let layer = Layer { bytes: *size, inodes: *inodes, slot: *export };
                let mut all = lowers.iter();
                let (source, None) = (all.next().unwrap_or(u32::MAX), all.next()) else {
                    return Err(StartError::Internal(format!("{} has several layers", path(at).display())));
                };
                self.show(sources, source, (&path(at), false, false), *attrs, Some(layer))?;
            }
            Op::Tmpfs { path: at, size, inodes, mode, attrs, export } => {
                let (bytes, inodes, mode, noexec) = (*size, *inodes, *mode, has(*attrs, Attrs::NOEXEC));
                self.places.push(HostTmpfs { at: path(at), bytes, inodes, mode, noexec, slot: *export, filled: false });
            }
            Op::Fill { path: at, size, inodes, attrs, slot } => {
                let (bytes, inodes, noexec) = (*size, *inodes, has(*attrs, Attrs::NOEXEC));
                let slot = Some(*slot);
                self.places.push(HostTmpfs { at: path(at), bytes, inodes, mode: 0o755, noexec, slot, filled: true });
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
        (sources, mapped): (&[Source], &[Mapped]),
        source: u32,
        (at, whole, file): (&Path, bool, bool),
        attrs: Attrs,
        layer: Option<Layer>,
    ) -> Result<(), StartError> {
        let number = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let (from, is, owner) = match sources.get(number(source)) {
            Some(Source::Path { path: from, is }) => (path(from), *is, None),
            Some(Source::Fd(fd)) => match fd.checked_sub(FIRST_EXTRA).and_then(|nth| mapped.get(number(nth))) {
                Some(mapped) => (mapped.path.clone(), mapped.is, Some((mapped.uid, mapped.gid))),
                None => return Err(StartError::Internal(format!("{} has no source", at.display()))),
            },
            None => return Err(StartError::Internal(format!("{} has no source", at.display()))),
        };
        let write = !has(attrs, Attrs::RDONLY);
        self.shown.push(BundleMount { from, is, at: at.to_owned(), write, attrs, whole, file, owner, layer });
        Ok(())
    }

    /// Where a place is mounted, in the run's own mount namespace.
    pub(crate) fn place_folder(&self, index: usize) -> PathBuf {
        self.folder.join(format!("place{index}"))
    }

    /// Where a tree of the host is mounted, in the run's own mount namespace, for a runtime on Linux.
    pub(crate) fn shown_folder(&self, index: usize) -> PathBuf {
        self.folder.join(format!("shown{index}"))
    }

    /// Where the layer over a tree of the host is mounted.
    pub(crate) fn layer_folder(&self, index: usize) -> PathBuf {
        self.folder.join(format!("layer{index}"))
    }

    /// What lies below every layer over a tree of the host.
    pub(crate) fn empty_folder(&self) -> PathBuf {
        self.folder.join("empty")
    }

    /// Where the runtime keeps its own state.
    pub(crate) fn state(&self) -> PathBuf {
        self.folder.join("state")
    }

    /// What the runtime says when it fails.
    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("runtime.log")
    }

    /// The folder that the runtime is given.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// For each place its folder, its options for mount(2), and whether nothing in it can be executed.
    pub(crate) fn file_systems(&self) -> Vec<(CString, CString, bool)> {
        let owner = self.whose.owner();
        let one =
            |(index, place): (usize, &HostTmpfs)| (text(&self.place_folder(index)), place.options(owner), place.noexec);
        self.places.iter().enumerate().map(one).collect()
    }

    /// Writes all of it.
    pub(crate) fn write(&self) -> Result<(), StartError> {
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
        if let Some(linux) = self.whose.linux() {
            self.points(linux)?;
        }
        let below = |at: &Path| root.join(at.strip_prefix("/").unwrap_or(at));
        let mut links = Vec::new();
        for made in &self.made {
            match made {
                RootEntry::Folder(at) => folders(&below(at))?,
                RootEntry::File(at, mode, bytes) => file(&below(at), *mode, bytes)?,
                RootEntry::Link(at, target) => links.push((below(at), target)),
            }
        }
        file(&below(Path::new(GUEST)), 0o555, guest::ELF)?;
        // Last, and the deepest first: nothing of ours is written through a link, wherever an image's may lead on the host.
        links.sort_by_key(|(at, _)| std::cmp::Reverse(at.components().count()));
        for (at, target) in links {
            at.parent().map_or(Ok(()), folders)?;
            symlink(target, at)?;
        }
        for (name, mode, bytes) in &self.files {
            file(&self.files_folder().join(name), *mode, bytes)?;
        }
        std::fs::write(self.folder.join("config.json"), self.document().to_string())
    }

    /// Where this runtime mounts: it is nobody who could make a name in the root, and may only walk through the run's folder.
    fn points(&self, linux: &Linux) -> std::io::Result<()> {
        linux.lets_in(&self.folder)?;
        folders(&self.empty_folder())?;
        for (index, shown) in self.shown.iter().enumerate() {
            point(&self.shown_folder(index), shown.file)?;
            if shown.layer.is_some() {
                point(&self.layer_folder(index), false)?;
            }
        }
        let mounts = self.mounts();
        let own = linux.own.iter().map(|own| own.at.clone());
        let all: Vec<PathBuf> = mounts.iter().map(|(at, ..)| at.clone()).chain(own).collect();
        for at in &all {
            if all.iter().any(|other| other != at && at.starts_with(other)) {
                continue;
            }
            let file = self.shown.iter().any(|shown| shown.at == *at && shown.file)
                || self.again.iter().any(|(again, _)| again == at);
            point(&self.root().join(at.strip_prefix("/").unwrap_or(at)), file)?;
        }
        Ok(())
    }

    fn files_folder(&self) -> PathBuf {
        self.folder.join("files")
    }

    /// Everything that is mounted, in order: its place, whether it can be written to, whether executed from.
    pub(crate) fn mounts(&self) -> Vec<(PathBuf, bool, bool)> {
        let places = self.places.iter().map(|place| (place.at.clone(), true, place.noexec));
        let noexec = |shown: &BundleMount| has(shown.attrs, Attrs::NOEXEC);
        let shown = self.shown.iter().map(|shown| (shown.at.clone(), shown.write, noexec(shown)));
        let ours = (!self.files.is_empty()).then(|| (PathBuf::from(OURS), false, false));
        // What lies within another is mounted on top of it.
        let again = self.again.iter().map(|(at, _)| (at.clone(), false, true));
        let mut all: Vec<_> = places.chain(shown).chain(ours).chain(again).collect();
        all.sort_by_key(|(at, ..)| at.components().count());
        all
    }

    fn source(&self, at: &Path) -> PathBuf {
        let place = self.places.iter().position(|place| place.at == at);
        let shown = self.shown.iter().position(|shown| shown.at == at).and_then(|index| {
            let from = self.shown.get(index).map(|shown| shown.from.clone());
            if self.whose.linux().is_some() { Some(self.shown_folder(index)) } else { from }
        });
        let again = self.again.iter().find(|(again, _)| again == at).map(|(_, name)| self.files_folder().join(name));
        let place = place.map(|index| self.place_folder(index));
        again.or(place).or(shown).unwrap_or_else(|| self.files_folder())
    }

    fn document(&self) -> Value {
        let mut mounts = match self.whose.linux() {
            Some(linux) => linux.mounts(),
            None => vec![json!({ "destination": "/proc", "type": "proc", "source": "proc" })],
        };
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
        let (user, capabilities, linux) = match &self.whose {
            UserMapping::Mapped(linux) => (linux.inside, linux.capabilities(), linux.document()),
            UserMapping::Same(user) => {
                let mut kinds = ["pid", "ipc", "uts", "mount"].map(|kind| json!({ "type": kind })).to_vec();
                kinds.push(match &self.network {
                    Some(path) => json!({ "type": "network", "path": shown(path) }),
                    None => json!({ "type": "network" }),
                });
                (*user, Vec::new(), json!({ "namespaces": kinds }))
            }
        };
        let sets = ["bounding", "effective", "inheritable", "permitted", "ambient"];
        let sets: serde_json::Map<String, Value> =
            sets.into_iter().map(|set| (set.to_owned(), json!(capabilities))).collect();
        let none: [&str; 0] = [];
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": { "uid": user, "gid": user },
                "args": [GUEST],
                "env": none,
                "cwd": "/",
                "capabilities": sets,
                "noNewPrivileges": self.whose.linux().is_none_or(|linux| linux.no_new_privs),
            },
            "root": { "path": shown(&self.root()), "readonly": true },
            "hostname": self.hostname,
            "mounts": mounts,
            "linux": linux,
        })
    }

    /// A path that the document cannot say is no path of a bundle.
    pub(crate) fn all_text(&self) -> Result<(), StartError> {
        let paths = self.shown.iter().flat_map(|shown| [&shown.from, &shown.at]);
        match paths.into_iter().find(|path| path.to_str().is_none()) {
            Some(path) => Err(refused(path, "its name is no UTF-8, which the bundle of a runtime cannot say")),
            None => Ok(()),
        }
    }
}

fn refused(path: &Path, why: &str) -> StartError {
    StartError::Path { clause: "fs", path: path.to_owned(), why: why.to_owned(), missing: false }
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

/// Something to mount over, as it may stand there already.
fn point(path: &Path, is_file: bool) -> std::io::Result<()> {
    match (is_file, path.exists()) {
        (true, false) => file(path, 0o444, b""),
        (true, true) => Ok(()),
        (false, _) => folders(path),
    }
}

fn file(path: &Path, mode: u32, bytes: &[u8]) -> std::io::Result<()> {
    path.parent().map_or(Ok(()), folders)?;
    std::fs::write(path, bytes)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
}

/// The home folder lies in a place that is empty until the guest runs.
pub(crate) fn home() -> Op {
    Op::Dir { path: text(Path::new(HOME)), mode: 0o700 }
}
