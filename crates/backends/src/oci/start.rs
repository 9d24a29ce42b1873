//! From `Prepared` to a guest in the runtime's container that has confined itself and waits for *go*.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use guest::config::Attrs;
use policy::Control;
use sys::spawn::InnerMount;

use super::begin::{self, Order};
use super::bundle::{Bundle, BundleMount, Layer};
use super::prepare::Prepared;
use super::verify;
use crate::StartError;
use crate::backend::{self, FoundPaths};
use crate::host::Capabilities;
use crate::native::devices::Nodes;
use crate::native::source::text;
use crate::native::start as native;

const NAME: &str = "crun";
/// Where a runtime looks for control groups: it must find none there, for they are the supervisor's.
const GROUPS: &CStr = c"/sys/fs/cgroup";
/// The guest's control socket, the first descriptor behind the standard streams.
const SOCKET: i32 = 3;

/// A container on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct StartedContainer {
    inner: native::Started,
    bundle: Bundle,
    uppers: Vec<Upper>,
    /// As they were before the runtime.
    nodes: Nodes,
}

/// A layer that is handed out: its number, and its folder.
type Upper = (u32, OwnedFd);

/// A detached tree, where it is to be mounted, and the options of a layer that is laid over it there.
struct Mounted {
    tree: OwnedFd,
    at: CString,
    layer: Option<CString>,
    noexec: bool,
}

impl Mounted {
    const fn plain(tree: OwnedFd, at: CString) -> Self {
        Self { tree, at, layer: None, noexec: false }
    }
}

/// Writes the bundle and starts the runtime, in the run's control group.
///
/// # Errors
/// The host refused a file, a group or a mount.
pub(super) fn start(prepared: Prepared, host: &Capabilities) -> Result<StartedContainer, StartError> {
    let Prepared { inner, bundle, runtime } = prepared;
    bundle.write()?;
    let (trees, uppers) = trees(&bundle, (inner.identity.uid, inner.identity.gid))?;
    let mut mounts =
        vec![InnerMount::New { kind: c"tmpfs", at: GROUPS, noexec: true, options: c"size=4096,nr_inodes=2,mode=555" }];
    for Mounted { tree, at, layer, noexec } in &trees {
        mounts.push(InnerMount::Tree { tree: tree.as_fd(), at });
        if let Some(options) = layer {
            mounts.push(InnerMount::New { kind: c"overlay", at, noexec: *noexec, options });
        }
    }
    let words = runtime_argv(&bundle, &inner.run);
    let order = Order { name: NAME, program: &runtime.path, words, socket: SOCKET, mounts: &mounts };
    let nodes = Nodes::look();
    let mut inner = begin::begin(inner, &bundle, &order, begin::null()?, host)?;
    let layered = bundle.shown.iter().filter(|shown| shown.layer.is_some()).map(|shown| &shown.at);
    let in_memory = bundle.places.iter().map(|place| &place.at).chain(layered);
    inner.child.scope.in_memory = in_memory.map(|at| at.to_string_lossy().into_owned()).collect();
    Ok(StartedContainer { inner, bundle, uppers, nodes })
}

/// The runtime's words: no control group of its own making, and the control socket for the guest.
fn runtime_argv(bundle: &Bundle, run: &str) -> Vec<CString> {
    let state = bundle.state();
    let mut all: Vec<&Path> = vec![Path::new(NAME), Path::new("--root"), &state];
    all.extend(["--cgroup-manager=disabled", "run", "--preserve-fds=1", "--bundle"].map(Path::new));
    all.extend([bundle.folder(), Path::new(run)]);
    begin::container_argv(all)
}

