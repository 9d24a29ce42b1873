//! E2B's data interface: programs, files and ports of one sandbox, at the sandbox's address.
//!
//! A request is for a sandbox and a port ([`Target`]); the port 49983 is this interface, 49999 the code
//! interpreter's, every other one is inside. Nothing
//! here acts but by asking the supervisor, and so as the sandbox's user and no other.

mod connect;
mod content;
mod convert;
mod files;
mod filesystem;
mod interpreter;
mod multipart;
mod port;
mod process;
mod program;
mod watch;

use std::sync::Arc;

use agent::words::{Failure, Hello};
use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Response, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::words::{Exec, Info, State};
use serde_json::{Map, Value as Json, json};

use crate::answer::{empty, harden, json_response, status_of};
use crate::app::AppState;
use crate::request::Query;
use crate::tokens::{Purpose, Signed};
use crate::{backend, clock, labels, measured, record};

pub(crate) use content::CutStream;
pub(crate) use content::broken;
pub(crate) use files::send as send_file;
pub(crate) use port::pass_on;

/// The bytes of an upload as they come.
pub(crate) fn pieces(request: Request) -> multipart::Pieces {
    multipart::pieces(request, multipart::Packing::Plain)
}

/// The port of this interface.
pub(crate) const PORT: u16 = 49983;

/// Whether a port is one inside, and none that is answered here.
pub(crate) const fn is_inside(port: u16) -> bool {
    !matches!(port, PORT | interpreter::PORT)
}

/// Whether it is input for a program, which is the business of who writes it.
pub(crate) fn is_input(path: &str) -> bool {
    matches!(path, "/process.Process/SendInput" | "/process.Process/StreamInput")
}

/// Most bytes of output of a program that we run for ourselves.
const MAX_OUTPUT: usize = 1 << 20;

/// Which sandbox, and which of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) id: String,
    pub(crate) port: u16,
}

/// A request to a sandbox that runs.
pub(crate) struct Context {
    pub(crate) app: Arc<AppState>,
    pub(crate) info: Info,
}

/// Answers a request to a sandbox.
pub(crate) async fn serve(app: Arc<AppState>, target: Target, request: Request) -> Response<Body> {
    let wants_html = wants_html(request.headers());
    let (parts, body) = request.into_parts();
    let found = awake(&app, &target, &parts).await;
    let request = Request::from_parts(parts, body);
    let info = match found {
        Ok(Some(info)) => info,
        Ok(None) => return gone(&target.id, wants_html),
        Err(failure) => return plain_failure(&target.id, &failure),
    };
    let context = Context { app, info };
    match target.port {
        PORT | interpreter::PORT => context.recorded(target.port, request).await,
        inside => port::proxy(&context, inside, request).await,
    }
}

/// The sandbox, if it runs or wakes by traffic, and nobody ends it now. Who may not enter wakes nothing.
async fn awake(app: &AppState, target: &Target, request: &Parts) -> Result<Option<Info>, Failure> {
    let found = app.sandboxes.find(&target.id).await?;
    let Some(info) = found.filter(|info| app.is_served(info) && !app.is_going(&info.id)) else { return Ok(None) };
    match info.state {
        State::Running => Ok(Some(info)),
        State::Ended => Ok(None),
        State::Paused => {
            let wakes = info.labels.get(labels::WAKE).and_then(|ms| ms.parse::<u64>().ok());
            let Some(life) = wakes else { return Ok(None) };
            let is_probe = matches!(target.port, PORT | interpreter::PORT) && request.uri.path() == "/health";
            let may = match target.port {
                PORT => has_token(app, &info.id, request),
                interpreter::PORT => interpreter::may_enter(app, &info, request).is_ok(),
                _inside => port::may_pass(app, &info, &request.headers),
            };
            if is_probe || !may {
                return Ok(None);
            }
            app.resume(&info, Some(life)).await.map(Some)
        }
    }
}

/// Whether a request shows the data token of a sandbox, or is signed for it.
fn has_token(app: &AppState, id: &str, request: &Parts) -> bool {
    let mut given = request.headers.get_all("x-access-token").iter();
    match (given.next(), given.next()) {
        (Some(token), None) => app.tokens.is(Purpose::Data, id, token.to_str().unwrap_or_default()),
        (Some(_), Some(_)) => false,
        (None, _) => is_signed_for(app, id, request),
    }
}

