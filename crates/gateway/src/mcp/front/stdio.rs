//! The front door over standard streams: one client, one session.

use std::sync::Arc;
use std::time::Duration;

use gate::call::Caller;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::mcp::gateway::Gateway;
use crate::mcp::peer::{Handler, Peer};
use crate::mcp::session::Session;
use crate::mcp::text;
use crate::mcp::upstream::process::{Queue, write};
use crate::mcp::wire::{self, Id, Line, Lines, MAX_FROM_CLIENT, RpcError};

const QUEUE: usize = 256;
/// After its last word a client may wait so long for answers to what it asked before, unless a signal says that it does not.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long it may take to read what was answered before.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// Serves one client until it closes its stream, or `stop`.
pub async fn serve(
    gateway: &Arc<Gateway>,
    caller: Caller,
    read: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
) {
    let session = Session::new(gateway, caller);
    converse(session.clone(), read, to, stop, session.end()).await;
}

/// A conversation over a pair of streams, with any handler behind it; `then` is done when it is over.
pub async fn converse<H: Handler>(
    handler: Arc<H>,
    read: impl AsyncRead + Unpin,
    to: impl AsyncWrite + Unpin + Send + 'static,
    stop: CancellationToken,
    then: impl Future<Output = ()>,
) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let quit = CancellationToken::new();
    let writer = tokio::spawn(write(receiver, to, quit.clone()));
    let peer = Peer::new(Arc::new(Queue(sender)), handler);
    let mut lines = Lines::new(read, MAX_FROM_CLIENT);
    loop {
        let line = tokio::select! {
            line = lines.next() => line,
            () = stop.cancelled() => break,
        };
        match line {
            Line::Full(line) => hear(&peer, line),
            Line::TooLong => {
                complain(&peer, None, &format!("a message longer than {MAX_FROM_CLIENT} bytes"));
                if !lines.skip().await {
                    break;
                }
            }
            Line::End => break,
        }
    }
    tokio::select! {
        () = last_words(&peer) => {}
        () = stop.cancelled() => {}
    }
    peer.close("the client closed the conversation");
    drop(peer);
    // What is queued still goes out, while servers end; a client that reads nothing more is not waited for.
    let writing = async {
        if tokio::time::timeout(LAST_WRITE, writer).await.is_err() {
            quit.cancel();
        }
    };
    tokio::join!(writing, then);
}

/// Takes one line. It is read strictly: what two parsers could read in two ways is refused, not guessed at.
fn hear(peer: &Peer, line: &[u8]) {
    match std::str::from_utf8(line) {
        Err(_) => complain(peer, None, "it is no UTF-8 text"),
        Ok(text) => match gate::json::read(text) {
            Ok(value) => {
                peer.accept(value);
            }
            Err(flaw) => complain(peer, wire::id_of_refused(text).as_ref(), &flaw.to_string()),
        },
    }
}

fn complain(peer: &Peer, id: Option<&Id>, why: &str) {
    let error = RpcError::new(wire::PARSE, text::shown(why, 300));
    peer.refuse(id, &error);
}

async fn last_words(peer: &Peer) {
    let quiet = async {
        while peer.serving() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    if tokio::time::timeout(LAST_WORDS, quiet).await.is_err() {
        // What is not done now is cancelled.
    }
}
