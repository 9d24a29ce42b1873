//! One run, from what was asked to how it ended.
//!
//! The list of stages reads like DESIGN section 3: request -> policy -> journal -> plan | refusal -> prepare -> start ->
//! audit -> posture == plan -> go -> watch -> outcome -> report -> audit. Each stage takes the one before it by value, so
//! none can be repeated or skipped. Of the container tier the guest's process is made while the plan is (`early`), and the
//! plan is recorded while the guest confines itself: both before *go*, and a refusal leaves nothing of either.

mod aftermath;
mod base64;
mod begin;
mod commands;
mod early;
mod foresee;
mod guard;
mod hide;
mod home;
mod launch;
mod mounts;
mod outcome;
mod planning;
mod record;
mod report_file;
mod start_fault;
mod streams;
mod terminal;
mod threshold;
mod violations;
mod watch;
mod workspace;

pub(crate) use commands::around as commands_around;
pub use foresee::foresee;
pub use planning::{Planned, choose, plan};
use report_file::ReportFile;

use crate::cli::{Request, World, load};
use crate::fault::Fault;
use crate::ui::{Failure, Voice};

/// Runs a request; the exit code.
///
/// # Errors
/// Mistakes of the policy, a refusal, or our own failure; nothing was run then, or nothing runs any more.
pub fn run(request: Request, world: &World, voice: Voice) -> Result<u8, Failure> {
    sys::heap::keep();
    let mut manner = Manner::of(&request, world);
    let ended = match request.report.as_deref().map(|path| ReportFile::open(path, world.cwd.as_deref())).transpose() {
        Ok(report) => {
            manner.report = report;
            through(request, world, voice, &manner)
        }
        Err(stop) => Err(stop),
    };
    match ended {
        Ok(code) => Ok(u8::try_from(code).unwrap_or(125)),
        Err(stop) => aftermath::no_report(stop, voice, &manner),
    }
}

/// How a run speaks.
#[derive(Debug)]
struct Manner {
    json: bool,
    quiet: bool,
    verbose: bool,
    /// The program's output and our own words are shown on one screen.
    one_screen: bool,
    report: Option<ReportFile>,
}

impl Manner {
    fn of(request: &Request, world: &World) -> Self {
        let one_screen = world.stdout_terminal && world.stderr_terminal;
        Self { json: request.json, quiet: request.quiet, verbose: request.verbose, one_screen, report: None }
    }
}

/// A run has some dozens of descriptors open at once, and places those of the guest from 64 on.
const DESCRIPTORS: u64 = 192;

fn enough_descriptors() -> Result<(), Failure> {
    let may = sys::rlimit::open_files(DESCRIPTORS);
    if may >= DESCRIPTORS {
        sys::rlimit::make_room(DESCRIPTORS);
        return Ok(());
    }
    let fault = Fault {
        id: "run/few-descriptors",
        what: format!("only {may} files may be open at once"),
        place: "the caller's limits".to_owned(),
        why: format!("a run needs {DESCRIPTORS}; nothing was run"),
        fix: "raise the limit of open files (`ulimit -n`)".to_owned(),
    };
    Err(Failure::Faults { code: 126, faults: vec![fault] })
}

/// What fails when the program was let go is no refusal: those say that nothing was run.
fn not_refused(stop: Failure) -> Failure {
    match stop {
        Failure::Faults { code: _, faults } => Failure::Faults { code: 125, faults },
        other @ (Failure::Mistakes(_) | Failure::Refused(_)) => other,
    }
}

/// A program that inherited the real-time policy of our caller would escape `limits.cpus`, and keep us from ending it.
fn no_real_time_program() -> Result<(), Failure> {
    sys::scheduling::start_ordinary_children().map_err(|error| {
        let fault = Fault {
            id: "run/real-time",
            what: "the program would have the real-time scheduling policy of its caller".to_owned(),
            place: "the caller's scheduling policy".to_owned(),
            why: format!("no limit holds such a program, and it could not be reset: {error}; nothing was run"),
            fix: "start fumehood as an ordinary program (`chrt -o 0 fumehood run ...`)".to_owned(),
        };
        Failure::Faults { code: 126, faults: vec![fault] }
    })
}

fn through(mut request: Request, world: &World, voice: Voice, manner: &Manner) -> Result<i32, Failure> {
    enough_descriptors()?;
    no_real_time_program()?;
    let host = std::sync::Arc::new(backends::Capabilities::probe_with(world.user_bus()));
    let ahead = early::ahead(&host);
    let mut loaded = match load::policy(&request.layers, world) {
        Ok(loaded) => loaded,
        Err(stop) => return Err(record::refused(stop, world, None)),
    };
    if let Some(report) = &manner.report {
        report.judge(&loaded.policy)?;
    }
    let asked = std::mem::replace(&mut request.what, crate::cli::What::Nothing);
    let forced = match commands::judge(&mut loaded, asked) {
        Ok((what, forced)) => {
            request.what = what;
            forced
        }
        Err(stop) => return Err(record::refused(stop, world, None)),
    };
    if let Err(stop) = terminal::there(&loaded, &request, world) {
        return Err(record::refused(stop, world, None));
    }
    let early = early::begin(ahead, &loaded, &request, world, &host);
    let planned = match planning::choose(&loaded, &host) {
        Ok(planned) => planned,
        Err(stop) => return Err(record::refused(stop, world, early.map(early::Early::end))),
    };
    let (place, early) = early::or_only_its_place(early, world)?;
    let recorded = record::open(&planned, &request, place)?;
    let begun = begin::begin(&planned, (request, forced), world, &recorded, &host, early)
        .map_err(|stop| recorded.abort(stop, &planned))?;
    let mut stage = begun.start(&planned, &recorded, &host).map_err(|stop| recorded.abort(stop, &planned))?;
    recorded.started(&planned, stage.pid()).map_err(not_refused)?;
    let watched = stage.watch(&planned.plan.policy, &recorded, voice, manner);
    Ok(aftermath::report(stage, &watched, &planned, &recorded).deliver(&planned, voice, manner))
}
