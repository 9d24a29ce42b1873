//! Each tier on this host, by the answers of its backend.

use std::path::{Path, PathBuf};

use backends::{Backend, Capabilities};
use policy::plan::Reason;
use policy::rows::ROWS;
use policy::value::{Tier, TierChoice};
use policy::{Caller, Candidate, ClauseId, Format, Layers, Loaded, Strength, Support, make_plan};
use serde::{Serialize, Serializer};

use super::Proof;

/// A domain of protection: what clauses have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Domain {
    /// What can be seen, read and written.
    Files,
    /// How much can be used.
    Resources,
    /// Who can be reached.
    Network,
    /// What the program is told and who it is.
    Process,
    /// Which system calls it may make.
    Kernel,
    /// What is recorded.
    Record,
}

/// All domains.
pub const DOMAINS: &[Domain] =
    &[Domain::Files, Domain::Resources, Domain::Network, Domain::Process, Domain::Kernel, Domain::Record];

impl Domain {
    /// The domain of a clause; `None` for those that choose and demand nothing by themselves.
    #[must_use]
    pub fn of(clause: ClauseId) -> Option<Self> {
        let area = clause.path().split('.').next().unwrap_or_default();
        DOMAINS.iter().find(|domain| domain.areas().contains(&area)).copied()
    }

    /// The tables of a policy that are about it.
    const fn areas(self) -> &'static [&'static str] {
        match self {
            Self::Files => &["fs", "workspace"],
            Self::Resources => &["limits"],
            Self::Network => &["net", "secrets"],
            Self::Process => &["env", "inputs", "process"],
            Self::Kernel => &["syscalls", "commands", "tools", "language"],
            Self::Record => &["audit"],
        }
    }

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Resources => "resources",
            Self::Network => "network",
            Self::Process => "process",
            Self::Kernel => "kernel",
            Self::Record => "record",
        }
    }
}

/// A backend's answer for one demand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Clause.
    pub clause: ClauseId,
    /// The document that was asked about; empty = the default policy.
    pub example: &'static str,
    /// Who would hold it.
    pub enforcer: Option<String>,
    /// How.
    pub strength: Option<Strength>,
    /// How far it may be passed.
    pub overshoot: Option<String>,
    /// Why it cannot be held: the id.
    pub id: Option<&'static str>,
    /// Why it cannot be held, in words.
    pub why: Option<String>,
    /// What to do.
    pub fix: Option<String>,
}

/// One tier on this host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TierHealth {
    /// Tier.
    #[serde(serialize_with = "tier_name")]
    pub tier: Tier,
    /// Backend.
    pub backend: &'static str,
    /// Why the default policy is refused; empty = there is a plan.
    pub refused: Vec<Reason>,
    /// The small sandbox that was started, if there is a plan.
    pub proof: Option<Proof>,
    /// How many demands of each domain are held, and by what.
    pub domains: Vec<Share>,
    /// The answers, by clause.
    pub clauses: Vec<Row>,
}

/// What is held of the demands of one domain. A demand that no host could meet, since this version has nothing for it, is
/// not among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Share {
    /// Domain.
    pub domain: Domain,
    /// Held by the kernel, or by a broker outside.
    pub kernel: u32,
    /// Held by our own watching.
    pub watching: u32,
    /// Refused on this host.
    pub refused: u32,
}

impl Share {
    /// How many are held.
    #[must_use]
    pub const fn held(&self) -> u32 {
        self.kernel.saturating_add(self.watching)
    }

