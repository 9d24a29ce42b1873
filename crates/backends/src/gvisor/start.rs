//! From `Prepared` to a guest inside gVisor that has confined itself and waits for *go*.

use std::ffi::{CStr, CString};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use guest::frames::{FromGuest, Posture, ToGuest};
use policy::Control;
use sys::proc::Process;
use sys::spawn::{IdMaps, InnerMount, Namespaces, Spawn};

use super::bundle::Bundle;
use super::engine::Engine;
use super::prepare::Prepared;
use super::verify;
use crate::StartError;
use crate::backend;
use crate::host::Capabilities;
use crate::native::capacity::WatchedMounts;
use crate::native::control;
use crate::native::running::{Running, Streams};
use crate::native::spawn;
use crate::native::start as native;

/// Most of what the runtime said that is told.
const MOST_SAID: usize = 500;
/// Most bytes of the list of mounts: what a pipe takes without a reader.
const MOST_MOUNTS: usize = 64 << 10;

/// gVisor on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) inner: native::Started,
    pub(super) bundle: Bundle,
    /// Its processes are told their platform.
    pub(super) says_platform: bool,
    /// The list of mounts comes out here.
    mounts: OwnedFd,
}

/// What goes in to the guest, each three at once.
struct Sent {
    first: [OwnedFd; 3],
    streams: native::Inner,
}

/// Writes the bundle and starts the runtime, all of whose processes are in the run's control group.
///
/// # Errors
/// The host refused a file, a group or a mount.
pub(super) fn start(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let Prepared { inner, bundle, engine } = prepared;
    let failed = |what: &'static str| move |error| StartError::system(what, error);
    bundle.write()?;
    let (ours, theirs) = sys::channel::pair().map_err(failed("making the control socket"))?;
    let (streams, theirs_streams) = Streams::make(inner.stdio)?;
    let (mounts, mounts_inner) = sys::channel::pipe().map_err(failed("making a pipe"))?;
    sys::channel::set_nonblocking(&mounts).map_err(failed("making a pipe"))?;
    let config =
        sys::memfd::data(c"fumehood-config", &inner.config.encode()).map_err(failed("making the guest's config"))?;
    let program = match &inner.program {
        Some(program) => spawn::own_program(program)?,
        None => sys::channel::dev_null().map_err(failed("opening /dev/null"))?,
    };
    let sent = Sent { first: [config, mounts_inner, program], streams: theirs_streams };
    let group = spawn::group(&inner, host)?;
    let child = match run(&engine, &bundle, (&inner.run, theirs), group.as_ref()) {
        Ok(child) => child,
        Err(error) => {
            drop(group.map(|group| group.end(native::START_TIMEOUT)));
            return Err(error);
        }
    };
    let mut held = native::Held::new(child, group);
    held.own_kernel = true;
    let started = native::Started::new(inner, held, control::Control::new(ours), streams);
    // Only now, so that it is ended if it cannot be told.
    sent.send(&started)?;
    Ok(Started { inner: started, bundle, says_platform: engine.says_platform, mounts })
}

impl Sent {
    fn send(self, started: &native::Started) -> Result<(), StartError> {
        for three in [&self.first, &self.streams] {
            let three = three.each_ref().map(|fd| fd.as_fd());
            let gone = |error| StartError::system("speaking to the guest", error);
            sys::channel::send_some(started.control.as_fd(), b"3", &three).map_err(gone)?;
        }
        Ok(())
    }
}

fn text(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap_or_default()
}

/// The runtime's words: no network, no control group of its own making, nothing written through.
fn words(engine: &Engine, bundle: &Bundle, run: &str) -> Vec<CString> {
    let plain = |word: &str| CString::new(word).unwrap_or_default();
    let mut all = vec![plain("runsc"), plain("--root"), text(&bundle.state())];
    all.extend(["--network=none", "--ignore-cgroups", "--host-uds=none"].map(plain));
    all.push(plain(&format!("--platform={}", engine.platform)));
    all.extend(engine.layers_root.then(|| plain("--overlay2=none")));
    all.extend([plain("run"), plain("--bundle"), text(bundle.folder()), plain(run)]);
    all
}

