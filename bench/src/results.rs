//! The tables: the bars beside what was found, then everything.

use std::fmt::Write as _;

use crate::contestants::Contestant;
use crate::machine;
use crate::numbers::{Rounds, median, quantile};

/// All series of one benchmark run.
pub struct Measured {
    /// `/bin/true` after a rest.
    pub lone: Rounds,
    /// `/bin/true` right after another.
    pub back: Rounds,
    /// Python after a rest.
    pub python: Rounds,
    /// Milliseconds of processor time of `/bin/true`, by control group.
    pub processor: Rounds,
    /// Runs a second, one worker.
    pub one: Rounds,
    /// Runs a second, two workers.
    pub two: Rounds,
    /// Nanoseconds for one operation inside, by kind of work.
    pub inside: Vec<(&'static str, Rounds)>,
    /// KiB beside the program.
    pub memory: Rounds,
    /// Of it what no file holds.
    pub own_memory: Rounds,
}

/// What stands around the numbers.
pub struct Told {
    /// What the probe saw, by contestant.
    pub seen: Vec<(String, String)>,
    /// Who did not take part, and why.
    pub absent: Vec<(String, String)>,
    /// Bytes of the product, and of the sandbox alone.
    pub sizes: [Option<u64>; 2],
    /// Load average at the start.
    pub before: String,
    /// Load average at the end.
    pub after: String,
    /// Few rounds, for development.
    pub quick: bool,
}

/// Which way is better, and the value that the bar asks for.
#[derive(Clone, Copy)]
enum Bar {
    AtMost(f64),
    AtLeast(f64),
}

impl Bar {
    fn held(self, value: f64) -> bool {
        match self {
            Bar::AtMost(most) => value <= most,
            Bar::AtLeast(least) => value >= least,
        }
    }

    fn shown(self) -> String {
        match self {
            Bar::AtMost(most) => format!("<= {most}"),
            Bar::AtLeast(least) => format!(">= {least}"),
        }
    }
}

struct Row {
    what: &'static str,
    bar: Bar,
    /// What we would like to reach.
    goal: Option<Bar>,
    value: Option<f64>,
    /// The ratio of tenth percentiles, where there is one.
    best: Option<f64>,
}

fn rows(measured: &Measured, sizes: [Option<u64>; 2]) -> Vec<Row> {
    use Bar::{AtLeast, AtMost};
    let row = |what, bar, goal, rounds: &Rounds, id, to| Row {
        what,
        bar,
        goal,
        value: rounds.ratio(id, to),
        best: rounds.best_ratio(id, to),
    };
    let (ours, process, bwrap) = ("fumehood", "fumehood-process", "bubblewrap");
    let Measured { lone, processor, python, two, .. } = measured;
    let mut rows = vec![
        row("processor time, container tier, to bubblewrap", AtMost(1.35), Some(AtMost(1.2)), processor, ours, bwrap),
        row("processor time, process tier, to bubblewrap", AtMost(0.9), Some(AtMost(0.7)), processor, process, bwrap),
        row("container tier, true, lone, to bubblewrap", AtMost(1.3), None, lone, ours, bwrap),
        row("container tier, true, lone, to crun", AtMost(0.35), None, lone, ours, "crun"),
        row("container tier, python, lone, to bubblewrap", AtMost(1.15), None, python, ours, bwrap),
        row("2 workers, runs a second, to bubblewrap", AtLeast(0.85), None, two, ours, bwrap),
    ];
    rows.push(Row {
        what: "memory beside the program, MiB, container tier",
        bar: AtMost(3.0),
        goal: None,
        value: median(measured.memory.of(ours)).map(|kib| kib / 1024.0),
        best: None,
    });
    let whole = [("binary, MiB", 14.0), ("sandbox alone, MiB", 5.0)];
    rows.extend(whole.into_iter().zip(sizes).map(|((what, most), size)| Row {
        what,
        bar: AtMost(most),
        goal: None,
        value: size.map(|bytes| bytes as f64 / f64::from(1 << 20)),
        best: None,
    }));
    rows
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
}

fn verdict(row: &Row) -> &'static str {
    match row.value {
        None => "not measured",
        Some(value) if row.goal.is_some_and(|goal| goal.held(value)) => "goal met",
        Some(value) if row.bar.held(value) => "met",
        Some(_) => "missed",
    }
}

