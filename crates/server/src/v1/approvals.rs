//! `/v1/approvals`: calls of tools that wait for a person. A key that programs hold may not answer for one.

use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::http::{StatusCode, Uri};
use policy::Millis;
use serde_json::{Map, Value as Json, json};

use super::{HttpResult, body, yes};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::backend::{ApprovalAnswer, Approvals, Decision, RememberedApproval};
use crate::json as read;
use crate::keys::Key;
use crate::request::Query;

/// The store, for who may use it.
fn store(app: &AppState, key: &Key) -> Result<Arc<dyn Approvals>, Problem> {
    key.must_be_operator("approvals")?;
    let why = "it was started without its store";
    let none = || {
        let (what, instead) = ("this server has no approvals", "`fumehood approvals`");
        Problem::new(StatusCode::NOT_IMPLEMENTED, "serve/not-enforceable", what, why, instead)
    };
    app.approvals.clone().ok_or_else(none)
}

/// What blocks.
async fn away<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    let lost = |_| Err(crate::backend::failed("the store of approvals could not be asked").into());
    tokio::task::spawn_blocking(work).await.unwrap_or_else(lost)
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, uri: Uri) -> HttpResult {
    let all = yes(&Query::of(&uri), "all")?;
    let store = store(&app, &key)?;
    let calls = away(move || store.list(all)).await?;
    Ok(json_response(StatusCode::OK, &json!({ "calls": calls })))
}

pub(super) async fn one(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> HttpResult {
    let store = store(&app, &key)?;
    let calls = away(move || store.list(true)).await?;
    let found = calls.into_iter().find(|call| call.get("id").and_then(Json::as_str) == Some(&id));
    let unknown = || {
        let what = format!("no call {} waits or was answered", policy::diagnostic::quote(&id));
        let (why, instead) = ("nothing of this id is kept", "`GET /v1/approvals?all=true`");
        Problem::new(StatusCode::NOT_FOUND, "serve/no-such-call", what, why, instead)
    };
    Ok(json_response(StatusCode::OK, &found.ok_or_else(unknown)?))
}

pub(super) async fn answer(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let store = store(&app, &key)?;
    let asked = read::object(&body(request).await?)?;
    let said = ApprovalAnswer { by: format!("key {}", key.name), decision: decision(&asked)? };
    let call = away(move || store.answer(&id, &said)).await?;
    Ok(json_response(StatusCode::OK, &call))
}

fn decision(asked: &Map<String, Json>) -> Result<Decision, Problem> {
    match read::text(asked, "decision")? {
        Some("approve") => {
            read::known(asked, &["decision", "remember"])?;
            Ok(Decision::Approve(remembered(asked)?))
        }
        Some("deny") => {
            read::known(asked, &["decision", "why"])?;
            Ok(Decision::Deny(read::text(asked, "why")?.unwrap_or_default().to_owned()))
        }
        Some(_) | None => Err(Problem::invalid("decision", "`decision` is `approve` or `deny`")),
    }
}

fn remembered(asked: &Map<String, Json>) -> Result<Option<RememberedApproval>, Problem> {
    let table = match asked.get("remember") {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Object(table)) => table,
        Some(_) => return Err(Problem::invalid("remember", "`remember` is {what, any, for}")),
    };
    read::known(table, &["what", "any", "for"])?;
    let what = read::text(table, "what")?.filter(|what| matches!(*what, "args" | "tool" | "session"));
    let what = what.ok_or_else(|| Problem::invalid("remember.what", "`what` is args, tool or session"))?;
    let any = read::list(table, "any")?;
    if what != "args" && !any.is_empty() {
        return Err(Problem::invalid("remember.any", "the others take any arguments already"));
    }
    let millis = match read::text(table, "for")? {
        None => None,
        Some(text) => Some(Millis::parse(text).map_err(|error| Problem::invalid("remember.for", &error.why))?.0),
    };
    Ok(Some(RememberedApproval { what: what.to_owned(), any, millis }))
}
