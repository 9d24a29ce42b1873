//! `fumehood choose`: which tier a policy should have on this host, and why not another.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use backends::Capabilities;
use policy::value::Tier;
use serde_json::{Value, json};

use super::args::{Flag, Positionals, To, closest, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::choose::{Costs, Measuring, Need, Row, STARTS, rows, strength};
use crate::run::refused_as_run;
use crate::ui::{Failure, Palette, REFUSED, Role, bytes, count, hang, seconds};
use sandbox::PolicyLayer;
use sandbox::fault::{show_bytes, show_text};

const CHOOSE: &[Flag] = &[
    Flag::new(
        "threat",
        Some("THREAT"),
        To::Ours,
        "Against whom: mistakes, hostile, multi-tenant; default: the policy's",
    )
    .choices(&["mistakes", "hostile", "multi-tenant"]),
    Flag::new(
        "needs",
        Some("WORDS"),
        To::Ours,
        "What the program needs, with commas between: pip, net, gpu, fork, shell, node, browser, docker, root, snapshot",
    ),
    Flag::new("measure", None, To::Ours, "Measure what each tier costs again"),
];

pub(super) const SPEC: Spec = Spec {
    path: &["choose"],
    about: "Say which tier fits a policy, a threat and needs on this host, and why no other",
    usage: "[--threat THREAT] [--needs WORDS] [-p POLICY] [FLAGS] [--measure]",
    more: "Every tier is asked for a plan of the policy; the weakest that has one and is meant against the threat is the choice.\n\
           `tier` of the policy is not looked at. Costs are measured on this host, by starting small programs, and kept for it; stderr says so.\n\n\
           Exit codes:\n  \
             0    there is a choice\n  \
             125  a failure of fumehood itself, or bad usage\n  \
             126  no tier holds it: each says what is missing; or the policy is wrong\n\n\
           With --json: {schema, threat, choice {tier, backend}, why, table [{tier, backend, holds, clauses, refused [{id, clause, what, where, why, fix}],\n\
           strength, overshoot, start_ms, memory, measured}]}; choice is null with 126; a wrong policy is told as by `run`.\n\
           Example: `fumehood choose --threat mistakes --needs shell`",
    tables: &[POLICY, CHOOSE],
    words: Positionals::Mixed(0),
    hidden: false,
    run: choose,
};

fn choose(call: &mut Call<'_>) -> Result<u8, Failure> {
    chosen(call).or_else(|stop| refused_as_run(stop, call.console, call.json))
}

fn chosen(call: &mut Call<'_>) -> Result<u8, Failure> {
    let needs = call.parsed.value("needs").map(needs).transpose()?.unwrap_or_default();
    let mut layers = asked_layers(call, REFUSED)?;
    if let Some(threat) = call.parsed.value("threat") {
        layers.push(PolicyLayer::Set(format!("threat=\"{}\"", show_bytes(threat.as_bytes()))));
    }
    let host = Capabilities::probe_with(call.environment.services());
    let (threat, rows) = rows(&layers, &needs, call.environment, &host)?;
    let known = (call.environment, &host);
    let costs = Costs::of_rows(&rows, known, call.parsed.has("measure"), &|measuring| tell(measuring, call));
    let choice = rows.iter().find(|row| row.holds());
    let why = choice.map_or_else(
        || format!("no tier of this host holds it against threat `{threat}`"),
        |row| format!("`{}` is the weakest tier that holds it against threat `{threat}`", row.tier),
    );
    if call.json {
        let table: Vec<Value> = rows.iter().map(|row| row.to_json(&costs)).collect();
        let choice = choice.map(|row| json!({ "tier": row.tier.as_str(), "backend": row.backend }));
        let threat = threat.to_string();
        call.console.json(&json!({ "schema": 1, "threat": threat, "choice": choice, "why": why, "table": table }))?;
    } else {
        let mut out: String =
            rows.iter().map(|row| text(row, &costs, call.console.out, call.console.columns)).collect();
        out.push_str(&format!("{why}\n"));
        call.console.data(out.as_bytes())?;
    }
    Ok(if choice.is_some() { 0 } else { REFUSED })
}

/// That something is measured, which takes a while: once, and on a terminal for each tier.
fn tell(measuring: &Measuring<'_>, call: &Call<'_>) {
    let Measuring { nth: (nth, all), on: (tier, backend), longest } = *measuring;
    if nth == 0 {
        let count = count(u64::try_from(all).unwrap_or(u64::MAX), "backend", "backends");
        let most = seconds(longest.as_secs_f64());
        call.console.eprint(&format!(
            "measuring what a start costs by {count}, {STARTS} times each; kept for this host (at most {most}, as a rule a few seconds each)\n"
        ));
    }
    if call.environment.stderr_terminal {
        call.console.eprint(&format!("  {} of {all}: {tier} by {backend}\n", nth.saturating_add(1)));
    }
}

/// The words of `--needs`, each once.
fn needs(typed: &OsStr) -> Result<Vec<Need>, Failure> {
    let typed = show_bytes(typed.as_bytes());
    let mut needs = Vec::new();
    for word in typed.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let Some(need) = Need::ALL.into_iter().find(|need| need.as_str() == word) else {
            let all = Need::ALL.map(Need::as_str);
            let fix = match closest(word, all.into_iter()) {
                Some(best) => format!("did you mean `{best}`?"),
                None => format!("write one of {}", all.join(", ")),
            };
            let why = "what is needed is said by words that a tier can answer".to_owned();
            return Err(Failure::own(usage("usage/bad-value", format!("`--needs {word}`: no such need"), why, fix)));
        };
        if !needs.contains(&need) {
            needs.push(need);
        }
    }
    Ok(needs)
}

fn text(row: &Row, costs: &Costs, palette: Palette, columns: usize) -> String {
    let (role, word) = if row.holds() { (Role::Good, "holds") } else { (Role::Bad, "refused") };
    let by = row.backend.map_or_else(String::new, |backend| format!(" by {backend}"));
    let cost = costs.of(row).filter(|_| row.holds()).map_or_else(String::new, |cost| {
        let of = if row.tier == Tier::Vm { "with the emulator's own" } else { "inside" };
        let memory = cost.memory.map_or_else(String::new, |memory| format!(", {} {of}", bytes(memory)));
        format!("; a start takes {} ms here{memory}", cost.start_ms)
    });
    let mut out = format!(
        "{}{by}: {}  {}{cost}\n",
        palette.paint(Role::Name, row.tier.as_str()),
        palette.paint(role, word),
        strength(row.tier)
    );
    if let Some(overshoot) = &row.overshoot {
        out.push_str(&hang("  ", 2, &format!("may pass: {}", show_text(overshoot)), columns));
    }
    for reason in &row.refused {
        let part = |name: &str| show_text(reason.get(name).and_then(Value::as_str).unwrap_or_default());
        out.push_str(&hang("  ", 2, &format!("{}: {}; {}", part("what"), part("why"), part("fix")), columns));
    }
    out
}
