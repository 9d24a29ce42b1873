//! Why something was not done, and how each front door says it.

use agent::words::{Code, Failure};
use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};
use axum::response::IntoResponse;
use live::words::Info;
use sandbox::audit::AuditError;
use sandbox::fault::Fault;
use serde_json::{Value as Json, json};

/// Why something was not done: the record that every front door shows, each in its own shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The HTTP status.
    pub status: StatusCode,
    /// Stable id, e.g. `serve/key`.
    pub id: Box<str>,
    /// The clause of the policy, or the field of the request; empty where neither is at fault.
    pub clause: Box<str>,
    /// What was not done.
    pub what: String,
    /// Why.
    pub why: Box<str>,
    /// What to do instead.
    pub instead: String,
    /// Seconds after which the same request may succeed.
    pub retry: Option<u32>,
}

/// The id of the problem that an answer tells of, for whoever counts answers.
#[derive(Clone, Debug)]
pub(crate) struct ProblemId(pub(crate) Box<str>);

impl Problem {
    /// A problem.
    #[must_use]
    pub fn new(status: StatusCode, id: &str, what: impl Into<String>, why: &str, instead: &str) -> Self {
        Self {
            status,
            id: id.into(),
            clause: "".into(),
            what: what.into(),
            why: why.into(),
            instead: instead.to_owned(),
            retry: None,
        }
    }

    /// A problem with this status; 500 for a number that is none.
    #[must_use]
    pub fn of(status: u16, id: &str, what: impl Into<String>, why: &str, instead: &str) -> Self {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::new(status, id, what, why, instead)
    }

    /// What a room below says of itself.
    #[must_use]
    pub fn of_fault(status: StatusCode, fault: &Fault) -> Self {
        Self::new(status, fault.id, fault.what.clone(), &fault.why, &fault.fix)
    }

    /// The audit log cannot be read or written.
    #[must_use]
    pub fn of_audit(error: &AuditError) -> Self {
        Self::of_fault(StatusCode::INTERNAL_SERVER_ERROR, &error.fault())
    }

    /// The same, about a clause or a field.
    #[must_use]
    pub fn about(self, clause: &str) -> Self {
        Self { clause: clause.into(), ..self }
    }

    /// The same, about a field of this table.
    #[must_use]
    pub(crate) fn below(self, table: &str) -> Self {
        let clause = format!("{table}.{}", self.clause).into();
        Self { clause, ..self }
    }

    /// The same, worth another try.
    #[must_use]
    pub fn again_in(self, seconds: u32) -> Self {
        Self { retry: Some(seconds), ..self }
    }

    /// A field of a request that makes no sense.
    #[must_use]
    pub fn invalid(field: &str, what: &str) -> Self {
        let why = "the request does not say what is wanted";
        Self::new(StatusCode::BAD_REQUEST, "serve/invalid", what, why, "correct the field").about(field)
    }

    /// A field of a request, or a word of its query, that is none of these.
    #[must_use]
    pub(crate) fn unknown(name: &str, known: &[&str]) -> Self {
        let what = format!("{} is not known here", policy::diagnostic::quote(name));
        let instead = match known {
            [] => "leave it out: nothing can be said there".to_owned(),
            known => format!("known here: `{}`", known.join("`, `")),
        };
        Self { instead, ..Self::invalid(name, &what) }
    }

    /// What a caller asks for and nothing here can hold: refused, never accepted and ignored.
    #[must_use]
    pub fn cannot(status: StatusCode, clause: &str, what: &str, why: &str, instead: &str) -> Self {
        Self::new(status, "serve/not-enforceable", what, why, instead).about(clause)
    }

