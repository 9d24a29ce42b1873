//! `[commands]` of a run: what was asked for is judged before there is a plan, and the kernel gets the list of executables
//! and that of the folders that may be written to.
//!
//! The judgement is the gate's; here stands what it is about: the words after `--`, a script or code of bash as a line, any
//! other script as words for its interpreter. What was judged is what runs: the program by its absolute path, with the words
//! and variables that its table puts in.

use std::ffi::OsString;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use gate::Blocked;
use gate::command::{Judge, JudgeOptions, Judgement, MAX_BYTES};
use policy::Loaded;
use policy::value::{Policy, Root, Tier, WorkspaceMode};

use super::launch;
use crate::error::Error;
use crate::fault::{Fault, show_text};
use crate::workload::{Code, Script, Workload};

/// Variables that the judged programs must have.
pub(super) type Forced = Vec<(OsString, OsString)>;

/// What is to be run, as the gate let it through.
#[derive(Debug)]
pub(super) struct JudgedWorkload {
    /// With the program's absolute path, and the words that its table puts in.
    pub(super) what: Workload,
    pub(super) forced: Forced,
    /// It was judged; else the policy names no commands, or there is nothing to judge them by.
    pub(super) by_gate: bool,
}

/// Judges what is to be run by the policy's commands, if it has any. The policy gets the executables as `fs.exec`.
pub(super) fn judge(loaded: &mut Loaded, what: Workload) -> Result<JudgedWorkload, Error> {
    let unjudged = |what| Ok(JudgedWorkload { what, forced: Vec::new(), by_gate: false });
    let Some(commands) = loaded.policy.commands.clone() else { return unjudged(what) };
    if matches!(loaded.policy.fs.root, Root::Empty | Root::Image(_)) {
        // Nothing can be looked up there: the planner refuses the clause.
        return unjudged(what);
    }
    let tier = policy::first_tier(loaded);
    let policy = loaded.policy_on(tier).into_owned();
    let judge = Judge::new(&commands, &loaded.documents, around(&policy)).map_err(Error::Mistakes)?;
    loaded.lints.extend(judge.lints().iter().cloned());
    let shell = is_bash(&what);
    let what = judged(&judge, what, &policy, tier)?;
    if commands.exec && matches!(policy.fs.root, Root::Host) {
        loaded.allow_only(judge.executables(shell));
    }
    let forced = judge.environment().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    Ok(JudgedWorkload { what, forced, by_gate: true })
}

/// Where commands run: the workspace as they see it, else the folder for temporary files.
pub fn around(policy: &Policy) -> JudgeOptions {
    let workspace = policy.workspace.path.clone().filter(|_| policy.workspace.mode != WorkspaceMode::None);
    let tree = match &policy.fs.root {
        Root::Dir(path) => path.clone(),
        Root::Host | Root::Empty | Root::Image(_) => PathBuf::from("/"),
    };
    JudgeOptions { root: policy.commands_at(), inspect: workspace, tree }
}

fn is_bash(what: &Workload) -> bool {
    match what {
        Workload::Code(Code { interpreter, .. }) | Workload::Script(Script { interpreter, .. }) => {
            interpreter.name == "bash"
        }
        Workload::Argv(_) | Workload::Shell | Workload::Agent(_) | Workload::Image | Workload::Nothing => false,
    }
}

