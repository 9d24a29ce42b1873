//! What a body of `POST /containers/create` asks for, as layers of a policy and a program; or the field that nothing here holds.
//!
//! Pure. A field is one of three: it becomes a clause, it says what is so anyway (and is accepted with that value alone), or it
//! is refused by its name. What no field says comes from the ceiling, or from [`Defaults`] where the ceiling has no limit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use agent::words::{Program, Size};
use policy::json::toml_text;
use policy::value::{NetMode, Policy};
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json};

use super::held::Held;
use super::host::{self, Host};
use crate::backend::Image;

/// A field that cannot be had, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// As in the body, e.g. `HostConfig.Privileged`.
    pub(super) field: String,
    pub(super) why: String,
}

impl Refused {
    pub(super) fn new(field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { field: field.into(), why: why.into() }
    }
}

/// What a container is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ContainerSpec {
    /// Upon `strict`.
    pub(super) layers: Vec<PolicyLayer>,
    /// Its main program.
    pub(super) program: Program,
    pub(super) labels: BTreeMap<String, String>,
    /// Number of the signal of `stop`.
    pub(super) stop_signal: u8,
    /// Seconds that `stop` waits after it.
    pub(super) stop_seconds: u64,
    pub(super) auto_remove: bool,
    /// Its input ends with the first who was attached.
    pub(super) stdin_once: bool,
    /// What is so, whatever the body says.
    pub(super) held: Held,
    /// What is stricter here than with Docker.
    pub(super) warnings: Vec<String>,
}

/// What a body is read against.
pub(super) struct BodyContext<'a> {
    pub(super) image: &'a Image,
    pub(super) ceiling: &'a Policy,
    /// An empty folder of ours.
    pub(super) empty: &'a Path,
    /// Whether the image has something at an absolute path.
    pub(super) has: &'a dyn Fn(&str) -> bool,
    /// The name of its host where the body gives none.
    pub(super) hostname: &'a str,
}

/// Fields that are read, or that change nothing here: a description, or how a client attaches.
const KNOWN: &[&str] = &[
    "Hostname",
    "User",
    "AttachStdin",
    "AttachStdout",
    "AttachStderr",
    "ExposedPorts",
    "Tty",
    "OpenStdin",
    "StdinOnce",
    "Env",
    "Cmd",
    "Healthcheck",
    "Image",
    "Volumes",
    "WorkingDir",
    "Entrypoint",
    "NetworkDisabled",
    "Labels",
    "StopSignal",
    "StopTimeout",
    "HostConfig",
    "NetworkingConfig",
];
/// A terminal whose size nobody said.
const SIZE: Size = Size { rows: 24, cols: 80 };
const TERM: u8 = 15;
/// Seconds between the signal of `stop` and the end.
const STOP_SECONDS: u64 = 10;

pub(super) type Fields = Map<String, Json>;

/// The layers and the program of a body.
///
/// # Errors
/// The first field that cannot be had.
pub(super) fn map(body: &Fields, context: &BodyContext<'_>) -> Result<ContainerSpec, Refused> {
    let top = Reader { fields: body, table: "" };
    top.others_say_nothing(KNOWN)?;
    let none = Fields::new();
    let fields = match body.get("HostConfig") {
        None | Some(Json::Null) => &none,
        Some(value) => value.as_object().ok_or_else(|| Refused::new("HostConfig", "it is no table"))?,
    };
    let host = Reader { fields, table: "HostConfig." };
    let workdir = workdir(&top, context.image)?;
    let mut mapped = ContainerSpec {
        labels: top.texts("Labels")?,
        stop_signal: stop_signal(&top)?,
        stop_seconds: seconds_to_stop(&top)?,
        auto_remove: host.flag("AutoRemove")?,
        stdin_once: top.flag("StdinOnce")?,
        ..ContainerSpec::default()
    };
    healthcheck(&top)?;
    networks(&top)?;
    user(&top, context, &mut mapped)?;
    let hostname = top.text("Hostname")?.unwrap_or(context.hostname);
    set(&mut mapped.layers, "process.hostname", &toml_text(hostname));
    network(&top, &host, context, &mut mapped)?;
    environment(&top, context, &mut mapped.layers)?;
    Host { reader: host, context, top: &top, workdir: &workdir }.map(&mut mapped)?;
    let tty = top.flag("Tty")?.then(|| host::console(&host).unwrap_or(SIZE));
    let argv = argv(&top, context.image)?;
    mapped.program =
        Program { argv, cwd: Some(workdir.path), tty, stdin: top.flag("OpenStdin")?, ..Program::default() };
    Ok(mapped)
}

