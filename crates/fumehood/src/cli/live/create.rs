//! `fumehood create`, and the hidden command that its supervisor is.

use std::path::Path;
use std::time::Duration;

use live::create::{COMMAND, Created, Refusal, Request, create as start};
use live::supervise::{Caller, supervise as serve};
use live::{Begin, READY_TIMEOUT, RestoreSettings};
use policy::ClauseId;
use policy::value::{Root, Tier, TierChoice};
use sandbox::fault::show_path;
use sandbox::snapshot::{Snapshot, SnapshotError};
use sandbox::{Capabilities, Error, Planned, PolicyLayer, Workload};
use serde_json::json;

use super::super::args::{Flag, Positionals, To, usage};
use super::super::ask::{asked_layers, request};
use super::super::flags::POLICY;
use super::super::spec::{Call, Spec};
use super::{answered, home, stopped, text, time, wait_for};
use crate::environment::Environment;
use crate::load;
use crate::ui::{Failure, Palette, REFUSED, Role, When};

/// What a sandbox may take beside what its `ready` may: a machine's start among it.
const BEGINNING: Duration = Duration::from_secs(60);

const FLAGS: &[Flag] = &[
    Flag::new("name", Some("NAME"), To::Ours, "A name that stands for the id"),
    Flag::new("template", Some("NAME"), To::Ours, "What it has beside the host's own tools (`fumehood template ls`)"),
    Flag::new("from", Some("SNAPSHOT"), To::Ours, "Begin as this snapshot was, with its policy (`fumehood snapshot`)"),
    Flag::new("idle", Some("TIME"), To::Ours, "End it when nothing was asked and nothing ran for so long, e.g. 5m"),
    Flag::new("default-timeout", Some("TIME"), To::Ours, "Its life where neither `--timeout` nor the policy says one"),
    Flag::new("import", Some("MODULE"), To::Ours, "Keep a Python waiting that has imported this; may be repeated")
        .many(),
    Flag::new("label", Some("KEY=VALUE"), To::Ours, "Something to remember with it; may be repeated").many(),
];

pub(crate) const CREATE: Spec = Spec {
    path: &["create"],
    about: "Create a live sandbox, and print its id",
    usage: "[FLAGS]",
    more: "It lives until `--timeout` (`limits.wall` of the whole), `--idle` or `fumehood kill` ends it; a preset's wall time \
           does not hold here.\nAll other limits are of the whole sandbox, `limits.output` of each `exec`. Work in it with \
           `fumehood exec ID -- CMD`.\n`--from`: flags are laid over the policy that the snapshot's sandbox was created \
           with.\nExit code 0, 126 refused, 125 a failure of fumehood itself.",
    tables: &[POLICY, FLAGS],
    words: Positionals::Mixed(0),
    hidden: false,
    run: create,
};

pub(crate) const SUPERVISE: Spec = Spec {
    path: &[COMMAND],
    about: "Be the supervisor of a live sandbox; started by `fumehood create`",
    usage: "",
    more: "",
    tables: &[],
    words: Positionals::Mixed(0),
    hidden: true,
    run: supervise,
};

fn create(call: &mut Call<'_>) -> Result<u8, Failure> {
    if let Some(from) = call.parsed.value("from").map(text).transpose()? {
        return create_from(call, &from);
    }
    let template = call.parsed.value("template").map(text).transpose()?;
    let template = template.map(|name| super::super::template::find(call, &name)).transpose()?;
    let mut layers = template.as_ref().map(live::template::Template::layers).unwrap_or_default();
    layers.extend(request(call, Workload::Nothing)?.layers);
    lives_on(&mut layers, call.environment, time(call, "default-timeout")?);
    note_toolchains(call, &layers);
    let wanted = Request {
        layers: layers.into_iter().map(Into::into).collect(),
        template: template.map(|template| template.name).unwrap_or_default(),
        idle_ms: time(call, "idle")?,
        ..named(call)?
    };
    told(call, started(&wanted, call.environment)?)
}

