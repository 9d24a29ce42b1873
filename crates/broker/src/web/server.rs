//! The connection to a server, by either version of HTTP.

use std::cell::RefCell;
use std::rc::Rc;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use tokio::task::JoinSet;

use super::wire::Io;
use super::{Body, MAX_HEADER_BYTES, MAX_STREAMS};

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
    /// HTTP/1: one request at a time.
    One(http1::SendRequest<Body>),
    /// HTTP/2.
    Two(http2::SendRequest<Body>),
}

impl Server {
    /// Speaks HTTP/1.
    pub(super) async fn one<T: 'static>(io: Box<dyn Io>, (tasks, kept): (&Tasks, T)) -> hyper::Result<Self> {
        let (mut server, connection) = http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(egress::http::framing::MAX_HEADERS)
            .handshake(TokioIo::new(io))
            .await?;
        tasks.spawn(async move {
            // How it ended is what the request on it is told.
            drop(connection.with_upgrades().await);
            drop(kept);
        });
        server.ready().await?;
        Ok(Self::One(server))
    }

    /// Speaks HTTP/2.
    pub(super) async fn two<T: 'static>(io: Box<dyn Io>, (tasks, kept): (&Tasks, T)) -> hyper::Result<Self> {
        let (mut server, connection) = http2::Builder::new(tasks.clone())
            .initial_max_send_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEADER_BYTES)
            .handshake(TokioIo::new(io))
            .await?;
        tasks.spawn(async move {
            drop(connection.await);
            drop(kept);
        });
        server.ready().await?;
        Ok(Self::Two(server))
    }

    /// Whether another request can go on it; `wait`: as soon as the one before is answered.
    pub(super) async fn is_free(&mut self, wait: bool) -> bool {
        match self {
            Self::One(server) if wait => server.ready().await.is_ok(),
            Self::One(server) => server.is_ready(),
            Self::Two(server) => server.ready().await.is_ok(),
        }
    }

    pub(super) async fn send(&mut self, request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        match self {
            Self::One(server) => server.send_request(request).await,
            Self::Two(server) => server.send_request(request).await,
        }
    }
}
