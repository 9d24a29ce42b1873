//! The command line: arguments and environment in, one call into the rooms below, an exit code out.
//!
//! The way is [`args`] (what was typed) -> `target` and `run::request` (what it means) -> one command. [`spec`] is the shape of
//! a command; [`COMMANDS`] is the list of them.

mod agent;
mod approvals;
pub mod args;
pub mod ask;
mod attack;
mod audit;
mod bench;
mod broker;
mod changes;
mod choose;
mod commands;
mod completions;
mod default_policy;
mod docker;
mod doctor;
mod environment;
mod explain;
pub mod flags;
mod gc;
mod image;
mod image_build;
mod image_make;
mod image_pull;
mod keys;
mod language;
mod learn;
mod live;
mod machine;
mod man;
mod mcp;
mod mcp_fetch;
mod mcp_install;
mod mcp_pins;
mod net;
mod oci;
mod pending;
mod policy;
mod replay;
mod run;
mod serve;
mod server;
pub mod spec;
mod systemd;
mod target;
mod template;
mod tools;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::environment::Environment;
use crate::ui::{Console, FAILED, Failure, When};
use args::{Help, closest, usage};
use sandbox::fault::{Fault, show_bytes};
use spec::{Call, GROUPS, Spec};

/// Every command.
pub const COMMANDS: &[&Spec] = &[
    &run::RUN,
    &run::SHELL,
    &run::PLAN,
    &learn::SPEC,
    &agent::SPEC,
    &live::CREATE,
    &live::EXEC,
    &live::PS,
    &live::INFO,
    &live::LOGS,
    &live::COPY,
    &live::FORWARD,
    &live::WAIT,
    &live::PAUSE,
    &live::RESUME,
    &live::SNAPSHOT,
    &live::SNAPSHOTS,
    &live::FORK,
    &live::KILL,
    &live::SUPERVISE,
    &doctor::SPEC,
    &choose::SPEC,
    &bench::TIERS,
    &attack::SPEC,
    &policy::CHECK,
    &policy::SHOW,
    &policy::SCHEMA,
    &policy::PRESETS,
    &audit::SHOW,
    &audit::TAIL,
    &audit::VERIFY,
    &replay::SPEC,
    &server::SPEC,
    &keys::ADD,
    &keys::LS,
    &keys::RM,
    &serve::SPEC,
    &oci::SPEC,
    &commands::CHECK,
    &net::CHECK,
    &live::NET_SET,
    &approvals::LS,
    &approvals::SHOW,
    &approvals::APPROVE,
    &approvals::DENY,
    &approvals::WATCH,
    &approvals::REMEMBERED,
    &approvals::REVOKE,
    &tools::CHECK,
    &tools::LS,
    &tools::SUGGEST,
    &pending::SPEC,
    &changes::DIFF,
    &changes::TAKE,
    &changes::DISCARD,
    &template::BUILD,
    &template::LS,
    &template::RM,
    &image::IMPORT,
    &image::EXPORT,
    &image_build::BUILD,
    &image_make::FROM_HOST,
    &image_make::DEBIAN,
    &image_pull::PULL,
    &image::LS,
    &image::RM,
    &image::INSPECT,
    &machine::PREPARE,
    &gc::SPEC,
    &explain::SPEC,
    &mcp::SERVE_GATEWAY,
    &mcp::SERVE,
    &mcp_fetch::FETCH,
    &mcp_pins::PINS,
    &mcp_install::INSTALL,
    &completions::SPEC,
    &man::SPEC,
    &broker::SPEC,
    &language::SPEC,
    &oci::SUPERVISE,
    &attack::PROBE,
    &attack::CONTROL,
    &attack::NEIGHBOUR,
];

/// Descriptors that the table of a process has room for from its begin: what a sandbox with hosts by name needs, and a few clients.
const RESERVED_DESCRIPTORS: u32 = 256;

/// Runs the program that this process is.
#[must_use]
pub fn main() -> u8 {
    sys::caller::keep_owner_rights();
    sys::signals::ignore_file_size();
    sys::rlimit::raise_open_files(sandbox::run::DESCRIPTORS);
    sys::rlimit::reserve_descriptors(RESERVED_DESCRIPTORS);
    let environment = Environment::read();
    // Engines call a runtime by its path alone.
    let as_runtime = environment.argv0.file_name().is_some_and(|name| name == oci::CALLED);
    let own = as_runtime.then(|| OsString::from("oci"));
    dispatch(&environment, own.into_iter().chain(std::env::args_os().skip(1)).collect())
}

