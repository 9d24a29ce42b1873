//! `fumehood run`, `fumehood shell` and `fumehood plan`.

use backends::Capabilities;
use serde_json::json;

use super::args::Words;
use super::ask::request;
use super::flags::{POLICY, RUN as PROGRAM, SAYING};
use super::request::What;
use super::spec::{Call, Spec};
use super::target::{nothing, target};
use crate::fault::show_text;
use crate::run::{Planned, foresee, plan as make_plan, run as start};
use crate::ui::{self, Failure};

const CODES: &str = "Exit codes:\n  \
  0-123, 128+n  the program's own; killed by signal n\n  \
  124           a limit ended it; the report names which\n  \
  125           a failure of fumehood itself, or bad usage\n  \
  126           refused: the policy is wrong or cannot be held here; or the program is not executable\n  \
  127           the program is not there inside\n\n\
Without `--` the first word is a script of the host (a known extension, or `#!`), and what follows is its own.\n\
Examples:\n  \
  fumehood run script.py input.csv\n  \
  fumehood run -p data-analysis -w . -- python3 analysis.py\n  \
  fumehood run --lang python --code 'print(2 ** 64)'\n  \
  generate | fumehood run --lang bash -";

pub(super) const RUN: Spec = Spec {
    path: &["run"],
    about: "Run a program, script or code in a sandbox",
    usage: "[FLAGS] -- CMD ARGS... | [FLAGS] SCRIPT ARGS... | [FLAGS] --lang LANGUAGE (--code TEXT | -)",
    more: CODES,
    tables: &[POLICY, PROGRAM, SAYING],
    words: Words::EndFlags,
    hidden: false,
    run,
};

pub(super) const SHELL: Spec = Spec {
    path: &["shell"],
    about: "Open a shell in a sandbox, to look around",
    usage: "[FLAGS]",
    more: "Exit code as with `fumehood run`.",
    tables: &[POLICY, SAYING],
    words: Words::Mixed(0),
    hidden: false,
    run: shell,
};

pub(super) const PLAN: Spec = Spec {
    path: &["plan"],
    about: "Say what would be enforced, and by whom; start nothing",
    usage: "[FLAGS] [-- CMD ARGS... | SCRIPT ARGS...]",
    more: "Exit code 0 with a plan, 126 with every reason why there is none.",
    tables: &[POLICY, PROGRAM, SAYING],
    words: Words::EndFlags,
    hidden: false,
    run: plan,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let what = target(&mut call.parsed, std::io::stdin().lock())?;
    if matches!(what, What::Nothing) {
        return Err(nothing("no program was named"));
    }
    start(request(call, what)?, call.world, call.voice)
}

fn shell(call: &mut Call<'_>) -> Result<u8, Failure> {
    start(request(call, What::Shell)?, call.world, call.voice)
}

fn plan(call: &mut Call<'_>) -> Result<u8, Failure> {
    // The program is judged as `run` would, but code on stdin stays there: nothing will run it.
    let what = target(&mut call.parsed, std::io::empty())?;
    let request = request(call, what)?;
    let host = Capabilities::probe_with(call.world.user_bus());
    let Planned { plan, why, lints } = make_plan(request, call.world, &host)?;
    let notes = foresee(&plan, &host)?;
    if call.json {
        let mut value = plan.to_json();
        if let Some(map) = value.as_object_mut() {
            map.insert("why".to_owned(), json!(why));
            map.insert("lints".to_owned(), lints.iter().map(policy::Lint::to_json).collect());
            map.insert("notes".to_owned(), json!(notes));
        }
        call.voice.json(&value)?;
        return Ok(0);
    }
    let mut text = ui::plan(&plan, call.voice.out, call.voice.columns);
    for note in &notes {
        text.push_str(&format!("{} {}\n", call.voice.out.paint(ui::Role::Weak, "note:"), show_text(note)));
    }
    text.push_str(&format!("tier: {}\n", show_text(&why)));
    call.voice.data(text.as_bytes())?;
    Ok(0)
}
