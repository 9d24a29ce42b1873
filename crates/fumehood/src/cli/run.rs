//! `fumehood run | shell | plan`

use super::args::Words;
use super::ask;
use super::flags::{POLICY, RUN as FLAGS};
use super::request::What;
use super::spec::{Call, Spec};
use super::target;
use crate::run;
use crate::ui::{self, Failure};

pub(super) const RUN: Spec = Spec {
    path: &["run"],
    about: "Run a command, a script or a piece of code in a sandbox",
    usage: "[FLAGS] -- CMD ARGS... | SCRIPT ARGS... | --lang LANG --code TEXT",
    more: "Exit code: the program's own; 124 a limit ended it, 125 our own failure, 126 refused or not executable, 127 not found.",
    tables: &[POLICY, FLAGS],
    words: Words::EndFlags,
    hidden: false,
    run: run_it,
};

pub(super) const SHELL: Spec = Spec {
    path: &["shell"],
    about: "Open a shell in a sandbox",
    usage: "[FLAGS]",
    more: "As `run -t -i -- bash`, with what the policy grants.",
    tables: &[POLICY, FLAGS],
    words: Words::EndFlags,
    hidden: false,
    run: shell,
};

pub(super) const PLAN: Spec = Spec {
    path: &["plan"],
    about: "Show what would be enforced, and by whom, without running anything",
    usage: "[FLAGS] [-- CMD ARGS...]",
    more: "Exit code 0, or 126 with every clause that this host cannot hold.",
    tables: &[POLICY, FLAGS],
    words: Words::EndFlags,
    hidden: false,
    run: plan,
};

fn run_it(call: &mut Call<'_>) -> Result<u8, Failure> {
    let what = target::target(&mut call.parsed, std::io::stdin())?;
    let request = ask::request(call, what)?;
    run::run(request, call.world, call.voice)
}

fn shell(call: &mut Call<'_>) -> Result<u8, Failure> {
    let request = ask::request(call, What::Shell)?;
    run::run(request, call.world, call.voice)
}

fn plan(call: &mut Call<'_>) -> Result<u8, Failure> {
    let request = ask::request(call, What::Nothing)?;
    let planned = run::plan(&request.layers, call.world, &backends::Capabilities::probe())?;
    if call.json {
        call.voice.json(&planned.plan.to_json())?;
    } else {
        call.voice.data(ui::plan(&planned.plan, call.voice.out, call.voice.columns).as_bytes())?;
    }
    Ok(0)
}
