//! After the end: usage, violations, what changed, the report, and the removal of all that the run made.

use std::path::Path;

use backends::native::Running;
use guest::frames::ExecFailure;
use policy::report::{Digest, EnforcerLine, Named, Warning, WorkspaceReport};
use policy::value::Root;
use policy::{ClauseId, Outcome, OutcomeKind, Policy, Report, Usage};
use serde_json::{Value, json};

use super::Manner;
use super::begin::Stage;
use super::outcome;
use super::planning::Planned;
use super::record::Recorded;
use super::report_file::UNWRITABLE;
use super::streams::{Kept, Last, Stream};
use super::violations::{self, Counters};
use super::watch::Watched;
use crate::fault::{Fault, show_text};
use crate::ui::{Detail, Failure, View, Voice, report as report_text};

/// A report and the output that was kept for it.
pub(super) struct Finished {
    report: Report,
    stdout: Kept,
    stderr: Kept,
    /// How what the program printed on stdout (or on its terminal) and on stderr ends.
    last: [Last; 2],
    exec_fix: Option<Fault>,
    /// What failed when the program had run: told beside the report, of which it takes nothing away.
    failed: Vec<Failure>,
}

/// What came of a step after the end; what failed is kept for the report.
fn told<T: Default>(step: Result<T, Failure>, failed: &mut Vec<Failure>) -> T {
    step.unwrap_or_else(|stop| {
        failed.push(stop);
        T::default()
    })
}

/// Ends a run: everything that it made is gone when this returns.
pub(super) fn report(stage: Stage, watched: &Watched, planned: &Planned, recorded: &Recorded) -> Finished {
    let mut failed = Vec::new();
    let plan = &planned.plan;
    let wall = stage.started.elapsed().as_secs_f64();
    let Stage { running, carried, mut home, layer, protected, program, .. } = stage;
    // What is shown of the host can be read back only when nobody writes to it any more; else the end may take its time
    // while the report is made.
    let mut running = Some(running);
    running.iter_mut().for_each(Running::begin_end);
    if layer.is_some() || protected.is_some() {
        running.take().into_iter().for_each(Running::end);
    }
    let disk = layer.as_ref().map_or(0, super::workspace::Layer::used);
    let mut workspace = match layer {
        Some(layer) => told(layer.read_back(recorded, &plan.policy), &mut failed),
        None => WorkspaceReport::default(),
    };
    workspace.notes = home.take_notes();
    let slipped = told(super::guard::check(protected, &mut home, recorded), &mut failed);
    let produced = carried.budget.produced();
    let counters = Counters {
        pids_refused: watched.sample.pids_refused,
        oom_kills: watched.sample.oom_kills,
        sigsys: watched.facts.signal == Some(31),
        sigxfsz: watched.facts.signal == Some(25),
        full: watched.full.clone(),
    };
    let mut streams = carried.streams.into_iter();
    let (out, mut err) = (streams.next(), streams.next());
    let hints = err.as_mut().map(|stream| stream.hints().to_vec()).unwrap_or_default();
    let lost = |(name, stream): (_, &Option<Stream>)| Some(not_handed_on(name, stream.as_ref()?.lost()?));
    failed.extend([("stdout", &out), ("stderr", &err)].into_iter().find_map(lost));
    let shown = carried.terminal.as_ref().map(super::terminal::Terminal::last);
    let last = [&out, &err].map(|stream| stream.as_ref().map(Stream::last).unwrap_or_default());
    let last = [shown.unwrap_or(last[0]), last[1]];
    let stdout = out.map(super::streams::Stream::into_kept).unwrap_or_default();
    let stderr = err.map(super::streams::Stream::into_kept).unwrap_or_default();
    let mut list = violations::from_kernel(&counters, &plan.policy);
    if let Some((limit, message)) = &watched.facts.ended_for
        && let Some(end) = violations::from_end(*limit, message)
        && !list.iter().any(|known| known.clause == end.clause)
    {
        list.push(end);
    }
    let known: Vec<_> = list.iter().map(|violation| violation.clause).collect();
    // What the kernel shows needs no hint.
    let hints = violations::from_output(&hints, &plan.policy).into_iter().filter(|hint| !known.contains(&hint.clause));
    list.extend(hints);
    list.extend(slipped);
    let (outcome, exec_fix) = end_of(watched, &program, &plan.policy);
    let mut report = Report {
        schema: 1,
        run: recorded.id.to_string(),
        policy: Named { name: plan.policy.name.clone(), digest: plan.policy_digest().to_owned() },
        plan: Digest { digest: plan.digest().to_owned() },
        tier: plan.tier.word().to_owned(),
        backend: plan.backend.to_owned(),
        outcome,
        usage: usage(watched, wall, disk, produced),
        enforcers: plan.entries.iter().map(line).collect(),
        weakened: plan.weakened.clone(),
        warnings: watched.warnings.iter().map(|what| warning(what)).collect(),
        violations: list,
        workspace,
        audit: policy::report::AuditPointer::default(),
    };
    report.audit = told(recorded.ended(&report), &mut failed);
    running.into_iter().for_each(Running::end);
    drop(home);
    Finished { report, stdout, stderr, last, exec_fix, failed }
}

