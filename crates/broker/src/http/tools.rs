//! `/v1/tools...`: what an agent may do.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde_json::{Map, Value as Json, json};

use super::answer::{Problem, called, good};
use super::desk::{Desk, fields, not_here};
use super::{Missing, Wanted, Way, way, words_of};
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
        "check" => match way(&*desk.engine, tool, &args, caller).await {
            (_, Err(Missing::Held)) => Err(missing(tool, &Missing::Held)),
            (verdict, _) => Ok(good(&verdict.to_json())),
        },
        "call" => {
            let Way { run, facts } = match way(&*desk.engine, tool, &args, caller).await.1 {
                Ok(way) => way,
                Err(why) => {
                    desk.engine.refused(Wanted { tool, args, caller, facts: None }, &why);
                    return Err(missing(tool, &why));
                }
            };
            let what = Wanted { tool, args, caller, facts: facts.as_ref() };
            Ok(called(&desk.engine.call(what, run).await))
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

fn missing(tool: &str, missing: &Missing) -> Problem {
    let (id, [what, why, fix]) = words_of(tool, missing);
    Problem::new(status_of(missing), id, what, &why, &fix)
}

const fn status_of(missing: &Missing) -> StatusCode {
    match missing {
        Missing::NoServer => StatusCode::NOT_FOUND,
        Missing::NotThere(_) => StatusCode::BAD_GATEWAY,
        Missing::Held => StatusCode::FORBIDDEN,
        Missing::Full => StatusCode::SERVICE_UNAVAILABLE,
    }
}
