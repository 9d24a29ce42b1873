//! The audit log as the broker sees it.

use std::fmt;

use broker::record::{Event, Record};
use policy::value::Audit;

use crate::audit::{Kind, Log, Options, Redactor};

/// Writes the broker's events into the audit log.
pub struct Recorder {
    log: Log,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("log", &self.log.path()).finish()
    }
}

impl Recorder {
    /// A recorder of this log.
    #[must_use]
    pub fn new(log: Log) -> Self {
        Self { log }
    }
}

impl Record for Recorder {
    fn append(&self, event: &Event) -> Result<(), String> {
        let kind = Kind::parse(event.kind).ok_or_else(|| format!("`{}` is no kind of event", event.kind))?;
        self.log.append("", &kind, &event.body).map(|_| ()).map_err(|error| error.to_string())
    }
}

/// The log as a policy wants it.
#[must_use]
pub(super) fn options(audit: &Audit) -> Options {
    Options { sync: audit.sync, redact: Redactor::new(&audit.redact), ..Options::default() }
}
