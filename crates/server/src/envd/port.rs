//! Ports inside: HTTP both ways, and what it is upgraded to.

use std::sync::Arc;

use agent::words::{Code, Failure, Request as Ask};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use hyper_util::rt::TokioIo;
use live::client::{Incoming, Stream};
use live::words::Info;
use serde_json::Value as Json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio_util::sync::CancellationToken;

use super::content::{CutStream, broken};
use super::{Context, closed, plain, plain_failure, wants_html};
use crate::app::AppState;
use crate::backend;
use crate::keys::Keys;
use crate::labels::has_private_ports;
use crate::places::Busy;
use crate::tokens::Purpose;

/// Bytes between us and a connection inside.
const BUFFER: usize = 64 * 1024;

/// Headers that are about one connection, or about us.
const OURS: [&str; 9] = [
    "e2b-sandbox-id",
    "e2b-sandbox-port",
    "e2b-traffic-access-token",
    "x-access-token",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "te",
    "transfer-encoding",
];

/// What is said to who shows no traffic token.
pub(super) const WANTS_TOKEN: &str = "the ports of this sandbox want its traffic token";

/// Whether a request shows what the ports of a sandbox want: nothing, or its traffic token.
pub(super) fn may_pass(app: &AppState, info: &Info, headers: &HeaderMap) -> bool {
    let given = headers.get("e2b-traffic-access-token").and_then(|value| value.to_str().ok());
    !has_private_ports(info) || given.is_some_and(|token| app.tokens.is(Purpose::Ports, &info.id, token))
}

/// Hands a request to a port inside.
pub(super) async fn proxy(context: &Context, port: u16, request: Request) -> Response<Body> {
    if !may_pass(&context.app, &context.info, request.headers()) {
        return plain(StatusCode::FORBIDDEN, WANTS_TOKEN);
    }
    pass_on(context, port, request).await
}

/// The same for who may: a request that showed the sandbox's key needs no token.
pub(crate) async fn pass_on(context: &Context, port: u16, request: Request) -> Response<Body> {
    let html = wants_html(request.headers());
    let io = match connect(context, port).await {
        Ok(io) => io,
        Err(failure) if failure.code == Code::Closed => return closed(context.id(), port, html),
        Err(failure) => return plain_failure(context.id(), &failure),
    };
    match exchange(context, request, io).await {
        Ok(response) => response,
        // Whoever listens there speaks no HTTP, or hung up.
        Err(_) => closed(context.id(), port, html),
    }
}

/// A connection to a port inside.
async fn connect(context: &Context, port: u16) -> Result<DuplexStream, Failure> {
    let mut stream = backend::open(&*context.app.sandboxes, context.id(), &Ask::Port { port }).await?;
    backend::reply::<Json>(&mut stream).await?;
    let (ours, theirs) = tokio::io::duplex(BUFFER);
    tokio::spawn(carry(stream, theirs, context.app.cut_of(context.id())));
    Ok(ours)
}

/// Carries bytes both ways until both are through.
async fn carry(mut stream: Stream, io: DuplexStream, cut: CancellationToken) {
    let (mut from, mut to) = tokio::io::split(io);
    let sender = stream.sender();
    let inward = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            let Some(bytes) = buffer.get(..count) else { break };
            if sender.send(bytes).await.is_err() {
                return;
            }
        }
        if sender.eof().is_err() {
            // It ended from the other side.
        }
    };
    let outward = async move {
        while let Some(incoming) = stream.next_before_eof().await {
            match incoming {
                Incoming::Out(bytes) => {
                    if to.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Incoming::End(_) => break,
                Incoming::Event(_) | Incoming::Err(_) => {}
            }
        }
        // An answer may end by that alone, and what is still asked goes on.
        if to.shutdown().await.is_err() {
            // Nobody reads.
        }
        while stream.next().await.is_some() {}
    };
    tokio::pin!(inward);
    tokio::select! {
        () = cut.cancelled() => {}
        // What was asked is through: what is answered is still awaited. Once the answer is through, nothing is asked any more.
        () = outward => {}
        () = async { inward.await; std::future::pending::<()>().await } => {}
    }
}