/// A sandbox of a template that is not kept yet, which is ended once it is there: how it is refused, if it is. One that somebody
/// leaves in the middle ends by itself.
pub(crate) fn tried(
    call: &Call<'_>,
    template: &live::template::Template,
    within_ms: Option<u64>,
) -> Result<Option<u8>, Failure> {
    let within = within_ms.map_or(READY_TIMEOUT, Duration::from_millis).min(READY_TIMEOUT);
    let mut layers = template.layers();
    layers.extend(request(call, Workload::Nothing)?.layers);
    let most = u64::try_from(within.saturating_add(BEGINNING).as_millis()).unwrap_or(u64::MAX);
    lives_on(&mut layers, call.environment, Some(most));
    let wanted = Request {
        layers: layers.into_iter().map(Into::into).collect(),
        template: template.name.clone(),
        begin: Some(Begin { within_ms, ..Begin::of_recipe(&template.recipe) }),
        columns: call.console.columns,
        colour: call.console.err.is_on(),
        ..Request::default()
    };
    match started(&wanted, call.environment)? {
        Ok(created) => {
            let home = home(call)?;
            let id = &created.info.id;
            wait_for(async { live::create::kill(&home, id).await.map_err(|error| answered(error, id)) })?;
            Ok(None)
        }
        Err(refusal) => refused(call, &refusal).map(Some),
    }
}

/// Programs are named by `exec`, whose caller would get another one of that name without a word.
fn note_toolchains(call: &Call<'_>, layers: &[PolicyLayer]) {
    // What is wrong with a policy is told and recorded by the start.
    let policy = load::policy_alone(layers, call.environment).ok().map(|loaded| loaded.policy);
    let is_ours = |policy: &policy::Policy| {
        policy.fs.root == Root::Host
            && matches!(policy.tier, TierChoice::Auto | TierChoice::Fixed(Tier::Process | Tier::Container))
    };
    let note = policy.filter(is_ours).and_then(|policy| sandbox::run::toolchains(&policy, call.environment));
    if let Some(note) = note.filter(|_| !call.json) {
        let label = call.console.err.paint(Role::Weak, "note:");
        call.console.eprint(&format!("{label} {note}\n"));
    }
}

/// Of a snapshot: its layers, and those of the flags above them.
fn create_from(call: &Call<'_>, word: &str) -> Result<u8, Failure> {
    if call.parsed.has("template") {
        return Err(Failure::own(usage(
            "usage/two-flags",
            "both `--from` and `--template`".to_owned(),
            "a snapshot has the template that its sandbox had".to_owned(),
            "keep one".to_owned(),
        )));
    }
    let (mut wanted, environment) = of_snapshot(call, word)?;
    let (added, life) = (asked_layers(call, REFUSED)?, time(call, "default-timeout")?);
    if !added.is_empty() {
        stands_there(call, &environment)?;
    }
    if !added.is_empty() || life.is_some() {
        let mut layers: Vec<PolicyLayer> = wanted.layers.into_iter().map(Into::into).collect();
        layers.extend(added);
        lives_on(&mut layers, &environment, life);
        wanted.layers = layers.into_iter().map(Into::into).collect();
    }
    let idle_ms = time(call, "idle")?.or(wanted.idle_ms);
    let Request { name, labels, imports, .. } = named(call)?;
    let imports = imports.or(wanted.imports.take());
    told(call, started(&Request { name, labels, idle_ms, imports, ..wanted }, &environment)?)
}

/// What makes another sandbox of a snapshot, and from where its layers are read.
pub(super) fn of_snapshot(call: &Call<'_>, word: &str) -> Result<(Request, Environment), Failure> {
    let state = crate::changes::state(call.environment)?;
    let failed = |error: SnapshotError| Failure::own(error.fault());
    let snapshot = Snapshot::open(&state, word).map_err(failed)?;
    let RestoreSettings { cwd, layers, template, idle_ms, imports, labels: _ } =
        RestoreSettings::of(&snapshot).map_err(failed)?;
    let mut environment = call.environment.clone();
    environment.caller.cwd = cwd.or(environment.caller.cwd);
    let from = Some(snapshot.id().to_owned());
    let (columns, colour) = (call.console.columns, call.console.err.is_on());
    Ok((Request { layers, template, idle_ms, imports, from, columns, colour, ..Request::default() }, environment))
}

