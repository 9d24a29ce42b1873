//! Calls of tools, in the terms of Python: `tool("name", argument=value)`.

use monty_types::{ExcType, MontyException, MontyObject};
use serde_json::{Map, Value as Json, json};

use crate::tools::{self, NAME, NoResult};

/// Deepest value of an argument.
const MAX_DEPTH: usize = 64;

fn raised(kind: ExcType, why: impl Into<String>) -> MontyException {
    MontyException::new(kind, Some(why.into()))
}

/// The function, as a variable of the program.
pub(super) fn function() -> (String, MontyObject) {
    let docstring = Some("Calls a tool of the policy by its name; arguments are named.".to_owned());
    (NAME.to_owned(), MontyObject::Function { name: NAME.to_owned(), docstring })
}

/// Calls a tool.
///
/// # Errors
/// `PermissionError`: the gate denies it. `RuntimeError`: the tool failed, or nobody answers. `TypeError`: what is no call.
pub(super) fn call(
    positional: &[MontyObject],
    named: &[(MontyObject, MontyObject)],
) -> Result<MontyObject, MontyException> {
    let [MontyObject::String(tool)] = positional else {
        return Err(raised(ExcType::TypeError, "tool() takes the tool's name, and its arguments by name"));
    };
    let args = object(named.iter(), 0)?;
    let result = tools::call(tool, &args).map_err(|none| match none {
        NoResult::Denied(why) => raised(ExcType::PermissionError, why),
        NoResult::Failed(why) => raised(ExcType::RuntimeError, why),
        NoResult::TooLarge => raised(ExcType::ValueError, "the arguments of a tool are too large"),
    })?;
    Ok(value(&result))
}

fn object<'a>(
    pairs: impl Iterator<Item = &'a (MontyObject, MontyObject)>,
    depth: usize,
) -> Result<Map<String, Json>, MontyException> {
    let mut map = Map::new();
    for (name, argument) in pairs {
        let MontyObject::String(name) = name else {
            return Err(raised(ExcType::TypeError, "names in arguments of a tool are texts"));
        };
        map.insert(name.clone(), argument_of(argument, depth.saturating_add(1))?);
    }
    Ok(map)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "whatever else the interpreter has is no argument of a tool")]
fn argument_of(argument: &MontyObject, depth: usize) -> Result<Json, MontyException> {
    if depth > MAX_DEPTH {
        return Err(raised(ExcType::ValueError, "an argument of a tool is too deep"));
    }
    let list = |items: &[MontyObject]| -> Result<Json, MontyException> {
        items.iter().map(|item| argument_of(item, depth.saturating_add(1))).collect()
    };
    match argument {
        MontyObject::None => Ok(Json::Null),
        MontyObject::Bool(yes) => Ok(json!(yes)),
        MontyObject::Int(number) => Ok(json!(number)),
        MontyObject::BigInt(_) => Err(raised(ExcType::ValueError, "an int of a tool's argument has 64 bits at most")),
        MontyObject::Float(number) if number.is_finite() => Ok(json!(number)),
        MontyObject::Float(_) => {
            Err(raised(ExcType::ValueError, "an argument of a tool cannot be inf or nan: JSON has neither"))
        }
        MontyObject::String(text) => Ok(json!(text)),
        MontyObject::List(items) | MontyObject::Tuple(items) => list(items),
        MontyObject::Dict(pairs) => object(pairs.into_iter(), depth).map(Json::Object),
        other => Err(raised(ExcType::TypeError, format!("no argument of a tool can be of type {}", other.type_name()))),
    }
}

fn value(json: &Json) -> MontyObject {
    match json {
        Json::Null => MontyObject::None,
        Json::Bool(yes) => MontyObject::Bool(*yes),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => MontyObject::Int(whole),
            None => MontyObject::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => MontyObject::String(text.clone()),
        Json::Array(items) => MontyObject::List(items.iter().map(value).collect()),
        Json::Object(map) => {
            let pairs: Vec<_> =
                map.iter().map(|(name, item)| (MontyObject::String(name.clone()), value(item))).collect();
            MontyObject::Dict(pairs.into())
        }
    }
}
