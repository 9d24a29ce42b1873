//! Where the paths of the host lead that a policy names, and whether they lie within a ceiling's. A name alone says nothing:
//! whoever may write below a ceiling can put a link there, and name it in the next request.

use std::path::{Path, PathBuf};

use live::template::INSIDE;
use policy::json::toml_text;
use policy::value::{Grant, Policy};
use sandbox::PolicyLayer;

use super::names::Names;

/// A path without its links, if it is there and a policy can write it.
pub(super) fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().filter(|real| real.to_str().is_some())
}

/// The policy with its grants and its workspace where they lead; what leads nowhere has the empty path, which lies in nothing.
/// Links are followed this once: what is judged is what [`layers`] then tell the run.
pub(super) fn led(asked: &Policy) -> Policy {
    let mut led = asked.clone();
    for grant in led.fs.read.iter_mut().chain(&mut led.fs.write) {
        grant.from = real(&grant.from).unwrap_or_default();
    }
    led.workspace.path = led.workspace.path.map(|path| real(&path).unwrap_or_default());
    led
}

/// What a policy is told beside its own layers, so that it names what was judged: nothing where no path has a link.
pub(super) fn layers(asked: &Policy, led: &Policy) -> Vec<PolicyLayer> {
    let mut layers = Vec::new();
    let mut set = |clause: &str, value: &str| layers.push(PolicyLayer::Set(format!("{clause}={value}")));
    for (name, before, now) in [("read", &asked.fs.read, &led.fs.read), ("write", &asked.fs.write, &led.fs.write)] {
        if before == now {
            continue;
        }
        // The whole list is said anew: both spellings of it.
        for (spelled, dangerous) in [("", false), ("dangerous-", true)] {
            let list: Vec<String> = now.iter().filter(|grant| grant.dangerous == dangerous).map(written).collect();
            if !list.is_empty() {
                set(&format!("fs.{spelled}{name}"), &format!("[{}]", list.join(", ")));
            }
        }
    }
    if let Some(path) = led.workspace.path.as_ref().filter(|path| asked.workspace.path.as_ref() != Some(*path)) {
        set("workspace.path", &quoted(path));
    }
    layers
}

/// Whether a grant lies in a ceiling's, and shows nothing that the ceiling takes out of it.
pub(super) fn is_in(grant: &Grant, most: &Grant, names: &Names<'_>) -> bool {
    let Some(place) = real(&most.from) else { return false };
    let Ok(below) = grant.from.strip_prefix(&place) else { return false };
    (most.dangerous || !grant.dangerous) && names.let_grant(below, &joined(&most.to, below), &grant.to)
}

/// Whether what the server itself shows may be seen there: a file of a template could lie where a program of a ceiling's list is, by
/// that name or by where it leads. The template's own folder has no other place: programs of a list below it are the template's.
pub(super) fn is_apart(programs: &[PathBuf], at: &Path) -> bool {
    let led = real(at);
    let is_there = |program: &PathBuf| program.starts_with(at) || (led.is_some() && real(program) == led);
    at == Path::new(INSIDE) || !programs.iter().any(is_there)
}

/// A path below another: without a slash at its end, which globs would read.
pub(super) fn joined(place: &Path, below: &Path) -> PathBuf {
    if below == Path::new("") { place.to_owned() } else { place.join(below) }
}

fn written(grant: &Grant) -> String {
    let from = quoted(&grant.from);
    if grant.to == grant.from { from } else { format!("{{ from = {from}, to = {} }}", quoted(&grant.to)) }
}

fn quoted(path: &Path) -> String {
    toml_text(&path.to_string_lossy())
}
