//! From the name of a tool to what runs it, or why nothing does.

use gate::call::Caller;
use gate::result::ToolFailure;
use gate::verdict::Verdict;
use serde_json::Value as Json;

use crate::engine::{Engine, Run, ToolRoute, ToolUnavailable};

/// For a call that is denied anyway, of a tool that nothing here runs.
fn nowhere() -> Run {
    Box::new(|_| Box::pin(async { Err(ToolFailure { message: "nothing here runs the tool".to_owned() }) }))
}

/// A call, judged as far as it can be before it is made: by the policy alone if that denies, else with what the tool says of
/// itself. So a tool that is denied starts no server, and `check` says what a call would be told.
pub async fn route(
    engine: &dyn Engine,
    tool: &str,
    args: &Json,
    caller: &Caller,
) -> (Verdict, Result<ToolRoute, ToolUnavailable>) {
    let verdict = engine.check(tool, args.clone(), caller, None);
    if verdict.decision == policy::tools::Decision::Deny {
        // A denied tool is denied, and recorded so, not missing.
        return (verdict, Ok(ToolRoute { run: nowhere(), facts: None }));
    }
    let route = engine.implementation(tool, caller).await;
    match &route {
        Ok(ToolRoute { facts: Some(facts), .. }) => (engine.check(tool, args.clone(), caller, Some(facts)), route),
        Ok(_) | Err(_) => (verdict, route),
    }
}

/// Why nothing runs a tool, as a problem has it: id, what, why, fix.
#[must_use]
pub fn error_text(tool: &str, missing: &ToolUnavailable) -> (&'static str, [String; 3]) {
    let quoted = policy::diagnostic::quote(tool);
    let words = |what: String, why: &str, fix: String| [what, why.to_owned(), fix];
    match missing {
        ToolUnavailable::NoServer => (
            "tools.http/no-implementation",
            words(
                format!("nothing here runs {quoted}"),
                "the policy would allow the call, but no MCP server and no command implements the tool",
                "name a server in `[mcp.servers]`, start with `--tool NAME=COMMAND`, or use `:check` and run it yourself".to_owned(),
            ),
        ),
        ToolUnavailable::NotThere(why) => (
            "tools.http/server",
            words(
                format!("the server of {quoted} does not offer it now"),
                why,
                "look at the server's own words, and try again; a server that ended is started again".to_owned(),
            ),
        ),
        ToolUnavailable::Held => (
            "mcp.pin/changed",
            words(
                format!("{quoted} is held back"),
                "what its server says of it, or how the server is reached, is not what was trusted",
                format!("a person looks at `fumehood mcp pins ls`, then `fumehood mcp pins accept {tool}`"),
            ),
        ),
        ToolUnavailable::Full => (
            "tools.http/busy",
            words(
                "too many conversations have servers".to_owned(),
                "each has servers of its own, and 64 may",
                "end those that are over: `POST /v1/sessions/ID:end`".to_owned(),
            ),
        ),
    }
}
