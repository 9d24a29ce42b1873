//! The process tier: the host's own tree, with Landlock in front of it.

use std::path::{Path, PathBuf};

use policy::value::{Grant, Policy, WorkspaceMode};

use super::etc;
use super::identity::Identity;
use super::landlock::{Access, Rules, library_folders, loaders};
use super::tree::{resolve, resolve_entry};
use crate::StartError;

/// Tools of the host; links among them resolve to the same folders.
const TOOLS: &[&str] = &["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Devices that programs expect.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];

/// Rules and places of a run without namespaces.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) rules: Rules,
    pub(crate) cwd: PathBuf,
    pub(crate) workspace: Option<PathBuf>,
    /// Where a `copy` of the workspace is to be made.
    pub(crate) copy: Option<PathBuf>,
}

/// Decides the places of a plan; `tmp` is our own folder.
pub(crate) fn places(
    policy: &Policy,
    show: &[Grant],
    tmp: &Path,
    (who, rootless): (Identity, bool),
) -> Result<Places, StartError> {
    let mut places = Places { cwd: tmp.to_owned(), ..Places::default() };
    let run = if policy.fs.exec.is_some() { Access::READ } else { Access::READ | Access::EXECUTE };
    let write = if policy.fs.noexec || policy.fs.exec.is_some() {
        Access::READ | Access::WRITE
    } else {
        Access::READ | Access::WRITE | Access::EXECUTE
    };
    tools(policy, &mut places.rules)?;
    let canonical = Path::new("/dev").symlink_metadata().is_ok_and(|meta| meta.is_dir());
    for name in DEVICES.iter().map(Path::new) {
        let found = if canonical { resolve_entry("fs.root", name) } else { resolve("fs.root", name) };
        if let Ok(device) = found {
            places.rules.add_host(&device, Access::READ | Access::WRITE_FILE);
        }
    }
    if policy.process.tty {
        // The name of the session's own terminal, whichever that is: the caller's is of another session.
        if let Ok(own) = resolve("process.tty", Path::new("/dev/tty")) {
            places.rules.add_host(&own, Access::READ | Access::WRITE_FILE | Access::IOCTL);
        }
    }
    places.rules.add_host(&resolve("fs.tmp", tmp)?, write);
    for grant in &policy.fs.read {
        places.rules.add_host(&super::readable::granted(&grant.from, who, false, rootless)?, run);
    }
    for grant in show {
        places.rules.add_host(&resolve("run", &grant.from)?, run);
    }
    for grant in &policy.fs.write {
        places.rules.add_host(&resolve("fs.write", &grant.from)?, write);
    }
    if let (Some(path), mode) = (&policy.workspace.path, policy.workspace.mode) {
        let resolved = resolve("workspace", path)?;
        match mode {
            WorkspaceMode::None => return Ok(places),
            WorkspaceMode::Ro => places.rules.add_host(&resolved, run),
            WorkspaceMode::Rw => places.rules.add_host(&resolved, write),
            // Below our own folder, so it is granted already.
            WorkspaceMode::Copy | WorkspaceMode::Overlay => places.copy = Some(tmp.join("workspace")),
        }
        places.cwd = places.copy.clone().unwrap_or_else(|| resolved.path.clone());
        places.workspace = Some(resolved.path);
    }
    Ok(places)
}

fn tools(policy: &Policy, rules: &mut Rules) -> Result<(), StartError> {
    if let Some(list) = &policy.fs.exec {
        for path in library_folders() {
            if let Ok(folder) = resolve("fs.exec", &path) {
                rules.add_host(&folder, Access::READ);
            }
        }
        for path in loaders().iter().chain(list) {
            rules.add_host(&resolve("fs.exec", path)?, Access::READ | Access::EXECUTE);
        }
    } else {
        for name in TOOLS {
            if let Ok(folder) = resolve_entry("fs.root", Path::new(name)) {
                rules.add_host(&folder, Access::READ | Access::EXECUTE);
            }
        }
    }
    let folder = Path::new("/etc");
    let names: Vec<String> = std::fs::read_dir(folder)
        .map_err(|e| StartError::path("fs.root", folder, &e))?
        .filter_map(|entry| entry.ok().and_then(|e| e.file_name().into_string().ok()))
        .collect();
    let canonical = folder.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    for name in etc::shown(&names) {
        let path = folder.join(name);
        let found = if canonical { resolve_entry("fs.root", &path) } else { resolve("fs.root", &path) };
        if let Ok(file) = found {
            rules.add_host(&file, Access::READ);
        }
    }
    Ok(())
}
