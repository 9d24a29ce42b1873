//! What a request becomes: a small machine that goes on a little at a time, so that no stream waits for another.

mod list;
mod once;
mod port;
mod program;
mod read;
mod remove;
mod tar;
mod watch;
mod write;

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::PollFlags;
use serde::Serialize;

use crate::files::failure::failure;
use crate::flow::Io;
use crate::inside::Inside;
use crate::starter::ProgramEvent;
use crate::words::{Code, Ended, Failure, ProgramControl, Request};

/// Whether and when a task goes on.
#[derive(Debug)]
pub(crate) enum Progress {
    /// At its next turn.
    More,
    /// When a descriptor that it names is ready, or its stream was sent something.
    Wait,
    /// Then at the latest.
    Until(Instant),
    /// The result, as the payload of its `End`.
    Done(Vec<u8>),
}

impl Progress {
    /// The task has done what it was asked for.
    pub(crate) fn done(result: impl Serialize) -> Result<Self, Failure> {
        serde_json::to_vec(&Ended::Ok(result))
            .map(Self::Done)
            .map_err(|error| failure(Code::Failed, format!("the answer cannot be written: {error}")))
    }
}

/// One request on its way. Dropping it leaves nothing behind.
pub(crate) trait Task {
    /// Goes on a little: some ten thousand bytes, some hundred files.
    fn step(&mut self, io: &mut Io<'_>, inside: &mut Inside) -> Result<Progress, Failure>;

    /// The descriptors that it waits for.
    fn waits<'a>(&'a self, _flow: &Waiting, _add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {}

    /// The other side asks something of it.
    fn control(&mut self, _control: ProgramControl) {}

    /// The starter has news about its program.
    fn told(&mut self, _told: ProgramEvent) {}

    /// The other side has no use for it any more.
    fn cancel(&mut self, _inside: &mut Inside) {}

    /// Number of its program's order.
    fn order(&self) -> Option<u64> {
        None
    }
}

/// What a stream could do, for a task that says what it waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Data can be sent.
    pub(crate) can_send: bool,
    /// Data that came waits.
    pub(crate) has_input: bool,
}

/// The task of a request.
pub(crate) fn of(request: Request, inside: &mut Inside) -> Result<Box<dyn Task>, Failure> {
    Ok(match request {
        Request::Start(program) => Box::new(program::Running::start(program, inside)?),
        Request::List { path, depth } => Box::new(list::List::new(&inside.path(&path)?, depth)?),
        Request::Read { path, offset, length } => Box::new(read::Read::new(&inside.path(&path)?, offset, length)?),
        Request::Write { path, mode, metadata } => Box::new(write::Write::new(&inside.path(&path)?, mode, metadata)?),
        Request::Remove { path } => Box::new(remove::Remove::new(&inside.path(&path)?)?),
        Request::Watch { path, recursive } => Box::new(watch::Watch::new(&inside.path(&path)?, recursive)?),
        Request::Archive { path } => {
            let at = inside.path(&path)?;
            // A slash at the end means what a link leads to. So does the home folder, which is one by our own doing.
            let follows = path.ends_with('/') || at == inside.home;
            Box::new(tar::Archive::new(&at, follows)?)
        }
        Request::Extract { path } => Box::new(tar::Extract::new(&inside.path(&path)?)?),
        Request::Port { port } => Box::new(port::Port::new(port)?),
        request @ (Request::Hello { .. }
        | Request::Stat { .. }
        | Request::Mkdir { .. }
        | Request::Move { .. }
        | Request::Processes {}) => Box::new(once::Once::new(request)),
    })
}