/// Whether a request is a signed one for this sandbox.
fn is_signed_for(app: &AppState, id: &str, request: &Parts) -> bool {
    is_signed_at(app, id, request, clock::now_ms())
}

/// Whether a request is one that was signed for this sandbox, be it too old by now.
pub(crate) fn was_signed_for(app: &AppState, id: &str, request: &Parts) -> bool {
    is_signed_at(app, id, request, i64::MIN)
}

fn is_signed_at(app: &AppState, id: &str, request: &Parts, now_ms: i64) -> bool {
    let operation = match request.method {
        Method::GET | Method::HEAD => "read",
        Method::POST => "write",
        _ => return false,
    };
    if request.uri.path() != "/files" {
        return false;
    }
    let query = Query::of(&request.uri);
    let Some(signature) = query.get("signature") else { return false };
    let signed = Signed {
        path: query.get("path").unwrap_or_default(),
        operation,
        user: query.get("username").unwrap_or_default(),
        expiration: query.get("signature_expiration"),
    };
    app.tokens.is_signed(id, signed, signature, now_ms)
}

impl Context {
    /// Answers, and records what changes something. Requests to what listens inside are the program's own business.
    async fn recorded(&self, port: u16, request: Request) -> Response<Body> {
        let key = self.info.labels.get(labels::KEY).cloned().unwrap_or_default();
        let asked = record::AuditedRequest::inside(key, request.method(), request.uri().path(), self.id());
        let asked = match record::before(&self.app, asked) {
            Ok(asked) => asked,
            Err(problem) => return problem.e2b(),
        };
        let response = if port == interpreter::PORT {
            interpreter::answer(self, request).await
        } else {
            self.answer(request).await
        };
        record::after(asked, response.status());
        response
    }

    async fn answer(&self, request: Request) -> Response<Body> {
        let path = request.uri().path().to_owned();
        if path == "/health" && matches!(*request.method(), Method::GET | Method::HEAD) {
            return empty(StatusCode::NO_CONTENT);
        }
        let (parts, body) = request.into_parts();
        if !has_token(&self.app, &self.info.id, &parts) {
            // E2B's own words: its clients' tests read them.
            let late = was_signed_for(&self.app, &self.info.id, &parts).then_some("signature is already expired");
            let wrong = "the access token of this sandbox is missing or wrong";
            return plain(StatusCode::UNAUTHORIZED, late.unwrap_or(wrong));
        }
        let request = Request::from_parts(parts, body);
        if let Some(method) = path.strip_prefix("/process.Process/") {
            return process::answer(self, method, request).await;
        }
        if let Some(method) = path.strip_prefix("/filesystem.Filesystem/") {
            return filesystem::answer(self, method, request).await;
        }
        match (request.method(), path.as_str()) {
            (_, "/files") => files::answer(self, request).await,
            (&Method::GET, "/metrics") => self.metrics().await,
            (&Method::GET, "/envs") => self.environment().await,
            (_, _) => plain(StatusCode::NOT_FOUND, "nothing answers this path"),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.info.id
    }

    /// What the agent said of itself.
    pub(super) fn hello(&self) -> Hello {
        self.info.agent.clone().unwrap_or_else(|| Hello {
            version: agent::frame::VERSION,
            pid: 1,
            uid: 1000,
            gid: 1000,
            home: "/home/user".to_owned(),
            cwd: "/".to_owned(),
            user: "user".to_owned(),
            guarded: false,
        })
    }

    /// # Errors
    /// The request wants to act as somebody else than the sandbox's one user.
    pub(super) fn check_user(&self, headers: &HeaderMap, named: Option<&str>) -> Result<(), String> {
        let basic = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(basic_user);
        let hello = self.hello();
        for user in [basic.as_deref(), named].into_iter().flatten() {
            if !user.is_empty() && user != hello.user && user != "user" {
                let user = policy::diagnostic::quote(user);
                return Err(format!("there is no user {user} to act as: a sandbox has one user, {}", hello.user));
            }
        }
        Ok(())
    }

    /// A path as the agent reads it: relative ones belong to the home folder, as does none.
    pub(super) fn path(&self, path: &str) -> String {
        if path.is_empty() { "~".to_owned() } else { path.to_owned() }
    }

    async fn metrics(&self) -> Response<Body> {
        let asked = backend::call::<Info>(&*self.app.sandboxes, self.id(), &live::words::Ask::Info {}).await;
        let info = asked.unwrap_or_else(|_| self.info.clone());
        json_response(StatusCode::OK, &measured(&info, clock::now_ms()))
    }

    /// The variables that each program gets: asked of one.
    async fn environment(&self) -> Response<Body> {
        let argv = ["env", "-0"].map(str::to_owned).to_vec();
        let program = agent::words::Program { argv, ..agent::words::Program::default() };
        let exec = Exec { program, timeout_ms: Some(10_000), ..Exec::default() };
        match self.output_of(&exec).await {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
                let map: Map<String, Json> = pairs.map(|(key, value)| (key.to_owned(), json!(value))).collect();
                json_response(StatusCode::OK, &Json::Object(map))
            }
            Err(failure) => plain_failure(self.id(), &failure),
        }
    }

