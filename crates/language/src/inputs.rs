//! The inputs of the policy, which come as variables of the environment and are variables of the program.

use std::fmt::Display;
use std::str::FromStr;

use policy::control::Interpreter;

/// A value of its type.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Input {
    Integer(i64),
    Number(f64),
    Boolean(bool),
    Text(String),
}

/// Each by its name.
///
/// # Errors
/// One was not given, or is of another type; in words.
#[expect(
    clippy::disallowed_methods,
    reason = "this process is the interpreter alone, and its environment was made by us"
)]
pub(crate) fn of(limits: &Interpreter) -> Result<Vec<(String, Input)>, String> {
    let one = |(name, kind): (&String, &String)| {
        let variable = format!("INPUT_{}", name.to_uppercase());
        let text = std::env::var(&variable).map_err(|error| format!("input `{name}`: {error}"))?;
        let wrong = |why: String| format!("input `{name}` is no {kind}: {why}");
        let value = match kind.as_str() {
            "integer" => Input::Integer(parsed(&text).map_err(wrong)?),
            "number" => Input::Number(parsed(&text).map_err(wrong)?),
            "boolean" => Input::Boolean(text == "true"),
            _ => Input::Text(text),
        };
        Ok((name.clone(), value))
    };
    limits.inputs.iter().map(one).collect()
}

fn parsed<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
