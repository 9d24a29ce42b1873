//! `/v1/approvals...`: what people see and say. Each answer is recorded before it counts.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use policy::mistake::quote;
use serde_json::{Value as Json, json};

use super::answer::{Problem, good};
use super::desk::{Desk, fields, not_here};
use crate::approvals::{Approvals, Holder, Lost, Memory, ParkedCall, Remember, StoreError, Wide};
use crate::record::Event;

/// Who answers, for the record: the token is all that we know of the person.
const BY: &str = "holder of approvals.token";

/// Answers what follows `/v1/approvals`.
pub(super) async fn answer(
    desk: &Desk,
    rest: &str,
    query: &str,
    is_get: bool,
    body: Json,
) -> Result<Response<Body>, Problem> {
    let (approvals, record) = (desk.engine.approvals().clone(), desk.engine.record());
    let (rest, all) = (rest.to_owned(), query.split('&').any(|part| part == "all=1" || part == "all=true"));
    // The store and the log write to a disk.
    let work = move || {
        let counter = Counter { approvals, append: &|event| record.append(event) };
        if is_get { counter.look(&rest, all) } else { counter.say(&rest, &body) }
    };
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer.map(|json| good(&json)),
        Err(error) => Err(broken(&error.to_string())),
    }
}

struct Counter<'a> {
    approvals: Approvals,
    append: &'a dyn Fn(&Event) -> Result<(), String>,
}

impl Counter<'_> {
    fn look(&self, rest: &str, all: bool) -> Result<Json, Problem> {
        match rest {
            "" => {
                let calls = self.approvals.list(all).map_err(|error| store(&error))?;
                Ok(json!({ "calls": calls.iter().map(ParkedCall::to_json).collect::<Vec<_>>() }))
            }
            "/remembered" => {
                let memories = self.approvals.memories(all).map_err(|error| store(&error))?;
                Ok(json!({ "remembered": memories.iter().map(Memory::to_json).collect::<Vec<_>>() }))
            }
            rest => {
                let id = rest.strip_prefix('/').unwrap_or_default();
                let call = self.approvals.get(id).map_err(|error| store(&error))?;
                call.map(|call| json!({ "call": call.to_json() })).ok_or_else(|| unknown(id))
            }
        }
    }

    fn say(&self, rest: &str, body: &Json) -> Result<Json, Problem> {
        let empty = json!({});
        let body = if body.is_null() { &empty } else { body };
        let Some((id, verb)) = rest.strip_prefix('/').and_then(|rest| rest.rsplit_once(':')) else {
            return Err(not_here(&format!("/v1/approvals{rest}")));
        };
        if let Some(id) = id.strip_prefix("remembered/").filter(|_| verb == "revoke") {
            fields(body, &[])?;
            self.record("approval.revoked", &json!({ "id": id, "by": BY }))?;
            let revoked = self.approvals.revoke(id, BY).map_err(|error| store(&error))?;
            return if revoked { Ok(json!({ "id": id, "revoked": true })) } else { Err(unknown(id)) };
        }
        let call = self.approvals.get(id).map_err(|error| store(&error))?.ok_or_else(|| unknown(id))?;
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
            _ => return Err(not_here(&format!("/v1/approvals{rest}"))),
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
        (self.append)(&Event { kind, body: body.clone() }).map_err(|why| {
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
    Ok(Some(Remember { args, holder, millis: seconds.saturating_mul(1000) }))
}

fn too_late(lost: &Lost) -> Problem {
    match lost {
        Lost::Unknown { id } => unknown(id),
        Lost::Over { .. } => Problem::new(
            StatusCode::CONFLICT,
            "tools.http/too-late",
            lost.to_string(),
            "somebody, or the time, was first, and only the first answer counts",
            "nothing is left to do",
        ),
        Lost::Remember { .. } => Problem::new(
            StatusCode::BAD_REQUEST,
            "tools.http/remember",
            lost.to_string(),
            "what is remembered is made from what was shown",
            "name arguments of the call, and at most 30 days",
        ),
        Lost::Store(error) => store(error),
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

fn store(error: &StoreError) -> Problem {
    broken(&error.to_string())
}

fn broken(why: &str) -> Problem {
    let (what, fix) = ("the store of approvals cannot be used", "`fumehood approvals ls` says what is wrong");
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "tools.approval/unavailable", what, why, fix)
}