fn judged(judge: &Judge, what: Workload, policy: &Policy, tier: Tier) -> Result<Workload, Error> {
    match what {
        Workload::Image | Workload::Nothing => Ok(Workload::Nothing),
        Workload::Agent(_) => Err(Error::refused(live())),
        Workload::Shell => Err(Error::refused(interactive())),
        Workload::Argv(words) => {
            let launch = judge.launch_argv(&words).map_err(|reasons| refused("the command", &reasons))?;
            let rest = launch.argv.into_iter().skip(1).map(OsString::from);
            Ok(Workload::Argv(std::iter::once(launch.path.into_os_string()).chain(rest).collect()))
        }
        Workload::Code(code) if code.interpreter.name == "bash" => {
            line(judge, &code.text, "the code")?;
            Ok(Workload::Code(code))
        }
        Workload::Script(script) if script.interpreter.name == "bash" => {
            line(judge, &text(&script, MAX_BYTES)?, "the script")?;
            Ok(Workload::Script(script))
        }
        Workload::Code(code) => {
            let words = argv_of(&code.interpreter.candidates, Path::new(launch::SHOWN).join(&code.name), &code.args);
            passes(judge.argv(&words), "the code")?;
            Ok(Workload::Code(code))
        }
        Workload::Script(script) => {
            let name = script.path.file_name().unwrap_or_default();
            let inside = launch::in_workspace(&script.path, policy, tier);
            let place = inside.unwrap_or_else(|| Path::new(launch::SHOWN).join(name));
            passes(judge.argv(&argv_of(&script.interpreter.candidates, place, &script.args)), "the script")?;
            Ok(Workload::Script(script))
        }
    }
}

fn argv_of(candidates: &[Vec<OsString>], file: PathBuf, args: &[OsString]) -> Vec<OsString> {
    let interpreter = candidates.first().cloned().unwrap_or_default();
    interpreter.into_iter().chain(std::iter::once(file.into_os_string())).chain(args.iter().cloned()).collect()
}

fn line(judge: &Judge, bytes: &[u8], place: &str) -> Result<(), Error> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let why = format!("the byte at {} fits nowhere", error.valid_up_to());
        let fault = Fault {
            id: "commands.line/character",
            what: format!("{place} is no text"),
            place: place.to_owned(),
            why,
            fix: "UTF-8".to_owned(),
        };
        Error::refused(fault)
    })?;
    passes(judge.line(text), place)
}

fn passes(judgement: Judgement, place: &str) -> Result<(), Error> {
    match judgement {
        Judgement::Allowed { .. } => Ok(()),
        Judgement::Refused(reasons) => Err(refused(place, &reasons)),
    }
}

/// The text of a script, at most one byte more than `most`, read without moving: the run reads the same open file again.
pub(super) fn text(script: &Script, most: usize) -> Result<Vec<u8>, Error> {
    let unreadable = |error: std::io::Error| launch::unreadable(&script.path, &error.to_string());
    // Never less because of what the file system says: what is judged must not be shorter than what runs.
    let mut bytes = vec![0; most.saturating_add(1)];
    let mut length = 0_usize;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        let at = u64::try_from(length).unwrap_or(u64::MAX);
        match script.file.read_at(rest, at).map_err(unreadable)? {
            0 => break,
            more => length = length.saturating_add(more),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

/// Every reason, each with what would be allowed.
fn refused(place: &str, reasons: &[Blocked]) -> Error {
    let fault = |reason: &Blocked| Fault {
        id: reason.id,
        what: show_text(&reason.what),
        place: place.to_owned(),
        why: show_text(&reason.why),
        fix: show_text(&reason.instead),
    };
    Error::Refused(reasons.iter().map(fault).collect())
}

fn live() -> Fault {
    Fault {
        id: "commands/live",
        what: "a live sandbox cannot be created under a policy of commands".to_owned(),
        place: "`commands` of the policy".to_owned(),
        why: "what `exec` starts would be judged by nobody".to_owned(),
        fix: "`fumehood run -- CMD ARGS` for each command, or a policy without `commands`".to_owned(),
    }
}

fn interactive() -> Fault {
    Fault {
        id: "commands.shell/interactive",
        what: "a shell cannot be opened under a policy of commands".to_owned(),
        place: "`fumehood shell`".to_owned(),
        why: "what is typed into it would be judged by nobody".to_owned(),
        fix: "`fumehood run -- CMD ARGS`, or a policy without `commands`".to_owned(),
    }
}
