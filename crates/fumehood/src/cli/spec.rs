//! The commands, as data, and what is generated from them: help, completions, man pages.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, ValueHint};

use super::args::{Flag, Help, Parsed, Positionals};
use super::flags::COMMON;
use crate::environment::Environment;
use crate::ui::{Console, Failure, Palette};

/// One command.
#[derive(Debug)]
pub struct Spec {
    /// Its words: `run`, or `policy check`.
    pub path: &'static [&'static str],
    /// What it does, in one line.
    pub about: &'static str,
    /// What follows its name.
    pub usage: &'static str,
    /// What else there is to know: exit codes, examples.
    pub more: &'static str,
    /// Its flags, beside those of every command.
    pub tables: &'static [&'static [Flag]],
    /// Where its flags end.
    pub words: Positionals,
    /// Not shown.
    pub hidden: bool,
    /// Does it; the exit code.
    pub run: fn(&mut Call<'_>) -> Result<u8, Failure>,
}

/// One call of a command.
#[derive(Debug)]
pub struct Call<'a> {
    /// Circumstances.
    pub environment: &'a Environment,
    /// Where to speak.
    pub console: Console,
    /// `--json`
    pub json: bool,
    /// `--color`
    pub color: crate::ui::When,
    /// What was typed.
    pub parsed: Parsed,
}

/// Words that stand before others, and what they are about.
pub const GROUPS: &[(&str, &str)] = &[
    ("policy", "Check and show policies"),
    ("audit", "Read and verify the audit log"),
    ("tools", "Judge calls of tools, and list what may be called"),
    ("commands", "Judge command lines"),
    ("net", "Judge destinations"),
    ("approvals", "Answer agents that wait for a person"),
    ("keys", "Say who may use the server of live sandboxes"),
    ("template", "Make what sandboxes have beside the host's own tools"),
    ("image", "Keep images as trees"),
    ("bench", "Measure this host"),
    ("machine", "Prepare what machines of the vm tier start from"),
    ("mcp", "Stand before MCP servers, or be one"),
];

/// The help text of one command.
#[must_use]
pub fn help(spec: &Spec, how: Help, palette: Palette, columns: usize) -> String {
    let name = format!("fumehood {}", spec.path.join(" "));
    let command = command(spec, &name).term_width(columns);
    render(command, how, palette)
}

/// The help text of all commands, or of a group of them.
#[must_use]
pub fn help_all(specs: &[&Spec], group: Option<&str>, how: Help, palette: Palette, columns: usize) -> String {
    let mut tree = tree(specs).term_width(columns);
    tree.build();
    let found = group.and_then(|group| tree.find_subcommand(group)).cloned();
    render(found.unwrap_or(tree), how, palette)
}

fn render(mut command: Command, how: Help, palette: Palette) -> String {
    let text = match how {
        Help::Short => command.render_help(),
        Help::Long => command.render_long_help(),
    };
    let text = if palette.is_on() { text.ansi().to_string() } else { text.to_string() };
    format!("{}\n", text.trim_end())
}

/// Every command below `fumehood`. Costs milliseconds: never on the way of a run.
#[must_use]
pub fn tree(specs: &[&Spec]) -> Command {
    let mut root = Command::new("fumehood")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Runs code that you do not trust: enforces each clause of a policy by a named mechanism, or refuses")
        .after_help(
            "First: `fumehood doctor`, then `fumehood run script.py`. Exit codes and more: `fumehood run --help`.",
        )
        .disable_help_subcommand(true)
        .subcommand_required(true);
    // What a newcomer looks for stands first.
    for spec in specs {
        if let [name] = spec.path {
            root = root.subcommand(command(spec, name));
        }
    }
    for (group, about) in GROUPS {
        let mut parent = Command::new(*group).about(*about).disable_help_subcommand(true).subcommand_required(true);
        for spec in specs {
            if let [first, second] = spec.path
                && first == group
            {
                parent = parent.subcommand(command(spec, second));
            }
        }
        if parent.has_subcommands() {
            root = root.subcommand(parent);
        }
    }
    root
}

fn command(spec: &Spec, name: &str) -> Command {
    let mut command = Command::new(name.to_owned())
        .about(spec.about)
        .override_usage(format!("fumehood {} {}", spec.path.join(" "), spec.usage))
        .hide(spec.hidden);
    if !spec.more.is_empty() {
        command = command.after_long_help(spec.more);
    }
    for flag in spec.tables.iter().copied().chain([COMMON]).flatten() {
        command = command.arg(argument(flag));
    }
    match spec.words {
        Positionals::Mixed(0) => command,
        Positionals::Mixed(_) | Positionals::MixedThenMore(_) | Positionals::EndFlags => command.arg(
            Arg::new("words")
                .num_args(0..)
                .trailing_var_arg(true)
                .hide(true)
                .value_hint(ValueHint::CommandWithArguments),
        ),
    }
}

/// What a shell offers for a value, by the value's name.
const HINTS: [(&str, ValueHint); 5] = [
    ("FILE", ValueHint::FilePath),
    ("POLICY", ValueHint::FilePath),
    ("DIR", ValueHint::DirPath),
    ("PATH[:MODE]", ValueHint::AnyPath),
    ("FROM[:TO]", ValueHint::AnyPath),
];

fn argument(flag: &Flag) -> Arg {
    let arg = Arg::new(flag.long).long(flag.long).help(flag.help);
    let arg = match flag.short {
        Some(short) => arg.short(char::from(short)),
        None => arg,
    };
    let Some(value) = flag.value else { return arg.action(ArgAction::SetTrue) };
    let arg = arg.value_name(value).action(ArgAction::Append);
    if !flag.choices.is_empty() {
        return arg.value_parser(PossibleValuesParser::new(flag.choices)).hide_possible_values(true);
    }
    match HINTS.iter().find(|(name, _)| *name == value) {
        Some((_, hint)) => arg.value_hint(*hint),
        None => arg,
    }
}