/// Paths in flags would be read from another folder than they are typed in: refused, but where they say it all.
fn stands_there(call: &Call<'_>, theirs: &Environment) -> Result<(), Failure> {
    const PATHS: [&str; 5] = ["PATH", "FROM", "FILE", "DIR", "POLICY"];
    let relative = |(flag, value): &&(&'static Flag, Option<std::ffi::OsString>)| {
        let takes = flag.value.is_some_and(|name| PATHS.iter().any(|path| name.contains(path)));
        let takes = flag.to == To::Set || (flag.to != To::Ours && takes);
        takes && value.as_ref().is_some_and(|value| !value.as_encoded_bytes().starts_with(b"/"))
    };
    let found = call.parsed.flags.iter().find(relative);
    let (Some((flag, _)), Some(cwd)) = (found.filter(|_| theirs.cwd != call.environment.cwd), &theirs.cwd) else {
        return Ok(());
    };
    Err(Failure::own(usage(
        "usage/other-folder",
        format!("`--{}` with `--from` in another folder than that of the first sandbox", flag.long),
        format!("the policy is read in {}, where a path or name may mean something else", show_path(cwd)),
        "call it from there, or give an absolute path".to_owned(),
    )))
}

/// A preset's time is for one program: without another it lives for so many milliseconds, or with no end. What is wrong with a
/// policy is told and recorded by the start.
fn lives_on(layers: &mut Vec<PolicyLayer>, environment: &Environment, default_ms: Option<u64>) {
    let Ok(loaded) = load::policy_alone(layers, environment) else { return };
    let is_unsaid = loaded.origins.of(ClauseId::LimitsWall).starts_with("preset ");
    let life = match default_ms {
        Some(ms) if is_unsaid || loaded.policy.limits.wall.is_none() => format!("{ms}ms"),
        None if is_unsaid => "none".to_owned(),
        Some(_) | None => return,
    };
    layers.push(PolicyLayer::Set(format!("limits.wall={life}")));
}

/// What is said of it beside the policy.
fn named(call: &Call<'_>) -> Result<Request, Failure> {
    let labels = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "label");
    let labels = labels.filter_map(|(_, value)| value.as_deref()).map(|label| {
        let label = text(label)?;
        Ok(label.split_once('=').map_or_else(|| (label.clone(), String::new()), |(k, v)| (k.to_owned(), v.to_owned())))
    });
    let modules = call.parsed.flags.iter().filter(|(flag, _)| flag.long == "import");
    let modules: Vec<String> = modules.filter_map(|(_, value)| value.as_deref()).map(text).collect::<Result<_, _>>()?;
    Ok(Request {
        imports: Some(modules).filter(|modules| !modules.is_empty()),
        name: call.parsed.value("name").map(text).transpose()?,
        labels: labels.collect::<Result<_, Failure>>()?,
        columns: call.console.columns,
        colour: call.console.err.is_on(),
        ..Request::default()
    })
}

pub(super) fn started(wanted: &Request, environment: &Environment) -> Result<Result<Created, Refusal>, Failure> {
    start(wanted, Path::new("/proc/self/exe"), environment).map_err(|error| stopped(&error))
}

fn told(call: &Call<'_>, answer: Result<Created, Refusal>) -> Result<u8, Failure> {
    match answer {
        Ok(created) if call.json => call.console.json(&json!(created.info)).map(|_| 0),
        Ok(created) => call.console.data(format!("{}\n", created.info.id).as_bytes()).map(|_| 0),
        Err(refusal) => refused(call, &refusal),
    }
}

/// As `run` says it: the same words were made there.
pub(super) fn refused(call: &Call<'_>, refusal: &Refusal) -> Result<u8, Failure> {
    if call.json {
        call.console.json(&refusal.json)?;
    } else {
        call.console.eprint(&refusal.text);
    }
    Ok(refusal.code)
}

fn supervise(call: &mut Call<'_>) -> Result<u8, Failure> {
    Ok(serve(call.environment, &Ours(call.environment)))
}

/// How the command line plans, and what it says.
struct Ours<'a>(&'a Environment);

impl Caller for Ours<'_> {
    fn plan(&self, layers: &[PolicyLayer], host: &Capabilities) -> Result<Planned, Error> {
        let loaded = load::policy(layers, self.0).map_err(|stop| sandbox::run::refused(stop, None, self.0))?;
        sandbox::run::plan_recorded(loaded, Workload::Agent(agent::ELF), host, self.0)
    }

    fn asker(&self) -> Option<std::sync::Arc<dyn sandbox::Asker>> {
        Some(crate::approvals::asker(self.0))
    }

    fn refusal(&self, stop: Error, request: &Request) -> Refusal {
        let failure = Failure::from(stop);
        let palette = if request.colour { When::Always.decide(true, None, None) } else { Palette::PLAIN };
        let columns = if request.columns == 0 { 100 } else { request.columns };
        Refusal { code: failure.code(), json: failure.json(), text: failure.text(palette, columns) }
    }
}
