//! The process of one container, which the engine takes for the container's own: it has the engine's streams, makes everything
//! ready, lets the program go when it is told to, and ends with its exit code.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use policy::value::{Image, Root, StoredImage};
use policy::{Loaded, OutcomeKind};
use sandbox::fault::Fault;
use sandbox::{Capabilities, Finished, Options, Parked, Sandbox, Workload};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sys::channel::Interest;
use sys::proc::Process;
use sys::signals::Signals;

use super::document::{ContainerSpec, read};
use super::fields::Refused;
use super::store::{Record, Store, short};
use crate::environment::Environment;
use crate::load;
use crate::run::streams;
use crate::ui::{Console, FAILED, Failure, Palette, REFUSED};

/// The hidden command by which the program becomes a supervisor.
pub(crate) const COMMAND: &str = "__oci";
/// Where it answers, once.
const ANSWER: &str = "/proc/self/fd/3";
/// The descriptor of that name.
pub(crate) const ANSWERS: i32 = 3;
/// No document is longer.
const MAX_DOCUMENT: u64 = 4 << 20;
/// How long a caller may take to say what it wants.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// How long whoever lets a program go waits to hear that it runs.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest word of a caller.
const MAX_WORD: u64 = 64;
/// What ends a container that was created and not started.
const ENDING: [i32; 5] = [1, 2, 3, 9, 15];
const KILL: i32 = 9;
/// The signals that are passed on when they are sent to this process itself.
const PASSED: [i32; 4] = [1, 2, 3, 15];

/// What a supervisor says to whoever started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CreateReply {
    /// The container is there, and waits to be started.
    Created,
    /// It is not, for this reason. `group`: the engine's, which was made or entered.
    Failed { code: u8, sentence: String, text: String, group: Option<String> },
}

/// Everything is in force and proven.
struct Ready {
    parked: Parked,
    listener: UnixListener,
    signals: Signals,
}

/// Where a container stands.
enum Stage {
    Created(Box<Parked>),
    Running(Box<Sandbox>),
}

/// Makes a container ready, answers, and serves to its end; the exit code.
pub(crate) fn supervise(store: &Store, id: &str, bundle: &Path, environment: &Environment, console: Console) -> u8 {
    let mut group = None;
    let ready = match make(store, id, bundle, environment, &mut group) {
        Ok(ready) => ready,
        Err(stop) => {
            let (code, sentence, text) = (stop.code(), stop.sentence(), stop.text(Palette::PLAIN, 100));
            answer(&CreateReply::Failed { code, sentence, text, group });
            return code;
        }
    };
    if !answer(&CreateReply::Created) {
        return FAILED;
    }
    match serve(ready, store, id) {
        Ok(End::Ended(finished)) => tell(&finished, console),
        Ok(End::Killed(signal)) => u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX),
        Err(stop) => console.fail(&stop, false),
    }
}

fn answer(answer: &CreateReply) -> bool {
    let said = || -> std::io::Result<()> {
        let mut line = serde_json::to_vec(answer)?;
        line.push(b'\n');
        std::fs::OpenOptions::new().write(true).open(ANSWER)?.write_all(&line)
    };
    said().is_ok()
}

/// `entered`: the engine's group, which whoever started us removes when this fails.
fn make(
    store: &Store,
    id: &str,
    bundle: &Path,
    environment: &Environment,
    entered: &mut Option<String>,
) -> Result<Ready, Failure> {
    let alone = rustix::process::setsid().is_ok()
        && rustix::process::set_parent_process_death_signal(None).is_ok()
        && rustix::process::chdir("/").is_ok();
    if !alone {
        return Err(failed("oci/supervisor", "the container's supervisor", "it cannot live on its own"));
    }
    // Before any thread is made: they inherit the mask.
    let signals = Signals::take(&PASSED).map_err(|error| failed("oci/supervisor", "its signals", error))?;
    let document = document(bundle)?;
    let there = |path: &Path| path.symlink_metadata().is_ok();
    let asked = read(&document, bundle, &there).map_err(|refused| field(&refused))?;
    if let Some(group) = &asked.group {
        *entered = Some(group.clone());
        sys::cgroup::enter(group).map_err(|error| failed("oci/group", "`linux.cgroupsPath`", error))?;
    }
    let annotations = document.get("annotations").and_then(Json::as_object).cloned().unwrap_or_default();
    let (root, group) = (asked.root.clone(), asked.group.clone());
    let parked = parked(asked, environment)?;
    let listening = || -> std::io::Result<UnixListener> {
        let (_folder, path) = short(&store.socket(id))?;
        UnixListener::bind(path)
    };
    let listener = listening().map_err(|error| failed("oci/store", "its socket", error))?;
    let record = record(id, bundle, (root, group), (parked.id(), annotations))?;
    store.write(&record).map_err(|error| failed("oci/store", "its record", error))?;
    Ok(Ready { parked, listener, signals })
}

