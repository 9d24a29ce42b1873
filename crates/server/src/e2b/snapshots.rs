//! E2B's snapshots and forks. Of a machine all is kept, its memory included; of other tiers files alone. Who asks otherwise is
//! refused.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri};
use policy::value::Tier;
use serde_json::{Map, Value as Json, json};

use super::objects;
use crate::answer::{Problem, empty, json_response};
use crate::app::{AppState, MAX_LIFE_MS};
use crate::json as read;
use crate::keys::Key;
use crate::request::{Query, body};
use crate::snapshots::forks_wanted;

/// Seconds of life of a fork when none are asked for.
const LIFE: u64 = 300;
/// Most snapshots of a page.
const PAGE: usize = 100;

type HttpResult = Result<Response<Body>, Problem>;

/// What a snapshot of a sandbox keeps, where that is what is asked for.
fn keeps(asked: &Map<String, Json>, tier: &str) -> Result<&'static str, Problem> {
    let of_machine = tier == Tier::Vm.as_str();
    let (keeps, why, instead) = if of_machine {
        ("memory", "all that a machine wrote lies in its memory", "leave it out, or copy files out")
    } else {
        let why = "a sandbox of this tier is copied by its files: its processes do not go along";
        ("files", why, "leave it out, or pause the sandbox")
    };
    match read::flag(asked, "memory")? {
        Some(memory) if memory != of_machine => {
            let what = format!("`memory: {memory}` cannot be held");
            Err(Problem::cannot(StatusCode::NOT_IMPLEMENTED, "memory", &what, why, instead))
        }
        Some(_) | None => Ok(keeps),
    }
}

pub(super) async fn take(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["name", "memory"])?;
    let info = app.own(&key, &id).await?;
    let keeps = keeps(&asked, &info.tier)?;
    let name = read::text(&asked, "name")?.filter(|name| !name.is_empty()).map(str::to_owned);
    let made = app.take_snapshot(&key, &info, name).await?;
    let told = json!({ "snapshotID": made.id, "names": names(made.name.as_deref()), "fumehood": { "keeps": keeps } });
    Ok(json_response(StatusCode::CREATED, &told))
}

fn names(name: Option<&str>) -> Vec<&str> {
    name.into_iter().collect()
}

pub(super) async fn fork(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["timeout", "count", "memory"])?;
    let count = forks_wanted(&asked)?;
    let life = read::number(&asked, "timeout")?.unwrap_or(LIFE).saturating_mul(1000);
    if life > MAX_LIFE_MS {
        return Err(Problem::invalid("timeout", &format!("`timeout` is longer than {} s", MAX_LIFE_MS / 1000)));
    }
    let info = app.own(&key, &id).await?;
    let _kept = keeps(&asked, &info.tier)?;
    let made = app.fork(&key, &info, count, Some(life)).await?;
    let told = made.into_iter().map(|one| match one {
        Ok(info) => json!({ "sandbox": objects::sandbox(&app, &info) }),
        Err(problems) => {
            let problem = Problem::all(problems);
            json!({ "error": { "code": problem.status.as_u16(), "message": problem.line() } })
        }
    });
    Ok(json_response(StatusCode::CREATED, &told.collect()))
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Extension(key): Extension<Key>, uri: Uri) -> HttpResult {
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
        Some(id) => Some(app.own_or_ended(&key, id).await.map_or_else(|_gone| String::new(), |info| info.run)),
    };
    let mut found = app.snapshots(&key).await?;
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

/// A template that the key built, or a snapshot; the others are the server's.
pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> HttpResult {
    if let Some(template) = app.built(&key, &id).await? {
        app.take_away(&template).await?;
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    if app.templates.names().contains(&id) {
        return Err(super::held_by_nobody(uri).await);
    }
    app.remove_snapshot(&key, &id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_kept_of_a_machine_alone_and_always() {
        for (tier, memory, kept) in [
            ("vm", None, Some("memory")),
            ("vm", Some(true), Some("memory")),
            ("vm", Some(false), None),
            ("container", None, Some("files")),
            ("container", Some(false), Some("files")),
            ("container", Some(true), None),
        ] {
            let asked = memory.map(|memory| ("memory".to_owned(), Json::Bool(memory))).into_iter().collect();
            assert_eq!(keeps(&asked, tier).ok(), kept, "{tier} {memory:?}");
        }
    }
}
