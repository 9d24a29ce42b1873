//! `fumehood bench tiers`: what each tier costs on this host.

use std::path::PathBuf;

use backends::Capabilities;
use sandbox::fault::{Fault, show_path, show_text};
use serde_json::{Value, json};

use super::args::{Flag, Positionals, To, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::bench::{Column, Row, measure, picture};
use crate::ui::{Failure, REFUSED, Role, Table};

/// Most rounds: an emulated machine takes seconds for each of its starts.
const MAX_ROUNDS: usize = 101;

const FLAGS: &[Flag] = &[
    Flag::new("rounds", Some("N"), To::Ours, "Runs of each program on each tier, whose median counts; default 5"),
    Flag::new("svg", Some("FILE"), To::Ours, "Write the table as a picture, too"),
];

pub(super) const TIERS: Spec = Spec {
    path: &["bench", "tiers"],
    about: "Measure what each tier costs on this host: start, Python, memory, system calls, files, connections",
    usage: "[--rounds N] [--svg FILE] [-p POLICY] [FLAGS]",
    more: "The same small programs by every backend that is there, and without a sandbox, in rounds whose order changes; medians. A start is \
           everything from the policy to the report. A system call, a file and a connection (through the broker, by name) are what a program \
           takes for each beyond that. What is not there is told with its reason. `fumehood choose` uses what was measured here in five rounds or more.\n\n\
           Exit codes:\n  \
             0    it was measured\n  \
             125  a failure of fumehood itself, or bad usage\n  \
             126  the policy is wrong\n\n\
           With --json: {schema, machine, rounds, table [{tier, backend, there, why, start_ms, python_ms, memory (MiB), call_ns, file_us, connection_us, \
           not_measured}]}.\n\
           Example: `fumehood bench tiers --svg tiers.svg`",
    tables: &[POLICY, FLAGS],
    words: Positionals::Mixed(0),
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let rounds = rounds(call)?;
    let layers = asked_layers(call, REFUSED)?;
    crate::load::policy_alone(&layers, call.environment)?;
    let host = Capabilities::probe_with(call.environment.services());
    let tell = |round: usize| {
        if !call.json && call.environment.stderr_terminal {
            call.console.eprint(&format!("round {} of {rounds}\n", round.saturating_add(1)));
        }
    };
    let rows = measure(&layers, rounds, (call.environment, &host), &tell);
    let machine = machine(&host);
    let about = format!("{}, median of {rounds}", describe(&machine));
    if let Some(file) = call.parsed.value("svg").map(PathBuf::from) {
        let file = call.environment.cwd.as_deref().map_or_else(|| file.clone(), |cwd| cwd.join(&file));
        std::fs::write(&file, picture(&rows, &about)).map_err(|error| {
            Failure::own(Fault {
                id: "out/unwritable",
                what: format!("the picture cannot be written to {}", show_path(&file)),
                place: "--svg".to_owned(),
                why: error.to_string().to_lowercase(),
                fix: "name a file in a folder that you may write".to_owned(),
            })
        })?;
    }
    if call.json {
        let table: Vec<Value> = rows.iter().map(Row::to_json).collect();
        call.console.json(&json!({ "schema": 1, "machine": machine, "rounds": rounds, "table": table }))?;
    } else {
        call.console.data(text(call, &rows, &about).as_bytes())?;
    }
    Ok(0)
}

fn rounds(call: &Call<'_>) -> Result<usize, Failure> {
    let Some(word) = call.parsed.value("rounds") else { return Ok(5) };
    let number = word.to_str().and_then(|word| word.parse().ok()).filter(|number| (1..=MAX_ROUNDS).contains(number));
    number.ok_or_else(|| {
        let what = format!("`--rounds {}`", show_text(&word.to_string_lossy()));
        Failure::own(usage(
            "usage/bad-value",
            what,
            format!("it is no number from 1 to {MAX_ROUNDS}"),
            "--rounds 5".to_owned(),
        ))
    })
}

/// What tells machines apart, of which numbers depend.
fn machine(host: &Capabilities) -> Value {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        info.lines().find_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned()));
    let processors = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    json!({
        "fumehood": env!("CARGO_PKG_VERSION"), "kernel": host.release, "processor": model,
        "processors": processors, "root": host.euid == 0,
    })
}

fn describe(machine: &Value) -> String {
    let text = |key: &str| show_text(machine.get(key).and_then(Value::as_str).unwrap_or("unknown"));
    let count = machine.get("processors").and_then(Value::as_u64).unwrap_or(0);
    let who = if machine.get("root") == Some(&Value::Bool(true)) { "root" } else { "an ordinary user" };
    format!("{} x {count}, Linux {}, as {who}", text("processor"), text("kernel"))
}

fn text(call: &Call<'_>, rows: &[Row], about: &str) -> String {
    let titles: Vec<&str> = ["tier", "backend"].into_iter().chain(Column::ALL.map(Column::title)).collect();
    let mut table = Table::new(&titles);
    let mut notes = String::new();
    for row in rows {
        let number = |column: Column| row.value(column).map_or_else(|| "-".to_owned(), |number| number.to_string());
        let [start, python, memory, call_ns, file, connection] = Column::ALL.map(number);
        table.row([row.tier(), row.backend(), &start, &python, &memory, &call_ns, &file, &connection]);
        let mut told: Vec<&str> = Vec::new();
        for column in Column::ALL {
            let Some(why) = row.why(column).filter(|why| !told.contains(why)) else { continue };
            told.push(why);
            let what = if row.missing() == Some(why) { "not there" } else { column.title() };
            let name = format!("{} ({}), {what}:", row.tier(), row.backend());
            notes.push_str(&format!("{} {}\n", call.console.out.paint(Role::Aside, &name), show_text(why)));
        }
    }
    format!("{}{notes}{}\n", table.render(call.console.out, 0, call.console.columns), show_text(about))
}
