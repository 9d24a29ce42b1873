//! Documents and flags become one policy: the reading that `policy` may not do itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use broker::Gate;
use policy::document::MOST_BYTES;
use policy::mistake::{Mistake, Where};
use policy::{Caller, ClauseId, Layers, Loaded, Mistakes};

use super::args::closest;
use super::links;
use super::request::Ingredient;
use super::world::World;
use crate::fault::Fault;
use crate::ui::Failure;

/// The policy that these layers make.
///
/// # Errors
/// [`Failure::Mistakes`] with everything that is wrong (126), or a current directory that is gone (125).
pub fn policy(layers: &[Ingredient], world: &World) -> Result<Loaded, Failure> {
    read_all(layers, world, false).map(|(loaded, _)| loaded)
}

/// The policy as it is looked at: its inputs are given when something runs.
///
/// # Errors
/// As [`policy()`].
pub fn policy_alone(layers: &[Ingredient], world: &World) -> Result<Loaded, Failure> {
    read_all(layers, world, true).map(|(loaded, _)| loaded)
}

/// The policy with the gate of its `[tools]`, if it has any: a front door takes the one that its reading made.
///
/// # Errors
/// As [`policy()`].
pub fn gated(layers: &[Ingredient], world: &World) -> Result<(Loaded, Option<Gate>), Failure> {
    read_all(layers, world, false)
}

/// Where the caller stands, or why it matters that there is no such place.
///
/// # Errors
/// The directory was removed.
pub(super) fn here<'a>(world: &'a World, matters: &str) -> Result<&'a Path, Failure> {
    world.cwd.as_deref().ok_or_else(|| {
        Failure::own(Fault {
            id: "state/no-directory",
            what: "there is no current directory".to_owned(),
            place: ".".to_owned(),
            why: format!("it was removed, or cannot be read; {matters}"),
            fix: "change to a directory that is there".to_owned(),
        })
    })
}

fn read_all(layers: &[Ingredient], world: &World, inputs_later: bool) -> Result<(Loaded, Option<Gate>), Failure> {
    let dir = here(world, "flags and presets are relative to it")?.to_owned();
    let mut made = Layers::new(Caller { dir, home: world.home.clone(), profiles: profiles() });
    links::ours(world).into_iter().for_each(|folder| made.keep_private(folder));
    if inputs_later {
        made.without_inputs();
    }
    for layer in layers {
        match layer {
            Ingredient::Document(value) => made.policy(value, &read),
            Ingredient::Flag { name, value } => made.flag(name, value),
            Ingredient::Set(assignment) => made.set(assignment),
        }
    }
    let mut loaded = made.finish().map_err(Failure::Mistakes)?;
    calls_exist(&loaded)?;
    links::lead_nowhere_dangerous(&loaded, world)?;
    // What only the gate can tell of `[tools]` (schemas, conditions, examples) is told wherever the policy is read.
    let Some(tools) = &loaded.policy.tools else { return Ok((loaded, None)) };
    let (gate, lints) = Gate::new(tools, &loaded.documents).map_err(Failure::Mistakes)?;
    loaded.lints.extend(lints);
    Ok((loaded, Some(gate)))
}

/// A call that the kernel does not know can be neither allowed nor denied; `policy` has no table of them.
fn calls_exist(loaded: &Loaded) -> Result<(), Failure> {
    let syscalls = &loaded.policy.syscalls;
    let lists = [(ClauseId::SyscallsAllow, &syscalls.allow), (ClauseId::SyscallsDeny, &syscalls.deny)];
    let named = lists.iter().flat_map(|(clause, names)| names.iter().map(move |name| (*clause, name)));
    let unknown = named.filter(|(_, name)| sys::seccomp::names::number(name).is_none());
    let list: Vec<Mistake> = unknown
        .map(|(clause, name)| Mistake {
            id: "value/syscall".to_owned(),
            clause: Some(clause),
            what: format!("`{name}` in `{clause}` is no system call of x86-64"),
            at: Where { name: loaded.origins.of(clause).to_owned(), line_column: None, excerpt: String::new() },
            why: "what the kernel does not know can be neither allowed nor denied".to_owned(),
            fix: closest(name, sys::seccomp::names::all()).map_or_else(
                || "remove it; names are those of `man 2 syscalls`".to_owned(),
                |near| format!("did you mean `{near}`?"),
            ),
        })
        .collect();
    if list.is_empty() { Ok(()) } else { Err(Failure::Mistakes(Mistakes { list })) }
}

/// The names of the system call profiles that ship with the product.
#[must_use]
pub fn profiles() -> Vec<String> {
    sys::seccomp::profiles().iter().map(|name| (*name).to_owned()).collect()
}

/// The text of a document. A pipe is read as well (`-p <(generate)`), but never more than a document may have.
fn read(path: &Path) -> Result<String, String> {
    let say = |error: std::io::Error| error.to_string().to_lowercase();
    let file = File::open(path).map_err(say)?;
    if file.metadata().map_err(say)?.is_dir() {
        return Err("it is a directory".to_owned());
    }
    let mut bytes = Vec::new();
    // One byte more, so that `policy` sees that it is too long and says so with its place.
    let most = u64::try_from(MOST_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(say)?;
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let good = error.utf8_error().valid_up_to();
            let lines = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
            Err(format!("it is no UTF-8 text: a byte in line {} fits nowhere", lines.saturating_add(1)))
        }
    }
}
