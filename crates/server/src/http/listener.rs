//! Sockets that are listened on: so many connections at once, heads of bounded size and time.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Response;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Server;

/// Most connections at once.
const MAX_CONNECTIONS: usize = 2048;
/// How long the head of a request may take, an idle connection's next one included.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Most bytes of a head.
const MAX_HEAD: usize = 64 * 1024;
/// Most headers of a request.
const MAX_HEADERS: usize = 100;
/// How long requests on their way are waited for at the end.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Where to listen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listen {
    /// An address; port 0 takes a free one.
    pub address: Option<SocketAddr>,
    /// A socket file, made 0600.
    pub socket: Option<PathBuf>,
}

/// Sockets that are listened on.
#[derive(Debug)]
pub struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, Made)>,
}

/// A socket file of ours: taken away at the end.
#[derive(Debug)]
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.0).is_err() {
            // The next start takes a dead socket away.
        }
    }
}

/// Listens. Must be called inside a runtime.
///
/// # Errors
/// What the kernel answers; a socket file on which somebody listens is left alone (EADDRINUSE).
pub async fn bind(listen: &Listen) -> io::Result<Listeners> {
    let tcp = match listen.address {
        Some(address) => Some(TcpListener::bind(address).await?),
        None => None,
    };
    let unix = match &listen.socket {
        Some(path) => {
            remove_dead(path).await?;
            let listener = UnixListener::bind(path)?;
            let made = Made(path.clone());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            Some((listener, made))
        }
        None => None,
    };
    Ok(Listeners { tcp, unix })
}

/// A socket that nobody listens on any more is in the way of the next one. Anything else there is not ours.
async fn remove_dead(path: &Path) -> io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => match UnixStream::connect(path).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
            Ok(_) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
        },
        Ok(_) => Err(io::ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

impl Listeners {
    /// Where they are: `http://127.0.0.1:7710`, `unix:/run/f.sock`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let tcp = self.tcp.as_ref().and_then(|tcp| tcp.local_addr().ok()).map(|address| format!("http://{address}"));
        let unix = self.unix.as_ref().map(|(_, Made(path))| format!("unix:{}", path.display()));
        tcp.into_iter().chain(unix).collect()
    }

    pub(super) async fn serve(self, server: Server, stop: impl Future<Output = ()> + Send) {
        let (places, stopped) = (Arc::new(Semaphore::new(MAX_CONNECTIONS)), CancellationToken::new());
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let place = tokio::select! {
                () = &mut stop => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            let Ok(io) = accepted else {
                // Out of descriptors, or gone before it was taken: try again, but not all the time.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let (server, stopped) = (server.clone(), stopped.clone());
            connections.spawn(async move {
                connection(io, server, stopped).await;
                drop(place);
            });
        }
        stopped.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(SHUTDOWN, all).await.is_err() {
            connections.shutdown().await;
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Io>> {
        let tcp = async {
            match &self.tcp {
                Some(tcp) => tcp.accept().await.map(|(stream, _)| {
                    // Small answers go out at once; without it they are only slower.
                    let _slower = stream.set_nodelay(true);
                    Box::new(stream) as Box<dyn Io>
                }),
                None => std::future::pending().await,
            }
        };
        let unix = async {
            match &self.unix {
                Some((unix, _)) => unix.accept().await.map(|(stream, _)| Box::new(stream) as Box<dyn Io>),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = tcp => accepted,
            accepted = unix => accepted,
        }
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn connection(io: Box<dyn Io>, server: Server, stopped: CancellationToken) {
    let service = service_fn(move |request: Request<Incoming>| {
        let server = server.clone();
        async move { Ok::<Response<Body>, Infallible>(server.answer(request.map(Body::new)).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD).max_headers(MAX_HEADERS);
    let serving = builder.serve_connection(TokioIo::new(io), service).with_upgrades();
    tokio::pin!(serving);
    let done = tokio::select! {
        done = serving.as_mut() => done,
        () = stopped.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    // A client that broke off, or whose sandbox did, is no failure of ours.
    drop(done);
}
