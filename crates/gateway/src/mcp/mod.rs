//! The MCP front doors: a gateway before upstream servers, and our own server, over one broker.
//!
//! The protocol's core is our own, because the gateway must own what a library for one side keeps to itself: both id spaces,
//! what is dropped, how much of a frame is read, and every key that it does not understand. `rmcp` carries HTTP to upstream
//! servers and is the other side of our tests.

pub mod allow;
mod catalog;
mod client_requests;
pub mod containers;
mod convert;
mod elicit;
pub mod front;
pub mod gateway;
pub mod jsonc;
mod listen;
mod lists;
pub mod names;
pub mod packages;
mod patience;
pub mod peer;
pub mod pins;
pub mod protocol;
mod pushed;
pub mod run;
pub mod servers;
mod session;
pub mod upstream_pool;

pub mod text;
mod tools;
mod unread;
pub mod upstream;
pub mod wire;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use convert::written;
pub use front::stdio;
pub use gateway::{Gateway, GatewayPolicy, pinning};
pub use session::Session;
pub use tools::denial_text;

/// Taken whoever held it: the product ends at a panic, and so never finds a lock of somebody who broke off.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names the one TLS library that is linked. Twice is as good as once.
fn install_tls() {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        // Somebody has named it already.
    }
}
