//! Faults on their way to the user: all of them at once, and the exit code.

use crate::fault::Fault;
use crate::ui::{Palette, Role};

/// All that went wrong, and the exit code for it. Made only with at least one fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit code.
    pub code: u8,
    /// Faults, in the order of their places.
    pub faults: Vec<Fault>,
}

impl Failure {
    /// Our own failure, or bad usage: 125.
    #[must_use]
    pub fn own(fault: Fault) -> Self {
        Self { code: 125, faults: vec![fault] }
    }

    /// A policy that is wrong or cannot be held: 126.
    #[must_use]
    pub fn refused(fault: Fault) -> Self {
        Self { code: 126, faults: vec![fault] }
    }

    /// The faults for programs.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({ "schema": 1, "code": self.code, "errors": self.faults })
    }
}

/// Faults for people.
#[must_use]
pub fn faults(faults: &[Fault], palette: Palette) -> String {
    let mut out = String::new();
    for Fault { id: _, what, place, why, fix } in faults {
        out.push_str(&format!("{} {what}\n", palette.paint(Role::Bad, "error:")));
        for (label, part) in [("-->", place), ("why:", why), ("fix:", fix)] {
            if !part.is_empty() {
                out.push_str(&format!("  {} {part}\n", palette.paint(Role::Aside, label)));
            }
        }
    }
    out
}
