//! What is asked of one sandbox.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, Path, Request, State};
use axum::http::{Response, StatusCode, Uri};
use live::words::{Info, State as Doing};
use serde_json::{Map, Value as Json, json};

use super::{headers, network, objects};
use crate::answer::{Problem, empty, json_response};
use crate::app::{AppState, MAX_LIFE_MS, Part};
use crate::keys::Key;
use crate::request::{Query, body};
use crate::{clock, json as read, labels, measured};

/// Seconds of life that a connection gives when it says nothing.
const LIFE: u64 = 300;
/// Most sandboxes that are measured for one request.
const MAX_MEASURED: usize = 100;

type HttpResult = Result<Response<Body>, Problem>;

pub(super) async fn detail(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> HttpResult {
    let info = app.own(&key, &id).await?;
    // A supervisor that does not answer leaves them unknown.
    let rules = app.present(&info).await.ok();
    let shown = objects::detail(&app, &info, rules.as_ref()).ok_or_else(|| Problem::no_such(&id))?;
    Ok(json_response(StatusCode::OK, &shown))
}

pub(super) async fn kill(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
) -> HttpResult {
    app.own(&key, &id).await?;
    app.kill(&id).await?;
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
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["timeout", "memory"])?;
    let life = life(&asked, "timeout")?.unwrap_or(LIFE.saturating_mul(1000));
    let info = app.own(&key, &id).await?;
    let (info, status) = match info.state {
        Doing::Paused => {
            keeps_memory(&asked)?;
            (app.resume(&info, Some(life)).await?, StatusCode::CREATED)
        }
        Doing::Running => (app.set_end(&info, life, true).await?, StatusCode::OK),
        Doing::Ended => return Err(Problem::no_such(&id)),
    };
    Ok(json_response(status, &objects::sandbox(&app, &info)))
}

pub(super) async fn resume(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["timeout", "memory", "autoPause"])?;
    keeps_memory(&asked)?;
    let life = life(&asked, "timeout")?.unwrap_or(LIFE.saturating_mul(1000));
    let info = app.own(&key, &id).await?;
    if read::flag(&asked, "autoPause")?.is_some_and(|pauses| pauses != labels::pauses_at_end(&info)) {
        let what = "`autoPause` differs from what this sandbox was created with";
        let why = "what becomes of a sandbox at its end is said when it is created";
        let instead = "leave it out, or create the sandbox so";
        return Err(Problem::cannot(StatusCode::BAD_REQUEST, "autoPause", what, why, instead));
    }
    if info.state != Doing::Paused {
        return Err(already(&id, "running"));
    }
    let info = app.resume(&info, Some(life)).await?;
    Ok(json_response(StatusCode::CREATED, &objects::sandbox(&app, &info)))
}

fn already(id: &str, state: &str) -> Problem {
    let what = format!("sandbox {id} is {state} already");
    Problem::new(StatusCode::CONFLICT, "serve/state", what, "there is nothing to do", "go on")
}

pub(super) async fn pause(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["memory"])?;
    keeps_memory(&asked)?;
    let info = app.own(&key, &id).await?;
    if info.state == Doing::Paused {
        return Err(already(&id, "paused"));
    }
    app.pause_and_keep(&id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn timeout(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["timeout"])?;
    let life = life(&asked, "timeout")?.ok_or_else(|| Problem::invalid("timeout", "`timeout` is missing"))?;
    let info = app.own(&key, &id).await?;
    move_end(&app, &info, life).await
}

/// Moves the end; 0 is at once, whatever the sandbox does at its end.
async fn move_end(app: &AppState, info: &Info, life: u64) -> HttpResult {
    if life == 0 && !labels::pauses_at_end(info) {
        app.kill(&info.id).await?;
    } else {
        app.set_end(info, life, false).await?;
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn refresh(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::acted_on(&asked, &["duration"])?;
    let life = life(&asked, "duration")?.unwrap_or(15_000);
    let info = app.own(&key, &id).await?;
    app.set_end(&info, life, true).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Rules that take the place of all others. A sandbox that was made without any has no broker: it reaches nothing, and nothing is
/// all that it can be asked to reach.
pub(super) async fn network(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    let outside = network::of_change(&asked)?;
    let info = app.own(&key, &id).await?;
    if !outside.is_closed() && headers::mark(&outside.headers, &app.tokens).as_ref() != info.labels.get(labels::HEADERS)
    {
        let why = "the headers of its requests are those that it was created with: its broker was proven with their values, and takes \
                   no others while it runs";
        let instead = "send the same `rules` again, or create another sandbox";
        return Err(Problem::cannot(StatusCode::BAD_REQUEST, "rules", "`rules` cannot be held", why, instead));
    }
    // Of these the hosts alone count: the secrets stay as they are.
    match app.set_rules(&key, &info, (outside.layers(&BTreeSet::new()), Part::Hosts)).await {
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

/// The measurements that there are: one, of now. `start` and `end` choose among them.
pub(super) async fn metrics(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(id): Path<String>,
    uri: Uri,
) -> HttpResult {
    let query = Query::of(&uri);
    query.known(&["start", "end"])?;
    let (start, end) = (query.whole("start")?, query.whole("end")?);
    let info = app.own(&key, &id).await?;
    let info = asked_now(&app, info).await;
    let now = clock::now_ms();
    let at = u64::try_from(now.div_euclid(1000)).unwrap_or(0);
    let is_within = start.is_none_or(|start| start <= at) && end.is_none_or(|end| at <= end);
    let measured = measured::metric(&info, now).filter(|_| is_within);
    Ok(json_response(StatusCode::OK, &measured.into_iter().collect()))
}

pub(super) async fn all_metrics(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    uri: Uri,
) -> HttpResult {
    let query = Query::of(&uri);
    query.known(&["sandbox_ids"])?;
    let named: BTreeSet<&str> = query.all("sandbox_ids").flat_map(|value| value.split(',')).collect();
    if named.len() > MAX_MEASURED {
        return Err(Problem::invalid("sandbox_ids", &format!("more than {MAX_MEASURED} sandboxes")));
    }
    let mut found = Map::new();
    for info in app.list(&key, false).await? {
        if named.contains(info.id.as_str()) {
            let info = asked_now(&app, info).await;
            if let Some(metric) = measured::metric(&info, clock::now_ms()) {
                found.insert(info.id, metric);
            }
        }
    }
    Ok(json_response(StatusCode::OK, &json!({ "sandboxes": found })))
}

/// What the supervisor says now; what was written down last where it does not answer.
async fn asked_now(app: &AppState, info: Info) -> Info {
    let asked = crate::backend::call::<Info>(&*app.sandboxes, &info.id, &live::words::Ask::Info {}).await;
    asked.unwrap_or(info)
}
