//! `fumehood commands check`: would a command line be allowed, and if not, why, and what would be.

use std::os::unix::ffi::OsStrExt as _;

use gate::command::{Judge, Judgement};

use super::args::{Positionals, usage};
use super::ask::asked_layers;
use super::flags::POLICY;
use super::spec::{Call, Spec};
use crate::load;
use crate::ui::{Failure, REFUSED, Role};
use sandbox::fault::{Fault, show_bytes, show_text};
use sandbox::run::commands_around;

pub(super) const CHECK: Spec = Spec {
    path: &["commands", "check"],
    about: "Judge a command line by the `commands` of a policy; run nothing",
    usage: "-p POLICY [FLAGS] 'LINE' | -p POLICY [FLAGS] -- CMD ARGS...",
    more: "Exit codes:\n  \
      0    it would be allowed\n  \
      1    it would be refused; all reasons are told, and what would be allowed\n  \
      125  a failure of fumehood itself, or bad usage\n  \
      126  the policy is wrong, or has no `commands`\n\n\
    A command policy alone is no boundary: an allowed program does what it does. The sandbox is the boundary.\n\
    Example: `fumehood commands check -p policy.toml 'git log --oneline | head'`",
    tables: &[POLICY],
    words: Positionals::MixedThenMore(1),
    hidden: false,
    run: check,
};

fn check(call: &mut Call<'_>) -> Result<u8, Failure> {
    let ingredients = asked_layers(call, REFUSED)?;
    let loaded = load::policy(&ingredients, call.environment)?;
    let policy = loaded.policy_on(policy::first_tier(&loaded)).into_owned();
    let Some(commands) = &policy.commands else { return Err(Failure::refused(without())) };
    let judge = Judge::new(commands, &loaded.documents, commands_around(&policy)).map_err(Failure::Diagnostics)?;
    let judgement = match (call.parsed.words.first(), &call.parsed.after) {
        (Some(line), None) => match line.to_str() {
            Some(line) => judge.line(line),
            None => judge.argv(std::slice::from_ref(line)),
        },
        (None, Some(words)) => judge.argv(words),
        (Some(_), Some(_)) | (None, None) => return Err(Failure::own(nothing())),
    };
    if call.json {
        call.console.json(&judgement.to_json())?;
    } else {
        call.console.data(text(call, &judgement).as_bytes())?;
    }
    Ok(match judgement {
        Judgement::Allowed { .. } => 0,
        Judgement::Refused(_) => 1,
    })
}

fn text(call: &Call<'_>, judgement: &Judgement) -> String {
    let paint = |role, text: &str| call.console.out.paint(role, text);
    match judgement {
        Judgement::Allowed { programs, shell } => {
            let how = if *shell { "read by bash" } else { "executed without a shell" };
            let mut out = format!("{} {how}\n", paint(Role::Good, "allowed:"));
            for program in programs {
                let words: Vec<String> = program.argv.iter().skip(1).map(|word| show_bytes(word.as_bytes())).collect();
                let path = show_bytes(program.path.as_os_str().as_bytes());
                out.push_str(format!("  {} {}", paint(Role::Name, &path), words.join(" ")).trim_end());
                out.push('\n');
            }
            out
        }
        Judgement::Refused(reasons) => {
            let mut out = String::new();
            for reason in reasons {
                out.push_str(&format!("{} {}\n", paint(Role::Bad, "refused:"), show_text(&reason.what)));
                out.push_str(&format!("  {} {}\n", paint(Role::Aside, "why:"), show_text(&reason.why)));
                out.push_str(&format!("  {} {}\n", paint(Role::Aside, "fix:"), show_text(&reason.instead)));
                out.push_str(&format!("  {} {}\n", paint(Role::Aside, "id: "), reason.id));
            }
            out
        }
    }
}

fn without() -> Fault {
    Fault {
        id: "commands/none",
        what: "the policy has no `commands`".to_owned(),
        place: "the policy".to_owned(),
        why: "then every command is run as it is".to_owned(),
        fix: "add [commands] with programs or presets, or --set 'commands={presets=[\"inspect\"]}'".to_owned(),
    }
}

fn nothing() -> Fault {
    usage(
        "usage/no-line",
        "there is nothing to judge, or two things".to_owned(),
        "a line is one word between quotes; words without a shell follow `--`".to_owned(),
        "`fumehood commands check -p POLICY 'ls | head'`, or `-- ls -l`".to_owned(),
    )
}
