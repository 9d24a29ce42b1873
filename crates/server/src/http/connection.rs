//! One connection: TLS where it is wanted, HTTP/1.1 or HTTP/2, bounded in heads, streams and time.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Server;
use super::heads::Heads;
use super::route::Loopback;
use super::tail::Tail;
use super::wire::{Io, Wire};
use crate::docker::OfDocker;
use crate::page::Encrypted;
use crate::places::{Place, Sending};

/// How long a new connection may take to say what it speaks, TLS included.
const HELLO: Duration = Duration::from_secs(10);
/// How long a connection may wait for its next request. Clients that keep connections drop them earlier (E2B's after 300 s, most
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

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) io: Box<dyn Io>,
    pub(super) tls: Option<TlsAcceptor>,
    /// It came to an address of the loopback: whoever asks by another name was led here.
    pub(super) is_loopback: bool,
    /// It came to the socket of Docker's clients.
    pub(super) docker: Option<OfDocker>,
}

/// Serves a connection to its end.
pub(super) async fn serve(accepted: Accepted, place: Arc<Place>, server: Server, stopped: CancellationToken) {
    let end = place.end.clone();
    tokio::select! {
        // Another needs the place more.
        () = end.cancelled() => {}
        () = greet(accepted, place, server, stopped) => {}
    }
}

async fn greet(accepted: Accepted, place: Arc<Place>, server: Server, stopped: CancellationToken) {
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
        let (server, busy) = (server.clone(), Arc::new(of.begin()));
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
        async move {
            let response = if is_http2 {
                server.answer(request.map(Body::new)).await
            } else {
                answer_whole(server, request).await
            };
            Ok::<Response<Body>, Infallible>(response.map(|body| Sending::body(body, busy)))
        }
    });
    // A client that broke off, or whose sandbox did, is no failure of ours.
    if is_http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_concurrent_streams(MAX_STREAMS).max_header_list_size(MAX_HEAD_2);
        builder.max_pending_accept_reset_streams(MAX_RESETS).keep_alive_interval(ASKED).keep_alive_timeout(ASKED);
        let serving = builder.serve_connection(TokioIo::new(wire), service);
        tokio::pin!(serving);
        drop(tokio::select! {
            done = serving.as_mut() => done,
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
        () = stopped.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    });
}

/// The answer to a request of HTTP/1.1, which says so where the connection ends with it.
async fn answer_whole(server: Server, request: Request<Incoming>) -> Response<Body> {
    // To read on would ask for what the client holds back until it is told to go on.
    let waits = request.headers().contains_key(header::EXPECT);
    let (parts, body) = request.into_parts();
    let (body, tail) = Tail::of(body);
    let mut response = server.answer(Request::from_parts(parts, body)).await;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS && !tail.finished(!waits).await {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}
