//! `/v1/sandboxes/ID/code` and its contexts: code in kernels that keep their state.

use std::sync::Arc;

use agent::frame::MAX_WORDS;
use agent::words::Code as Failed;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use live::client::{Incoming, Stream};
use live::kernel::words::{Context, Contexts, Execute, KernelAsk, ListContexts, NewContext};
use serde_json::{Value as Json, json};

use super::events::{self, Events};
use super::sandbox::Living;
use super::sandboxes::duration;
use super::{HttpResult, body, is_not_repeated};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::{backend, json as read};

/// Most bytes of lines in one answer; events have no such bound.
const MAX_KEPT: usize = 16 << 20;
/// Most bytes of one line.
const MAX_LINE: usize = 32 << 20;

pub(super) async fn execute(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    is_not_repeated(&request)?;
    let as_events = events::wanted(request.headers());
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["code", "language", "context", "env", "timeout"])?;
    let text = |field: &str| read::text(&asked, field).map(|text| text.map(str::to_owned));
    let wanted = KernelAsk::Execute(Execute {
        code: text("code")?.ok_or_else(|| Problem::invalid("code", "`code` is missing"))?,
        context: text("context")?,
        language: text("language")?,
        cwd: None,
        env: read::variables(&asked, "env")?,
        timeout_ms: duration(&asked, "timeout")?,
    });
    if serde_json::to_vec(&wanted).map_or(0, |words| words.len()) > MAX_WORDS {
        let why = "one request to the kernels takes no more";
        let (what, instead) = ("the code is longer than 256 KiB", "write it to a file, and execute that");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "serve/body", what, why, instead).into());
    }
    let stream = backend::open(&*app.sandboxes, &info.id, &wanted).await?;
    if !as_events {
        return whole(stream).await;
    }
    let (to, response) = events::answer(&app, &info.id);
    tokio::spawn(tell(stream, to));
    Ok(response)
}

/// Lines of pieces: a line may come in several.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// The lines that are whole now.
    ///
    /// # Errors
    /// One is too long.
    fn take(&mut self, bytes: &[u8]) -> Result<Vec<Json>, Problem> {
        self.0.extend(bytes);
        let Some(end) = self.0.iter().rposition(|byte| *byte == b'\n') else {
            let long = self.0.len() > MAX_LINE;
            return if long { Err(backend::failed("a line of the kernel is too long").into()) } else { Ok(Vec::new()) };
        };
        let rest = self.0.split_off(end.saturating_add(1));
        let whole = std::mem::replace(&mut self.0, rest);
        Ok(whole.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

async fn whole(mut stream: Stream) -> HttpResult {
    let (mut lines, mut told, mut size, mut cut) = (Lines::default(), Vec::new(), 0_usize, 0_u64);
    while let Some(incoming) = stream.next().await {
        match incoming {
            Incoming::Out(bytes) => {
                size = size.saturating_add(bytes.len());
                let more = lines.take(&bytes)?;
                if size <= MAX_KEPT {
                    told.extend(more);
                } else {
                    cut = cut.saturating_add(u64::try_from(more.len()).unwrap_or(u64::MAX));
                }
            }
            Incoming::End(end) => {
                let answer = json!({ "lines": told, "execution": end?, "cut": cut });
                return Ok(json_response(StatusCode::OK, &answer));
            }
            Incoming::Event(_) | Incoming::Err(_) => {}
        }
    }
    Err(backend::gone().into())
}

/// `line` for each; then `ended` or `failed`. Who hears nothing any more interrupts the code.
async fn tell(mut stream: Stream, to: Events) {
    let mut lines = Lines::default();
    loop {
        let incoming = tokio::select! {
            () = to.closed() => return,
            incoming = stream.next() => incoming,
        };
        let told = match incoming {
            Some(Incoming::Out(bytes)) => lines.take(&bytes),
            Some(Incoming::Event(_) | Incoming::Err(_)) => continue,
            Some(Incoming::End(Ok(end))) => {
                events::put(&to, "ended", &end).await;
                return;
            }
            Some(Incoming::End(Err(failure))) if failure.code != Failed::Ended => Err(failure.into()),
            Some(Incoming::End(Err(_))) | None => return events::reset(&to).await,
        };
        match told {
            Ok(told) => {
                for line in told {
                    if !events::put(&to, "line", &line).await {
                        return;
                    }
                }
            }
            Err(problem) => {
                events::put(&to, "failed", &problem.record()).await;
                return;
            }
        }
    }
}

pub(super) async fn contexts(State(app): State<Arc<AppState>>, Living(info): Living) -> HttpResult {
    let found: Contexts =
        backend::call(&*app.sandboxes, &info.id, &KernelAsk::Contexts(ListContexts::default())).await?;
    Ok(json_response(StatusCode::OK, &json!(found)))
}

pub(super) async fn create(State(app): State<Arc<AppState>>, Living(info): Living, request: Request) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["language", "cwd", "env"])?;
    let new = NewContext {
        language: read::text(&asked, "language")?.map(str::to_owned),
        cwd: read::text(&asked, "cwd")?.map(str::to_owned),
        env: read::variables(&asked, "env")?,
    };
    let made: Context = backend::call(&*app.sandboxes, &info.id, &KernelAsk::ContextCreate(new)).await?;
    Ok(json_response(StatusCode::CREATED, &json!(made)))
}

async fn ask(app: &AppState, id: &str, ask: &KernelAsk) -> HttpResult {
    let done: Json = backend::call(&*app.sandboxes, id, ask).await?;
    let done = if done.is_null() { json!({}) } else { done };
    Ok(json_response(StatusCode::OK, &done))
}

type ContextPath = Path<(String, String)>;

pub(super) async fn remove(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, id)): ContextPath,
) -> HttpResult {
    ask(&app, &info.id, &KernelAsk::ContextRemove { id }).await
}

pub(super) async fn restart(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, id)): ContextPath,
) -> HttpResult {
    ask(&app, &info.id, &KernelAsk::ContextRestart { id }).await
}

pub(super) async fn interrupt(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, id)): ContextPath,
) -> HttpResult {
    ask(&app, &info.id, &KernelAsk::ContextInterrupt { id }).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_whole_however_they_are_cut() {
        let mut lines = Lines::default();
        assert_eq!(lines.take(b"{\"a\":1}\n{\"b\"").unwrap(), [json!({ "a": 1 })]);
        assert_eq!(lines.take(b":2").unwrap(), Vec::<Json>::new());
        assert_eq!(lines.take(b"}\n\n3\n").unwrap(), [json!({ "b": 2 }), json!(3)]);
    }
}
