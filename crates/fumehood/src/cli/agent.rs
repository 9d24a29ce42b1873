//! `fumehood agent`: a coding agent in a sandbox that is made for it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use serde_json::json;

use super::args::{Flag, Positionals, closest, usage};
use super::ask::request;
use super::flags::{POLICY, SAYING};
use super::spec::{Call, Spec};
use crate::agents::{Agent, AgentFolder, InstalledProgram, START, agents, find, keys, logins};
use crate::run::run as start;
use crate::ui::{Failure, REFUSED, Role, count};
use sandbox::Workload;
use sandbox::fault::{Fault, show_bytes};

/// `-t`, which is meant wherever there is a terminal.
const TERMINAL: &[Flag] = &[
    Flag::new("interactive", None, super::args::To::Ours, "Let a terminal be the agent's stdin").short(b'i'),
    Flag::new(
        "tty",
        None,
        super::args::To::Clause,
        "Give the agent a terminal of its own; so it is where there is one",
    )
    .short(b't'),
    Flag::new("no-key", None, super::args::To::Ours, "Start it also where it has no key: it reaches no API then"),
];

pub(super) const SPEC: Spec = Spec {
    path: &["agent"],
    about: "Run a coding agent: claude, codex, gemini, aider, opencode; or `ls` them",
    usage: "[FLAGS] NAME [--] ARGS... | ls",
    more: "The agent works on a layer over this folder (`fumehood diff`, `apply`), in the policy `coding-agent` with its API, package registries, and \
      GitHub for reading: a push is refused. Its key is taken from the variable that it reads, put into requests to its API by the broker, and is \
      not inside. Its settings are a copy: text files, without what is called a key, token or password; what it changes there is gone at the end. \
      Flags stand before the name, and later policies win: `fumehood agent --allow-host example.org claude -p 'do it'`.\n\n\
      Exit codes: those of `fumehood run`; 126 also for an agent that is not installed, or has no key (but with `--no-key`, or rules of yours).",
    tables: &[POLICY, TERMINAL, SAYING],
    words: Positionals::EndFlags,
    hidden: false,
    run,
};

fn run(call: &mut Call<'_>) -> Result<u8, Failure> {
    let mut words = std::mem::take(&mut call.parsed.words).into_iter();
    let name = words.next().unwrap_or_default();
    if name == "ls" {
        return list(call);
    }
    let agent = named(&name)?;
    let mut args: Vec<OsString> = words.collect();
    if args.first().is_some_and(|word| word == "--") {
        args.remove(0);
    }
    let found = find(&agent.program, call.environment).ok_or_else(|| not_installed(agent))?;
    if keys(agent, call.environment).is_empty() && !call.parsed.has("no-key") && !has_rules(call) {
        return Err(no_key(agent, call));
    }
    let given = AgentFolder::new(agent, &found, call.environment)?;
    said(call, agent, &given);
    ask(call, &found, &given)?;
    let mut argv: Vec<OsString> = ["/bin/sh", "-c", START, "agent"].map(Into::into).to_vec();
    argv.push(found.program.into_os_string());
    argv.extend(args);
    let request = request(call, Workload::Argv(argv))?;
    let mut environment = call.environment.clone();
    environment.caller.copied.clone_from(&given.copied);
    start(request, &environment, call.console)
}

/// Adds what an agent always has to what was typed: its policy below all others, its files, a terminal.
fn ask(call: &mut Call<'_>, found: &InstalledProgram, given: &AgentFolder) -> Result<(), Failure> {
    let flag = |tables: &[&'static [Flag]], long: &str| {
        tables.iter().copied().flatten().find(|flag| flag.long == long).ok_or_else(|| Failure::own(unknown(long)))
    };
    let policy = (flag(&[POLICY], "policy")?, Some(given.policy().into_os_string()));
    call.parsed.flags.insert(0, policy);
    let read = flag(&[POLICY], "read")?;
    call.parsed.flags.push((read, Some(given.grant().into())));
    call.parsed.flags.extend(found.reads.iter().map(|path| (read, Some(path.clone().into_os_string()))));
    let terminal = call.environment.stdin_terminal && call.environment.stdout_terminal;
    if terminal && !call.json && !call.parsed.has("tty") {
        call.parsed.flags.push((flag(&[TERMINAL], "tty")?, None));
    }
    Ok(())
}

