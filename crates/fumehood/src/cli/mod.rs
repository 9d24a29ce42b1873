//! The command line: arguments and environment in, one call into the rooms below, an exit code out.
//!
//! The way is [`args`] (what was typed) -> [`target`] and [`request`] (what it means) -> one command. [`spec`] is the shape of
//! a command; [`COMMANDS`] is the list of them.

mod approvals;
pub mod args;
pub mod ask;
mod audit;
mod changes;
mod commands;
mod completions;
mod doctor;
mod explain;
pub mod flags;
mod gc;
pub mod languages;
mod links;
pub mod load;
mod man;
mod mcp;
mod mcp_install;
mod mcp_pins;
mod policy;
pub mod request;
mod run;
mod serve;
pub mod spec;
pub mod target;
mod tools;
pub mod world;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

use crate::fault::{Fault, show_bytes};
use crate::ui::{Failure, Voice, When};
use args::{Help, closest, usage};
use spec::{Call, GROUPS, Spec};

pub(crate) use approvals::unusable;
pub use request::{Code, Ingredient, Interpreter, Request, Script, What};
pub use world::World;

/// Every command.
pub const COMMANDS: &[&Spec] = &[
    &run::RUN,
    &run::SHELL,
    &run::PLAN,
    &doctor::SPEC,
    &crate::attack::command::SPEC,
    &policy::CHECK,
    &policy::SHOW,
    &policy::SCHEMA,
    &policy::PRESETS,
    &audit::SHOW,
    &audit::TAIL,
    &audit::VERIFY,
    &serve::SPEC,
    &commands::CHECK,
    &approvals::LS,
    &approvals::SHOW,
    &approvals::APPROVE,
    &approvals::DENY,
    &approvals::WATCH,
    &approvals::REMEMBERED,
    &approvals::REVOKE,
    &tools::CHECK,
    &tools::LS,
    &changes::DIFF,
    &changes::TAKE,
    &changes::DISCARD,
    &gc::SPEC,
    &explain::SPEC,
    &mcp::SERVE_GATEWAY,
    &mcp::SERVE,
    &mcp_pins::PINS,
    &mcp_install::INSTALL,
    &mcp::UPSTREAM,
    &completions::SPEC,
    &man::SPEC,
    &crate::attack::command::PROBE,
    &crate::attack::command::CONTROL,
    &crate::attack::command::NEIGHBOUR,
];

/// Runs the program that this process is.
#[must_use]
pub fn main() -> u8 {
    sys::caller::keep_owner_rights();
    sys::signals::ignore_file_size();
    let world = World::read();
    dispatch(&world, std::env::args_os().skip(1).collect())
}

/// Finds the command and calls it.
fn dispatch(world: &World, args: Vec<OsString>) -> u8 {
    let mut args = args.into_iter();
    let first = args.next();
    let mut name = first.as_deref().map(OsStr::to_os_string).unwrap_or_default();
    if name == "help" {
        let words: Vec<_> = args.collect();
        return asked_for_help(world, &words);
    }
    let mut path = vec![name.clone()];
    if GROUPS.iter().any(|(group, _)| name == *group) {
        match args.next() {
            Some(second) if !second.as_bytes().starts_with(b"-") => path.push(second),
            Some(flag) if flag == "-h" || flag == "--help" => return asked_for_help(world, &path),
            Some(_) | None => {
                let voice = Voice::new(world, When::Auto);
                voice.say(&spec::help_all(COMMANDS, name.to_str(), Help::Short, voice.err, voice.columns));
                return 125;
            }
        }
        name = path.iter().map(OsString::as_os_str).collect::<Vec<_>>().join(OsStr::new(" "));
    }
    match COMMANDS.iter().find(|spec| spec.path.iter().copied().eq(path.iter())) {
        Some(spec) => call(world, spec, args),
        None => not_a_command(world, &name, args.any(|arg| arg == "--json")),
    }
}

/// Reads the arguments of a command and calls it.
fn call(world: &World, spec: &Spec, args: impl Iterator<Item = OsString>) -> u8 {
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
    let voice = Voice::new(world, color);
    let json = parsed.has("json");
    let result = if let Some(how) = parsed.help {
        voice.data(spec::help(spec, how, voice.out, voice.columns).as_bytes()).map(|_| 0)
    } else if parsed.faults.is_empty() {
        (spec.run)(&mut Call { world, voice, json, color, parsed })
    } else {
        Err(Failure::Faults { code: 125, faults: parsed.faults })
    };
    result.unwrap_or_else(|failure| voice.fail(&failure, json))
}

/// `fumehood`, `fumehood --help`, `fumehood --version`, and what is no command at all.
fn not_a_command(world: &World, name: &OsStr, json: bool) -> u8 {
    let voice = Voice::new(world, When::Auto);
    let all = |how, palette| spec::help_all(COMMANDS, None, how, palette, voice.columns);
    let written = match name.as_bytes() {
        b"" => {
            voice.say(&all(Help::Short, voice.err));
            return 125;
        }
        b"-h" => voice.data(all(Help::Short, voice.out).as_bytes()),
        b"--help" => voice.data(all(Help::Long, voice.out).as_bytes()),
        b"-V" | b"--version" => voice.data(concat!("fumehood ", env!("CARGO_PKG_VERSION"), "\n").as_bytes()),
        other => Err(Failure::own(unknown(&show_bytes(other)))),
    };
    written.map_or_else(|failure| voice.fail(&failure, json), |_| 0)
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
fn asked_for_help(world: &World, words: &[OsString]) -> u8 {
    let voice = Voice::new(world, When::Auto);
    let named = COMMANDS.iter().find(|spec| !words.is_empty() && spec.path.iter().copied().eq(words.iter()));
    let text = match (named, words) {
        (Some(spec), _) => spec::help(spec, Help::Long, voice.out, voice.columns),
        (None, []) => spec::help_all(COMMANDS, None, Help::Long, voice.out, voice.columns),
        (None, [group]) if GROUPS.iter().any(|(name, _)| group == *name) => {
            spec::help_all(COMMANDS, group.to_str(), Help::Long, voice.out, voice.columns)
        }
        (None, _) => {
            let typed = words.iter().map(OsString::as_os_str).collect::<Vec<_>>().join(OsStr::new(" "));
            return voice.fail(&Failure::own(unknown(&show_bytes(typed.as_bytes()))), false);
        }
    };
    voice.data(text.as_bytes()).map_or_else(|failure| voice.fail(&failure, false), |_| 0)
}
