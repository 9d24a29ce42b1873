//! `fumehood oci`: a runtime with the command line that engines of containers call.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use backends::GROUPS;
use sandbox::fault::{Fault, show_text};
use serde_json::json;
use sys::cgroup::{CgroupError, Hierarchies};
use sys::command::Command;

use super::args::{self, Flag, Positionals, To, usage};
use super::spec::{Call, Spec};
use crate::environment::Environment;
use crate::oci::client;
use crate::oci::store::{Record, Status, Store, is_id};
use crate::oci::supervisor::{ANSWERS, COMMAND, CreateReply, supervise};
use crate::ui::{FAILED, Failure, Table};

/// The name by which the program is called as a runtime without its own command before.
pub(super) const CALLED: &str = "fumehood-oci";
/// Where containers are remembered unless the engine says so.
const ROOT: &str = "/run/fumehood-oci";
/// The newest version of the specification whose fields are known.
const SPEC_VERSION: &str = "1.2.0";
/// No answer of a supervisor is longer.
const MAX_ANSWER: u64 = 1 << 20;
/// How long the end of a container may take.
const ENDS: Duration = Duration::from_secs(30);
/// How often, and after what pause, the group of a container that was refused is tried to be removed.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(50);

const GLOBAL: &[Flag] = &[
    Flag::new("root", Some("DIR"), To::Ours, "Where containers are remembered (/run/fumehood-oci)"),
    Flag::new("log", Some("FILE"), To::Ours, "Write errors there, beside stderr"),
    Flag::new("log-format", Some("FORMAT"), To::Ours, "Of that file: text (default) or json")
        .choices(&["text", "json"]),
    Flag::new("debug", None, To::Ours, "Taken as other runtimes take it; nothing more is said"),
    Flag::new("systemd-cgroup", None, To::Ours, "Refused: groups of systemd are not made here"),
    Flag::new("version", None, To::Ours, "Say the version of the runtime and of its specification"),
];
const CREATE: &[Flag] = &[
    Flag::new("bundle", Some("DIR"), To::Ours, "The folder of `config.json` (the current one)").short(b'b'),
    Flag::new("pid-file", Some("FILE"), To::Ours, "Write the container's process there"),
    Flag::new("console-socket", Some("PATH"), To::Ours, "Refused: no terminal leads into a container"),
    Flag::new("no-pivot", None, To::Ours, "Refused: a root is always pivoted"),
];
const KILL: &[Flag] = &[Flag::new("all", None, To::Ours, "As without: a container has one program").short(b'a')];
const DELETE: &[Flag] =
    &[Flag::new("force", None, To::Ours, "End it first, and say nothing of one unknown").short(b'f')];
const LIST: &[Flag] = &[
    Flag::new("quiet", None, To::Ours, "Ids alone").short(b'q'),
    Flag::new("format", Some("FORMAT"), To::Ours, "table (default) or json").short(b'f').choices(&["table", "json"]),
];

pub(super) const SPEC: Spec = Spec {
    path: &["oci"],
    about: "Be a runtime (OCI) for podman, containerd and their like",
    usage: "[FLAGS] create|start|state|kill|delete|list|features [FLAGS] [ID] [SIGNAL]",
    more: "Called by an engine as root, by the name `fumehood-oci` (a link to this program), as `podman --cgroup-manager cgroupfs\n\
           --runtime PATH run --network none --read-only IMAGE`. A container is a run of the container tier; each field of its\n\
           document is held, changes nothing here, or refuses it by its name.\n\
           create [--bundle DIR] [--pid-file FILE] ID, start ID, state ID, kill ID [SIGNAL], delete [--force] ID, list, features.\n\
           Exit code 0; 126 if the container is refused, 125 for everything else.",
    tables: &[GLOBAL],
    words: Positionals::EndFlags,
    hidden: false,
    run: oci,
};

pub(super) const SUPERVISE: Spec = Spec {
    path: &[COMMAND],
    about: "Part of oci",
    usage: "",
    more: "",
    tables: &[],
    words: Positionals::EndFlags,
    hidden: true,
    run: served,
};

fn oci(call: &mut Call<'_>) -> Result<u8, Failure> {
    if call.parsed.has("version") {
        let text = format!("{CALLED} version {}\nspec: {SPEC_VERSION}\n", env!("CARGO_PKG_VERSION"));
        return call.console.data(text.as_bytes()).map(|_| 0);
    }
    let done = command(call);
    if let Err(stop) = &done {
        log(call, &stop.sentence());
    }
    done
}

