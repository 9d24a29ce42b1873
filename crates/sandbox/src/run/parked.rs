//! A sandbox before *go*: everything is in force and proven, and nothing of the caller's runs.

use backends::Capabilities;
use policy::value::{NetMode, Tier};

use super::begin::{self, RunRequest, VerifiedRun};
use super::broker::Keeper;
use super::handle::{self, Sandbox};
use super::options::Options;
use super::planning::Planned;
use super::record::{self, Recorded, refused};
use super::{Handle, Live, could_start, supervised, unsupervised};
use crate::environment::Environment;
use crate::error::Error;
use crate::fault::Fault;
use crate::workload::{Code, Workload};

/// A sandbox that waits for *go*: each control of the plan has left its evidence. Nobody watches its limits yet, since nothing
/// in it runs; its clock begins with [`Parked::go`]. Dropped, it is ended, and the audit log says that it was never used.
pub struct Parked {
    waiting: Option<Waiting>,
}

/// The order of the fields is the order in which it ends.
struct Waiting {
    ready: VerifiedRun,
    recorded: Recorded,
    planned: Planned,
    options: Options,
}

impl std::fmt::Debug for Parked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Parked").field("run", &self.id()).finish_non_exhaustive()
    }
}

/// Starts what was planned as far as *go*.
///
/// # Errors
/// As [`super::start`].
pub fn park(
    mut planned: Planned,
    environment: &Environment,
    host: &Capabilities,
    options: Options,
) -> Result<Parked, Error> {
    let audit = planned.plan.policy.audit.clone();
    let unrecorded = |stop| refused(stop, Some(&audit), environment);
    could_start(&planned.plan, &options).map_err(unrecorded)?;
    let recorded = record::open(&planned, environment, host, &options).map_err(unrecorded)?;
    let what = std::mem::replace(&mut planned.judged.what, Workload::Nothing);
    let forced = std::mem::take(&mut planned.judged.forced);
    let wanted = RunRequest { what, forced, options: &options, environment };
    let begun = begin::begin(&planned.plan, wanted, &recorded, host).map_err(|stop| recorded.abort(stop, &planned))?;
    let ready = begun
        .confine(&planned, &recorded, host, options.earlier.as_ref())
        .map_err(|stop| recorded.abort(stop, &planned))?;
    Ok(Parked { waiting: Some(Waiting { ready, recorded, planned, options }) })
}

impl Parked {
    /// The id of the run; empty after *go*.
    #[must_use]
    pub fn id(&self) -> &str {
        self.waiting.as_ref().map_or("", |waiting| waiting.recorded.id.as_str())
    }

    /// The guest's process, by its number outside; 0 after *go*.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.waiting.as_ref().map_or(0, |waiting| waiting.ready.pid())
    }

    /// Lets the program go; from here on a thread of its own supervises it, and its time counts.
    ///
    /// # Errors
    /// The guest is gone, or our own failure; nothing runs any more then, and the audit log knows why.
    pub fn go(self) -> Result<Sandbox, Error> {
        supervised(self.let_go()?)
    }

    pub(super) fn let_go(mut self) -> Result<(Live, Handle), Error> {
        let Some(Waiting { ready, recorded, planned, options }) = self.waiting.take() else { return Err(unused()) };
        let (stdio, events, tools) = options.into_parts();
        let mut stage = ready.go(&planned.plan, stdio).map_err(|stop| recorded.abort(stop, &planned))?;
        planned.choice().into_iter().for_each(|why| stage.resources.tell(why));
        let pid = stage.running.pid();
        recorded.started(&planned, pid).map_err(Error::after_go)?;
        let lost = recorded.lost();
        if let Some(socket) = stage.std_streams.socket.take_if(|_| planned.plan.tier == Tier::Language) {
            super::tools::serve(socket, tools).map_err(|error| lost(unsupervised(&error)))?;
        }
        let (handle, mailbox) =
            handle::sides(recorded.id.as_str(), pid, stage.started).map_err(|error| lost(unsupervised(&error)))?;
        let handle = handle.with_rules(stage.broker.as_ref().map(Keeper::rules));
        Ok((Live { stage, recorded, plan: planned.plan, mailbox, events }, handle))
    }
}

