//! `/v1/approvals...`: what people see and say. Each answer is recorded before it counts.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{Response, StatusCode, Uri};
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use axum::routing::get;
use policy::diagnostic::quote;
use serde_json::{Value as Json, json};

use super::answer::{Problem, good, not_found};
use super::extract::{Action, Below, JsonBody, fields};
use super::keys::Who;
use super::server::{ServerState, unrouted};
use crate::approvals::{AnswerError, Approvals, Holder, Memory, ParkedCall, Remember, StoreError, Wide};
use crate::record::{Event, Record};

/// Who answers, for the record: the token is all that we know of the person.
const BY: &str = "holder of approvals.token";

/// The routes below `/v1/approvals`: for people alone.
pub(super) fn routes() -> Router<ServerState> {
    Router::new()
        .route("/v1/approvals", get(list))
        .route("/v1/approvals/remembered", get(memories))
        .route("/v1/approvals/{*action}", get(one).post(say))
        .method_not_allowed_fallback(unrouted)
        .route_layer(from_fn(for_people))
}

async fn for_people(Extension(who): Extension<Who>, request: Request, next: Next) -> Response<Body> {
    match who {
        Who::Person => next.run(request).await,
        Who::Agent(_) => Problem::new(
            StatusCode::FORBIDDEN,
            "tools.http/not-yours",
            "this token answers nothing",
            "whoever calls tools may not agree to the calls",
            "people use the token in `approvals.token`",
        )
        .into_response(),
    }
}

async fn list(State(state): State<ServerState>, All(all): All) -> Result<Response<Body>, Problem> {
    at_the_store(&state, move |store| {
        let calls = store.approvals.list(all).map_err(|error| unusable(&error))?;
        Ok(json!({ "calls": calls.iter().map(ParkedCall::to_json).collect::<Vec<_>>() }))
    })
    .await
}

async fn memories(State(state): State<ServerState>, All(all): All) -> Result<Response<Body>, Problem> {
    at_the_store(&state, move |store| {
        let memories = store.approvals.memories(all).map_err(|error| unusable(&error))?;
        Ok(json!({ "remembered": memories.iter().map(Memory::to_json).collect::<Vec<_>>() }))
    })
    .await
}

async fn one(State(state): State<ServerState>, Below(id): Below) -> Result<Response<Body>, Problem> {
    at_the_store(&state, move |store| {
        let call = store.approvals.get(&id).map_err(|error| unusable(&error))?;
        call.map(|call| json!({ "call": call.to_json() })).ok_or_else(|| unknown(&id))
    })
    .await
}

/// `ID:approve`, `ID:deny`, `remembered/ID:revoke`
async fn say(
    State(state): State<ServerState>,
    Action { name, verb }: Action,
    uri: Uri,
    JsonBody(body): JsonBody,
) -> Result<Response<Body>, Problem> {
    let body = if body.is_null() { json!({}) } else { body };
    at_the_store(&state, move |store| match (name.strip_prefix("remembered/"), verb.as_str()) {
        (Some(id), "revoke") => store.revoke(id, &body),
        (_, verb) => store.answer(&name, verb, &body, uri.path()),
    })
    .await
}

/// Whether a query wants those that are over as well.
struct All(bool);

impl<S: Sync> FromRequestParts<S> for All {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        Ok(Self(query.split('&').any(|part| part == "all=1" || part == "all=true")))
    }
}

/// The store and the log write to a disk: not on a thread that serves others.
async fn at_the_store(
    state: &ServerState,
    work: impl FnOnce(&Store) -> Result<Json, Problem> + Send + 'static,
) -> Result<Response<Body>, Problem> {
    let store = Store { approvals: state.engine.approvals().clone(), record: state.engine.record() };
    match tokio::task::spawn_blocking(move || work(&store)).await {
        Ok(answer) => answer.map(|json| good(&json)),
        Err(error) => Err(broken(&error.to_string())),
    }
}

struct Store {
    approvals: Approvals,
    record: Arc<dyn Record>,
}

impl Store {
    fn revoke(&self, id: &str, body: &Json) -> Result<Json, Problem> {
        fields(body, &[])?;
        self.record("approval.revoked", &json!({ "id": id, "by": BY }))?;
        let revoked = self.approvals.revoke(id, BY).map_err(|error| unusable(&error))?;
        if revoked { Ok(json!({ "id": id, "revoked": true })) } else { Err(unknown(id)) }
    }