/// As other runtimes log: an engine shows the last line of it.
fn log(call: &Call<'_>, words: &str) {
    let Some(path) = call.parsed.value("log") else { return };
    let is_json = call.parsed.value("log-format").is_some_and(|format| format == "json");
    let time = jiff::Timestamp::now().to_string();
    let line = if is_json {
        json!({ "level": "error", "msg": words, "time": time }).to_string()
    } else {
        format!("time=\"{time}\" level=error msg={}", json!(words))
    };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    if file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes())).is_err() {
        // It is said on stderr as well.
    }
}

fn command(call: &Call<'_>) -> Result<u8, Failure> {
    if call.parsed.has("systemd-cgroup") {
        return Err(wrong("`--systemd-cgroup` cannot be had", "use the engine's manager `cgroupfs`"));
    }
    let root = call.parsed.value("root").map_or_else(|| PathBuf::from(ROOT), PathBuf::from);
    let store = Store::at(absolute(&root, call.environment));
    let mut words = call.parsed.words.iter();
    let name = words.next().and_then(|word| word.to_str()).unwrap_or_default();
    let rest = words.cloned();
    match name {
        "create" | "start" if sys::caller::euid() != 0 => {
            Err(wrong(&format!("`{name}` is root's alone"), "call the engine as root, e.g. by `sudo`"))
        }
        "create" => create(call, &store, &parse_words(rest, CREATE, 1)?),
        "start" => start(&store, &parse_words(rest, &[], 1)?),
        "state" => state(call, &store, &parse_words(rest, &[], 1)?),
        "kill" => kill(&store, &parse_words(rest, KILL, 2)?),
        "delete" => delete(&store, &parse_words(rest, DELETE, 1)?),
        "list" => list(call, &store, &parse_words(rest, LIST, 0)?),
        "features" => features(call),
        other => {
            Err(wrong(&format!("`{}` is no command of a runtime here", show_text(other)), "see `fumehood oci --help`"))
        }
    }
}

fn parse_words(
    words: impl Iterator<Item = OsString>,
    table: &'static [Flag],
    most: usize,
) -> Result<args::Parsed, Failure> {
    let mut parsed = args::parse(words, &[table], Positionals::Mixed(most));
    if parsed.faults.is_empty() {
        return Ok(parsed);
    }
    Err(Failure::Faults { code: FAILED, faults: std::mem::take(&mut parsed.faults) })
}

fn absolute(path: &Path, environment: &Environment) -> PathBuf {
    environment.cwd.as_deref().unwrap_or(Path::new("/")).join(path)
}

/// The id that was named.
fn id(parsed: &args::Parsed) -> Result<&str, Failure> {
    let id = parsed.words.first().and_then(|word| word.to_str());
    id.filter(|id| is_id(id))
        .ok_or_else(|| wrong("there is no id of a container", "letters, digits, `_`, `-`, `.` and `+`"))
}

fn create(call: &Call<'_>, store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let id = id(parsed)?;
    for (flag, fix) in [("console-socket", "leave out the terminal (`-t`)"), ("no-pivot", "leave it out")] {
        if parsed.has(flag) {
            return Err(wrong(&format!("`--{flag}` cannot be had"), fix));
        }
    }
    let bundle = absolute(Path::new(parsed.value("bundle").unwrap_or_default()), call.environment);
    store.claim(id).map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            fault("oci/exists", format!("container `{id}` already exists"), "delete it first")
        } else {
            unreachable_store(&error)
        }
    })?;
    let made = started(call, store, (id, &bundle)).and_then(|pid| match (pid, parsed.value("pid-file")) {
        (Ok(pid), Some(file)) => write_pid(Path::new(file), pid).map(|()| 0).map_err(|error| {
            // Nobody would know of it.
            if let Ok(Some(record)) = store.find(id) {
                drop(end(store, &record));
            }
            fault("oci/store", format!("the file of the container's process: {error}"), "name one that can be written")
        }),
        (Ok(_), None) => Ok(0),
        (Err(code), _) => Ok(code),
    });
    if !matches!(made, Ok(0)) {
        drop(store.remove(id));
    }
    made
}

/// As a whole: an engine reads it as soon as it is there.
fn write_pid(path: &Path, pid: i32) -> std::io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    std::fs::write(&beside, pid.to_string())?;
    std::fs::rename(&beside, path)
}