/// Variables that every program here has.
const VARIABLES: [&str; 7] = ["PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", "PYTHONUNBUFFERED"];

/// The variables. One without a value is one that Docker takes away, which nothing here does.
fn environment(top: &Reader<'_>, context: &BodyContext<'_>, layers: &mut Vec<PolicyLayer>) -> Result<(), Refused> {
    let asked = top.list("Env")?;
    let name = |line: &str| line.split_once('=').map(|(name, _)| name.to_owned());
    for line in &asked {
        let why = match name(line) {
            Some(name) if name.is_empty() => format!("`{line}` names no variable"),
            Some(_) if line.contains('\0') => "no variable can have a NUL".to_owned(),
            Some(_) => {
                layers.push(PolicyLayer::Flag { name: "--env".to_owned(), value: line.clone() });
                continue;
            }
            None => {
                let is_there = |one: &String| name(one).as_ref() == Some(line);
                if !VARIABLES.contains(&line.as_str()) && !context.image.env.iter().chain(&asked).any(is_there) {
                    continue;
                }
                format!(
                    "`{line}` without a value would take it away, which nothing here does; give it one, or `{line}=`"
                )
            }
        };
        return Err(Refused::new("Env", why));
    }
    Ok(())
}

/// Where the program begins, and whether the body says so.
pub(super) struct Workdir {
    pub(super) path: String,
    pub(super) asked: bool,
}

fn workdir(top: &Reader<'_>, image: &Image) -> Result<Workdir, Refused> {
    if let Some(path) = top.text("WorkingDir")? {
        return match inside(path) {
            Some(path) => Ok(Workdir { path, asked: true }),
            None => Err(Refused::new("WorkingDir", format!("`{path}` is no absolute path without `..`"))),
        };
    }
    let of_image = image.workdir.as_deref().and_then(inside);
    Ok(Workdir { path: of_image.unwrap_or_else(|| "/".to_owned()), asked: false })
}

/// An absolute path without `.` and `..`, without a slash at its end.
pub(super) fn inside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let fits = !parts.contains(&"..") && !path.contains('\0');
    fits.then(|| format!("/{}", parts.join("/")))
}

/// As Docker has it: an entrypoint of the body takes the image's command away too.
fn argv(top: &Reader<'_>, image: &Image) -> Result<Vec<String>, Refused> {
    let (entrypoint, cmd) = (top.list("Entrypoint")?, top.list("Cmd")?);
    let argv: Vec<String> = if entrypoint.is_empty() {
        let cmd = if cmd.is_empty() { image.cmd.clone() } else { cmd };
        image.entrypoint.iter().cloned().chain(cmd).collect()
    } else {
        entrypoint.into_iter().filter(|word| !word.is_empty()).chain(cmd).collect()
    };
    if argv.is_empty() { Err(Refused::new("Cmd", "no command specified, and the image has none")) } else { Ok(argv) }
}

fn stop_signal(top: &Reader<'_>) -> Result<u8, Refused> {
    let Some(text) = top.text("StopSignal")? else { return Ok(TERM) };
    signal(text).ok_or_else(|| Refused::new("StopSignal", format!("`{text}` is no signal")))
}

/// Capabilities as the kernel knows them, without `CAP_`.
#[rustfmt::skip]
pub const CAPABILITIES: [&str; 41] = [
    "CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER", "SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT",
    "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE",
    "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP", "MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ",
    "PERFMON", "BPF", "CHECKPOINT_RESTORE",
];

/// A signal by number or name, with `SIG` or without.
#[must_use]
pub fn signal(text: &str) -> Option<u8> {
    if let Ok(number) = text.parse::<u8>() {
        return (1..=64).contains(&number).then_some(number);
    }
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let names = [
        ("HUP", 1),
        ("INT", 2),
        ("QUIT", 3),
        ("ABRT", 6),
        ("KILL", 9),
        ("USR1", 10),
        ("SEGV", 11),
        ("USR2", 12),
        ("PIPE", 13),
        ("ALRM", 14),
        ("TERM", 15),
        ("CONT", 18),
        ("STOP", 19),
        ("TSTP", 20),
        ("WINCH", 28),
    ];
    names.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
}

/// A health check is a program that somebody starts again and again; nobody here does.
fn healthcheck(top: &Reader<'_>) -> Result<(), Refused> {
    let Some(value) = top.fields.get("Healthcheck") else { return Ok(()) };
    let test = value.get("Test").and_then(Json::as_array);
    let is_none = test.is_some_and(|words| words.first().and_then(Json::as_str) == Some("NONE"));
    if is_none || fields_say_nothing(value) {
        return Ok(());
    }
    Err(Refused::new("Healthcheck", "nobody here runs health checks; use exec"))
}

