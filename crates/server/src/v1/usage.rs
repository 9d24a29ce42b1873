//! `/v1/sandboxes/ID/usage`: what a sandbox uses, once or as it goes on.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use live::words::{Ask, Info, State as Doing};
use serde_json::{Value as Json, json};

use super::HttpResult;
use super::events::{self, Events};
use super::sandbox::Known;
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::request::Query;
use crate::{backend, clock};

/// Seconds between two events: as asked, within these; without a word one.
const EVERY: (f64, f64) = (0.2, 60.0);

pub(super) async fn usage(
    State(app): State<Arc<AppState>>,
    Known(info): Known,
    headers: HeaderMap,
    uri: Uri,
) -> HttpResult {
    if !events::wanted(&headers) {
        return Ok(json_response(StatusCode::OK, &shown(&now(&app, &info.id).await.unwrap_or(info))));
    }
    let every = every(&Query::of(&uri))?;
    let (to, response) = events::answer(&app, &info.id);
    tokio::spawn(tell(app, info, every, to));
    Ok(response)
}

fn every(query: &Query) -> Result<Duration, Problem> {
    let seconds = query.get("every").map_or(Some(1.0), |text| text.parse::<f64>().ok());
    let seconds = seconds.filter(|seconds| (EVERY.0..=EVERY.1).contains(seconds));
    let what = "`every` is no number of seconds from 0.2 to 60";
    seconds.map(Duration::from_secs_f64).ok_or_else(|| Problem::invalid("every", what))
}

/// What its supervisor says; none where it does not answer.
async fn now(app: &AppState, id: &str) -> Option<Info> {
    backend::call::<Info>(&*app.sandboxes, id, &Ask::Info {}).await.ok()
}

fn shown(info: &Info) -> Json {
    json!({
        "at_ms": clock::now_ms(), "state": info.state, "usage": info.usage,
        "limits": { "memory": info.memory_limit, "cpus": info.cpus, "disk": info.disk_limit },
    })
}

/// `usage` again and again, and `ended` at its end. A pause breaks it off, as it does all streams of a sandbox.
async fn tell(app: Arc<AppState>, last: Info, every: Duration, to: Events) {
    let mut last = last;
    loop {
        if let Some(info) = now(&app, &last.id).await {
            last = info;
        } else if let Ok(Some(info)) = app.sandboxes.find(&last.id).await {
            last = info;
        }
        let name = if last.state == Doing::Ended { "ended" } else { "usage" };
        if !events::put(&to, name, &shown(&last)).await || last.state == Doing::Ended {
            return;
        }
        tokio::select! {
            () = to.closed() => return,
            () = tokio::time::sleep(every) => {}
        }
    }
}