/// An interpreter of the language tier that has its limits, proven, and waits for a program that nobody knows yet. It is used once.
/// Dropped, it is ended as [`Parked`] is.
#[derive(Debug)]
pub struct Interpreter {
    parked: Parked,
    /// All that it was started with but the code.
    code: Code,
}

impl Interpreter {
    /// Starts the one for what was planned as far as *go*. `None` where something of the run beside the program is read at its start:
    /// on another tier, and with inputs or secrets.
    ///
    /// # Errors
    /// As [`super::start`].
    pub fn start(
        mut planned: Planned,
        environment: &Environment,
        host: &Capabilities,
        options: Options,
    ) -> Result<Option<Self>, Error> {
        let policy = &planned.plan.policy;
        let alone = policy.inputs.is_empty() && policy.secrets.is_empty() && policy.net.mode == NetMode::None;
        let (Tier::Language, true, Workload::Code(code)) = (planned.plan.tier, alone, &mut planned.judged.what) else {
            return Ok(None);
        };
        code.text.clear();
        let code = code.clone();
        let parked = park(planned, environment, host, options)?;
        Ok(Some(Self { parked, code }))
    }

    /// The id of the run that it will be.
    #[must_use]
    pub fn id(&self) -> &str {
        self.parked.id()
    }

    /// Whether it is there, and what would be started now for what was planned: by the same plan and the same controls, which were
    /// proven, and the same words.
    #[must_use]
    pub fn is_for(&self, planned: &Planned, options: &Options) -> bool {
        let (Some(waiting), Workload::Code(code)) = (&self.parked.waiting, &planned.judged.what) else { return false };
        let (proven, plan) = (&waiting.planned.plan, &planned.plan);
        let words = |code: &Code| (code.name.clone(), code.interpreter.clone(), code.args.clone());
        proven.digest() == plan.digest()
            && proven.controls().eq(plan.controls())
            && words(&self.code) == words(code)
            && begin::inner(&waiting.options.stdio) == begin::inner(&options.stdio)
            && waiting.ready.takes_program()
    }

    /// Gives it the program of what was planned, for which it is ([`Interpreter::is_for`]), and lets it go as [`Parked::go`] does.
    ///
    /// # Errors
    /// As [`super::start`].
    pub fn go(
        mut self,
        mut planned: Planned,
        environment: &Environment,
        host: &Capabilities,
        options: Options,
    ) -> Result<Sandbox, Error> {
        let Some(mut waiting) = self.parked.waiting.take() else { return Err(unused()) };
        let recorded = waiting.recorded.taken(&planned, environment, host, &options);
        let what = std::mem::replace(&mut planned.judged.what, Workload::Nothing);
        let code = if let Workload::Code(code) = what { Ok(code.text) } else { Err(unused()) };
        if let Err(stop) = recorded.and(code).and_then(|code| waiting.ready.give(code)) {
            return Err(waiting.recorded.abort(stop, &planned));
        }
        (waiting.planned, waiting.options) = (planned, options);
        self.parked.waiting = Some(waiting);
        self.parked.go()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if let Some(Waiting { ready, recorded, planned, options: _ }) = self.waiting.take() {
            drop(ready);
            // The log has what was planned; this says that nothing came of it.
            drop(recorded.abort(unused(), &planned));
        }
    }
}

fn unused() -> Error {
    Error::failed(Fault {
        id: "run/unused",
        what: "the sandbox was made ready and never used".to_owned(),
        place: "before the program was let go".to_owned(),
        why: "whoever kept it ready ended, or needs it no more; nothing ran in it".to_owned(),
        fix: "nothing: create another one".to_owned(),
    })
}
