//! `POST /v1/runs`: one program in a sandbox of its own, which ends with it.

use std::sync::Arc;

use axum::extract::{Extension, Request, State};
use axum::http::StatusCode;
use live::words::Info;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;

use super::events::{self, Events};
use super::exec::{self, carry, printed, wanted};
use super::sandboxes::{order, shown};
use super::{HttpResult, Refused, body, is_not_repeated};
use crate::answer::json_response;
use crate::app::{AppState, LIFE_MS, Order};
use crate::json as read;
use crate::keys::Key;
use crate::labels;

/// Fields of a request: of the sandbox, and of the program.
const SANDBOX: &[&str] = &["policy", "template", "from", "labels"];
const PROGRAM: &[&str] = &["cmd", "env", "cwd", "timeout", "stdin"];
/// How much longer the sandbox may live than its program.
const AFTER_MS: u64 = 30_000;

/// A sandbox that ends when this does, also where the caller hangs up.
struct Once {
    app: Arc<AppState>,
    key: Key,
    info: Info,
    ended: bool,
}

impl Once {
    /// Ends it, and says what there is to say of it.
    async fn end(mut self) -> Json {
        self.ended = self.app.kill(&self.info.id).await.is_ok();
        let ended = self.app.own_or_ended(&self.key, &self.info.id).await;
        shown(&ended.unwrap_or_else(|_gone| self.info.clone()))
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        if !self.ended {
            let (app, id) = (Arc::clone(&self.app), self.info.id.clone());
            // Should this fail as well, its own time ends it.
            tokio::spawn(async move { drop(app.kill(&id).await) });
        }
    }
}

pub(super) async fn run(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    request: Request,
) -> HttpResult {
    is_not_repeated(&request)?;
    let as_events = events::wanted(request.headers());
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &[SANDBOX, PROGRAM].concat())?;
    let part = |fields: &[&str]| -> Map<String, Json> {
        asked.iter().filter(|(name, _)| fields.contains(&name.as_str())).map(|(k, v)| (k.clone(), v.clone())).collect()
    };
    let mut program = wanted(&part(PROGRAM))?;
    let order = order(&app, &key, &part(SANDBOX)).await?;
    // What the key may ask for is the program's time. What the sandbox lives beyond it is ours, to tell how the program ended.
    let life_ms = program.exec.timeout_ms.or(order.life_ms);
    let order = Order { life_ms, beyond_ms: AFTER_MS, ..order };
    let info = app.create(&key, order, None).await.map_err(Refused)?;
    let once = Once { app: Arc::clone(&app), key, info, ended: false };
    let wall = life_ms.unwrap_or_else(|| labels::within(&once.info, LIFE_MS));
    program.exec.timeout_ms = Some(wall);
    let until = wall.saturating_add(AFTER_MS);
    if labels::within(&once.info, until) < until {
        app.outlast(&once.info, until).await;
    }
    let (running, stream) = exec::begin(&app, &once.info.id, program).await?;
    if !as_events {
        let mut answer = printed(stream).await?;
        let sandbox = once.end().await;
        if let Some(answer) = answer.as_object_mut() {
            answer.insert("sandbox".to_owned(), sandbox);
        }
        return Ok(json_response(StatusCode::OK, &answer));
    }
    // Not broken off with the sandbox's other streams: its end is part of the answer.
    let (to, response) = events::answer_until(CancellationToken::new());
    let started = json!({ "id": running.id, "pid": running.pid, "sandbox": once.info.id });
    tokio::spawn(async move { tell(once, stream, &to, &started).await });
    Ok(response)
}

async fn tell(once: Once, stream: live::client::Stream, to: &Events, started: &Json) {
    if events::put(to, "started", started).await && carry(stream, to, "exited").await {
        let sandbox = once.end().await;
        events::put(to, "ended", &sandbox).await;
    }
}
