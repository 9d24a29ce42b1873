//! What the flags of `run`, `shell` and `plan` mean: a [`Request`], or all that is wrong with them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use super::args::{Flag, Parsed, To, usage};
use super::default_policy::{offer, with_default};
use super::spec::Call;
use crate::run::Request;
use crate::ui::{FAILED, Failure, REFUSED};
use sandbox::fault::{Fault, show_bytes};
use sandbox::{PolicyLayer, Workload};

/// The request of a call whose program is already known.
///
/// # Errors
/// 125 for flags that contradict each other or miss their terminal, 126 for values that are none.
pub fn request(call: &Call<'_>, what: Workload) -> Result<Request, Failure> {
    let Parsed { flags, .. } = &call.parsed;
    let has = |long| call.parsed.has(long);
    let shell = matches!(what, Workload::Shell);
    let (tty, quiet, verbose) = (has("tty") || shell, has("quiet"), has("verbose"));
    let mut wrong = Vec::new();
    if tty && call.json {
        wrong.push(contradiction("-t", "--json", "a terminal mixes stdout and stderr, and a report holds them apart"));
    }
    if quiet && verbose {
        wrong.push(contradiction("-q", "-v", "one says less, the other more"));
    }
    if tty && !call.environment.stdin_terminal {
        wrong.push(usage(
            "usage/no-terminal",
            if shell { "`shell` needs a terminal" } else { "`-t` needs a terminal" }.to_owned(),
            "stdin is not one".to_owned(),
            if shell { "`fumehood run -- bash` reads commands from stdin" } else { "drop `-t`" }.to_owned(),
        ));
    }
    let on = match call.parsed.value("on").map(|word| word.to_str().and_then(|word| word.parse().ok()).ok_or(word)) {
        Some(Ok(run)) => Some(run),
        Some(Err(word)) => {
            wrong.push(usage(
                "usage/no-run",
                format!("`--on {}` names no run", show_bytes(word.as_bytes())),
                "a run's id begins with `r-`".to_owned(),
                "`fumehood changes` lists the runs whose changes are kept".to_owned(),
            ));
            None
        }
        None => None,
    };
    let code = if wrong.is_empty() { REFUSED } else { FAILED };
    let (mut layers, bad) = layers(flags);
    wrong.extend(bad);
    if shell {
        layers.push(PolicyLayer::Flag { name: "--tty".to_owned(), value: "true".to_owned() });
    }
    if !wrong.is_empty() {
        return Err(Failure::Faults { code, faults: wrong });
    }
    offer(&layers, call);
    let layers = with_default(layers, call.environment)?;
    Ok(Request {
        tools: crate::serve::script_tools,
        layers,
        what,
        interactive: has("interactive") || shell,
        quiet,
        verbose,
        json: call.json,
        report: call.parsed.value("report").map(PathBuf::from),
        on,
        color: call.color,
        learner: None,
    })
}

/// The documents and clauses that a call names; `code` if something is wrong with them.
pub(super) fn asked_layers(call: &Call<'_>, code: u8) -> Result<Vec<PolicyLayer>, Failure> {
    let (layers, wrong) = layers(&call.parsed.flags);
    if wrong.is_empty() { Ok(layers) } else { Err(Failure::Faults { code, faults: wrong }) }
}

/// Who calls or is called by a flag; `local` where nothing tells agents apart.
pub(super) fn named(call: &Call<'_>, flag: &str) -> String {
    call.parsed.value(flag).map_or_else(|| "local".to_owned(), |name| show_bytes(name.as_bytes()))
}

