//! `fumehood run`, `fumehood shell` and `fumehood plan`.

use serde_json::json;

use super::args::Positionals;
use super::ask::request;
use super::flags::{ON, POLICY, RUN as PROGRAM, SAYING};
use super::spec::{Call, Spec};
use super::target::target;
use crate::load;
use crate::run::run as start;
use crate::ui::{self, Failure};
use policy::ClauseId;
use policy::value::Tier;
use sandbox::fault::show_text;
use sandbox::run::foresee;
use sandbox::{Capabilities, Planned, PolicyLayer, Workload};

const CODES: &str = "Exit codes:\n  \
  0-123, 128+n  the program's own; killed by signal n\n  \
  124           a limit ended it; the report names which\n  \
  125           a failure of fumehood itself, or bad usage\n  \
  126           refused: the policy is wrong or cannot be held here; or the program is not executable\n  \
  127           the program is not there inside\n\n\
Without `--` the first word is a script of the host (a known extension, or `#!`), and what follows is its own.\n\
Examples:\n  \
  fumehood run script.py\n  \
  fumehood run -w .:ro script.py input.csv\n  \
  fumehood run -p data-analysis -w . -- python3 analysis.py\n  \
  fumehood run --lang python --code 'print(2 ** 64)'\n  \
  generate | fumehood run --lang bash -";

pub(super) const RUN: Spec = Spec {
    path: &["run"],
    about: "Run a program, script or code in a sandbox",
    usage: "[FLAGS] -- CMD ARGS... | [FLAGS] SCRIPT ARGS... | [FLAGS] --lang LANGUAGE (--code TEXT | -)",
    more: CODES,
    tables: &[POLICY, PROGRAM, ON, SAYING],
    words: Positionals::EndFlags,
    hidden: false,
    run,
};

pub(super) const SHELL: Spec = Spec {
    path: &["shell"],
    about: "Open a shell in a sandbox, to look around",
    usage: "[FLAGS]",
    more: "A preset's `limits.wall` and `limits.output` do not hold here, those of a document or flag do. Exit code as with `fumehood run`.",
    tables: &[POLICY, ON, SAYING],
    words: Positionals::Mixed(0),
    hidden: false,
    run: shell,
};

pub(super) const PLAN: Spec = Spec {
    path: &["plan"],
    about: "Say what would be enforced, and by whom; start nothing",
    usage: "[FLAGS] [-- CMD ARGS... | SCRIPT ARGS...]",
    more: "Exit code 0 with a plan, 126 with every reason why there is none. Where secrets come from, files of certificates\n\
           and the log are looked at by a run alone, which is refused if they cannot be used.",
    tables: &[POLICY, PROGRAM, SAYING],
    words: Positionals::EndFlags,
    hidden: false,
    run: plan,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let what = target(&mut call.parsed, std::io::stdin().lock())?;
    // Without words it is what an image runs.
    let what = if matches!(what, Workload::Nothing) { Workload::Image } else { what };
    start(request(call, what)?, call.environment, call.console)
}

fn shell(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut request = request(call, Workload::Shell)?;
    // The presets' time and output are for programs. Whoever sits before a terminal ends it, and sees nothing of what goes on once
    // output is cut; a limit that somebody wrote stays. What is wrong with a policy is told and recorded by the start.
    let read = load::policy(&request.layers, call.environment);
    for (clause, none) in [(ClauseId::LimitsWall, "limits.wall=none"), (ClauseId::LimitsOutput, "limits.output=none")] {
        if read.as_ref().is_ok_and(|loaded| loaded.origins.of(clause).starts_with("preset ")) {
            request.layers.push(PolicyLayer::Set(none.to_owned()));
        }
    }
    start(request, call.environment, call.console)
}

fn plan(call: &mut Call<'_>) -> Result<u8, Failure> {
    // The program is judged as `run` would, but code on stdin stays there: nothing will run it.
    let what = target(&mut call.parsed, std::io::empty())?;
    let request = request(call, what)?;
    let host = Capabilities::probe_with(call.environment.services());
    let loaded = load::policy(&request.layers, call.environment)?;
    let planned = sandbox::plan(loaded, request.what, &host)?;
    let note = planned.note(call.environment);
    let Planned { plan, why, lints, .. } = planned;
    let notes: Vec<String> = foresee(&plan, &host)?.into_iter().chain(note).collect();
    if call.json {
        let mut value = plan.to_json();
        if let Some(map) = value.as_object_mut() {
            map.insert("why".to_owned(), json!(why));
            map.insert("lints".to_owned(), lints.iter().map(policy::Lint::to_json).collect());
            map.insert("notes".to_owned(), json!(notes));
            map.insert("not_promised".to_owned(), json!(not_promised(plan.tier)));
        }
        call.console.json(&value)?;
        return Ok(0);
    }
    let mut text = ui::plan(&plan, call.console.out, call.console.columns);
    for note in &notes {
        text.push_str(&format!("{} {}\n", call.console.out.paint(ui::Role::Weak, "note:"), show_text(note)));
    }
    for open in not_promised(plan.tier) {
        let label = call.console.out.paint(ui::Role::Weak, "not promised:");
        text.push_str(&format!("{label} {open}\n"));
    }
    text.push_str(&format!("tier: {}\n", show_text(&why)));
    call.console.data(text.as_bytes())?;
    Ok(0)
}

/// What no clause speaks of and a tier leaves open, so that nobody has to find it in the pages.
fn not_promised(tier: Tier) -> &'static [&'static str] {
    match tier {
        Tier::Process => &[
            "names, sizes and owners of files that were not granted can be asked for; links in such folders are not told, but can be followed, and where one leads to something, that can be asked for",
            "modes, times and attributes of the user's own files can be changed, of those that are granted for reading too",
            "there is no `/dev/shm` and no `/run` of the run's own: `fs.shm` and `fs.run` give no room, since nothing that is not granted can be written",
        ],
        Tier::Language => &[
            "there is no `/dev/shm` and no `/run`: `fs.shm` and `fs.run` give no room",
            "a program may have other results than by `python3`: regular expressions are Rust's (flags, groups in `split`, `\\Z`, `$`), `round` with digits and `/` of large whole numbers differ, some methods of classes are not asked",
            "a program may have other results than by `node`: there is no `Intl` (locales, time zones, `localeCompare`), and `console.log` has no formats",
        ],
        Tier::Container | Tier::Gvisor | Tier::Vm => &[],
    }
}