fn document(bundle: &Path) -> Result<Json, Failure> {
    let path = bundle.join("config.json");
    let read = || -> std::io::Result<Json> {
        let mut bytes = Vec::new();
        std::fs::File::open(&path)?.take(MAX_DOCUMENT).read_to_end(&mut bytes)?;
        Ok(serde_json::from_slice(&bytes)?)
    };
    read().map_err(|error| failed("oci/bundle", &path.display().to_string(), error))
}

/// Makes the sandbox as far as *go*.
fn parked(asked: ContainerSpec, environment: &Environment) -> Result<Parked, Failure> {
    let host = Capabilities::probe_with(environment.services());
    let mut loaded =
        load::policy(&asked.layers, environment).map_err(|stop| sandbox::run::refused(stop, None, environment))?;
    within(&mut loaded, &asked);
    let argv = asked.argv.into_iter().map(Into::into).collect();
    let planned = sandbox::run::plan_recorded(loaded, Workload::Argv(argv), &host, environment)?;
    Ok(sandbox::park(planned, environment, &host, Options::new(streams(true, false)))?)
}

/// The bundle's tree becomes the root, read-only.
fn within(loaded: &mut Loaded, asked: &ContainerSpec) {
    let policy = &mut loaded.policy;
    policy.name = "oci".to_owned();
    let (name, number) = &asked.user;
    policy.process.user.clone_from(name);
    let found = StoredImage {
        tree: asked.root.clone(),
        user: Some(*number),
        workdir: Some(asked.cwd.clone()),
        lent: true,
        ..StoredImage::default()
    };
    policy.fs.root = Root::Image(Image { name: "bundle".to_owned(), found: Ok(found) });
    let env: &mut BTreeMap<String, String> = &mut policy.env.set;
    env.entry("PATH".to_owned())
        .or_insert_with(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    let home = if *number == 0 { "/root" } else { "/" };
    env.entry("HOME".to_owned()).or_insert_with(|| home.to_owned());
}

fn record(
    id: &str,
    bundle: &Path,
    (rootfs, group): (std::path::PathBuf, Option<String>),
    (run, annotations): (&str, Map<String, Json>),
) -> Result<Record, Failure> {
    let lost = |error: sys::error::Error| failed("oci/supervisor", "its own process", error);
    Ok(Record {
        id: id.to_owned(),
        pid: sys::caller::pid(),
        began: Process::own().and_then(|own| own.start_time()).map_err(lost)?,
        bundle: bundle.to_owned(),
        run: run.to_owned(),
        created: jiff::Timestamp::now().to_string(),
        rootfs,
        group,
        annotations,
    })
}

/// How a container ended.
enum End {
    Ended(Box<Finished>),
    /// It was never started.
    Killed(i32),
}

fn serve(ready: Ready, store: &Store, id: &str) -> Result<End, Failure> {
    let Ready { parked, listener, signals } = ready;
    let mut stage = Stage::Created(Box::new(parked));
    loop {
        let ready = {
            let ended = if let Stage::Running(sandbox) = &stage { Some(sandbox.ended()) } else { None };
            let all = [Some(signals.as_fd()), Some(listener.as_fd()), ended];
            let all: Vec<Interest<'_>> = all.into_iter().flatten().map(|fd| Interest { fd, write: false }).collect();
            sys::channel::wait(&all, None).map_err(|error| failed("oci/supervisor", "waiting", error))?
        };
        let is = |index: usize| ready.get(index) == Some(&true);
        if is(2) {
            return ended(stage);
        }
        let signal = if is(0) { signals.next() } else { None };
        if let Some(end) = signal.and_then(|signal| pass(&stage, signal)) {
            return Ok(end);
        }
        if is(1)
            && let Ok((stream, _)) = listener.accept()
        {
            let word = read_request(&stream);
            let (next, said) = heed(stage, &word, store, id)?;
            say(&stream, &said);
            stage = match next {
                Ok(stage) => stage,
                Err(end) => return Ok(end),
            };
        }
    }
}

/// Waits for what has ended.
fn ended(stage: Stage) -> Result<End, Failure> {
    match stage {
        Stage::Running(sandbox) => Ok(End::Ended(Box::new(sandbox.wait()?))),
        Stage::Created(_) => Ok(End::Killed(KILL)),
    }
}

/// What a caller wants. Whoever is slow or says nothing is not waited for.
fn read_request(stream: &UnixStream) -> String {
    let mut line = String::new();
    let mut read = || -> std::io::Result<usize> {
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        BufReader::new(stream.take(MAX_WORD)).read_line(&mut line)
    };
    match read() {
        Ok(_) => line.trim().to_owned(),
        Err(_gone) => String::new(),
    }
}

fn say(mut stream: &UnixStream, said: &str) {
    if stream.write_all(format!("{said}\n").as_bytes()).is_err() {
        // Whoever asked is gone.
    }
}

/// Where it stands now, or how it ended, and what is said.
type Heeded = (Result<Stage, End>, String);

fn heed(stage: Stage, word: &str, store: &Store, id: &str) -> Result<Heeded, Failure> {
    let ok = "ok".to_owned();
    if let Some(signal) = word.strip_prefix("signal ").and_then(|number| number.parse::<i32>().ok()) {
        return Ok((pass(&stage, signal).map_or(Ok(stage), Err), ok));
    }
    match (word, stage) {
        ("start", Stage::Created(parked)) => {
            let sandbox = parked.go()?;
            store.starts(id).map_err(|error| failed("oci/store", "its record", error))?;
            if sandbox.has_begun(BEGIN_TIMEOUT) != Some(false) {
                return Ok((Ok(Stage::Running(Box::new(sandbox))), ok));
            }
            let finished = sandbox.wait()?;
            let said = not_its_own(&finished).unwrap_or_else(|| finished.report.outcome.message.clone());
            Ok((Err(End::Ended(Box::new(finished))), said))
        }
        ("start", running @ Stage::Running(_)) => Ok((Ok(running), "it was started already".to_owned())),
        (_, stage) => Ok((Ok(stage), "that is nothing that can be asked".to_owned())),
    }
}

/// Passes a signal on; the end of one that was not started yet.
fn pass(stage: &Stage, signal: i32) -> Option<End> {
    match stage {
        Stage::Created(_) => ENDING.contains(&signal).then_some(End::Killed(signal)),
        Stage::Running(sandbox) => {
            match u8::try_from(signal) {
                Ok(_) if signal == KILL => sandbox.kill(),
                Ok(number) => sandbox.signal(number),
                Err(_no_signal) => {}
            }
            None
        }
    }
}

/// The program's exit code. What is not its own is said on its standard error, where an engine keeps it.
fn tell(finished: &Finished, console: Console) -> u8 {
    let outcome = &finished.report.outcome;
    let own = finished.failed.is_empty();
    if let Some(why) = not_its_own(finished) {
        console.eprint(&format!("fumehood: {why}"));
    } else if !matches!(outcome.kind, OutcomeKind::Exited | OutcomeKind::Signalled) {
        console.eprint(&format!("fumehood: {}", outcome.message));
    }
    if own { u8::try_from(outcome.exit_code()).unwrap_or(FAILED) } else { FAILED }
}

/// Why the program did not start, or what else went wrong outside of it.
fn not_its_own(finished: &Finished) -> Option<String> {
    let why = finished.not_started.iter().chain(&finished.failed).next()?;
    Some(format!("{}: {}", why.what, why.why))
}

/// A field that refuses the container.
fn field(refused: &Refused) -> Failure {
    let Refused { field, why } = refused;
    Failure::Faults {
        code: REFUSED,
        faults: vec![Fault {
            id: "oci/field",
            what: format!("`{field}` cannot be had"),
            place: format!("config.json: {field}"),
            why: sandbox::fault::show_text(why),
            fix: "leave it out, or ask for what is held (docs/reference/oci.md)".to_owned(),
        }],
    }
}

/// Our own failure.
fn failed(id: &'static str, what: &str, error: impl std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id,
        what: format!("{}: {error}", sandbox::fault::show_text(what)),
        place: "the container's supervisor".to_owned(),
        why: "nothing was run".to_owned(),
        fix: "see what is said of this id by `fumehood explain`".to_owned(),
    })
}
