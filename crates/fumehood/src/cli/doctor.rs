//! `fumehood doctor`: what this host can hold, and what to do about the rest.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use policy::control::Emulator;
use policy::value::Tier;
use serde_json::{Value, json};

use super::args::{Positionals, closest, usage};
use super::flags::DOCTOR;
use super::spec::{Call, Spec};
use crate::doctor::{
    Finding, Health, Proof, Row, Severity, Share, StartRecord, TierHealth, default_tier, examine, keep_kvm,
};
use crate::environment::Environment;
use crate::run::trial::{Trials, longest, own_root};
use crate::ui::{Failure, Palette, Role, Table, count, hang};
use sandbox::Capabilities;
use sandbox::fault::{show_bytes, show_text};
use sandbox::state::State;

pub(super) const SPEC: Spec = Spec {
    path: &["doctor"],
    about: "Say what this host can hold on each tier, and the exact fix for the rest",
    usage: "[--tier TIER] [-v]",
    more: "A small sandbox is started on each tier that has a plan: what is said was tried. -v lists every clause.\n\
           Exit code 0, or 1 if the default tier, or that of --tier, is not to be had.",
    tables: &[DOCTOR],
    words: Positionals::Mixed(0),
    hidden: false,
    run: doctor,
};

fn doctor(call: &mut Call<'_>) -> Result<u8, Failure> {
    let only = call.parsed.value("tier").map(tier_of).transpose()?;
    if only == Some(Tier::Vm) {
        try_kvm(call.environment);
    }
    let trials = Trials::new(call.environment);
    let health = examine(
        &call.environment.state,
        call.environment.services(),
        only,
        Some(&|tier, backend| match tier {
            Tier::Vm => machine(backend, call.environment, &trials, only == Some(Tier::Vm)),
            Tier::Language | Tier::Process | Tier::Container | Tier::Gvisor => Some(prove((tier, backend), &trials)),
        }),
    );
    let code = u8::from(!health.has_this(only.unwrap_or_else(default_tier)));
    if call.json {
        let default = default_tier().as_str();
        call.console.json(&json!({ "schema": 1, "default": default, "ok": code == 0, "host": health }))?;
    } else {
        let verbose = call.parsed.has("verbose");
        call.console.data(text(&health, verbose, call.console.out, call.console.columns).as_bytes())?;
    }
    Ok(code)
}

/// A tier that some backend implements, by its name.
fn tier_of(typed: &OsStr) -> Result<Tier, Failure> {
    let mut known: Vec<Tier> = backends::ALL.iter().map(|backend| backend.tier()).collect();
    known.dedup();
    if let Some(tier) = known.iter().find(|tier| typed == tier.as_str()) {
        return Ok(*tier);
    }
    let typed = show_bytes(typed.as_bytes());
    let all = known.iter().map(|tier| format!("`{}`", tier.as_str())).collect::<Vec<_>>().join(", ");
    let fix = match closest(&typed, known.iter().map(|tier| tier.as_str())) {
        Some(best) => format!("did you mean `--tier {best}`?"),
        None => format!("write one of {all}"),
    };
    let why = format!("the tiers of this version are {all}");
    Err(Failure::own(usage("usage/bad-value", format!("`--tier {typed}`: no tier that could be looked at"), why, fix)))
}

/// Whether a machine starts here: what is known since this host is up, else tried where somebody asks for it, since it takes
/// seconds.
fn machine(backend: &str, environment: &Environment, trials: &Trials, asked: bool) -> Option<Proof> {
    let state = State::open(&environment.state).ok();
    let host = Capabilities::probe_with(environment.services());
    let emulator = Emulator::ALL.into_iter().find(|emulator| emulator.backend() == backend)?;
    let started = StartRecord::on(&host, emulator);
    if state.as_ref().zip(started.as_ref()).is_some_and(|(state, started)| started.is_known(state)) {
        let on = if host.kvm(emulator).is_ok() { "on KVM" } else { "on the software processor" };
        let how = format!("a machine was started {on} with this kernel and this emulator since this host is up");
        return Some(Proof { held: true, how });
    }
    let program = environment.broker.as_ref().filter(|_| asked)?;
    let proof = started_now(backend, program, environment, trials);
    if let Some((state, started)) = state.zip(started).filter(|_| proof.held) {
        // Only what is known: the next call starts one again.
        drop(started.keep(&state));
    }
    Some(proof)
}