/// As Docker has it: 0 is at once, and below zero the signal alone.
fn seconds_to_stop(top: &Reader<'_>) -> Result<u64, Refused> {
    let is_zero = top.fields.get("StopTimeout").and_then(Json::as_i64) == Some(0);
    let asked = top.number("StopTimeout")?.or(is_zero.then_some(0));
    Ok(asked.map_or(STOP_SECONDS, |asked| u64::try_from(asked).unwrap_or(u64::from(u32::MAX))))
}

/// Clients name the network `default` here, without saying anything of it.
fn networks(top: &Reader<'_>) -> Result<(), Refused> {
    let Some(config) = top.table("NetworkingConfig")? else { return Ok(()) };
    let config = Reader { fields: config, table: "NetworkingConfig." };
    config.others_say_nothing(&["EndpointsConfig"])?;
    let Some(endpoints) = config.table("EndpointsConfig")? else { return Ok(()) };
    match endpoints
        .iter()
        .find(|(name, said)| !matches!(name.as_str(), "default" | "none") || !fields_say_nothing(said))
    {
        Some((name, _)) => {
            Err(Refused::new(format!("NetworkingConfig.EndpointsConfig.{name}"), "there are no networks to join"))
        }
        None => Ok(()),
    }
}

/// No network is as Docker's `none`: a loopback of its own. A network that nobody asked for by name is none, and that is told.
fn network(
    top: &Reader<'_>,
    host: &Reader<'_>,
    context: &BodyContext<'_>,
    mapped: &mut ContainerSpec,
) -> Result<(), Refused> {
    let disabled = top.flag("NetworkDisabled")?;
    match host.text("NetworkMode")? {
        Some("none") => {}
        None | Some("default") => {
            if !disabled {
                let told = "no network: none was asked for by name, and a container here has its own loopback alone";
                mapped.warnings.push(told.to_owned());
            }
        }
        Some(mode) => {
            let why = format!("`{mode}` would reach out of the sandbox; leave it out, or say `none`");
            return Err(Refused::new("HostConfig.NetworkMode", why));
        }
    }
    let closed = disabled || context.ceiling.net.mode == NetMode::None;
    set(&mut mapped.layers, "net.mode", if closed { "none" } else { "loopback" });
    Ok(())
}

/// A policy names who a program is, and gives him the number that the image has for him; or 1000.
fn user(top: &Reader<'_>, context: &BodyContext<'_>, mapped: &mut ContainerSpec) -> Result<(), Refused> {
    let no = |why: String| Err(Refused::new("User", why));
    let people = &context.image.people;
    let found = |name: &str| match name.parse::<u32>() {
        Ok(number) => people.iter().find(|(_, theirs)| *theirs == number).cloned(),
        Err(_) => people.iter().find(|(theirs, _)| theirs == name).cloned(),
    };
    let Some(text) = top.text("User")? else {
        let of_image = context.image.user.as_deref().unwrap_or_default();
        let name = of_image.split(':').next().unwrap_or_default();
        if matches!(name, "" | "0" | "root") {
            mapped.warnings.push("the program is user 1000 with its own group, and not root".to_owned());
        }
        let known = found(name).filter(|(_, number)| *number != 0);
        let (word, number) = known.map_or(("1000", 1000), |(_, number)| (of_image, number));
        (mapped.held.user, mapped.held.uid) = (word.to_owned(), number);
        return Ok(());
    };
    let (name, group) = text.split_once(':').map_or((text, None), |(name, group)| (name, Some(group)));
    if matches!(name, "0" | "root") {
        return no("nothing here runs as root; leave it out, or name another user".to_owned());
    }
    let (word, number) = match found(name) {
        Some(known) => known,
        None if name == "1000" => ("user".to_owned(), 1000),
        None => return no(format!("`{name}` is neither 1000 nor in the image's /etc/passwd")),
    };
    if number == 0 {
        return no(format!("`{name}` is root in the image, and nothing here runs as root"));
    }
    if group.is_some_and(|group| group != word && group != number.to_string()) {
        return no(format!("the group of a user is the one of his number: `{name}:{number}`, or `{name}` alone"));
    }
    set(&mut mapped.layers, "process.user", &toml_text(&word));
    (mapped.held.user, mapped.held.uid) = (text.to_owned(), number);
    Ok(())
}

