//! Requests of HTTP, judged one by one and handed on, in TLS or not.
//!
//! `hyper` stands on both sides; before it a reader of our own ([`guard`]) that lets nothing ambiguous through. Bodies go through
//! as they come.

#[cfg(test)]
mod fuzz;
mod guard;
mod heads;
mod request;
mod sending;
mod server;
mod wire;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use egress::denial::{self, Reason};
use egress::http::framing::MAX_HEADERS;
use egress::judge::Granted;
use egress::wire::{Denied, Head};
use http::header::{CONTENT_TYPE, EXPECT, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};
use tokio::time::timeout_at;

use crate::meter::Carried;
use crate::reach::{Aim, reached};
use crate::run::{ApprovalRequest, Run};
use crate::secrets::{Body, NotPut, Put};
use crate::stop::ConnectionEnd;
use crate::tls;
use guard::{FramingState, Guarded};
use sending::Sending;
use server::{Server, Tasks, Unanswered};
use wire::{Metered, Shared};

/// One connection of a program, with the one to its server.
struct Proxy {
    run: Rc<Run>,
    /// What it carries, on both sides.
    carried: Arc<Carried>,
    aim: Aim,
    /// The name for which TLS was opened, and by which the server is verified.
    opened: Option<String>,
    seen: Arc<FramingState>,
    /// The program speaks HTTP/2, and asks for several things at once.
    two: bool,
    server: RefCell<Option<Server>>,
    /// The server speaks HTTP/1 alone, so that several requests at once need several connections.
    speaks_one: Cell<bool>,
    /// Held by whoever begins a connection before that is known.
    beginning: Arc<Mutex<()>>,
    /// One clone for each connection to the server that lives, and this.
    servers: Rc<()>,
    /// What drives connections to the server.
    tasks: Tasks,
    /// Both sides of a protocol that was agreed on instead of HTTP.
    upgraded: RefCell<Option<(OnUpgrade, OnUpgrade)>>,
    /// Requests of which rules ask, and when a person agreed to one.
    agreed: RefCell<HashMap<Head, Instant>>,
}

/// Requests of one connection at once (HTTP/2); clients take 100 for granted until they are told.
const MAX_STREAMS: usize = 128;
/// The same, as it is announced.
const MAX_STREAMS_U32: u32 = 128;
/// Most bytes of a connection that are read before they are handed on (HTTP/1): the longest head, and a piece of its body.
const MAX_READ: usize = 2 * egress::http::framing::MAX_HEAD;
/// Most bytes of one request's headers (HTTP/2).
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// Most bytes of one request's body that wait here (HTTP/2): a program may send so much before it is read.
const MAX_WAITING: u32 = 16 << 10;
/// The same of a whole connection: each stream has its part, so that bodies which wait for something hold up no other one. A program
/// may begin with 64 KiB, before it knows how much one stream may have.
const MAX_ALL_WAITING: u32 = MAX_STREAMS_U32 * MAX_WAITING + (64 << 10);
/// Most bytes of one answer that wait for the program (HTTP/2).
const MAX_SEND: usize = 32 << 10;
/// How long a server may take from the connection to its answer to our hello.
const SERVER: Duration = Duration::from_millis(2800);
/// How long after a person agreed to a request the same one may come again, once.
const AGAIN: Duration = Duration::from_secs(60);
/// Most bytes of a denied request's body that are read to be dropped, so that the client sees the answer.
const MAX_DROPPED: usize = 64 << 20;
/// How long that may take.
const DROPPING: Duration = Duration::from_secs(10);
/// How long nothing of it may come.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves a connection whose first bytes are no TLS.
pub(crate) async fn serve(
    run: &Rc<Run>,
    stream: &Arc<TcpStream>,
    aim: &Aim,
    first: Vec<u8>,
) -> Result<(), ConnectionEnd> {
    let carried = Arc::new(Carried::new(Arc::clone(&run.meter)));
    let metered = Metered::inside(Arc::clone(stream), first, Arc::clone(&carried));
    requests(run, aim, (Shared::new(Box::new(metered)), carried), None).await
}

