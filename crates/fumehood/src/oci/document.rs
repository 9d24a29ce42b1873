//! What a bundle's document asks for, as layers of a policy and a program; or the field that nothing here holds. Pure.

use std::path::{Path, PathBuf};

use policy::json::toml_text;
use sandbox::PolicyLayer;
use serde_json::Value as Json;

use super::fields::{Refused, Table, inside, set};
use super::{limits, linux, mounts};

/// What a container is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ContainerSpec {
    /// Upon `strict`.
    pub(crate) layers: Vec<PolicyLayer>,
    /// The folder that is its root.
    pub(crate) root: PathBuf,
    /// The name and number of its user, inside.
    pub(crate) user: (String, u32),
    /// Where its program begins.
    pub(crate) cwd: PathBuf,
    pub(crate) argv: Vec<String>,
    /// The control group, below which ours is made.
    pub(crate) group: Option<String>,
}

/// What nobody limited in a document, and other clauses that are always so.
const FIXED_CLAUSES: &[&str] = &[
    "tier=container",
    "backend=native",
    "workspace.mode=none",
    // A network namespace of its own with nothing but its loopback.
    "net.mode=loopback",
    "fs.sockets=own",
    "limits.wall=none",
    "limits.cpu_time=none",
    "limits.file_size=none",
    "limits.output=none",
    "limits.files=100000",
    "syscalls.profile=default",
];
/// Fields of the document.
const KNOWN: &[&str] =
    &["ociVersion", "process", "root", "hostname", "domainname", "mounts", "hooks", "annotations", "linux"];
/// Fields of `process`.
const PROCESS: &[&str] = &[
    "terminal",
    "consoleSize",
    "user",
    "args",
    "env",
    "cwd",
    // An upper bound: a program here has none, and can get none.
    "capabilities",
    "noNewPrivileges",
    "rlimits",
    "apparmorProfile",
    "selinuxLabel",
];

/// Reads a document. `there`: whether this host has a path of its own, of `/proc`.
///
/// # Errors
/// The first field that cannot be had.
pub(crate) fn read(document: &Json, bundle: &Path, there: &dyn Fn(&Path) -> bool) -> Result<ContainerSpec, Refused> {
    let top = Table::top(document)?;
    top.others_say_nothing(KNOWN)?;
    let version = top.text("ociVersion")?.unwrap_or_default();
    if !is_known(version) {
        return Err(top.refused("ociVersion", format!("`{version}` is no version that is known here")));
    }
    top.say_nothing(&["hooks"], "nobody here runs programs of the host for a container")?;
    top.say_nothing(&["domainname"], "nothing here sets it")?;
    // Descriptions; none of them changes what is held.
    top.pairs("annotations")?;
    let mut layers = Vec::new();
    FIXED_CLAUSES.iter().for_each(|line| layers.push(PolicyLayer::Set((*line).to_owned())));
    let root = root(&top, bundle)?;
    if let Some(name) = top.text("hostname")? {
        set(&mut layers, "process.hostname", &toml_text(name));
    }
    let process = top.table("process")?;
    process.others_say_nothing(PROCESS)?;
    process.say_nothing(&["terminal"], "no terminal leads into a container in this version; leave out `-t`")?;
    capabilities(&process)?;
    let user = user(&process, &mut layers)?;
    let cwd = inside(process.text("cwd")?.unwrap_or("/"))
        .ok_or_else(|| process.refused("cwd", "it is no absolute path without `..`"))?;
    let argv: Vec<String> = process.texts("args")?.into_iter().map(str::to_owned).collect();
    if argv.first().is_none_or(String::is_empty) {
        return Err(process.refused("args", "there is nothing to run"));
    }
    environment(&process, &mut layers)?;
    label(&process, &mut layers)?;
    let places = mounts::read(&top, &mut layers)?;
    let group = linux::read(&top, &mut layers, there)?;
    limits::read(&process, &top, &places, &mut layers)?;
    Ok(ContainerSpec { layers, root, user, cwd, argv, group })
}

