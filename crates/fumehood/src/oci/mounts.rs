//! Mounts of a document: what the sandbox has by itself, places in memory, and what is read of the host.

use std::path::Path;

use sandbox::PolicyLayer;
use serde_json::json;

use super::fields::{Refused, Table, inside, set};

/// Sizes that were asked for, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) tmp: Option<u64>,
    pub(super) run: Option<u64>,
    pub(super) shm: Option<u64>,
}

/// File systems of the kernel that the sandbox has at these places, or does not show at all.
const OWN: &[(&str, &str)] = &[
    ("/proc", "proc"),
    ("/dev", "tmpfs"),
    ("/dev/pts", "devpts"),
    ("/dev/mqueue", "mqueue"),
    ("/sys", "sysfs"),
    ("/sys/fs/cgroup", "cgroup"),
    ("/sys/fs/cgroup", "cgroup2"),
];
/// Files that are the run's own, whatever is to be mounted there: nothing but its loopback can be named or reached, and its user
/// is among the root's accounts.
const FILES: &[&str] = &["/etc/hosts", "/etc/resolv.conf", "/etc/hostname", "/etc/passwd", "/etc/group"];

/// What is so of every mount here, or says nothing of what a program can do.
const SO: &[&str] = &["nosuid", "nodev", "relatime", "strictatime", "rw", "private", "rprivate"];
/// Of what the sandbox has by itself, and of places in memory: nothing in them can be executed.
const NOT_RUN: &[&str] = &["noexec"];
const TERMINALS: &[&str] = &["newinstance", "ptmxmode=0666", "ptmxmode=666", "mode=0620", "mode=620", "gid=5"];
const OWNERS: &[&str] = &["mode=755", "mode=0755"];

