//! What handlers take from a request: who sends it, `NAME:VERB`, and a body that is strict JSON.

use std::time::Duration;

use axum::body::HttpBody;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use gate::call::Caller;
use gate::json;
use serde_json::{Map, Value as Json};

use super::answer::{Problem, not_found};
use super::keys::Who;

/// Largest body.
const MAX_BODY: usize = 8 << 20;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The agent that sends a request. For people there is nothing at the routes of agents.
pub(super) struct Agent(pub(super) Caller);

impl<S: Sync> FromRequestParts<S> for Agent {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.extensions.get::<Who>() {
            Some(Who::Agent(caller)) => Ok(Self(caller.clone())),
            Some(Who::Person) | None => Err(not_found(parts.uri.path())),
        }
    }
}

/// What stands below the first folder of `/v1/`, as it was sent. Names hold no percent signs: what is written otherwise is another, unknown
/// name. So none of axum's extractors is asked, which all decode, and nobody else cuts a path.
pub(super) struct Below(pub(super) String);

impl<S: Sync> FromRequestParts<S> for Below {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let below = parts.uri.path().strip_prefix("/v1/").and_then(|path| path.split_once('/'));
        below.map(|(_, below)| Self(below.to_owned())).ok_or_else(|| not_found(parts.uri.path()))
    }
}

/// That as `NAME:VERB`.
pub(super) struct Action {
    pub(super) name: String,
    pub(super) verb: String,
}

impl<S: Sync> FromRequestParts<S> for Action {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Below(below) = Below::from_request_parts(parts, state).await?;
        let (name, verb) = below.rsplit_once(':').ok_or_else(|| not_found(parts.uri.path()))?;
        Ok(Self { name: name.to_owned(), verb: verb.to_owned() })
    }
}

/// A body: strict JSON, within bounds, in time; `null` where there is none.
pub(super) struct JsonBody(pub(super) Json);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let (head, body) = request.into_parts();
        let media = head.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().trim();
        // What says that it is too large is not waited for.
        if HttpBody::size_hint(&body).lower() > u64::try_from(MAX_BODY).unwrap_or(u64::MAX) {
            return Err(too_large());
        }
        let bytes = match tokio::time::timeout(BODY_TIMEOUT, axum::body::to_bytes(body, MAX_BODY)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => return Err(too_large()),
            Err(_) => return Err(slow()),
        };
        if bytes.is_empty() {
            return Ok(Self(Json::Null));
        }
        if !media.eq_ignore_ascii_case("application/json") {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "tools.http/type",
                "the body is not said to be JSON",
                "a form of a page can send other types without asking",
                "send `Content-Type: application/json`",
            ));
        }
        let text = std::str::from_utf8(&bytes).map_err(|error| {
            let what = format!("the body is no UTF-8 at byte {}", error.valid_up_to());
            Problem::new(StatusCode::BAD_REQUEST, "tools.http/body", what, "JSON is UTF-8", "send UTF-8")
        })?;
        json::read(text).map(Self).map_err(|flaw| {
            let what = format!("{} at byte {}", flaw.what, flaw.at);
            Problem::new(StatusCode::BAD_REQUEST, flaw.id, what, flaw.why, flaw.fix)
        })
    }
}

fn too_large() -> Problem {
    let what = "the body is too large, or broke off";
    let (why, fix) = ("8 MiB is the most that is read", "send less");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "tools.http/too-large", what, why, fix)
}

fn slow() -> Problem {
    let (why, fix) = ("a body must arrive within 30 s", "send it faster");
    Problem::new(StatusCode::REQUEST_TIMEOUT, "tools.http/slow", "the body does not come", why, fix)
}

/// The fields of a body, and nothing else.
pub(super) fn fields<'a>(body: &'a Json, known: &[&str]) -> Result<&'a Map<String, Json>, Problem> {
    let bad = |what: String| {
        let fix = format!("an object of {}", known.join(", "));
        Problem::new(StatusCode::BAD_REQUEST, "tools.http/body", what, "a field with another name would be lost", &fix)
    };
    let table = body.as_object().ok_or_else(|| bad("the body is no object".to_owned()))?;
    match table.keys().find(|key| !known.contains(&key.as_str())) {
        Some(odd) => Err(bad(format!("unknown field {}", policy::diagnostic::quote(odd)))),
        None => Ok(table),
    }
}