/// Ends the TLS of a program that asked for `name`, and serves what is in it.
pub(crate) async fn open(
    run: &Rc<Run>,
    stream: &Arc<TcpStream>,
    (aim, name): (&Aim, &str),
    first: Vec<u8>,
) -> Result<(), ConnectionEnd> {
    let Some(tls) = &run.tls else {
        return Err(ConnectionEnd::Denied(Reason::Malformed(
            "it is TLS, for which this run has no authority".to_owned(),
        )));
    };
    let carried = Arc::new(Carried::new(Arc::clone(&run.meter)));
    let metered = Metered::inside(Arc::clone(stream), first, Arc::clone(&carried));
    let opened = tls.accept(name, metered).await?;
    let two = opened.get_ref().1.alpn_protocol() == Some(tls::TWO);
    let io = (Shared::new(Box::new(opened)), carried);
    if two { streams(run, aim, io, name).await } else { requests(run, aim, io, Some(name.to_owned())).await }
}

/// Serves HTTP/2. Its framing has one reading; how much of it is held at once is bounded here, and by `h2` itself.
async fn streams(
    run: &Rc<Run>,
    aim: &Aim,
    (io, carried): (Shared, Arc<Carried>),
    name: &str,
) -> Result<(), ConnectionEnd> {
    let proxy = Rc::new(Proxy::new((run, carried), aim, (Some(name.to_owned()), true), Arc::default()));
    let ending = Ending(proxy.tasks.clone());
    let service = hyper::service::service_fn(|request| {
        let proxy = Rc::clone(&proxy);
        async move { proxy.answer(request).await }
    });
    let ended = reader_of_two(proxy.tasks.clone()).serve_connection(TokioIo::new(io), service).await;
    drop(ending);
    if run.meter.is_used() {
        return Err(ConnectionEnd::Denied(Reason::Bytes));
    }
    ended.map_err(|_broken| ConnectionEnd::Broken)
}

/// How a program's HTTP/1 is read, behind [`Guarded`].
fn reader_of_one() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.half_close(true).preserve_header_case(true).auto_date_header(false);
    builder.max_headers(MAX_HEADERS).max_buf_size(MAX_READ);
    builder
}

/// How a program's HTTP/2 is read.
fn reader_of_two(tasks: Tasks) -> http2::Builder<Tasks> {
    let mut builder = http2::Builder::new(tasks);
    builder.max_concurrent_streams(MAX_STREAMS_U32).max_header_list_size(MAX_HEADER_BYTES);
    builder.initial_stream_window_size(MAX_WAITING).initial_connection_window_size(MAX_ALL_WAITING);
    builder.max_send_buf_size(MAX_SEND).max_pending_accept_reset_streams(Some(MAX_STREAMS));
    builder.auto_date_header(false);
    builder
}

/// Ends what belongs to a connection when it goes, however it does.
struct Ending(Tasks);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn requests(
    run: &Rc<Run>,
    aim: &Aim,
    (io, carried): (Shared, Arc<Carried>),
    opened: Option<String>,
) -> Result<(), ConnectionEnd> {
    let seen = Arc::new(FramingState::new(Arc::clone(&run.heads)));
    let guarded = Guarded::new(io.clone(), Arc::clone(&seen));
    let proxy = Rc::new(Proxy::new((run, carried), aim, (opened, false), Arc::clone(&seen)));
    let _ending = Ending(proxy.tasks.clone());
    let service = hyper::service::service_fn(|request| {
        let proxy = Rc::clone(&proxy);
        async move { proxy.answer(request).await }
    });
    let ended = reader_of_one().serve_connection(TokioIo::new(guarded), service).with_upgrades().await;
    if let Some(why) = seen.refused() {
        let denied = run.denied(&Reason::Malformed(why.to_owned()), &aim.to, aim.port);
        return Ok(refuse(io, &denied).await?);
    }
    if run.meter.is_used() {
        return Err(ConnectionEnd::Denied(Reason::Bytes));
    }
    let upgraded = proxy.upgraded.borrow_mut().take();
    match (upgraded, ended) {
        (Some((program, server)), Ok(())) => {
            let (Ok(program), Ok(server)) = (program.await, server.await) else { return Err(ConnectionEnd::Broken) };
            tokio::io::copy_bidirectional(&mut TokioIo::new(program), &mut TokioIo::new(server)).await?;
            Ok(())
        }
        (None, Ok(())) => Ok(()),
        (_, Err(error)) => {
            // What comes in pieces may be refused by whoever reads on, before our own reader has all of it.
            if error.is_parse() {
                run.denied(&Reason::Malformed("a malformed request head".to_owned()), &aim.to, aim.port);
            }
            Err(ConnectionEnd::Broken)
        }
    }
}

