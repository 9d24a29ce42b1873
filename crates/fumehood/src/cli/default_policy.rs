//! Policies that nobody named: the one of the caller's own configuration is obeyed, one that lies in a workspace is only
//! offered. A workspace may come from anybody, and what it says must not decide how it is confined.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::spec::Call;
use crate::ui::{Failure, Role};
use sandbox::fault::{Fault, show_path, show_text};
use sandbox::{Environment, PolicyLayer};

/// What others may not do with the file, or with the folder that it lies in.
const WRITE_BY_OTHERS: u32 = 0o022;
/// The name under which a workspace offers a policy.
const OFFERED: &str = "fumehood.toml";

/// The layers of a call, with the caller's default policy below them where they name no document.
///
/// # Errors
/// 126: the default policy could be somebody else's.
pub(super) fn with_default(
    mut layers: Vec<PolicyLayer>,
    environment: &Environment,
) -> Result<Vec<PolicyLayer>, Failure> {
    if names_one(&layers) {
        return Ok(layers);
    }
    let Some(path) = default_policy(environment) else { return Ok(layers) };
    let Some(folder) = path.parent() else { return Ok(layers) };
    // Only what is there counts; what cannot be looked at is told by its reading.
    if matches!(path.symlink_metadata(), Err(error) if error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(layers);
    }
    for place in [folder, &path] {
        own(place, environment.euid)?;
    }
    let Some(name) = path.to_str() else { return Ok(layers) };
    layers.insert(0, PolicyLayer::Document(name.to_owned()));
    Ok(layers)
}

/// Says in one line that a workspace brings a policy, where no document was named.
pub(super) fn offer(layers: &[PolicyLayer], call: &Call<'_>) {
    if names_one(layers) || call.parsed.has("quiet") {
        return;
    }
    let workspace = layers.iter().rev().find_map(|layer| match layer {
        PolicyLayer::Flag { name, value } if name == "--workspace" => Some(folder_of(value)),
        PolicyLayer::Flag { .. } | PolicyLayer::Set(_) | PolicyLayer::Document(_) => None,
    });
    let named = workspace.unwrap_or(Path::new("")).join(OFFERED);
    let Some(here) = &call.environment.cwd else { return };
    if !here.join(&named).is_file() {
        return;
    }
    let shown = show_text(&named.to_string_lossy());
    let label = call.console.err.paint(Role::Weak, "note:");
    call.console.eprint(&format!("{label} `{shown}` is not used: read it, and name it with `-p {shown}`\n"));
}

fn names_one(layers: &[PolicyLayer]) -> bool {
    layers.iter().any(|layer| matches!(layer, PolicyLayer::Document(_)))
}

/// `PATH[:MODE]`
fn folder_of(workspace: &str) -> &Path {
    let modes = ["none", "ro", "rw", "overlay", "copy"];
    let with_mode = workspace.rsplit_once(':').filter(|(path, mode)| modes.contains(mode) && !path.is_empty());
    Path::new(with_mode.map_or(workspace, |(path, _)| path))
}

/// `$XDG_CONFIG_HOME/fumehood/policy.toml`, else `~/.config/fumehood/policy.toml`.
fn default_policy(environment: &Environment) -> Option<PathBuf> {
    let xdg = environment.variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = xdg.or_else(|| environment.home.as_ref().map(|home| home.join(".config")))?;
    Some(folder.join("fumehood/policy.toml"))
}

/// Whoever can write the policy decides what runs as the caller.
fn own(place: &Path, euid: u32) -> Result<(), Failure> {
    let Ok(meta) = place.metadata() else { return Ok(()) };
    let why = if meta.uid() != euid && meta.uid() != 0 {
        format!("it belongs to uid {}, and this is uid {euid}", meta.uid())
    } else if meta.mode() & WRITE_BY_OTHERS != 0 {
        format!("its mode is {:04o}: others may write it", meta.mode() & 0o7777)
    } else {
        return Ok(());
    };
    let fault = Fault {
        id: "policy/not-own",
        what: format!("the default policy {} could be somebody else's", show_path(place)),
        place: "the default policy".to_owned(),
        why,
        fix: format!("`chmod go-w {}`, or name a policy with `-p`", show_path(place).trim_matches('`')),
    };
    Err(Failure::refused(fault))
}
