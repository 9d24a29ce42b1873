//! `/v1/tools...`: what an agent may do.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use policy::tools::Decision;
use serde_json::{Map, Value as Json, json};

use super::answer::{Problem, called, good};
use super::desk::{Desk, fields, not_here};
use super::{Wanted, nowhere};
use crate::call::Caller;

/// Answers what follows `/v1/tools`.
pub(super) async fn answer(
    desk: &Desk,
    rest: &str,
    is_get: bool,
    body: Json,
    caller: &Caller,
) -> Result<Response<Body>, Problem> {
    if rest.is_empty() && is_get {
        return Ok(good(&json!({ "tools": desk.engine.tools(caller).await })));
    }
    // Names hold no percent signs: what is written otherwise is another, unknown tool.
    let Some((tool, verb)) = rest.strip_prefix('/').and_then(|rest| rest.rsplit_once(':')).filter(|_| !is_get) else {
        return Err(not_here(&format!("/v1/tools{rest}")));
    };
    let args = arguments(&body)?;
    match verb {
        "check" => Ok(good(&desk.engine.check(tool, args, caller, None).to_json())),
        "call" => {
            let run = match desk.engine.implementation(tool, caller) {
                Some(run) => run,
                // A denied tool is denied, and recorded so, not missing.
                None if desk.engine.check(tool, args.clone(), caller, None).decision == Decision::Deny => nowhere(),
                None => return Err(no_implementation(tool)),
            };
            Ok(called(&desk.engine.call(Wanted { tool, args, caller, facts: None }, run).await))
        }
        _ => Err(not_here(&format!("/v1/tools{rest}"))),
    }
}

/// `{"args": {...}}`; a body that is missing has none.
fn arguments(body: &Json) -> Result<Json, Problem> {
    if body.is_null() {
        return Ok(Json::Object(Map::new()));
    }
    Ok(fields(body, &["args"])?.get("args").cloned().unwrap_or_else(|| Json::Object(Map::new())))
}

fn no_implementation(tool: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "tools.http/no-implementation",
        format!("nothing here runs {}", policy::mistake::quote(tool)),
        "the policy would allow the call, but no MCP server and no command implements the tool",
        "name a server in `[mcp.servers]`, start with `--tool NAME=COMMAND`, or use `:check` and run it yourself",
    )
}