/// Reads them all.
pub(super) fn read(top: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<Places, Refused> {
    let mut places = Places::default();
    let mut shown = Vec::new();
    for mount in top.tables("mounts")? {
        mount.others_say_nothing(&["destination", "type", "source", "options"])?;
        let at = mount.text("destination")?.and_then(inside);
        let at = at.ok_or_else(|| mount.refused("destination", "it is no absolute path without `..`"))?;
        let options = mount.texts("options")?;
        let kind = if options.iter().any(|option| matches!(*option, "bind" | "rbind")) {
            "bind"
        } else {
            mount.text("type")?.unwrap_or_default()
        };
        match kind {
            "bind" => shown.extend(bind(&mount, &at, &options)?),
            "tmpfs" if at != Path::new("/dev") => tmpfs(&mount, &at, &options, &mut places)?,
            kind if OWN.iter().any(|own| (Path::new(own.0), own.1) == (at.as_path(), kind)) => {
                own(&mount, kind, &options)?;
            }
            kind => {
                let why = format!("nothing here mounts a `{kind}` at {}", at.display());
                return Err(mount.refused("type", why));
            }
        }
    }
    if !shown.is_empty() {
        set(layers, "fs.read", &format!("[{}]", shown.join(", ")));
    }
    Ok(places)
}

/// Only options that are so here: one that is passed over could have been a wish.
fn only(mount: &Table<'_>, options: &[&str], known: &[&[&str]]) -> Result<(), Refused> {
    let is_known = |option: &str| known.iter().any(|list| list.contains(&option));
    match options.iter().find(|option| !is_known(option)) {
        Some(option) => Err(mount.refused("options", format!("`{option}` is not held here"))),
        None => Ok(()),
    }
}

/// Ours has nosuid, nodev and noexec; of `/sys` nothing is shown, so that a writable one would be less than was asked for.
fn own(mount: &Table<'_>, kind: &str, options: &[&str]) -> Result<(), Refused> {
    const KNOWN: [(&str, &[&str]); 5] =
        [("sysfs", &["ro"]), ("cgroup", &["ro"]), ("cgroup2", &["ro"]), ("devpts", TERMINALS), ("tmpfs", OWNERS)];
    if matches!(kind, "sysfs" | "cgroup" | "cgroup2") && !options.contains(&"ro") {
        return Err(mount.refused("options", format!("a `{kind}` that can be written to is not held here")));
    }
    let known = KNOWN.iter().find(|(name, _)| *name == kind).map_or_else(Default::default, |(_, known)| *known);
    // Nothing can be made in `/dev`, whatever its size.
    let sized = |option: &&str| kind == "tmpfs" && option.starts_with("size=");
    let options: Vec<&str> = options.iter().copied().filter(|option| !sized(option)).collect();
    only(mount, &options, &[SO, NOT_RUN, known])
}

/// A grant for reading, as TOML; nothing where the run has its own.
fn bind(mount: &Table<'_>, at: &Path, options: &[&str]) -> Result<Option<String>, Refused> {
    const BINDS: &[&str] = &["bind", "rbind"];
    const READ_ONLY: &[&str] = &["ro"];
    if at == Path::new("/dev/shm") {
        return only(mount, options, &[SO, NOT_RUN, BINDS]).map(|()| None);
    }
    if FILES.iter().any(|file| at == Path::new(file)) {
        return only(mount, options, &[SO, NOT_RUN, BINDS, READ_ONLY]).map(|()| None);
    }
    if options.iter().any(|option| matches!(*option, "shared" | "rshared" | "slave" | "rslave" | "idmap" | "ridmap")) {
        return Err(mount.refused("options", "mounts are private here, and keep their ids"));
    }
    if options.contains(&"noexec") {
        return Err(mount.refused("options", "what is shown of the host can be executed; leave out `noexec`"));
    }
    only(mount, options, &[SO, BINDS, READ_ONLY])?;
    if !options.contains(&"ro") || options.contains(&"rw") {
        let why = format!("{} would be written to on the host, which is not held here; add `ro`", at.display());
        return Err(mount.refused("options", why));
    }
    let from = mount.text("source")?.filter(|from| from.starts_with('/'));
    let from = from.ok_or_else(|| mount.refused("source", "it is no absolute path"))?;
    let (from, to) = (json!(from), json!(at.to_string_lossy()));
    Ok(Some(format!("{{ from = {from}, to = {to} }}")))
}

/// A place in memory at one of those that a sandbox has.
fn tmpfs(mount: &Table<'_>, at: &Path, options: &[&str], places: &mut Places) -> Result<(), Refused> {
    const COPIED: &[&str] = &["tmpcopyup", "notmpcopyup"];
    const EVERYBODYS: &[&str] = &["mode=1777", "mode=01777"];
    let (place, mode) = match at.to_str() {
        // One is a link to the other here: the smaller size holds both.
        Some("/tmp" | "/var/tmp") => (&mut places.tmp, EVERYBODYS),
        Some("/run") => (&mut places.run, OWNERS),
        Some("/dev/shm") => (&mut places.shm, EVERYBODYS),
        Some(_) | None => {
            let why = format!("{}: places in memory are at /tmp, /var/tmp, /run and /dev/shm here", at.display());
            return Err(mount.refused("destination", why));
        }
    };
    let mut others = Vec::new();
    for option in options {
        let Some(size) = option.strip_prefix("size=") else {
            others.push(*option);
            continue;
        };
        let why = || mount.refused("options", format!("`size={size}` is no number of bytes"));
        let size = bytes(size).ok_or_else(why)?;
        *place = Some(place.map_or(size, |other| other.min(size)));
    }
    only(mount, &others, &[SO, NOT_RUN, COPIED, mode])
}

/// As tmpfs(5) has it: bytes, or with `k`, `m` or `g`.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (digits, shift) = match lower.strip_suffix(['k', 'm', 'g']) {
        Some(digits) if lower.ends_with('k') => (digits, 10),
        Some(digits) if lower.ends_with('m') => (digits, 20),
        Some(digits) => (digits, 30),
        None => (lower.as_str(), 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}
