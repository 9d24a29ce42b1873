//! The report of a run for people: how it ended first, then what it used, what was stopped, and what to do next.

use policy::report::{DetectedBy, EnforcerLine, OutcomeKind, Report, Usage, Violation};
use policy::value::Tier;
use policy::{Bytes, Plan, Strength};

use crate::ui::{Palette, Role, Table, bytes, count, hang, plan, seconds};
use sandbox::fault::show_text;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// `-q`: weakenings, and an end that the program did not choose.
    Quiet,
    /// How it ended, what it used, what was stopped, what changed.
    Normal,
    /// `-v`: also who held which clause.
    Verbose,
}

/// A report and what stands around it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The report.
    pub report: &'a Report,
    /// The plan, whose limits stand beside the usage.
    pub plan: Option<&'a Plan>,
    /// Bytes of output that were not kept.
    pub dropped: u64,
    /// How much to tell.
    pub detail: Detail,
    /// Colours.
    pub palette: Palette,
    /// Width.
    pub columns: usize,
}

/// The text of a report.
#[must_use]
pub fn report(view: &View<'_>) -> String {
    let Report { outcome, weakened, .. } = view.report;
    let own = matches!(outcome.kind, OutcomeKind::Exited | OutcomeKind::Signalled);
    // A weakening is the first line, whatever else is asked for.
    let mut out = plan::weakened(weakened, view.palette);
    if view.detail == Detail::Quiet {
        if !own {
            out.push_str(&first_line(view));
        }
        // A loss is no chatter.
        out.push_str(&cut(view));
        return out;
    }
    out.push_str(&first_line(view));
    out.push_str(&used(view));
    out.push_str(&stopped(view));
    out.push_str(&changed(view));
    if view.detail == Detail::Verbose {
        out.push_str(&enforcers(view));
    }
    out
}

fn first_line(view: &View<'_>) -> String {
    let Report { outcome, usage, tier, backend, run, .. } = view.report;
    let role = match (outcome.kind, outcome.code) {
        (OutcomeKind::Exited, Some(0)) => Role::Good,
        (OutcomeKind::Exited | OutcomeKind::Signalled, _) => Role::Weak,
        (OutcomeKind::Limit | OutcomeKind::Refused | OutcomeKind::Failed, _) => Role::Bad,
    };
    let label = match outcome.kind {
        OutcomeKind::Exited => "exited:",
        OutcomeKind::Signalled => "signalled:",
        OutcomeKind::Limit => "limit:",
        OutcomeKind::Refused => "refused:",
        OutcomeKind::Failed => "failed:",
    };
    let about = format!("({}, {tier} by {backend}, run {run})", seconds(usage.wall));
    format!(
        "{} {} {}\n",
        view.palette.paint(role, label),
        show_text(&outcome.message),
        view.palette.paint(Role::Aside, &show_text(&about))
    )
}

/// The most memory, beside its limit. A machine's is that of its emulator, and the limit the machine's own.
fn memory(view: &View<'_>, most: Option<u64>) -> String {
    let Some(most) = most.map(bytes) else { return "memory unseen".to_owned() };
    if view.report.tier == Tier::Vm.as_str() {
        return format!("memory {most} with the emulator's own");
    }
    match view.plan.and_then(|plan| plan.policy.limits.memory) {
        Some(limit) => format!("memory {most} of {}", bytes(limit.0)),
        None => format!("memory {most}"),
    }
}

