//! Policy x capabilities: every demand is put to a backend, and the answers become a plan or a refusal.
//!
//! Nothing is decided here that depends on the host: the backend answers, this module only refuses to be satisfied
//! with less than was demanded.

use serde_json::{Map, Value, json};

use crate::clause::ClauseId;
use crate::control::{Controls, Strength};
use crate::json::digest;
use crate::load::Loaded;
use crate::plan::{Derived, Entry, Plan, Reason, Refusal, Support, Unmet, Weakened};
use crate::value::{BackendName, EnforcerDemand, Policy, Threat, Tier, TierChoice};

/// What a backend says to each demand. Closures are answers.
pub trait Answers {
    /// Whether and by what the demand is held.
    fn support(&self, clause: ClauseId) -> Support;
}

impl<F: Fn(ClauseId) -> Support> Answers for F {
    fn support(&self, clause: ClauseId) -> Support {
        self(clause)
    }
}

/// One backend that could run the policy.
#[derive(Clone, Copy)]
pub struct Candidate<'a> {
    /// Its tier.
    pub tier: Tier,
    /// Its name.
    pub backend: &'static str,
    /// Its answers on this host.
    pub answers: &'a dyn Answers,
}

impl std::fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("tier", &self.tier).field("backend", &self.backend).finish_non_exhaustive()
    }
}

/// A plan, and why this tier.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The plan.
    pub plan: Plan,
    /// One sentence for people.
    pub why: String,
}

/// The tier that is tried first.
#[must_use]
pub const fn first_tier(loaded: &Loaded) -> Tier {
    match loaded.policy.tier {
        TierChoice::Fixed(tier) => tier,
        TierChoice::Auto => loaded.policy.threat.least_tier(),
    }
}

