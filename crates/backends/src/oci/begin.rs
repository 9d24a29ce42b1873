//! The start of a runtime of containers: its bundle is written, its first process stands in the run's control group and in a
//! mount namespace of the run, and the guest is sent what it needs by the control socket.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use sys::proc::Process;
use sys::spawn::{IdMaps, InnerMount, Namespaces, Spawn};

use super::bundle::Bundle;
use crate::StartError;
use crate::backend::{Inner, Streams};
use crate::host::Capabilities;
use crate::native::control;
use crate::native::source::text;
use crate::native::spawn;
use crate::native::{prepare, start as native};

/// Most of what a runtime said that is told.
const MAX_SAID: usize = 500;

/// A runtime, and how it is told what to do.
pub(crate) struct Order<'a> {
    /// Its name, for people.
    pub(crate) name: &'static str,
    pub(crate) program: &'a Path,
    pub(crate) words: Vec<CString>,
    /// The descriptor by which the guest gets its control socket.
    pub(crate) socket: i32,
    /// Mounted for the runtime beside the bundle's own file systems, in this order.
    pub(crate) mounts: &'a [InnerMount<'a>],
}

/// What goes in to the guest, each three at once.
struct Sent {
    first: [OwnedFd; 3],
    streams: Inner,
}

impl Sent {
    fn send(self, started: &native::Started) -> Result<(), StartError> {
        /// No sources follow: a runtime mounts them.
        const NO_MORE: &[u8] = &[0];
        for three in [&self.first, &self.streams] {
            let three = three.each_ref().map(|fd| fd.as_fd());
            let gone = |error| StartError::system("speaking to the guest", error);
            sys::channel::send_some(started.control.as_fd(), NO_MORE, &three).map_err(gone)?;
        }
        Ok(())
    }
}

/// Starts it. Into `mounts` the guest writes what it sees mounted.
///
/// # Errors
/// The host refused a file, a group or a mount.
pub(crate) fn begin(
    inner: prepare::Prepared,
    bundle: &Bundle,
    order: &Order<'_>,
    mounts: OwnedFd,
    host: &Capabilities,
) -> Result<native::Started, StartError> {
    let failed = |what: &'static str| move |error| StartError::system(what, error);
    let (ours, theirs) = sys::channel::pair().map_err(failed("making the control socket"))?;
    let (streams, theirs_streams) = Streams::make(inner.stdio)?;
    native::streams_to_payload(&inner, &streams)?;
    let config = sys::memfd::data(c"fumehood-config", &inner.told()).map_err(failed("making the guest's config"))?;
    let program = match &inner.program {
        Some(program) => spawn::own_program(program)?,
        None => null()?,
    };
    let sent = Sent { first: [config, mounts, program], streams: theirs_streams };
    let group = spawn::group(&inner, host)?;
    let child = match run(order, bundle, &theirs, group.as_ref()) {
        Ok(child) => child,
        Err(error) => {
            drop(group.map(|group| group.end(native::START_TIMEOUT)));
            return Err(error);
        }
    };
    drop(theirs);
    let held = native::GuestProcess::new(child, group);
    let started = native::Started::new(inner, held, control::Control::new(ours), streams);
    // Only now, so that it is ended if it cannot be told.
    sent.send(&started)?;
    Ok(started)
}

/// For the guest, where it is to be given nothing.
pub(crate) fn null() -> Result<OwnedFd, StartError> {
    sys::channel::dev_null().map_err(|error| StartError::system("opening /dev/null", error))
}

/// For a runtime, to read nothing from: no device. What is no terminal among its standard streams it gives to the container's user,
/// and a node of the host's would be that user's then.
fn nothing() -> Result<OwnedFd, StartError> {
    let (read, write) = sys::channel::pipe().map_err(|error| StartError::system("making a pipe", error))?;
    drop(write);
    Ok(read)
}

fn run(
    order: &Order<'_>,
    bundle: &Bundle,
    socket: &OwnedFd,
    group: Option<&sys::cgroup::Group>,
) -> Result<sys::spawn::Child, StartError> {
    let opened = |error: std::io::Error| StartError::system("opening the runtime", format!("{}: {error}", order.name));
    let program = OwnedFd::from(std::fs::File::open(order.program).map_err(opened)?);
    let log = std::fs::File::create(bundle.log()).map_err(|e| StartError::system("writing the bundle", e))?;
    let places = bundle.file_systems();
    let places =
        places.iter().map(|(at, options, noexec)| InnerMount::New { kind: c"tmpfs", at, noexec: *noexec, options });
    let mounts: Vec<InnerMount<'_>> = places.chain(order.mounts.iter().copied()).collect();
    let argv: Vec<&CStr> = order.words.iter().map(CString::as_c_str).collect();
    let tasks = group.map(sys::cgroup::Group::tasks).unwrap_or_default();
    let input = nothing()?;
    let mut fds: Vec<(BorrowedFd<'_>, i32)> = vec![(log.as_fd(), 1), (log.as_fd(), 2), (socket.as_fd(), order.socket)];
    if order.socket != 0 {
        fds.push((input.as_fd(), 0));
    }
    let spawn = Spawn {
        namespaces: Namespaces::MOUNT,
        cgroup: group.and_then(sys::cgroup::Group::v2_dir),
        tasks: &tasks,
        cgroup_namespace: false,
        mounts: &mounts,
        id_maps: IdMaps::Later,
        time_offsets: None,
        ambient: 0,
        fds: &fds,
        program: program.as_fd(),
        argv: &argv,
    };
    spawn.start().map_err(native::refused)
}

/// Words for a runtime; a path is one.
pub(crate) fn container_argv<'w>(words: impl IntoIterator<Item = &'w Path>) -> Vec<CString> {
    words.into_iter().map(text).collect()
}

/// The error with what the runtime said last.
pub(crate) fn with_said(error: StartError, bundle: &Bundle, name: &str) -> StartError {
    let StartError::System { what, why } = error else { return error };
    StartError::System { what, why: format!("{why}{}", said(&bundle.log(), name)) }
}

fn said(log: &Path, name: &str) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let last: String = last.chars().take(MAX_SAID).collect();
    if last.is_empty() { String::new() } else { format!("; `{name}` said: {last}") }
}

/// The descriptors that the supervisor gets: of places in the run's own mount namespace.
pub(crate) fn layers(started: &native::Started, bundle: &Bundle) -> Result<Vec<(u32, OwnedFd)>, StartError> {
    let failed = |error| StartError::system("opening a place of the run", error);
    let process = Process::open(started.child.child.pid).map_err(failed)?;
    let mut all = Vec::new();
    for (index, place) in bundle.places.iter().enumerate() {
        let Some(slot) = place.slot else { continue };
        let at = bundle.place_folder(index);
        all.push((slot, process.folder_at(&at.to_string_lossy()).map_err(failed)?));
    }
    Ok(all)
}
