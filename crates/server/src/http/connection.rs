//! One connection: TLS where it is wanted, HTTP/1.1 or HTTP/2, bounded in heads, streams and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Server;
use super::finish::{Detached, Finish, finished};
use super::heads::Heads;
use super::route::Loopback;
use super::tail::Tail;
use super::wire::{Io, STALL, Wire};
use crate::docker::OfDocker;
use crate::page::Encrypted;
use crate::places::{ConnectionSlot, Sending};

/// How long a new connection may take to say what it speaks, TLS included.
const HELLO: Duration = Duration::from_secs(10);
/// How long a connection may wait for its next request, of HTTP/1.1 or HTTP/2. Clients that keep connections drop them earlier (E2B's after 300 s, most
/// after 90 s or less): who is hung up on while it asks cannot know whether the request was heard.
const IDLE: Duration = Duration::from_secs(400);
/// Most bytes of a head.
const MAX_HEAD: usize = 64 * 1024;
/// The same for HTTP/2, where it is counted unpacked.
const MAX_HEAD_2: u32 = 64 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// Most requests at once on one connection of HTTP/2.
const MAX_STREAMS: u32 = 256;
/// Streams that a client opens and resets at once, before it is cut.
const MAX_RESETS: usize = 20;
/// How often a silent peer of HTTP/2 is asked whether it is there, and how long it may take to say so.
const ASKED: Duration = Duration::from_secs(20);

/// What an answer of HTTP/1.1 says that comes before the end of its request.
const CLOSE: &str = "close";

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) io: Box<dyn Io>,
    pub(super) tls: Option<TlsAcceptor>,
    /// It came to an address of the loopback: whoever asks by another name was led here.
    pub(super) is_loopback: bool,
    /// It came to the socket of Docker's clients.
    pub(super) docker: Option<OfDocker>,
}

/// What a server's connections have in common.
#[derive(Clone)]
pub(super) struct Common {
    pub(super) server: Server,
    /// Cancelled when no more requests are taken.
    pub(super) stopped: CancellationToken,
    pub(super) detached: Detached,
}

/// Serves a connection to its end.
pub(super) async fn serve(accepted: Accepted, place: Arc<ConnectionSlot>, common: Common) {
    let end = place.end.clone();
    tokio::select! {
        // Another needs the place more.
        () = end.cancelled() => {}
        () = greet(accepted, place, common) => {}
    }
}

async fn greet(accepted: Accepted, place: Arc<ConnectionSlot>, Common { server, stopped, detached }: Common) {
    let Accepted { io, tls, is_loopback, docker } = accepted;
    let is_encrypted = tls.is_some();
    let meters = server.meters();
    let greeted = timeout(HELLO, async {
        let Some(tls) = tls else {
            let mut wire = Wire::new(io, meters);
            let is_http2 = wire.is_http2().await?;
            return Ok((wire, is_http2));
        };
        let stream = tls.accept(io).await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok::<_, std::io::Error>((Wire::new(Box::new(stream), meters), is_http2))
    });
    let Ok(Ok((wire, is_http2))) = greeted.await else { return };
    let of = Arc::clone(&place);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (server, detached, busy) = (server.clone(), detached.clone(), Arc::new(of.begin()));
        if is_loopback {
            request.extensions_mut().insert(Loopback);
        }
        if let Some(docker) = &docker {
            request.extensions_mut().insert(docker.clone());
        }
        if is_encrypted {
            request.extensions_mut().insert(Encrypted);
        }
        // What goes on after the answer (another protocol) holds the place as well.
        request.extensions_mut().insert(Arc::clone(&busy));
        let slot = Arc::clone(&of);
        async move {
            let response = answer_whole(server, request, is_http2, detached).await;
            if response.headers().get(header::CONNECTION).is_some_and(|value| value == CLOSE) {
                slot.set_unheard();
            }
            Ok::<Response<Body>, Infallible>(response.map(|body| Sending::body(body, busy)))
        }
    });
    speak(wire, is_http2, place, service, &stopped, STALL).await;
}

/// Answers what a connection asks until it ends, takes nothing of an answer for `stall`, or asks nothing for long.
async fn speak<S>(
    wire: Wire,
    is_http2: bool,
    place: Arc<ConnectionSlot>,
    service: S,
    stopped: &CancellationToken,
    stall: Duration,
) where
    S: HttpService<Incoming, ResBody = Body, Error = Infallible> + Send,
    S::Future: Send + 'static,
{
    let of = Arc::clone(&place);
    // A client that broke off, or whose sandbox did, is no failure of ours.
    if is_http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_2);
        builder.max_pending_accept_reset_streams(MAX_RESETS).keep_alive_interval(ASKED).keep_alive_timeout(ASKED);
        let serving = builder.serve_connection(TokioIo::new(wire), service);
        tokio::pin!(serving);
        drop(tokio::select! {
            done = serving.as_mut() => done,
            () = of.stalled(stall) => Ok(()),
            () = of.idle(IDLE) => Ok(()),
            () = stopped.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        });
        return;
    }
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let io = TokioIo::new(Heads::of(wire, place));
    let serving = builder.serve_connection(io, service).with_upgrades();
    tokio::pin!(serving);
    drop(tokio::select! {
        done = serving.as_mut() => done,
        () = of.stalled(stall) => Ok(()),
        () = stopped.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    });
}

