//! What this host can hold, what it lacks, and the exact remedy.
//!
//! What a tier holds is asked of the backends' `support`, clause by clause: there is no second list here. [`causes`] looks
//! for what has a remedy of its own. Everything is an answer: a host without `/proc`, `/sys` or a state folder is
//! reported and never a failure. Believing is not enough: a small sandbox is started per tier as well.

mod host;
mod started;
mod tiers;

use backends::{CallerServices, Capabilities};
use policy::value::Tier;
use serde::Serialize;

pub use host::causes;
pub use started::{StartRecord, keep_kvm};
pub use tiers::{DOMAINS, Domain, Row, Share, TierHealth, default_tier, tiers};

use sandbox::state::Places;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// A tier is not to be had.
    Blocks,
    /// A clause is refused, or held by watching instead of the kernel.
    Limits,
    /// Good to know.
    Note,
}

/// Something that the host lacks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Stable id; `fumehood explain` knows it.
    pub id: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// The tiers that are not to be had because of it.
    pub tiers: &'static [&'static str],
    /// What is missing.
    pub what: String,
    /// Why that matters.
    pub why: String,
    /// The setting or command that repairs it.
    pub fix: String,
}

/// A small sandbox that was really started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Proof {
    /// Whether it started, its posture was the plan's, and it ended as it should.
    pub held: bool,
    /// How it went, in words.
    pub how: String,
}

/// The whole examination.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Health {
    /// Kernel release.
    pub kernel: String,
    /// Effective user id.
    pub user: u32,
    /// Landlock ABI; 0 = none.
    pub landlock: u32,
    /// Where the control groups come from: `own-group`, `delegated-group`, `service-manager` or `none`.
    pub groups: &'static str,
    /// Each tier, weakest first.
    pub tiers: Vec<TierHealth>,
    /// What is missing, worst first.
    pub findings: Vec<Finding>,
}

/// Examines the host as a run would find it, with the caller's `services`. `prove` starts a small sandbox on a tier, where
/// that is worth its time; it is asked only where there is a plan. Of `only` one tier, or of all.
#[must_use]
pub fn examine(
    places: &Places,
    services: CallerServices,
    only: Option<Tier>,
    prove: Option<&dyn Fn(Tier, &'static str) -> Option<Proof>>,
) -> Health {
    let host = Capabilities::probe_with(services);
    let mut tiers = tiers(&host);
    tiers.retain(|tier| only.is_none_or(|only| only == tier.tier));
    for tier in &mut tiers {
        if tier.refused.is_empty() {
            tier.proof = prove.and_then(|prove| prove(tier.tier, tier.backend));
        }
    }
    let mut findings = causes(&host, places);
    let about = |finding: &Finding, only: Tier| finding.tiers.is_empty() || finding.tiers.contains(&only.as_str());
    findings.retain(|finding| only.is_none_or(|only| about(finding, only)));
    findings.sort_by_key(|finding| finding.severity);
    let groups = host.given().as_str();
    Health { kernel: host.release.clone(), user: host.euid, landlock: host.landlock, groups, tiers, findings }
}

impl Health {
    /// Whether a tier has a plan, nothing stands in its way, and the sandbox that was tried (if one was) held.
    #[must_use]
    pub fn has(&self, tier: &TierHealth) -> bool {
        let blocked = self.findings.iter().any(|finding| finding.tiers.contains(&tier.tier.as_str()));
        !blocked && tier.refused.is_empty() && tier.proof.as_ref().is_none_or(|proof| proof.held)
    }

    /// Whether this tier was looked at and can be had.
    #[must_use]
    pub fn has_this(&self, wanted: Tier) -> bool {
        self.tiers.iter().any(|tier| tier.tier == wanted && self.has(tier))
    }
}
