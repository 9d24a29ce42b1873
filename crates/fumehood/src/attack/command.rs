//! `fumehood attack`, and the hidden commands that its probes are made of.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::probe::task::{self, Ended, Forked};
use rustix::fs::{Mode, OFlags};
use serde_json::{Value, json};
use sys::command::Command;

use crate::attack::bare::Bare;
use crate::attack::bwrap::Bwrap;
use crate::attack::confined::Confined;
use crate::attack::judge::{Ground, Outcome, Verdict, judge, program};
use crate::attack::ours::Ours;
use crate::attack::promise::Promises;
use crate::attack::proof::Proof;
use crate::attack::row::{Group, Row, catalogue};
use crate::attack::stage::{NOBODY, Stage};
use crate::attack::{probe, scene};
use crate::cli::args::{Flag, To, Words, closest, usage};
use crate::cli::flags::POLICY;
use crate::cli::spec::{Call, Spec};
use crate::ui::{Failure, Palette, Role, Table};
use sandbox::audit::{Log, Options};
use sandbox::fault::{Fault, show_bytes};

const FLAGS: &[Flag] = &[
    Flag::new("only", Some("IDS"), To::Ours, "Only these rows or groups, e.g. FS,NET-01"),
    Flag::new(
        "against",
        Some("WHAT"),
        To::Ours,
        "Try another sandbox instead: bwrap; none tries the probes themselves",
    )
    .choices(&["bwrap", "none"]),
    Flag::new("verbose", None, To::Ours, "Show every row, not only what is worth a look").short(b'v'),
];

/// `fumehood attack`
pub const SPEC: Spec = Spec {
    path: &["attack"],
    about: "Show on this machine that what a policy promises holds",
    usage: "[POLICY FLAGS] [--only IDS] [-v]",
    more: "Each row tries one way out, first unconfined (where it must succeed) and then in your sandbox; somebody outside \
           judges. Harmless where it succeeds, bounded, safe as root. \
           Exit codes: 0 all that is promised holds, or nothing of `--only` is promised, 1 something escaped or nothing \
           could be tried, 125 own failure.\n\
           Example: fumehood attack --tier process -p policy.toml",
    tables: &[POLICY, FLAGS],
    words: Words::Mixed(0),
    hidden: false,
    run: attack,
};

/// `fumehood __probe MARKER NAME ARGS`
pub const PROBE: Spec = hidden(&["__probe"], run_probe);
/// `fumehood __control HOW PROGRAM ARGS`
pub const CONTROL: Spec = hidden(&["__control"], run_control);
/// `fumehood __neighbour TOKEN`
pub const NEIGHBOUR: Spec = hidden(&["__neighbour"], run_neighbour);

const fn hidden(path: &'static [&'static str], run: fn(&mut Call<'_>) -> Result<u8, Failure>) -> Spec {
    Spec { path, about: "Part of attack", usage: "", more: "", tables: &[], words: Words::EndFlags, hidden: true, run }
}

fn fault(what: &str, why: impl std::fmt::Display) -> Failure {
    Failure::own(Fault {
        id: "attack/failed",
        what: what.to_owned(),
        place: "`fumehood attack`".to_owned(),
        why: why.to_string().to_lowercase(),
        fix: "see the reason; nothing was concluded".to_owned(),
    })
}

