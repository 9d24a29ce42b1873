//! `POST /v1/plan`: who would hold each clause.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;

use super::sandboxes::order;
use super::{HttpResult, Refused, body};
use crate::answer::json_response;
use crate::app::AppState;
use crate::json as read;
use crate::keys::Key;

pub(super) async fn plan(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["policy", "template", "env", "timeout"])?;
    let order = order(&app, &key, &asked).await?;
    let told = app.plan(&key, order).await.map_err(Refused)?;
    Ok(json_response(StatusCode::OK, &told))
}
