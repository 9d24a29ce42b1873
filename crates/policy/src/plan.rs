//! Policy x capabilities: the plan, or the refusal.

use std::path::Path;
use std::sync::OnceLock;

use serde::Serialize;

use crate::clause::ClauseId;
use crate::control::{Control, Controls};
use crate::units::Bytes;
use crate::value::{Grant, Policy, Tier};

/// A clause cannot be held.
#[derive(Clone, Debug, PartialEq)]
pub struct Unmet {
    /// Stable id, e.g. `limits.disk/rw-without-quota`; `fumehood explain` knows it.
    pub id: &'static str,
    /// Why this host or tier cannot.
    pub why: String,
    /// What the user can do.
    pub fix: String,
    /// What would still be done if the clause is `prefer`red; `None` = it cannot be weakened, only changed.
    pub weaker: Option<Controls>,
}

/// A backend's answer for one clause.
#[derive(Clone, Debug, PartialEq)]
pub enum Support {
    /// The clause demands nothing (not set, or its value is empty).
    NotAsked,
    /// Held by these.
    Held(Controls),
    /// Not held.
    Unmet(Unmet),
}

/// One clause of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Clause.
    pub clause: ClauseId,
    /// Effective value, canonical JSON.
    pub value: serde_json::Value,
    /// Where the value came from, e.g. `preset strict`, `policy.toml:14:10`, `--memory`. Not part of the digest.
    pub origin: String,
    /// What holds it.
    pub controls: Controls,
}

/// A clause that is held less than demanded, because the policy prefers it so.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Weakened {
    /// Clause.
    pub clause: ClauseId,
    /// Demanded.
    pub wanted: String,
    /// Held instead.
    pub got: String,
    /// Why.
    pub why: String,
}

/// What will be enforced, by whom. Immutable once made.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The validated policy.
    pub policy: Policy,
    /// Tier.
    pub tier: Tier,
    /// Backend, e.g. `native`.
    pub backend: &'static str,
    /// One entry per demanded clause, in `ClauseId` order.
    pub entries: Vec<Entry>,
    /// Weakenings.
    pub weakened: Vec<Weakened>,
    /// Lints: legal, but probably not meant.
    pub lints: Vec<String>,
    /// See [`Plan::digest`] and [`Plan::policy_digest`].
    pub(crate) digest: Derived,
    pub(crate) policy_digest: Derived,
}

impl Plan {
    /// Every control, clause by clause; one that holds several clauses comes several times.
    pub fn controls(&self) -> impl Iterator<Item = &Control> {
        self.entries.iter().flat_map(|entry| entry.controls.iter())
    }

    /// Whether control files of a grant that is written can be written although such are protected: it is spelled `dangerous-write`,
    /// and by no other word too. No control says so, since nothing is done about it.
    #[must_use]
    pub fn steers(&self, shown: &Grant) -> bool {
        let fs = &self.policy.fs;
        let same = |grant: &&Grant| grant.from == shown.from && grant.to == shown.to;
        fs.protect
            && fs.write.iter().any(|grant| same(&grant))
            && fs.write.iter().filter(same).all(|grant| grant.dangerous)
    }

    /// Where a workspace that is named would be seen. One that is not shown has no control.
    #[must_use]
    pub fn named_workspace(&self) -> Option<&Path> {
        self.policy.workspace.at.as_deref().or(self.policy.workspace.path.as_deref())
    }

    /// How many bytes and files are taken of what a run left. Controls divide that among places that can be written, or hold it for
    /// each file alone.
    #[must_use]
    pub const fn bounds_of_remains(&self) -> (Option<Bytes>, Option<u64>) {
        (self.policy.limits.disk, self.policy.limits.files)
    }
}

/// A text that follows from the rest of a plan, made when it is first asked for: nothing that a start waits for needs it.
/// It makes no two plans differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derived(pub(crate) OnceLock<String>);

impl PartialEq for Derived {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

/// One reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// Stable id.
    pub id: String,
    /// Clause.
    pub clause: ClauseId,
    /// What was demanded.
    pub what: String,
    /// Where that came from.
    #[serde(rename = "where")]
    pub at: String,
    /// Why it cannot be held.
    pub why: String,
    /// What to do.
    pub fix: String,
    /// Who would still hold something if the clause were `prefer`red; `None` = it cannot be weakened.
    #[serde(skip)]
    pub weaker: Option<String>,
}

/// The answer instead of a plan: every unmet clause at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// Tier that was asked.
    pub tier: String,
    /// How many clauses were demanded.
    pub demanded: usize,
    /// Reasons, in `ClauseId` order.
    pub refused: Vec<Reason>,
}
