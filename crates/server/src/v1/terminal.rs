//! `/v1/sandboxes/ID/terminal`: a program with a terminal, over a WebSocket.
//!
//! Binary messages are what is typed and what is shown. Texts are JSON: in, what [`ProgramControl`] says (`resize`, `signal`);
//! out, `started`, `ended` and `failed`. When the connection ends, so does the program.

use std::sync::Arc;
use std::time::Duration;

use agent::words::{Program, ProgramControl, Size};
use axum::body::Bytes;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Request, State};
use axum::http::{Uri, header};
use live::client::{Incoming, Stream};
use live::words::{Ask, Exec, Running};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::{Sender, channel};
use tokio_util::sync::CancellationToken;
use url::form_urlencoded;

use super::HttpResult;
use super::sandbox::Living;
use crate::answer::{Problem, harden};
use crate::app::AppState;
use crate::backend;
use crate::sessions::{Visit, from_own_page};

/// How long a client that goes on typing is listened to when its program has ended.
const LINGER: Duration = Duration::from_secs(5);
/// The protocol that is agreed on.
const PROTOCOL: &str = "fumehood.terminal";
/// Most bytes of one message to us.
const MAX_MESSAGE: usize = 64 * 1024;
/// Messages that wait until the program reads them.
const QUEUE: usize = 16;
/// How long a client may take a message, before it is cut.
const SLOW: Duration = Duration::from_secs(30);
/// How often a silent client is asked whether it is there.
const PING: Duration = Duration::from_secs(30);
/// What is started where nothing else is asked for.
const SHELL: [&str; 3] = ["/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh"];

pub(super) async fn terminal(
    State(app): State<Arc<AppState>>,
    Living(info): Living,
    visit: Option<Extension<Visit>>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    request: Request,
) -> HttpResult {
    let uri = request.uri().clone();
    // A program sends no origin; a page always does, and another one must not even start something.
    if request.headers().contains_key(header::ORIGIN) {
        from_own_page(&request.into_parts().0)?;
    }
    let upgrade = upgrade.map_err(|why| Problem::invalid("Upgrade", &format!("a WebSocket is wanted here: {why}")))?;
    let exec = wanted(&uri)?;
    app.meters.exec();
    let mut stream = backend::open(&*app.sandboxes, &info.id, &Ask::Exec(exec)).await?;
    let running = backend::reply::<Running>(&mut stream).await?;
    let cut = app.cut_of(&info.id);
    let over = visit.map_or_else(CancellationToken::new, |Extension(visit)| visit.over().clone());
    let upgrade = upgrade.protocols([PROTOCOL]).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    let mut response = upgrade.on_upgrade(move |socket| async move {
        let mut talk = TerminalSession { socket, stream };
        tokio::select! {
            // Dropped with the stream, the program is killed.
            () = cut.cancelled() => {}
            () = over.cancelled() => {}
            () = talk.hold(&running) => {}
        }
    });
    harden(response.headers_mut());
    Ok(response)
}

/// The program that an address asks for.
fn wanted(uri: &Uri) -> Result<Exec, Problem> {
    let mut size = Size { rows: 24, cols: 80 };
    let (mut argv, mut cwd) = (Vec::new(), None);
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let side = || {
            let side = value.parse::<u16>().ok().filter(|side| (1..=1000).contains(side));
            side.ok_or_else(|| Problem::invalid(&name, &format!("`{name}` is no number from 1 to 1000")))
        };
        match &*name {
            "cmd" => argv.push(value.into_owned()),
            "cwd" => cwd = Some(value.into_owned()),
            "rows" => size.rows = side()?,
            "cols" => size.cols = side()?,
            other => {
                let what = format!("{} is not known here", policy::diagnostic::quote(other));
                return Err(Problem::invalid(other, &what));
            }
        }
    }
    if argv.is_empty() {
        argv = SHELL.map(str::to_owned).to_vec();
    }
    let env = [("TERM".to_owned(), "xterm-256color".to_owned())].into();
    let program = Program { argv, env, cwd, tty: Some(size), stdin: true };
    Ok(Exec { program, timeout_ms: None, detach: false, tag: None })
}

fn failed(problem: &Problem) -> Json {
    json!({ "failed": problem.record() })
}

/// A client and a program.
struct TerminalSession {
    socket: WebSocket,
    stream: Stream,
}

impl TerminalSession {
    /// Carries both ways until one of them ends.
    async fn hold(&mut self, running: &Running) {
        if !self.say(&json!({ "started": { "id": running.id, "pid": running.pid } })).await {
            return;
        }
        // What is typed waits here: a program that reads nothing must not keep us from showing what it prints.
        let (typed, mut waiting) = channel::<Bytes>(QUEUE);
        let sender = self.stream.sender();
        let typing = tokio::spawn(async move {
            let mut reads = true;
            while let Some(bytes) = waiting.recv().await {
                // A program that ended reads no more; what it printed is still on its way, and what is typed is taken meanwhile.
                reads = reads && sender.send(&bytes).await.is_ok();
            }
        });
        let mut ping = tokio::time::interval(PING);
        ping.tick().await;
        loop {
            let goes_on = tokio::select! {
                incoming = self.stream.next() => self.shown(incoming).await,
                message = self.socket.recv(), if typed.capacity() > 0 => self.told(message, &typed).await,
                place = typed.reserve(), if typed.capacity() == 0 => place.is_ok(),
                _ = ping.tick() => self.send(Message::Ping(Bytes::new())).await,
            };
            if !goes_on {
                break;
            }
        }
        typing.abort();
        // Who hung up hears nothing.
        let _told = self.send(Message::Close(None)).await;
        // A connection that is closed with something unread is reset, and what was shown last would be lost on its way.
        let rest = async { while let Some(Ok(_)) = self.socket.recv().await {} };
        let _over = tokio::time::timeout(LINGER, rest).await;
    }

    async fn shown(&mut self, incoming: Option<Incoming>) -> bool {
        match incoming {
            Some(Incoming::Out(bytes) | Incoming::Err(bytes)) => self.send(Message::Binary(bytes.into())).await,
            Some(Incoming::Event(_)) => true,
            Some(Incoming::End(end)) => {
                let last = match end {
                    Ok(report) => json!({ "ended": report }),
                    Err(failure) => failed(&Problem::from(failure)),
                };
                let _told = self.say(&last).await;
                false
            }
            None => false,
        }
    }

    async fn told(&mut self, message: Option<Result<Message, axum::Error>>, typed: &Sender<Bytes>) -> bool {
        match message {
            // There is room: nobody else sends.
            Some(Ok(Message::Binary(bytes))) => typed.try_send(bytes).is_ok(),
            Some(Ok(Message::Text(text))) => match serde_json::from_str::<ProgramControl>(&text) {
                Ok(control) => self.stream.control(&control).is_ok(),
                Err(error) => {
                    let what = format!("a text message is `resize` or `signal`: {error}");
                    let _told = self.say(&failed(&Problem::invalid("message", &what))).await;
                    false
                }
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => true,
            Some(Ok(Message::Close(_)) | Err(_)) | None => false,
        }
    }

    async fn say(&mut self, what: &Json) -> bool {
        self.send(Message::Text(what.to_string().into())).await
    }

    async fn send(&mut self, message: Message) -> bool {
        matches!(tokio::time::timeout(SLOW, self.socket.send(message)).await, Ok(Ok(())))
    }
}
