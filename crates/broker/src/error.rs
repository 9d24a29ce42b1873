//! Why the broker cannot serve.

use egress::wire::Malformed;
use rustix::io::Errno;

/// Why the broker ends.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The socket to the engine.
    #[error("the socket to the engine: {call}: {errno}")]
    Socket {
        /// The system call.
        call: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// The engine closed before its orders were whole.
    #[error("the engine closed its socket before its orders were whole")]
    NoOrders,
    /// What came is no frame, or not the one that must come first.
    #[error("the engine's orders: {0}")]
    Orders(String),
    /// Rules that cannot be held.
    #[error("the rules: {0}")]
    Rules(String),
    /// More or fewer descriptors than the orders name.
    #[error("the orders name {named} sockets, {came} descriptors came")]
    Descriptors {
        /// In the orders.
        named: usize,
        /// Beside them.
        came: usize,
    },
    /// The broker's own sockets, timers or descriptors.
    #[error("the broker's own descriptors: {0}")]
    Runtime(#[from] std::io::Error),
}

impl From<Malformed> for BrokerError {
    fn from(malformed: Malformed) -> Self {
        Self::Orders(malformed.to_string())
    }
}