    /// How many there are.
    #[must_use]
    pub const fn all(&self) -> u32 {
        self.held().saturating_add(self.refused)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn tier_name<S: Serializer>(tier: &Tier, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(tier.as_str())
}

/// The tier of a policy that says nothing.
#[must_use]
pub fn default_tier() -> Tier {
    match load("").map(|loaded| loaded.policy.tier) {
        Some(TierChoice::Fixed(tier)) => tier,
        Some(TierChoice::Auto) | None => Tier::Container,
    }
}

/// Asks every backend.
#[must_use]
pub fn tiers(host: &Capabilities) -> Vec<TierHealth> {
    backends::ALL.iter().map(|backend| tier(*backend, host)).collect()
}

fn tier(backend: &'static dyn Backend, host: &Capabilities) -> TierHealth {
    let clauses: Vec<Row> = ROWS.iter().flat_map(|row| answers(backend, host, row.clause, row.valid)).collect();
    let domains = shares(&clauses);
    TierHealth {
        tier: backend.tier(),
        backend: backend.name(),
        refused: refused(backend, host),
        proof: None,
        domains,
        clauses,
    }
}

/// Whether the default policy has a plan here; on the vm tier with a folder as its root, since the host's own tree does not go
/// into a machine.
fn refused(backend: &'static dyn Backend, host: &Capabilities) -> Vec<Reason> {
    let root = if backend.tier() == Tier::Vm { "\nfs.root = \"dir:/srv/root\"" } else { "" };
    let Some(loaded) = load(&format!("tier = \"{}\"{root}", backend.tier().as_str())) else { return Vec::new() };
    let policy = loaded.policy_on(backend.tier()).into_owned();
    let answers = |clause: ClauseId| backend.support(clause, &policy, host);
    let on = Candidate { tier: backend.tier(), backend: backend.name(), answers: &answers };
    make_plan(&loaded, on).err().map(|refusal| refusal.refused).unwrap_or_default()
}

/// What the default policy demands, and what the example does: `net.mode` has a `none` and a `loopback`.
fn answers(backend: &'static dyn Backend, host: &Capabilities, id: ClauseId, example: &'static str) -> Vec<Row> {
    let default = ask(backend, host, id, "");
    let example = ask(backend, host, id, example);
    let same = |a: &Row, b: &Row| a.enforcer == b.enforcer && a.overshoot == b.overshoot && a.id == b.id;
    match (default, example) {
        (Some(default), Some(example)) if same(&default, &example) => vec![default],
        (default, example) => default.into_iter().chain(example).collect(),
    }
}

/// The answer for one clause by a document that says it; the empty one is the default policy.
fn ask(backend: &'static dyn Backend, host: &Capabilities, id: ClauseId, example: &'static str) -> Option<Row> {
    let loaded = load(example)?;
    let policy = loaded.policy_on(backend.tier()).into_owned();
    policy.demand(id)?;
    let row =
        Row { clause: id, example, enforcer: None, strength: None, overshoot: None, id: None, why: None, fix: None };
    match backend.support(id, &policy, host) {
        Support::NotAsked => None,
        Support::Held(held) => Some(Row {
            enforcer: Some(held.enforcer()),
            strength: Some(held.strength()),
            overshoot: held.overshoot(),
            ..row
        }),
        Support::Unmet(unmet) => Some(Row { id: Some(unmet.id), why: Some(unmet.why), fix: Some(unmet.fix), ..row }),
    }
}

/// An example document upon the default policy.
fn load(example: &str) -> Option<Loaded> {
    let profiles = sandbox::profiles();
    let caller = Caller { dir: PathBuf::from("/srv/work"), home: None, profiles };
    let mut layers = Layers::new(caller);
    let none = |_: &Path| Err("no such file".to_owned());
    layers.document("example.toml", &format!("version = 1\n{example}\n"), Format::Toml, Path::new("/srv"), &none);
    layers.finish().ok()
}

/// What a version lacks is no fault of the host, nor is a clause that is another tier's.
fn is_of_the_host(row: &Row) -> bool {
    let elsewhere = ["/not-yet", "/no-broker", "/no-live", "/needs-language"];
    row.id.is_none_or(|id| !elsewhere.iter().any(|end| id.ends_with(end)))
}

/// Each domain that has demands.
fn shares(rows: &[Row]) -> Vec<Share> {
    let of = |domain: Domain| {
        let mut share = Share { domain, kernel: 0, watching: 0, refused: 0 };
        for row in rows.iter().filter(|row| Domain::of(row.clause) == Some(domain) && is_of_the_host(row)) {
            let counted = match row.strength {
                Some(Strength::Kernel | Strength::Broker) => &mut share.kernel,
                Some(Strength::Supervisor) => &mut share.watching,
                None => &mut share.refused,
            };
            *counted = counted.saturating_add(1);
        }
        share
    };
    DOMAINS.iter().map(|domain| of(*domain)).filter(|share| share.all() > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_can_be_asked_of_every_backend() {
        let host = Capabilities::probe();
        for row in ROWS {
            assert!(load(row.valid).is_some(), "{} cannot be read", row.clause);
        }
        for health in tiers(&host) {
            assert!(health.clauses.len() > 30, "{}: {}", health.tier, health.clauses.len());
            assert_eq!(health.domains.len(), DOMAINS.len(), "{health:?}");
        }
    }

    #[test]
    fn each_demand_is_counted_once_by_what_holds_it() {
        let row = |strength, id| Row {
            clause: ClauseId::LimitsMemory,
            example: "",
            enforcer: None,
            strength,
            overshoot: None,
            id,
            why: None,
            fix: None,
        };
        let rows = [
            row(Some(Strength::Kernel), None),
            row(Some(Strength::Supervisor), None),
            row(None, Some("limits.memory/no-controller")),
            row(None, Some("x/not-yet")),
        ];
        assert_eq!(shares(&rows), [Share { domain: Domain::Resources, kernel: 1, watching: 1, refused: 1 }]);
    }

    #[test]
    fn the_default_tier_is_that_of_strict() {
        assert_eq!(default_tier(), Tier::Container);
    }
}
