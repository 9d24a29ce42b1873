//! Documents and flags become one policy: the reading that `policy` may not do itself.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use broker::Gate;
use policy::document::MOST_BYTES;
use policy::{Caller, Layers, Loaded};

use super::request::Ingredient;
use super::world::World;
use crate::fault::Fault;
use crate::ui::Failure;

/// The policy that these layers make.
///
/// # Errors
/// [`Failure::Mistakes`] with everything that is wrong (126), or a current directory that is gone (125).
pub fn policy(layers: &[Ingredient], world: &World) -> Result<Loaded, Failure> {
    gated(layers, world).map(|(loaded, _)| loaded)
}

/// The policy with the gate of its `[tools]`, if it has any: a front door takes the one that its reading made.
///
/// # Errors
/// As [`policy()`].
pub fn gated(layers: &[Ingredient], world: &World) -> Result<(Loaded, Option<Gate>), Failure> {
    let Some(dir) = world.cwd.clone() else {
        return Err(Failure::own(Fault {
            id: "state/no-directory",
            what: "there is no current directory".to_owned(),
            place: ".".to_owned(),
            why: "it was removed, or cannot be read; flags and presets are relative to it".to_owned(),
            fix: "change to a directory that is there".to_owned(),
        }));
    };
    let mut made = Layers::new(Caller { dir, home: world.home.clone(), profiles: profiles() });
    for layer in layers {
        match layer {
            Ingredient::Document(value) => made.policy(value, &read),
            Ingredient::Flag { name, value } => made.flag(name, value),
            Ingredient::Set(assignment) => made.set(assignment),
        }
    }
    let mut loaded = made.finish().map_err(Failure::Mistakes)?;
    // What only the gate can tell of `[tools]` (schemas, conditions, examples) is told wherever the policy is read.
    let Some(tools) = &loaded.policy.tools else { return Ok((loaded, None)) };
    let (gate, lints) = Gate::new(tools, &loaded.documents).map_err(Failure::Mistakes)?;
    loaded.lints.extend(lints);
    Ok((loaded, Some(gate)))
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
            Err(format!("it is no UTF-8 text: the byte at {good} fits nowhere"))
        }
    }
}
