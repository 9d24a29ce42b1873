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
use sys::proc::Process;
use sys::spawn::{Child, IdRange};

use super::container::{Container, OwnNamespaces};
use super::prepare::{Maker, Prepared};
use super::{docker, docker_image, podman, verify};
use crate::StartError;
use crate::backend::{self, FIRST_EXTRA, FoundPaths, Streams};
use crate::host::{Capabilities, Daemon};
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
    make_root(&prepared, &root).map_err(|error| StartError::system("making the root", error))?;
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
    let made = contain(&prepared, &root, &maps, &listener).and_then(|(container, child, control)| {
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

/// A root with nothing in it but the guest and what others mount over. Its container's root may only walk through the run's folder.
/// Docker has a root of its own, and shows the guest in it.
fn make_root(prepared: &Prepared, root: &Path) -> std::io::Result<()> {
    let open = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
    chown(&prepared.folder, None, Some(prepared.root))?;
    open(&prepared.folder, 0o710)?;
    let (folders, files) = match &prepared.maker {
        Maker::Podman(_) => (&FOLDERS[..], &FILES[..]),
        Maker::Docker(_) => (&[][..], &[][..]),
    };
    for name in std::iter::once(&"").chain(folders) {
        let path = root.join(name);
        std::fs::create_dir(&path)?;
        open(&path, 0o755)?;
    }
    for (name, bytes, mode) in
        files.iter().map(|name| (*name, &b""[..], 0o444)).chain([(GUEST.trim_start_matches('/'), guest::ELF, 0o555)])
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

/// The container, the guest's process and its control socket.
type Contained = (Container, Child, OwnedFd);

fn contain(
    prepared: &Prepared,
    root: &Path,
    maps: &[Vec<(u32, u32)>; 2],
    listener: &UnixListener,
) -> Result<Contained, StartError> {
    match &prepared.maker {
        Maker::Podman(runtime) => by_podman(prepared, root, maps, (runtime, listener)),
        Maker::Docker(daemon) => by_docker(prepared, root, maps, (daemon, listener)),
    }
}

/// Its first process is the guest.
fn by_podman(
    prepared: &Prepared,
    root: &Path,
    maps: &[Vec<(u32, u32)>; 2],
    (runtime, listener): (&Path, &UnixListener),
) -> Result<Contained, StartError> {
    let own = |kind: Namespace| prepared.inner.blueprint.namespaces.contains(&kind);
    let wanted = podman::ContainerSpec {
        run: &prepared.inner.run,
        root,
        runtime,
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
    let control = come_in(listener, pid)?;
    Ok((container, Child { pid, pidfd }, control))
}

/// Its first process makes the guest's namespaces, and the guest in them; their ids are mapped here.
fn by_docker(
    prepared: &Prepared,
    root: &Path,
    maps: &[Vec<(u32, u32)>; 2],
    (daemon, listener): (&Daemon, &UnixListener),
) -> Result<Contained, StartError> {
    let making = |why: String| StartError::system("making the container", why);
    let looking = |error: sys::error::Error| StartError::system("looking at the container's process", error);
    let [users, groups] = maps;
    let first_of = |map: &Vec<(u32, u32)>| map.first().map_or(prepared.root, |(_, outside)| *outside);
    let wanted = docker::ContainerSpec {
        run: &prepared.inner.run,
        daemon,
        image: docker_image::give(&daemon.api).map_err(making)?,
        folder: root,
        program: GUEST,
        ids: [first_of(users), first_of(groups)],
        no_new_privs: prepared.inner.blueprint.no_new_privs,
        limits: prepared.inner.config.rlimits.iter().map(|limit| (limit.resource, limit.value)).collect(),
    };
    let container = Container::make(&wanted).map_err(making)?;
    let first = container.start(&wanted).map_err(StartError::Posture)?;
    let told = come_in(listener, first)?;
    let lacks = docker::first_lacks(first, &wanted).map_err(looking)?;
    if !lacks.is_empty() {
        return Err(StartError::Posture(lacks));
    }
    let namespaces = spawn::namespaces(&prepared.inner.blueprint.namespaces).flags();
    sys::channel::send(&told, &namespaces.to_le_bytes())
        .map_err(|error| StartError::system("speaking to the container's process", error))?;
    let (pid, control) = copy_comes_in(listener, first, &told)?;
    let pidfd = sys::pidfd::open(pid).map_err(looking)?;
    // Of the process that the descriptor is: its number was not given to another meanwhile.
    let children = Process::open(first).and_then(|first| first.children()).map_err(looking)?;
    if children != [pid] {
        return Err(making(format!("process {pid} came in, and the container's first has the children {children:?}")));
    }
    let ranges = |map: &Vec<(u32, u32)>| -> Vec<IdRange> {
        map.iter().map(|(inside, outside)| IdRange { inside: *inside, outside: *outside, count: 1 }).collect()
    };
    sys::spawn::write_id_maps(pid, &ranges(users), &ranges(groups), false)
        .map_err(|error| StartError::system("writing the id maps", error))?;
    Ok((container, Child { pid, pidfd }, control))
}

/// The copy of the container's first process, or why that made none.
fn copy_comes_in(listener: &UnixListener, first: i32, told: &OwnedFd) -> Result<(i32, OwnedFd), StartError> {
    let failed = |why: String| StartError::system("waiting for the guest", why);
    let readable = |fd| sys::channel::Interest { fd, write: false };
    let either = [readable(listener.as_fd()), readable(told.as_fd())];
    let ready = sys::channel::wait(&either, Some(native::START_TIMEOUT)).map_err(|e| failed(e.to_string()))?;
    if ready.first() == Some(&true) {
        return accepted(listener);
    }
    let mut errno = [0; 4];
    match sys::channel::receive(told, &mut errno, true) {
        Ok(said) if said.count == errno.len() => {
            let why = std::io::Error::from_raw_os_error(i32::from_le_bytes(errno));
            Err(StartError::Namespaces { why: format!("in the engine's container: {why}") })
        }
        Ok(_) | Err(_) => Err(failed(format!("process {first}, the container's first, has made no guest"))),
    }
}

fn accepted(listener: &UnixListener) -> Result<(i32, OwnedFd), StartError> {
    let failed = |why: String| StartError::system("waiting for the guest", why);
    let (stream, _) = listener.accept().map_err(|error| failed(error.to_string()))?;
    let (peer, _) = sys::channel::peer(&stream).map_err(|error| failed(error.to_string()))?;
    Ok((peer, stream.into()))
}

/// The guest's end of the control socket: that of the container's first process, and of nobody else.
fn come_in(listener: &UnixListener, pid: i32) -> Result<OwnedFd, StartError> {
    let failed = |why: String| StartError::system("waiting for the guest", why);
    let interest = sys::channel::Interest { fd: listener.as_fd(), write: false };
    let ready = sys::channel::wait(&[interest], Some(native::START_TIMEOUT)).map_err(|e| failed(e.to_string()))?;
    if ready.first() != Some(&true) {
        return Err(failed("the container's first process did not come in".to_owned()));
    }
    let (peer, stream) = accepted(listener)?;
    if peer != pid {
        return Err(failed(format!("process {peer} came in, and the container's first is {pid}")));
    }
    Ok(stream)
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
