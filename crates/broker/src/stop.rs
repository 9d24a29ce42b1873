//! Why a connection ends before its time.

use std::io;

use egress::denial::Reason;
use tokio::net::TcpStream;

/// Why a connection ends before its time.
#[derive(Debug)]
pub(crate) enum ConnectionEnd {
    /// It may not.
    Denied(Reason),
    /// Its server cannot be reached: why.
    Failed(String),
    /// One side broke off.
    Broken,
}

impl From<io::Error> for ConnectionEnd {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::QuotaExceeded { Self::Denied(Reason::Bytes) } else { Self::Broken }
    }
}

/// From now on the end of a connection is a reset: the other side learns at once that nothing more comes, and never takes what it has
/// for the whole. So it is from the beginning, since a broker that is killed does nothing more: the kernel then closes for it.
pub(crate) fn reset(stream: &TcpStream) {
    // A socket that refuses this is closed all the same.
    drop(stream.set_zero_linger());
}

/// It came to its own end: what was written still goes, and then that nothing more comes.
pub(crate) fn orderly(stream: &TcpStream) {
    // As above.
    let _refused = rustix::net::sockopt::set_socket_linger(stream, None);
}