fn attack(call: &mut Call<'_>) -> Result<u8, Failure> {
    let all = catalogue().map_err(|error| fault("the built-in catalogue cannot be read", error.message()))?;
    let rows = chosen(&all, call.parsed.value("only"))?;
    let own = PathBuf::from("/proc/self/exe");
    let own = std::fs::read_link(&own).map_err(|error| fault("our own program cannot be found", error))?;
    let root = call.environment.euid == 0;
    let policy = policy_flags(call);
    let against = call.parsed.value("against").map(OsStr::as_bytes);
    let (inside, promises): (Box<dyn Confined>, Promises) = match against {
        Some(b"bwrap") => (Box::new(Bwrap), Promises::everything()),
        Some(b"none") => (Box::new(Bare), Promises::everything()),
        Some(other) => {
            let typed = format!("`--against {}`", show_bytes(other));
            let why = "no such sandbox".to_owned();
            return Err(Failure::own(usage("usage/bad-value", typed, why, "bwrap or none".to_owned())));
        }
        None => ours(call, own, policy)?,
    };
    let base = [Path::new("/tmp"), Path::new("/var/tmp")];
    let base = base.into_iter().find(|path| path.is_dir()).unwrap_or(Path::new("/"));
    let stage = Stage::make(base, root).map_err(|error| fault("no folder can be made", error))?;
    let program = program(&stage).map_err(|error| fault("our own program cannot be copied", error))?;
    let state = call.environment.state.state().ok().map(|(path, _)| path);
    let env = caller(call);
    let ground = Ground { base: base.to_path_buf(), program, root, promises, state, env };
    let mut verdicts = Vec::with_capacity(rows.len());
    let watched = call.environment.stderr_terminal && !call.json;
    for (at, row) in rows.iter().enumerate() {
        if watched {
            call.console.eprint(&format!("\r{}/{} {}\u{1b}[K\u{1b}[A", at + 1, rows.len(), row.id));
        }
        verdicts.push(judge(row, &ground, inside.as_ref()));
    }
    drop(stage);
    let proof = Proof::of(verdicts.iter().map(|verdict| verdict.result), call.parsed.has("only"));
    if call.json {
        call.console.json(&report(&ground.promises.tier, inside.name(), &verdicts))?;
    } else {
        // Where nothing is promised, the rows and their reasons are all that there is to say.
        let all = call.parsed.has("verbose") || proof == Proof::NothingPromised;
        let text = shown(&verdicts, all, call.console.out, call.console.columns);
        call.console.data(text.as_bytes())?;
    }
    if let Some((role, head, what)) = proof.told() {
        call.console.eprint(&format!("{} {what}\n", call.console.err.paint(role, head)));
    }
    Ok(u8::from(matches!(proof, Proof::Escaped | Proof::NothingTried)))
}

/// The rows of `--only`.
fn chosen(all: &[Row], only: Option<&OsStr>) -> Result<Vec<Row>, Failure> {
    let Some(only) = only else { return Ok(all.to_vec()) };
    let text = show_bytes(only.as_bytes());
    let mut rows = Vec::new();
    for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let wanted = word.to_uppercase();
        let fits = |row: &&Row| row.id.to_uppercase() == wanted || row.id.split('-').next() == Some(wanted.as_str());
        let found: Vec<Row> = all.iter().filter(fits).cloned().collect();
        if found.is_empty() {
            let fix = closest(word, all.iter().map(|row| row.id.as_str()))
                .map_or_else(|| "`fumehood attack -v` lists all rows".to_owned(), |best| format!("--only {best}"));
            let why = "no row or group has this id".to_owned();
            return Err(Failure::own(usage("usage/bad-value", format!("`--only {word}`"), why, fix)));
        }
        rows.extend(found);
    }
    Ok(rows)
}

/// The caller's environment.
fn caller(call: &Call<'_>) -> Vec<(String, OsString)> {
    call.environment.env.iter().map(|(name, value)| (name.to_string_lossy().into_owned(), value.clone())).collect()
}

/// The flags that make the policy, as they were typed.
fn policy_flags(call: &Call<'_>) -> Vec<OsString> {
    let mut flags = Vec::new();
    for (flag, value) in &call.parsed.flags {
        if POLICY.contains(flag) {
            flags.push(OsString::from(format!("--{}", flag.long)));
            flags.extend(value.clone());
        }
    }
    flags
}

/// Our own sandbox, with what its plan promises.
fn ours(call: &Call<'_>, own: PathBuf, policy: Vec<OsString>) -> Result<(Box<dyn Confined>, Promises), Failure> {
    let env = caller(call);
    let mut plan = Command::new(&own).args(["plan", "--json"]).args(&policy);
    for (name, value) in &env {
        plan = plan.env(name, value);
    }
    let output =
        plan.output(b"", 4 << 20, Duration::from_secs(20)).map_err(|error| fault("the plan cannot be made", error))?;
    let value: Value = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let Some(promises) = Promises::of(&value) else {
        let said = String::from_utf8_lossy(&output.stderr);
        let part = |reason: &Value, name| reason.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let reasons = value.get("refused").or_else(|| value.get("errors")).and_then(Value::as_array);
        let reasons = reasons.map(|all| all.iter().map(|one| format!("{}: {}", part(one, "what"), part(one, "why"))));
        let why = reasons.map_or_else(
            || said.lines().take(3).collect::<Vec<_>>().join(" "),
            |all| all.collect::<Vec<_>>().join("; "),
        );
        return Err(fault("there is no plan to try", why));
    };
    usable(call, &promises)?;
    // Our own workspace takes the place of the user's, in the mode of the policy.
    let mode = match (promises.workspace_mode(), promises.tier.as_str()) {
        ("none", "process") => "copy",
        ("none", _) => "overlay",
        (mode, _) => mode,
    };
    let mut kept = Vec::new();
    let mut words = policy.into_iter();
    while let Some(word) = words.next() {
        if word == "--workspace" {
            words.next();
        } else {
            kept.push(word);
        }
    }
    let cwd = call.environment.cwd.clone().unwrap_or_else(|| PathBuf::from("/"));
    let ours = Ours { program: own, policy: kept, tier: promises.tier.clone(), mode: mode.to_owned(), cwd, env };
    Ok((Box::new(ours), promises))
}

