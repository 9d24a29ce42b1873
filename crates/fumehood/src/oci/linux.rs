//! The part of a document that is about Linux: namespaces, the control group, what of `/proc` is hidden, the filter of calls.

use std::path::Path;

use sandbox::PolicyLayer;

use super::fields::{Refused, Table, inside, set};
use super::filter;

/// Fields that are read here or by [`super::limits`].
const KNOWN: &[&str] = &[
    "namespaces",
    "devices",
    "cgroupsPath",
    "resources",
    "sysctl",
    "rootfsPropagation",
    "seccomp",
    "maskedPaths",
    "readonlyPaths",
];
/// Namespaces that a container must have of its own: without one it would be the host's.
const NEEDED: [&str; 5] = ["pid", "mount", "ipc", "uts", "network"];
/// Those that it has in any case.
const OWN: [&str; 2] = ["cgroup", "time"];
/// Settings of the kernel that say nothing where no socket of IP leads anywhere.
const IDLE: [&str; 1] = ["net.ipv4.ping_group_range"];
/// Devices that are there, with their numbers: all of characters, which everybody may read and write.
const DEVICES: [(&str, i64, i64); 6] = [
    ("/dev/null", 1, 3),
    ("/dev/zero", 1, 5),
    ("/dev/full", 1, 7),
    ("/dev/random", 1, 8),
    ("/dev/urandom", 1, 9),
    ("/dev/tty", 5, 0),
];
const EVERYBODYS: i64 = 0o666;
/// The group of terminals.
const TTY: i64 = 5;

/// Reads it; the control group that was asked for.
pub(super) fn read(
    top: &Table<'_>,
    layers: &mut Vec<PolicyLayer>,
    there: &dyn Fn(&Path) -> bool,
) -> Result<Option<String>, Refused> {
    let linux = top.table("linux")?;
    linux.others_say_nothing(KNOWN)?;
    namespaces(&linux)?;
    linux.tables("devices")?.iter().try_for_each(device)?;
    if let Some((name, _)) = linux.pairs("sysctl")?.into_iter().find(|(name, _)| !IDLE.contains(name)) {
        return Err(linux.refused("sysctl", format!("`{name}` is not set here")));
    }
    if !matches!(linux.text("rootfsPropagation")?, None | Some("private" | "rprivate" | "slave" | "rslave")) {
        return Err(linux.refused("rootfsPropagation", "mounts of a container are its own here"));
    }
    let is = |path: &str, of_proc: fn(&Path) -> bool| inside(path).is_some_and(|path| of_proc(&path));
    let open = |path: &&str| !is(path, backends::hides_of_proc) && shown(path, there);
    if let Some(path) = linux.texts("maskedPaths")?.into_iter().find(open) {
        return Err(linux.refused("maskedPaths", format!("`{path}` is not hidden here")));
    }
    let writable = |path: &&str| open(path) && !is(path, backends::keeps_of_proc);
    if let Some(path) = linux.texts("readonlyPaths")?.into_iter().find(writable) {
        return Err(linux.refused("readonlyPaths", format!("`{path}` is not made read-only here")));
    }
    // Without a filter of the document's ours holds alone.
    let denied = match linux.said("seccomp") {
        Some(_) => filter::denied(&linux.table("seccomp")?)?,
        None => Vec::new(),
    };
    if !denied.is_empty() {
        let list = denied.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        set(layers, "syscalls.deny", &format!("[{list}]"));
    }
    group(&linux)
}

/// One that is there anyway, and is what it is called here.
fn device(device: &Table<'_>) -> Result<(), Refused> {
    device.others_say_nothing(&["path", "type", "major", "minor", "fileMode", "uid", "gid"])?;
    let path = device.text("path")?.unwrap_or_default();
    let Some((_, major, minor)) = DEVICES.iter().find(|(known, _, _)| *known == path) else {
        let known = DEVICES.map(|(known, _, _)| known).join(", ");
        return Err(device.refused("path", format!("`{path}`: of devices a container has {known}")));
    };
    if !matches!(device.text("type")?, Some("c" | "u")) {
        return Err(device.refused("type", format!("{path} is a device of characters (`c`)")));
    }
    for (field, is) in [("major", *major), ("minor", *minor)] {
        if device.number(field)?.unwrap_or(0) != is {
            return Err(
                device.refused(field, format!("{path} is {major}:{minor}, and no other device is shown by its name"))
            );
        }
    }
    if device.number("fileMode")?.is_some_and(|mode| mode != EVERYBODYS) {
        return Err(device.refused("fileMode", format!("everybody may read and write {path} ({EVERYBODYS})")));
    }
    for (field, known) in [("uid", &[0][..]), ("gid", &[0, TTY][..])] {
        if device.number(field)?.is_some_and(|owner| !known.contains(&owner)) {
            return Err(device.refused(field, format!("{path} is nobody's of the container")));
        }
    }
    Ok(())
}

fn namespaces(linux: &Table<'_>) -> Result<(), Refused> {
    let mut all = Vec::new();
    for namespace in linux.tables("namespaces")? {
        namespace.others_say_nothing(&["type", "path"])?;
        let kind = namespace.text("type")?.unwrap_or_default();
        if !NEEDED.contains(&kind) && !OWN.contains(&kind) {
            let why = if kind == "user" {
                "its ids are mapped to ones of the run here, and to no others".to_owned()
            } else {
                format!("`{kind}` is not known here")
            };
            return Err(namespace.refused("type", why));
        }
        if let Some(path) = namespace.text("path")? {
            let why = format!("a container joins no `{kind}` namespace of somebody else ({path})");
            let fix = if kind == "network" { "; use `--network none`" } else { "" };
            return Err(namespace.refused("path", format!("{why}{fix}")));
        }
        all.push(kind);
    }
    match NEEDED.iter().find(|kind| !all.contains(kind)) {
        Some(kind) => Err(linux.refused("namespaces", format!("without `{kind}` it would share the host's"))),
        None => Ok(()),
    }
}

/// Whether a program could see a path: of `/sys` there is nothing, and no kernel has all of `/proc`. What the host has elsewhere
/// says nothing of the root.
fn shown(path: &str, there: &dyn Fn(&Path) -> bool) -> bool {
    let Some(path) = inside(path) else { return true };
    let Ok(of_proc) = path.strip_prefix("/proc") else { return !path.starts_with("/sys") };
    // A process has other numbers inside, and other files.
    let first = of_proc.iter().next().and_then(|name| name.to_str()).unwrap_or_default();
    let of_a_process = matches!(first, "self" | "thread-self") || first.starts_with(|c: char| c.is_ascii_digit());
    of_a_process || there(&path)
}

/// A path below which ours is made, so that what limits it limits us.
fn group(linux: &Table<'_>) -> Result<Option<String>, Refused> {
    let Some(path) = linux.text("cgroupsPath")? else { return Ok(None) };
    let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
    let is_none = parts.peek().is_none() || !path.starts_with('/');
    if is_none || path.contains(['\0', '\n']) || parts.any(|part| part.starts_with('.')) {
        let why = format!("`{path}` is no absolute path of a group; groups of systemd are not made here");
        return Err(linux.refused("cgroupsPath", why));
    }
    Ok(Some(path.to_owned()))
}
