//! Which tier a policy should have on this host: each backend is asked for a plan, and the weakest that has one and is meant
//! against the threat is the choice. Nothing is decided here that the planner does not say.

mod cost;
mod need;

use backends::Capabilities;
use policy::plan::Entry;
use policy::value::{BackendName, Threat, Tier};
use policy::{ClauseId, Loaded};
use sandbox::{PolicyLayer, Workload};
use serde_json::{Value, json};

use crate::environment::Environment;
use crate::load;
use crate::ui::Failure;

pub(crate) use cost::{Cost, Costs, Measuring, STARTS};
pub(crate) use need::Need;

/// Every tier, weakest first.
pub(crate) const TIERS: [Tier; 5] = [Tier::Language, Tier::Process, Tier::Container, Tier::Gvisor, Tier::Vm];

/// What a tier says to a policy.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) tier: Tier,
    /// None where this version has no backend for the tier.
    pub(crate) backend: Option<&'static str>,
    /// Why it is not to be had, as in `plan --json`; empty = it holds.
    pub(crate) refused: Vec<Value>,
    /// How many clauses have a holder in its plan.
    pub(crate) held: usize,
    /// What may pass the tier itself, as its plan names it: known faults of what it is made of.
    pub(crate) overshoot: Option<String>,
}

impl Row {
    pub(crate) fn holds(&self) -> bool {
        self.refused.is_empty()
    }

    pub(crate) fn to_json(&self, costs: &Costs) -> Value {
        let Self { tier, backend, refused, held, overshoot } = self;
        let cost = costs.of(self);
        json!({
            "tier": tier.as_str(),
            "backend": backend,
            "holds": self.holds(),
            "clauses": held,
            "refused": refused,
            "strength": strength(*tier),
            "overshoot": overshoot,
            "start_ms": cost.map(|cost| cost.start_ms),
            "memory": cost.and_then(|cost| cost.memory),
            "measured": cost.is_some(),
        })
    }
}

/// What stands between a program and the host.
pub(crate) const fn strength(tier: Tier) -> &'static str {
    match tier {
        Tier::Language => "no operating system to ask",
        Tier::Process => "files, sockets and privilege are closed; what is there can be seen",
        Tier::Container => "sees and reaches only what is given; bugs of the kernel stay",
        Tier::Gvisor => "a kernel of its own in user space before the host's",
        Tier::Vm => "a kernel of its own in an emulated machine, and the container tier around that",
    }
}

/// Puts a policy to every tier. `layers` are the caller's documents and flags.
///
/// # Errors
/// The policy itself is wrong.
pub(crate) fn rows(
    layers: &[PolicyLayer],
    needs: &[Need],
    environment: &Environment,
    host: &Capabilities,
) -> Result<(Threat, Vec<Row>), Failure> {
    let asked = load::policy_alone(layers, environment)?;
    let mut layers = layers.to_vec();
    layers.extend(needs.iter().flat_map(|need| need.clauses(&asked.policy)));
    let rows = TIERS.iter().flat_map(|tier| of_tier(*tier, &layers, (&asked, needs), (environment, host)));
    Ok((asked.policy.threat, rows.collect()))
}

