//! Calls of tools, in the terms of JavaScript: `tool("name", { argument: value })`.

use std::cell::Cell;

use rquickjs::function::Opt;
use rquickjs::{Ctx, Error, Exception, Function, Result, Value};
use serde_json::{Map, Value as Json};

use crate::tools::{self, MAX_CALLS, NAME, NoResult};

/// Gives a program the function.
///
/// # Errors
/// There is no room for it.
pub(super) fn give(ctx: &Ctx<'_>) -> Result<()> {
    let made = Cell::new(0_usize);
    let call = of_any_context(move |ctx, tool, args| {
        made.set(made.get().saturating_add(1));
        if made.get() > MAX_CALLS {
            return Err(thrown(&ctx, "RangeError", &format!("a program calls tools {MAX_CALLS} times at most")));
        }
        called(&ctx, &tool, args.0)
    });
    ctx.globals().set(NAME, Function::new(ctx.clone(), call)?.with_name(NAME)?)
}

/// The same closure, whose result is of the context that calls it.
fn of_any_context<F>(call: F) -> F
where
    F: for<'js> Fn(Ctx<'js>, String, Opt<Value<'js>>) -> Result<Value<'js>>,
{
    call
}

fn called<'js>(ctx: &Ctx<'js>, tool: &str, args: Option<Value<'js>>) -> Result<Value<'js>> {
    let args = match args {
        Some(args) if !args.is_undefined() => arguments(ctx, args)?,
        Some(_) | None => Map::new(),
    };
    match tools::call(tool, &args) {
        Ok(result) => ctx.json_parse(result.to_string()),
        Err(NoResult::Denied(why)) => Err(thrown(ctx, "PermissionError", &why)),
        Err(NoResult::Failed(why)) => Err(thrown(ctx, "Error", &why)),
        Err(NoResult::TooLarge) => Err(thrown(ctx, "RangeError", "the arguments of a tool are too large")),
    }
}

/// What JSON says of an object.
fn arguments<'js>(ctx: &Ctx<'js>, args: Value<'js>) -> Result<Map<String, Json>> {
    let text = match ctx.json_stringify(args)? {
        Some(text) => text.to_string()?,
        None => String::new(),
    };
    // The parser bounds how deep it goes.
    serde_json::from_str(&text).map_err(|_no_object| {
        thrown(
            ctx,
            "TypeError",
            "tool() takes the tool's name and an object with its arguments by name, of what JSON has",
        )
    })
}

/// An error of this name.
fn thrown(ctx: &Ctx<'_>, name: &str, why: &str) -> Error {
    match Exception::from_message(ctx.clone(), why) {
        Ok(error) => match error.as_object().set("name", name) {
            Ok(()) => error.throw(),
            Err(none) => none,
        },
        Err(none) => none,
    }
}
