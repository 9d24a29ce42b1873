//! `/api/kernels/ID/channels`: a WebSocket on which a client speaks with a kernel.

use std::sync::Arc;
use std::time::Duration;

use agent::words::Code;
use axum::body::{Body, Bytes};
use axum::extract::ws::{CloseFrame, Message as Packet, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{Extension, Path, State};
use axum::http::Response;
use live::client::{Incoming, Sender, Stream};
use live::kernel::words::KernelAsk;
use tokio::sync::mpsc;
use tokio::time::{Instant, interval, timeout};
use tokio_util::sync::CancellationToken;

use super::Refused;
use super::codec::{V1, inward, outward};
use super::kernels::{PathParams, find};
use crate::app::AppState;
use crate::backend;
use crate::keys::Key;

/// Longest message, bytes.
const MAX_MESSAGE: usize = 16 << 20;
/// How often a client is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);
/// A client of whom nothing is heard for so long is gone; one that takes nothing for so long is cut.
const SILENCE: Duration = Duration::from_secs(90);

pub(super) async fn open(
    State(app): State<Arc<AppState>>,
    Extension(key): Extension<Key>,
    Path(place): Path<PathParams>,
    upgrade: Result<WebSocketUpgrade, axum::extract::ws::rejection::WebSocketUpgradeRejection>,
) -> Result<Response<Body>, Refused> {
    let kernel = find(&app, &key, &place).await?;
    let upgrade = upgrade.map_err(|why| crate::answer::Problem::invalid("Upgrade", &why.body_text()))?;
    let id = kernel.context.id.clone();
    let stream = backend::open(&*app.sandboxes, &kernel.sandbox, &KernelAsk::ContextChannels { id }).await?;
    let cut = app.cut_of(&kernel.sandbox);
    let upgrade = upgrade.protocols([V1]).max_message_size(MAX_MESSAGE).max_frame_size(MAX_MESSAGE);
    Ok(upgrade.on_upgrade(move |socket| carry(socket, stream, cut)))
}

async fn carry(mut socket: WebSocket, mut stream: Stream, cut: CancellationToken) {
    let v1 = socket.protocol().is_some_and(|protocol| protocol.as_bytes() == V1.as_bytes());
    let (to_kernel, said) = mpsc::channel(1);
    // A kernel that takes nothing holds up what is said to it, and not what it says.
    let writer = tokio::spawn(write(stream.sender(), said)).abort_handle();
    let end = tokio::select! {
        () = cut.cancelled() => None,
        end = converse(&mut socket, &mut stream, &to_kernel, v1) => end,
    };
    writer.abort();
    if let Some(frame) = end {
        // Who hung up needs no end.
        drop(timeout(PING, socket.send(Packet::Close(Some(frame)))).await);
    }
}

async fn write(to: Sender, mut said: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = said.recv().await {
        if to.send(&line).await.is_err() {
            return;
        }
    }
}

/// Both ways until one side ends; what to say at the end, if anybody hears it.
async fn converse(
    socket: &mut WebSocket,
    stream: &mut Stream,
    to_kernel: &mpsc::Sender<Vec<u8>>,
    v1: bool,
) -> Option<CloseFrame> {
    let (mut pings, mut heard) = (interval(PING), Instant::now());
    let mut line = Vec::new();
    let mut waiting: Option<Vec<u8>> = None;
    loop {
        tokio::select! {
            incoming = stream.next() => match incoming {
                Some(Incoming::Out(bytes)) => give(socket, &mut line, &bytes, v1).await?,
                Some(Incoming::Event(_) | Incoming::Err(_)) => {}
                Some(Incoming::End(Err(failure))) => return Some(closing(failure.code, &failure.message)),
                Some(Incoming::End(Ok(_))) | None => return Some(closing(Code::NotFound, "the kernel is gone")),
            },
            permit = to_kernel.reserve(), if waiting.is_some() => match (permit, waiting.take()) {
                (Ok(permit), Some(line)) => permit.send(line),
                (Ok(_) | Err(_), _) => return Some(closing(Code::Ended, "the sandbox has ended")),
            },
            packet = socket.recv(), if waiting.is_none() => {
                let packet = packet?.ok()?;
                heard = Instant::now();
                waiting = inward(&packet, v1);
            }
            now = pings.tick() => {
                if now.saturating_duration_since(heard) > SILENCE && waiting.is_none() {
                    return Some(closing(Code::Cancelled, "nothing was heard of the client"));
                }
                timeout(SILENCE, socket.send(Packet::Ping(Bytes::new()))).await.ok()?.ok()?;
            }
        }
    }
}

/// Gives on the lines that are whole now; none where nobody takes them.
async fn give(socket: &mut WebSocket, line: &mut Vec<u8>, bytes: &[u8], v1: bool) -> Option<()> {
    for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
        line.extend_from_slice(piece);
        if line.last() == Some(&b'\n') {
            // What is no message was said by nobody's kernel.
            if let Some(packet) = outward(line, v1) {
                timeout(SILENCE, socket.send(packet)).await.ok()?.ok()?;
            }
            line.clear();
        }
    }
    Some(())
}

fn closing(code: Code, why: &str) -> CloseFrame {
    let code = match code {
        Code::Invalid => close_code::UNSUPPORTED,
        Code::TooMany => close_code::AGAIN,
        Code::NotFound | Code::Ended | Code::Cancelled | Code::Paused => close_code::AWAY,
        Code::Exists
        | Code::NotADirectory
        | Code::IsADirectory
        | Code::Denied
        | Code::Secret
        | Code::NoSpace
        | Code::NotExecutable
        | Code::NoCwd
        | Code::Unsupported
        | Code::Closed
        | Code::Failed => close_code::ERROR,
    };
    // A reason has 123 bytes at most.
    let mut reason = why.to_owned();
    while reason.len() > 120 {
        reason.pop();
    }
    CloseFrame { code, reason: reason.into() }
}
