//! E2B's snapshots and forks. Files alone are kept: memory that is asked for is refused.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri};
use serde_json::{Map, Value as Json, json};

use super::objects;
use crate::answer::{Problem, empty, json_response};
use crate::desk::{Desk, MAX_LIFE_MS};
use crate::json as read;
use crate::keys::Key;
use crate::request::{Query, body};
use crate::snapshots::forks_wanted;

/// Seconds of life of a fork when none are asked for.
const LIFE: u64 = 300;
/// Most snapshots of a page.
const PAGE: usize = 100;

type Answer = Result<Response<Body>, Problem>;

/// Memory that is to be kept.
fn without_memory(asked: &Map<String, Json>) -> Result<(), Problem> {
    if read::flag(asked, "memory")? != Some(true) {
        return Ok(());
    }
    let why = "a sandbox of this tier is copied by its files: its processes do not go along";
    let what = "`memory: true` cannot be held";
    Err(Problem::cannot(StatusCode::NOT_IMPLEMENTED, "memory", what, why, "leave it out, or pause the sandbox"))
}

pub(super) async fn take(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["name", "memory"])?;
    without_memory(&asked)?;
    let info = desk.own(&key, &id).await?;
    let name = read::text(&asked, "name")?.filter(|name| !name.is_empty()).map(str::to_owned);
    let made = desk.take_snapshot(&key, &info, name).await?;
    let told = json!({ "snapshotID": made.id, "names": names(made.name.as_deref()), "fumehood": { "keeps": "files" } });
    Ok(json_response(StatusCode::CREATED, &told))
}

fn names(name: Option<&str>) -> Vec<&str> {
    name.into_iter().collect()
}

pub(super) async fn fork(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["timeout", "count", "memory"])?;
    without_memory(&asked)?;
    let count = forks_wanted(&asked)?;
    let life = read::number(&asked, "timeout")?.unwrap_or(LIFE).saturating_mul(1000);
    if life > MAX_LIFE_MS {
        return Err(Problem::invalid("timeout", &format!("`timeout` is longer than {} s", MAX_LIFE_MS / 1000)));
    }
    let info = desk.own(&key, &id).await?;
    let made = desk.fork(&key, &info, count, Some(life)).await?;
    let told = made.into_iter().map(|one| match one {
        Ok(info) => json!({ "sandbox": objects::sandbox(&desk, &info) }),
        Err(problems) => {
            let problem = Problem::all(problems);
            json!({ "error": { "code": problem.status.as_u16(), "message": problem.line() } })
        }
    });
    Ok(json_response(StatusCode::CREATED, &told.collect()))
}

pub(super) async fn list(State(desk): State<Arc<Desk>>, Extension(key): Extension<Key>, uri: Uri) -> Answer {
    let query = Query::of(&uri);
    query.known(&["sandboxID", "name", "limit", "nextToken"])?;
    let number = |name: &str, default: usize| match query.get(name) {
        None | Some("") => Ok(default),
        Some(text) => text.parse::<usize>().map_err(|_odd| Problem::invalid(name, &format!("`{name}` is no number"))),
    };
    let (first, limit) = (number("nextToken", 0)?, number("limit", PAGE)?);
    if !(1..=PAGE).contains(&limit) {
        return Err(Problem::invalid("limit", &format!("`limit` is no number from 1 to {PAGE}")));
    }
    let run = match query.get("sandboxID") {
        None => None,
        Some(id) => Some(desk.own_or_ended(&key, id).await.map_or_else(|_gone| String::new(), |info| info.run)),
    };
    let mut found = desk.snapshots(&key).await?;
    found.reverse();
    found.retain(|one| run.as_ref().is_none_or(|run| one.about.run == *run));
    found.retain(|one| query.get("name").is_none_or(|name| one.about.name.as_deref() == Some(name)));
    let page = found.iter().skip(first).take(limit);
    let told = page.map(|one| json!({ "snapshotID": one.about.id, "names": names(one.about.name.as_deref()) }));
    let mut response = json_response(StatusCode::OK, &told.collect());
    let next = first.saturating_add(limit);
    if next < found.len() {
        response.headers_mut().insert("x-next-token", HeaderValue::from(next));
    }
    Ok(response)
}

/// A snapshot goes as a template does; templates themselves are the server's.
pub(super) async fn remove(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    if id == "tags" || id.contains('/') || desk.templates.names().contains(&id) {
        return Err(super::held_by_nobody(uri).await);
    }
    desk.remove_snapshot(&key, &id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
