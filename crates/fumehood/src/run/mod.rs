//! A run of the command line: its policy, streams, terminal and signals in, words or one report out. The run itself is
//! `sandbox`'s; servers call it by `in_process`.

mod deliver;
pub(crate) mod in_process;
mod report_file;
mod request;
pub(crate) mod terminal;
pub(crate) mod trial;

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use sandbox::fault::Fault;
use sandbox::run::{Earlier, Tools};
use sandbox::state::{RunId, State};
use sandbox::{
    Asker, Capabilities, Event, Finished, Handle, Options, Planned, PolicyLayer, Sink, Stdin, Stdio, Visitor,
};
use sys::shared::SharedFd;
use sys::signals::{STOPPING, Signals, WINDOW_CHANGED, forwarded};

use crate::environment::Environment;
use crate::load;
use crate::ui::{Console, FAILED, Failure};
use report_file::ReportFile;
pub use request::Request;
use terminal::RawMode;

/// Runs a request; the exit code.
///
/// # Errors
/// Diagnostics of the policy, a refusal, or our own failure; nothing was run then, or nothing runs any more.
pub fn run(request: Request, environment: &Environment, console: Console) -> Result<u8, Failure> {
    let mut options = OutputOptions::of(&request, environment);
    let ended =
        match request.report.as_deref().map(|path| ReportFile::open(path, environment.cwd.as_deref())).transpose() {
            Ok(report) => {
                options.report = report;
                through(request, environment, console, &options)
            }
            Err(stop) => Err(stop),
        };
    match ended {
        Ok(code) => Ok(u8::try_from(code).unwrap_or(FAILED)),
        Err(stop) => deliver::no_report(stop, console, &options),
    }
}

/// How a run speaks.
#[derive(Debug)]
struct OutputOptions {
    json: bool,
    quiet: bool,
    verbose: bool,
    /// The program's output and our own words are shown on one screen.
    one_screen: bool,
    report: Option<ReportFile>,
}

impl OutputOptions {
    fn of(request: &Request, environment: &Environment) -> Self {
        let one_screen = environment.stdout_terminal && environment.stderr_terminal;
        Self { json: request.json, quiet: request.quiet, verbose: request.verbose, one_screen, report: None }
    }
}

/// Tells why there is no result as a run tells why there is none, for commands that judge or repeat runs. The exit code.
///
/// # Errors
/// What it was, where nobody was told.
pub(crate) fn refused_as_run(stop: Failure, console: Console, json: bool) -> Result<u8, Failure> {
    let options = OutputOptions { json, quiet: false, verbose: false, one_screen: false, report: None };
    deliver::no_report(stop, console, &options)
}

fn through(
    request: Request,
    environment: &Environment,
    console: Console,
    options: &OutputOptions,
) -> Result<i32, Failure> {
    let host = Capabilities::probe_with(environment.services());
    let loaded =
        load::policy(&request.layers, environment).map_err(|stop| sandbox::run::refused(stop, None, environment))?;
    let audit = loaded.policy.audit.clone();
    let recorded = |stop| sandbox::run::refused(stop, Some(&audit), environment);
    if let Some(report) = &options.report {
        report.judge(&loaded.policy)?;
    }
    terminal::there(&loaded, &request, environment).map_err(recorded)?;
    let in_vain = terminal::asks_in_vain(&request, &loaded, environment);
    let (what, learner) = (request.what, request.learner);
    let planned = sandbox::plan(loaded, what, &host).map_err(recorded)?;
    let earlier = request.on.map(|run| earlier(&run, environment)).transpose().map_err(recorded)?;
    let asker = match &learner {
        Some(learner) => Arc::clone(learner) as Arc<dyn Asker>,
        None => crate::approvals::asker(environment),
    };
    let tools = (request.tools)(&planned.plan, &request.layers, environment)?;
    let run_options = RunOptions {
        interactive: request.interactive,
        keep: options.json,
        silent: options.quiet || options.json,
        asked: request.layers,
        asker,
        earlier,
        tools,
    };
    let mut finished = to_end(planned, run_options, (environment, &host))?;
    let proposal = learner.and_then(|learner| match learner.end(&mut finished, environment) {
        Ok(proposal) => Some(proposal),
        Err(stop) => {
            finished.failed.extend(stop.into_faults());
            None
        }
    });
    let in_silence = in_vain && finished.report.usage.output == 0 && !options.json && !options.quiet;
    let code = deliver::deliver(finished, proposal.as_ref(), console, options);
    if in_silence {
        let label = console.err.paint(crate::ui::Role::Weak, "note:");
        console
            .eprint(&format!("  {label}    it was given no input: `-t` gives it your terminal, `-i` what you type\n"));
    }
    Ok(code)
}

