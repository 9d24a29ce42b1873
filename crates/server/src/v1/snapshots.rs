//! `/v1/snapshots`, forks, and templates: what sandboxes can be made from.

use std::sync::Arc;

use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use serde_json::{Value as Json, json};

use super::sandbox::{Known, Living};
use super::sandboxes::{duration, shown};
use super::{HttpResult, Refused, body};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::json as read;
use crate::keys::Key;
use crate::snapshots;

/// A snapshot as this interface shows it: no layer of its policy, which may name folders of the host.
fn told(known: &snapshots::Known) -> Json {
    let about = &known.about;
    json!({
        "id": about.id, "name": about.name, "made": about.made, "run": about.run, "tier": about.tier,
        "policy": about.policy, "changes": about.changes, "files": about.files, "bytes": about.bytes,
        "left_out": about.left_out, "keeps": if about.memory.is_some() { "memory" } else { "files" },
    })
}

pub(super) async fn take(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Living(info): Living,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["name"])?;
    let name = read::text(&asked, "name")?.map(str::to_owned);
    let made = app.take_snapshot(&key, &info, name).await?;
    Ok(json_response(StatusCode::CREATED, &json!(made)))
}

fn answer(found: &[snapshots::Known]) -> HttpResult {
    let all: Vec<Json> = found.iter().map(told).collect();
    Ok(json_response(StatusCode::OK, &json!({ "snapshots": all })))
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>) -> HttpResult {
    answer(&app.snapshots(&key).await?)
}

pub(super) async fn of_sandbox(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Known(info): Known,
) -> HttpResult {
    let mut found = app.snapshots(&key).await?;
    found.retain(|one| one.about.run == info.run);
    answer(&found)
}

pub(super) async fn one(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(word): Path<String>,
) -> HttpResult {
    Ok(json_response(StatusCode::OK, &told(&app.snapshot_of(&key, &word).await?)))
}

pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(word): Path<String>,
) -> HttpResult {
    app.remove_snapshot(&key, &word).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

pub(super) async fn fork(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Living(info): Living,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["count", "timeout"])?;
    let count = snapshots::forks_wanted(&asked)?;
    let asked = duration(&asked, "timeout")?;
    let (mut made, mut refused) = (Vec::new(), Vec::new());
    for one in app.fork(&key, &info, count, asked).await? {
        match one {
            Ok(info) => made.push(shown(&info)),
            Err(problems) => refused.extend(problems),
        }
    }
    if made.is_empty() && !refused.is_empty() {
        return Err(Refused(refused));
    }
    let refused: Vec<Json> = refused.iter().map(Problem::record).collect();
    Ok(json_response(StatusCode::CREATED, &json!({ "sandboxes": made, "refused": refused })))
}

/// Those that the key may use, its own behind the server's.
pub(super) async fn templates(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>) -> HttpResult {
    let mut names = app.templates.names();
    names.retain(|name| key.may_use(name));
    let own = app.all_built(&key).await?.into_iter().filter(|template| template.is_ready());
    names.extend(own.map(|template| template.name));
    Ok(json_response(StatusCode::OK, &json!({ "templates": names })))
}
