//! Docker's options of `run`, and what becomes of each.

use policy::json::toml_text;
use policy::names::is_env_name;

use super::{Folder, Reading, Refused};
use crate::mcp::text::shown;

/// An option.
pub(super) struct Known {
    pub(super) long: &'static str,
    pub(super) short: Option<char>,
    pub(super) means: Means,
}

/// What becomes of an option.
pub(super) enum Means {
    /// A switch; on or off, a sandbox is as it says.
    Switch,
    /// A switch that is refused when it is on, with what to do.
    NoSwitch(&'static str),
    /// It has a value, and says nothing of what the program may do.
    Anything,
    /// These values say what is so anyway; what to do about others.
    Only(&'static [&'static str], &'static str),
    /// It is refused: this line of a policy says it.
    Clause(fn(&str) -> String),
    /// Its value is read.
    Read(fn(&mut Reading<'_>, &str) -> Result<(), Refused>),
}

impl Means {
    pub(super) const fn is_switch(&self) -> bool {
        matches!(self, Self::Switch | Self::NoSwitch(_))
    }
}

const fn of(long: &'static str, means: Means) -> Known {
    Known { long, short: None, means }
}

const fn both(short: char, long: &'static str, means: Means) -> Known {
    Known { long, short: Some(short), means }
}

const STREAMS: &str = "take it out: a server is spoken with on its stdin and stdout";
const NO_PORT: &str =
    "take it out: a server is spoken with on its stdin and stdout, and no port of a sandbox is published";
const OWN: &str = "take it out: each sandbox has its own, and nothing of the host's";
const ENGINE: &str =
    "take it out: who reaches an engine's socket has the machine, and no clause of a policy says so for a server";
const PRIVILEGED: &str = "take it out: no clause of a policy gives a program rights over the machine; what it needs of the host is a grant (`fs.read`, `process.devices`)";
const MOUNT: &str = "write it as `type=bind,source=/FROM,target=/TO`, with `readonly` or without";
const HOST_AT: &str = "net.allow = [{ host = \"HOST\", ports = [443], address = \"ADDRESS:443\" }]";
/// The network of whoever has the policy's.
const POLICY_NET: [&str; 3] = ["bridge", "default", "podman"];

/// All that are known; any other could have a value, behind which the image stands.
pub(super) const ALL: &[Known] = &[
    both('i', "interactive", Means::Switch),
    of("init", Means::Switch),
    of("rm", Means::Switch),
    of("replace", Means::Switch),
    // The tree of an image is never written to.
    of("read-only", Means::Switch),
    of("sig-proxy", Means::Switch),
    of("no-healthcheck", Means::Switch),
    both('q', "quiet", Means::Switch),
    both('t', "tty", Means::NoSwitch("take it out: a terminal would change the messages of a server")),
    both('d', "detach", Means::NoSwitch(STREAMS)),
    of("privileged", Means::NoSwitch(PRIVILEGED)),
    both('P', "publish-all", Means::NoSwitch(NO_PORT)),
    of("name", Means::Anything),
    both('l', "label", Means::Anything),
    of("annotation", Means::Anything),
    of("expose", Means::Anything),
    of("log-driver", Means::Anything),
    of("log-opt", Means::Anything),
    // A program of a sandbox has none to drop.
    of("cap-drop", Means::Anything),
    of("cap-add", Means::Only(&[], PRIVILEGED)),
    both('a', "attach", Means::Only(&["stdin", "stdout", "stderr"], STREAMS)),
    of("security-opt", Means::Only(&["no-new-privileges", "no-new-privileges:true", "no-new-privileges=true"], OWN)),
    of("ipc", Means::Only(&["private", "none"], OWN)),
    of("pid", Means::Only(&["private"], OWN)),
    of("uts", Means::Only(&["private"], OWN)),
    of("cgroupns", Means::Only(&["private"], OWN)),
    of("userns", Means::Only(&["private"], OWN)),
    of("restart", Means::Only(&["no"], "take it out: the gateway starts a server again that ended")),
    both('p', "publish", Means::Only(&[], NO_PORT)),
    of(
        "env-file",
        Means::Only(
            &[],
            "take it out, and write the variables that it needs into the entry's `env`, and `-e NAME` for each",
        ),
    ),
    both('m', "memory", Means::Clause(|value| format!("limits.memory = {}", size(value)))),
    of("shm-size", Means::Clause(|value| format!("fs.shm = {}", size(value)))),
    of("pids-limit", Means::Clause(|value| format!("limits.pids = {}", value.parse::<u32>().unwrap_or(64)))),
    of("cpus", Means::Clause(cpus)),
    of("cpuset-cpus", Means::Clause(|value| format!("limits.cpuset = {}", toml_text(value)))),
    of("ulimit", Means::Clause(|_| "limits.open_files = 256".to_owned())),
    of("device", Means::Clause(|_| "process.devices = [\"kvm\"]".to_owned())),
    of("gpus", Means::Clause(|_| "process.devices = [\"nvidia:all\"]".to_owned())),
    of("add-host", Means::Clause(|_| HOST_AT.to_owned())),
    of("dns", Means::Clause(|_| HOST_AT.to_owned())),
    of("pull", Means::Read(pull)),
    of("platform", Means::Read(|reading, value| set(&mut reading.container.platform, value))),
    of("entrypoint", Means::Read(|reading, value| set(&mut reading.container.entrypoint, value))),
    both('e', "env", Means::Read(env)),
    both('u', "user", Means::Read(user)),
    both('h', "hostname", Means::Read(hostname)),
    both('w', "workdir", Means::Read(workdir)),
    of("network", Means::Read(network)),
    of("net", Means::Read(network)),
    both('v', "volume", Means::Read(volume)),
    of("mount", Means::Read(mount)),
    of("tmpfs", Means::Read(tmpfs)),
];

/// A size of Docker's as a policy writes it.
fn size(value: &str) -> String {
    let lower = value.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = lower.strip_prefix(digits).unwrap_or_default();
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let units = [("", "B"), ("b", "B"), ("k", "K"), ("m", "M"), ("g", "G")];
    let known = units.iter().find(|(theirs, _)| *theirs == unit).filter(|_| is_number);
    known.map_or_else(|| "\"512M\"".to_owned(), |(_, ours)| format!("\"{digits}{ours}\""))
}

fn cpus(value: &str) -> String {
    let is_number = value.parse::<f64>().is_ok_and(|cpus| cpus.is_finite() && cpus > 0.0);
    let plain = value.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && !value.starts_with('.');
    format!("limits.cpus = {}", if is_number && plain && !value.ends_with('.') { value } else { "1.0" })
}

fn refused(why: impl Into<String>, fix: impl Into<String>) -> Refused {
    Refused { why: why.into(), fix: fix.into() }
}

fn set(field: &mut Option<String>, value: &str) -> Result<(), Refused> {
    *field = Some(value.to_owned());
    Ok(())
}

fn pull(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    if !["always", "missing", "newer", "never"].contains(&value) {
        return Err(refused(format!("`{}` is no way to pull", shown(value, 60)), "`always`, `missing` or `never`"));
    }
    reading.container.is_local = value == "never";
    Ok(())
}

/// `NAME=VALUE`, or `NAME` for what the entry's own environment has. No message has a value in it.
fn env(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let (name, said) = value.split_once('=').map_or((value, None), |(name, said)| (name, Some(said.to_owned())));
    if !is_env_name(name) {
        let why = format!("`{}` can name no variable", shown(name, 60));
        return Err(refused(why, "letters, digits and `_`, not a digit first"));
    }
    let container = &mut reading.container;
    container.unset.retain(|other| other != name);
    match said.or_else(|| reading.env.get(name).cloned()) {
        Some(said) => {
            container.env.insert(name.to_owned(), said);
        }
        None => {
            container.env.remove(name);
            container.unset.push(name.to_owned());
        }
    }
    Ok(())
}

/// A policy says by name who a program is, never by a number, and never root.
fn user(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let (name, group) = value.split_once(':').map_or((value, None), |(name, group)| (name, Some(group)));
    let named = if name == "1000" { "user" } else { name };
    if matches!(name, "0" | "root") {
        return Err(refused("nothing in a sandbox runs as root", "take it out"));
    }
    let is_number = named.bytes().all(|byte| byte.is_ascii_digit());
    if is_number || group.is_some_and(|group| group != name) {
        let fix = "take it out, and write `process.user = \"NAME\"` into the server's own policy, with the name that the image's /etc/passwd has for him";
        return Err(refused(format!("`{}` is not one name", shown(value, 60)), fix));
    }
    reading.container.clauses.push(format!("process.user={}", toml_text(named)));
    Ok(())
}

fn hostname(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    reading.container.clauses.push(format!("process.hostname={}", toml_text(value)));
    Ok(())
}

fn workdir(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let at = inside(value).ok_or_else(|| no_place(value))?;
    set(&mut reading.container.workdir, &at)
}

/// Docker's own network is whatever the policy gives; any other is somebody's.
fn network(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    reading.container.is_offline |= value == "none";
    if value == "none" || POLICY_NET.contains(&value) {
        return Ok(());
    }
    let fix = "take it out, and write `net.mode = \"allow\"` and `net.allow = [{ host = \"HOST\", ports = [443] }]` into the server's own policy, with the hosts that it needs";
    Err(refused(format!("`{}` is a network of the host's", shown(value, 60)), fix))
}

/// `FROM:TO`, `FROM:TO:OPTIONS`, or `TO` alone.
fn volume(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let mut parts = value.split(':');
    let (first, second, options) = (parts.next().unwrap_or_default(), parts.next(), parts.next().unwrap_or_default());
    if parts.next().is_some() {
        return Err(refused(
            format!("`{}` is no FROM:TO", shown(value, 100)),
            "write it as `/FROM:/TO` or `/FROM:/TO:ro`",
        ));
    }
    let mut is_writable = true;
    for option in options.split(',') {
        let says_nothing = ["", "rw", "z", "Z", "cached", "delegated", "consistent", "nocopy", "private", "rprivate"];
        if option == "ro" {
            is_writable = false;
        } else if !says_nothing.contains(&option) {
            return Err(refused(format!("`{}` is not held", shown(option, 60)), "`ro` or `rw` alone"));
        }
    }
    match second {
        Some(to) => folder(reading, Some(first), to, is_writable),
        None => folder(reading, None, first, is_writable),
    }
}

/// `type=bind,source=FROM,target=TO[,readonly]`
fn mount(reading: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let (mut kind, mut from, mut to, mut is_writable) = ("volume", None, "", true);
    for field in value.split(',') {
        let (key, said) = field.split_once('=').map_or((field, None), |(key, said)| (key, Some(said)));
        let key = key.to_ascii_lowercase();
        match (key.as_str(), said) {
            ("type", Some(said)) => kind = said,
            ("source" | "src", Some(said)) => from = Some(said),
            ("target" | "dst" | "destination", Some(said)) => to = said,
            ("readonly" | "ro", None) => is_writable = false,
            ("readonly" | "ro", Some(said)) if super::boolean(said).is_some() => {
                is_writable = super::boolean(said) == Some(false);
            }
            ("consistency", Some(_)) | ("bind-propagation", Some("private" | "rprivate")) => {}
            (other, _) => return Err(refused(format!("`{}` is not held", shown(other, 60)), MOUNT)),
        }
    }
    match kind {
        "bind" | "volume" => folder(reading, from, to, is_writable),
        "tmpfs" => tmpfs(reading, to),
        other => Err(refused(format!("the type `{}` is not held", shown(other, 60)), MOUNT)),
    }
}

fn folder(reading: &mut Reading<'_>, from: Option<&str>, to: &str, is_writable: bool) -> Result<(), Refused> {
    let to = inside(to).filter(|to| to != "/").ok_or_else(|| no_place(to))?;
    let is_engine = |path: &str| ["docker.sock", "podman.sock"].iter().any(|name| path.ends_with(name));
    if from.is_some_and(is_engine) {
        return Err(refused("it is the socket of an engine", ENGINE));
    }
    // Any other is the name of a volume, which an engine keeps.
    let from = from.filter(|from| from.starts_with(['/', '.', '~'])).map(str::to_owned);
    reading.container.folders.push(Folder { from, to, is_writable });
    Ok(())
}

/// These are a sandbox's own, and empty at the start.
fn tmpfs(_: &mut Reading<'_>, value: &str) -> Result<(), Refused> {
    let (at, options) = value.split_once(':').unwrap_or((value, ""));
    if options.is_empty() && inside(at).is_some_and(|at| at == "/tmp" || at == "/run") {
        return Ok(());
    }
    let why = format!("`{}` is no place of its own in a sandbox", shown(value, 60));
    let fix =
        "`/tmp` and `/run` are; their sizes are `fs.tmp = \"64M\"` and `fs.run = \"8M\"` in the server's own policy";
    Err(refused(why, fix))
}

fn no_place(path: &str) -> Refused {
    refused(format!("`{}` is no place inside", shown(path, 100)), "write an absolute path below `/`, without `..`")
}

/// An absolute path without `.` and `..`, without a slash at its end.
fn inside(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.strip_prefix('/')?.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let fits = !parts.contains(&"..") && !path.contains('\0');
    fits.then(|| format!("/{}", parts.join("/")))
}
