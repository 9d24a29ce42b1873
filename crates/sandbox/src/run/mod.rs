//! One run, from a policy to how it ended.
//!
//! The list of stages reads as the flow does: policy -> plan | refusal -> journal -> prepare -> start -> audit ->
//! posture == plan -> go -> watch -> outcome -> report -> audit. Each stage takes the one before it by value, so none can be
//! repeated or skipped. The plan is recorded while the guest confines itself, always before *go*.
//!
//! Promises: any number of sandboxes in one process, started from any thread; a thread that started one may end. Nothing is
//! printed, and nothing that belongs to the whole process is changed: no signal mask of the caller, no umask, no limit, no
//! affinity, no control group (but by [`Capabilities::probe_with`], which a caller may use instead of
//! [`Capabilities::probe`]).

mod asked;
mod asker;
mod begin;
mod broker;
mod brought;
mod commands;
mod covers;
mod earlier;
mod elsewhere;
mod end;
mod foresee;
mod frozen;
mod git_layers;
mod guard;
mod handle;
mod host_resources;
mod language;
mod launch;
mod laying;
mod live;
mod locks;
mod moment;
mod now;
mod options;
mod others_files;
mod outcome;
mod pace;
mod parked;
mod passed;
mod planning;
mod record;
mod secret_command;
mod secret_marks;
mod secrets;
mod streams;
mod supervise;
mod terminal;
mod threshold;
mod tools;
mod trees;
mod unseen;
mod violations;
mod wall;
mod watches;
mod workspace;
mod writable;

use std::path::Path;

use backends::{Capabilities, Running};
use policy::Plan;
use policy::value::{NetMode, Unknown};

pub use asked::{AskedLayer, asked_layer};
pub use asker::{AllowedAccess, Asker, Question, Reply, RequestHead};
pub use broker::WORD as BROKER_WORD;
pub use commands::around as commands_around;
pub use earlier::Earlier;
pub use elsewhere::toolchains;
pub use end::Finished;
pub use foresee::foresee;
pub use handle::{Handle, Sandbox, Visitor};
pub use live::{could_live, could_snapshot};
pub use now::UsageNow;
pub use options::{Event, OnEvent, Options, Screen, Sink, Stdin, Stdio};
pub use parked::{Interpreter, Parked, park};
pub use planning::{Planned, plan};
pub use record::{facts, plan_recorded, plan_without_values, refused};
pub use secrets::fits_header;
pub use streams::{CapturedStream, Last};
pub use tools::{NoResult, Tools};
pub use violations::{from_output as hints, out_of_memory};
pub use writable::WritablePlaces;

use begin::Stage;
use frozen::Files;
use guard::Protected;
use handle::{Mailbox, OrderSource};
use record::Recorded;
use supervise::{Hooks, StopReason, Watch, Watched};

use crate::environment::Environment;
use crate::error::Error;
use crate::fault::Fault;

/// A start has some dozens of descriptors open at once, and places those of the guest from 64 on.
pub const DESCRIPTORS: u64 = 192;

/// Stack of a supervisor: it walks folders as deep as a program can make them.
const STACK: usize = 8 << 20;

/// A program that was let go, and what its supervisor needs.
struct Live {
    stage: Stage,
    recorded: Recorded,
    plan: Plan,
    mailbox: Mailbox,
    events: OnEvent,
}

/// Starts what was planned. When this returns, each control of the plan has left its evidence and the program was let go;
/// from here on a thread of its own supervises it.
///
/// # Errors
/// A refusal, or our own failure; nothing was run then, or nothing runs any more, and the audit log knows why.
pub fn start(
    planned: Planned,
    environment: &Environment,
    host: &Capabilities,
    options: Options,
) -> Result<Sandbox, Error> {
    park(planned, environment, host, options)?.go()
}

/// A program that was let go is supervised by a thread of its own.
fn supervised((mut live, handle): (Live, Handle)) -> Result<Sandbox, Error> {
    let (socket, lost) = (live.stage.std_streams.socket.take(), live.recorded.lost());
    let supervise = move || {
        // A signal is for the caller's threads.
        sys::signals::block_all();
        live.supervise(None)
    };
    let thread = std::thread::Builder::new().name("fumehood-run".to_owned()).stack_size(STACK);
    let supervisor = thread.spawn(supervise).map_err(|error| lost(unsupervised(&error)))?;
    Ok(Sandbox::new(handle, supervisor, socket))
}

/// Starts what was planned and supervises it in the calling thread, for a program that has nothing else to do: `visitor` is
/// called meanwhile, and asks what it wants by its handle. Of a run that takes its time the program's own pages are unmapped.
///
/// # Errors
/// As [`start`].
pub fn run_here(
    planned: Planned,
    environment: &Environment,
    host: &Capabilities,
    options: Options,
    visitor: Visitor<'_>,
) -> Result<Finished, Error> {
    let (live, handle) = park(planned, environment, host, options)?.let_go()?;
    Ok(live.supervise(Some((visitor, handle))))
}

