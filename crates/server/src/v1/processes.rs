//! `/v1/sandboxes/ID/processes`: what runs inside, what it printed, signals and input.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::words::{Ask, Programs, Running, Which};
use serde_json::{Value as Json, json};

use super::events;
use super::exec::{carry, printed, size};
use super::sandbox::Living;
use super::{HttpResult, body, yes};
use crate::answer::{Problem, json_response};
use crate::app::AppState;
use crate::request::Query;
use crate::{backend, json as read};

/// Bytes of input that go in one request to the supervisor: base64 of them fits a frame.
const PIECE: usize = 128 << 10;
/// Signals by their names.
const SIGNALS: &[(&str, u8)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
];

/// `p1`, a pid inside, or `tag:NAME`.
fn which(word: &str) -> Result<Which, Problem> {
    if let Some(tag) = word.strip_prefix("tag:") {
        return Ok(Which::Tag(tag.to_owned()));
    }
    if let Ok(pid) = word.parse() {
        return Ok(Which::Pid(pid));
    }
    let number = word.strip_prefix('p').is_some_and(|number| number.parse::<u64>().is_ok());
    let what = "a program is named by its word (`p1`), its pid inside, or `tag:NAME`";
    if number { Ok(Which::Id(word.to_owned())) } else { Err(Problem::invalid("process", what)) }
}

pub(super) async fn list(State(app): State<Arc<AppState>>, Living(info): Living) -> HttpResult {
    let programs = backend::call::<Programs>(&*app.sandboxes, &info.id, &Ask::Programs {}).await?;
    let inside = agent::words::Request::Processes {};
    let inside = backend::call::<Json>(&*app.sandboxes, &info.id, &inside).await?;
    let inside = inside.get("processes").cloned().unwrap_or(Json::Null);
    let mut answer = json!({ "programs": programs.programs, "processes": inside });
    if programs.left_out > 0
        && let Some(answer) = answer.as_object_mut()
    {
        answer.insert("left_out".to_owned(), programs.left_out.into());
    }
    Ok(json_response(StatusCode::OK, &answer))
}

pub(super) async fn logs(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, word)): Path<(String, String)>,
    headers: HeaderMap,
    uri: Uri,
) -> HttpResult {
    let follow = yes(&Query::of(&uri), "follow")?;
    let ask = Ask::Logs { which: which(&word)?, follow };
    let stream = backend::open(&*app.sandboxes, &info.id, &ask).await?;
    if events::wanted(&headers) {
        let (to, response) = events::answer(&app, &info.id);
        tokio::spawn(async move { carry(stream, &to, "ended").await });
        return Ok(response);
    }
    let mut answer = printed(stream).await?;
    if let Some(answer) = answer.as_object_mut() {
        answer.remove("report");
    }
    Ok(json_response(StatusCode::OK, &answer))
}

/// What a program prints from now on, and how it ends, as the events of its `exec`: `started`, with what is known of it, first.
/// Who hangs up leaves it alone.
pub(super) async fn attach(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, word)): Path<(String, String)>,
) -> HttpResult {
    let mut stream = backend::open(&*app.sandboxes, &info.id, &Ask::Attach { which: which(&word)? }).await?;
    let running = backend::reply::<Running>(&mut stream).await?;
    let (to, response) = events::answer(&app, &info.id);
    tokio::spawn(async move {
        if events::put(&to, "started", &json!(running)).await {
            carry(stream, &to, "ended").await;
        }
    });
    Ok(response)
}

pub(super) async fn signal(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, word)): Path<(String, String)>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    read::known(&asked, &["signal", "tree"])?;
    let ask = Ask::Signal {
        which: which(&word)?,
        number: number_of(asked.get("signal"))?,
        tree: read::flag(&asked, "tree")?.unwrap_or(false),
    };
    backend::call::<Json>(&*app.sandboxes, &info.id, &ask).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

/// `"TERM"`, `"SIGTERM"` or 15; TERM without.
fn number_of(signal: Option<&Json>) -> Result<u8, Problem> {
    let number = match signal {
        None | Some(Json::Null) => Some(15),
        Some(Json::String(name)) => {
            let name = name.strip_prefix("SIG").unwrap_or(name);
            SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number)
        }
        Some(Json::Number(number)) => {
            number.as_u64().and_then(|number| u8::try_from(number).ok()).filter(|number| (1..=64).contains(number))
        }
        Some(Json::Bool(_) | Json::Array(_) | Json::Object(_)) => None,
    };
    let what =
        "`signal` is a number from 1 to 64, or a name: HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP, WINCH";
    number.ok_or_else(|| Problem::invalid("signal", what))
}

/// The body goes to the program as it is; with `close=true` its input ends there.
pub(super) async fn stdin(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, word)): Path<(String, String)>,
    request: Request,
) -> HttpResult {
    let close = yes(&Query::of(request.uri()), "close")?;
    let which = which(&word)?;
    let bytes = body(request).await?;
    for piece in bytes.chunks(PIECE) {
        let ask = Ask::Input { which: which.clone(), bytes: STANDARD.encode(piece), tty: false };
        backend::call::<Json>(&*app.sandboxes, &info.id, &ask).await?;
    }
    if close {
        backend::call::<Json>(&*app.sandboxes, &info.id, &Ask::CloseInput { which }).await?;
    }
    Ok(json_response(StatusCode::OK, &json!({ "written": bytes.len() })))
}

pub(super) async fn resize(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    Path((_, word)): Path<(String, String)>,
    request: Request,
) -> HttpResult {
    let asked = read::object(&body(request).await?)?;
    let ask = Ask::Resize { which: which(&word)?, size: size(&asked)? };
    backend::call::<Json>(&*app.sandboxes, &info.id, &ask).await?;
    Ok(json_response(StatusCode::OK, &json!({})))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_by_word_pid_or_tag() {
        assert_eq!(which("p12"), Ok(Which::Id("p12".to_owned())));
        assert_eq!(which("12"), Ok(Which::Pid(12)));
        assert_eq!(which("tag:web"), Ok(Which::Tag("web".to_owned())));
        for bad in ["", "p", "-1", "web", "p1x"] {
            assert!(which(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_signal_is_a_known_name_or_a_number() {
        for (given, number) in [(json!("TERM"), 15), (json!("SIGKILL"), 9), (json!(64), 64), (Json::Null, 15)] {
            assert_eq!(number_of(Some(&given)), Ok(number));
        }
        for bad in [json!("term"), json!(0), json!(65), json!(-1), json!(true), json!("RTMIN")] {
            assert!(number_of(Some(&bad)).is_err(), "{bad}");
        }
    }
}
