//! Sockets that are listened on.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::Server;
use super::connection::{Accepted, Common, serve};
use super::finish::Detached;
use super::tls::{TlsFiles, acceptor};
use crate::docker::OfDocker;
use crate::places::{ConnectionLimits, Places};

/// Most connections.
const MAX_CONNECTIONS: ConnectionLimits = ConnectionLimits { all: 2048, of_one: 256 };
/// How long requests on their way are waited for at the end.
const SHUTDOWN: Duration = Duration::from_secs(2);

/// Where to listen.
#[derive(Debug, Default)]
pub struct Listen {
    /// An address; port 0 takes a free one.
    pub address: Option<SocketAddr>,
    /// A socket file, made 0600.
    pub socket: Option<PathBuf>,
    /// A socket file of Docker's clients, made 0600; it answers this user and root alone.
    pub docker: Option<PathBuf>,
    /// What connections to the address are encrypted by; none: not at all.
    pub tls: Option<TlsFiles>,
    /// Sockets that somebody listens on for us already (systemd): TCP or unix.
    pub inherited: Vec<OwnedFd>,
}

/// Sockets that are listened on.
pub struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    docker: Option<UnixListener>,
    tls: Option<TlsAcceptor>,
    made: Vec<SocketFile>,
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners").field("addresses", &self.addresses()).finish_non_exhaustive()
    }
}

/// A socket file of ours: taken away at the end.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if std::fs::remove_file(&self.0).is_err() {
            // The next start takes a dead socket away.
        }
    }
}

/// Listens. Must be called inside a runtime.
///
/// # Errors
/// What the kernel answers; a socket file on which somebody listens is left alone (EADDRINUSE). A certificate or key that
/// cannot be used; an address, or an inherited socket, that others could reach without TLS.
pub async fn bind(listen: Listen) -> io::Result<Listeners> {
    let tls = listen.tls.as_ref().map(acceptor).transpose()?;
    let mut all = Listeners { tcp: Vec::new(), unix: Vec::new(), docker: None, tls, made: Vec::new() };
    if let Some(address) = listen.address {
        all.listen_on(TcpListener::bind(address).await?)?;
    }
    if let Some(path) = &listen.socket {
        let socket = all.made(path).await?;
        all.unix.push(socket);
    }
    if let Some(path) = &listen.docker {
        all.docker = Some(all.made(path).await?);
    }
    for socket in listen.inherited {
        all.adopt(socket)?;
    }
    Ok(all)
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
    /// A socket file of our own.
    async fn made(&mut self, path: &Path) -> io::Result<UnixListener> {
        remove_dead(path).await?;
        let socket = UnixListener::bind(path)?;
        self.made.push(SocketFile(path.to_owned()));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }

    /// Takes over a socket.
    fn adopt(&mut self, socket: OwnedFd) -> io::Result<()> {
        rustix::fs::fcntl_setfl(&socket, rustix::fs::OFlags::NONBLOCK)?;
        if rustix::net::sockopt::socket_domain(&socket)? == rustix::net::AddressFamily::UNIX {
            self.unix.push(UnixListener::from_std(socket.into())?);
            return Ok(());
        }
        self.listen_on(TcpListener::from_std(socket.into())?)
    }

    /// # Errors
    /// Others could reach it, and nothing would be encrypted.
    fn listen_on(&mut self, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        if !address.ip().is_loopback() && self.tls.is_none() {
            let why = format!("others could reach {address}, and nothing is encrypted without --tls-cert");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        self.tcp.push(listener);
        Ok(())
    }

    /// Where they are: `http://127.0.0.1:7710`, `unix:/run/f.sock`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let tcp =
            self.tcp.iter().filter_map(|tcp| tcp.local_addr().ok()).map(|address| format!("{scheme}://{address}"));
        let path = |unix: &UnixListener| Some(unix.local_addr().ok()?.as_pathname()?.display().to_string());
        let unix = self.unix.iter().filter_map(path).map(|path| format!("unix:{path}"));
        let docker = self.docker.iter().filter_map(path).map(|path| format!("unix://{path} (DOCKER_HOST)"));
        tcp.chain(unix).chain(docker).collect()
    }

    pub(super) async fn serve(self, server: Server, stop: impl Future<Output = ()> + Send) {
        let places = Places::new(MAX_CONNECTIONS);
        let common = Common { server, stopped: CancellationToken::new(), detached: Detached::default() };
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            let accepted = tokio::select! {
                () = &mut stop => break,
                accepted = self.accept() => accepted,
            };
            while connections.try_join_next().is_some() {}
            let Ok((peer, accepted)) = accepted else {
                // Out of descriptors, or gone before it was taken: try again, but not all the time.
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // Where all are at work the newest goes: nobody waits for it to.
            let Some(place) = places.take(peer) else { continue };
            connections.spawn(serve(accepted, place, common.clone()));
        }
        common.stopped.cancel();
        let until = Instant::now() + SHUTDOWN;
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout_at(until, all).await.is_err() {
            connections.shutdown().await;
        }
        common.detached.end(until).await;
    }

    /// The next connection, from whichever socket.
    async fn accept(&self) -> io::Result<(Option<IpAddr>, Accepted)> {
        std::future::poll_fn(|cx| self.poll_accept(cx)).await
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Option<IpAddr>, Accepted)>> {
        for tcp in &self.tcp {
            if let Poll::Ready(accepted) = tcp.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, peer)| (Some(peer.ip()), self.over_tcp(stream))));
            }
        }
        for unix in &self.unix {
            if let Poll::Ready(accepted) = unix.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, _)| (None, over_unix(stream))));
            }
        }
        while let Some(docker) = &self.docker {
            let Poll::Ready(accepted) = docker.poll_accept(cx) else { break };
            let (stream, _) = accepted?;
            if is_ours(&stream) {
                let docker = Some(OfDocker(Arc::new(stream.as_fd().try_clone_to_owned()?)));
                return Poll::Ready(Ok((None, Accepted { docker, ..over_unix(stream) })));
            }
        }
        Poll::Pending
    }

    fn over_tcp(&self, stream: TcpStream) -> Accepted {
        // Small answers go out at once; without it they are only slower.
        let _slower = stream.set_nodelay(true);
        let is_loopback = stream.local_addr().is_ok_and(|address| address.ip().is_loopback());
        Accepted { io: Box::new(stream), tls: self.tls.clone(), is_loopback, docker: None }
    }
}

/// Whether this user or root is at the other end.
fn is_ours(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0)
}

fn over_unix(stream: UnixStream) -> Accepted {
    Accepted { io: Box::new(stream), tls: None, is_loopback: false, docker: None }
}