impl Live {
    /// Supervises it to its end.
    fn supervise(self, visitor: Option<(Visitor<'_>, Handle)>) -> Finished {
        let Self { mut stage, recorded, plan, mailbox, mut events } = self;
        let mut orders = OrderSource::new(mailbox, visitor);
        let watched = watch(&mut stage, (&recorded, &plan), &mut orders, &mut *events);
        end::report(stage, &watched, plan, &recorded)
    }
}

/// What a start needs of its caller.
fn could_start(plan: &Plan, options: &Options) -> Result<(), Error> {
    let may = sys::rlimit::open_files();
    if may < DESCRIPTORS {
        return Err(Error::refused(Fault {
            id: "run/few-descriptors",
            what: format!("only {may} files may be open at once"),
            place: "the caller's limits".to_owned(),
            why: format!("a run needs {DESCRIPTORS}; nothing was run"),
            fix: "raise the limit of open files (`ulimit -n`)".to_owned(),
        }));
    }
    options.earlier.as_ref().map_or(Ok(()), |earlier| earlier.fits(plan))?;
    let net = &plan.policy.net;
    if net.mode == NetMode::Allow && net.asks() && options.asker.is_none() {
        let of_hosts = net.unknown == Unknown::Ask;
        let (asking, place) = match of_hosts {
            true => ("net.unknown = \"ask\"", "`net.unknown`"),
            false => ("decision = \"ask\"", "`net.allow`"),
        };
        return Err(Error::refused(Fault {
            id: "net.unknown/nobody",
            what: format!("`{asking}` asks a person, and here nobody can be asked"),
            place: place.to_owned(),
            why: "whoever starts this run has no store of approvals".to_owned(),
            fix: format!("leave out `{asking}`, or start it by `fumehood run` or `create`"),
        }));
    }
    let agent = matches!(options.stdio, Stdio::Socket);
    if agent {
        could_live(plan)?;
    }
    // The agent has none, and makes those of the programs that it starts.
    if agent || plan.policy.process.tty == matches!(options.stdio, Stdio::Terminal(_)) {
        return Ok(());
    }
    let (what, why) = if plan.policy.process.tty {
        ("`process.tty` asks for a terminal inside", "the caller gave none to connect it with")
    } else {
        ("a terminal was given", "the policy has no `process.tty`")
    };
    Err(Error::failed(Fault {
        id: "usage/no-terminal",
        what: what.to_owned(),
        place: "the program's standard streams".to_owned(),
        why: why.to_owned(),
        fix: "give a terminal with `process.tty = true`, and only then".to_owned(),
    }))
}

/// The program was let go, and is ended by whoever drops its stage.
fn unsupervised(error: &dyn std::fmt::Display) -> Error {
    Error::failed(Fault {
        id: "run/descriptors",
        what: "the run cannot be supervised".to_owned(),
        place: "after the program was let go".to_owned(),
        why: format!("{error}; everything inside was ended"),
        fix: "raise the limits of open files and threads (`ulimit -n`, `ulimit -u`)".to_owned(),
    })
}

/// Watches until nothing runs any more.
fn watch(
    stage: &mut Stage,
    (recorded, plan): (&Recorded, &Plan),
    orders: &mut OrderSource<'_>,
    events: &mut dyn FnMut(Event),
) -> Watched {
    let events = std::cell::RefCell::new(events);
    let tell = |words: &str| (events.borrow_mut())(Event::Warning(words.to_owned()));
    let mut warned = |words: &str| {
        recorded.threshold(words);
        tell(words);
    };
    let tmp = stage.resources.tmp().filter(|_| stage.watches.folder()).map(Path::to_owned);
    let (watches, protected) = (&stage.watches, stage.protected.as_ref().filter(|_| stage.watches.protected));
    let mut broker = stage.broker.as_mut();
    let mut check_host = |unlinked: u64| {
        if broker.as_mut().is_some_and(|broker| broker.newly_lost()) {
            recorded.broker_lost();
            tell(broker::LOST);
        }
        if let Some(words) = protected.and_then(Protected::lost) {
            return Some(StopReason::Lost(words));
        }
        let tmp = tmp.as_deref()?;
        let (limit, words) = workspace::over_limit(tmp, unlinked, watches)?;
        Some(StopReason::Limit(limit, words))
    };
    let (layer, folder) = (stage.layer.as_mut(), stage.resources.tmp());
    let mut files = Files { layer, tmp: stage.tmp.as_ref(), folder, recorded, plan };
    let mut while_frozen = |task, until: &_, running: &mut dyn Running| files.serve(task, until, running);
    let hooks = Hooks { warned: &mut warned, check_host: &mut check_host, while_frozen: &mut while_frozen };
    Watch::new(watches, &mut *stage.running, &mut stage.std_streams, orders, hooks).run()
}