    /// There is no such sandbox, or it is another key's: which of the two is not told.
    #[must_use]
    pub fn no_such(id: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "serve/no-such-sandbox",
            format!("sandbox {} not found", policy::diagnostic::quote(id)),
            "no sandbox of this key has this id",
            "list the sandboxes",
        )
    }

    /// It was there, and is over; whose key it is knows that anyway.
    #[must_use]
    pub(crate) fn ended(info: &Info) -> Self {
        let what = format!("sandbox {} has ended", policy::diagnostic::quote(&info.id));
        let why = info.message.as_deref().filter(|said| !said.is_empty()).unwrap_or("its life is over");
        let instead = "create another sandbox; what this one did is still told, and so are its changes";
        Self::new(StatusCode::NOT_FOUND, "serve/ended", what, why, instead)
    }

    /// Whether it says that there is no such template.
    pub(crate) fn is_no_template(&self) -> bool {
        &*self.id == "serve/no-such-template"
    }

    /// A path or method that is not served.
    #[must_use]
    pub fn no_route(what: &str) -> Self {
        let why = "the path, or the method for this path, is none of ours";
        let what = format!("nothing answers {} here", policy::diagnostic::quote(what));
        Self::new(StatusCode::NOT_FOUND, "serve/no-such-path", what, why, "`GET /v1/openapi.json` lists ours")
    }

    /// Several in the shape of one: the first says its status, all are told.
    #[must_use]
    pub(crate) fn all(problems: Vec<Self>) -> Self {
        let mut problems = problems.into_iter();
        let none = || Failure::new(Code::Failed, "it was refused without a reason".to_owned());
        let mut first = problems.next().unwrap_or_else(|| none().into());
        for more in problems {
            first.instead = format!("{}; also: {}", first.instead, more.line());
        }
        first
    }

    /// One line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let Self { clause, what, why, instead, .. } = self;
        let clause = if clause.is_empty() { String::new() } else { format!("{clause}: ") };
        format!("{clause}{what}: {why}; {instead}")
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> Json {
        let Self { id, clause, what, why, instead, .. } = self;
        json!({ "id": id, "clause": clause, "what": what, "why": why, "instead": instead })
    }

    /// As E2B's clients read it: `{code, message}`.
    #[must_use]
    pub fn e2b(&self) -> Response<Body> {
        let body = json!({ "code": self.status.as_u16(), "message": self.line(), "fumehood": self.record() });
        self.with_hints(json_response(self.status, &body))
    }

    /// As RFC 9457 has it, with the record, and those of all that was wrong.
    #[must_use]
    pub fn problem(&self, all: &[Self]) -> Response<Body> {
        let mut body = json!({
            "type": format!("urn:fumehood:{}", self.id), "title": self.what, "status": self.status.as_u16(), "detail": self.why, "refused": all.iter().map(Self::record).collect::<Vec<_>>(),
        });
        if let (Json::Object(body), Json::Object(record)) = (&mut body, self.record()) {
            body.extend(record);
        }
        let mut response = json_response(self.status, &body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        self.with_hints(response)
    }

    /// Whether to try again: clients act on it.
    fn with_hints(&self, mut response: Response<Body>) -> Response<Body> {
        response.extensions_mut().insert(ProblemId(self.id.clone()));
        let headers = response.headers_mut();
        let again = HeaderValue::from_static(if self.retry.is_some() { "true" } else { "false" });
        headers.insert("should-retry", again);
        if let Some(seconds) = self.retry {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What a refusal of a run says, as `--json` prints it: `refused` of a plan, or `errors`. 126 is the caller's to change.
#[must_use]
pub fn refused(code: u8, json: &Json) -> Vec<Problem> {
    let status = if code == 126 { 400 } else { 500 };
    let list = ["/refused/refused", "/refused", "/errors"];
    let found = list.iter().find_map(|path| json.pointer(path)?.as_array());
    let told = found.into_iter().flatten().map(|reason| {
        let text = |name: &str| reason.get(name).and_then(Json::as_str).unwrap_or_default();
        Problem::of(status, text("id"), text("what"), text("why"), text("fix")).about(text("clause"))
    });
    let told: Vec<Problem> = told.collect();
    if told.is_empty() {
        let why = "its supervisor refused it";
        return vec![Problem::of(status, "serve/refused", format!("no sandbox: {json}"), why, "see `fumehood run`")];
    }
    told
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let status = status_of(failure.code);
        let instead = match failure.code {
            Code::Ended => "create another sandbox",
            Code::Paused => "resume it first",
            Code::Secret => {
                "leave the variable out: the program has what stands for the secret in a variable of its own"
            }
            Code::Unsupported => "see `fumehood doctor` on the server",
            Code::NoSpace | Code::TooMany => "free some, or ask for a larger limit",
            Code::NotFound
            | Code::Exists
            | Code::NotADirectory
            | Code::IsADirectory
            | Code::Denied
            | Code::Invalid
            | Code::NotExecutable
            | Code::NoCwd
            | Code::Closed
            | Code::Cancelled
            | Code::Failed => "check the request",
        };
        if failure.code == Code::Secret {
            let why = "the broker puts it into requests outside; inside it would be everybody's";
            return Self::new(status, "secrets/brought", failure.message, why, instead).about("secrets");
        }
        let id = format!("serve/{}", word_of(failure.code).replace('_', "-"));
        Self::new(status, &id, failure.message, "the sandbox answered so", instead)
    }
}

/// What HTTP says of a failure.
pub(crate) const fn status_of(code: Code) -> StatusCode {
    match code {
        Code::NotFound | Code::Ended => StatusCode::NOT_FOUND,
        Code::Exists | Code::Paused => StatusCode::CONFLICT,
        Code::NotADirectory | Code::IsADirectory | Code::Invalid | Code::NoCwd | Code::NotExecutable => {
            StatusCode::BAD_REQUEST
        }
        Code::Denied | Code::Secret => StatusCode::FORBIDDEN,
        Code::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        Code::TooMany => StatusCode::TOO_MANY_REQUESTS,
        Code::Unsupported => StatusCode::NOT_IMPLEMENTED,
        Code::Closed => StatusCode::BAD_GATEWAY,
        Code::Cancelled | Code::Failed => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn word_of(code: Code) -> String {
    serde_json::to_value(code).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response<Body> {
        self.e2b()
    }
}

/// An answer of JSON.
pub(crate) fn json_response(status: StatusCode, body: &Json) -> Response<Body> {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    harden(headers);
    response
}

/// What is inside sandboxes is nobody's to keep, or to guess the type of.
pub(crate) fn harden(headers: &mut axum::http::HeaderMap) {
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

/// An answer without a body.
pub(crate) fn empty(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    harden(response.headers_mut());
    response
}
