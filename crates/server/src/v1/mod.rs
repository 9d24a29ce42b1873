//! Our own interface, below `/v1`: sandboxes, programs, files. Errors are problems of RFC 9457 with the record of the refusal.

mod exec;
mod files;
mod openapi;
mod sandboxes;
mod terminal;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{Response, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};

use crate::answer::Problem;
use crate::desk::Desk;
use crate::{e2b, page};

/// A problem in the shape of this interface.
#[derive(Debug)]
pub(crate) struct Refused(Vec<Problem>);

type Answer = Result<Response<Body>, Refused>;

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
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/sandboxes", post(sandboxes::create).get(sandboxes::list))
        .route("/v1/sandboxes/{id}", get(sandboxes::one).delete(sandboxes::kill))
        .route("/v1/sandboxes/{id}/pause", post(sandboxes::pause))
        .route("/v1/sandboxes/{id}/resume", post(sandboxes::resume))
        .route("/v1/sandboxes/{id}/timeout", post(sandboxes::timeout))
        .route("/v1/sandboxes/{id}/exec", post(exec::exec))
        .route("/v1/sandboxes/{id}/terminal", get(terminal::terminal))
        .route("/v1/sandboxes/{id}/processes", get(exec::processes))
        .route("/v1/sandboxes/{id}/files", get(files::read).put(files::write).delete(files::remove))
        .method_not_allowed_fallback(unrouted)
        .fallback(unrouted)
        .layer(from_fn_with_state(Arc::clone(&desk), admit))
        .with_state(desk)
}

/// Who shows a key comes in, and who signed in on the page, from the page alone.
async fn admit(State(desk): State<Arc<Desk>>, request: Request, next: Next) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let token = e2b::token(&parts.headers);
    let visit = if token.is_empty() { page::visit(&desk, &parts) } else { Ok(None) };
    let key = match visit {
        Ok(Some(visit)) => {
            let key = visit.key().clone();
            parts.extensions.insert(visit);
            Ok(key)
        }
        Ok(None) => desk.who(&token),
        Err(problem) => Err(problem),
    };
    match key {
        Ok(key) => {
            parts.extensions.insert(key);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(problem) => Refused::from(problem).into_response(),
    }
}

async fn unrouted(uri: Uri) -> Refused {
    Problem::no_route(uri.path()).into()
}

async fn body(request: Request) -> Result<Bytes, Problem> {
    e2b::body(request).await
}