/// What is not as somebody may expect it.
fn said(call: &Call<'_>, agent: &Agent, given: &AgentFolder) {
    if call.parsed.has("quiet") {
        return;
    }
    let label = call.console.err.paint(Role::Weak, "note:");
    if given.keys.is_empty() {
        call.console.eprint(&format!("{label} the agent has no key: {}\n", looked_for(agent, call)));
    }
    if given.left > 0 {
        call.console.eprint(&format!(
            "{label} of its settings {} {} outside\n",
            count(u64::try_from(given.left).unwrap_or(u64::MAX), "file or value", "files and values"),
            if given.left == 1 { "stays" } else { "stay" }
        ));
    }
}

/// Whether the caller says by himself which hosts are reached, and with what.
fn has_rules(call: &Call<'_>) -> bool {
    ["policy", "set", "allow-host"].iter().any(|flag| call.parsed.has(flag))
}

/// Where a key was looked for.
fn looked_for(agent: &Agent, call: &Call<'_>) -> String {
    let names: Vec<&str> = agent.key.iter().map(|key| key.env.as_str()).collect();
    let logins: Vec<String> = logins(agent, call.environment).iter().map(|login| format!("`~/{login}`")).collect();
    let login = match logins.as_slice() {
        [] => "a login is not copied".to_owned(),
        there => format!("the login in {} is not copied, since its token would be inside", there.join(", ")),
    };
    format!("{} is not set, and {login}", names.join(" or "))
}

/// Nothing of it would work, and what it says of that is lost on its screen.
fn no_key(agent: &Agent, call: &Call<'_>) -> Failure {
    let first = agent.key.first().map_or("API_KEY", |key| key.env.as_str());
    let fault = Fault {
        id: "agent/no-key",
        what: format!("{} has no key, and would reach no API", agent.title),
        place: "the environment".to_owned(),
        why: looked_for(agent, call),
        fix: format!(
            "set it where fumehood is started: `{first}=... fumehood agent {}`; it stays outside. `--no-key` starts it without",
            agent.name
        ),
    };
    Failure::Faults { code: REFUSED, faults: vec![fault] }
}

fn named(name: &OsStr) -> Result<&'static Agent, Failure> {
    let found = agents().iter().find(|agent| name == agent.name);
    found.ok_or_else(|| Failure::own(unknown(&show_bytes(name.as_bytes()))))
}

fn list(call: &Call<'_>) -> Result<u8, Failure> {
    let rows = agents().iter().map(|agent| (agent, find(&agent.program, call.environment)));
    if call.json {
        let one = |(agent, found): (&Agent, Option<InstalledProgram>)| {
            let path = found.map(|found| found.program.to_string_lossy().into_owned());
            json!({ "name": agent.name, "title": agent.title, "program": path, "install": agent.install })
        };
        call.console.json(&json!({ "schema": 1, "agents": rows.map(one).collect::<Vec<_>>() }))?;
        return Ok(0);
    }
    let one = |(agent, found): (&Agent, Option<InstalledProgram>)| match found {
        Some(found) => format!("{:<10}{:<14}{}\n", agent.name, agent.title, show(&found.program)),
        None => format!("{:<10}{:<14}not installed: `{}`\n", agent.name, agent.title, agent.install),
    };
    let text: String = rows.map(one).collect();
    call.console.data(text.as_bytes())?;
    Ok(0)
}

fn show(path: &Path) -> String {
    show_bytes(path.as_os_str().as_bytes())
}

fn unknown(typed: &str) -> Fault {
    let names: Vec<&str> = agents().iter().map(|agent| agent.name).collect();
    let near = closest(typed, names.iter().copied())
        .map_or_else(|| "fumehood agent ls".to_owned(), |name| format!("fumehood agent {name}"));
    usage(
        "usage/unknown-agent",
        if typed.is_empty() { "no agent was named".to_owned() } else { format!("`{typed}` is no agent") },
        format!("known are {}", names.join(", ")),
        format!("`{near}`; any program runs by `fumehood run -p coding-agent -- CMD`"),
    )
}

fn not_installed(agent: &Agent) -> Failure {
    Failure::Faults {
        code: REFUSED,
        faults: vec![Fault {
            id: "agent/not-installed",
            what: format!("{} is not installed", agent.title),
            place: "`PATH`".to_owned(),
            why: format!("no folder of it has a program `{}`", agent.program),
            fix: format!("`{}`", agent.install),
        }],
    }
}
