//! `fumehood create`, and the hidden command that its supervisor is.

use std::path::Path;

use live::create::{COMMAND, Caller, Refusal, Request, create as start, supervise as serve};
use policy::ClauseId;
use sandbox::{Capabilities, Error, Planned, PolicyLayer, Workload};
use serde_json::json;

use super::super::args::{Flag, To, Words};
use super::super::ask::request;
use super::super::flags::POLICY;
use super::super::spec::{Call, Spec};
use super::{stopped, text, time};
use crate::cli::Environment;
use crate::load;
use crate::ui::{Failure, Palette, When};

const FLAGS: &[Flag] = &[
    Flag::new("name", Some("NAME"), To::Ours, "A name that stands for the id"),
    Flag::new("idle", Some("TIME"), To::Ours, "End it when nothing was asked and nothing ran for so long, e.g. 5m"),
    Flag::new("label", Some("KEY=VALUE"), To::Ours, "Something to remember with it; may be repeated").many(),
];

pub(crate) const CREATE: Spec = Spec {
    path: &["create"],
    about: "Create a live sandbox, and print its id",
    usage: "[FLAGS]",
    more: "It lives until `--timeout` (`limits.wall` of the whole), `--idle` or `fumehood kill` ends it; a preset's wall time \
           does not hold here.\nAll other limits are of the whole sandbox, `limits.output` of each `exec`. Work in it with \
           `fumehood exec ID -- CMD`.\nExit code 0, 126 refused, 125 a failure of fumehood itself.",
    tables: &[POLICY, FLAGS],
    words: Words::Mixed(0),
    hidden: false,
    run: create,
};

pub(crate) const SUPERVISE: Spec = Spec {
    path: &[COMMAND],
    about: "Be the supervisor of a live sandbox; started by `fumehood create`",
    usage: "",
    more: "",
    tables: &[],
    words: Words::Mixed(0),
    hidden: true,
    run: supervise,
};

fn create(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut layers = request(call, Workload::Nothing)?.layers;
    // A preset's time is for one program. What is wrong with a policy is told and recorded by the start.
    let read = load::policy_alone(&layers, call.environment);
    if read.is_ok_and(|loaded| loaded.origins.of(ClauseId::LimitsWall).starts_with("preset ")) {
        layers.push(PolicyLayer::Set("limits.wall=none".to_owned()));
    }
    let labels = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "label");
    let labels = labels.filter_map(|(_, value)| value.as_deref()).map(|label| {
        let label = text(label)?;
        Ok(label.split_once('=').map_or_else(|| (label.clone(), String::new()), |(k, v)| (k.to_owned(), v.to_owned())))
    });
    let wanted = Request {
        layers: layers.into_iter().map(Into::into).collect(),
        name: call.parsed.value("name").map(text).transpose()?,
        labels: labels.collect::<Result<_, Failure>>()?,
        idle_ms: time(call, "idle")?,
        template: String::new(),
        columns: call.console.columns,
        colour: call.console.err.is_on(),
    };
    match start(&wanted, Path::new("/proc/self/exe"), call.environment).map_err(|error| stopped(&error))? {
        Ok(created) if call.json => call.console.json(&json!(created.info)).map(|_| 0),
        Ok(created) => call.console.data(format!("{}\n", created.info.id).as_bytes()).map(|_| 0),
        // As `run` says it: the same words were made there.
        Err(refusal) => {
            if call.json {
                call.console.json(&refusal.json)?;
            } else {
                call.console.eprint(&refusal.text);
            }
            Ok(refusal.code)
        }
    }
}

fn supervise(call: &mut Call<'_>) -> Result<u8, Failure> {
    Ok(serve(call.environment, &Ours(call.environment)))
}

/// How the command line plans, and what it says.
struct Ours<'a>(&'a Environment);

impl Caller for Ours<'_> {
    fn plan(&self, layers: &[PolicyLayer], host: &Capabilities) -> Result<Planned, Error> {
        let recorded = |stop| sandbox::run::refused(stop, self.0);
        let loaded = load::policy(layers, self.0).map_err(recorded)?;
        sandbox::plan(loaded, Workload::Agent(agent::ELF), host).map_err(recorded)
    }

    fn refusal(&self, stop: Error, request: &Request) -> Refusal {
        let failure = Failure::from(stop);
        let palette = if request.colour { When::Always.decide(true, None, None) } else { Palette::PLAIN };
        let columns = if request.columns == 0 { 100 } else { request.columns };
        Refusal { code: failure.code(), json: failure.json(), text: failure.text(palette, columns) }
    }
}