/// No run starts without a state folder and a log: told once, rather than as the reason of each row.
fn usable(call: &Call<'_>, promises: &Promises) -> Result<(), Failure> {
    let state = crate::changes::state(call.environment)?;
    let folder = promises.clauses.get("audit.path").and_then(Value::as_str).map(Path::new);
    Log::open(&state, folder, Options::default()).map(drop).map_err(|error| Failure::own(error.fault()))
}

/// The result for programs.
fn report(tier: &str, against: &str, verdicts: &[Verdict]) -> Value {
    let count = |outcome| verdicts.iter().filter(|verdict| verdict.result == outcome).count();
    json!({
        "schema": 1,
        "tier": tier,
        "against": against,
        "rows": verdicts,
        "totals": {
            "rows": verdicts.len(),
            "held": count(Outcome::Held),
            "escaped": count(Outcome::Escaped),
            "not-promised": count(Outcome::NotPromised),
            "skipped": count(Outcome::Skipped),
        },
    })
}

/// The result for people: what escaped first, then what nothing can be said of, then the count.
fn shown(verdicts: &[Verdict], all: bool, palette: Palette, columns: usize) -> String {
    let mut table = Table::new(&["id", "result", "what was tried", "why"]);
    for outcome in [Outcome::Escaped, Outcome::Skipped, Outcome::NotPromised, Outcome::Held] {
        if !all && matches!(outcome, Outcome::NotPromised | Outcome::Held) {
            continue;
        }
        for verdict in verdicts.iter().filter(|verdict| verdict.result == outcome) {
            let role = (outcome == Outcome::Escaped).then_some(Role::Bad);
            let why = show_bytes(verdict.why.as_bytes());
            table.painted([(&verdict.id, None), (word(outcome), role), (&verdict.title, None), (&why, None)]);
        }
    }
    let mut text = if table.is_empty() { String::new() } else { format!("{}\n", table.render(palette, 0, columns)) };
    let mut totals = Table::new(&["", "held", "escaped", "not promised", "skipped"]);
    let groups = [Group::Res, Group::Fs, Group::Net, Group::Priv, Group::Info, Group::Pers];
    let cells = |of: &dyn Fn(&&Verdict) -> bool| {
        [Outcome::Held, Outcome::Escaped, Outcome::NotPromised, Outcome::Skipped]
            .map(|outcome| verdicts.iter().filter(of).filter(|verdict| verdict.result == outcome).count().to_string())
    };
    for group in groups {
        let [held, escaped, other, skipped] = cells(&|verdict: &&Verdict| verdict.group == group);
        totals.row([group.title(), &held, &escaped, &other, &skipped]);
    }
    let [held, escaped, other, skipped] = cells(&|_: &&Verdict| true);
    totals.row(["in all", &held, &escaped, &other, &skipped]);
    text.push_str(&totals.render(palette, 0, columns));
    text
}

/// The word for a result.
pub(super) const fn word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Held => "held",
        Outcome::Escaped => "ESCAPED",
        Outcome::NotPromised => "not promised",
        Outcome::Skipped => "skipped",
    }
}

fn run_probe(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut words = std::mem::take(&mut call.parsed.words).into_iter();
    let (_marker, name) = (words.next(), words.next().unwrap_or_default());
    let known = probe::run(&name.to_string_lossy(), words.collect());
    // Nobody else hands on what a probe left in its buffer; one that filled its output has no reader.
    drop(std::io::Write::flush(&mut std::io::stdout()));
    Ok(if known { 0 } else { 125 })
}

