//! Why there is no run: it was refused, or something of ours failed. Whoever makes a fault says at its place which of the two it
//! is; for the errors of what lies below, it is decided here.

use backends::StartError;
use policy::{Diagnostics, Refusal};
use serde_json::{Value, json};

use crate::audit::AuditError;
use crate::changes::ChangesError;
use crate::fault::Fault;
use crate::snapshot::SnapshotError;
use crate::start_fault;
use crate::state::StateError;

/// Why there is no run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Refused: the policy is wrong.
    Mistakes(Diagnostics),
    /// Refused: clauses of the policy that nobody can hold here.
    Unheld(Refusal),
    /// Refused: what the caller can change, as a path, a setting of the host, or the command. Never empty.
    Refused(Vec<Fault>),
    /// Something of ours failed. Never empty.
    Failed(Vec<Fault>),
}

impl Error {
    pub(crate) fn refused(fault: Fault) -> Self {
        Self::Refused(vec![fault])
    }

    pub(crate) fn failed(fault: Fault) -> Self {
        Self::Failed(vec![fault])
    }

    /// Whether the run was refused; else something of ours failed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Mistakes(_) | Self::Unheld(_) | Self::Refused(_) => true,
            Self::Failed(_) => false,
        }
    }

    /// What fails when the program was let go is no refusal: those say that nothing was run.
    #[must_use]
    pub(crate) fn after_go(self) -> Self {
        match self {
            Self::Refused(faults) => Self::Failed(faults),
            other @ (Self::Mistakes(_) | Self::Unheld(_) | Self::Failed(_)) => other,
        }
    }

    /// The faults that it is made of; a policy's mistakes and unheld clauses are none.
    #[must_use]
    pub fn into_faults(self) -> Vec<Fault> {
        match self {
            Self::Refused(faults) | Self::Failed(faults) => faults,
            Self::Mistakes(_) | Self::Unheld(_) => Vec::new(),
        }
    }

    /// As the audit log and `--json` tell it: `{schema, code, errors}`, or `{schema, refused}` as in a plan.
    #[must_use]
    pub fn to_json(&self) -> Value {
        match self {
            Self::Mistakes(mistakes) => mistakes.to_json(),
            Self::Unheld(refusal) => refusal.to_json(),
            Self::Refused(faults) => json!({ "schema": 1, "code": 126, "errors": faults }),
            Self::Failed(faults) => json!({ "schema": 1, "code": 125, "errors": faults }),
        }
    }
}

impl From<StateError> for Error {
    fn from(error: StateError) -> Self {
        Self::refused(error.fault())
    }
}

impl From<AuditError> for Error {
    fn from(error: AuditError) -> Self {
        Self::refused(error.fault())
    }
}

impl From<ChangesError> for Error {
    fn from(error: ChangesError) -> Self {
        // A workspace that is too large for its copy can be made to fit, or shown otherwise: nothing of ours failed.
        let refuses = matches!(error, ChangesError::TooLarge { .. });
        if refuses { Self::refused(error.fault()) } else { Self::failed(error.fault()) }
    }
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Self {
        match error {
            SnapshotError::State(error) => error.into(),
            SnapshotError::Changes(error) => error.into(),
            // What the caller can change.
            SnapshotError::None { .. }
            | SnapshotError::Name { .. }
            | SnapshotError::Taken { .. }
            | SnapshotError::TooMany { .. }
            | SnapshotError::TooManyMachines { .. } => Self::refused(error.fault()),
            SnapshotError::Damaged { .. }
            | SnapshotError::Ended
            | SnapshotError::Machine { .. }
            | SnapshotError::Read { .. } => Self::failed(error.fault()),
        }
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        let fault = start_fault::of(&error);
        if error.is_refusal() { Self::refused(fault) } else { Self::failed(fault) }
    }
}
