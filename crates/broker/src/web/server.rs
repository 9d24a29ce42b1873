//! The connection to a server, by either version of HTTP.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::JoinSet;

use super::heads::Heads;
use super::wire::Io;
use super::{Body, MAX_HEADER_BYTES, MAX_READ, MAX_STREAMS};

/// Most heads (1xx) before the answer of a request.
pub(super) const MAX_BEFORE: usize = 32;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error(transparent)]
    Broke(hyper::Error),
    #[error("it says what comes before an answer (1xx) without end")]
    Endless,
}

/// Tasks of one connection of a program; they end with it.
#[derive(Clone, Default)]
pub(super) struct Tasks(Rc<RefCell<JoinSet<()>>>);

impl Tasks {
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.borrow_mut();
        while tasks.try_join_next().is_some() {}
        tasks.spawn_local(task);
    }

    /// Ends all of them; who holds a clone inside one of them would else keep them alive.
    pub(super) fn end(&self) {
        self.0.borrow_mut().abort_all();
    }
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// Sends requests to a server.
pub(super) enum Server {
    /// HTTP/1: one request at a time; what ends the connection.
    One(http1::SendRequest<Body>, Arc<AtomicBool>),
    /// HTTP/2; what ends the connection.
    Two(http2::SendRequest<Body>, Arc<AtomicBool>),
}

/// What comes of the first before the second has ended.
async fn race<T>(work: impl Future<Output = T>, until: impl Future<Output = ()>) -> Option<T> {
    tokio::select! {
        biased;
        () = until => None,
        done = work => Some(done),
    }
}

impl Server {
    /// Speaks HTTP/1, until that time.
    pub(super) async fn one<T>(io: Box<dyn Io>, (tasks, until): (&Tasks, T)) -> hyper::Result<Self>
    where
        T: Future<Output = ()> + 'static,
    {
        let ended = Arc::new(AtomicBool::new(false));
        let (mut server, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(egress::http::framing::MAX_HEADERS)
            .max_buf_size(MAX_READ)
            .handshake(TokioIo::new(Ending { io, ended: Arc::clone(&ended), heads: None }))
            .await?;
        tasks.spawn(async move {
            // How it ended is what the request on it is told.
            drop(race(connection.with_upgrades(), until).await);
        });
        server.ready().await?;
        Ok(Self::One(server, ended))
    }

    /// Speaks HTTP/2, until that time.
    pub(super) async fn two<T>(io: Box<dyn Io>, (tasks, until): (&Tasks, T)) -> hyper::Result<Self>
    where
        T: Future<Output = ()> + 'static,
    {
        let ended = Arc::new(AtomicBool::new(false));
        let ending = Ending { io, ended: Arc::clone(&ended), heads: Some(Heads::default()) };
        let (mut server, connection) = http2::Builder::new(tasks.clone())
            .initial_max_send_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(ending))
            .await?;
        tasks.spawn(async move {
            drop(race(connection, until).await);
        });
        server.ready().await?;
        Ok(Self::Two(server, ended))
    }

    /// The same connection again, where several requests may be on it at once.
    pub(super) fn again(&self) -> Option<Self> {
        match self {
            Self::One(..) => None,
            Self::Two(server, ended) => Some(Self::Two(server.clone(), Arc::clone(ended))),
        }
    }

    /// Whether another request can go on it; `wait`: as soon as the one before is answered.
    pub(super) async fn is_free(&mut self, wait: bool) -> bool {
        match self {
            Self::One(server, _) if wait => server.ready().await.is_ok(),
            Self::One(server, _) => server.is_ready(),
            Self::Two(server, _) => server.ready().await.is_ok(),
        }
    }

    pub(super) async fn send(&mut self, mut request: Request<Body>) -> Result<Response<Incoming>, Unanswered> {
        let (answer, ended) = match self {
            Self::One(server, ended) => {
                end_what_never_begins(&mut request, ended);
                (server.send_request(request).await, ended)
            }
            Self::Two(server, ended) => (server.send_request(request).await, ended),
        };
        answer.map_err(|error| match ended.load(Ordering::Relaxed) {
            true => Unanswered::Endless,
            false => Unanswered::Broke(error),
        })
    }
}

/// Ends the connection where there are too many heads (1xx) before the answer of a request. They are read one after the other, for
/// as long as they come, and nobody else has a turn meanwhile.
fn end_what_never_begins(request: &mut Request<Body>, ended: &Arc<AtomicBool>) {
    let (ended, count) = (Arc::clone(ended), AtomicUsize::new(0));
    hyper::ext::on_informational(request, move |_head| {
        if count.fetch_add(1, Ordering::Relaxed) >= MAX_BEFORE {
            ended.store(true, Ordering::Relaxed);
        }
    });
}

/// A connection of which nothing more is read when it has ended.
struct Ending {
    io: Box<dyn Io>,
    ended: Arc<AtomicBool>,
    /// Of HTTP/2, whose client tells nobody what comes before an answer.
    heads: Option<Heads>,
}

impl AsyncRead for Ending {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.ended.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf))?;
        let read = buf.filled().get(before..).unwrap_or_default();
        if self.heads.as_mut().is_some_and(|heads| !heads.follow(read)) {
            self.ended.store(true, Ordering::Relaxed);
            buf.set_filled(before);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ending {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