fn of_tier(
    tier: Tier,
    layers: &[PolicyLayer],
    (asked, needs): (&Loaded, &[Need]),
    (environment, host): (&Environment, &Capabilities),
) -> Vec<Row> {
    let threat = asked.policy.threat;
    let mut backends: Vec<Option<&'static str>> =
        backends::ALL.iter().filter(|b| b.tier() == tier).map(|b| Some(b.name())).collect();
    if backends.is_empty() {
        backends.push(None);
    }
    let row = |backend: Option<&'static str>| {
        let mut refused: Vec<Value> = needs.iter().filter_map(|need| need.missing(tier, &asked.policy)).collect();
        refused.extend(backend.and_then(|_| too_weak(tier, threat)));
        refused.extend(backend.and_then(|name| not_named(name, asked.policy.backend)));
        let (mut held, mut overshoot) = (0, None);
        match backend.map(|name| plan((tier, name), (layers, needs), environment, host)) {
            None => refused.push(no_backend(tier)),
            Some(Err(stop)) => refused.extend(reasons(&stop)),
            Some(Ok(plan)) => {
                held = plan.entries.len();
                let tier = plan.entries.iter().find(|entry| entry.clause == ClauseId::Tier);
                overshoot = tier.and_then(|entry| entry.controls.overshoot());
                if threat != Threat::Mistakes {
                    // What the policy itself prefers is weaker with its leave, and recorded.
                    let preferred = |entry: &Entry| plan.weakened.iter().any(|weak| weak.clause == entry.clause);
                    let mistakes = |entry: &&Entry| entry.controls.against() == Threat::Mistakes;
                    let open = plan.entries.iter().filter(mistakes).filter(|entry| !preferred(entry));
                    refused.extend(open.map(|entry| {
                        reason(
                            entry.clause.path(),
                            entry.clause.path(),
                            &format!("`{}` holds it against mistakes alone", entry.controls.enforcer()),
                            "drop the clause, or say `--threat mistakes`",
                        )
                    }));
                }
            }
        }
        Row { tier, backend, refused, held, overshoot }
    };
    backends.into_iter().map(row).collect()
}

fn plan(
    (tier, backend): (Tier, &'static str),
    (layers, needs): (&[PolicyLayer], &[Need]),
    environment: &Environment,
    host: &Capabilities,
) -> Result<policy::Plan, Failure> {
    let mut layers = layers.to_vec();
    layers.push(PolicyLayer::Flag { name: "--tier".to_owned(), value: tier.as_str().to_owned() });
    layers.push(PolicyLayer::Set(format!("backend={backend}")));
    let loaded = load::policy_alone(&layers, environment)?;
    let is_live = needs.iter().any(|need| need.is_of_files());
    let what = if is_live { Workload::Agent(agent::ELF) } else { Workload::Nothing };
    let plan = sandbox::plan(loaded, what, host)?.plan;
    // What a start would refuse is no choice, nor is what nobody could keep then.
    sandbox::run::foresee(&plan, host)?;
    if is_live {
        sandbox::run::could_snapshot(&plan, host)?;
    }
    Ok(plan)
}

/// The reasons of a refusal as `plan --json` has them; mistakes of the policy and our own failures have the same keys.
fn reasons(stop: &Failure) -> Vec<Value> {
    let json = stop.json();
    let list = json.get("refused").or_else(|| json.get("errors")).and_then(Value::as_array).cloned();
    list.filter(|list| !list.is_empty()).unwrap_or_else(|| vec![json])
}

fn too_weak(tier: Tier, threat: Threat) -> Option<Value> {
    let least = threat.least_tier();
    (tier < least).then(|| {
        let why = format!("threat `{threat}` needs the tier `{least}` or a stronger one");
        reason("tier", tier.as_str(), &why, "say `--threat mistakes` where the code is honest and may only be wrong")
    })
}

/// The policy names another backend; where this version has none of that name, why, and what to ask for instead.
fn not_named(backend: &str, asked: Option<BackendName>) -> Option<Value> {
    let other = asked.filter(|asked| asked.as_str() != backend)?;
    let (why, fix) =
        policy::not_built(other).map_or((String::new(), "drop `backend`"), |(why, fix)| (format!("; {why}"), fix));
    Some(reason("backend", backend, &format!("the policy names the backend `{other}`{why}"), fix))
}

fn no_backend(tier: Tier) -> Value {
    let fix = "take a tier that `fumehood doctor` shows as to be had";
    reason("tier", tier.as_str(), "this version has no backend for the tier", fix)
}

fn reason(clause: &str, what: &str, why: &str, fix: &str) -> Value {
    json!({ "id": "choose/tier", "clause": clause, "what": format!("`{what}`"), "where": "fumehood choose", "why": why, "fix": fix })
}