/// One line of usage, each beside its limit.
fn used(view: &View<'_>) -> String {
    let Usage { wall, cpu_user, cpu_system, memory_peak, pids_peak, io_read: _, io_written: _, disk, output, net } =
        view.report.usage;
    let limits = view.plan.map(|p| &p.policy.limits);
    let time = |ms: policy::Millis| seconds(std::time::Duration::from_millis(ms.0).as_secs_f64());
    let size = |b: Bytes| bytes(b.0);
    let of = |text: String, limit: Option<String>| match limit {
        Some(limit) => format!("{text} of {limit}"),
        None => text,
    };
    let processes = if pids_peak == 0 {
        "processes counted inside alone".to_owned()
    } else if let Some(limit) = limits.and_then(|l| l.pids) {
        format!("{pids_peak} of {limit} processes")
    } else {
        count(pids_peak, "process", "processes")
    };
    let mut parts = vec![
        of(format!("time {}", seconds(wall)), limits.and_then(|l| l.wall).map(time)),
        of(format!("cpu {}", seconds(cpu_user + cpu_system)), limits.and_then(|l| l.cpu_time).map(time)),
        memory(view, memory_peak),
        processes,
    ];
    match disk {
        Some(0) => {}
        Some(disk) => parts.push(of(format!("disk {}", bytes(disk)), limits.and_then(|l| l.disk).map(size))),
        None => parts.push("disk not counted (files of the host)".to_owned()),
    }
    if output > 0 {
        parts.push(of(format!("output {}", bytes(output)), limits.and_then(|l| l.output).map(size)));
    }
    if let Some(net) = net.filter(|net| net.connections > 0) {
        let connections = count(net.connections, "connection", "connections");
        parts.push(format!("{connections}, {} sent, {} received", bytes(net.sent), bytes(net.received)));
    }
    for (name, times) in view.report.secrets.iter().filter(|(_, times)| **times > 0) {
        parts.push(format!("secret `{}` in {}", show_text(name), count(*times, "request", "requests")));
    }
    labelled(view, "used:", None, &parts.join(", ")) + &cut(view)
}

fn cut(view: &View<'_>) -> String {
    if view.dropped == 0 {
        return String::new();
    }
    let text = format!("{} of output were not kept: its limit is `limits.output`", bytes(view.dropped));
    labelled(view, "cut:", Some(Role::Weak), &text)
}

fn stopped(view: &View<'_>) -> String {
    let mut out = String::new();
    for Violation { id, clause: _, what, why, instead, count, seen, program } in &view.report.violations {
        let times = if *count > 1 { format!(" ({count} times)") } else { String::new() };
        let hint = match seen {
            DetectedBy::Kernel | DetectedBy::Broker => "",
            DetectedBy::Output => " (read from the program's output: a hint, not evidence)",
        };
        let by = program.as_ref().map_or_else(String::new, |program| format!(" by {}", show_text(program)));
        let text = format!("{}{by}{times}: {}{hint}", show_text(what), show_text(why));
        out.push_str(&labelled(view, "stopped:", Some(Role::Bad), &text));
        if !instead.is_empty() {
            out.push_str(&labelled(view, "instead:", None, &show_text(instead)));
        }
        if view.detail == Detail::Verbose {
            out.push_str(&labelled(view, "more:", None, &format!("fumehood explain {}", show_text(id))));
        }
    }
    out
}

fn changed(view: &View<'_>) -> String {
    let notes = view.report.workspace.notes.iter();
    let notes: String = notes.map(|note| labelled(view, "note:", Some(Role::Weak), &show_text(note))).collect();
    let changes = &view.report.workspace.counts;
    if changes.values().all(|n| *n == 0) {
        return notes;
    }
    let parts: Vec<_> = changes.iter().filter(|(_, n)| **n > 0).map(|(kind, n)| format!("{n} {kind}")).collect();
    let run = show_text(&view.report.run);
    let changed = format!("{} in the workspace; see `fumehood diff {run}`", parts.join(", "));
    labelled(view, "changed:", None, &changed) + &notes
}

fn enforcers(view: &View<'_>) -> String {
    let mut table = Table::new(&["clause", "held by", "strength", "overshoot"]);
    for EnforcerLine { clause, enforcer, strength, overshoot } in &view.report.enforcers {
        let strength = match strength {
            Strength::Kernel => "kernel",
            Strength::Supervisor => "supervisor",
            Strength::Broker => "broker",
        };
        let over = overshoot.as_deref().map_or_else(String::new, show_text);
        table.row([clause.path(), &super::plan::abbreviated(enforcer), strength, &over]);
    }
    if table.is_empty() { String::new() } else { table.render(view.palette, 2, view.columns) }
}

/// `  label text`, wrapped under the text.
fn labelled(view: &View<'_>, label: &str, role: Option<Role>, text: &str) -> String {
    const INDENT: usize = 11;
    let painted = view.palette.paint(role.unwrap_or(Role::Aside), label);
    let gap = " ".repeat((INDENT - 2).saturating_sub(label.len()));
    hang(&format!("  {painted}{gap}"), INDENT, text, view.columns)
}
