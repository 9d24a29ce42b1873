//! The front door over streamable HTTP, in both revisions, for this machine only.
//!
//! With a handshake a client has a session: an id that is bound to its token, a stream of its own and servers of its own.
//! Without one each request stands for itself; the requests of one token share servers. Whatever comes shows a Host, an
//! Origin and a token that are good before it is read.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use axum::routing::any;
use gate::call::Caller;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncRead, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::codec::{BytesCodec, FramedRead};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::request::{Early, accepts, admit, early, read, same, version};
use super::streams::Streams;
use crate::http::{ActiveRequest, HttpListener, Keys, Owner, Peer as Connection};
use crate::mcp::client_requests::handle;
use crate::mcp::gateway::Gateway;
use crate::mcp::lock;
use crate::mcp::peer::Peer;
use crate::mcp::protocol;
use crate::mcp::session::Session;
use crate::mcp::wire::{self, Id, Message, RpcError};

/// Where messages are sent.
pub const PATH: &str = "/mcp";
/// Most sessions at once.
const MAX_SESSIONS: usize = 64;
/// A session that nobody used for so long is ended.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// Between two signs of life on a stream.
const ALIVE: Duration = Duration::from_secs(15);

/// A session that was begun by a handshake.
struct HttpSession {
    agent: String,
    session: Arc<Session>,
    peer: Peer,
    streams: Arc<Streams>,
    used: Mutex<Instant>,
}

struct Front {
    gateway: Arc<Gateway>,
    keys: Keys,
    origins: Vec<String>,
    port: Option<u16>,
    held: Mutex<HashMap<String, Arc<HttpSession>>>,
    /// By agent: servers for requests without a session.
    plain: Mutex<HashMap<String, Arc<Session>>>,
}

/// Serves until `stop`; done when no server of any session runs any more.
///
/// # Errors
/// What the kernel answers.
pub async fn serve(
    listener: HttpListener,
    gateway: Arc<Gateway>,
    keys: Keys,
    origins: Vec<String>,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let port = listener.port();
    let front = Arc::new(Front { gateway, keys, origins, port, held: Mutex::default(), plain: Mutex::default() });
    let sweeping = tokio::spawn(sweep(front.clone(), stop.clone()));
    let router = Router::new().route(PATH, any(answer)).with_state(front.clone());
    let ends = stop.clone();
    let serving = axum::serve(listener, router.into_make_service_with_connect_info::<Connection>());
    let served = tokio::select! {
        served = async { serving.await } => served,
        () = ends.cancelled() => Ok(()),
    };
    sweeping.abort();
    let held: Vec<_> = lock(&front.held).drain().map(|(_, held)| held).collect();
    for held in &held {
        held.peer.close("the gateway ended");
    }
    let plain: Vec<_> = lock(&front.plain).drain().map(|(_, session)| session).collect();
    Session::end_all(held.into_iter().map(|held| held.session.clone()).chain(plain)).await;
    served
}

async fn sweep(front: Arc<Front>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(Duration::from_secs(60)) => {}
            () = stop.cancelled() => return,
        }
        let old: Vec<_> = {
            let mut held = lock(&front.held);
            let ids: Vec<_> = held
                .iter()
                .filter(|(_, one)| lock(&one.used).elapsed() > IDLE && one.peer.serving() == 0)
                .map(|(id, _)| id.clone())
                .collect();
            ids.iter().filter_map(|id| held.remove(id)).collect()
        };
        for one in old {
            one.peer.close("nobody used the session");
            one.session.end().await;
        }
    }
}

async fn answer(
    State(front): State<Arc<Front>>,
    ConnectInfo(connection): ConnectInfo<Connection>,
    request: Request<Body>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let caller = match admit((&head.headers, &head.uri), front.port, &front.origins, &front.keys) {
        Ok(caller) => caller,
        Err(Early(response)) => return *response,
    };
    let Some(active) = connection.authenticated(Owner::Agent(caller.agent.clone())) else {
        let error = RpcError::new(wire::UNAVAILABLE, "too many requests of this token are on their way");
        return *early(StatusCode::SERVICE_UNAVAILABLE, None, &error).0;
    };
    let answered = match head.method {
        Method::POST => front.post(&head.headers, body, caller, active).await,
        Method::GET => front.get(&head.headers, &caller, active),
        Method::DELETE => front.delete(&head.headers, &caller).await,
        _ => Err(status(StatusCode::METHOD_NOT_ALLOWED)),
    };
    answered.unwrap_or_else(|Early(response)| *response)
}

fn status(code: StatusCode) -> Early {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = code;
    if code == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
    }
    Early(Box::new(response))
}