/// Plans on the tier that the policy names, or, for `auto`, on the weakest that fits threat and every clause; by the one
/// `backend` that the policy names, or by any. What `prefer` lets be weaker is so only where no candidate holds all of it.
///
/// # Errors
/// A refusal with every unmet clause; for `auto` that of the weakest tier that is meant against the threat.
pub fn choose(loaded: &Loaded, candidates: &[Candidate<'_>]) -> Result<Choice, Refusal> {
    let (least, exact) = match loaded.policy.tier {
        TierChoice::Fixed(tier) => (tier, true),
        TierChoice::Auto => (loaded.policy.threat.least_tier(), false),
    };
    let named = |c: &&Candidate<'_>| loaded.policy.backend.is_none_or(|backend| backend.as_str() == c.backend);
    let on_tier = |c: &&Candidate<'_>| if exact { c.tier == least } else { c.tier >= least };
    let mut fit: Vec<&Candidate<'_>> = candidates.iter().filter(named).filter(on_tier).collect();
    fit.sort_by_key(|candidate| candidate.tier);
    let (mut first, mut kept) = (None, None);
    let mut passed_over = Vec::new();
    for candidate in fit {
        match plan(loaded, *candidate) {
            Ok(plan) if plan.weakened.is_empty() => {
                return Ok(Choice { why: reason_for(loaded, &plan, &passed_over), plan });
            }
            Ok(plan) => {
                let weaker = weaker(&plan);
                kept.get_or_insert_with(|| Choice { why: reason_for(loaded, &plan, &passed_over), plan });
                passed_over.push(weaker);
            }
            Err(refusal) => {
                passed_over.push(format!("`{}` cannot hold {}", candidate.tier, clause_list(&refusal)));
                first.get_or_insert(refusal);
            }
        }
    }
    if let Some(mut choice) = kept {
        if loaded.policy.tier == TierChoice::Auto {
            choice.why.push_str(&format!("; no tier holds all of it: {}", weaker(&choice.plan)));
        }
        return Ok(choice);
    }
    Err(first.unwrap_or_else(|| {
        let reason = match loaded.policy.backend {
            Some(backend) => not_by(loaded, backend, candidates),
            None => no_backend(loaded, least, exact),
        };
        Refusal { tier: least.as_str().to_owned(), demanded: loaded.policy.demands().count(), refused: vec![reason] }
    }))
}

/// Why a backend whose name is known is none of this version, and what to ask for instead. The reasons in full are a decision:
/// `runc` 0073.
#[must_use]
pub const fn not_built(backend: BackendName) -> Option<(&'static str, &'static str)> {
    match backend {
        BackendName::Runc => Some((
            "this version starts no container by `runc`: its threads count as processes of the program, and Debian's release \
             has known faults",
            "set `backend` to `crun`, or drop `backend`",
        )),
        BackendName::Native
        | BackendName::Crun
        | BackendName::Runsc
        | BackendName::Podman
        | BackendName::Docker
        | BackendName::Qemu
        | BackendName::Firecracker
        | BackendName::Monty
        | BackendName::Quickjs
        | BackendName::Wasm => None,
    }
}

/// Why the backend that the policy names is none of those that could be asked.
fn not_by(loaded: &Loaded, backend: BackendName, candidates: &[Candidate<'_>]) -> Reason {
    let of_that_name = candidates.iter().filter(|candidate| candidate.backend == backend.as_str());
    let tiers: Vec<String> = of_that_name.map(|candidate| format!("`{}`", candidate.tier)).collect();
    let (id, why, fix) = if tiers.is_empty() {
        let (why, fix) = not_built(backend).map_or_else(
            || {
                let mut known: Vec<String> =
                    candidates.iter().map(|candidate| format!("`{}`", candidate.backend)).collect();
                known.dedup();
                let fix = format!("drop `backend`, or name one of {}", known.join(", "));
                ("this version has no backend of that name".to_owned(), fix)
            },
            |(why, fix)| (why.to_owned(), fix.to_owned()),
        );
        ("backend/not-built", why, fix)
    } else {
        let Policy { tier, threat, .. } = &loaded.policy;
        let tiers = tiers.join(", ");
        let why = format!("it implements tier {tiers}, and the policy asks for `{tier}` against threat `{threat}`");
        ("backend/other-tier", why, format!("set `tier` to {tiers}, or drop `backend`"))
    };
    Reason {
        id: id.to_owned(),
        clause: ClauseId::Backend,
        what: format!("`backend` = {backend}"),
        at: loaded.origins.of(ClauseId::Backend).to_owned(),
        why,
        fix,
        weaker: None,
    }
}

fn clause_list(refusal: &Refusal) -> String {
    let names: Vec<String> = refusal.refused.iter().map(|reason| format!("`{}`", reason.clause)).collect();
    names.join(", ")
}

fn weaker(plan: &Plan) -> String {
    let names: Vec<String> = plan.weakened.iter().map(|one| format!("`{}`", one.clause)).collect();
    format!("`{}` holds {} weaker than asked", plan.tier, names.join(", "))
}

fn reason_for(loaded: &Loaded, plan: &Plan, passed_over: &[String]) -> String {
    match loaded.policy.tier {
        TierChoice::Fixed(tier) => format!("`{tier}` is what the policy names ({})", loaded.origins.of(ClauseId::Tier)),
        TierChoice::Auto if passed_over.is_empty() => {
            format!("`{}` is the weakest tier meant against threat `{}`", plan.tier, loaded.policy.threat)
        }
        TierChoice::Auto => format!(
            "`{}` is the weakest tier that holds every clause against threat `{}`: {}",
            plan.tier,
            loaded.policy.threat,
            passed_over.join("; ")
        ),
    }
}

fn no_backend(loaded: &Loaded, least: Tier, exact: bool) -> Reason {
    let (what, why) = if exact {
        (format!("tier `{least}`"), format!("no backend on this host implements tier `{least}`"))
    } else {
        let threat = loaded.policy.threat;
        (
            format!("threat `{threat}`"),
            format!("threat `{threat}` needs tier `{least}` or stronger, and no backend here implements one"),
        )
    };
    Reason {
        id: "tier/no-backend".to_owned(),
        clause: ClauseId::Tier,
        what,
        at: loaded.origins.of(ClauseId::Tier).to_owned(),
        why,
        fix: "name a tier that `fumehood doctor` shows as available, e.g. --tier container".to_owned(),
        weaker: None,
    }
}

/// Puts every demand to one backend.
///
/// # Errors
/// Every clause that is not held, at once.
pub fn plan(loaded: &Loaded, on: Candidate<'_>) -> Result<Plan, Refusal> {
    let policy = loaded.policy_on(on.tier);
    let mut ledger =
        Ledger { policy: &policy, loaded, demanded: 0, entries: Vec::new(), weakened: Vec::new(), refused: Vec::new() };
    for (clause, value) in policy.demands() {
        ledger.ask(clause, value, on.answers);
    }
    let Ledger { demanded, entries, weakened, refused, policy: _, loaded: _ } = ledger;
    if !refused.is_empty() {
        return Err(Refusal { tier: on.tier.as_str().to_owned(), demanded, refused });
    }
    let lints = loaded.lints.iter().map(ToString::to_string).collect();
    Ok(Plan {
        policy: policy.into_owned(),
        tier: on.tier,
        backend: on.backend,
        entries,
        weakened,
        lints,
        digest: Derived::default(),
        policy_digest: Derived::default(),
    })
}

struct Ledger<'a> {
    policy: &'a Policy,
    loaded: &'a Loaded,
    demanded: usize,
    entries: Vec<Entry>,
    weakened: Vec<Weakened>,
    refused: Vec<Reason>,
}

impl Ledger<'_> {
    fn ask(&mut self, clause: ClauseId, value: Value, answers: &dyn Answers) {
        let support = self.strict_enough(clause, answers.support(clause));
        match self.against_threat(clause, support) {
            Support::NotAsked => {}
            Support::Held(controls) => {
                self.demanded += 1;
                self.enter(clause, value, controls);
            }
            Support::Unmet(unmet) => {
                self.demanded += 1;
                self.unmet(clause, value, unmet);
            }
        }
    }

    /// `enforcer = "kernel"`: a limit that somebody only watches is not held.
    fn strict_enough(&self, clause: ClauseId, support: Support) -> Support {
        let Support::Held(held) = support else { return support };
        let by_kernel = self.policy.enforcer == EnforcerDemand::Any || held.strength() == Strength::Kernel;
        if by_kernel || !kernel_can_hold(clause) {
            return Support::Held(held);
        }
        Support::Unmet(Unmet {
            id: "enforcer/kernel-demanded",
            why: format!("`enforcer = \"kernel\"`, and here only `{}` could hold it", held.enforcer()),
            fix:
                "run where cgroups are writable (`fumehood doctor` says how), drop the limit, or set enforcer = \"any\""
                    .to_owned(),
            weaker: Some(held),
        })
    }

    /// `threat = "hostile"`: an amount that a hostile program can hide from whoever counts is not held.
    fn against_threat(&self, clause: ClauseId, support: Support) -> Support {
        let Support::Held(held) = support else { return support };
        let amount = kernel_can_hold(clause) || clause == ClauseId::FsTmp;
        if !amount || self.policy.threat == Threat::Mistakes || held.against() != Threat::Mistakes {
            return Support::Held(held);
        }
        Support::Unmet(Unmet {
            id: "threat/mistakes-only",
            why: format!(
                "`threat = \"{}\"`, and here only `{}` could hold it, from which a hostile program can hide",
                self.policy.threat,
                held.enforcer()
            ),
            fix: format!(
                "run where cgroups are writable (`fumehood doctor` says how), drop the limit, accept it by `--prefer {clause}`, or set threat = \"mistakes\""
            ),
            weaker: Some(held),
        })
    }

    fn enter(&mut self, clause: ClauseId, value: Value, controls: Controls) {
        let origin = self.loaded.origins.of(clause).to_owned();
        self.entries.push(Entry { clause, value, origin, controls });
    }

    fn unmet(&mut self, clause: ClauseId, value: Value, unmet: Unmet) {
        let text = self.policy.demand_text(clause).unwrap_or_default();
        let Unmet { id: unmet_id, why, fix, weaker } = unmet;
        let preferred = self.policy.prefer.contains(&clause);
        let in_vain = preferred && weaker.is_none();
        match weaker {
            Some(weaker) if preferred => {
                let by = weaker.enforcer();
                let got = weaker.overshoot().map_or(by.clone(), |overshoot| format!("{by} ({overshoot})"));
                self.weakened.push(Weakened { clause, wanted: text, got, why });
                self.enter(clause, value, weaker);
            }
            weaker => self.refused.push(Reason {
                id: unmet_id.to_owned(),
                clause,
                what: format!("`{clause}` = {text}"),
                at: self.loaded.origins.of(clause).to_owned(),
                why: if in_vain { format!("{why}; `prefer` cannot help, since nothing weaker is left") } else { why },
                fix,
                weaker: weaker.map(|held| held.enforcer()),
            }),
        }
    }
}

