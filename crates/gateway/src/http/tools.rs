//! `/v1/tools...`: what an agent may do.

use axum::body::Body;
use axum::extract::State;
use axum::http::{Response, StatusCode, Uri};
use gate::call::Caller;
use serde_json::{Map, Value as Json, json};

use super::answer::{Problem, called, good, not_found};
use super::extract::{Action, Agent, JsonBody, fields};
use super::server::ServerState;
use crate::engine::{ToolRequest, ToolRoute, ToolUnavailable};
use crate::tool_route::{error_text, route};

/// `GET /v1/tools`
pub(super) async fn list(State(state): State<ServerState>, Agent(caller): Agent) -> Response<Body> {
    good(&json!({ "tools": state.engine.tools(&caller).await }))
}

/// `POST /v1/tools/NAME:check` and `:call`
pub(super) async fn check_or_call(
    State(state): State<ServerState>,
    Agent(caller): Agent,
    Action { name, verb }: Action,
    uri: Uri,
    JsonBody(body): JsonBody,
) -> Result<Response<Body>, Problem> {
    let args = arguments(&body)?;
    match verb.as_str() {
        "check" => match route(&*state.engine, &name, &args, &caller).await {
            (_, Err(ToolUnavailable::Held)) => Err(missing(&name, &ToolUnavailable::Held)),
            (verdict, _) => Ok(good(&verdict.to_json())),
        },
        "call" => call(&state, &name, args, &caller).await,
        _ => Err(not_found(uri.path())),
    }
}

async fn call(state: &ServerState, tool: &str, args: Json, caller: &Caller) -> Result<Response<Body>, Problem> {
    let ToolRoute { run, facts } = match route(&*state.engine, tool, &args, caller).await.1 {
        Ok(route) => route,
        Err(why) => {
            state.engine.refused(ToolRequest { tool, args, caller, facts: None }, &why);
            return Err(missing(tool, &why));
        }
    };
    let what = ToolRequest { tool, args, caller, facts: facts.as_ref() };
    Ok(called(&state.engine.call(what, run).await))
}

/// `{"args": {...}}`; a body that is missing has none.
fn arguments(body: &Json) -> Result<Json, Problem> {
    if body.is_null() {
        return Ok(Json::Object(Map::new()));
    }
    Ok(fields(body, &["args"])?.get("args").cloned().unwrap_or_else(|| Json::Object(Map::new())))
}

fn missing(tool: &str, missing: &ToolUnavailable) -> Problem {
    let (id, [what, why, fix]) = error_text(tool, missing);
    Problem::new(status_of(missing), id, what, &why, &fix)
}

const fn status_of(missing: &ToolUnavailable) -> StatusCode {
    match missing {
        ToolUnavailable::NoServer => StatusCode::NOT_FOUND,
        ToolUnavailable::NotThere(_) => StatusCode::BAD_GATEWAY,
        ToolUnavailable::Held => StatusCode::FORBIDDEN,
        ToolUnavailable::Full => StatusCode::SERVICE_UNAVAILABLE,
    }
}
