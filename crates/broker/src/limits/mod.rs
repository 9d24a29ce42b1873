//! How often, how many at once, and at what cost: what a call demands of the ledger before it is made.
//!
//! A [`Demand`] says whose counter is meant ([`Key`]) and what must hold ([`Want`]). All demands of one call are met
//! together or not at all.

mod block;
mod cell;
mod clock;
mod fault;
mod key;
mod ledger;
mod store;
#[cfg(test)]
mod tests;

pub use clock::{Clock, System};
pub use fault::LedgerFault;
pub use key::Key;
pub use ledger::{Exceeded, Ledger, MOST_DEMANDS, Reservation, Unmet};

/// One thing that must hold for a call to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The rule that demands it, for messages and the record: `tools.tool[2].rate`.
    pub rule: std::sync::Arc<str>,
    /// Whose counter.
    pub key: Key,
    /// What must hold.
    pub want: Want,
}

/// What must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// At most `calls` in any window of `per_ms`, and at most `burst` in any window of `per_ms / calls * burst`.
    Rate {
        /// Calls in any window; 0 allows none.
        calls: u32,
        /// Length of the window, in milliseconds.
        per_ms: u64,
        /// How many may come at once; no limit of its own where it is not below `calls`.
        burst: u32,
    },
    /// Spending, in millionths of the unit.
    Budget {
        /// What this call reserves.
        cost: u64,
        /// Most in any window of so many milliseconds.
        window: Option<(u64, u64)>,
        /// Most ever.
        total: Option<u64>,
    },
    /// At most so many calls at once.
    Concurrency(u32),
}