/// Starts a machine in which this program of ours says its version.
fn started_now(backend: &str, program: &Path, environment: &Environment, trials: &Trials) -> Proof {
    match own_root(program, environment).and_then(|root| trials.machine(backend, &root, &[])) {
        Ok(Some(report)) => judge(&report, concat!("fumehood ", env!("CARGO_PKG_VERSION"), "\n")),
        Ok(None) => too_slow(Tier::Vm),
        Err(stop) => judge(&stop.json(), ""),
    }
}

/// Starts a machine by each emulator on KVM where there is one on which it has started none yet, and keeps how that went for all later
/// plans of this caller.
pub(super) fn try_kvm(environment: &Environment) {
    Emulator::ALL.into_iter().for_each(|emulator| try_kvm_by(emulator, environment));
}

fn try_kvm_by(emulator: Emulator, environment: &Environment) {
    let host = Capabilities::probe_with(environment.services());
    if host.kvm(emulator).is_ok() || host.kvm_to_try(emulator).is_err() {
        return;
    }
    let Some((state, program)) = State::open(&environment.state).ok().zip(environment.broker.as_ref()) else { return };
    let Proof { held, how } =
        started_now(emulator.backend(), program, environment, &Trials::on_kvm(emulator, environment));
    let Some(record) = host.kvm_record(emulator, (!held).then_some(how.as_str())) else { return };
    // What cannot be kept is not known: machines run on the software processor.
    let kept = keep_kvm(emulator, &record, &state).is_ok();
    let host = Capabilities::probe_with(environment.services());
    if let Some(started) = StartRecord::on(&host, emulator).filter(|_| kept && held) {
        drop(started.keep(&state));
    }
}

/// Starts a small sandbox by a backend under the default policy: its own record, and the shortest program that answers.
fn prove(on: (Tier, &str), trials: &Trials) -> Proof {
    match trials.run(on) {
        Ok(Some(report)) => judge(&report, "42\n"),
        Ok(None) => too_slow(on.0),
        Err(stop) => judge(&stop.json(), ""),
    }
}

fn too_slow(tier: Tier) -> Proof {
    Proof { held: false, how: format!("it did not end within {} s", longest(tier).as_secs()) }
}

/// What the report of the trial says: it ran, its posture was compared with its plan, and it printed what it should.
fn judge(report: &Value, printed: &str) -> Proof {
    let text = |pointer: &str| report.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let ran = text("/outcome/kind") == "exited" && report.pointer("/outcome/code") == Some(&json!(0));
    let held = ran && text("/stdout") == printed;
    let enforcers = report.pointer("/enforcers").and_then(Value::as_array).map_or(0, Vec::len);
    let how = if held {
        format!(
            "a sandbox was started: its posture was the plan's, {enforcers} enforcers were in force, and it ended as it should"
        )
    } else if let Some(error) = report.pointer("/errors/0").or_else(|| report.pointer("/refused/0")) {
        let part = |name: &str| error.get(name).and_then(Value::as_str).unwrap_or_default();
        format!("a sandbox did not start: {}: {}", part("what"), part("why"))
    } else if ran {
        "a sandbox started, and its output was not what it printed".to_owned()
    } else {
        format!("a sandbox did not end as it should: {}", text("/outcome/message"))
    };
    Proof { held, how }
}

/// Whose control groups are used, as it is shown.
const GROUPS: [(&str, &str); 3] = [
    ("own-group", "the caller's own"),
    ("delegated-group", "the caller's own, handed over by the service manager"),
    ("service-manager", "from the user's service manager"),
];

fn text(health: &Health, verbose: bool, palette: Palette, columns: usize) -> String {
    let Health { kernel, user, landlock, groups, tiers, findings } = health;
    let landlock = if *landlock == 0 { "none".to_owned() } else { format!("ABI {landlock}") };
    let groups = GROUPS.iter().find(|(name, _)| name == groups).map_or("none", |(_, shown)| *shown);
    let mut out =
        format!("Linux {}, user {user}, Landlock {landlock}, control groups: {groups}\n\n", show_text(kernel));
    for tier in tiers {
        out.push_str(&tier_text(tier, health.has(tier), verbose, palette, columns));
    }
    if findings.is_empty() {
        out.push_str("nothing is missing\n");
    }
    for Finding { id, severity, tiers: _, what, why, fix } in findings {
        let (role, word) = match severity {
            Severity::Blocks => (Role::Bad, "blocks:"),
            Severity::Limits => (Role::Weak, "limits:"),
            Severity::Note => (Role::Aside, "note:"),
        };
        out.push_str(&format!("{} {}  ({id})\n", palette.paint(role, word), show_text(what)));
        out.push_str(&labelled("why:", &show_text(why), palette, columns));
        out.push_str(&labelled("fix:", &show_text(fix), palette, columns));
    }
    out
}