fn run(
    engine: &Engine,
    bundle: &Bundle,
    (run, socket): (&str, OwnedFd),
    group: Option<&sys::cgroup::Group>,
) -> Result<sys::spawn::Child, StartError> {
    let opened = |error: std::io::Error| StartError::system("opening `runsc`", error);
    let program = OwnedFd::from(std::fs::File::open(&engine.path).map_err(opened)?);
    let log = std::fs::File::create(bundle.log()).map_err(|e| StartError::system("writing the bundle", e))?;
    let places: Vec<(CString, CString, bool)> = bundle
        .places
        .iter()
        .enumerate()
        .map(|(index, place)| (text(&bundle.place_folder(index)), place.options(), place.noexec))
        .collect();
    let mounts: Vec<InnerMount<'_>> = places
        .iter()
        .map(|(at, options, noexec)| InnerMount { kind: c"tmpfs", at, noexec: *noexec, options })
        .collect();
    let words = words(engine, bundle, run);
    let argv: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
    let tasks = group.map(sys::cgroup::Group::tasks).unwrap_or_default();
    let fds: [(BorrowedFd<'_>, i32); 3] = [(socket.as_fd(), 0), (log.as_fd(), 1), (log.as_fd(), 2)];
    let spawn = Spawn {
        namespaces: Namespaces::MOUNT,
        cgroup: group.and_then(sys::cgroup::Group::birthplace),
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

impl Started {
    /// Waits until the guest has confined itself and said what is in force.
    fn posture(&mut self) -> Result<Posture, StartError> {
        match self.inner.expect() {
            Ok(FromGuest::Posture(posture)) => Ok(posture),
            Ok(frame) => Err(native::unexpected(&frame)),
            Err(StartError::System { what, why }) => {
                Err(StartError::System { what, why: format!("{why}{}", said(&self.bundle.log())) })
            }
            Err(error) => Err(error),
        }
    }

    /// All that the guest wrote before its posture.
    pub(super) fn mounts(&self) -> Result<Vec<sys::proc::Mount>, String> {
        let mut bytes = Vec::new();
        let file = self.mounts.try_clone().map_err(|error| error.to_string())?;
        match std::fs::File::from(file).take(MOST_MOUNTS as u64).read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.to_string()),
            Ok(_) | Err(_) => {}
        }
        sys::proc::parse_mountinfo(&String::from_utf8_lossy(&bytes)).ok_or_else(|| "it is no list of mounts".to_owned())
    }
}

/// What the runtime said last.
fn said(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let last: String = last.chars().take(MOST_SAID).collect();
    if last.is_empty() { String::new() } else { format!("; `runsc` said: {last}") }
}

impl backend::Started for Started {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        let failed = |error| StartError::system("opening a place of the run", error);
        let process = Process::open(self.inner.child.child.pid).map_err(failed)?;
        let mut all = Vec::new();
        for (index, place) in self.bundle.places.iter().enumerate() {
            let Some(slot) = place.slot else { continue };
            let at = self.bundle.place_folder(index);
            let fd = process.folder_at(&at.to_string_lossy()).map_err(failed)?;
            all.push((slot, fd));
        }
        Ok(all)
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        Ok(Vec::new())
    }

    fn waits(&self) -> bool {
        self.inner.prepared.config.wait_filled
    }

    fn filled(&self) -> Result<(), StartError> {
        self.inner.control.send(ToGuest::Filled)
    }

    fn verify(mut self: Box<Self>, armed: &[Control]) -> Result<Box<dyn backend::Verified>, StartError> {
        let posture = self.posture()?;
        self.inner.seen.born(&self.inner.child, &self.inner.prepared.plan);
        let seen = verify::Seen::look(&self);
        if let Ok(seen) = &seen {
            let places: Vec<String> =
                self.bundle.places.iter().map(|place| place.at.to_string_lossy().into_owned()).collect();
            self.inner.child.watched = WatchedMounts::of(&seen.gofer, &places);
        }
        let wrong = match seen {
            Ok(seen) => verify::lacks(&self, &seen, &posture, armed),
            Err(why) => vec![format!("gVisor's processes could not be looked at: {why}")],
        };
        if wrong.is_empty() { Ok(Box::new(Verified(self.inner))) } else { Err(StartError::Posture(wrong)) }
    }
}

/// A sandbox in which every control left its evidence.
#[derive(Debug)]
struct Verified(native::Started);

impl backend::Verified for Verified {
    fn pid(&self) -> i32 {
        self.0.child.child.pid
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        let native::Started { child, control, streams, .. } = self.0;
        control.send(ToGuest::Go)?;
        Ok(Box::new(Running { held: child, control, streams, label: None }))
    }
}
