//! A program of the caller's that is another one inside: versions of a toolchain live below the home folder, and the system's own of
//! the same name takes their place without a word.

use std::ffi::{OsStr, OsString};
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

/// Shells that take a text.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// Programs that start the one that is named behind their own words.
const STARTERS: [&str; 7] = ["env", "timeout", "nice", "nohup", "time", "stdbuf", "exec"];
/// Names of one command that are looked up at most.
const MAX_NAMES: usize = 20;
/// Bytes of a shell's text that are read at most.
const MAX_TEXT: usize = 16 << 10;

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
    let mut names = named(&words);
    if let Workload::Code(code) = what
        && words.first().is_some_and(|word| is_shell(word))
    {
        names.extend(of_shell(&String::from_utf8_lossy(&code.text)));
    }
    names.truncate(MAX_NAMES);
    names.iter().find_map(|name| differs(plan, environment, name))
}

/// What to say of one name.
fn differs(plan: &Plan, environment: &Environment, name: &OsStr) -> Option<String> {
    let policy = &plan.policy;
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

/// Names of programs that a command names in plain words: its own, what `env` and the like start, and what a shell is given by `-c`.
fn named(words: &[OsString]) -> Vec<OsString> {
    let Some((program, rest)) = words.split_first() else { return Vec::new() };
    let own = |word: &OsString| (!word.as_encoded_bytes().contains(&b'/')).then(|| word.clone());
    let mut names: Vec<OsString> = own(program).into_iter().collect();
    let base = Path::new(program).file_name().unwrap_or_default();
    if is_shell(program) {
        let text = rest.iter().skip_while(|word| !(is_option(word) && word.as_encoded_bytes().ends_with(b"c"))).nth(1);
        names.extend(of_shell(&text.map(|text| text.to_string_lossy()).unwrap_or_default()));
    } else if STARTERS.iter().any(|starter| base == *starter) {
        // A number is how long or how nice; a name with `=` is a variable.
        let is_name = |word: &&OsString| {
            let bytes = word.as_encoded_bytes();
            !is_option(word) && !bytes.contains(&b'=') && !bytes.first().is_some_and(u8::is_ascii_digit)
        };
        names.extend(rest.iter().find(is_name).and_then(own));
    }
    names
}

fn is_shell(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|base| SHELLS.iter().any(|shell| base == *shell))
}

fn is_option(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// Plain words of a shell's text that stand where commands begin. Read roughly: what they are said to be is looked up.
fn of_shell(text: &str) -> Vec<OsString> {
    let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default();
    let commands = text.split([';', '|', '&', '(', ')', '\n']);
    let first = |command: &str| command.split_whitespace().find(|word| !word.contains('=')).map(str::to_owned);
    let plain = |word: &String| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte));
    commands.filter_map(first).filter(plain).map(OsString::from).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_behind_shells_and_starters() {
        let of = |line: &[&str]| {
            let words: Vec<OsString> = line.iter().map(OsString::from).collect();
            named(&words).iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        for (line, names) in [
            (&["node", "-v"][..], "node"),
            (&["./node", "x"], ""),
            (&["sh", "-c", "node -v; A=1 npm ci && (cd x | yarn)"], "sh node npm cd yarn"),
            (&["/bin/bash", "-lc", "\"$X\" y\n./z\npython3 -V"], "python3"),
            (&["bash", "x.sh", "node"], "bash"),
            (&["bash", "-c"], "bash"),
            (&["env", "-i", "A=b", "node", "npm"], "env node"),
            (&["timeout", "-k", "5", "10s", "node"], "timeout node"),
            (&["/usr/bin/env", "./tool"], ""),
            (&[], ""),
        ] {
            assert_eq!(of(line), names, "{line:?}");
        }
    }
}