fn run_neighbour(call: &mut Call<'_>) -> Result<u8, Failure> {
    let token = call.parsed.words.first().cloned().unwrap_or_default();
    scene::neighbour_stay(&token).map_err(|error| fault("the neighbour cannot speak", error))?;
    Ok(0)
}

/// Lets go of privilege or of the host's namespaces, and becomes the program.
fn run_control(call: &mut Call<'_>) -> Result<u8, Failure> {
    let how = call.parsed.words.first().cloned().unwrap_or_default();
    let own = if how == "mount" { 3 } else { 1 };
    let argv: Vec<&OsStr> = call.parsed.words.iter().skip(own).map(OsString::as_os_str).collect();
    let path = argv.first().copied().unwrap_or_default();
    let opened = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let fd = opened.map_err(|errno| fault("the program cannot be opened", errno))?;
    let root = call.environment.euid == 0;
    let done = match how.as_bytes() {
        b"user" if root => task::become_id(NOBODY),
        b"groups" if root => task::join_groups(&[4, 6, 20]),
        b"terminal" => task::own_terminal(),
        b"mount" => own_mount(call),
        b"private" => return private(&fd, &argv, call),
        _ => Ok(()),
    };
    done.map_err(|errno| fault("privilege cannot be let go", errno))?;
    let env = environment(call);
    let env: Vec<&OsStr> = env.iter().map(OsString::as_os_str).collect();
    let errno = task::exec(fd, &argv, &env);
    Err(fault("the program cannot be executed", errno))
}

/// `FOLDER SECRET`: another file system there, that nobody else sees, with the secret in a file.
fn own_mount(call: &Call<'_>) -> rustix::io::Result<()> {
    let word = |at: usize| call.parsed.words.get(at).cloned().unwrap_or_default();
    task::own_mount_at(&word(1))?;
    let written = std::fs::write(Path::new(&word(1)).join("secret.txt"), word(2).as_bytes());
    written.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
}

fn environment(call: &Call<'_>) -> Vec<OsString> {
    let join = |(name, value): (&OsString, &OsString)| [name, OsStr::new("="), value].into_iter().collect::<OsString>();
    call.environment.env.iter().map(join).collect()
}

/// New mount, process, network, ipc and host name namespaces, and a user namespace for who is not root: what succeeds in
/// them touches nothing else.
fn private(fd: &std::os::fd::OwnedFd, argv: &[&OsStr], call: &Call<'_>) -> Result<u8, Failure> {
    const OWN: i32 = 0x0002_0000 | 0x2000_0000 | 0x4000_0000 | 0x0800_0000 | 0x0400_0000;
    let user = if call.environment.euid == 0 { 0 } else { 0x1000_0000 };
    // Inside, before the maps, everybody is nobody.
    let gid = rustix::process::getegid().as_raw();
    task::unshare(OWN | user).map_err(|errno| fault("no private namespaces can be made", errno))?;
    if user != 0 {
        // Root of the new user namespace: an execution by anybody else would lose what is to be tried.
        let uid = call.environment.euid;
        std::fs::write("/proc/self/setgroups", "deny")
            .and_then(|()| std::fs::write("/proc/self/uid_map", format!("0 {uid} 1")))
            .and_then(|()| std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")))
            .map_err(|error| fault("the private user namespace has no ids", error))?;
    }
    let env = environment(call);
    let env: Vec<&OsStr> = env.iter().map(OsString::as_os_str).collect();
    let forked = task::fork().map_err(|errno| fault("no child can be made", errno))?;
    let Forked::Parent(child) = forked else {
        // Process 1 of the new namespace holds its own `/proc`, and starts the probe.
        if task::own_proc().is_err() {
            task::leave(125);
        }
        // A mount of the working directory, whose place on the host the list of mounts then tells. Only one row needs it.
        let _shown = task::bind_here();
        let ended = task::in_child(|| u8::try_from(task::exec(fd, argv, &env).raw_os_error()).unwrap_or(125));
        task::leave(match ended {
            Ok(Ended::Code(code)) => code,
            Ok(Ended::Signal(_)) | Err(_) => 125,
        });
    };
    match task::wait(child) {
        Ok(Ended::Code(code)) => Ok(code),
        Ok(Ended::Signal(_)) | Err(_) => Ok(125),
    }
}
