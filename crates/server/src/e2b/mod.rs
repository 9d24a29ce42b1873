//! E2B's control interface: what its released clients ask of `E2B_API_URL`.
//!
//! What it asks for and no mechanism here holds is refused with the clause named; it is never accepted and ignored.

mod builds;
mod control;
mod create;
mod headers;
mod hosts;
mod list;
mod logs;
mod network;
mod objects;
mod snapshots;
mod templates;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::routing::{any, get, post, put};

use crate::answer::Problem;
use crate::app::AppState;
use crate::record;
use crate::request::token;

/// The routes.
pub(crate) fn router(app: Arc<AppState>) -> Router {
    Router::new()
        .route("/sandboxes", post(create::old).get(list::old))
        .route("/v2/sandboxes", post(create::new).get(list::new))
        .route("/sandboxes/metrics", get(control::all_metrics))
        .route("/sandboxes/{id}", get(control::detail).delete(control::kill))
        .route("/sandboxes/{id}/connect", post(control::connect))
        .route("/v2/sandboxes/{id}/connect", post(control::connect))
        .route("/sandboxes/{id}/resume", post(control::resume))
        .route("/sandboxes/{id}/pause", post(control::pause))
        .route("/sandboxes/{id}/timeout", post(control::timeout))
        .route("/sandboxes/{id}/refreshes", post(control::refresh))
        .route("/sandboxes/{id}/metrics", get(control::metrics))
        .route("/sandboxes/{id}/logs", get(logs::old))
        .route("/v2/sandboxes/{id}/logs", get(logs::new))
        .route("/sandboxes/{id}/fork", post(snapshots::fork))
        .route("/sandboxes/{id}/snapshots", post(snapshots::take))
        .route("/sandboxes/{id}/network", put(control::network))
        .route("/snapshots", get(snapshots::list))
        .route("/templates", get(templates::list).post(held_by_nobody))
        .route("/v2/templates", get(templates::list).post(held_by_nobody))
        .route("/v3/templates", post(builds::wish))
        .route("/templates/tags", post(builds::tag).delete(builds::untag))
        .route("/templates/{id}", get(builds::one).delete(snapshots::remove))
        .route("/templates/{id}/tags", get(builds::tags))
        .route("/templates/{id}/files/{hash}", get(builds::file))
        .route("/templates/{id}/builds/{build}/status", get(builds::status))
        .route("/v2/templates/{id}/builds/{build}", post(builds::begin))
        .route("/templates/aliases/{name}", get(templates::alias))
        .route("/volumes", any(held_by_nobody))
        .route("/volumes/{*rest}", any(held_by_nobody))
        .route("/volumecontent/{*rest}", any(held_by_nobody))
        .route("/secrets", any(held_by_nobody))
        .route("/secrets/{*rest}", any(held_by_nobody))
        .method_not_allowed_fallback(unrouted)
        .fallback(unrouted)
        .layer(from_fn_with_state(Arc::clone(&app), admit))
        // Clients show no key there: the address itself is what lets them in.
        .route("/templates/uploads/{id}/{hash}", put(builds::upload))
        .with_state(app)
}

/// Who shows a key comes in; who does not learns nothing but that one is wanted.
async fn admit(State(app): State<Arc<AppState>>, mut request: Request, next: Next) -> Response<Body> {
    match app.who(&token(request.headers())) {
        Ok(key) => {
            let asked = record::AuditedRequest::of(&request, &key);
            let asked = match record::before(&app, asked) {
                Ok(asked) => asked,
                Err(problem) => return problem.e2b(),
            };
            request.extensions_mut().insert(key);
            let response = next.run(request).await;
            record::after(asked, response.status());
            response
        }
        Err(problem) => problem.e2b(),
    }
}

async fn unrouted(uri: Uri) -> Problem {
    // E2B has more of these than are routed.
    if ["/templates", "/v2/templates"].iter().any(|part| uri.path().starts_with(part)) {
        return held_by_nobody(uri).await;
    }
    Problem::no_route(uri.path())
}

/// Parts of E2B's interface that nothing here can do: 501 for what this server has not, 400 for what its mechanisms do not hold.
async fn held_by_nobody(uri: Uri) -> Problem {
    let cannot = StatusCode::BAD_REQUEST;
    let part = [
        ("templates", StatusCode::NOT_IMPLEMENTED, "this server does not change a template by it: build it anew"),
        ("volume", cannot, "no volume is kept outside of a sandbox by this server"),
        (
            "secrets",
            cannot,
            "this server keeps no secrets: those of a policy's `[secrets]`, and headers of `network.rules`, are a sandbox's own",
        ),
    ];
    let found = part.iter().find(|(word, ..)| uri.path().split('/').any(|part| part.starts_with(word)));
    let none = ("path", StatusCode::NOT_IMPLEMENTED, "this server does not do it");
    let (clause, status, why) = found.copied().unwrap_or(none);
    let clause = if clause == "volume" { "volumes" } else { clause };
    let what = format!("{} is not served", policy::diagnostic::quote(uri.path()));
    Problem::cannot(status, clause, &what, why, "do without it")
}