/// Finds the command and calls it.
fn dispatch(environment: &Environment, args: Vec<OsString>) -> u8 {
    let mut args = args.into_iter();
    let first = args.next();
    let mut name = first.as_deref().map(OsStr::to_os_string).unwrap_or_default();
    if name == "help" {
        let words: Vec<_> = args.collect();
        return asked_for_help(environment, &words);
    }
    let mut path = vec![name.clone()];
    if GROUPS.iter().any(|(group, _)| name == *group) {
        match args.next() {
            Some(second) if !second.as_bytes().starts_with(b"-") => path.push(second),
            Some(flag) if flag == "-h" || flag == "--help" => return asked_for_help(environment, &path),
            Some(_) | None => {
                let console = Console::new(environment, When::Auto);
                console.eprint(&spec::help_all(COMMANDS, name.to_str(), Help::Short, console.err, console.columns));
                return FAILED;
            }
        }
        name = path.iter().map(OsString::as_os_str).collect::<Vec<_>>().join(OsStr::new(" "));
    }
    match COMMANDS.iter().find(|spec| spec.path.iter().copied().eq(path.iter())) {
        Some(spec) => call(environment, spec, args),
        None => not_a_command(environment, &name, args.any(|arg| arg == "--json")),
    }
}

/// Reads the arguments of a command and calls it.
fn call(environment: &Environment, spec: &Spec, args: impl Iterator<Item = OsString>) -> u8 {
    let tables: Vec<_> = spec.tables.iter().copied().chain([flags::COMMON]).collect();
    let mut parsed = args::parse(args, &tables, spec.words);
    let color = match parsed.value("color").map(OsStr::as_bytes) {
        None | Some(b"auto") => When::Auto,
        Some(b"always") => When::Always,
        Some(b"never") => When::Never,
        Some(other) => {
            let fault = usage(
                "usage/bad-value",
                format!("`--color {}`", show_bytes(other)),
                "no such choice".to_owned(),
                "auto, always or never".to_owned(),
            );
            parsed.faults.push(fault);
            When::Auto
        }
    };
    let console = Console::new(environment, color);
    let json = parsed.has("json");
    let result = if let Some(how) = parsed.help {
        console.data(spec::help(spec, how, console.out, console.columns).as_bytes()).map(|_| 0)
    } else if parsed.faults.is_empty() {
        (spec.run)(&mut Call { environment, console, json, color, parsed })
    } else {
        Err(Failure::Faults { code: FAILED, faults: parsed.faults })
    };
    result.unwrap_or_else(|failure| console.fail(&failure, json))
}

/// `fumehood`, `fumehood --help`, `fumehood --version`, and what is no command at all.
fn not_a_command(environment: &Environment, name: &OsStr, json: bool) -> u8 {
    let console = Console::new(environment, When::Auto);
    let all = |how, palette| spec::help_all(COMMANDS, None, how, palette, console.columns);
    let written = match name.as_bytes() {
        b"" => {
            console.eprint(&all(Help::Short, console.err));
            return FAILED;
        }
        b"-h" => console.data(all(Help::Short, console.out).as_bytes()),
        b"--help" => console.data(all(Help::Long, console.out).as_bytes()),
        b"-V" | b"--version" => console.data(concat!("fumehood ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        other => Err(Failure::own(unknown(&show_bytes(other)))),
    };
    written.map_or_else(|failure| console.fail(&failure, json), |_| 0)
}

fn unknown(typed: &str) -> Fault {
    let names: Vec<String> = COMMANDS.iter().filter(|s| !s.hidden).map(|s| s.path.join(" ")).collect();
    let fix = match closest(typed, names.iter().map(String::as_str)) {
        Some(best) => format!("`fumehood {best}`"),
        None => format!("`fumehood --help`; to run a program: `fumehood run -- {typed}`"),
    };
    usage("usage/unknown-command", format!("unknown command `{typed}`"), "no command has this name".to_owned(), fix)
}

/// `fumehood help [COMMAND]`
fn asked_for_help(environment: &Environment, words: &[OsString]) -> u8 {
    let console = Console::new(environment, When::Auto);
    let named = COMMANDS.iter().find(|spec| !words.is_empty() && spec.path.iter().copied().eq(words.iter()));
    let text = match (named, words) {
        (Some(spec), _) => spec::help(spec, Help::Long, console.out, console.columns),
        (None, []) => spec::help_all(COMMANDS, None, Help::Long, console.out, console.columns),
        (None, [group]) if GROUPS.iter().any(|(name, _)| group == *name) => {
            spec::help_all(COMMANDS, group.to_str(), Help::Long, console.out, console.columns)
        }
        (None, _) => {
            let typed = words.iter().map(OsString::as_os_str).collect::<Vec<_>>().join(OsStr::new(" "));
            return console.fail(&Failure::own(unknown(&show_bytes(typed.as_bytes()))), false);
        }
    };
    console.data(text.as_bytes()).map_or_else(|failure| console.fail(&failure, false), |_| 0)
}