/// Amounts that a kernel can count. Time on the wall, idleness, output and thresholds are events that only a watcher
/// sees on any host, so `enforcer = "kernel"` does not speak of them.
const fn kernel_can_hold(id: ClauseId) -> bool {
    matches!(
        id,
        ClauseId::LimitsCpuTime
            | ClauseId::LimitsCpus
            | ClauseId::LimitsCpuset
            | ClauseId::LimitsMemory
            | ClauseId::LimitsPids
            | ClauseId::LimitsOpenFiles
            | ClauseId::LimitsFileSize
            | ClauseId::LimitsDisk
            | ClauseId::LimitsFiles
            | ClauseId::LimitsIoRead
            | ClauseId::LimitsIoWrite
    )
}

/// The digest of every effective demand, whatever the document's language, its name or the order of its layers.
#[must_use]
pub fn policy_digest(policy: &Policy) -> String {
    let clauses = policy.demands().map(|(clause, value)| (clause.path().to_owned(), value)).collect();
    let prefer: Vec<&str> = policy.prefer.iter().map(|id| id.path()).collect();
    digest(&json!({ "version": 1, "prefer": prefer, "clauses": Value::Object(clauses) }))
}

/// An entry without its origin, on which a digest must not depend.
fn entry_json(entry: &Entry) -> Map<String, Value> {
    let Entry { clause, value, origin: _, controls } = entry;
    let mut map = Map::with_capacity(8);
    map.insert("clause".to_owned(), Value::from(clause.path()));
    map.insert("value".to_owned(), value.clone());
    map.insert("enforcer".to_owned(), Value::from(controls.enforcer()));
    map.insert("strength".to_owned(), Value::from(controls.strength().as_str()));
    map.insert("against".to_owned(), Value::from(controls.against().as_str()));
    map.insert("overshoot".to_owned(), Value::from(controls.overshoot()));
    map.insert("evidence".to_owned(), Value::from(controls.evidence()));
    map
}