async fn exchange(context: &Context, mut request: Request, io: DuplexStream) -> Result<Response<Body>, hyper::Error> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(io)).await?;
    tokio::spawn(connection.with_upgrades());
    let upgrade = request.headers().get(header::UPGRADE).cloned();
    let caller = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
    let busy = request.extensions_mut().remove::<Arc<Busy>>();
    let (mut parts, body) = request.into_parts();
    strip(&mut parts.headers, upgrade.is_some());
    forget_keys(&context.app.keys, &mut parts.headers);
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    parts.uri = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
    parts.version = axum::http::Version::HTTP_11;
    let mut response = sender.send_request(Request::from_parts(parts, body)).await?;
    let cut = context.app.cut_of(context.id());
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let inside = hyper::upgrade::on(&mut response);
        if let Some(caller) = caller {
            tokio::spawn(async move {
                bridge(caller, inside, cut).await;
                drop(busy);
            });
        }
        let (parts, _) = response.into_parts();
        return Ok(Response::from_parts(parts, Body::empty()));
    }
    let (mut parts, mut inside) = response.into_parts();
    strip(&mut parts.headers, false);
    let (to, body) = CutStream::body(cut);
    tokio::spawn(async move {
        // The connection lives for as long as its answer.
        let _sender = sender;
        while let Some(frame) = inside.frame().await {
            let piece = match frame {
                Ok(frame) => frame.into_data().map_err(|_trailers| broken()),
                Err(_) => Err(broken()),
            };
            let is_last = piece.is_err();
            if to.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Ok(Response::from_parts(parts, body))
}

/// Takes away what is about one connection. `Connection` may name more of them.
fn strip(headers: &mut HeaderMap, upgrades: bool) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .filter(|name: &HeaderName| name != header::UPGRADE)
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in OURS {
        headers.remove(name);
    }
    headers.remove(header::CONNECTION);
    if upgrades {
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    } else {
        headers.remove(header::UPGRADE);
    }
}

/// Takes away a key of this server: it is none of the program's business. What else has such a name is between caller and program.
fn forget_keys(keys: &Keys, headers: &mut HeaderMap) {
    for name in [HeaderName::from_static("x-api-key"), header::AUTHORIZATION] {
        let is_ours = |value: &HeaderValue| {
            let token = value.to_str().unwrap_or_default().rsplit(' ').next().unwrap_or_default();
            !matches!(keys.who(token), Ok(None))
        };
        if headers.get_all(&name).iter().any(is_ours) {
            headers.remove(&name);
        }
    }
}

/// Carries what the protocol after HTTP says, both ways.
async fn bridge(caller: hyper::upgrade::OnUpgrade, inside: hyper::upgrade::OnUpgrade, cut: CancellationToken) {
    let (Ok(caller), Ok(inside)) = tokio::join!(caller, inside) else { return };
    let (mut caller, mut inside) = (TokioIo::new(caller), TokioIo::new(inside));
    tokio::select! {
        () = cut.cancelled() => {}
        _ends = tokio::io::copy_bidirectional(&mut caller, &mut inside) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_about_one_connection_or_about_us_does_not_go_inside() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "keep-alive, X-Hop, Upgrade"),
            ("x-hop", "1"),
            ("upgrade", "websocket"),
            ("x-access-token", "secret"),
            ("e2b-sandbox-id", "a"),
            ("accept", "*/*"),
        ] {
            headers.append(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
        }
        let mut upgraded = headers.clone();
        strip(&mut headers, false);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
        strip(&mut upgraded, true);
        assert!(upgraded["upgrade"] == "websocket" && upgraded["connection"] == "upgrade");
        assert!(upgraded.get("x-hop").is_none() && upgraded.get("x-access-token").is_none());
    }
}
