//! Where decisions are written down.

use serde_json::Value as Json;

/// One event, of a kind that docs/decisions/0027-audit-chain.md names (`tool.decided`, `tool.called`, `tool.ended`, `approval.asked`, ...).
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// `tool.decided`.
    pub kind: &'static str,
    /// Already redacted and escaped.
    pub body: Json,
}

/// The audit log, as the broker sees it. An event that cannot be written denies the call that it is about.
pub trait Record: Send + Sync {
    /// Appends one event.
    ///
    /// # Errors
    /// Why it could not be written.
    fn append(&self, event: &Event) -> Result<(), String>;
}