/// The whole document.
pub fn text(present: &[Contestant], measured: &Measured, told: &Told) -> String {
    let mut out = String::from("# Results\n\n");
    if told.quick {
        out.push_str("**A quick run for development: too few rounds to be quoted.**\n\n");
    }
    let _ = writeln!(
        out,
        "Written by `just bench`. {}; load average {} before, {} after. Whole processes by `posix_spawn`, from start to reaped; every contestant once a round, \
         order rotated, ratios within a round. *med* is the median of those ratios, *p10* the ratio of the tenth percentiles.\n",
        machine::described(),
        told.before,
        told.after
    );
    out.push_str("## Bars\n\nRatios to peers of the same round. No control is left out to reach a number.\n\n");
    out.push_str("| what | bar | goal | med | p10 | verdict |\n| --- | --- | --- | --- | --- | --- |\n");
    for row in rows(measured, told.sizes) {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} |",
            row.what,
            row.bar.shown(),
            row.goal.map_or("-".to_owned(), Bar::shown),
            cell(row.value, 2),
            cell(row.best, 2),
            verdict(&row)
        );
    }
    seen(&mut out, told);
    for (title, rounds) in [
        ("/bin/true, lone starts (100 ms of rest before each)", &measured.lone),
        ("/bin/true, back to back", &measured.back),
        ("python3 -c 'print(1)', lone starts", &measured.python),
        ("/bin/true, processor time of a run (all that it starts, by control group)", &measured.processor),
    ] {
        starts(&mut out, title, present, rounds);
    }
    throughput(&mut out, present, measured);
    inside(&mut out, present, measured);
    memory(&mut out, present, measured);
    out
}

fn seen(out: &mut String, told: &Told) {
    out.push_str("\n## Who took part, and what a program inside sees\n\nA file that was not granted, an IP socket, the kernel's word about seccomp (2 = filter) and no-new-privileges; `?` = no /proc inside. \
                  Peers are asked for no network and a read-only host; bubblewrap and the OCI runtimes get no seccomp filter, bubblewrap has no limits.\n\n");
    for (id, sight) in &told.seen {
        let _ = writeln!(out, "- {id}: {sight}");
    }
    for (id, why) in &told.absent {
        let _ = writeln!(out, "- {id}: took no part: {why}");
    }
}

fn starts(out: &mut String, title: &str, present: &[Contestant], rounds: &Rounds) {
    let _ = writeln!(
        out,
        "\n## {title}\n\n| | p10 ms | med ms | x plain p10 | x plain med | to bubblewrap med | failed |\n| --- | --- | --- | --- | --- | --- | --- |"
    );
    for contestant in present.iter().filter(|contestant| !rounds.of(contestant.id).is_empty()) {
        let id = contestant.id;
        let _ = writeln!(
            out,
            "| {id} | {} | {} | {} | {} | {} | {} of {} |",
            cell(quantile(rounds.of(id), 0.1), 2),
            cell(median(rounds.of(id)), 2),
            cell(rounds.best_ratio(id, "plain"), 2),
            cell(rounds.ratio(id, "plain"), 2),
            cell(rounds.ratio(id, "bubblewrap"), 2),
            rounds.failures(id),
            rounds.of(id).len()
        );
    }
}

fn throughput(out: &mut String, present: &[Contestant], measured: &Measured) {
    out.push_str("\n## Runs of /bin/true a second\n\n| | 1 worker | 2 workers | 2 workers to bubblewrap |\n| --- | --- | --- | --- |\n");
    for contestant in present.iter().filter(|contestant| !measured.two.of(contestant.id).is_empty()) {
        let id = contestant.id;
        let _ = writeln!(
            out,
            "| {id} | {} | {} | {} |",
            cell(median(measured.one.of(id)), 0),
            cell(median(measured.two.of(id)), 0),
            cell(measured.two.ratio(id, "bubblewrap"), 2)
        );
    }
}

fn inside(out: &mut String, present: &[Contestant], measured: &Measured) {
    out.push_str("\n## Work inside, ratio to plain (med / p10), nanoseconds of plain\n\nTimed by the program's own clock; files on a file system in memory everywhere.\n\n|");
    for (word, _) in &measured.inside {
        let _ = write!(out, " | {word}");
    }
    out.push_str(" |\n| ---");
    out.push_str(&" | ---".repeat(measured.inside.len()));
    out.push_str(" |\n");
    for contestant in present {
        let _ = write!(out, "| {}", contestant.id);
        for (_, rounds) in &measured.inside {
            if contestant.id == "plain" {
                let _ = write!(out, " | {} ns", cell(median(rounds.of("plain")), 0));
            } else {
                let _ = write!(
                    out,
                    " | {} / {}",
                    cell(rounds.ratio(contestant.id, "plain"), 2),
                    cell(rounds.best_ratio(contestant.id, "plain"), 2)
                );
            }
        }
        out.push_str(" |\n");
    }
}

fn memory(out: &mut String, present: &[Contestant], measured: &Measured) {
    out.push_str(
        "\n## Memory beside the program, KiB (`sleep` inside)\n\nThe proportional share counts pages of the contestant's own binary, which all its runs have together and the kernel takes back when it \
         must; fumehood unmaps its own after 200 ms, and maps anew what it needs. *own* is what no file holds.\n\n| | proportional share | own |\n| --- | --- | --- |\n",
    );
    for contestant in present.iter().filter(|contestant| contestant.id != "plain") {
        let of = |rounds: &Rounds| cell(median(rounds.of(contestant.id)), 0);
        let _ = writeln!(out, "| {} | {} | {} |", contestant.id, of(&measured.memory), of(&measured.own_memory));
    }
}