/// How a run of the command line goes on.
pub(crate) struct RunOptions {
    /// stdin may be the caller's terminal.
    pub(crate) interactive: bool,
    /// The outputs are kept for a report, and not handed on.
    pub(crate) keep: bool,
    /// Nothing is said meanwhile.
    pub(crate) silent: bool,
    /// The documents and flags that made the policy.
    pub(crate) asked: Vec<PolicyLayer>,
    /// Who gets questions answered.
    pub(crate) asker: Arc<dyn Asker>,
    /// From whose changes it goes on.
    pub(crate) earlier: Option<Earlier>,
    /// Who makes calls of tools.
    pub(crate) tools: Option<Arc<dyn Tools>>,
}

/// Runs what was planned to its end, with our own streams, terminal and signals.
pub(crate) fn to_end(
    planned: Planned,
    run_options: RunOptions,
    (environment, host): (&Environment, &Capabilities),
) -> Result<Finished, Failure> {
    let RunOptions { interactive, keep, silent, asked, asker, earlier, tools } = run_options;
    // Before the guest is there: no signal of the caller may fall between.
    let signals = Signals::take(&[&forwarded()[..], &STOPPING].concat()).map_err(own_failure)?;
    let stdio = match planned.plan.policy.process.tty {
        true => terminal::screen().map(Stdio::Terminal).map_err(own_failure)?,
        false => streams(interactive || !environment.stdin_terminal, keep),
    };
    let raw = RawMode::of(&stdio).map_err(own_failure)?;
    let script = tools.clone();
    let mut how = Options { asker: Some(asker), earlier, tools, asked: Some(asked), ..Options::new(stdio) };
    if !silent {
        let err = own(std::io::stderr()).map(SharedFd::output);
        how.events = Box::new(move |Event::Warning(words)| {
            // Who reads nothing now finds them in the report; nobody is waited for while a program runs.
            let words = format!("fumehood: usage: {words}\n");
            if err.as_ref().is_ok_and(|err| err.write(words.as_bytes()).is_err()) {}
        });
    }
    #[cfg(feature = "mutation")]
    crate::mutation::apply(&planned.plan, &mut how);
    let mut interrupts = 0;
    let mut ready = |sandbox: &Handle| forward(&signals, &mut interrupts, sandbox);
    let visitor = Visitor { fd: signals.as_fd(), ready: &mut ready };
    let finished = sandbox::run_here(planned, environment, host, how, visitor);
    if let Some(script) = script {
        script.end();
    }
    let finished = finished?;
    drop(raw);
    // What came while the end was recorded was for a program that has ended: the report is given all the same.
    while signals.next().is_some() {}
    // A signal that ends us from here on finds nothing left.
    drop(signals);
    Ok(finished)
}

/// The changes that a run goes on from.
pub(crate) fn earlier(run: &RunId, environment: &Environment) -> Result<Earlier, sandbox::Error> {
    let state = State::open(&environment.state)?;
    Ok(Earlier::load(&state, run)?)
}

/// Passes signals on. A third one is for a program that ignores them: everything is killed.
fn forward(signals: &Signals, interrupts: &mut u32, sandbox: &Handle) {
    while let Some(number) = signals.next() {
        if STOPPING.contains(&number) {
            continue;
        }
        if number == WINDOW_CHANGED {
            if let Some((rows, columns)) = terminal::size() {
                sandbox.resize(rows, columns);
            }
            continue;
        }
        *interrupts = interrupts.saturating_add(1);
        match u8::try_from(number) {
            Ok(number) if *interrupts < 3 => sandbox.signal(number),
            Ok(_) | Err(_) => sandbox.kill(),
        }
    }
}

/// Our own three streams, or what is kept of them for a report.
pub(crate) fn streams(input: bool, keep: bool) -> Stdio {
    // A caller without stdin is a caller with nothing to say. The null device stays one: programs look whether it is a pipe.
    let from = || match own(std::io::stdin()) {
        Ok(fd) if is_null(&fd) => Stdin::Nothing,
        Ok(fd) => Stdin::Descriptor(fd),
        Err(_none) => Stdin::Bytes(Vec::new()),
    };
    let to = |fd: std::io::Result<OwnedFd>| match fd {
        Ok(fd) if !keep => Sink::Descriptor(fd),
        Ok(_) | Err(_) => Sink::Keep,
    };
    Stdio::Streams {
        stdin: if input { from() } else { Stdin::Nothing },
        stdout: to(own(std::io::stdout())),
        stderr: to(own(std::io::stderr())),
    }
}

fn is_null(fd: &OwnedFd) -> bool {
    let null = rustix::fs::stat("/dev/null").map(|null| null.st_rdev);
    rustix::fs::fstat(fd).is_ok_and(|found| {
        rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::CharacterDevice
            && null == Ok(found.st_rdev)
    })
}

/// A descriptor of ours, duplicated so that it can be owned.
fn own(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}

fn own_failure(error: impl std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id: "run/descriptors",
        what: error.to_string(),
        place: "before the program was started".to_owned(),
        why: "nothing was run".to_owned(),
        fix: "raise the limit of open files (ulimit -n)".to_owned(),
    })
}
