//! Why a connection ends before its time.

use std::io;

use egress::denial::Reason;

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
