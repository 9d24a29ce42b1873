//! `fumehood attack`, and the hidden commands that its probes are made of: the catalogue and its judge are the crate `attack`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use attack::campaign::{self, Against, Tried};
use attack::inside;
use attack::judge::{Outcome, Verdict};
use attack::proof::Proof;
use attack::row::{Group, Row};
use policy::value::{Tier, TierChoice};
use sandbox::Capabilities;
use sandbox::fault::show_bytes;
use serde_json::json;

use super::args::{Flag, Positionals, To, closest, usage};
use super::ask::asked_layers;
use super::default_policy::with_default;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::load;
use crate::ui::{FAILED, Failure, Palette, Role, Table};

const FLAGS: &[Flag] = &[
    Flag::new("only", Some("IDS"), To::Ours, "Only these rows or groups, e.g. FS,NET-01"),
    Flag::new(
        "against",
        Some("WHAT"),
        To::Ours,
        "Try another sandbox instead: bwrap; none tries the probes themselves",
    )
    .choices(&["bwrap", "none"]),
    Flag::new("list", None, To::Ours, "List the rows and try none"),
    Flag::new("verbose", None, To::Ours, "Show every row, not only what is worth a look").short(b'v'),
];

/// `fumehood attack`
pub(super) const SPEC: Spec = Spec {
    path: &["attack"],
    about: "Show on this machine that what a policy promises holds",
    usage: "[POLICY FLAGS] [--only IDS] [--list] [-v]",
    more: "Each row tries one way out, first unconfined (where it must succeed) and then in your sandbox; somebody outside \
           judges. Harmless where it succeeds, bounded, safe as root. \
           On the tier `language` the rows are programs in Python and JavaScript, and the control is the host's own python3 or node. \
           Exit codes: 0 all that is promised holds, 1 something escaped, or nothing was held: nothing of `--only` is promised, or nothing \
           could be tried, 125 own failure.\n\
           Example: fumehood attack --tier process -p policy.toml",
    tables: &[POLICY, FLAGS],
    words: Positionals::Mixed(0),
    hidden: false,
    run: attack,
};

/// `fumehood __probe MARKER NAME ARGS`
pub(super) const PROBE: Spec = hidden(&["__probe"], run_probe);
/// `fumehood __control HOW PROGRAM ARGS`
pub(super) const CONTROL: Spec = hidden(&["__control"], run_control);
/// `fumehood __neighbour TOKEN`
pub(super) const NEIGHBOUR: Spec = hidden(&["__neighbour"], run_neighbour);

const fn hidden(path: &'static [&'static str], run: fn(&mut Call<'_>) -> Result<u8, Failure>) -> Spec {
    Spec {
        path,
        about: "Part of attack",
        usage: "",
        more: "",
        tables: &[],
        words: Positionals::EndFlags,
        hidden: true,
        run,
    }
}

fn attack(call: &mut Call<'_>) -> Result<u8, Failure> {
    let watched = call.environment.stderr_terminal && !call.json;
    let console = call.console;
    let mut next = |at: usize, row: &Row, count: usize| {
        if watched {
            console.eprint(&format!("\r{}/{count} {}\u{1b}[K\u{1b}[A", at + 1, row.id));
        }
    };
    let only = call.parsed.value("only");
    if call.parsed.has("list") {
        return list(call, &chosen(&[campaign::rows()?, campaign::language_rows()?].concat(), only)?);
    }
    let tried = match call.parsed.value("against").map(OsStr::as_bytes) {
        Some(b"bwrap") => tries(call, only, Against::Bubblewrap, &mut next)?,
        Some(b"none") => tries(call, only, Against::Nothing, &mut next)?,
        Some(other) => {
            let typed = format!("`--against {}`", show_bytes(other));
            let why = "no such sandbox".to_owned();
            return Err(Failure::own(usage("usage/bad-value", typed, why, "bwrap or none".to_owned())));
        }
        None => {
            let layers = with_default(asked_layers(call, FAILED)?, call.environment)?;
            // What only the gate can tell of it; the campaign reads the rest.
            let loaded = load::policy(&layers, call.environment).map_err(|stop| campaign::no_plan(&stop))?;
            let host = Capabilities::probe_with(call.environment.services());
            if loaded.policy.tier == TierChoice::Fixed(Tier::Language) {
                let rows = chosen(&campaign::language_rows()?, only)?;
                let mut next = |at: usize, row: &Row| next(at, row, rows.len());
                campaign::run_language(&rows, (&layers, &host), call.environment, &mut next)?
            } else {
                tries(call, only, Against::Ours(layers, Box::new(host)), &mut next)?
            }
        }
    };
    let proof = tried.proof(call.parsed.has("only"));
    if call.json {
        call.console.json(&tried.to_json())?;
    } else {
        // Where nothing is promised, the rows and their reasons are all that there is to say.
        let all = call.parsed.has("verbose") || proof == Proof::NothingPromised;
        let text = shown(&tried.verdicts, all, call.console.out, call.console.columns);
        call.console.data(text.as_bytes())?;
    }
    if let Some((role, head, what)) = told(proof) {
        call.console.eprint(&format!("{} {what}\n", call.console.err.paint(role, head)));
    }
    Ok(u8::from(proof != Proof::Held))
}

