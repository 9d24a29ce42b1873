//! From `Prepared` to a guest in the engine's container that has confined itself and waits for *go*.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::UnixListener;
use std::path::Path;

use guest::config::{ENTRY_SOCKET, Identity, OwnedSource as Source};
use policy::Control;
use policy::control::Namespace;
use sys::spawn::Child;

use super::container::{Container, ContainerSpec, OwnNamespaces};
use super::prepare::Prepared;
use super::verify;
use crate::StartError;
use crate::backend::{self, FIRST_EXTRA, FoundPaths, Streams};
use crate::host::Capabilities;
use crate::native::devices::Nodes;
use crate::native::{control, spawn, start as native};

/// The guest in the container's root.
const GUEST: &str = "/.fumehood";
/// What the engine and its runtime mount over, or look for, in any root.
const FOLDERS: [&str; 5] = ["proc", "sys", "dev", "etc", "run"];
const FILES: [&str; 6] =
    ["etc/passwd", "etc/group", "etc/hosts", "etc/hostname", "etc/resolv.conf", "run/.containerenv"];
/// What comes in together.
const AT_ONCE: usize = 3;

/// A container on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct StartedContainer {
    inner: native::Started,
    /// Ids inside and what they are outside.
    maps: [Vec<(u32, u32)>; 2],
    /// As they were before the engine's runtime.
    nodes: Nodes,
}

/// Makes the container's root and the container, puts its first process into the run's group, and hands it what it needs.
///
/// # Errors
/// The host or the engine refused something; or the container is another than the one that was asked for.
pub(super) fn start(mut prepared: Prepared, host: &Capabilities) -> Result<StartedContainer, StartError> {
    let failed = |what: &'static str| move |error| StartError::system(what, error);
    let (maps, nodes) = (prepared.maps(), Nodes::look());
    let root = prepared.folder.join("root");
    make_root(&prepared.folder, &root, prepared.root).map_err(|error| StartError::system("making the root", error))?;
    let entry = root.join(ENTRY_SOCKET.to_string_lossy().trim_start_matches('/'));
    let listener = listen(&entry).map_err(|error| StartError::system("making the control socket", error))?;
    let trees = trees(&mut prepared)?;
    let (streams, theirs) = Streams::make(prepared.inner.stdio)?;
    native::streams_to_payload(&prepared.inner, &streams)?;
    let program = match &prepared.inner.program {
        Some(program) => spawn::own_program(program)?,
        None => null()?,
    };
    let group =
        spawn::group(&prepared.inner, host)?.ok_or_else(|| StartError::Internal("no control group".to_owned()))?;
    let made = contain(&prepared, &root, &maps).and_then(|(container, child)| {
        let control = come_in(&listener, child.pid)?;
        // Only now, when it is known to be the guest: what is in the group is ended with it.
        group.take(child.pid).map_err(|error| StartError::system("putting the guest into its control group", error))?;
        Ok((container, child, control))
    });
    let (container, child, socket) = match made {
        Ok(made) => made,
        Err(error) => {
            drop(group.end(native::START_TIMEOUT));
            return Err(error);
        }
    };
    // Nobody else comes in.
    drop(listener);
    let removed = std::fs::remove_file(&entry);
    let config =
        sys::memfd::data(c"fumehood-config", &prepared.inner.told()).map_err(failed("making the guest's config"))?;
    let held = native::GuestProcess::by_engine(child, group, Box::new(container));
    let started = native::Started::new(prepared.inner, held, control::Control::new(socket), streams);
    removed.map_err(|error| StartError::system("closing the control socket", error))?;
    // Only now, so that it is ended if it cannot be told.
    send(&started, &[config, null()?, program], &theirs, &trees)?;
    Ok(StartedContainer { inner: started, maps, nodes })
}

fn null() -> Result<OwnedFd, StartError> {
    sys::channel::dev_null().map_err(|error| StartError::system("opening /dev/null", error))
}

/// A root with nothing in it but the guest and what others mount over. `owner`: the container's root, who may only walk through
/// the run's folder.
fn make_root(folder: &Path, root: &Path, owner: u32) -> std::io::Result<()> {
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    chown(folder, None, Some(owner))?;
    open(folder, 0o710)?;
    for name in std::iter::once("").chain(FOLDERS) {
        let path = root.join(name);
        std::fs::create_dir(&path)?;
        open(&path, 0o755)?;
    }
    for (name, bytes, mode) in
        FILES.iter().map(|name| (*name, &b""[..], 0o444)).chain([(GUEST.trim_start_matches('/'), guest::ELF, 0o555)])
    {
        let path = root.join(name);
        std::fs::write(&path, bytes)?;
        open(&path, mode)?;
    }
    Ok(())
}

/// Open to whoever sees it: outside that is root alone, inside the guest, before anything else runs there.
fn listen(socket: &Path) -> std::io::Result<UnixListener> {
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    Ok(listener)
}

