//! `--input NAME=VALUE`: each value against its declaration.

use super::scalar::compile;
use super::{Reader, fault};
use crate::diagnostic::{did_you_mean, quote};
use crate::document::SourceSpan;
use crate::names::is_env_name;
use crate::value::{Input, InputType, Policy};

/// Text without a declared length ends here: the kernel ends one string of the environment at 128 KiB.
const MAX_TEXT: u64 = 100_000;

impl Reader<'_> {
    /// Checks what was given; with `later` the rest may still come. A policy that declares no input takes any as text; one that declares some takes those.
    pub(crate) fn given_inputs(&mut self, policy: &mut Policy, given: &[(String, String, u16)], later: bool) {
        let open = policy.inputs.is_empty();
        for (name, value, source) in given {
            let length = self.sources.get(usize::from(*source)).map_or(0, |source| source.text.len());
            let place = SourceSpan::new(*source, 0..length);
            if open && is_env_name(name) {
                let text = Input {
                    kind: InputType::String,
                    max_length: None,
                    one_of: None,
                    pattern: None,
                    required: false,
                    value: None,
                };
                policy.inputs.entry(name.clone()).or_insert(text);
            }
            let Some(input) = policy.inputs.get_mut(name) else {
                self.undeclared(name, place, open, policy);
                continue;
            };
            match misfit(input, value) {
                None => input.value = Some(value.clone()),
                Some((why, fix)) => {
                    // The value is no part of it: a refusal is recorded, and a value may be a secret.
                    let what = format!("the value of input `{name}` does not fit");
                    self.note("inputs", place, fault("input/value", what, why, fix));
                }
            }
        }
        let missing: Vec<String> = policy
            .inputs
            .iter()
            .filter(|(_, input)| input.required && input.value.is_none())
            .map(|(name, _)| name.clone())
            .collect();
        for name in missing {
            if later || given.iter().any(|(known, ..)| *known == name) {
                continue;
            }
            let fix = format!("--input {name}=VALUE");
            self.missing(&name, fix);
        }
    }

    fn undeclared(&mut self, name: &str, place: SourceSpan, open: bool, policy: &Policy) {
        let known = policy.inputs.keys().map(String::as_str);
        let (why, fix) = match did_you_mean(name, known) {
            Some(near) => ("the policy does not declare it", format!("did you mean `{near}`?")),
            None if open => {
                ("it becomes the variable INPUT_NAME: letters, digits and _", "give another name".to_owned())
            }
            None => ("the policy declares its inputs, and this is none of them", format!("declare [inputs.{name}]")),
        };
        self.note("inputs", place, fault("input/undeclared", format!("{} is not an input", quote(name)), why, fix));
    }

    fn missing(&mut self, name: &str, fix: String) {
        let at =
            crate::diagnostic::SourceLocation { name: "--input".to_owned(), line_column: None, excerpt: String::new() };
        self.mistakes.add(crate::diagnostic::Diagnostic {
            id: "input/missing".to_owned(),
            clause: Some(crate::ClauseId::Inputs),
            what: format!("input `{name}` is not given"),
            at,
            why: "the policy requires it".to_owned(),
            fix,
        });
    }
}

fn misfit(input: &Input, value: &str) -> Option<(String, String)> {
    if value.contains('\0') {
        return Some(("the kernel ends variables at a NUL".to_owned(), "remove it".to_owned()));
    }
    let most = input.max_length.unwrap_or(MAX_TEXT);
    if u64::try_from(value.len()).is_ok_and(|length| length > most) {
        return Some((format!("it has {} bytes, and {most} are allowed", value.len()), "shorten it".to_owned()));
    }
    let fits = match input.kind {
        InputType::String => true,
        InputType::Integer => value.parse::<i64>().is_ok() && !value.starts_with('+'),
        InputType::Number => {
            value.parse::<f64>().is_ok_and(f64::is_finite)
                && !value.contains(|c: char| c.is_alphabetic() && c != 'e' && c != 'E')
        }
        InputType::Boolean => matches!(value, "true" | "false"),
    };
    if !fits {
        let example = match input.kind {
            InputType::String => "text",
            InputType::Integer => "42",
            InputType::Number => "0.5",
            InputType::Boolean => "true or false",
        };
        return Some((format!("the policy declares it as {}", input.kind), format!("for example {example}")));
    }
    if let Some(list) = input.one_of.as_ref().filter(|list| !list.iter().any(|one| one == value)) {
        let fix = did_you_mean(value, list.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
        return Some((
            format!("it is one of {}", list.join(", ")),
            fix.unwrap_or_else(|| "give one of them".to_owned()),
        ));
    }
    let pattern = input.pattern.as_ref()?;
    let matched = compile(pattern).is_ok_and(|regex| regex.is_match(value));
    (!matched).then(|| (format!("it does not match {}", quote(pattern)), "the whole value must match".to_owned()))
}
