//! What came of a run, told: words or one report of JSON, and the exit code.

use policy::{Outcome, OutcomeKind};
use sandbox::Finished;
use serde_json::json;

use super::OutputOptions;
use super::report_file::UNWRITABLE;
use crate::learn::Proposal;
use crate::ui::{Console, Detail, FAILED, Failure, View, fault, report};

/// Tells how a run ended; the exit code.
pub(super) fn deliver(
    mut finished: Finished,
    proposal: Option<&Proposal>,
    console: Console,
    options: &OutputOptions,
) -> i32 {
    let mut words = String::new();
    let value = |finished: &Finished| {
        let mut value = finished.to_json();
        if let (Some(map), Some(proposal)) = (value.as_object_mut(), proposal) {
            map.insert("proposal".to_owned(), proposal.to_json());
        }
        value
    };
    if let Some(Err(stop)) = options.report.as_ref().map(|report| report.write(&value(&finished))) {
        finished.failed.extend(stop.into_faults());
    }
    if options.json {
        match console.json(&value(&finished)) {
            Ok(_) => return code(&finished),
            Err(stop) => finished.failed.extend(stop.into_faults()),
        }
    } else {
        words = told(&finished, console, options);
        words.extend(proposal.map(|proposal| proposal.text(console.err)));
    }
    words.extend(finished.failed.iter().map(|stop| fault(stop, console.err)));
    if !words.is_empty() {
        console.eprint(&(line_end(&finished, options).to_owned() + &words));
    }
    code(&finished)
}

/// What ends the program's last line, if our words would stand in it.
fn line_end(finished: &Finished, options: &OutputOptions) -> &'static str {
    let [out, err] = finished.last;
    let last = if options.one_screen { out.max(err) } else { err };
    if last.in_a_line() { "\n" } else { "" }
}

/// The program's own, or what became of it, unless something of ours failed.
fn code(finished: &Finished) -> i32 {
    if finished.failed.is_empty() { finished.report.outcome.exit_code() } else { 125 }
}

/// The report for people.
fn told(finished: &Finished, console: Console, options: &OutputOptions) -> String {
    let not_started = finished.not_started.as_ref().map(|why| fault(why, console.err)).unwrap_or_default();
    let detail = match (options.quiet, options.verbose) {
        (true, _) => Detail::Quiet,
        (false, false) => Detail::Normal,
        (false, true) => Detail::Verbose,
    };
    let view = View {
        report: &finished.report,
        plan: Some(&finished.plan),
        dropped: finished.dropped(),
        detail,
        palette: console.err,
        columns: console.columns,
    };
    not_started + &report(&view)
}

/// Why there is no run, in the shape that programs read of every run: `outcome` beside all reasons.
pub(super) fn as_report(stop: &Failure) -> serde_json::Value {
    let code = stop.code();
    let kind = if code == FAILED { OutcomeKind::Failed } else { OutcomeKind::Refused };
    let message = stop.sentence();
    let outcome = Outcome { kind, code: Some(i32::from(code)), signal: None, limit: None, message };
    let mut value = stop.json();
    if let Some(map) = value.as_object_mut() {
        map.insert("schema".to_owned(), json!(1));
        map.insert("outcome".to_owned(), json!(outcome));
    }
    value
}

/// Tells programs why there is no run. The exit code.
pub(super) fn no_report(stop: Failure, console: Console, options: &OutputOptions) -> Result<u8, Failure> {
    if !options.json && options.report.is_none() {
        return Err(stop);
    }
    let value = as_report(&stop);
    let said = matches!(&stop, Failure::Faults { faults, .. } if faults.iter().any(|fault| fault.id == UNWRITABLE));
    if let Some(report) = options.report.as_ref().filter(|_| !said)
        && let Err(also) = report.write(&value)
    {
        console.eprint(&also.text(console.err, console.columns));
    }
    if options.json && console.json(&value).is_ok() {
        return Ok(stop.code());
    }
    Err(stop)
}
