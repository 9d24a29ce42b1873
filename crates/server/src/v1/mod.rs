//! Our own interface, below `/v1`.

use std::sync::Arc;

use axum::Router;
use axum::http::Uri;

use crate::answer::Problem;
use crate::desk::Desk;

/// The routes.
pub(crate) fn router(desk: Arc<Desk>) -> Router {
    Router::new().fallback(unrouted).with_state(desk)
}

async fn unrouted(uri: Uri) -> Problem {
    Problem::no_route(uri.path())
}
