//! A program of the caller's that is another one inside, or none: versions of a toolchain live below the home folder, where the
//! system's own of the same name takes their place without a word, and where a virtual environment's links lead.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use policy::Plan;
use policy::value::{Policy, Root, TOOLS, Tier, WorkspaceMode};
use rustix::fs::{FileType, Mode, OFlags};

use super::launch;
use crate::environment::Environment;
use crate::fault::{show_bytes, show_path};
use crate::workload::Workload;

/// Where programs are looked for inside, unless the policy says otherwise.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Shells that take a text.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "zsh", "ksh"];
/// Programs that start the one that is named behind their own words.
const STARTERS: [&str; 7] = ["env", "timeout", "nice", "nohup", "time", "stdbuf", "exec"];
/// Programs that people have in versions of their own.
const TOOLCHAINS: [&str; 14] =
    ["node", "npm", "deno", "bun", "python3", "python", "pip", "uv", "go", "cargo", "rustc", "ruby", "java", "php"];
/// Names of one command that are looked up at most.
const MAX_NAMES: usize = 20;
/// Bytes of a shell's text that are read at most.
const MAX_TEXT: usize = 16 << 10;
/// Bytes of a `#!` line that are read at most: the kernel reads as many.
const MAX_LINE: u64 = 256;

/// What a program's path means on the host, as it is shown inside.
pub(super) fn outside(program: &OsStr, policy: &Policy) -> PathBuf {
    let (root, at) = (policy.workspace.path.as_deref(), policy.workspace.at.as_deref());
    let name = Path::new(program);
    let below = match (root, at) {
        (Some(root), Some(at)) => name.strip_prefix(at).ok().map(|rest| root.join(rest)),
        (_, _) => None,
    };
    // What is not absolute is seen from the workspace.
    below.or_else(|| root.map(|root| root.join(name))).unwrap_or_else(|| name.to_owned())
}

/// What to say where the caller's own program of that name is another file than the one that is found inside, or none.
pub(super) fn note(plan: &Plan, what: &Workload, environment: &Environment) -> Option<String> {
    let policy = &plan.policy;
    if policy.fs.root != Root::Host || !matches!(plan.tier, Tier::Process | Tier::Container) {
        return None;
    }
    let words = match what {
        Workload::Argv(argv) => argv.clone(),
        Workload::Script(script) => launch::choose(&script.interpreter.candidates, policy),
        Workload::Code(code) => launch::choose(&code.interpreter.candidates, policy),
        Workload::Shell | Workload::Agent(_) => return toolchains(policy, environment),
        Workload::Image | Workload::Nothing => return None,
    };
    let mut names = named(&words);
    if let Workload::Code(code) = what
        && words.first().is_some_and(|word| is_shell(word))
    {
        names.extend(of_shell(&String::from_utf8_lossy(&code.text)));
    }
    names.truncate(MAX_NAMES);
    names.iter().find_map(|name| of_name(policy, environment, name))
}

/// What to say where programs are named later: of toolchains that people have below their home folders.
#[must_use]
pub fn toolchains(policy: &Policy, environment: &Environment) -> Option<String> {
    let differs = |name: &&&str| differs(policy, environment, OsStr::new(name)).is_some();
    let others: Vec<&str> = TOOLCHAINS.iter().filter(differs).copied().collect();
    let first = self::differs(policy, environment, OsStr::new(others.first()?))?;
    let more: Vec<String> = others.iter().skip(1).map(|name| format!("`{name}`")).collect();
    Some(if more.is_empty() { first } else { format!("{first}. The same is true of {}", more.join(", ")) })
}

/// What to say of one name, or of one path and what its `#!` line names.
fn of_name(policy: &Policy, environment: &Environment, name: &OsStr) -> Option<String> {
    if !name.as_encoded_bytes().contains(&b'/') {
        return differs(policy, environment, name);
    }
    let file = outside(name, policy);
    leads_away(policy, &file, name).or_else(|| {
        let words = first_line(&file)?;
        let interpreter = words.first()?;
        leads_away(policy, Path::new(interpreter), interpreter)
            .or_else(|| named(&words).iter().find_map(|name| differs(policy, environment, name)))
    })
}

/// What to say of a path that is a link to a file which is not shown inside.
fn leads_away(policy: &Policy, file: &Path, name: &OsStr) -> Option<String> {
    let end = away(policy, file)?;
    Some(format!(
        "`{}` leads to {}, which is not there inside: grant that folder with `--read`, with what it needs",
        show_bytes(name.as_encoded_bytes()),
        show_path(&end)
    ))
}

/// The file to which a path leads out of what is shown inside, or which it names there.
pub(super) fn away(policy: &Policy, file: &Path) -> Option<PathBuf> {
    let end = file.canonicalize().ok().filter(|end| end.is_file())?;
    // Wherever the workspace is seen, what leads from it into it leads somewhere.
    let root = policy.workspace.path.as_deref().filter(|_| policy.workspace.mode != WorkspaceMode::None);
    let is_own = root.and_then(|root| root.canonicalize().ok()).is_some_and(|root| end.starts_with(root));
    (policy.fs.root == Root::Host && file.is_absolute() && !is_own && !is_shown(policy, &end)).then_some(end)
}