/// Starts a supervisor, which has our streams, and waits until all is ready; its number, or the exit code of a refusal that was
/// told.
fn started(call: &Call<'_>, store: &Store, (id, bundle): (&str, &Path)) -> Result<Result<i32, u8>, Failure> {
    let lost = |error: &dyn std::fmt::Display| fault("oci/supervisor", format!("its supervisor: {error}"), "try again");
    let (ours, theirs) = sys::channel::pipe().map_err(|error| lost(&error))?;
    let mut command = Command::new("/proc/self/exe").arg(COMMAND).arg(store.root()).arg(bundle).arg(id);
    for (name, value) in &call.environment.env {
        let mut variable = name.clone();
        variable.push("=");
        variable.push(value);
        command = command.variable(variable);
    }
    let (input, output, errors) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let fds = [(input.as_fd(), 0), (output.as_fd(), 1), (errors.as_fd(), 2), (theirs.as_fd(), ANSWERS)];
    let child = command.directory("/").start_with(&fds).map_err(|error| lost(&error))?;
    drop(theirs);
    let mut line = Vec::new();
    let read = BufReader::new(std::fs::File::from(ours).take(MAX_ANSWER)).read_until(b'\n', &mut line);
    match read.map(|_| serde_json::from_slice(&line)) {
        Ok(Ok(CreateReply::Created)) => Ok(Ok(child.pid)),
        Ok(Ok(CreateReply::Failed { code, sentence, text, group })) => {
            drop(sys::pidfd::wait(&child.pidfd));
            if let Some(group) = group {
                left(&group);
            }
            log(call, &sentence);
            call.console.eprint(&text);
            Ok(Err(code))
        }
        Ok(Err(_)) | Err(_) => {
            drop(sys::pidfd::send_signal(&child.pidfd, 9));
            Err(lost(&format!("it ended without an answer: {:?}", sys::pidfd::wait(&child.pidfd))))
        }
    }
}

/// `fumehood __oci ROOT BUNDLE ID`
fn served(call: &mut Call<'_>) -> Result<u8, Failure> {
    let words = std::mem::take(&mut call.parsed.words);
    let [root, bundle, id] = words.as_slice() else {
        return Err(wrong("it is started by `fumehood oci create`, and by nobody else", "use that"));
    };
    let store = Store::at(PathBuf::from(root));
    Ok(supervise(&store, &id.to_string_lossy(), Path::new(bundle), call.environment, call.console))
}

fn start(store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let record = find(store, id(parsed)?)?;
    match store.status(&record) {
        Status::Created => {}
        other @ (Status::Running | Status::Stopped) => {
            return Err(stands(&record, other, "oci/not-created", "only one that was created and not started can be"));
        }
    }
    client::ask(store, &record.id, "start").map_err(|error| {
        fault("oci/supervisor", format!("container `{}` was not started: {error}", record.id), "see its log")
    })?;
    Ok(0)
}

fn state(call: &Call<'_>, store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let record = find(store, id(parsed)?)?;
    call.console.json(&shown(store, &record)).map(|_| 0)
}

fn shown(store: &Store, record: &Record) -> serde_json::Value {
    let status = store.status(record);
    json!({
        "ociVersion": "1.0.2",
        "id": record.id,
        "status": status.as_str(),
        "pid": if status == Status::Stopped { 0 } else { record.pid },
        "bundle": record.bundle,
        "rootfs": record.rootfs,
        "created": record.created,
        "annotations": record.annotations,
        "owner": "",
    })
}

fn kill(store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let record = find(store, id(parsed)?)?;
    let word = parsed.words.get(1).and_then(|word| word.to_str()).unwrap_or("TERM");
    let signal = server::signal_number(word)
        .ok_or_else(|| wrong(&format!("`{}` is no signal", show_text(word)), "use a number, or a name as TERM"))?;
    if store.status(&record) == Status::Stopped {
        if parsed.has("all") {
            return Ok(0);
        }
        return Err(stands(&record, Status::Stopped, "oci/not-running", "container not running"));
    }
    match client::ask(store, &record.id, &format!("signal {signal}")) {
        Err(error) if store.status(&record) != Status::Stopped => {
            Err(fault("oci/supervisor", format!("container `{}` was not told: {error}", record.id), "try again"))
        }
        // It ended meanwhile.
        Ok(()) | Err(_) => Ok(0),
    }
}

fn delete(store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let (id, force) = (id(parsed)?, parsed.has("force"));
    let found = store.find(id).map_err(|error| unreachable_store(&error))?;
    let Some(record) = found else {
        // One that was never made as a whole leaves a folder.
        return if force { forgotten(store, id) } else { Err(unknown(id)) };
    };
    if !force && store.status(&record) == Status::Running {
        return Err(stands(&record, Status::Running, "oci/not-stopped", "end it first, or use `--force`"));
    }
    end(store, &record)?;
    forgotten(store, id)
}