/// A version of the specification of the first kind, as `1.0.2` or `1.0.2-dev`: what is not known of a later one is refused by its name.
fn is_known(version: &str) -> bool {
    let numbers = version.split_once(['-', '+']).map_or(version, |(numbers, _)| numbers);
    let mut parts = numbers.split('.');
    let number = |part: &str| part.parse::<u16>().is_ok();
    parts.next() == Some("1")
        && parts.next().is_some_and(number)
        && parts.next().is_none_or(number)
        && parts.next().is_none()
}

/// An upper bound: a program here has none of them. What is no list of capabilities says nothing that could be one.
fn capabilities(process: &Table<'_>) -> Result<(), Refused> {
    const SETS: [&str; 5] = ["bounding", "effective", "inheritable", "permitted", "ambient"];
    let sets = process.table("capabilities")?;
    sets.others_say_nothing(&SETS)?;
    for set in SETS {
        let known = |name: &&str| name.strip_prefix("CAP_").is_some_and(|name| server::CAPABILITIES.contains(&name));
        if let Some(name) = sets.texts(set)?.into_iter().find(|name| !known(name)) {
            return Err(sets.refused(set, format!("`{name}` is no capability")));
        }
    }
    process.flag("noNewPrivileges").map(drop)
}

/// Only a root that nobody writes to: what a program leaves is in memory, and ends with it.
fn root(top: &Table<'_>, bundle: &Path) -> Result<PathBuf, Refused> {
    let root = top.table("root")?;
    root.others_say_nothing(&["path", "readonly"])?;
    let path = root.text("path")?.ok_or_else(|| root.refused("path", "a container needs a root"))?;
    if !root.flag("readonly")? {
        let why = "a root that can be written to is not held here; use `--read-only`, and tmpfs mounts at /tmp or /run";
        return Err(root.refused("readonly", why));
    }
    Ok(bundle.join(path))
}

fn user(process: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<(String, u32), Refused> {
    let user = process.table("user")?;
    // Further groups are not given: fewer rights than asked for.
    user.others_say_nothing(&["uid", "gid", "umask", "additionalGids", "username"])?;
    let number = |field: &str| -> Result<u32, Refused> {
        let number = user.number(field)?.unwrap_or(0);
        let fits = u32::try_from(number).ok().filter(|number| *number < u32::MAX);
        fits.ok_or_else(|| user.refused(field, format!("{number} is no id")))
    };
    let (uid, gid) = (number("uid")?, number("gid")?);
    if uid != gid {
        return Err(user.refused("gid", format!("the group of a user is the one of his number here: {uid}")));
    }
    if let Some(umask) = user.number("umask")? {
        let fits = u32::try_from(umask).ok().filter(|umask| *umask <= 0o777);
        let umask = fits.ok_or_else(|| user.refused("umask", "it is no umask"))?;
        set(layers, "process.umask", &toml_text(&format!("{umask:04o}")));
    }
    Ok((if uid == 0 { "root" } else { "user" }.to_owned(), uid))
}

fn environment(process: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<(), Refused> {
    for line in process.texts("env")? {
        match line.split_once('=') {
            Some((name, _)) if !name.is_empty() => {
                layers.push(PolicyLayer::Flag { name: "--env".to_owned(), value: line.to_owned() });
            }
            Some(_) | None => return Err(process.refused("env", format!("`{line}` names no variable"))),
        }
    }
    Ok(())
}

fn label(process: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<(), Refused> {
    let apparmor = process.text("apparmorProfile")?.filter(|name| *name != "unconfined");
    let selinux = process.text("selinuxLabel")?;
    match (apparmor, selinux) {
        (Some(_), Some(_)) => Err(process.refused("selinuxLabel", "a program has one label, and it has AppArmor's")),
        (Some(name), None) => {
            set(layers, "process.label", &toml_text(&format!("apparmor:{name}")));
            Ok(())
        }
        (None, Some(label)) => {
            set(layers, "process.label", &toml_text(&format!("selinux:{label}")));
            Ok(())
        }
        (None, None) => Ok(()),
    }
}
