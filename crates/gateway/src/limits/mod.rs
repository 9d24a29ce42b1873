//! The ledger: counters that processes share. It meets all [demands](gate::demand) of a call together or not at all.

mod block;
mod cell;
mod clock;
mod fault;
mod ledger;
mod store;
#[cfg(test)]
mod tests;

pub use clock::{Clock, System};
pub use fault::LedgerFault;
pub use ledger::{Exceeded, Ledger, Reservation, Unmet};