/// The words of a file's `#!` line.
fn first_line(file: &Path) -> Option<Vec<OsString>> {
    // Looked at before it is opened for reading: a FIFO would hold us, and to open a device may act.
    let place = rustix::fs::open(file, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()?;
    if FileType::from_raw_mode(rustix::fs::fstat(&place).ok()?.st_mode) != FileType::RegularFile {
        return None;
    }
    let file = std::fs::File::open(format!("/proc/self/fd/{}", place.as_raw_fd())).ok()?;
    let mut head = Vec::new();
    file.take(MAX_LINE).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(String::from_utf8_lossy(line).split_whitespace().map(OsString::from).collect())
}

/// What to say of one name.
fn differs(policy: &Policy, environment: &Environment, name: &OsStr) -> Option<String> {
    let callers = first(environment.variable("PATH")?, name, |_| true)?;
    let passed = environment.variable("PATH").filter(|_| policy.env.pass.iter().any(|name| name == "PATH"));
    let path = policy.env.set.get("PATH").map(OsStr::new).or(passed).unwrap_or(OsStr::new(PATH));
    // A link in such a tree may lead out of it (`/usr/local/bin/node` to `/opt`).
    let is_there = |program: &Path| program.canonicalize().is_ok_and(|end| is_shown(policy, &end));
    let inside = first(path, name, |program| is_shown(policy, program) && is_there(program));
    let Some(inside) = inside else {
        return is_shown(policy, &callers).then(|| leads_away(policy, &callers, callers.as_os_str())).flatten();
    };
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

/// Names and paths of programs that a command names in plain words: its own, what `env` and the like start, and what a shell is
/// given by `-c`.
fn named(words: &[OsString]) -> Vec<OsString> {
    let Some((program, rest)) = words.split_first() else { return Vec::new() };
    let mut names = vec![program.clone()];
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
        names.extend(rest.iter().find(is_name).cloned());
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
    let plain = |word: &String| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-/".contains(&byte));
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
fn is_shown(policy: &Policy, path: &Path) -> bool {
    let same = policy.fs.read.iter().chain(&policy.fs.write).filter(|grant| grant.from == grant.to);
    let workspace = policy.workspace.path.iter().filter(|path| {
        policy.workspace.mode != WorkspaceMode::None && policy.workspace.at.as_ref().is_none_or(|at| at == *path)
    });
    let tools = TOOLS.iter().map(Path::new);
    tools
        .chain(same.map(|grant| grant.from.as_path()))
        .chain(workspace.map(PathBuf::as_path))
        .any(|tree| path.starts_with(tree) || tree.canonicalize().is_ok_and(|tree| path.starts_with(tree)))
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
            (&["./node", "x"], "./node"),
            (&["sh", "-c", "node -v; A=1 npm ci && (cd x | yarn)"], "sh node npm cd yarn"),
            (&["/bin/bash", "-lc", "\"$X\" y\n./z\npython3 -V"], "/bin/bash ./z python3"),
            (&["bash", "x.sh", "node"], "bash"),
            (&["bash", "-c"], "bash"),
            (&["env", "-i", "A=b", "node", "npm"], "env node"),
            (&["timeout", "-k", "5", "10s", "node"], "timeout node"),
            (&["/usr/bin/env", "./tool"], "/usr/bin/env ./tool"),
            (&[], ""),
        ] {
            assert_eq!(of(line), names, "{line:?}");
        }
    }

    #[test]
    fn toolchains_of_the_callers_own_are_named_together() {
        let folder = tempfile::tempdir().unwrap();
        let policy = {
            let profiles = vec!["default".to_owned()];
            policy::Layers::new(policy::Caller { dir: "/".into(), home: None, profiles }).finish().unwrap().policy
        };
        let with = |path: String| {
            let mut environment = Environment::default();
            environment.env.insert("PATH".into(), path.into());
            toolchains(&policy, &environment)
        };
        assert_eq!(with("/usr/bin:/bin".into()), None);
        for name in ["python3", "nosuchtool"] {
            std::fs::write(folder.path().join(name), "").unwrap();
            std::fs::set_permissions(folder.path().join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let said = with(format!("{}:/usr/bin", folder.path().display())).unwrap();
        assert!(
            said.starts_with("`python3` is ") && said.contains(" where you stand") && !said.contains("nosuch"),
            "{said}"
        );
    }

    #[test]
    fn a_first_line_is_read_of_files_alone() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let of = |name: &str| {
            first_line(&at(name))
                .map(|words| words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>())
        };
        std::fs::write(at("tool"), "#!/usr/bin/env -S node --x\nbody\n").unwrap();
        assert_eq!(of("tool").unwrap(), ["/usr/bin/env", "-S", "node", "--x"]);
        std::fs::write(at("text"), "no program\n").unwrap();
        assert_eq!(of("text"), None);
        rustix::fs::mkfifoat(rustix::fs::CWD, at("fifo"), Mode::RWXU).unwrap();
        assert_eq!((of("fifo"), of("nothing"), of(".")), (None, None, None));
    }

    #[test]
    fn a_link_out_of_what_is_shown_is_told_with_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("ws/.venv/bin")).unwrap();
        std::fs::write(root.join("python"), "").unwrap();
        let link = root.join("ws/.venv/bin/python");
        std::os::unix::fs::symlink("../../../python", &link).unwrap();
        let profiles = vec!["default".to_owned()];
        let mut layers = policy::Layers::new(policy::Caller { dir: root.clone(), home: None, profiles });
        layers.set("workspace.mode=\"overlay\"");
        layers.set(&format!("workspace.path={:?}", root.join("ws")));
        let policy = layers.finish().unwrap().policy;
        assert_eq!(away(&policy, &outside(OsStr::new(".venv/bin/python"), &policy)), Some(root.join("python")));
        std::fs::write(root.join("ws/own"), "").unwrap();
        assert_eq!(away(&policy, &root.join("ws/own")), None);
        assert_eq!(away(&policy, Path::new("/usr/bin/env")), None);
        assert_eq!(away(&policy, &root.join("ws/none")), None);
    }
}