fn weakened_json(list: &[Weakened]) -> Value {
    let one = |Weakened { clause, wanted, got, why }: &Weakened| json!({ "clause": clause.path(), "wanted": wanted, "got": got, "why": why });
    Value::Array(list.iter().map(one).collect())
}

impl Plan {
    /// SHA-256 (hex) over RFC 8785 JSON of tier, backend, clauses (without origin) and weakenings.
    #[must_use]
    pub fn digest(&self) -> &str {
        self.digest.0.get_or_init(|| digest(&self.digested()))
    }

    fn digested(&self) -> Value {
        let clauses: Vec<Value> = self.entries.iter().map(|entry| Value::Object(entry_json(entry))).collect();
        json!({
            "tier": self.tier.as_str(),
            "backend": self.backend,
            "clauses": Value::Array(clauses),
            "weakened": weakened_json(&self.weakened),
        })
    }

    /// SHA-256 (hex) of the canonical policy, see [`policy_digest`].
    #[must_use]
    pub fn policy_digest(&self) -> &str {
        self.policy_digest.0.get_or_init(|| policy_digest(&self.policy))
    }

    /// The shape of `plan --json`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut body = self.digested();
        let digest = self.digest.0.get_or_init(|| digest(&body)).as_str();
        let clauses = body.get_mut("clauses").and_then(Value::as_array_mut);
        for (clause, entry) in clauses.into_iter().flatten().zip(&self.entries) {
            if let Some(map) = clause.as_object_mut() {
                map.shift_insert(2, "origin".to_owned(), Value::from(entry.origin.as_str()));
            }
        }
        if let Some(map) = body.as_object_mut() {
            map.shift_insert(0, "schema".to_owned(), Value::from(1));
            map.shift_insert(1, "digest".to_owned(), Value::from(digest));
        }
        body
    }
}

impl Refusal {
    /// The shape of `plan --json` when there is no plan.
    #[must_use]
    pub fn to_json(&self) -> Value {
        json!({ "refused": self.refused })
    }
}
