//! What the engine asks of whatever holds a plan on this host, in the order in which a run asks it:
//! [`Backend`], [`Prepared`], [`Started`], [`Verified`], [`Running`].
//!
//! Each is consumed by the next, so that no stage can be left out: only [`Verified`] has `go`, and only evidence for every
//! control of the plan gives one. Dropping any of them from [`Started`] on ends everything inside.

mod killer;
mod launch;
mod streams;
mod usage;

pub use killer::Killer;
pub(crate) use launch::FIRST_EXTRA;
#[cfg(feature = "mutation")]
pub use launch::Mutation;
pub use launch::{FoundPaths, GitPart, Launch, Memory, OwnProgram, Protect, Remembered, Stdio, Trust};
pub(crate) use streams::Inner;
pub use streams::Streams;
pub use usage::{Exhausted, ExhaustedResource, Sample, Unseen};

use std::fmt::Debug;
use std::fs::File;
use std::io::Write;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use guest::frames::FromGuest;
use policy::value::Tier;
use policy::{ClauseId, Control, Plan, Policy, Support};

use crate::StartError;
use crate::host::{Capabilities, Missing};

/// What implements a tier on this host.
pub trait Backend: Debug + Send + Sync {
    /// Its tier.
    fn tier(&self) -> Tier;

    /// Its name in plans and reports.
    fn name(&self) -> &'static str;

    /// Whether only a policy that names it gets it.
    fn only_by_name(&self) -> bool {
        false
    }

    /// Whether it needs a folder of the run's own ([`Launch::tmp`]), in which it alone writes.
    fn wants_folder(&self) -> bool {
        false
    }

    /// Whether this host has what no policy can do without here; [`Backend::support`] refuses the tier for the same reason.
    ///
    /// # Errors
    /// What is missing, and the remedy.
    fn probe(&self, host: &Capabilities) -> Result<(), Missing>;

    /// Who would hold a clause here.
    fn support(&self, clause: ClauseId, policy: &Policy, host: &Capabilities) -> Support;

    /// From a plan to everything that its start needs. Nothing is made on the host here.
    ///
    /// # Errors
    /// A path of the plan cannot be used, or a profile is unknown.
    fn prepare(&self, plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Box<dyn Prepared>, StartError>;

    /// Ends what a run left whose supervisor died, where its journal cannot name it; how many things that were.
    ///
    /// # Errors
    /// Something is still there; in words.
    fn end_left(&self, run: &str) -> Result<usize, String>;
}

/// Everything that a start needs.
pub trait Prepared: Debug {
    /// The workspace on the host, canonical.
    fn workspace(&self) -> Option<&Path>;

    /// Whether a folder is shown with other ids than it has, through a clone of its mount.
    fn maps(&self, path: &Path) -> bool;

    /// Where a copy of the workspace must be made before the start; `None` where there is none, or the start itself asks for
    /// it ([`Started::filled`]).
    fn copy_to(&self) -> Option<&Path>;

    /// uid and gid that the payload has outside.
    fn owner(&self) -> (u32, u32);

    /// The control groups that the start will make, by path.
    fn groups(&self, host: &Capabilities) -> Vec<PathBuf>;

    /// Starts what the payload will run in, without the payload.
    ///
    /// # Errors
    /// The host refused something of it; nothing is left then.
    fn start(self: Box<Self>, host: &Capabilities) -> Result<Box<dyn Started>, StartError>;
}

/// A sandbox on its way, without a payload.
pub trait Started: Debug {
    /// Waits for the descriptors of layers, each with its number: an overlay's upper, or the empty file system of a copy, which
    /// the caller fills before it calls [`Started::filled`]. None where the plan has no layer.
    ///
    /// # Errors
    /// A step of the start failed.
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError>;

    /// Waits for the sockets of the plan's inlets, in their order, which are the broker's: whoever calls this keeps none.
    /// None where the plan has none.
    ///
    /// # Errors
    /// A step of the start failed.
    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError>;

    /// Whether it waits until paths are covered in its layer, or an earlier run's changes are in it.
    fn waits(&self) -> bool;

    /// The copy is complete, or what is hidden is covered, and an earlier run's changes are there.
    ///
    /// # Errors
    /// It is gone.
    fn filled(&self) -> Result<(), StartError>;

    /// Waits until it is confined, and demands the evidence of every control of the plan. `armed`: those that the caller
    /// itself holds, as it set them up; `found`: what it found for the others, whoever was told of it.
    ///
    /// # Errors
    /// A step failed, by name; or every control without evidence, by clause.
    fn verify(self: Box<Self>, armed: &[Control], found: &FoundPaths) -> Result<Box<dyn Verified>, StartError>;
}

/// A sandbox in which every control of the plan has left its evidence, and that still has no payload.
pub trait Verified: Debug + Send {
    /// Number outside of the process that stands for the sandbox.
    fn pid(&self) -> i32;

