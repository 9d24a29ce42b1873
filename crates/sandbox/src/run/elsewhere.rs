//! A program of the caller's that is another one inside: versions of a toolchain live below the home folder, and the system's own of
//! the same name takes their place without a word.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use policy::Plan;
use policy::value::{Root, Tier, WorkspaceMode};

use super::launch;
use crate::environment::Environment;
use crate::fault::{show_bytes, show_path};
use crate::workload::Workload;

/// Where programs are looked for inside, unless the policy says otherwise.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Trees of the host that are shown where they are.
const TOOLS: [&str; 3] = ["/usr", "/bin", "/sbin"];

/// What to say where the caller's own program of that name is another file than the one that is found inside.
pub(super) fn note(plan: &Plan, what: &Workload, environment: &Environment) -> Option<String> {
    let policy = &plan.policy;
    if policy.fs.root != Root::Host || !matches!(plan.tier, Tier::Process | Tier::Container) {
        return None;
    }
    let words = match what {
        Workload::Argv(argv) => argv.clone(),
        Workload::Script(script) => launch::choose(&script.interpreter.candidates, policy),
        Workload::Code(code) => launch::choose(&code.interpreter.candidates, policy),
        Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => return None,
    };
    let name = words.first().filter(|name| !name.as_encoded_bytes().contains(&b'/'))?;
    let callers = first(environment.variable("PATH")?, name, |_| true)?;
    let passed = environment.variable("PATH").filter(|_| policy.env.pass.iter().any(|name| name == "PATH"));
    let path = policy.env.set.get("PATH").map(OsStr::new).or(passed).unwrap_or(OsStr::new(PATH));
    let inside = first(path, name, |program| is_shown(plan, program))?;
    if callers.canonicalize().ok()? == inside.canonicalize().ok()? {
        return None;
    }
    Some(format!(
        "`{}` is {} inside, and {} where you stand: grant that folder with `--read`, with what it needs, and name it in `PATH` \
         (`--env PATH=..`)",
        show_bytes(name.as_encoded_bytes()),
        show_path(&inside),
        show_path(&callers)
    ))
}

/// The first program of this name in the folders of a `PATH`.
fn first(path: &OsStr, name: &OsStr, counts: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    let folders = std::env::split_paths(path).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|path| is_program(path) && counts(path))
}

/// Whether what the host has at a path is seen there inside.
fn is_shown(plan: &Plan, path: &Path) -> bool {
    let policy = &plan.policy;
    let same = policy.fs.read.iter().chain(&policy.fs.write).filter(|grant| grant.from == grant.to);
    let workspace = policy.workspace.path.iter().filter(|path| {
        policy.workspace.mode != WorkspaceMode::None && policy.workspace.at.as_ref().is_none_or(|at| at == *path)
    });
    let tools = TOOLS.iter().map(Path::new);
    tools
        .chain(same.map(|grant| grant.from.as_path()))
        .chain(workspace.map(PathBuf::as_path))
        .any(|tree| path.starts_with(tree))
}