/// Says why by hand, where the request never reached the proxy, and closes.
async fn refuse(mut io: Shared, denied: &Denied) -> io::Result<()> {
    let body = denial::body(denied).to_string();
    let head = format!(
        "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    io.write_all(format!("{head}{body}").as_bytes()).await?;
    io.shutdown().await?;
    // What was sent and not read would turn the end into a reset, and the answer with it.
    let drained = async {
        let mut buffer = vec![0; 4096];
        for _ in 0..64 {
            if io.read(&mut buffer).await? == 0 {
                break;
            }
        }
        Ok(())
    };
    tokio::time::timeout(Duration::from_millis(500), drained).await?
}

impl Proxy {
    fn new(
        (run, carried): (&Rc<Run>, Arc<Carried>),
        aim: &Aim,
        (opened, two): (Option<String>, bool),
        seen: Arc<FramingState>,
    ) -> Self {
        Self {
            run: Rc::clone(run),
            carried,
            aim: aim.clone(),
            opened,
            seen,
            two,
            server: RefCell::default(),
            speaks_one: Cell::default(),
            beginning: Arc::default(),
            servers: Rc::default(),
            tasks: Tasks::default(),
            upgraded: RefCell::default(),
            agreed: RefCell::default(),
        }
    }

    async fn answer(self: Rc<Self>, mut request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
        if let Err(reason) = self.judged(&request).await {
            let denied = self.denied(StatusCode::FORBIDDEN, &reason);
            let waits = request.headers().contains_key(EXPECT);
            return Ok(self.heard_out(&Sending::new(request.into_body(), waits).1, denied));
        }
        let parts = || (request.method().as_str().to_owned(), request.uri().path().to_owned());
        let asked = self.run.is_observed().then(parts);
        let trailers = self.two && request::wants_trailers(request.headers());
        let waits = request.headers().contains_key(EXPECT);
        let upgrade = request::prepare(&mut request, self.aim.way.reading).then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let (body, left) = Sending::new(body, waits);
        let request = Request::from_parts(parts, request::Trailed::new(body, self.aim.way.reading).boxed());
        let own = |answer: Response<Body>| Ok(self.heard_out(&left, answer));
        // Where its TLS was opened, ours to the server is verified before the request is sent.
        let put = self.run.secrets.put((&self.aim.to, self.aim.port), self.opened.is_some(), request).await;
        let Put { mut request, search, names } = match put {
            Ok(put) => put,
            Err(NotPut::Denied(reason)) => return own(self.denied(StatusCode::FORBIDDEN, &reason)),
            Err(NotPut::Broken(error)) => return Err(error),
        };
        let (mut server, again) = match self.server().await {
            Ok(server) => server,
            Err(ConnectionEnd::Denied(reason)) => return own(self.denied(StatusCode::FORBIDDEN, &reason)),
            Err(ConnectionEnd::Failed(why)) => {
                // Its certificate, or its handshake, as well as that nobody is there.
                self.run.unreached(&self.aim.to, self.aim.port, &why);
                return own(unreached(&why));
            }
            Err(ConnectionEnd::Broken) => return own(unreached("the connection to it broke")),
        };
        if let Some((method, path)) = asked {
            // Behind an upgrade nothing is read: of that nobody is to learn a rule about requests.
            let read = upgrade.is_none().then_some((method.as_str(), path.as_str()));
            self.run.seen(&self.aim.to, self.aim.port, read);
        }
        let is_last = match server {
            Server::Two(..) => {
                request::in_two(&mut request, trailers);
                false
            }
            Server::One(..) => request::in_one(&mut request),
        };
        self.run.secrets.sent(&names);
        let mut response = match server.send(request).await {
            Ok(response) => response,
            // A server may close a kept connection while a request is on its way: the program learns it as it would without us.
            Err(Unanswered::Broke(error)) if again => return Err(error),
            Err(error) => return own(unreached(&error.to_string())),
        };
        if !is_last {
            *self.server.borrow_mut() = Some(server);
        }
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(program) = upgrade else { return Ok(unreached("it switched protocols, which nobody asked for")) };
            let server = hyper::upgrade::on(&mut response);
            *self.upgraded.borrow_mut() = Some((program, server));
            self.seen.raw();
            return Ok(response.map(BodyExt::boxed));
        }
        if response.headers().len() > MAX_HEADERS {
            return Ok(unreached("its answer has too many headers"));
        }
        let mut response = response.map(BodyExt::boxed);
        if let Some(search) = search {
            response = match search.answer(response) {
                Ok(response) => response,
                Err(reason) => return Ok(self.denied(StatusCode::BAD_GATEWAY, &reason)),
            };
        }
        request::strip(response.headers_mut());
        Ok(response)
    }

    /// Judges a request, and waits for a person where rules ask about it.
    async fn judged<B>(&self, request: &Request<B>) -> Result<(), Reason> {
        match request::judge(&self.run.rules(), &self.aim, request)? {
            Granted::Allowed => return Ok(()),
            Granted::Ask => {}
        }
        let (method, path) = (request.method().as_str().to_owned(), request.uri().path());
        // As rules judge it: a letter that is written as `%70` is nobody's to decode. What cannot be shown so is shown as it came.
        let decoded = egress::http::path::plain(path).ok().filter(|path| path.bytes().all(|b| b.is_ascii_graphic()));
        let websocket = request::wants_websocket(request);
        let head = Head { method: method.clone(), path: decoded.unwrap_or_else(|| path.to_owned()), websocket };
        // Git asks with a small request whether a large one would be taken: that one is meant as well, and no third.
        if self.agreed.borrow_mut().remove(&head).is_some_and(|agreed| agreed.elapsed() < AGAIN) {
            return Ok(());
        }
        let asked = ApprovalRequest { host: self.aim.to.to_string(), port: self.aim.port, request: Some(head.clone()) };
        if !self.run.ask(&asked).await {
            return Err(Reason::AskedOf(method));
        }
        self.agreed.borrow_mut().insert(head, Instant::now());
        Ok(())
    }

    /// Says why to the program, and records it.
    fn denied(&self, status: StatusCode, reason: &Reason) -> Response<Body> {
        let denied = self.run.denied(reason, &self.aim.to, self.aim.port);
        said(status, denial::body(&denied).to_string())
    }

    /// An answer of our own to a request whose body still comes, for clients that read answers when they have sent all: what comes is
    /// dropped for a while. Nobody is asked for a body that waits for that.
    fn heard_out(&self, left: &Sending, answer: Response<Body>) -> Response<Body> {
        let Some(body) = left.take() else { return answer };
        let rest = dropped(body);
        if !self.two {
            self.tasks.spawn(rest);
            return answer;
        }
        // The end of the answer would take the stream back, and clients would tell of that alone.
        let late = async {
            rest.await;
            None
        };
        answer.map(|body| body.with_trailers(late).boxed())
    }

    /// The connection to the server, and whether it was used before.
    async fn server(self: &Rc<Self>) -> Result<(Server, bool), ConnectionEnd> {
        let until = tokio::time::Instant::now() + SERVER;
        let turn = self.turn(until).await?;
        let kept = self.server.borrow_mut().take();
        if let Some(mut server) = kept
            && server.is_free(!self.two).await
        {
            if let Some(again) = server.again() {
                *self.server.borrow_mut() = Some(again);
            }
            return Ok((server, true));
        }
        // What asks for several things at once may need several connections: each more counts as one of the program's.
        let more = self.two && Rc::strong_count(&self.servers) > 1;
        let place =
            more.then(|| self.run.place(&self.aim.to, self.aim.port)).transpose().map_err(ConnectionEnd::Denied)?;
        let servers = Rc::clone(&self.servers);
        // Both are held for as long as it lives. The first one goes with the program's own.
        let cut = async move {
            match &place {
                Some(place) => place.open.cut.notified().await,
                None => std::future::pending().await,
            }
            drop(servers);
        };
        // A request that is taken back meanwhile leaves its connection to the next one: else a program that asks and takes back
        // would have a server begin a connection for each.
        let (told, heard) = oneshot::channel();
        let proxy = Rc::clone(self);
        self.tasks.spawn(async move {
            let connected = proxy.connected(cut, until).await;
            match &connected {
                Ok(server @ Server::Two(..)) => *proxy.server.borrow_mut() = server.again(),
                Ok(Server::One(..)) => proxy.speaks_one.set(true),
                Err(_) => {}
            }
            drop(turn);
            if let Err(Ok(server)) = told.send(connected) {
                proxy.server.borrow_mut().get_or_insert(server);
            }
        });
        heard.await.unwrap_or(Err(ConnectionEnd::Broken)).map(|server| (server, false))
    }

    /// Waits while the first connection is begun, where the program asks for several things at once: of HTTP/2 one is enough, and
    /// which version the server speaks is known then.
    async fn turn(&self, until: tokio::time::Instant) -> Result<Option<OwnedMutexGuard<()>>, ConnectionEnd> {
        if !self.two || self.speaks_one.get() {
            return Ok(None);
        }
        let turn = timeout_at(until, Arc::clone(&self.beginning).lock_owned()).await;
        let turn = turn.map_err(|_late| ConnectionEnd::Failed(format!("{} cannot be reached in time", self.aim.to)))?;
        Ok(Some(turn).filter(|_| !self.speaks_one.get()))
    }

    /// A new connection to the server, which ends with `cut` and holds it for as long as it lives.
    async fn connected(
        &self,
        cut: impl Future<Output = ()> + 'static,
        until: tokio::time::Instant,
    ) -> Result<Server, ConnectionEnd> {
        let late = |_| Err(ConnectionEnd::Failed(format!("{} cannot be reached in time", self.aim.to)));
        let stream = timeout_at(until, reached(&self.run, &self.aim)).await.unwrap_or_else(late)?;
        let stream = Metered::outside(stream, Arc::clone(&self.carried));
        let life = (&self.tasks, cut);
        let server = match (&self.opened, &self.run.tls) {
            (Some(name), Some(tls)) => {
                let stream = tls.connect((name, self.two), stream, until).await.map_err(ConnectionEnd::Failed)?;
                let two = stream.get_ref().1.alpn_protocol() == Some(tls::TWO);
                if two { Server::two(Box::new(stream), life).await } else { Server::one(Box::new(stream), life).await }
            }
            (Some(_), None) => return Err(ConnectionEnd::Failed("this run has no authority".to_owned())),
            (None, _) => Server::one(Box::new(stream), life).await,
        };
        let server = server.map_err(|error| ConnectionEnd::Failed(error.to_string()))?;
        self.run.passed();
        Ok(server)
    }
}

/// Reads what still comes of a body, and keeps nothing of it.
async fn dropped(mut body: Incoming) {
    let until = tokio::time::Instant::now() + DROPPING;
    let mut most = MAX_DROPPED;
    while let Ok(Some(Ok(frame))) = timeout_at(until.min(tokio::time::Instant::now() + PAUSE), body.frame()).await {
        most = most.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
        if most == 0 {
            break;
        }
    }
}

fn said(status: StatusCode, body: String) -> Response<Body> {
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The server's side failed: never a 403, which is ours.
fn unreached(why: &str) -> Response<Body> {
    let what = "the server could not be reached; this is no denial";
    said(StatusCode::BAD_GATEWAY, serde_json::json!({ "what": what, "why": why }).to_string())
}
