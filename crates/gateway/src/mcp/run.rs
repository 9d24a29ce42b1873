//! The runtime around a gateway: the only place of the front doors that starts one.

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;

use gate::call::Caller;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::unix::pipe;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;

use super::client_requests::handle;
use super::front::{self, stdio};
use super::gateway::Gateway;
use crate::http::{Keys, Listen};

/// Serves one client over the standard streams of this process until it closes them, or a signal comes.
///
/// # Errors
/// Why there is no runtime.
pub fn over_stdio(gateway: Gateway, agent: &str) -> Result<(), String> {
    let caller = Caller { agent: agent.to_owned(), session: session_id()?, key: None };
    block_on(async move |stop| {
        let gateway = Arc::new(gateway);
        stdio::serve(&gateway, caller, input(), output(), stop).await;
    })
}

/// Serves one client of any handler over the standard streams of this process.
///
/// # Errors
/// Why there is no runtime.
pub fn handler_over_stdio<H: crate::mcp::peer::Handler>(handler: Arc<H>) -> Result<(), String> {
    block_on(async move |stop| stdio::converse(handler, input(), output(), stop, std::future::ready(())).await)
}

/// Serves clients over HTTP on this machine until a signal comes. `told` gets the address before the first
/// request is taken.
///
/// # Errors
/// Why it cannot listen there, or that there is no runtime.
pub fn over_http(
    gateway: Gateway,
    listen: &Listen,
    keys: Keys,
    origins: Vec<String>,
    told: impl FnOnce(&str),
) -> Result<(), String> {
    let served = block_on(async move |stop| {
        let listener = crate::http::bind(listen).await?;
        told(&listener.address());
        front::http::serve(listener, Arc::new(gateway), keys, origins, stop).await
    })?;
    served.map_err(|error| error.to_string().to_lowercase())
}

/// The runtime of a front door.
///
/// # Errors
/// The host refused its threads or descriptors.
pub fn runtime() -> std::io::Result<Runtime> {
    // Two threads: one to wait and one to work, also where a store is slow.
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Runs to its end what a front door does; `stop` comes with a signal.
///
/// # Errors
/// Why there is no runtime.
pub fn block_on<T>(serve: impl AsyncFnOnce(CancellationToken) -> T) -> Result<T, String> {
    let runtime = runtime().map_err(|error| error.to_string().to_lowercase())?;
    Ok(runtime.block_on(async {
        let stop = CancellationToken::new();
        tokio::spawn(signals(stop.clone()));
        serve(stop).await
    }))
}

async fn signals(stop: CancellationToken) {
    use tokio::signal::unix::{SignalKind, signal};
    let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
    let mut all = Vec::new();
    for kind in kinds {
        if let Ok(mut one) = signal(kind) {
            let waiting: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
                one.recv().await;
            });
            all.push(waiting);
        }
    }
    let mut set = tokio::task::JoinSet::new();
    for one in all {
        set.spawn(one);
    }
    set.join_next().await;
    stop.cancel();
}

/// A name that nobody can guess.
///
/// # Errors
/// If the kernel gives no random bytes.
pub fn session_id() -> Result<String, String> {
    handle().map_err(|error| error.message)
}

/// stdin; where it is a pipe without a thread in between.
#[must_use]
pub fn input() -> Box<dyn AsyncRead + Send + Unpin> {
    let own = std::io::stdin().as_fd().try_clone_to_owned();
    match own.map(pipe::Receiver::from_owned_fd) {
        Ok(Ok(pipe)) => Box::new(pipe),
        Ok(Err(_)) | Err(_) => Box::new(tokio::io::stdin()),
    }
}

/// stdout; where it is a pipe without a thread in between.
#[must_use]
pub fn output() -> Box<dyn AsyncWrite + Send + Unpin> {
    let own = std::io::stdout().as_fd().try_clone_to_owned();
    match own.map(pipe::Sender::from_owned_fd) {
        Ok(Ok(pipe)) => Box::new(pipe),
        Ok(Err(_)) | Err(_) => Box::new(tokio::io::stdout()),
    }
}
