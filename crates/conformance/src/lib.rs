//! Clause by backend: *enforced*, with a control that succeeds and an observer outside, or *refused*. No third cell.
//!
//! The product is run as its users run it: the real binary, as root and as an ordinary user, on every backend of
//! [`backends::ALL`]. A case ([`Case`]) belongs to one clause; `tests/clauses` holds all of them, walks every cell of clause x
//! backend x caller, and fails for a cell without a case.
//!
//! # Promises
//! A probe that is stopped counts only beside the same probe, unconfined, that was not.
//! # Does not promise
//! Anything about a capability that this host lacks: such a cell is skipped by name, and counted.
#![forbid(unsafe_code)]

pub mod case;
pub mod fixture;
pub mod live;
pub mod nested;
pub mod product;
pub mod proof;
pub mod support_page;
pub mod survey;

pub use case::{BackendId, Tier, Who};
pub use fixture::Fixture;
pub use live::{Ended, Live};
pub use proof::{Case, Cell, CellResult, Tally};

/// Why a case does not hold.
pub type CaseError = Box<dyn std::error::Error + Send + Sync>;

/// Whether a case holds.
pub type CaseResult = Result<(), CaseError>;

/// Nothing, or these words as the reason.
///
/// # Errors
/// `holds` is false.
pub fn check(holds: bool, words: impl FnOnce() -> String) -> CaseResult {
    if holds { Ok(()) } else { Err(words().into()) }
}