fn line(entry: &policy::Entry) -> EnforcerLine {
    EnforcerLine {
        clause: entry.clause,
        enforcer: entry.enforcer.clone(),
        strength: entry.strength,
        overshoot: entry.overshoot.clone(),
    }
}

fn warning(what: &str) -> Warning {
    Warning { clause: ClauseId::LimitsWarn, what: what.to_owned() }
}

#[expect(clippy::cast_precision_loss, reason = "microseconds as seconds: 2^53 of them are 285 years")]
fn usage(watched: &Watched, wall: f64, disk: u64, output: u64) -> Usage {
    let sample = &watched.sample;
    let (user, system, resident) = watched.reaped;
    let seconds = |micros: u64| micros as f64 / 1e6;
    Usage {
        wall,
        cpu_user: seconds(sample.user_us.max(user)),
        cpu_system: seconds(sample.system_us.max(system)),
        memory_peak: if sample.memory_peak > 0 { sample.memory_peak } else { resident },
        pids_peak: sample.pids_peak.max(1),
        io_read: sample.io_read,
        io_written: sample.io_written,
        disk,
        output,
    }
}

fn not_handed_on(stream: &str, errno: rustix::io::Errno) -> Failure {
    Failure::own(Fault {
        id: "out/unwritable",
        what: format!("what the program wrote to {stream} could not all be handed on"),
        place: stream.to_owned(),
        why: errno.to_string().to_lowercase(),
        fix: "make room, or send it elsewhere".to_owned(),
    })
}

/// Whether a program's name is that of a folder of the host, as it is shown inside.
fn is_folder(program: &str, policy: &Policy) -> bool {
    let (root, at) = (policy.workspace.path.as_deref(), policy.workspace.at.as_deref());
    let name = Path::new(program);
    let below = match (root, at) {
        (Some(root), Some(at)) => name.strip_prefix(at).ok().map(|rest| root.join(rest)),
        (_, _) => None,
    };
    // What is not absolute is seen from the workspace.
    below.or_else(|| root.map(|root| root.join(name))).unwrap_or_else(|| name.to_owned()).is_dir()
}

/// Exit code, what is wrong, and what to do.
fn not_executed(which: ExecFailure, program: &str, policy: &Policy) -> (i32, &'static str, String) {
    let (code, what, fix) = match which {
        ExecFailure::NotFound => return (127, "the program is not there inside", in_root("name a program", policy)),
        ExecFailure::NoInterpreter => {
            let what = "its interpreter (`#!` line or ELF loader) is not there inside";
            return (127, what, in_root("install it", policy));
        }
        ExecFailure::NotExecutable if is_folder(program, policy) => {
            (126, "it is a directory", "name a program in it; to look around, `fumehood shell`")
        }
        ExecFailure::NotExecutable => {
            (126, "it is there, but may not be executed", "chmod +x it, or see `fs.noexec` and `fs.exec` of the policy")
        }
        ExecFailure::Cwd => {
            (125, "the working directory cannot be entered", "check the owner and mode of the workspace")
        }
        ExecFailure::Resources => (
            125,
            "arguments and environment are too large, or memory is too small",
            "pass less, or raise `limits.memory`",
        ),
    };
    (code, what, fix.to_owned())
}

/// What to do about something that is not in the root tree of the policy.
fn in_root(what: &str, policy: &Policy) -> String {
    match &policy.fs.root {
        Root::Host => format!("{what} below /usr, or grant its folder with `--read`"),
        Root::Dir(folder) => {
            format!("{what} below {}, which is the root here, or grant its folder with `--read`", folder.display())
        }
        Root::Empty | Root::Image(_) => {
            "this root is empty: grant the program with its libraries and their loader (`--read /usr --read /lib --read \
             /lib64`), or use `fs.root = \"host\"`"
                .to_owned()
        }
    }
}