fn tier_text(health: &TierHealth, has: bool, verbose: bool, palette: Palette, columns: usize) -> String {
    let TierHealth { tier, backend, refused, proof, domains, clauses } = health;
    let default = if *tier == default_tier() && *backend == "native" { " (default)" } else { "" };
    let (role, word) = if has { (Role::Good, "to be had") } else { (Role::Bad, "not to be had") };
    let mut out =
        format!("{}{default} by {backend}: {}\n", palette.paint(Role::Name, tier.as_str()), palette.paint(role, word));
    if let Some(proof) = proof {
        out.push_str(&labelled("tried:", &show_text(&proof.how), palette, columns));
    } else if *tier == Tier::Vm && refused.is_empty() {
        let why = "not tried, since a machine takes seconds to start: `fumehood doctor --tier vm` starts one";
        out.push_str(&labelled("tried:", why, palette, columns));
    }
    for reason in refused {
        let text = format!("{}: {}; {}", reason.clause, show_text(&reason.why), show_text(&reason.fix));
        out.push_str(&labelled("lacks:", &text, palette, columns));
    }
    out.push_str(&labelled("holds:", &holds(domains, verbose), palette, columns));
    if verbose {
        out.push_str(&clause_table(clauses).render(palette, 4, columns));
    }
    out.push('\n');
    out
}

/// `45 of 48 demands (38 by the kernel, 7 by watching): files 14 of 14, ...`
fn holds(domains: &[Share], verbose: bool) -> String {
    let sum = |part: fn(&Share) -> u32| domains.iter().map(part).sum::<u32>();
    let each = domains.iter().map(|share| format!("{} {} of {}", share.domain.as_str(), share.held(), share.all()));
    format!(
        "{} of {} ({} by the kernel, {} by watching): {}{}",
        sum(Share::held),
        count(u64::from(sum(Share::all)), "demand", "demands"),
        sum(|share| share.kernel),
        sum(|share| share.watching),
        each.collect::<Vec<_>>().join(", "),
        if verbose { "" } else { "; -v lists them" }
    )
}

fn clause_table(rows: &[Row]) -> Table {
    let mut table = Table::new(&["clause", "demand", "strength", "held by, or why not"]);
    for Row { clause, enforcer, strength, overshoot, why, example, id: _, fix: _ } in rows {
        let over = overshoot.as_ref().map_or_else(String::new, |over| format!(" ({})", show_text(over)));
        let (text, role) = match (enforcer, why) {
            (Some(by), _) => (format!("{}{over}", crate::ui::abbreviated(by)), None),
            (None, why) => (show_text(why.as_deref().unwrap_or_default()), Some(Role::Bad)),
        };
        let word = strength.map_or("refused", policy::Strength::as_str);
        let demand = if example.is_empty() { "default" } else { "example" };
        table.painted([(clause.path(), Some(Role::Name)), (demand, Some(Role::Aside)), (word, role), (&text, None)]);
    }
    table
}

/// `  label text`, wrapped under the text.
fn labelled(label: &str, text: &str, palette: Palette, columns: usize) -> String {
    const INDENT: usize = 9;
    let gap = " ".repeat((INDENT - 2).saturating_sub(label.len()));
    hang(&format!("  {}{gap}", palette.paint(Role::Aside, label)), INDENT, text, columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_run_that_ended_as_it_should_is_a_proof() {
        let good = json!({"outcome": {"kind": "exited", "code": 0}, "stdout": "42\n", "enforcers": [1, 2]});
        assert!(judge(&good, "42\n").held);
        for (report, how) in [
            (json!({"outcome": {"kind": "exited", "code": 0}, "stdout": ""}), "not what it printed"),
            (json!({"refused": [{"what": "container", "why": "no namespaces"}]}), "container: no namespaces"),
            (json!({"errors": [{"what": "the guest", "why": "it is gone"}]}), "did not start: the guest: it is gone"),
            (json!({"outcome": {"kind": "signalled", "message": "killed by 9"}}), "as it should: killed by 9"),
            (Value::Null, "as it should"),
        ] {
            let proof = judge(&report, "42\n");
            assert!(!proof.held && proof.how.contains(how), "{proof:?}");
        }
    }
}
