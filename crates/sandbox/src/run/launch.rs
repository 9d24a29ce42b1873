//! What is to be run, as arguments and files inside.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use backends::OwnProgram;
use policy::control::Interpreter;
use policy::value::{Image, Policy, Root, Tier, WorkspaceMode};

use crate::environment::Environment;
use crate::error::Error;
use crate::fault::{Fault, show_bytes, show_text};
use crate::workload::{Code, Script, Workload};

/// Largest script or piece of code, bytes: CPython as WebAssembly, with its library, has 26 MB.
pub(super) const MAX_CODE: usize = Interpreter::MAX_PROGRAM;
/// Where scripts and code are shown in the container tier.
pub(super) const SHOWN: &str = "/run/fumehood";
/// Shells for a terminal, the best first.
const SHELLS: [&[&str]; 2] = [&["bash", "-i"], &["sh", "-i"]];
/// Folders in which programs are looked for.
const FOLDERS: [&str; 3] = ["usr/local/bin", "usr/bin", "bin"];

/// Arguments, and a file that they name.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) argv: Vec<OsString>,
    /// Name and content of a file that is shown read-only.
    pub(super) file: Option<(String, Vec<u8>)>,
    /// The program itself, where it is ours and has no path inside.
    pub(super) own: Option<OwnProgram>,
}

/// Decides the arguments; `shown` is the folder where a file of ours is shown.
pub(super) fn program(what: Workload, policy: &Policy, tier: Tier, tmp: Option<&Path>) -> Result<Program, Error> {
    let shown = match tmp {
        Some(tmp) if tier == Tier::Process => tmp.join("fumehood"),
        Some(_) | None => PathBuf::from(SHOWN),
    };
    match what {
        Workload::Argv(argv) => Ok(Program { argv, file: None, own: None }),
        Workload::Script(script) => from_script(script, policy, tier, &shown),
        Workload::Code(code) => Ok(from_code(code, policy, &shown)),
        Workload::Shell => {
            let candidates: Vec<Vec<OsString>> =
                SHELLS.iter().map(|words| words.iter().map(Into::into).collect()).collect();
            Ok(Program { argv: choose(&candidates, policy), file: None, own: None })
        }
        Workload::Agent(bytes) => {
            Ok(Program { argv: vec!["fumehood-agent".into()], file: None, own: Some(OwnProgram::Bytes(bytes)) })
        }
        Workload::Image | Workload::Nothing => Err(Error::failed(nothing())),
    }
}

/// What an image runs, by its name. An image that is not found is the planner's to refuse.
pub(super) fn named(what: Workload, policy: &Policy) -> Result<Workload, Error> {
    let Workload::Image = what else { return Ok(what) };
    match &policy.fs.root {
        Root::Image(Image { name: _, found: Err(_) }) => Ok(Workload::Nothing),
        Root::Image(Image { name, found: Ok(found) }) if found.command.is_empty() => Err(Error::failed(Fault {
            why: format!("the image `{}` names neither ENTRYPOINT nor CMD", show_text(name)),
            ..nothing()
        })),
        Root::Image(Image { name: _, found: Ok(found) }) => {
            Ok(Workload::Argv(found.command.iter().map(OsString::from).collect()))
        }
        Root::Host | Root::Empty | Root::Dir(_) => Err(Error::failed(nothing())),
    }
}

/// What an interpreter of the language tier is given: the name of the program, its arguments, and the program itself.
pub(super) fn interpreted(what: Workload, environment: &Environment) -> Result<Program, Error> {
    let (name, bytes, args) = match what {
        Workload::Code(code) => (code.name, code.text, code.args),
        Workload::Script(script) => {
            let (name, bytes) = read(&script.path, script.file)?;
            (name, bytes, script.args)
        }
        // The planner takes no other to this tier.
        Workload::Argv(_) | Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => {
            return Err(Error::failed(nothing()));
        }
    };
    let own = environment.broker.clone().ok_or_else(|| {
        Error::refused(Fault {
            id: "language/no-program",
            what: "this program cannot start an interpreter of the language tier".to_owned(),
            place: "the start".to_owned(),
            why: "the executable that becomes the interpreter is not where it was started from, or was not named"
                .to_owned(),
            fix: "start fumehood again from its new place; in a library, set `Environment::broker`".to_owned(),
        })
    })?;
    let argv = std::iter::once(OsString::from(&name)).chain(args).collect();
    Ok(Program { argv, file: Some((name, bytes)), own: Some(OwnProgram::File(own)) })
}

