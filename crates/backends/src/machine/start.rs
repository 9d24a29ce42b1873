//! The start of a machine: its emulator verified and let go as any run of the container tier, then the machine's own evidence.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use agent::machine::Workspace as Shown;
use policy::Control;
use policy::control::Emulator;

use super::inside::Inside;
use super::link::Link;
use super::live::Origin;
use super::machine_cache::MachineCache;
use super::monitor::Monitor;
use super::prepare::{Copied, Prepared};
use super::relay::Workspace;
use super::{frames, proof, running, up};
use crate::StartError;
use crate::backend::{self, Exhausted, FoundPaths};
use crate::host::Capabilities;

/// Bytes of the emulator's own messages that are shown.
const SHOWN: u64 = 1000;

/// An emulator on its way.
#[derive(Debug)]
pub(super) struct Started {
    emulator: Box<dyn backend::Started>,
    prepared: Rest,
}

/// What is known of it.
#[derive(Debug)]
pub(super) struct Rest {
    pub(super) outer: policy::Plan,
    pub(super) plan: policy::Plan,
    pub(super) words: Vec<std::ffi::OsString>,
    pub(super) machine: agent::machine::Machine,
    pub(super) program: Option<agent::words::Program>,
    pub(super) filter: crate::native::filter::Built,
    /// Bytes of memory of the machine.
    pub(super) memory: u64,
    pub(super) release: String,
    pub(super) digest: String,
    /// Files that are shown read-only: name and content.
    pub(super) files: Vec<(String, Vec<u8>)>,
    /// What it begins with instead of a boot.
    pub(super) kept: Option<File>,
    /// Where that is kept for others.
    pub(super) keeps: Option<MachineCache>,
    /// What it begins with is all that a live sandbox was, and it goes on from there.
    pub(super) goes_on: bool,
    /// What others can go on from.
    pub(super) origin: Origin,
    /// The emulator's end of what carries the frames of a network, until it has it.
    pub(super) frames: Option<OwnedFd>,
    /// It has it.
    pub(super) joined: bool,
    /// Where the changes of the workspace's copy are put.
    changes: Option<File>,
    /// What it was built from: the controls as they were applied.
    pub(super) blueprint: crate::native::blueprint::Blueprint,
    /// The emulator's version.
    pub(super) version: String,
}

/// A machine that is up, and in which nothing of the caller's runs.
#[derive(Debug)]
pub(super) struct Verified {
    emulator: Box<dyn backend::Running>,
    /// None where it takes no orders.
    monitor: Option<Monitor>,
    link: Link,
    /// Its agent alone goes on so far.
    goes_on: bool,
    origin: Origin,
    /// None where the agent itself is the caller's: a live sandbox.
    program: Option<agent::words::Program>,
    changed: Option<Workspace>,
}

/// Starts the emulator's sandbox.
pub(super) fn start(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let changes = prepared.workspace.as_ref().map(Copied::make).transpose()?;
    let kernel = &prepared.emulation.kernel;
    let rest = Rest {
        release: kernel.release.clone(),
        digest: kernel.digest(),
        memory: prepared.memory,
        outer: prepared.outer,
        plan: prepared.plan,
        words: prepared.words,
        machine: prepared.machine,
        program: prepared.program,
        filter: prepared.filter,
        files: prepared.files,
        kept: prepared.kept,
        keeps: prepared.keeps,
        goes_on: prepared.goes_on,
        origin: prepared.origin,
        blueprint: prepared.blueprint,
        version: prepared.emulation.version,
        frames: None,
        joined: false,
        changes,
    };
    Ok(Started { emulator: prepared.emulator.start(host)?, prepared: rest })
}

/// How it is spoken to.
pub(super) enum Lines {
    /// Its own sockets: for orders, and of the machine's agent.
    Sockets(OwnedFd, OwnedFd),
    /// It takes no orders, and has made a socket of the machine's agent.
    Channel,
}

/// An emulator that was let go, what it was prepared of, how it is spoken to, and what it may say of itself.
type Emulated = (Box<dyn backend::Running>, Rest, Lines, Vec<OwnedFd>);