/// Ends one, and removes the groups that it had. A supervisor that was killed leaves the run's.
fn end(store: &Store, record: &Record) -> Result<(), Failure> {
    let status = store.status(record);
    if status != Status::Stopped {
        drop(client::ask(store, &record.id, "signal 9"));
        if !client::gone(record, ENDS) {
            return Err(stands(record, status, "oci/not-stopped", "it does not end"));
        }
    }
    let Some(group) = &record.group else { return Ok(()) };
    let ended = || {
        let above = group.trim_end_matches('/').rsplit_once('/').map_or("", |(above, _)| above);
        // Where processes may be in leaves alone, the run's group is beside.
        for path in [group.as_str(), if above.is_empty() { "/" } else { above }] {
            if let Some(left) = Hierarchies::of(path)?.open(GROUPS, &record.run)? {
                left.end(ENDS)?;
            }
        }
        sys::cgroup::remove(group)
    };
    ended().map_err(|error: CgroupError| {
        let what = format!("the control group of container `{}`: {error}", record.id);
        fault("oci/group", what, "end what is in it, and try again")
    })
}

/// Removes the group of one that was refused: what was in it may still be dying. One that others use stays.
fn left(group: &str) {
    for _ in 0..TRIES {
        match sys::cgroup::remove(group) {
            Ok(()) => return,
            Err(_busy) => drop(sys::channel::wait(&[], Some(PAUSE))),
        }
    }
}

fn forgotten(store: &Store, id: &str) -> Result<u8, Failure> {
    store.remove(id).map(|()| 0).map_err(|error| unreachable_store(&error))
}

fn list(call: &Call<'_>, store: &Store, parsed: &args::Parsed) -> Result<u8, Failure> {
    let all = store.all().map_err(|error| unreachable_store(&error))?;
    if parsed.has("quiet") {
        let ids: String = all.iter().map(|record| format!("{}\n", record.id)).collect();
        return call.console.data(ids.as_bytes()).map(|_| 0);
    }
    if call.json || parsed.value("format").is_some_and(|format| format == "json") {
        return call.console.json(&all.iter().map(|record| shown(store, record)).collect::<Vec<_>>()).map(|_| 0);
    }
    let mut table = Table::new(&["ID", "PID", "STATUS", "BUNDLE", "CREATED"]);
    for record in &all {
        let bundle = show_text(&record.bundle.to_string_lossy());
        let (pid, status) = (record.pid.to_string(), store.status(record).as_str());
        table.painted([
            (record.id.as_str(), None),
            (&pid, None),
            (status, None),
            (&bundle, None),
            (&record.created, None),
        ]);
    }
    call.console.data(table.render(call.console.out, 0, call.console.columns).as_bytes()).map(|_| 0)
}

fn features(call: &Call<'_>) -> Result<u8, Failure> {
    let none: [&str; 0] = [];
    let value = json!({
        "ociVersionMin": "1.0.0",
        "ociVersionMax": SPEC_VERSION,
        "hooks": none,
        "mountOptions": ["bind", "rbind", "ro", "nosuid", "nodev", "noexec", "private", "rprivate", "relatime", "size"],
        "linux": {
            "namespaces": ["cgroup", "ipc", "mount", "network", "pid", "uts"],
            "capabilities": none,
            "cgroup": { "v1": true, "v2": true, "systemd": false, "systemdUser": false },
            "seccomp": { "enabled": true, "actions": ["SCMP_ACT_ALLOW", "SCMP_ACT_ERRNO"] },
        },
    });
    call.console.json(&value).map(|_| 0)
}

fn find(store: &Store, id: &str) -> Result<Record, Failure> {
    let found = store.find(id).map_err(|error| unreachable_store(&error))?;
    found.ok_or_else(|| unknown(id))
}

fn unknown(id: &str) -> Failure {
    fault("oci/unknown", format!("container `{id}` does not exist"), "see `fumehood oci list`")
}

fn stands(record: &Record, status: Status, id: &'static str, why: &str) -> Failure {
    Failure::own(Fault {
        id,
        what: format!("container `{}` is {}", record.id, status.as_str()),
        place: "`fumehood oci`".to_owned(),
        why: why.to_owned(),
        fix: "see `fumehood oci state`".to_owned(),
    })
}

fn unreachable_store(error: &std::io::Error) -> Failure {
    fault("oci/store", format!("what is remembered of containers: {error}"), "name a folder of your own by `--root`")
}

fn fault(id: &'static str, what: String, fix: &str) -> Failure {
    Failure::own(Fault {
        id,
        what,
        place: "`fumehood oci`".to_owned(),
        why: "nothing else was done".to_owned(),
        fix: fix.to_owned(),
    })
}

fn wrong(what: &str, fix: &str) -> Failure {
    Failure::own(usage("usage/oci", what.to_owned(), "a runtime here cannot do it".to_owned(), fix.to_owned()))
}