/// Every tree that the guest mounts, in the order of its sources, which become numbers of descriptors.
fn trees(prepared: &mut Prepared) -> Result<Vec<OwnedFd>, StartError> {
    let mut mapped = native::mapped(&prepared.inner)?.into_iter();
    let mut all = Vec::new();
    for source in &mut prepared.inner.config.sources {
        let tree = match source {
            Source::Path { path, is } => judged(Path::new(OsStr::from_bytes(path.to_bytes())), *is)?,
            // In the same order.
            Source::Fd(_) => {
                mapped.next().ok_or_else(|| StartError::Internal("a mapped tree is missing".to_owned()))?
            }
        };
        *source = Source::Fd(FIRST_EXTRA.saturating_add(u32::try_from(all.len()).unwrap_or(u32::MAX)));
        all.push(tree);
    }
    let config = &mut prepared.inner.config;
    config.program = config.program.map(|_| crate::native::prepare::number_after(all.len().next_multiple_of(AT_ONCE)));
    Ok(all)
}

/// The tree at a path, if it still is the one that was judged.
fn judged(path: &Path, is: Identity) -> Result<OwnedFd, StartError> {
    let mapping = |why: String| StartError::Mapping { path: path.to_owned(), why };
    let failed = |error: sys::error::Error| mapping(error.to_string());
    let place = sys::paths::open_place(path).map_err(failed)?;
    let found = sys::paths::identity(&place).map_err(failed)?;
    if (found.device, found.inode) != ((is.major, is.minor), is.ino) {
        return Err(mapping("it is another file than the one that was judged".to_owned()));
    }
    sys::tree::clone(place, true).map_err(failed)
}

/// The container and its first process.
fn contain(prepared: &Prepared, root: &Path, maps: &[Vec<(u32, u32)>; 2]) -> Result<(Container, Child), StartError> {
    let own = |kind: Namespace| prepared.inner.blueprint.namespaces.contains(&kind);
    let wanted = ContainerSpec {
        run: &prepared.inner.run,
        root,
        runtime: &prepared.runtime,
        program: GUEST,
        maps: maps.clone(),
        own: OwnNamespaces {
            user: own(Namespace::User),
            pid: own(Namespace::Pid),
            net: own(Namespace::Net),
            ipc: own(Namespace::Ipc),
            uts: own(Namespace::Uts),
        },
        no_new_privs: prepared.inner.blueprint.no_new_privs,
    };
    let container = Container::make(&wanted).map_err(|why| StartError::system("making the container", why))?;
    let pid = container.start(&wanted).map_err(StartError::Posture)?;
    let pidfd = sys::pidfd::open(pid).map_err(|error| StartError::system("opening the container's process", error))?;
    Ok((container, Child { pid, pidfd }))
}

/// The guest's end of the control socket: that of the container's first process, and of nobody else.
fn come_in(listener: &UnixListener, pid: i32) -> Result<OwnedFd, StartError> {
    let failed = |why: String| StartError::system("waiting for the guest", why);
    let interest = sys::channel::Interest { fd: listener.as_fd(), write: false };
    let ready = sys::channel::wait(&[interest], Some(native::START_TIMEOUT)).map_err(|e| failed(e.to_string()))?;
    if ready.first() != Some(&true) {
        return Err(failed("the container's first process did not come in".to_owned()));
    }
    let (stream, _) = listener.accept().map_err(|error| failed(error.to_string()))?;
    let (peer, _) = sys::channel::peer(&stream).map_err(|error| failed(error.to_string()))?;
    if peer != pid {
        return Err(failed(format!("process {peer} came in, and the container's first is {pid}")));
    }
    Ok(stream.into())
}

/// Hands it its config, its streams and its trees, three at a time; with the streams the number of what follows.
fn send(
    started: &native::Started,
    first: &[OwnedFd; AT_ONCE],
    streams: &[OwnedFd; AT_ONCE],
    trees: &[OwnedFd],
) -> Result<(), StartError> {
    let gone = |error| StartError::system("speaking to the guest", error);
    let padding = null()?;
    let more = u8::try_from(trees.len().div_ceil(AT_ONCE))
        .map_err(|_number| StartError::Internal("more trees than can be handed in".to_owned()))?;
    let rest = trees.chunks(AT_ONCE).map(|chunk| {
        let at = |number: usize| chunk.get(number).unwrap_or(&padding);
        (0, [at(0), at(1), at(2)])
    });
    for (byte, three) in [(0, first.each_ref()), (more, streams.each_ref())].into_iter().chain(rest) {
        sys::channel::send_some(started.control.as_fd(), &[byte], &three.map(|fd| fd.as_fd())).map_err(gone)?;
    }
    Ok(())
}

impl backend::Started for StartedContainer {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        self.inner.layers()
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        self.inner.sockets()
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
        let Self { inner, maps, nodes } = *self;
        let confined = inner.confined()?;
        let mut wrong = verify::lacks(&confined.started, &maps);
        wrong.extend(nodes.changed());
        if !wrong.is_empty() {
            return Err(StartError::Posture(wrong));
        }
        Ok(Box::new(confined.verify(armed, found)?))
    }
}
