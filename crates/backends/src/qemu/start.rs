//! The start of a machine: its emulator verified and let go as any run of the container tier, then the machine's own evidence.

use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::time::Duration;

use agent::machine::Workspace as Shown;
use policy::Control;

use super::inside::Inside;
use super::link::Link;
use super::prepare::{Copied, Prepared};
use super::relay::Workspace;
use super::{proof, running};
use crate::StartError;
use crate::backend::{self, Exhausted};
use crate::host::Capabilities;

/// How long the machine's kernel may take to its agent: seconds on an idle host, a minute on a busy one.
const BOOT: Duration = Duration::from_secs(150);
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
    pub(super) release: String,
    pub(super) digest: String,
    /// Where the changes of the workspace's copy are put.
    changes: Option<std::fs::File>,
}

/// A machine that is up, and in which nothing of the caller's runs.
#[derive(Debug)]
pub(super) struct Verified {
    emulator: Box<dyn backend::Running>,
    link: Link,
    /// None where the agent itself is the caller's: a live sandbox.
    program: Option<agent::words::Program>,
    changed: Option<Workspace>,
}

/// Starts the emulator's sandbox.
pub(super) fn start(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let Prepared { emulator, outer, plan, emulation, words, machine, program, filter, workspace } = prepared;
    let changes = workspace.as_ref().map(Copied::make).transpose()?;
    let (release, digest) = (emulation.kernel.release.clone(), emulation.kernel.digest());
    let prepared = Rest { outer, plan, words, machine, program, filter, release, digest, changes };
    Ok(Started { emulator: emulator.start(host)?, prepared })
}

impl backend::Started for Started {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        self.emulator.layers()
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        self.emulator.sockets()
    }

    fn waits(&self) -> bool {
        false
    }

    fn filled(&self) -> Result<(), StartError> {
        Ok(())
    }

    fn verify(self: Box<Self>, armed: &[Control]) -> Result<Box<dyn backend::Verified>, StartError> {
        let Self { emulator, prepared } = *self;
        // Every control of its own plan has left its evidence then.
        let mut emulator = emulator.verify(armed)?.go()?;
        let streams = emulator.take_streams();
        let (Some(to), Some(from)) = (streams.input, streams.output) else {
            return Err(StartError::Internal("the emulator has no standard streams".to_owned()));
        };
        let mut link = Link::new(to, from);
        let inside = Inside::read(&mut link, BOOT).map_err(|why| {
            emulator.kill();
            StartError::system("starting the machine", format!("{why}{}", said(streams.errors)))
        })?;
        let lacks = proof::lacks(&prepared, &inside, emulator.pid(), armed);
        if lacks.is_empty() {
            let written = prepared.machine.workspace.filter(|workspace| workspace.write).zip(prepared.changes);
            let changed =
                written.map(|(Shown { at, size, write: _ }, file)| Workspace { folder: at, most: most(size), file });
            Ok(Box::new(Verified { emulator, link, program: prepared.program, changed }))
        } else {
            Err(StartError::Posture(lacks))
        }
    }
}

/// What the emulator itself said.
fn said(errors: Option<OwnedFd>) -> String {
    let Some(errors) = errors else { return String::new() };
    let mut bytes = Vec::new();
    // It does not block: what is there is enough.
    drop(std::fs::File::from(errors).take(SHOWN).read_to_end(&mut bytes));
    let text = sys::proc::shown(bytes.trim_ascii_end());
    if text.is_empty() { text } else { format!("; the emulator says: {text}") }
}

impl backend::Verified for Verified {
    fn pid(&self) -> i32 {
        self.emulator.pid()
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        let Self { emulator, link, program, changed } = *self;
        Ok(Box::new(match program {
            Some(program) => running::Running::new(emulator, link, program, changed)?,
            None => running::Running::live(emulator, link)?,
        }))
    }
}

/// The most that the tar stream of a place of this size may be: each entry has a header, padding and often a longer name.
const fn most(size: agent::machine::Place) -> u64 {
    size.bytes.saturating_add(size.inodes.saturating_mul(4096)).saturating_add(1 << 20)
}

/// Places inside are the machine's own: nobody looks into them from here.
pub(super) const fn no_places() -> Vec<Exhausted> {
    Vec::new()
}