/// The outcome; a program that could not be started is told apart by its message and its fault.
fn end_of(watched: &Watched, program: &str, policy: &Policy) -> (Outcome, Option<Fault>) {
    if let Some((errno, which)) = watched.exec {
        let (code, what, fix) = not_executed(which, program, policy);
        let why = std::io::Error::from_raw_os_error(errno).to_string().to_lowercase();
        let kind = if code == 125 { OutcomeKind::Failed } else { OutcomeKind::Refused };
        let fault = Fault {
            id: "run/not-started",
            what: format!("`{program}`: {what}"),
            place: "the program".to_owned(),
            why,
            fix,
        };
        let message = format!("nothing was run: `{program}`: {what}");
        let outcome = Outcome { kind, code: Some(code), signal: None, limit: None, message };
        return (outcome, Some(fault));
    }
    if let Some(failed) = &watched.failed {
        let outcome = Outcome {
            kind: OutcomeKind::Failed,
            code: Some(125),
            signal: None,
            limit: None,
            message: show_text(failed),
        };
        return (outcome, None);
    }
    (outcome::judge(&watched.facts), None)
}

impl Finished {
    /// Tells the report; the exit code.
    pub(super) fn deliver(mut self, planned: &Planned, voice: Voice, manner: &Manner) -> i32 {
        let mut words = String::new();
        if let Some(Err(stop)) = manner.report.as_ref().map(|report| report.write(&self.json())) {
            self.failed.push(stop);
        }
        if manner.json {
            match voice.json(&self.json()) {
                Ok(_) => return self.code(),
                Err(stop) => self.failed.push(stop),
            }
        } else {
            words = self.words(planned, voice, manner);
        }
        words.extend(self.failed.iter().map(|stop| stop.text(voice.err, voice.columns)));
        if !words.is_empty() {
            voice.say(&(self.line_end(manner).to_owned() + &words));
        }
        self.code()
    }

    /// What ends the program's last line, if our words would stand in it.
    fn line_end(&self, manner: &Manner) -> &'static str {
        let [out, err] = self.last;
        let last = if manner.one_screen { out.max(err) } else { err };
        if last.in_a_line() { "\n" } else { "" }
    }

    /// The program's own, or what became of it, unless something of ours failed.
    fn code(&self) -> i32 {
        if self.failed.is_empty() { self.report.outcome.exit_code() } else { 125 }
    }

    fn dropped(&self) -> u64 {
        self.stdout.dropped.saturating_add(self.stderr.dropped)
    }

    /// The report for people.
    fn words(&self, planned: &Planned, voice: Voice, manner: &Manner) -> String {
        let fault = self.exec_fix.as_ref().map(|fault| crate::ui::fault(fault, voice.err)).unwrap_or_default();
        let detail = match (manner.quiet, manner.verbose) {
            (true, _) => Detail::Quiet,
            (false, false) => Detail::Normal,
            (false, true) => Detail::Verbose,
        };
        let view = View {
            report: &self.report,
            plan: Some(&planned.plan),
            dropped: self.dropped(),
            detail,
            palette: voice.err,
            columns: voice.columns,
        };
        fault + &report_text(&view)
    }

    fn json(&self) -> Value {
        let dropped = self.dropped();
        let mut value = json!(self.report);
        if let Some(map) = value.as_object_mut() {
            for (name, kept) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
                match std::str::from_utf8(&kept.bytes) {
                    Ok(text) => map.insert(name.to_owned(), text.into()),
                    Err(_) => map.insert(format!("{name}_base64"), super::base64::encode(&kept.bytes).into()),
                };
                if let Some(at) = kept.cut_at {
                    map.insert(format!("{name}_cut_at"), at.into());
                }
            }
            map.insert("cut".to_owned(), (dropped > 0).into());
            map.insert("dropped".to_owned(), dropped.into());
            if !self.failed.is_empty() {
                let faults = |stop: &Failure| stop.json().get("errors").and_then(Value::as_array).cloned();
                map.insert("errors".to_owned(), self.failed.iter().filter_map(faults).flatten().collect());
            }
        }
        value
    }
}

/// Tells programs why there is no run in the shape that they read of every run: `outcome` beside all reasons. The exit code.
pub(super) fn no_report(stop: Failure, voice: Voice, manner: &Manner) -> Result<u8, Failure> {
    if !manner.json && manner.report.is_none() {
        return Err(stop);
    }
    let code = stop.code();
    let kind = if code == 125 { OutcomeKind::Failed } else { OutcomeKind::Refused };
    let message = stop.sentence();
    let outcome = Outcome { kind, code: Some(i32::from(code)), signal: None, limit: None, message };
    let mut value = stop.json();
    if let Some(map) = value.as_object_mut() {
        map.insert("schema".to_owned(), json!(1));
        map.insert("outcome".to_owned(), json!(outcome));
    }
    let said = matches!(&stop, Failure::Faults { faults, .. } if faults.iter().any(|fault| fault.id == UNWRITABLE));
    if let Some(report) = manner.report.as_ref().filter(|_| !said)
        && let Err(also) = report.write(&value)
    {
        voice.say(&also.text(voice.err, voice.columns));
    }
    if manner.json && voice.json(&value).is_ok() {
        return Ok(code);
    }
    Err(stop)
}