/// The answer to a request, finished whoever hangs up; one of HTTP/1.1 says so where the connection ends with it.
async fn answer_whole(
    server: Server,
    request: Request<Incoming>,
    is_http2: bool,
    detached: Detached,
) -> Response<Body> {
    // To read on would ask for what the client holds back until it is told to go on.
    let waits = request.headers().contains_key(header::EXPECT);
    let (mut parts, body) = request.into_parts();
    let (body, tail) = Tail::of(body);
    let finish = Finish::of(&parts.method);
    parts.extensions.insert(finish.clone());
    let work = server.answer(Request::from_parts(parts, body));
    let mut response = finished(work, finish, tail.watch(), detached).await;
    if !is_http2 && response.status() != StatusCode::SWITCHING_PROTOCOLS && !tail.finished(!waits).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static(CLOSE));
    }
    response
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::places::{ConnectionLimits, Places};

    /// Bytes of each answer.
    const ANSWER: usize = 256 * 1024;
    const DAY: Duration = Duration::from_secs(24 * 3600);
    /// Kinds of frames of HTTP/2.
    const DATA: u8 = 0;
    const HEADERS: u8 = 1;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const WINDOW_UPDATE: u8 = 8;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// A client of HTTP/2 that asks for `/` and lets `window` bytes of the answer come. With `slow` it lets as many come again as it
    /// has taken, each time so much later. It answers all that only asks whether it is there. How much it took until it was hung up on,
    /// and when that was.
    async fn client(mut io: DuplexStream, window: u32, slow: Option<Duration>) -> (usize, Duration) {
        let begun = Instant::now();
        let settings = frame(SETTINGS, 0, 0, &[&[0, 4][..], &window.to_be_bytes()].concat());
        // `GET http://a/`, and the end of the request.
        let head = frame(HEADERS, 5, 1, b"\x82\x86\x84\x41\x01a");
        io.write_all(&[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &settings[..], &head].concat()).await.unwrap();
        let mut taken = 0;
        let mut start = [0; 9];
        while io.read_exact(&mut start).await.is_ok() {
            let length = u32::from_be_bytes([0, start[0], start[1], start[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            io.read_exact(&mut payload).await.unwrap();
            let (kind, is_told) = (start[3], start[4] & 1 == 1);
            let mut said = Vec::new();
            if kind == PING && !is_told {
                said = frame(PING, 1, 0, &payload);
            } else if kind == SETTINGS && !is_told {
                said = frame(SETTINGS, 1, 0, &[]);
            } else if kind == DATA && length > 0 {
                taken += payload.len();
                if let Some(later) = slow {
                    tokio::time::sleep(later).await;
                    let more = |stream| frame(WINDOW_UPDATE, 0, stream, &length.to_be_bytes());
                    said = [more(1), more(0)].concat();
                }
            }
            if io.write_all(&said).await.is_err() {
                break;
            }
        }
        (taken, begun.elapsed())
    }

    /// What a client comes to that is served alone, cut after `stall`.
    async fn served(window: u32, slow: Option<Duration>, stall: Duration) -> (usize, Duration) {
        let places = Places::new(ConnectionLimits { all: 1, of_one: 1 });
        let place = places.take(None).unwrap();
        let (theirs, ours) = duplex(1 << 20);
        let client = tokio::spawn(client(theirs, window, slow));
        let mut wire = Wire::new(Box::new(ours), Arc::default());
        assert!(wire.is_http2().await.unwrap());
        let of = Arc::clone(&place);
        let service = service_fn(move |_| {
            let body = Sending::body(Body::from(vec![b'a'; ANSWER]), Arc::new(of.begin()));
            async move { Ok::<_, Infallible>(Response::new(body)) }
        });
        speak(wire, true, place, service, &CancellationToken::new(), stall).await;
        client.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_over_http2_is_cut_and_who_takes_slowly_is_not() {
        for window in [0, 1] {
            // Without the bound it stays for as long as it likes: only the time of this test ends it.
            let held = timeout(DAY / 2, served(window, None, DAY)).await;
            assert!(held.is_err(), "{window}: {held:?}");
            let (taken, when) = served(window, None, STALL).await;
            assert_eq!(taken, usize::try_from(window).unwrap());
            assert!(when >= STALL && when < STALL + STALL, "{window}: {when:?}");
        }
        // It takes all of it, for longer than silence may be, and is then hung up on like all who ask nothing more.
        let (taken, when) = served(16 * 1024, Some(Duration::from_secs(15)), STALL).await;
        assert_eq!(taken, ANSWER);
        assert!(when > 3 * STALL + IDLE && when < 5 * STALL + IDLE, "{when:?}");
    }
}
