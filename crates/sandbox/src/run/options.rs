//! What a caller says about a start beside the plan: where the program's streams lead, and who hears of events.

use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use backends::Remembered;

use super::asker::Asker;
use super::earlier::Earlier;
use super::tools::Tools;
use crate::load::PolicyLayer;

/// Where the program reads from.
#[derive(Debug)]
pub enum Stdin {
    /// Nowhere: a null device.
    Nothing,
    /// These bytes, and then the end.
    Bytes(Vec<u8>),
    /// A descriptor of the caller, to its end.
    Descriptor(OwnedFd),
}

/// Where one of the program's outputs goes.
#[derive(Debug)]
pub enum Sink {
    /// It is kept in memory, up to `limits.output`.
    Keep,
    /// To a descriptor of the caller. It is written only when it takes data, so that a slow reader stops no watch.
    Descriptor(OwnedFd),
}

/// A terminal of the caller, to which the program's own is connected. Its modes are the caller's to set.
#[derive(Debug)]
pub struct Screen {
    /// What is typed.
    pub input: OwnedFd,
    /// What is shown.
    pub output: OwnedFd,
    /// Rows and columns.
    pub size: (u16, u16),
}

/// The program's standard streams.
#[derive(Debug)]
pub enum Stdio {
    /// Three streams.
    Streams {
        /// Standard input.
        stdin: Stdin,
        /// Standard output.
        stdout: Sink,
        /// Standard error.
        stderr: Sink,
    },
    /// A terminal, which `process.tty` of the policy asks for.
    Terminal(Screen),
    /// The agent's: its standard input is a socket, whose other end is [`super::Sandbox::take_socket`]'s. What it prints is
    /// thrown away.
    Socket,
}

impl Stdio {
    /// Nothing to read, and both outputs kept.
    #[must_use]
    pub const fn kept() -> Self {
        Self::Streams { stdin: Stdin::Nothing, stdout: Sink::Keep, stderr: Sink::Keep }
    }
}

/// Something that happened while the program runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Usage passed `limits.warn`; in words.
    Warning(String),
}

/// Who hears of events: called by the supervisor's thread, which enforces nothing meanwhile.
pub type OnEvent = Box<dyn FnMut(Event) + Send>;

/// What a start needs beside the plan.
pub struct Options {
    /// Standard streams.
    pub stdio: Stdio,
    /// Who hears of events.
    pub events: OnEvent,
    /// Who gets questions about the network answered (`net.unknown = "ask"`); without, a run that may ask is refused.
    pub asker: Option<Arc<dyn Asker>>,
    /// Who makes calls of tools of a program of the language tier; without, each of them fails.
    pub tools: Option<Arc<dyn Tools>>,
    /// An earlier run, from whose changes this one goes on; its workspace is the plan's, in mode `overlay` or `copy`.
    pub earlier: Option<Earlier>,
    /// The documents and flags that made the policy, weakest first: recorded, so that the run can be repeated. `None` where the
    /// caller cannot say.
    pub asked: Option<Vec<PolicyLayer>>,
    /// The paths of `fs.read`, `fs.write` and the workspace were judged as they are, without links: one that leads through a link
    /// when it is opened is refused, where it is followed otherwise.
    pub no_links: bool,
    /// All that another machine was, from which this one goes on (vm tier, live sandboxes).
    pub memory: Option<Arc<Remembered>>,
    /// Tests of the proof alone: these controls are left out, and the start must fail.
    #[cfg(feature = "mutation")]
    pub without: Vec<policy::Control>,
    /// Tests of the proof alone: the backend is given something else than what was found, and the start must fail.
    #[cfg(feature = "mutation")]
    pub launched: Option<fn(&mut backends::Launch)>,
}

impl Options {
    /// With these streams, and nobody who hears of events.
    #[must_use]
    pub fn new(stdio: Stdio) -> Self {
        Self {
            stdio,
            events: Box::new(|_| ()),
            asker: None,
            tools: None,
            earlier: None,
            asked: None,
            no_links: false,
            memory: None,
            #[cfg(feature = "mutation")]
            without: Vec::new(),
            #[cfg(feature = "mutation")]
            launched: None,
        }
    }

    pub(super) fn into_parts(self) -> (Stdio, OnEvent, Option<Arc<dyn Tools>>) {
        (self.stdio, self.events, self.tools)
    }

    #[cfg(feature = "mutation")]
    pub(super) fn without(&self) -> &[policy::Control] {
        &self.without
    }

    /// What the backend is given, in tests of the proof.
    #[cfg(feature = "mutation")]
    pub(super) fn change(&self, launch: &mut backends::Launch) {
        self.launched.iter().for_each(|change| change(launch));
    }

    #[cfg(not(feature = "mutation"))]
    #[expect(clippy::unused_self, reason = "the other build has something")]
    pub(super) const fn change(&self, _: &mut backends::Launch) {}

    #[cfg(not(feature = "mutation"))]
    #[expect(clippy::unused_self, reason = "the other build has one")]
    pub(super) const fn without(&self) -> &[policy::Control] {
        &[]
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("stdio", &self.stdio).finish_non_exhaustive()
    }
}