/// Rows against what runs programs.
fn tries(
    call: &Call<'_>,
    only: Option<&OsStr>,
    against: Against,
    next: &mut dyn FnMut(usize, &Row, usize),
) -> Result<Tried, Failure> {
    let rows = chosen(&campaign::rows()?, only)?;
    let count = rows.len();
    Ok(campaign::run(&rows, against, call.environment, &mut |at, row| next(at, row, count))?)
}

/// What there is to try.
fn list(call: &Call<'_>, rows: &[Row]) -> Result<u8, Failure> {
    if call.json {
        let rows: Vec<_> = rows
            .iter()
            .map(|row| json!({ "id": row.id, "title": row.title, "clauses": row.clauses, "tiers": row.tiers }))
            .collect();
        call.console.json(&json!({ "schema": 1, "rows": rows }))?;
        return Ok(0);
    }
    let mut table = Table::new(&["id", "tiers", "what is tried"]);
    for row in rows {
        table.row([&row.id, &row.tiers.join(","), &row.title]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes())?;
    Ok(0)
}

/// What is said of the result on stderr, where the table does not say it.
const fn told(proof: Proof) -> Option<(Role, &'static str, &'static str)> {
    match proof {
        Proof::Escaped | Proof::Held => None,
        Proof::NothingPromised => {
            Some((Role::Bad, "nothing was held:", "the chosen rows are not promised here, so none was tried"))
        }
        Proof::NothingTried => Some((
            Role::Bad,
            "nothing was held:",
            "no row that this policy promises could be tried to its end, so nothing is proven",
        )),
    }
}

/// The rows of `--only`.
fn chosen(all: &[Row], only: Option<&OsStr>) -> Result<Vec<Row>, Failure> {
    let Some(only) = only else { return Ok(all.to_vec()) };
    let text = show_bytes(only.as_bytes());
    let mut rows = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let wanted = word.to_uppercase();
        let fits = |row: &&Row| row.id.to_uppercase() == wanted || row.id.split('-').next() == Some(wanted.as_str());
        let found: Vec<Row> = all.iter().filter(fits).cloned().collect();
        if found.is_empty() {
            let fix = closest(word, all.iter().map(|row| row.id.as_str()))
                .map_or_else(|| "`fumehood attack --list` lists all rows".to_owned(), |best| format!("--only {best}"));
            let why = "no row or group has this id".to_owned();
            return Err(Failure::own(usage("usage/bad-value", format!("`--only {word}`"), why, fix)));
        }
        rows.extend(found);
    }
    Ok(rows)
}

/// The result for people: what escaped first, then what nothing can be said of, then the count.
fn shown(verdicts: &[Verdict], all: bool, palette: Palette, columns: usize) -> String {
    let mut table = Table::new(&["id", "result", "what was tried", "why"]);
    for outcome in [Outcome::Escaped, Outcome::Skipped, Outcome::NotPromised, Outcome::Held] {
        if !all && matches!(outcome, Outcome::NotPromised | Outcome::Held) {
            continue;
        }
        for verdict in verdicts.iter().filter(|verdict| verdict.result == outcome) {
            let role = (outcome == Outcome::Escaped).then_some(Role::Bad);
            let why = show_bytes(verdict.why.as_bytes());
            table.painted([(&verdict.id, None), (outcome.as_str(), role), (&verdict.title, None), (&why, None)]);
        }
    }
    let mut text = if table.is_empty() { String::new() } else { format!("{}\n", table.render(palette, 0, columns)) };
    let mut totals = Table::new(&["", "held", "escaped", "not promised", "skipped"]);
    let groups = [Group::Res, Group::Fs, Group::Net, Group::Priv, Group::Info, Group::Pers];
    let cells = |of: &dyn Fn(&&Verdict) -> bool| {
        [Outcome::Held, Outcome::Escaped, Outcome::NotPromised, Outcome::Skipped]
            .map(|outcome| verdicts.iter().filter(of).filter(|verdict| verdict.result == outcome).count().to_string())
    };
    for group in groups {
        let [held, escaped, other, skipped] = cells(&|verdict: &&Verdict| verdict.group == group);
        totals.row([group.title(), &held, &escaped, &other, &skipped]);
    }
    let [held, escaped, other, skipped] = cells(&|_: &&Verdict| true);
    totals.row(["in all", &held, &escaped, &other, &skipped]);
    if verdicts.iter().any(|verdict| verdict.result != Outcome::NotPromised) {
        text.push_str(&totals.render(palette, 0, columns));
    }
    text
}

fn run_probe(call: &mut Call<'_>) -> Result<u8, Failure> {
    Ok(inside::probe(std::mem::take(&mut call.parsed.words)))
}

fn run_neighbour(call: &mut Call<'_>) -> Result<u8, Failure> {
    inside::neighbour(&call.parsed.words).map_err(Failure::own)?;
    Ok(0)
}

fn run_control(call: &mut Call<'_>) -> Result<u8, Failure> {
    inside::control(&call.parsed.words, call.environment).map_err(Failure::own)
}