/// `CLAUSE=VALUE`
pub(super) fn set(layers: &mut Vec<PolicyLayer>, clause: &str, value: &str) {
    layers.push(PolicyLayer::Set(format!("{clause}={value}")));
}

/// Whether a value says nothing: null, false, zero, and what is empty. Of a list each item is a wish, of a table each key: a port,
/// a setting of the kernel, a group.
pub(super) fn says_nothing(value: &Json) -> bool {
    match value {
        Json::Null | Json::Bool(false) => true,
        Json::Bool(true) => false,
        Json::Number(number) => number.as_f64() == Some(0.0),
        Json::String(text) => text.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::Object(table) => table.is_empty(),
    }
}

/// The same of a table whose keys are fields that clients write out, whether they say something or not.
fn fields_say_nothing(value: &Json) -> bool {
    value.as_object().map_or_else(|| says_nothing(value), |fields| fields.values().all(says_nothing))
}

/// Fields of one table of the body; null and the empty are the same as none.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) fields: &'a Fields,
    /// What their names begin with in a complaint.
    pub(super) table: &'static str,
}

impl<'a> Reader<'a> {
    pub(super) fn refused(&self, field: &str, why: impl Into<String>) -> Refused {
        Refused::new(format!("{}{field}", self.table), why)
    }

    /// What is not known says nothing, or is refused.
    pub(super) fn others_say_nothing(&self, known: &[&str]) -> Result<(), Refused> {
        let known: BTreeSet<&str> = known.iter().copied().collect();
        let other = self.fields.iter().find(|(field, value)| !known.contains(field.as_str()) && !says_nothing(value));
        match other {
            Some((field, _)) => Err(self.refused(field, "nothing here can hold it; leave it out")),
            None => Ok(()),
        }
    }

    fn said(&self, field: &str) -> Option<&'a Json> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, Refused> {
        let Some(value) = self.said(field) else { return Ok(None) };
        let text = value.as_str().ok_or_else(|| self.refused(field, "it is no text"))?;
        Ok(Some(text).filter(|text| !text.is_empty()))
    }

    /// A table; null is none.
    pub(super) fn table(&self, field: &str) -> Result<Option<&'a Fields>, Refused> {
        let Some(value) = self.fields.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
        value.as_object().map(Some).ok_or_else(|| self.refused(field, "it is no table"))
    }

    pub(super) fn flag(&self, field: &str) -> Result<bool, Refused> {
        let Some(value) = self.said(field) else { return Ok(false) };
        value.as_bool().ok_or_else(|| self.refused(field, "it is neither true nor false"))
    }

    /// A whole number other than zero.
    pub(super) fn number(&self, field: &str) -> Result<Option<i64>, Refused> {
        let Some(value) = self.said(field) else { return Ok(None) };
        let number = value.as_i64().ok_or_else(|| self.refused(field, "it is no whole number"))?;
        Ok(Some(number).filter(|number| *number != 0))
    }

    /// A number above zero.
    pub(super) fn amount(&self, field: &str) -> Result<Option<u64>, Refused> {
        let Some(number) = self.number(field)? else { return Ok(None) };
        u64::try_from(number).map(Some).map_err(|_negative| self.refused(field, "it is below zero"))
    }

    /// Texts; one alone stands for a list of it.
    pub(super) fn list(&self, field: &str) -> Result<Vec<String>, Refused> {
        let wrong = || self.refused(field, "it is no list of texts");
        let Some(value) = self.said(field) else { return Ok(Vec::new()) };
        if let Some(text) = value.as_str() {
            return Ok(vec![text.to_owned()]);
        }
        let items = value.as_array().ok_or_else(wrong)?;
        items.iter().map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
    }

    pub(super) fn texts(&self, field: &str) -> Result<BTreeMap<String, String>, Refused> {
        let wrong = || self.refused(field, "it is no table of texts");
        let Some(value) = self.said(field) else { return Ok(BTreeMap::new()) };
        let table = value.as_object().ok_or_else(wrong)?;
        let pair = |(name, value): (&String, &Json)| Some((name.clone(), value.as_str()?.to_owned()));
        table.iter().map(|entry| pair(entry).ok_or_else(wrong)).collect()
    }

    pub(super) fn tables(&self, field: &str) -> Result<Vec<&'a Fields>, Refused> {
        let wrong = || self.refused(field, "it is no list of tables");
        let Some(value) = self.said(field) else { return Ok(Vec::new()) };
        value.as_array().ok_or_else(wrong)?.iter().map(|item| item.as_object().ok_or_else(wrong)).collect()
    }
}