/// The root and every tree that is shown, each as it was judged, with its attributes, mounted nowhere yet; and the layers.
fn trees(bundle: &Bundle, owner: (u32, u32)) -> Result<(Vec<Mounted>, Vec<Upper>), StartError> {
    let failed = |error| StartError::system("opening the root of the bundle", error);
    let root =
        sys::paths::open_place(&bundle.root()).and_then(|place| sys::tree::clone(place, false)).map_err(failed)?;
    sys::tree::restrict(&root, (Attrs::NOSUID | Attrs::NODEV).bits()).map_err(failed)?;
    let (mut all, mut uppers) = (vec![Mounted::plain(root, text(&bundle.root()))], Vec::new());
    for (index, shown) in bundle.shown.iter().enumerate() {
        let at = bundle.shown_folder(index);
        let tree = tree(shown, owner)?;
        let noexec = shown.attrs.bits() & Attrs::NOEXEC.bits() != 0;
        let layer = match shown.layer {
            Some(layer) => {
                let above = bundle.layer_folder(index);
                let (memory, upper) = upper(layer, &tree, owner)?;
                uppers.extend(layer.slot.map(|slot| (slot, upper)));
                all.push(Mounted::plain(memory, text(&above)));
                let (lower, above) = (at.display(), above.display());
                Some(format!("lowerdir={lower},upperdir={above}/upper,workdir={above}/work,userxattr"))
            }
            // What can only be read and is no tree of tools lies behind a layer: its sockets are nobody's to connect to. Two
            // lower layers and no upper one.
            None if !shown.whole => Some(format!("lowerdir={}:{}", bundle.empty_folder().display(), at.display())),
            None => None,
        };
        // The paths are ours, and have no character that overlay reads otherwise.
        let layer = layer.map(CString::new).transpose().map_err(|e| StartError::system("writing the bundle", e))?;
        all.push(Mounted { tree, at: text(&at), layer, noexec });
    }
    Ok((all, uppers))
}

/// Where a layer is written, and the folder in it that holds what was.
fn upper(layer: Layer, below: &OwnedFd, owner: (u32, u32)) -> Result<(OwnedFd, OwnedFd), StartError> {
    let failed = |error| StartError::system("making a layer", error);
    let mode = sys::paths::facts(below).map_err(failed)?.mode;
    let memory = sys::tree::in_memory(layer.bytes, layer.inodes).map_err(failed)?;
    sys::tree::make_folder(&memory, "work", 0o700, (0, 0)).map_err(failed)?;
    let upper = sys::tree::make_folder(&memory, "upper", mode, owner).map_err(failed)?;
    Ok((memory, upper))
}

fn tree(shown: &BundleMount, (uid, gid): (u32, u32)) -> Result<OwnedFd, StartError> {
    let failed = |error: sys::error::Error| StartError::Mapping { path: shown.from.clone(), why: error.to_string() };
    let place = sys::paths::open_place(&shown.from).map_err(failed)?;
    let found = sys::paths::identity(&place).map_err(failed)?;
    if (found.device, found.inode) != ((shown.is.major, shown.is.minor), shown.is.ino) {
        let why = "it is another file than the one that was judged".to_owned();
        return Err(StartError::Mapping { path: shown.from.clone(), why });
    }
    let tree = match shown.owner {
        Some((on_disk_uid, on_disk_gid)) => sys::idmap::clone_mapped(place, (on_disk_uid, uid), (on_disk_gid, gid)),
        None => sys::tree::clone(place, shown.whole),
    };
    let tree = tree.map_err(failed)?;
    let write = if shown.write && shown.layer.is_none() { Attrs::NONE } else { Attrs::RDONLY };
    sys::tree::restrict(&tree, (shown.attrs | write | Attrs::NOSUID | Attrs::NODEV).bits()).map_err(failed)?;
    Ok(tree)
}

impl backend::Started for StartedContainer {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        let mut all = begin::layers(&self.inner, &self.bundle)?;
        all.append(&mut self.uppers);
        Ok(all)
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        self.inner.sockets().map_err(|error| begin::with_said(error, &self.bundle, NAME))
    }

    fn waits(&self) -> bool {
        self.inner.waits()
    }

    fn filled(&self) -> Result<(), StartError> {
        self.inner.filled()
    }

    fn verify(
        self: Box<Self>,
        armed: &[Control],
        found: &FoundPaths,
    ) -> Result<Box<dyn backend::Verified>, StartError> {
        let Self { inner, bundle, uppers: _, nodes } = *self;
        let confined = inner.confined().map_err(|error| begin::with_said(error, &bundle, NAME))?;
        let mut wrong = verify::lacks(&confined.started, &bundle);
        wrong.extend(nodes.changed());
        if !wrong.is_empty() {
            return Err(StartError::Posture(wrong));
        }
        Ok(Box::new(confined.verify(armed, found)?))
    }
}
