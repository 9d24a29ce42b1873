//! Our own interface, below `/v1`: sandboxes, programs, files. Errors are problems of RFC 9457 with the record of the refusal.

mod approvals;
mod audit;
mod changes;
mod code;
mod events;
mod exec;
mod files;
mod openapi;
mod plan;
mod ports;
mod processes;
mod query;
mod runs;
mod sandbox;
mod sandboxes;
mod snapshots;
mod terminal;
mod usage;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, Uri};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{any, delete, get, post, put};

use crate::answer::Problem;
use crate::app::AppState;
use crate::request::{self, Query, body};
use crate::{page, record, sessions};

/// A problem in the shape of this interface.
#[derive(Debug)]
pub(crate) struct Refused(Vec<Problem>);

type HttpResult = Result<Response<Body>, Refused>;

impl<T: Into<Problem>> From<T> for Refused {
    fn from(problem: T) -> Self {
        Self(vec![problem.into()])
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let first = self.0.first().cloned();
        let first = first.unwrap_or_else(|| crate::backend::failed("it was refused without a reason").into());
        first.problem(&self.0)
    }
}

/// The routes.
pub(crate) fn router(app: Arc<AppState>) -> Router {
    Router::new()
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/sandboxes", post(sandboxes::create).get(sandboxes::list))
        .route("/v1/sandboxes/{id}", get(sandboxes::one).delete(sandboxes::kill))
        .route("/v1/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/v1/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/v1/sandboxes/{id}/timeout", post(sandboxes::timeout))
        .route("/v1/sandboxes/{id}/network", put(sandboxes::network))
        .route("/v1/sandboxes/{id}/exec", post(exec::exec))
        .route("/v1/sandboxes/{id}/terminal", get(terminal::terminal))
        .route("/v1/sandboxes/{id}/processes", get(processes::list))
        .route("/v1/sandboxes/{id}/processes/{process}/logs", get(processes::logs))
        .route("/v1/sandboxes/{id}/processes/{process}/attach", get(processes::attach))
        .route("/v1/sandboxes/{id}/processes/{process}/signal", post(processes::signal))
        .route("/v1/sandboxes/{id}/processes/{process}/stdin", post(processes::stdin))
        .route("/v1/sandboxes/{id}/processes/{process}/resize", post(processes::resize))
        .route("/v1/sandboxes/{id}/files", get(files::read).put(files::write).delete(files::remove))
        .route("/v1/sandboxes/{id}/files/stat", get(files::stat))
        .route("/v1/sandboxes/{id}/files/list", get(files::list))
        .route("/v1/sandboxes/{id}/files/mkdir", post(files::mkdir))
        .route("/v1/sandboxes/{id}/files/move", post(files::rename))
        .route("/v1/sandboxes/{id}/files/archive", get(files::archive).put(files::extract))
        .route("/v1/sandboxes/{id}/files/watch", get(files::watch))
        .route("/v1/sandboxes/{id}/changes", get(changes::show))
        .route("/v1/sandboxes/{id}/changes/apply", post(changes::apply))
        .route("/v1/sandboxes/{id}/changes/discard", post(changes::discard))
        .route("/v1/sandboxes/{id}/usage", get(usage::usage))
        .route("/v1/sandboxes/{id}/ports", get(ports::list))
        .route("/v1/sandboxes/{id}/ports/{port}/", any(ports::proxy))
        .route("/v1/sandboxes/{id}/ports/{port}/{*path}", any(ports::proxy))
        .route("/v1/sandboxes/{id}/code", post(code::execute))
        .route("/v1/sandboxes/{id}/contexts", get(code::contexts).post(code::create))
        .route("/v1/sandboxes/{id}/contexts/{context}", delete(code::remove))
        .route("/v1/sandboxes/{id}/contexts/{context}/restart", post(code::restart))
        .route("/v1/sandboxes/{id}/contexts/{context}/interrupt", post(code::interrupt))
        .route("/v1/sandboxes/{id}/snapshots", post(snapshots::take).get(snapshots::of_sandbox))
        .route("/v1/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/v1/snapshots", get(snapshots::list))
        .route("/v1/snapshots/{snapshot}", get(snapshots::one).delete(snapshots::remove))
        .route("/v1/templates", get(snapshots::templates))
        .route("/v1/plan", post(plan::plan))
        .route("/v1/runs", post(runs::run))
        .route("/v1/audit", get(audit::events))
        .route("/v1/approvals", get(approvals::list))
        .route("/v1/approvals/{approval}", get(approvals::one).post(approvals::answer))
        .method_not_allowed_fallback(unrouted)
        .fallback(unrouted)
        .layer(from_fn(query::check))
        .layer(from_fn_with_state(Arc::clone(&app), admit))
        .with_state(app)
}

/// Whether the work for a request is for who asked alone: a program that is run for them, or what a port inside or a program is told.
pub(crate) fn ends_with_client(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["", "v1", "runs"]
            | ["", "v1", "sandboxes", _, "exec" | "code"]
            | ["", "v1", "sandboxes", _, "ports", ..]
            | ["", "v1", "sandboxes", _, "processes", _, "stdin"]
    )
}

/// Who shows a key comes in, and who signed in on the page, from the page alone.
async fn admit(State(app): State<Arc<AppState>>, request: Request, next: Next) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let token = request::token(&parts.headers);
    let visit = if token.is_empty() { page::visit(&app, &parts) } else { Ok(None) };
    let key = match visit {
        Ok(Some(visit)) => {
            let key = visit.key().clone();
            sessions::forget(&mut parts.headers);
            parts.extensions.insert(visit);
            Ok(key)
        }
        Ok(None) => app.who(&token),
        Err(problem) => Err(problem),
    };
    match key {
        Ok(key) => {
            let mut request = Request::from_parts(parts, body);
            let asked = record::AuditedRequest::of(&request, &key);
            let asked = match record::before(&app, asked) {
                Ok(asked) => asked,
                Err(problem) => return Refused::from(problem).into_response(),
            };
            request.extensions_mut().insert(key);
            let response = next.run(request).await;
            record::after(asked, response.status());
            response
        }
        Err(problem) => Refused::from(problem).into_response(),
    }
}

async fn unrouted(uri: Uri) -> Refused {
    Problem::no_route(uri.path()).into()
}

/// # Errors
/// A program, or code, is to be run once however often it is asked for.
fn is_not_repeated(request: &Request) -> Result<(), Problem> {
    if !request.headers().contains_key("idempotency-key") {
        return Ok(());
    }
    let what = "what runs a program cannot be repeated by `Idempotency-Key`: its output is kept by nobody";
    Err(Problem::invalid("Idempotency-Key", what))
}

/// `NAME=true` in a query.
///
/// # Errors
/// Another value.
fn yes(query: &Query, name: &str) -> Result<bool, Problem> {
    match query.get(name) {
        None | Some("" | "false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => Err(Problem::invalid(name, &format!("`{name}` is true or false"))),
    }
}