    fn answer(&self, id: &str, verb: &str, body: &Json, path: &str) -> Result<Json, Problem> {
        let call = self.approvals.get(id).map_err(|error| unusable(&error))?.ok_or_else(|| unknown(id))?;
        let about = json!({ "id": id, "tool": call.tool, "hash": call.hash, "agent": call.agent, "session": call.session, "by": BY });
        let answer = match verb {
            "approve" => {
                let remember = remember(fields(body, &["remember"])?.get("remember"))?;
                self.record("approval.approved", &about)?;
                self.approvals.approve(id, BY, remember.as_ref())
            }
            "deny" => {
                let why = fields(body, &["why"])?.get("why").and_then(Json::as_str).unwrap_or_default();
                self.record("approval.denied", &about)?;
                self.approvals.deny(id, BY, why)
            }
            _ => return Err(not_found(path)),
        };
        match answer {
            Ok(call) => Ok(json!({ "call": call.to_json() })),
            Err(lost) => {
                self.record("approval.lost", &json!({ "id": id, "by": BY, "why": lost.to_string() }))?;
                Err(too_late(&lost))
            }
        }
    }

    fn record(&self, kind: &'static str, body: &Json) -> Result<(), Problem> {
        self.record.append(&Event { kind, body: body.clone() }).map_err(|why| {
            let (what, fix) = ("the answer cannot be recorded", "see `fumehood audit verify`");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tools.http/unrecorded", what, &why, fix)
        })
    }
}

/// `{"args": "any" | {"any": ["body"]}, "for": "agent" | "session", "seconds": 3600}`
fn remember(wanted: Option<&Json>) -> Result<Option<Remember>, Problem> {
    let Some(wanted) = wanted.filter(|wanted| !wanted.is_null()) else { return Ok(None) };
    let bad = |what: &str| {
        let fix = r#"{"args": "any" or {"any": [NAMES]}, "for": "agent" or "session", "seconds": 3600}"#;
        Problem::new(
            StatusCode::BAD_REQUEST,
            "tools.http/body",
            what,
            "it would be remembered otherwise than meant",
            fix,
        )
    };
    let table = fields(wanted, &["args", "for", "seconds"])?;
    let args = match table.get("args") {
        Some(Json::String(any)) if any == "any" => Wide::Any,
        Some(inner @ Json::Object(_)) => {
            let names = fields(inner, &["any"])?.get("any").cloned().unwrap_or_else(|| json!([]));
            let names = names.as_array().ok_or_else(|| bad("`any` is no list"))?;
            let texts: Option<Vec<_>> = names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
            Wide::But(texts.ok_or_else(|| bad("`any` holds something else than names"))?)
        }
        Some(_) | None => return Err(bad("`args` says nothing")),
    };
    let holder = match table.get("for").and_then(Json::as_str) {
        Some("agent") => Holder::Agent,
        Some("session") => Holder::Session,
        Some(_) | None => return Err(bad("`for` is neither agent nor session")),
    };
    let seconds = table.get("seconds").and_then(Json::as_u64).ok_or_else(|| bad("`seconds` is no whole number"))?;
    Ok(Some(Remember { args, holder, millis: Some(seconds.saturating_mul(1000)) }))
}

fn too_late(lost: &AnswerError) -> Problem {
    match lost {
        AnswerError::Unknown { id } => unknown(id),
        AnswerError::Over { .. } => Problem::new(
            StatusCode::CONFLICT,
            "tools.http/too-late",
            lost.to_string(),
            "somebody, or the time, was first, and only the first answer counts",
            "nothing is left to do",
        ),
        AnswerError::Remember { .. } => Problem::new(
            StatusCode::BAD_REQUEST,
            "tools.http/remember",
            lost.to_string(),
            "what is remembered is made from what was shown",
            "name arguments of the call, and at most 30 days",
        ),
        AnswerError::Store(error) => unusable(error),
    }
}

fn unknown(id: &str) -> Problem {
    let what = format!("nothing here has the id {}", quote(id));
    Problem::new(
        StatusCode::NOT_FOUND,
        "tools.http/no-such",
        what,
        "it was never given out, or is forgotten",
        "`GET /v1/approvals?all=1`",
    )
}

fn unusable(error: &StoreError) -> Problem {
    broken(&error.to_string())
}

fn broken(why: &str) -> Problem {
    let (what, fix) = ("the store of approvals cannot be used", "`fumehood approvals ls` says what is wrong");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tools.approval/unavailable", what, why, fix)
}
