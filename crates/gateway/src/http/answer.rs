//! Answers on the wire: results, and problems as RFC 9457 has them.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use gate::result::{Content, ToolFailure, ToolResult};
use gate::verdict::Verdict;
use policy::tools::Decision;
use serde_json::{Value as Json, json};

use crate::engine::CallResult;

/// Why a request was not even judged.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    /// Stable id; `fumehood explain` knows it.
    pub(super) id: &'static str,
    pub(super) what: String,
    pub(super) why: String,
    pub(super) fix: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, id: &'static str, what: impl Into<String>, why: &str, fix: &str) -> Self {
        Self { status, id, what: what.into(), why: why.to_owned(), fix: fix.to_owned() }
    }

    fn respond(&self) -> Response<Body> {
        let Self { status, id, what, why, fix } = self;
        let body = json!({
            "type": format!("urn:fumehood:{id}"), "title": what, "status": status.as_u16(), "detail": why,
            "id": id, "what": what, "why": why, "fix": fix,
        });
        respond(*status, "application/problem+json", &body)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        self.respond()
    }
}

/// For a path, or a method of a path, that is not of the contract.
pub(super) fn not_found(what: &str) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "tools.http/no-such",
        format!("nothing answers {} here", policy::diagnostic::quote(what)),
        "the path, or the method for this path, is not one of the contract",
        "docs/reference/http.md lists them",
    )
}

pub(super) fn no_random() -> Problem {
    let (why, fix) = ("the kernel gave no random bytes", "let the system call `getrandom` through");
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "tools.http/no-random", "no session can be made", why, fix)
}

pub(super) fn good(body: &Json) -> Response<Body> {
    respond(StatusCode::OK, "application/json", body)
}

fn respond(status: StatusCode, media: &'static str, body: &Json) -> Response<Body> {
    let mut text = body.to_string();
    text.push('\n');
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    // What tools answered and people said is nobody's to keep or to guess the type of.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

/// A denied call: the verdict, as a problem.
fn denied(verdict: &Verdict) -> Response<Body> {
    let first = verdict.reasons.first();
    let id = first.map_or("tools.entry/none", |reason| reason.id);
    let status =
        if id.starts_with("tools.rate/") || id.starts_with("tools.budget/") || id.starts_with("tools.concurrency/") {
            StatusCode::TOO_MANY_REQUESTS
        } else {
            StatusCode::FORBIDDEN
        };
    let mut body = verdict.to_json();
    if let Some(table) = body.as_object_mut() {
        let text = |part: fn(&gate::verdict::Reason) -> &String| first.map(part).cloned().unwrap_or_default();
        table.insert("type".to_owned(), json!(format!("urn:fumehood:{id}")));
        table.insert("title".to_owned(), json!(text(|reason| &reason.what)));
        table.insert("status".to_owned(), json!(status.as_u16()));
        table.insert("detail".to_owned(), json!(text(|reason| &reason.why)));
        table.insert("id".to_owned(), json!(id));
    }
    respond(status, "application/problem+json", &body)
}

pub(super) fn called(called: &CallResult) -> Response<Body> {
    match (&called.verdict.decision, &called.result) {
        (Decision::Allow, Some(Ok(_))) => good(&called_json(called)),
        (Decision::Allow, Some(Err(ToolFailure { message }))) => {
            let why = "the call was allowed, and the tool did not answer";
            Problem::new(StatusCode::BAD_GATEWAY, "tools.http/tool-failed", message.clone(), why, "see the tool")
                .respond()
        }
        (Decision::Allow | Decision::Ask | Decision::Deny, _) => denied(&called.verdict),
    }
}

/// A verdict with `result` or `failure`.
#[must_use]
pub fn called_json(called: &CallResult) -> Json {
    let mut json = called.verdict.to_json();
    if let Some(table) = json.as_object_mut() {
        match &called.result {
            Some(Ok(result)) => drop(table.insert("result".to_owned(), result_json(result))),
            Some(Err(failure)) => drop(table.insert("failure".to_owned(), json!(failure.message))),
            None => {}
        }
    }
    json
}

/// `{content, structured, is_error}`, content in the shapes of MCP.
#[must_use]
pub fn result_json(result: &ToolResult) -> Json {
    let ToolResult { content, structured, is_error, meta: _ } = result;
    let content: Vec<_> = content.iter().map(Content::to_json).collect();
    json!({ "content": content, "structured": structured, "is_error": is_error })
}