    async fn output_of(&self, exec: &Exec) -> Result<Vec<u8>, Failure> {
        let ask = live::words::Ask::Exec(exec.clone());
        let mut stream = backend::open(&*self.app.sandboxes, self.id(), &ask).await?;
        let mut bytes = Vec::new();
        while let Some(incoming) = stream.next().await {
            match incoming {
                live::client::Incoming::Out(more) if bytes.len() < MAX_OUTPUT => bytes.extend(more),
                live::client::Incoming::End(end) => return end.map(|_| bytes),
                live::client::Incoming::Out(_) | live::client::Incoming::Err(_) | live::client::Incoming::Event(_) => {}
            }
        }
        Err(backend::gone())
    }
}

/// One measurement, as E2B's server inside tells it. What nobody measured is left out.
fn measured(info: &Info, now_ms: i64) -> Json {
    let metric = measured::metric(info, now_ms);
    let of = |name: &str| metric.as_ref().and_then(|metric| metric.get(name)).cloned();
    let disk = info.usage.get("disk").filter(|disk| disk.is_u64()).cloned();
    let mib = |bytes: Option<u64>| bytes.map(|bytes| Json::from(bytes >> 20));
    let all = [
        ("cpu_count", of("cpuCount")),
        ("cpu_used_pct", of("cpuUsedPct")),
        ("mem_total", info.memory_limit.map(Json::from)),
        ("mem_total_mib", mib(info.memory_limit)),
        ("mem_used", of("memUsed")),
        ("mem_used_mib", mib(info.usage.get("memory").and_then(Json::as_u64))),
        ("disk_total", info.disk_limit.map(Json::from)),
        ("disk_used", disk),
    ];
    let known = all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let mut object: Map<String, Json> = known.collect();
    object.insert("ts".to_owned(), Json::from(now_ms.div_euclid(1000)));
    Json::Object(object)
}

/// The user of `Basic base64(user:password)`.
fn basic_user(value: &str) -> Option<String> {
    let (scheme, encoded) = value.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let text = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
    Some(text.split_once(':').map_or(text.clone(), |(user, _)| user.to_owned()))
}

fn wants_html(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.split(',').any(|kind| kind.trim().starts_with("text/html")))
}

/// What clients know a sandbox by that is not there any more, or is paused.
pub(crate) fn gone(id: &str, html: bool) -> Response<Body> {
    let message = "The sandbox was not found";
    unreachable(html, message, &json!({ "sandboxId": id, "message": message, "code": 502 }))
}

/// What clients know a port by on which nobody listens.
pub(super) fn closed(id: &str, port: u16, html: bool) -> Response<Body> {
    let message = "The sandbox is running but port is not open";
    unreachable(html, message, &json!({ "sandboxId": id, "message": message, "port": port, "code": 502 }))
}

fn unreachable(html: bool, message: &str, body: &Json) -> Response<Body> {
    if !html {
        return json_response(StatusCode::BAD_GATEWAY, body);
    }
    let mut response = Response::new(Body::from(format!("<!doctype html><title>502</title><p>{message}\n")));
    *response.status_mut() = StatusCode::BAD_GATEWAY;
    let kind = axum::http::HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    harden(response.headers_mut());
    response
}

/// An error outside of RPC: `{code, message}`.
pub(super) fn plain(status: StatusCode, message: &str) -> Response<Body> {
    json_response(status, &json!({ "code": status.as_u16(), "message": message }))
}

/// What a supervisor answered, outside of RPC.
pub(super) fn plain_failure(id: &str, failure: &Failure) -> Response<Body> {
    match failure.code.is_away() {
        true => gone(id, false),
        false => plain(status_of(failure.code), &failure.message),
    }
}
