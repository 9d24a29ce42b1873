//! One run, from what was asked to how it ended.
//!
//! The list of stages reads like DESIGN section 3: request -> plan | refusal -> audit -> journal -> prepare -> start ->
//! posture == plan -> go -> watch -> outcome -> report -> audit. Each stage takes the one before it by value, so none can
//! be repeated or skipped.

mod aftermath;
mod base64;
mod begin;
mod guard;
mod hide;
mod home;
mod launch;
mod outcome;
mod planning;
mod record;
mod streams;
mod terminal;
mod violations;
mod watch;
mod workspace;

pub use planning::{Planned, choose, plan};

use crate::cli::{Request, World};
use crate::ui::{Failure, Voice};

/// Runs a request; the exit code.
///
/// # Errors
/// Mistakes of the policy, a refusal, or our own failure; nothing was run then, or nothing runs any more.
pub fn run(request: Request, world: &World, voice: Voice) -> Result<u8, Failure> {
    let manner = Manner::of(&request);
    let code = through(request, world, voice, &manner)?;
    Ok(u8::try_from(code).unwrap_or(125))
}

/// How a run speaks.
#[derive(Clone, Debug)]
struct Manner {
    json: bool,
    quiet: bool,
    verbose: bool,
    report: Option<std::path::PathBuf>,
}

impl Manner {
    fn of(request: &Request) -> Self {
        Self { json: request.json, quiet: request.quiet, verbose: request.verbose, report: request.report.clone() }
    }
}

fn through(request: Request, world: &World, voice: Voice, manner: &Manner) -> Result<i32, Failure> {
    let host = backends::Capabilities::probe_with(world.user_bus());
    let planned = match planning::plan(&request.layers, world, &host) {
        Ok(planned) => planned,
        Err(stop) => return Err(record::refused(stop, world)),
    };
    let recorded = record::planned(&planned, &request, world)?;
    let begun = begin::begin(&planned, request, world, &recorded, &host).map_err(|stop| recorded.abort(stop))?;
    let mut stage = begun.start(&planned, &host).map_err(|stop| recorded.abort(stop))?;
    recorded.started(&planned, stage.pid())?;
    let watched = stage.watch(&planned.plan.policy, &recorded, voice, manner);
    let report = aftermath::report(stage, &watched, &planned, &recorded)?;
    report.deliver(&planned, voice, manner)
}