impl Front {
    /// The session that the header names, if it is this agent's.
    fn held(&self, headers: &HeaderMap, caller: &Caller) -> Result<Arc<HttpSession>, Early> {
        let mut given = headers.get_all("mcp-session-id").iter();
        let id = match (given.next(), given.next()) {
            (Some(one), None) => one.to_str().ok(),
            (Some(_), Some(_)) => None,
            (None, _) => {
                let error = RpcError::new(wire::INVALID_REQUEST, "`Mcp-Session-Id` is missing");
                return Err(early(StatusCode::BAD_REQUEST, None, &error));
            }
        };
        let held = id.and_then(|id| lock(&self.held).get(id).cloned()).filter(|held| held.agent == caller.agent);
        let held = held.filter(|held| !held.peer.is_closed());
        held.inspect(|held| *lock(&held.used) = Instant::now()).ok_or_else(|| {
            let error = RpcError::new(wire::INVALID_REQUEST, "there is no such session: make a new handshake");
            early(StatusCode::NOT_FOUND, None, &error)
        })
    }

    async fn post(
        self: &Arc<Self>,
        headers: &HeaderMap,
        body: Body,
        caller: Caller,
        active: ActiveRequest,
    ) -> Result<Response<Body>, Early> {
        let named = version(headers)?;
        let value = read(headers, body).await?;
        let message = Message::read(value.clone()).map_err(|malformed| {
            let error = RpcError::new(wire::INVALID_REQUEST, malformed.why);
            early(StatusCode::BAD_REQUEST, malformed.id.as_ref(), &error)
        })?;
        let describes = matches!(&message, Message::Request { params, .. }
            if params.get("_meta").is_some_and(|meta| meta.get(protocol::META_VERSION).is_some()));
        if !accepts(headers, "application/json") || !accepts(headers, "text/event-stream") {
            let error = RpcError::new(wire::INVALID_REQUEST, "accept both application/json and text/event-stream");
            return Err(early(StatusCode::NOT_ACCEPTABLE, None, &error));
        }
        match message {
            Message::Request { id, method, params }
                if describes || named == Some(protocol::STATELESS) && method != "initialize" =>
            {
                same(headers, &id, &method, &params)?;
                self.stand_alone(&id, value, caller, active).await
            }
            Message::Notification { .. } if named == Some(protocol::STATELESS) => Ok(accepted()),
            Message::Request { id, method, .. } if method == "initialize" => {
                self.begin(&id, value, caller, active).await
            }
            Message::Request { id, .. } => {
                let held = self.held(headers, &caller)?;
                ask(&held.peer, &held.streams, &id, value, ResponseGuard { active, unwanted: None }).await
            }
            Message::Notification { .. } | Message::Response { .. } => {
                self.held(headers, &caller)?.peer.accept(value);
                Ok(accepted())
            }
        }
    }

    /// A handshake: a new session.
    async fn begin(
        &self,
        id: &Id,
        value: Json,
        mut caller: Caller,
        active: ActiveRequest,
    ) -> Result<Response<Body>, Early> {
        let unavailable =
            |why: String| early(StatusCode::SERVICE_UNAVAILABLE, Some(id), &RpcError::new(wire::UNAVAILABLE, why));
        if lock(&self.held).len() >= MAX_SESSIONS {
            return Err(unavailable(format!("more than {MAX_SESSIONS} sessions")));
        }
        let name = handle().map_err(|error| unavailable(error.message))?;
        let agent = caller.agent.clone();
        caller.session = format!("mcp {name}");
        let session = Session::new(&self.gateway, caller);
        let streams = Arc::new(Streams::default());
        let peer = Peer::new(streams.clone(), session.clone());
        let held = HttpSession {
            agent,
            session: session.clone(),
            peer: peer.clone(),
            streams: streams.clone(),
            used: Mutex::new(Instant::now()),
        };
        lock(&self.held).insert(name.clone(), Arc::new(held));
        let mut response = ask(&peer, &streams, id, value, ResponseGuard { active, unwanted: None }).await?;
        if session.is_met() {
            let name = HeaderValue::from_str(&name).map_err(|error| unavailable(error.to_string()))?;
            response.headers_mut().insert("mcp-session-id", name);
        } else {
            lock(&self.held).remove(&name);
            session.end().await;
        }
        Ok(response)
    }

    /// A request without state. Its ids are its own: another client with the same token may use the same.
    async fn stand_alone(
        &self,
        id: &Id,
        value: Json,
        mut caller: Caller,
        active: ActiveRequest,
    ) -> Result<Response<Body>, Early> {
        let session = lock(&self.plain)
            .entry(caller.agent.clone())
            .or_insert_with(|| {
                caller.session = format!("mcp {}", caller.agent);
                Session::new(&self.gateway, caller)
            })
            .clone();
        let streams = Arc::new(Streams::default());
        let peer = Peer::new(streams.clone(), session);
        let unwanted = Unwanted { peer: peer.clone(), id: id.clone() };
        ask(&peer, &streams, id, value, ResponseGuard { active, unwanted: Some(unwanted) }).await
    }

