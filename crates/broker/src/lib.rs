//! The broker: a process of its own for each run, which holds the sandbox's only sockets and does outside, after it judged
//! it, what the sandbox may not do itself.
//!
//! # Promises
//! It reads hostile bytes, so it is started inside a sandbox of its own (the process tier) and believed in nothing but
//! records. Its end closes its sockets: the network inside is gone at once, and nothing is open that was not judged.
//! # Does not promise
//! That what an allowed server says is harmless.
#![forbid(unsafe_code)]

mod control;
mod error;

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

pub use error::BrokerError;

/// Serves one run: reads its orders from `socket`, and does what they say until the other end closes.
///
/// # Errors
/// Orders that are not understood or not built yet; they are also said on `socket` as `failed`.
pub fn serve(socket: OwnedFd) -> Result<(), BrokerError> {
    let socket = UnixStream::from(socket);
    let (orders, sockets) = control::orders(&socket)?;
    let error = BrokerError::NotBuilt { run: orders.run, sockets: sockets.len() };
    control::failed(&socket, &error)?;
    Err(error)
}
