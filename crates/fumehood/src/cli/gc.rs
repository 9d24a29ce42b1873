//! `fumehood gc`: what dead runs left is taken away, and that is recorded.

use jiff::Timestamp;
use serde_json::json;

use super::args::Positionals;
use super::spec::{Call, Spec};
use crate::changes::failed;
use crate::ui::{Failure, Role, Table, count};
use sandbox::audit::{Kind, Log, Options};
use sandbox::changes::all_interrupted;
use sandbox::fault::{show_path, show_text};
use sandbox::gc::{Scope, Sweep, sweep};
use sandbox::state::{State, Stray, strays};

pub(super) const SPEC: Spec = Spec {
    path: &["gc"],
    about: "Remove what dead runs left: processes, cgroups, old changes, halves of images",
    usage: "",
    more: "Runs that live are never touched; each start sweeps a little by itself. Changes are kept for 14 days, and those\n\
           that an `apply` took half until it is done again.\n\
           Workload a run of another state folder left is named (`elsewhere`) and never removed.\n\
           Exit code 0, or 1 if something stays that should go.",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: false,
    run: gc,
};

const ELSEWHERE: &str = "elsewhere: nothing runs in these groups, and they are of no run of this state folder; `FUMEHOOD_STATE=FOLDER \
                         fumehood gc` with\nthe folder of that run removes them, and so does `rmdir PATH`\n";

fn gc(call: &mut Call<'_>) -> Result<u8, Failure> {
    let state = State::open(&call.environment.state).map_err(|error| Failure::own(error.fault()))?;
    let sweep = sweep(&state, Timestamp::now(), Scope::All).map_err(|error| Failure::own(error.fault()))?;
    let begun = live_records(&state)?;
    let images = images::Store::open(&state)
        .and_then(|store| store.sweep_unfinished())
        .map_err(|error| Failure::own(error.fault()))?;
    // Copies for later starts: not a leftover of any run, so they are not counted.
    let _copies = sandbox::state::cache(call.environment.euid).map(|cache| backends::sweep_cache(&cache));
    // The folder of the control groups stays after a run, since the next one would only make it again, in each hierarchy
    // and before its program starts; whoever cleans up takes it.
    let mut elsewhere = Vec::new();
    if let Ok(hierarchies) = sys::cgroup::Hierarchies::all() {
        elsewhere = strays(&state, &hierarchies, backends::GROUPS, Timestamp::now())
            .map_err(|error| Failure::own(error.fault()))?;
        if sweep.live == 0 {
            let _empty = hierarchies.remove_folder(backends::GROUPS);
        }
    }
    if !sweep.removed.is_empty() {
        let body = json!({ "removed": sweep.removed, "kept": sweep.kept });
        Log::open(&state, None, Options::default())
            .and_then(|log| log.append("", &Kind::gc(), &body))
            .map_err(|error| Failure::own(error.fault()))?;
    }
    let halves = all_interrupted(&state).map_err(|error| failed(&error))?;
    if call.json {
        call.console.json(&json!({
            "schema": 1, "removed": sweep.removed, "kept": sweep.kept, "live": sweep.live, "begun": begun, "elsewhere": elsewhere,
            "images": images, "interrupted": halves,
        }))?;
    } else {
        call.console.data(text(&sweep, (images, begun), &elsewhere, call).as_bytes())?;
        for half in halves {
            call.console.eprint(&format!("note: {}\n", half.told()));
        }
    }
    Ok(u8::from(!sweep.kept.is_empty()))
}

/// Records of live sandboxes: who was killed is told to the log, and what ended long ago or never came to be is removed. How many are
/// nobody's yet.
fn live_records(state: &State) -> Result<u64, Failure> {
    let own = |error: live::LiveError| Failure::own(error.fault());
    let home = live::Home::new(state).map_err(own)?;
    for lost in home.lost().map_err(own)? {
        let body = json!({ "sandbox": lost.id, "reason": lost.reason, "message": lost.message });
        // Written before it is taken for told: who is ended in between says it twice, not never.
        Log::open(state, None, Options::default())
            .and_then(|log| log.append(&lost.run, &Kind::live_ended(), &body))
            .map_err(|error| Failure::own(error.fault()))?;
        home.told(&lost).map_err(own)?;
    }
    home.sweep(Timestamp::now()).map(|swept| swept.begun).map_err(own)
}

fn text(sweep: &Sweep, (images, begun): (u64, u64), elsewhere: &[Stray], call: &Call<'_>) -> String {
    let Sweep { removed, kept, live } = sweep;
    let number = |n: usize| u64::try_from(n).unwrap_or(u64::MAX);
    let mut table = Table::new(&["", "run", "path"]);
    for thing in removed {
        table.painted([
            (thing.what, Some(Role::Good)),
            (&show_text(&thing.run), None),
            (show_path(&thing.path).trim_matches('`'), None),
        ]);
    }
    for thing in kept {
        let why = format!("{}: {}", show_path(&thing.path).trim_matches('`'), show_text(&thing.why));
        table.painted([("stays", Some(Role::Bad)), (&show_text(&thing.run), None), (&why, None)]);
    }
    for stray in elsewhere {
        let path = show_path(&stray.path);
        table.painted([
            ("elsewhere", Some(Role::Weak)),
            (&show_text(&stray.run), None),
            (path.trim_matches('`'), None),
        ]);
    }
    let mut out =
        if table.is_empty() { String::new() } else { table.render(call.console.out, 0, call.console.columns) };
    out.push_str(&format!(
        "{} removed, {} stay, {} live{}\n",
        count(number(removed.len()), "thing", "things"),
        kept.len(),
        count(*live, "run", "runs"),
        // What waits in a pool is in no list of sandboxes.
        if begun > 0 { format!(", {begun} of them ready in a pool, or being begun") } else { String::new() },
    ));
    if images > 0 {
        out.push_str(&format!("{} of the store of images removed\n", count(images, "leftover", "leftovers")));
    }
    if !elsewhere.is_empty() {
        out.push_str(ELSEWHERE);
    }
    out
}
