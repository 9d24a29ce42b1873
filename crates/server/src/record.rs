//! One event in the audit log for each request that changes something: whose, what, of which sandbox, and how it ended.
//!
//! It is written when the request has been answered, since its status belongs to it, or when it ended with its client before.
//! Where it cannot be written the next request that changes something is refused, until the log takes an event again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{MatchedPath, Request};
use axum::http::{Method, StatusCode, header};
use sandbox::audit::Kind;
use serde_json::{Value as Json, json};

use crate::answer::Problem;
use crate::app::AppState;
use crate::keys::Key;

/// A request that changes something, or tries to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuditedRequest {
    key: String,
    method: Method,
    route: String,
    sandbox: String,
}

impl AuditedRequest {
    /// Of a request that was routed; none if it only looks. A WebSocket is a terminal, or leads to a kernel or a program.
    pub(crate) fn of(request: &Request, key: &Key) -> Option<Self> {
        let route = request.extensions().get::<MatchedPath>().map(|path| path.as_str().to_owned());
        let path = request.uri().path();
        let looks = looks(request.method()) && !request.headers().contains_key(header::UPGRADE);
        Self::new(key.mark(), request.method(), looks, (route.unwrap_or_default(), named(path).to_owned()))
    }

    /// Of a request to a sandbox itself.
    pub(crate) fn inside(key: String, method: &Method, path: &str, sandbox: &str) -> Option<Self> {
        // What a client writes there has no bound but that of a head.
        let route: String = path.chars().take(128).collect();
        Self::new(key, method, looks(method) || LOOKS.contains(&path), (route, sandbox.to_owned()))
    }

    fn new(key: String, method: &Method, looks: bool, (route, sandbox): (String, String)) -> Option<Self> {
        (!looks).then(|| Self { key, method: method.clone(), route, sandbox })
    }

    fn event(&self, status: u16) -> Json {
        let Self { key, method, route, sandbox } = self;
        json!({ "key": key, "method": method.as_str(), "route": route, "sandbox": sandbox, "status": status })
    }
}

fn looks(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Calls of E2B's clients that only look, and are POST requests all the same.
const LOOKS: &[&str] = &[
    "/process.Process/List",
    "/process.Process/Connect",
    "/filesystem.Filesystem/Stat",
    "/filesystem.Filesystem/ListDir",
    "/filesystem.Filesystem/WatchDir",
    "/filesystem.Filesystem/CreateWatcher",
    "/filesystem.Filesystem/GetWatcherEvents",
    "/filesystem.Filesystem/RemoveWatcher",
];

/// The sandbox that a path names: what follows `sandboxes`.
fn named(path: &str) -> &str {
    let mut parts = path.split('/').skip_while(|part| *part != "sandboxes").skip(1);
    parts.next().filter(|word| word.len() <= 64).unwrap_or_default()
}

/// What others write where a request ended with its client before it was answered.
const HUNG_UP: u16 = 499;

/// A request whose event is still to be written.
#[derive(Debug)]
pub(crate) struct Open {
    app: Arc<AppState>,
    asked: Option<AuditedRequest>,
}

impl Open {
    fn end(&mut self, status: u16) {
        let Some(asked) = self.asked.take() else { return };
        if write(&self.app, &asked.event(status)).is_err() {
            self.app.is_recorded.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.end(HUNG_UP);
    }
}

/// # Errors
/// What was changed before could not be recorded, and cannot be now.
pub(crate) fn before(app: &Arc<AppState>, asked: Option<AuditedRequest>) -> Result<Option<Open>, Problem> {
    if asked.is_some() && !app.is_recorded.load(Ordering::Relaxed) {
        let note = json!({ "key": "", "method": "", "route": "", "sandbox": "", "status": 0, "note": "events before this were lost" });
        write(app, &note)?;
        app.is_recorded.store(true, Ordering::Relaxed);
    }
    Ok(asked.map(|asked| Open { app: Arc::clone(app), asked: Some(asked) }))
}

/// The request was answered.
pub(crate) fn after(open: Option<Open>, status: StatusCode) {
    open.into_iter().for_each(|mut open| open.end(status.as_u16()));
}

fn write(app: &AppState, body: &Json) -> Result<(), Problem> {
    let written = app.log().and_then(|log| {
        log.append("", &Kind::server_request(), body).map_err(|error| Problem::of_audit(&error))?;
        Ok(())
    });
    written.map_err(|problem| Problem { status: StatusCode::SERVICE_UNAVAILABLE, ..problem }.again_in(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_is_no_event() {
        let of = |method: Method, path: &str| AuditedRequest::inside("k".to_owned(), &method, path, "a");
        assert!(of(Method::GET, "/files").is_none() && of(Method::POST, "/filesystem.Filesystem/Stat").is_none());
        assert!(of(Method::POST, "/files").is_some() && of(Method::POST, "/process.Process/Start").is_some());
    }

    #[test]
    fn the_sandbox_is_what_the_path_names() {
        assert_eq!(named("/v1/sandboxes/abc/exec"), "abc");
        assert_eq!(named("/v2/sandboxes"), "");
        assert_eq!(named(&format!("/sandboxes/{}", "a".repeat(100))), "");
    }
}
