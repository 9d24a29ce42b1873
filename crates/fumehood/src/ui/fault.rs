//! Why there is no result: our own faults, the mistakes of a policy, or a refusal; all of them at once, with the exit code.

use policy::diagnostic::{Diagnostic, SourceLocation};
use policy::{Diagnostics, Refusal};
use serde_json::{Value, json};

use crate::ui::{Palette, Role, refusal};
use sandbox::fault::{Fault, show_text};

/// The exit code of our own failures, and of bad usage.
pub const FAILED: u8 = 125;
/// The exit code of what is refused: nothing was run.
pub const REFUSED: u8 = 126;

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Our own faults and bad usage (125), or another code of the contract. Never empty.
    Faults {
        /// Exit code.
        code: u8,
        /// In the order of their places.
        faults: Vec<Fault>,
    },
    /// The policy is wrong (126).
    Diagnostics(Diagnostics),
    /// The policy cannot be held here (126).
    Refused(Refusal),
}

impl From<sandbox::Error> for Failure {
    fn from(stop: sandbox::Error) -> Self {
        match stop {
            sandbox::Error::Mistakes(mistakes) => Self::Diagnostics(mistakes),
            sandbox::Error::Unheld(refusal) => Self::Refused(refusal),
            sandbox::Error::Refused(faults) => Self::Faults { code: REFUSED, faults },
            sandbox::Error::Failed(faults) => Self::Faults { code: FAILED, faults },
        }
    }
}

impl Failure {
    /// Its faults; a policy's mistakes and unheld clauses are none.
    #[must_use]
    pub fn into_faults(self) -> Vec<Fault> {
        match self {
            Self::Faults { code: _, faults } => faults,
            Self::Diagnostics(_) | Self::Refused(_) => Vec::new(),
        }
    }

    /// Our own failure, or bad usage: 125.
    #[must_use]
    pub fn own(fault: Fault) -> Self {
        Self::Faults { code: FAILED, faults: vec![fault] }
    }

    /// A refusal: 126.
    #[must_use]
    pub fn refused(fault: Fault) -> Self {
        Self::Faults { code: REFUSED, faults: vec![fault] }
    }

    /// A refusal, or our own failure.
    #[must_use]
    pub fn judged(is_refusal: bool, fault: Fault) -> Self {
        if is_refusal { Self::refused(fault) } else { Self::own(fault) }
    }

    /// The exit code.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Self::Faults { code, .. } => *code,
            Self::Diagnostics(_) | Self::Refused(_) => REFUSED,
        }
    }

    /// For programs: `{refused}` where nothing may run, as in `plan --json`, else `{schema, code, errors}`.
    #[must_use]
    pub fn json(&self) -> Value {
        match self {
            Self::Faults { code: REFUSED, faults } => {
                json!({ "refused": faults.iter().map(as_reason).collect::<Vec<Value>>() })
            }
            Self::Faults { code, faults } => json!({ "schema": 1, "code": code, "errors": faults }),
            Self::Diagnostics(mistakes) => mistakes.to_json(),
            Self::Refused(refusal) => refusal.to_json(),
        }
    }

    /// One sentence: the first reason, and how many more there are.
    #[must_use]
    pub fn sentence(&self) -> String {
        let (first, all) = match self {
            Self::Faults { code: _, faults } => (faults.first().map(|f| (&f.what, &f.why)), faults.len()),
            Self::Diagnostics(mistakes) => (mistakes.list.first().map(|m| (&m.what, &m.why)), mistakes.list.len()),
            Self::Refused(refusal) => (refusal.refused.first().map(|r| (&r.what, &r.why)), refusal.refused.len()),
        };
        // What is no refusal may have failed when the program had been let go.
        let end = if self.code() == FAILED { "fumehood failed" } else { "nothing was run" };
        let Some((what, why)) = first else { return end.to_owned() };
        let more = if all > 1 { format!("; and {} more", all.saturating_sub(1)) } else { String::new() };
        show_text(&format!("{end}: {what}: {why}{more}"))
    }

    /// For people.
    #[must_use]
    pub fn text(&self, palette: Palette, columns: usize) -> String {
        match self {
            Self::Faults { code: _, faults } => faults.iter().map(|f| fault(f, palette)).collect(),
            Self::Diagnostics(mistakes) => mistakes.list.iter().map(|m| mistake(m, palette)).collect(),
            Self::Refused(reasons) => refusal(reasons, palette, columns),
        }
    }
}

/// A fault in the shape of the other reasons of a refusal.
fn as_reason(fault: &Fault) -> Value {
    let Fault { id, what, place, why, fix } = fault;
    json!({ "id": id, "clause": null, "what": what, "where": place, "why": why, "fix": fix })
}

/// One fault for people.
#[must_use]
pub fn fault(fault: &Fault, palette: Palette) -> String {
    let Fault { id: _, what, place, why, fix } = fault;
    parts(palette, [what, place, why, fix])
}

fn mistake(mistake: &Diagnostic, palette: Palette) -> String {
    let Diagnostic { id: _, clause: _, what, at, why, fix } = mistake;
    let SourceLocation { excerpt, .. } = at;
    let place = if excerpt.is_empty() { at.to_string() } else { format!("{at}   {excerpt}") };
    parts(palette, [what, &place, why, fix])
}

fn parts(palette: Palette, [what, place, why, fix]: [&str; 4]) -> String {
    let mut out = format!("{} {}\n", palette.paint(Role::Bad, "error:"), show_text(what));
    for (label, part) in [("-->", place), ("why:", why), ("fix:", fix)] {
        if !part.is_empty() {
            out.push_str(&format!("  {} {}\n", palette.paint(Role::Aside, label), show_text(part)));
        }
    }
    out
}
