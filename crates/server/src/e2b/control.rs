//! What is asked of one sandbox.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{Response, StatusCode, Uri};
use live::words::{Info, State as Doing};
use serde_json::{Map, Value as Json, json};
use url::form_urlencoded;

use super::{network, objects};
use crate::answer::{Problem, empty, json_response};
use crate::desk::{Desk, MAX_LIFE_MS, Part};
use crate::keys::Key;
use crate::request::body;
use crate::{clock, json as read};

/// Seconds of life that a connection gives when it says nothing.
const LIFE: u64 = 300;

type Answer = Result<Response<Body>, Problem>;

pub(super) async fn detail(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    let info = desk.own(&key, &id).await?;
    Ok(json_response(StatusCode::OK, &objects::detail(&desk, &info)))
}

pub(super) async fn kill(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    desk.own(&key, &id).await?;
    desk.kill(&id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Seconds of life of a body, as milliseconds.
fn life(asked: &Map<String, Json>, field: &str) -> Result<Option<u64>, Problem> {
    let Some(seconds) = read::number(asked, field)? else { return Ok(None) };
    let ms = seconds.saturating_mul(1000);
    if ms > MAX_LIFE_MS {
        return Err(Problem::invalid(field, &format!("`{field}` is longer than {} s", MAX_LIFE_MS.div_euclid(1000))));
    }
    Ok(Some(ms))
}

/// Memory that is given up at a pause, and a start anew at the end of it: neither is what a freezer does.
fn keeps_memory(asked: &Map<String, Json>) -> Result<(), Problem> {
    if read::flag(asked, "memory")? == Some(false) {
        let why = "a pause here freezes the processes; they keep their memory";
        let what = "`memory: false` cannot be held";
        return Err(Problem::cannot(StatusCode::BAD_REQUEST, "memory", what, why, "leave it out"));
    }
    Ok(())
}

pub(super) async fn connect(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    let life = life(&asked, "timeout")?.unwrap_or(LIFE.saturating_mul(1000));
    let info = desk.own(&key, &id).await?;
    let (info, status) = match info.state {
        Doing::Paused => {
            keeps_memory(&asked)?;
            (desk.resume(&info, Some(life)).await?, StatusCode::CREATED)
        }
        Doing::Running => (desk.set_end(&info, life, true).await?, StatusCode::OK),
        Doing::Ended => return Err(Problem::no_such(&id)),
    };
    Ok(json_response(status, &objects::sandbox(&desk, &info)))
}

pub(super) async fn resume(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    keeps_memory(&asked)?;
    let life = life(&asked, "timeout")?.unwrap_or(LIFE.saturating_mul(1000));
    let info = desk.own(&key, &id).await?;
    if info.state != Doing::Paused {
        return Err(already(&id, "running"));
    }
    let info = desk.resume(&info, Some(life)).await?;
    Ok(json_response(StatusCode::CREATED, &objects::sandbox(&desk, &info)))
}

fn already(id: &str, state: &str) -> Problem {
    let what = format!("sandbox {id} is {state} already");
    Problem::new(StatusCode::CONFLICT, "serve/state", what, "there is nothing to do", "go on")
}

pub(super) async fn pause(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    keeps_memory(&asked)?;
    let info = desk.own(&key, &id).await?;
    if info.state == Doing::Paused {
        return Err(already(&id, "paused"));
    }
    desk.pause(&id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn timeout(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    let life = life(&asked, "timeout")?.ok_or_else(|| Problem::invalid("timeout", "`timeout` is missing"))?;
    let info = desk.own(&key, &id).await?;
    move_end(&desk, &info, life).await
}

/// Moves the end; 0 is at once, whatever the sandbox does at its end.
async fn move_end(desk: &Desk, info: &Info, life: u64) -> Answer {
    if life == 0 && !crate::labels::pauses_at_end(info) {
        desk.kill(&info.id).await?;
    } else {
        desk.set_end(info, life, false).await?;
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn refresh(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    let life = life(&asked, "duration")?.unwrap_or(15_000);
    let info = desk.own(&key, &id).await?;
    desk.set_end(&info, life, true).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Rules that take the place of all others. A sandbox that was made without any has no broker: it reaches nothing, and nothing is
/// all that it can be asked to reach.
pub(super) async fn network(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> Answer {
    let asked = read::object(&body(request).await?)?;
    let outside = network::of_change(&asked)?;
    let info = desk.own(&key, &id).await?;
    match desk.set_rules(&key, &info, (outside.layers(), Part::Hosts)).await {
        Ok(_) => Ok(empty(StatusCode::NO_CONTENT)),
        Err(problems) => match Problem::all(problems) {
            problem if problem.status == StatusCode::NOT_IMPLEMENTED && outside.is_closed() => {
                Ok(empty(StatusCode::NO_CONTENT))
            }
            problem if problem.status == StatusCode::NOT_IMPLEMENTED => {
                let instead = "create the sandbox with `network.allowOut` and `denyOut`; its hosts can be others later";
                let what = "`allowOut` cannot be held";
                Err(Problem::cannot(StatusCode::BAD_REQUEST, "allowOut", what, &problem.what, instead))
            }
            problem => Err(problem),
        },
    }
}

pub(super) async fn metrics(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> Answer {
    let info = desk.own(&key, &id).await?;
    let info = asked_now(&desk, info).await;
    Ok(json_response(StatusCode::OK, &json!([objects::metric(&info, clock::now_ms())])))
}

pub(super) async fn all_metrics(State(desk): State<Arc<Desk>>, Extension(key): Extension<Key>, uri: Uri) -> Answer {
    let query = uri.query().unwrap_or_default();
    let named: Vec<String> = form_urlencoded::parse(query.as_bytes())
        .filter(|(name, _)| name == "sandbox_ids")
        .flat_map(|(_, value)| value.split(',').map(str::to_owned).collect::<Vec<_>>())
        .take(100)
        .collect();
    let mut found = Map::new();
    for info in desk.list(&key, false).await? {
        if named.contains(&info.id) {
            let info = asked_now(&desk, info).await;
            found.insert(info.id.clone(), objects::metric(&info, clock::now_ms()));
        }
    }
    Ok(json_response(StatusCode::OK, &json!({ "sandboxes": found })))
}

/// What the supervisor says now; what was written down last where it does not answer.
async fn asked_now(desk: &Desk, info: Info) -> Info {
    let asked = crate::backend::call::<Info>(&*desk.sandboxes, &info.id, &live::words::Ask::Info {}).await;
    asked.unwrap_or(info)
}

/// What happened to a sandbox as a whole; the output of its programs is not kept here.
pub(super) async fn logs(
    State(desk): State<Arc<Desk>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> Answer {
    let info = desk.own_or_ended(&key, &id).await?;
    let mut told = vec![(info.created_ms, "info", format!("created, tier {}, policy {}", info.tier, info.policy))];
    if let Some(ended) = info.ended_ms {
        told.push((ended, "info", info.message.unwrap_or_else(|| "ended".to_owned())));
    }
    let entries: Vec<Json> = told
        .iter()
        .map(|(ms, level, message)| json!({ "timestamp": clock::rfc3339(*ms), "level": level, "message": message, "fields": {} }))
        .collect();
    if uri.path().starts_with("/v2/") {
        return Ok(json_response(StatusCode::OK, &json!({ "logs": entries })));
    }
    let lines: Vec<Json> =
        told.iter().map(|(ms, _, message)| json!({ "timestamp": clock::rfc3339(*ms), "line": message })).collect();
    Ok(json_response(StatusCode::OK, &json!({ "logs": lines, "logEntries": entries })))
}

pub(super) async fn alias(State(desk): State<Arc<Desk>>, Path(name): Path<String>) -> Answer {
    let known = desk.templates.names().contains(&name);
    if known {
        return Ok(json_response(StatusCode::OK, &json!({ "templateID": name, "public": true })));
    }
    let what = format!("there is no template {}", policy::diagnostic::quote(&name));
    Err(Problem::new(StatusCode::NOT_FOUND, "serve/no-such-template", what, "none has this name", "GET /templates"))
}

pub(super) async fn templates(State(desk): State<Arc<Desk>>) -> Answer {
    let names = desk.templates.names();
    let all: Vec<Json> = names
        .iter()
        .map(|name| {
            json!({
                "templateID": name, "buildID": name, "public": true, "names": [name], "aliases": [name], "cpuCount": 1,
                "memoryMB": 1024, "diskSizeMB": 1024, "envdVersion": objects::ENVD, "buildStatus": "ready", "buildCount": 1,
                "spawnCount": 0, "createdAt": clock::rfc3339(0), "updatedAt": clock::rfc3339(0),
            })
        })
        .collect();
    Ok(json_response(StatusCode::OK, &Json::Array(all)))
}
