//! Jupyter's kernel gateway: its requests and its WebSocket over the contexts of sandboxes.
//!
//! Below `/api` each kernel has a sandbox of its own, which ends with it; below `/v1/sandboxes/ID/jupyter/api` kernels are
//! contexts of that sandbox. Who asks shows a key, and what he asks goes through `app` like all other requests.

mod channels;
mod codec;
mod kernels;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use serde_json::json;

use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::record;
use crate::request::{self, Query};

/// A problem as clients of Jupyter read it.
#[derive(Debug)]
struct Refused(Problem);

type HttpResult = Result<Response<Body>, Refused>;

impl<T: Into<Problem>> From<T> for Refused {
    fn from(problem: T) -> Self {
        Self(problem.into())
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response<Body> {
        let Self(problem) = self;
        let body = json!({ "message": problem.line(), "reason": problem.what, "fumehood": problem.record() });
        json_response(problem.status, &body)
    }
}

/// Whether a path is one of Jupyter's.
pub(crate) fn is_ours(path: &str) -> bool {
    path == "/api" || path.starts_with("/api/")
}

/// The routes.
pub(crate) fn router(app: Arc<AppState>) -> Router {
    let below = Router::new()
        .route("/api", get(version))
        .route("/api/kernelspecs", get(kernels::specs))
        .route("/api/kernelspecs/{name}", get(kernels::spec))
        .route("/api/kernels", get(kernels::list).post(kernels::create))
        .route("/api/kernels/{kernel}", get(kernels::one).delete(kernels::remove))
        .route("/api/kernels/{kernel}/interrupt", post(kernels::interrupt))
        .route("/api/kernels/{kernel}/restart", post(kernels::restart))
        .route("/api/kernels/{kernel}/channels", get(channels::open))
        .route("/api/{*other}", axum::routing::any(unrouted));
    Router::new()
        .merge(below.clone())
        .nest("/v1/sandboxes/{id}/jupyter", below)
        .layer(from_fn_with_state(Arc::clone(&app), admit))
        .with_state(app)
}

async fn version() -> Response<Body> {
    json_response(StatusCode::OK, &json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn unrouted(uri: Uri) -> Refused {
    Problem::no_route(uri.path()).into()
}

async fn admit(State(app): State<Arc<AppState>>, mut request: Request, next: Next) -> Response<Body> {
    match app.who(&token(request.headers(), request.uri())) {
        Ok(key) => {
            let asked = match record::before(&app, record::AuditedRequest::of(&request, &key)) {
                Ok(asked) => asked,
                Err(problem) => return Refused(problem).into_response(),
            };
            request.extensions_mut().insert(key);
            let response = next.run(request).await;
            record::after(asked, response.status());
            response
        }
        Err(problem) => Refused(problem).into_response(),
    }
}

/// The one key that a request shows: `Authorization: token KEY`, `?token=KEY`, or as all others do.
fn token(headers: &HeaderMap, uri: &Uri) -> String {
    let mut all = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| value.to_str().ok());
    let named = match (all.next(), all.next()) {
        (Some(one), None) => one.split_once(' ').filter(|(scheme, _)| scheme.eq_ignore_ascii_case("token")),
        (_, _) => None,
    };
    if let Some((_, token)) = named {
        return token.trim().to_owned();
    }
    match Query::of(uri).get("token") {
        Some(token) if !headers.contains_key("x-api-key") && !headers.contains_key(header::AUTHORIZATION) => {
            token.to_owned()
        }
        Some(_) | None => request::token(headers),
    }
}