    fn get(&self, headers: &HeaderMap, caller: &Caller, active: ActiveRequest) -> Result<Response<Body>, Early> {
        if version(headers)? == Some(protocol::STATELESS) {
            return Err(status(StatusCode::METHOD_NOT_ALLOWED));
        }
        let held = self.held(headers, caller)?;
        if !accepts(headers, "text/event-stream") {
            return Err(status(StatusCode::NOT_ACCEPTABLE));
        }
        let seen = headers.get("last-event-id").and_then(|id| id.to_str().ok()).and_then(|id| id.parse().ok());
        let mut events = held.streams.stand(seen);
        let (reader, mut writer, gone) = stream(ResponseGuard { active, unwanted: None });
        tokio::spawn(async move {
            loop {
                let event = tokio::select! {
                    event = events.recv() => event,
                    () = tokio::time::sleep(ALIVE) => {
                        if writer.write_all(b":\n\n").await.is_err() {
                            break;
                        }
                        continue;
                    }
                    () = gone.cancelled() => break,
                    () = held.peer.closed() => break,
                };
                let Some((number, message)) = event else { break };
                if writer.write_all(format!("id: {number}\ndata: {message}\n\n").as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        Ok(events_of(reader))
    }

    async fn delete(&self, headers: &HeaderMap, caller: &Caller) -> Result<Response<Body>, Early> {
        let held = self.held(headers, caller)?;
        let name = headers.get("mcp-session-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
        lock(&self.held).remove(name);
        held.peer.close("the client ended the session");
        held.session.end().await;
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        Ok(response)
    }
}

/// Cancels a request without state when the stream of its answer is closed.
struct Unwanted {
    peer: Peer,
    id: Id,
}

impl Drop for Unwanted {
    fn drop(&mut self) {
        let params = json!({ "requestId": self.id.to_json() });
        self.peer.accept_silently(wire::notification("notifications/cancelled", params));
        self.peer.close("the client closed the stream");
    }
}

/// What lasts for as long as the answer to a request.
struct ResponseGuard {
    /// Its connection may stay.
    active: ActiveRequest,
    unwanted: Option<Unwanted>,
}

/// Gives a request to its conversation. One message is the whole answer as JSON; what comes before it makes a stream.
async fn ask(
    peer: &Peer,
    streams: &Arc<Streams>,
    id: &Id,
    value: Json,
    kept: ResponseGuard,
) -> Result<Response<Body>, Early> {
    let Some(mut messages) = streams.open(id) else {
        let error = RpcError::new(wire::INVALID_REQUEST, "this id is in use by a request that has no answer yet");
        return Err(early(StatusCode::BAD_REQUEST, Some(id), &error));
    };
    let open = OpenStream { streams: streams.clone(), id: id.clone() };
    peer.accept(value);
    let Some(first) = messages.recv().await else {
        let error = RpcError::new(wire::UNAVAILABLE, "the session ended");
        return Err(early(StatusCode::NOT_FOUND, Some(id), &error));
    };
    if first.get("method").is_none() {
        drop(open);
        let mut response = Response::new(Body::from(first.to_string()));
        *response.status_mut() = status_of(&first, kept.unwanted.is_some());
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        return Ok(response);
    }
    let (reader, writer, gone) = stream(kept);
    tokio::spawn(tell(first, messages, writer, gone, open));
    Ok(events_of(reader))
}

/// In the revision without state some errors have a status of their own.
fn status_of(message: &Json, stateless: bool) -> StatusCode {
    let code = message.get("error").and_then(|error| error.get("code")).and_then(Json::as_i64);
    match code {
        Some(wire::METHOD_NOT_FOUND) if stateless => StatusCode::NOT_FOUND,
        Some(wire::UNSUPPORTED_VERSION | wire::MISSING_CAPABILITY | wire::HEADER_MISMATCH) => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The stream of a request that is forgotten with this.
struct OpenStream {
    streams: Arc<Streams>,
    id: Id,
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.streams.close(&self.id);
    }
}

async fn tell(
    first: Json,
    mut messages: mpsc::Receiver<Json>,
    mut writer: DuplexStream,
    gone: CancellationToken,
    open: OpenStream,
) {
    let mut next = Some(first);
    while let Some(message) = next {
        if writer.write_all(format!("data: {message}\n\n").as_bytes()).await.is_err() {
            break;
        }
        next = loop {
            tokio::select! {
                message = messages.recv() => break message,
                () = tokio::time::sleep(ALIVE) => {
                    if writer.write_all(b":\n\n").await.is_err() {
                        break None;
                    }
                }
                () = gone.cancelled() => break None,
            }
        };
    }
    drop(open);
}

/// The body of a stream: what is written to the one end; the token is cancelled when nobody reads the other.
fn stream(kept: ResponseGuard) -> (Tail, DuplexStream, CancellationToken) {
    let (reader, writer) = tokio::io::duplex(64 << 10);
    let gone = CancellationToken::new();
    let guard = gone.clone().drop_guard();
    let ResponseGuard { active, unwanted } = kept;
    (Tail { reader, _gone: guard, _unwanted: unwanted, _stays: active }, writer, gone)
}

struct Tail {
    reader: DuplexStream,
    _gone: DropGuard,
    _unwanted: Option<Unwanted>,
    _stays: ActiveRequest,
}

impl AsyncRead for Tail {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(cx, buf)
    }
}

fn events_of(reader: Tail) -> Response<Body> {
    let mut response = Response::new(Body::from_stream(FramedRead::new(reader, BytesCodec::new())));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}