/// The name and the bytes of a script.
fn read(path: &Path, file: File) -> Result<(String, Vec<u8>), Error> {
    let mut bytes = Vec::new();
    let most = u64::try_from(MAX_CODE).unwrap_or(u64::MAX).saturating_add(1);
    file.take(most).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e.to_string()))?;
    if bytes.len() > MAX_CODE {
        return Err(unreadable(path, &format!("it is larger than {MAX_CODE} bytes")));
    }
    let name = path.file_name().unwrap_or(OsStr::new("script")).to_owned();
    // Names inside are text: what is no text would not survive the frames' logs.
    Ok((name.into_string().unwrap_or_else(|_bytes| "script".to_owned()), bytes))
}

fn nothing() -> Fault {
    Fault {
        id: "usage/no-program",
        what: "no program was named".to_owned(),
        place: "the call".to_owned(),
        why: "there is nothing to run".to_owned(),
        fix: "name a command, a script or code".to_owned(),
    }
}

fn from_script(script: Script, policy: &Policy, tier: Tier, shown: &Path) -> Result<Program, Error> {
    let mut argv = choose(&script.interpreter.candidates, policy);
    // What was judged is what runs: a script that the run may write to is shown as a copy.
    if let Some(inside) = in_workspace(&script.path, policy, tier).filter(|_| policy.commands.is_none()) {
        argv.push(inside.into_os_string());
        argv.extend(script.args);
        return Ok(Program { argv, file: None, own: None });
    }
    let (name, bytes) = read(&script.path, script.file)?;
    argv.push(shown.join(&name).into_os_string());
    argv.extend(script.args);
    Ok(Program { argv, file: Some((name, bytes)), own: None })
}

fn from_code(code: Code, policy: &Policy, shown: &Path) -> Program {
    let mut argv = choose(&code.interpreter.candidates, policy);
    argv.push(shown.join(&code.name).into_os_string());
    argv.extend(code.args);
    Program { argv, file: Some((code.name, code.text)), own: None }
}

pub(super) fn unreadable(path: &Path, why: &str) -> Error {
    Error::failed(Fault {
        id: "run/script-unreadable",
        what: format!("`{}` cannot be read", show_bytes(path.as_os_str().as_encoded_bytes())),
        place: "the script".to_owned(),
        why: why.to_lowercase(),
        fix: "check the file".to_owned(),
    })
}

/// The path inside of a script that lies in the workspace.
pub(super) fn in_workspace(script: &Path, policy: &Policy, tier: Tier) -> Option<PathBuf> {
    if policy.workspace.mode == WorkspaceMode::None {
        return None;
    }
    // A copy in the process tier lies elsewhere: then the script is shown like any other.
    if tier.on_host_tree() && policy.workspace.mode == WorkspaceMode::Copy {
        return None;
    }
    let root = policy.workspace.path.as_ref()?.canonicalize().ok()?;
    let below = script.canonicalize().ok()?;
    let rest = below.strip_prefix(&root).ok()?;
    Some(policy.workspace.at.clone().unwrap_or(root.clone()).join(rest))
}

/// The first command line whose program exists inside; the first of all when that cannot be known from here.
pub(super) fn choose(candidates: &[Vec<OsString>], policy: &Policy) -> Vec<OsString> {
    let there = |name: &OsStr| {
        let Some(root) = policy.fs.root.tree() else { return false };
        if Path::new(name).is_absolute() {
            return sys::paths::is_within(root, Path::new(name));
        }
        FOLDERS.iter().any(|folder| sys::paths::is_within(root, &Path::new(folder).join(name)))
    };
    candidates
        .iter()
        .find(|words| words.first().is_some_and(|name| there(name)))
        .or_else(|| candidates.first())
        .cloned()
        .unwrap_or_default()
}
