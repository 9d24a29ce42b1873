//! From layers of documents and flags to a plan, or every reason why not.

use backends::{Backend, Capabilities};
use policy::value::Tier;
use policy::{Candidate, Choice, Clause, Loaded, Plan};

use crate::cli::load;
use crate::cli::{Request, World};
use crate::state::StateError;
use crate::ui::Failure;

/// A plan, and what was said about it.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Why this tier.
    pub why: String,
    /// Legal, but probably not meant.
    pub lints: Vec<policy::lint::Lint>,
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::Faults { code: 126, faults: vec![error.fault()] }
    }
}

impl From<crate::audit::AuditError> for Failure {
    fn from(error: crate::audit::AuditError) -> Self {
        Self::Faults { code: 126, faults: vec![error.fault()] }
    }
}

/// Plans on this host.
///
/// # Errors
/// Mistakes, or every clause that cannot be held.
pub fn plan(request: Request, world: &World, host: &Capabilities) -> Result<Planned, Failure> {
    let mut loaded = load::policy(&request.layers, world)?;
    super::commands::judge(&mut loaded, request.what)?;
    choose(&loaded, host)
}

/// One backend's answers.
type Ask<'a> = Box<dyn Fn(&Clause<'_>) -> policy::Support + 'a>;

/// Puts a policy to the backends of this host.
///
/// # Errors
/// Every clause that cannot be held.
pub fn choose(loaded: &Loaded, host: &Capabilities) -> Result<Planned, Failure> {
    let backends = backends::all();
    let answers: Vec<(Tier, &'static str, Ask<'_>)> = backends
        .iter()
        .map(|backend| {
            let policy = loaded.policy_on(backend.tier()).into_owned();
            let backend: &'static dyn Backend = *backend;
            let ask = move |clause: &Clause<'_>| backend.support(clause, &policy, host);
            (backend.tier(), backend.name(), Box::new(ask) as Ask<'_>)
        })
        .collect();
    let candidates: Vec<Candidate<'_>> =
        answers.iter().map(|(tier, backend, ask)| Candidate { tier: *tier, backend, answers: ask }).collect();
    match policy::choose(loaded, &candidates) {
        Ok(Choice { plan, why }) => Ok(Planned { plan, why, lints: loaded.lints.clone() }),
        Err(refusal) => Err(Failure::Refused(refusal)),
    }
}