    /// Whether it is an interpreter that still waits for its program.
    fn takes_program(&self) -> bool {
        false
    }

    /// Gives it this one in the place of the one that it was started for.
    ///
    /// # Errors
    /// It is no interpreter.
    fn give(&mut self, _program: Vec<u8>) -> Result<(), StartError> {
        Err(StartError::Internal("what was started takes no other program".to_owned()))
    }

    /// Lets the payload go.
    ///
    /// # Errors
    /// The sandbox is gone.
    fn go(self: Box<Self>) -> Result<Box<dyn Running>, StartError>;
}

/// A payload that runs.
pub trait Running: Debug + Send {
    /// Number outside of the process that stands for the sandbox.
    fn pid(&self) -> i32;

    /// The supervisor's ends of its streams; once.
    fn take_streams(&mut self) -> Streams;

    /// Readable when there are frames.
    fn frames(&self) -> BorrowedFd<'_>;

    /// Takes what has arrived, without waiting.
    ///
    /// # Errors
    /// Bytes that are no frame: whoever sends them is not ours any more.
    fn read_frames(&mut self) -> Result<(), StartError>;

    /// The next frame that has arrived. What it says is hostile from *go* on.
    fn next_frame(&mut self) -> Option<FromGuest>;

    /// Whether no more frames can come.
    fn closed(&self) -> bool;

    /// Whether the payload, by its number inside, has its label as the kernel shows it outside; one that has ended already
    /// had it from its execve on.
    ///
    /// # Errors
    /// It runs under another label; in words.
    fn check_label(&self, payload: i32) -> Result<(), String>;

    /// Forwards a signal to the payload.
    ///
    /// # Errors
    /// The guest is gone.
    fn signal(&self, number: u8) -> Result<(), StartError>;

    /// Ends everything inside at once.
    fn kill(&self);

    /// What ends everything inside from another thread, while whoever has this looks at it.
    ///
    /// # Errors
    /// No descriptor is left.
    fn killer(&self) -> Result<Killer, StartError>;

    /// Ends the guest itself, for one that does not answer.
    fn kill_guest(&self);

    /// Stops everything inside at once, or lets it go on.
    ///
    /// # Errors
    /// There is no freezer, or something does not stop within 5 s, and goes on then; in words.
    fn freeze(&mut self, frozen: bool) -> Result<(), String>;

    /// Whether [`Running::remember`] can be asked for.
    fn remembers(&self) -> bool {
        false
    }

    /// Writes all that is inside as it is at one moment, its memory included, for [`Launch::memory`] of later starts. What was not
    /// frozen goes on afterwards, and knows nothing of it.
    ///
    /// # Errors
    /// It is nothing that can be written, or `to` takes no more; in words.
    fn remember(&mut self, _to: &mut dyn Write) -> Result<Memory, String> {
        Err("only a machine has a memory of its own".to_owned())
    }

    /// Ends what a guest left that did not say that all has ended.
    ///
    /// # Errors
    /// Something of the run is still there; in words.
    fn end_left(&self) -> Result<(), String>;

    /// Usage now.
    fn sample(&self) -> Sample;

    /// As [`Running::sample`], when everything inside has ended: what is in use now is not asked where there is a peak.
    fn last_sample(&self) -> Sample;

    /// Byte-range locks of the tree: at most `most` and one more.
    ///
    /// # Errors
    /// They cannot be counted.
    fn locks(&self, most: u64) -> Result<u64, StartError>;

    /// Bytes in the places of limited size, where there are any and they can be counted.
    fn written_bytes(&self) -> Option<u64>;

    /// Places in which nothing more fits, now or, when everything inside has ended, at the end.
    fn full_places(&self) -> Vec<Exhausted>;

    /// Processor time of everything inside, where it is known exactly, microseconds: cheaper than a sample.
    fn ran_us(&self) -> Option<u64> {
        None
    }

    /// Whether memory is only known by walking the processes.
    fn memory_by_survey(&self) -> bool;

    /// After the end, what the program left in a copy of the workspace that was another than that of [`Prepared::copy_to`]: a
    /// tar stream, hostile as all that comes out, and what it lacks in words. `None` where there is no other. What it came
    /// from goes on meanwhile, and is ended when that takes longer than `within`.
    ///
    /// # Errors
    /// It could not be had; in words.
    fn bring_back(&mut self, within: Option<Duration>) -> Result<Option<(File, Vec<String>)>, String>;

    /// Tells everything to die, for a caller that has something else to do until [`Running::end`].
    fn begin_end(&mut self);

    /// Waits for the end and takes away what the start made; nothing of the run is left afterwards.
    fn end(self: Box<Self>);
}