/// What the flags say about the policy, documents first: they are weaker than flags, wherever they stand on the line.
fn layers(flags: &[(&'static Flag, Option<OsString>)]) -> (Vec<PolicyLayer>, Vec<Fault>) {
    let (mut documents, mut layers, mut wrong) = (Vec::new(), Vec::new(), Vec::new());
    for (flag, value) in flags {
        // A flag of a clause that takes no value says that it is so.
        let value = value.as_deref().unwrap_or(OsStr::new("true"));
        let value = match value.to_str() {
            Some(value) => value.to_owned(),
            None if flag.to == To::Ours => continue,
            None => {
                wrong.push(no_text(flag, value));
                continue;
            }
        };
        match flag.to {
            To::Ours => {}
            To::Document => documents.push(PolicyLayer::Document(value)),
            To::Set => layers.push(PolicyLayer::Set(value)),
            To::Clause => layers.push(PolicyLayer::Flag { name: format!("--{}", flag.long), value }),
        }
    }
    documents.append(&mut layers);
    (documents, wrong)
}

/// Policies are text, so that plans and audit records can be.
fn no_text(flag: &Flag, value: &OsStr) -> Fault {
    Fault {
        id: "usage/no-text",
        what: format!("`--{} {}` is no text", flag.long, show_bytes(value.as_bytes())),
        place: format!("--{}", flag.long),
        why: "policies, plans and audit records are UTF-8".to_owned(),
        fix: "reach the path by a link whose name is text".to_owned(),
    }
}

fn contradiction(one: &str, other: &str, why: &str) -> Fault {
    usage("usage/two-flags", format!("both `{one}` and `{other}`"), why.to_owned(), "keep one".to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;
    use crate::cli::args::{Positionals, parse};
    use crate::cli::flags::{POLICY, RUN, SAYING};
    use crate::environment::Environment;
    use crate::ui::{Console, When};

    fn asked(environment: &Environment, args: &[&str]) -> Result<Request, Failure> {
        let parsed = parse(args.iter().map(Into::into), &[POLICY, RUN, SAYING], Positionals::EndFlags);
        assert_eq!(parsed.faults, []);
        let console = Console::new(environment, When::Never);
        request(&Call { environment, console, json: false, color: When::Never, parsed }, Workload::Nothing)
    }

    #[test]
    fn documents_are_weaker_than_flags_wherever_they_stand() {
        let args = ["--memory", "1G", "-p", "a.toml", "--set=limits.files=9", "-p", "python", "-w.:ro"];
        let shown = |layer| match layer {
            PolicyLayer::Document(name) => format!("document {name}"),
            PolicyLayer::Flag { name, value } => format!("{name} {value}"),
            PolicyLayer::Set(text) => format!("set {text}"),
        };
        let got: Vec<_> = asked(&Environment::default(), &args).unwrap().layers.into_iter().map(shown).collect();
        let expected = ["document a.toml", "document python", "--memory 1G", "set limits.files=9", "--workspace .:ro"];
        assert_eq!(got, expected);
    }

    #[test]
    fn a_value_that_is_no_text_is_refused_and_shown() {
        let odd = OsString::from_vec(b"--read=/\xff\x1b".to_vec());
        let parsed = parse([odd].into_iter(), &[POLICY, RUN, SAYING], Positionals::EndFlags);
        let environment = Environment::default();
        let console = Console::new(&environment, When::Never);
        let call = Call { environment: &environment, console, json: false, color: When::Never, parsed };
        let Err(Failure::Faults { code, faults }) = request(&call, Workload::Nothing) else { panic!("it was taken") };
        assert_eq!((code, faults[0].id), (126, "usage/no-text"));
        assert_eq!(faults[0].what, r"`--read /\xff\u{1b}` is no text");
    }

    #[test]
    fn contradictions_are_bad_usage() {
        let Err(Failure::Faults { code, faults }) = asked(&Environment::default(), &["-t", "-q", "-v"]) else {
            panic!("they were taken")
        };
        let ids: Vec<_> = faults.iter().map(|f| f.id).collect();
        assert_eq!(code, 125);
        assert_eq!(ids, ["usage/two-flags", "usage/no-terminal"]);
    }
}
