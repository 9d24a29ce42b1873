//! The process tier: the host's own tree, with Landlock in front of it.

use std::path::{Path, PathBuf};

use policy::value::{Grant, TOOLS};

use super::blueprint::{Blueprint, HostTree, TreeAccess};
use super::folders::ShownTree;
use super::landlock::{Access, Rules, library_folders, loaders};
use super::source::{Resolved, resolve, resolve_entry};
use crate::StartError;
use crate::etc;
use crate::identity::Identity;

/// Devices that programs expect.
const DEVICES: &[&str] = &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// The name of the session's own terminal, whichever that is: the caller's is of another session.
const TERMINAL: &str = "/dev/tty";

/// Whether every payload may write to it: one of these devices, or the session's own terminal.
pub(crate) fn is_device(path: &Path) -> bool {
    path == Path::new(TERMINAL) || DEVICES.iter().any(|device| path == Path::new(device))
}

/// Rules and places of a run without namespaces.
#[derive(Debug, Default)]
pub(crate) struct Places {
    pub(crate) rules: Rules,
    pub(crate) cwd: PathBuf,
    pub(crate) workspace: Option<PathBuf>,
    /// Where a `copy` of the workspace is to be made.
    pub(crate) copy: Option<PathBuf>,
    /// Paths of the plan that have their rule, and whether they can be written to.
    pub(crate) placed: Vec<(PathBuf, bool)>,
}

impl Places {
    /// Rules for what the plan shows, where it may be less than `all` in parts of it.
    fn show(
        &mut self,
        blueprint: &Blueprint,
        resolved: &Resolved,
        shown: &HostTree,
        all: Access,
    ) -> Result<(), StartError> {
        let (point, dir) = (&resolved.path, resolved.dir);
        let place = ShownTree { at: &shown.at, point, host: point, dir };
        for part in blueprint.folders.parts(&place, all, &self.rules)? {
            if part.path == *point {
                self.rules.add_host(resolved, part.access);
            } else {
                self.rules.add_host(&resolve_entry(part.clause, &part.path)?, part.access);
            }
        }
        self.placed.push((shown.from.clone(), shown.how == TreeAccess::Writable));
        Ok(())
    }
}

/// Decides the places of a plan; `tmp` is our own folder.
pub(crate) fn places(
    blueprint: &Blueprint,
    show: &[Grant],
    tmp: &Path,
    (who, rootless): (Identity, bool),
) -> Result<Places, StartError> {
    let mut places = Places { cwd: tmp.to_owned(), ..Places::default() };
    let run = if blueprint.exec.is_some() { Access::READ } else { Access::READ | Access::EXECUTE };
    let write =
        if blueprint.noexec { Access::READ | Access::WRITE } else { Access::READ | Access::WRITE | Access::EXECUTE };
    tools(blueprint, &mut places.rules)?;
    let canonical = Path::new("/dev").symlink_metadata().is_ok_and(|meta| meta.is_dir());
    for name in DEVICES.iter().map(Path::new) {
        let found = if canonical { resolve_entry("fs.root", name) } else { resolve("fs.root", name) };
        if let Ok(device) = found {
            places.rules.add_host(&device, Access::READ | Access::WRITE_FILE);
        }
    }
    if blueprint.terminal
        && let Ok(own) = resolve("process.tty", Path::new(TERMINAL))
    {
        places.rules.add_host(&own, Access::READ | Access::WRITE_FILE | Access::IOCTL);
    }
    places.rules.add_host(&resolve("fs.tmp", tmp)?, write);
    // Rights add up along a path: what can be executed must not lie above or below what can be written.
    let reading = |path: &Path| {
        let written = blueprint.noexec && (blueprint.written(path) || tmp.starts_with(path));
        if written { Access::READ } else { run }
    };
    for shown in &blueprint.reads {
        let resolved = super::readable::granted(blueprint.resolve("fs.read", &shown.from)?, who, false, rootless)?;
        places.show(blueprint, &resolved, shown, reading(&resolved.path))?;
    }
    for grant in show {
        places.rules.add_host(&resolve("run", &grant.from)?, run);
    }
    for shown in &blueprint.writes {
        places.show(blueprint, &blueprint.resolve("fs.write", &shown.from)?, shown, write)?;
    }
    if let Some(shown) = &blueprint.workspace {
        let resolved = blueprint.resolve("workspace", &shown.from)?;
        if !resolved.dir {
            return Err(StartError::NotADirectory { clause: "workspace", path: shown.from.clone() });
        }
        match shown.how {
            TreeAccess::ReadOnly => places.show(blueprint, &resolved, shown, reading(&resolved.path))?,
            TreeAccess::Writable => places.show(blueprint, &resolved, shown, write)?,
            // Below our own folder, so it is granted already.
            TreeAccess::CopyInFolder | TreeAccess::Copy(_) | TreeAccess::Overlay(_) => {
                places.copy = Some(tmp.join("workspace"));
                places.placed.push((shown.from.clone(), false));
            }
        }
        places.cwd = places.copy.clone().unwrap_or_else(|| resolved.path.clone());
        places.workspace = Some(resolved.path);
    }
    Ok(places)
}

fn tools(blueprint: &Blueprint, rules: &mut Rules) -> Result<(), StartError> {
    if let Some(list) = &blueprint.exec {
        for path in library_folders() {
            if let Ok(folder) = resolve("fs.exec", &path) {
                rules.add_host(&folder, Access::READ);
            }
        }
        for path in loaders() {
            rules.add_host(&resolve("fs.exec", &path)?, Access::READ | Access::EXECUTE);
        }
        for path in list {
            let program = resolve("fs.exec", path)?;
            if !blueprint.own_program && !crate::support::lies_in(&program.path, blueprint.shown()) {
                return Err(StartError::linked("fs.exec", path));
            }
            rules.add_host(&program, Access::READ | Access::EXECUTE);
        }
    } else {
        for name in TOOLS {
            if let Ok(folder) = resolve_entry("fs.root", Path::new(name)) {
                if blueprint.noexec && blueprint.written(&folder.path) {
                    return Err(StartError::among_tools(&folder.path));
                }
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