impl Started {
    /// The emulator itself: every control of its own plan has left its evidence then.
    ///
    /// With what it may say of itself.
    pub(super) fn emulated(self, armed: &[Control]) -> Result<Emulated, StartError> {
        let Self { emulator, prepared } = self;
        let mut emulator = emulator.verify(armed, &FoundPaths::default())?.go()?;
        let streams = emulator.take_streams();
        let program = prepared.blueprint.machine.emulator.map(|(program, ..)| program);
        let (lines, said) = match (program, streams.socket, streams.output) {
            (Some(Emulator::Qemu), Some(orders), Some(line)) => (Lines::Sockets(orders, line), None),
            (Some(Emulator::Firecracker), None, Some(output)) => (Lines::Channel, Some(output)),
            (_, _, _) => return Err(StartError::Internal("the emulator has no streams".to_owned())),
        };
        Ok((emulator, prepared, lines, said.into_iter().chain(streams.errors).collect()))
    }
}

impl backend::Started for Started {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        self.emulator.layers()
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        let mut all = self.emulator.sockets()?;
        // The last is the link's, and no socket of the broker.
        if self.prepared.machine.network.is_some()
            && let Some(link) = all.pop()
        {
            self.prepared.frames = Some(frames::carry(link)?);
        }
        Ok(all)
    }

    fn waits(&self) -> bool {
        false
    }

    fn filled(&self) -> Result<(), StartError> {
        Ok(())
    }

    fn verify(self: Box<Self>, armed: &[Control], _: &FoundPaths) -> Result<Box<dyn backend::Verified>, StartError> {
        let (emulator, mut prepared, lines, errors) = self.emulated(armed)?;
        let began = up::begun(&mut prepared, lines, emulator.pid()).and_then(|(monitor, mut link, _begun)| {
            let inside = Inside::read(&mut link, &prepared.machine.certificates)?;
            Ok((monitor, link, inside))
        });
        let (monitor, link, inside) = began.map_err(|why| {
            emulator.kill();
            StartError::system("starting the machine", format!("{why}{}", said(errors)))
        })?;
        let lacks = proof::lacks(&prepared, &inside, emulator.pid(), armed);
        if lacks.is_empty() {
            let written = prepared.machine.workspace.filter(|workspace| workspace.write).zip(prepared.changes);
            let changed =
                written.map(|(Shown { at, size, write: _ }, file)| Workspace { folder: at, most: most(size), file });
            let Rest { goes_on, origin, program, .. } = prepared;
            Ok(Box::new(Verified { emulator, monitor, link, goes_on, origin, program, changed }))
        } else {
            Err(StartError::Posture(lacks))
        }
    }
}

/// What the emulator itself said.
fn said(errors: Vec<OwnedFd>) -> String {
    let mut bytes = Vec::new();
    for stream in errors {
        // It does not block: what is there is enough.
        drop(std::fs::File::from(stream).take(SHOWN).read_to_end(&mut bytes));
    }
    let text = sys::proc::shown(bytes.trim_ascii_end());
    if text.is_empty() { text } else { format!("; the emulator says: {text}") }
}

impl backend::Verified for Verified {
    fn pid(&self) -> i32 {
        self.emulator.pid()
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        let Self { emulator, monitor, mut link, goes_on, origin, program, changed } = *self;
        if goes_on {
            up::gone_on(&mut link).map_err(|why| {
                emulator.kill();
                StartError::system("letting the machine go on", why)
            })?;
        }
        Ok(Box::new(match program {
            Some(program) => running::Running::new(emulator, link, program, changed)?,
            None => running::Running::live(emulator, (link, monitor), origin)?,
        }))
    }
}

/// The most that the tar stream of a place of this size may be: each entry has a header, padding and often a longer name.
const fn most(size: agent::machine::FsSize) -> u64 {
    size.bytes.saturating_add(size.inodes.saturating_mul(4096)).saturating_add(1 << 20)
}

/// Places inside are the machine's own: nobody looks into them from here.
pub(super) const fn no_places() -> Vec<Exhausted> {
    Vec::new()
}
