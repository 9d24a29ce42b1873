//! Who stops what may not be.

use serde::Serialize;

/// Who holds a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// Our supervisor, by watching.
    Supervisor,
    /// Our broker, by doing it on the sandbox's behalf.
    Broker,
    /// The kernel.
    Kernel,
}

impl Strength {
    /// The word in plans and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Broker => "broker",
            Self::Kernel => "kernel",
        }
    }
}
