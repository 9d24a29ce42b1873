//! Listening: on the loopback or on a Unix socket, to so many connections at once, and not for long to those that show no
//! token or send no request.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::Sleep;
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::connections::{ActiveRequest, Activity, ConnectionTable, Owner, Slot};

/// How long a connection may live before its first good token.
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a known one may take to say the whole head of its next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A loopback address; port 0 takes a free one.
    Loopback(SocketAddr),
    /// A socket file, made 0600.
    Unix(PathBuf),
}

impl Listen {
    /// `127.0.0.1:8080`, `[::1]:8080` or `unix:PATH`.
    ///
    /// # Errors
    /// Why not: an address that others could reach, or none at all.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = PathBuf::from(path);
            return if path.is_absolute() { Ok(Self::Unix(path)) } else { Err("the path is not absolute".to_owned()) };
        }
        let address: SocketAddr =
            text.parse().map_err(|error| format!("it is neither IP:PORT nor unix:PATH: {error}"))?;
        if address.ip().is_loopback() {
            Ok(Self::Loopback(address))
        } else {
            Err("others could reach it, and nothing here is encrypted".to_owned())
        }
    }
}

/// A socket that is listened on.
#[derive(Debug)]
pub struct HttpListener {
    socket: Socket,
    table: ConnectionTable,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile),
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
/// What the kernel answers; a socket file on which somebody listens is left alone (EADDRINUSE).
pub async fn bind(listen: &Listen) -> io::Result<HttpListener> {
    let socket = match listen {
        Listen::Loopback(address) => Socket::Tcp(TcpListener::bind(address).await?),
        Listen::Unix(path) => {
            remove_dead(path).await?;
            let listener = UnixListener::bind(path)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            Socket::Unix(listener, SocketFile(path.clone()))
        }
    };
    Ok(HttpListener { socket, table: ConnectionTable::default() })
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

impl HttpListener {
    /// Where it is: `http://127.0.0.1:PORT`, or `unix:PATH`.
    #[must_use]
    pub fn address(&self) -> String {
        match &self.socket {
            Socket::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|_| "http://127.0.0.1".to_owned(), |address| format!("http://{address}")),
            Socket::Unix(_, SocketFile(path)) => format!("unix:{}", path.display()),
        }
    }

    /// The port, if it has one: what a Host header must name.
    pub(crate) fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Socket::Unix(..) => None,
        }
    }

    /// Its connections.
    pub(super) fn connections(&self) -> ConnectionTable {
        self.table.clone()
    }
}

/// What a request's connection knows of itself.
#[derive(Clone, Debug)]
pub struct Peer {
    table: ConnectionTable,
    id: u64,
}

impl Peer {
    /// It has shown a good token: it lives for as long as its request takes. None if as many connections of this token as
    /// may be have an active request.
    pub(crate) fn authenticated(&self, owner: Owner) -> Option<ActiveRequest> {
        self.table.request(self.id, owner)
    }
}

impl Connected<IncomingStream<'_, HttpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, HttpListener>) -> Self {
        stream.remote_addr().clone()
    }
}

impl Listener for HttpListener {
    type Io = Connection;
    type Addr = Peer;

    async fn accept(&mut self) -> (Connection, Peer) {
        loop {
            self.table.wait_for_slot().await;
            let stream = match &self.socket {
                Socket::Tcp(listener) => listener.accept().await.map(|(stream, _)| Stream::Tcp(stream)),
                Socket::Unix(listener, _) => listener.accept().await.map(|(stream, _)| Stream::Unix(stream)),
            };
            let Ok(stream) = stream else {
                // Out of descriptors, or gone before it was taken: try again, but not all the time.
                self.table.drop_oldest();
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            if let Stream::Unix(stream) = &stream
                && stream.peer_cred().map(|peer| peer.uid()).ok() != Some(rustix::process::geteuid().as_raw())
            {
                continue;
            }
            let slot = self.table.add();
            let peer = Peer { table: self.table.clone(), id: slot.id() };
            return (Connection::new(stream, slot), peer);
        }
    }

    fn local_addr(&self) -> io::Result<Peer> {
        // Nobody's number: numbers are given out from zero.
        Ok(Peer { table: self.table.clone(), id: u64::MAX })
    }
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that ends by itself unless it shows a good token soon, and then says what it wants.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    slot: Slot,
    /// Somebody else needs its slot.
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    activity: Activity,
    /// The end of its time.
    until: Option<Pin<Box<Sleep>>>,
}

impl Connection {
    fn new(stream: Stream, slot: Slot) -> Self {
        let closing = Box::pin(slot.closing().cancelled_owned());
        Self {
            stream,
            slot,
            closing,
            activity: Activity::Unauthenticated,
            until: Some(Box::pin(tokio::time::sleep(UNAUTHENTICATED_TIMEOUT))),
        }
    }

    /// Whether its time is over, or its slot needed.
    fn must_close(&mut self, cx: &mut Context<'_>) -> bool {
        if self.closing.as_mut().poll(cx).is_ready() {
            return true;
        }
        let activity = self.slot.activity();
        if activity != self.activity {
            self.activity = activity;
            self.until = match activity {
                Activity::Busy => None,
                Activity::Idle(_) => Some(Box::pin(tokio::time::sleep(IDLE_TIMEOUT))),
                Activity::Unauthenticated => Some(Box::pin(tokio::time::sleep(UNAUTHENTICATED_TIMEOUT))),
            };
        }
        self.until.as_mut().is_some_and(|until| until.as_mut().poll(cx).is_ready())
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.must_close(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        match &mut self.stream {
            Stream::Tcp(stream) => pin!(stream).poll_read(cx, buffer),
            Stream::Unix(stream) => pin!(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.must_close(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        match &mut self.stream {
            Stream::Tcp(stream) => pin!(stream).poll_write(cx, bytes),
            Stream::Unix(stream) => pin!(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => pin!(stream).poll_flush(cx),
            Stream::Unix(stream) => pin!(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Tcp(stream) => pin!(stream).poll_shutdown(cx),
            Stream::Unix(stream) => pin!(stream).poll_shutdown(cx),
        }
    }
}
