//! From a policy and what is to be run to a plan, or every reason why not.

use backends::Capabilities;
use policy::value::{Tier, TierChoice};
use policy::{Candidate, Choice, ClauseId, Loaded, Plan};

use super::asked;
use super::commands::{self, JudgedWorkload};
use super::launch;
use crate::environment::Environment;
use crate::error::Error;
use crate::workload::Workload;

/// A plan, what it is for, and what was said about it.
#[derive(Debug)]
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// Why this tier.
    pub why: String,
    /// Legal, but probably not meant.
    pub lints: Vec<policy::lint::Lint>,
    /// What was judged is what runs.
    pub(super) judged: JudgedWorkload,
}

impl Planned {
    /// What whoever reads the plan should know of the program that runs, in words: it is not the one that the caller has by that
    /// name.
    #[must_use]
    pub fn note(&self, environment: &Environment) -> Option<String> {
        super::elsewhere::note(&self.plan, &self.judged.what, environment)
    }

    /// Why it runs on this tier, in words, where the policy leaves that to us.
    pub(super) fn choice(&self) -> Option<String> {
        (self.plan.policy.tier == TierChoice::Auto).then(|| format!("tier: {}", self.why))
    }

    /// What is run, told apart: the `sha256` of its record.
    ///
    /// # Errors
    /// The script cannot be read.
    pub fn identity(&self) -> Result<String, Error> {
        asked::identity(&self.judged.what)
    }
}

/// Plans on this host what is to be run under a policy, or only the policy ([`Workload::Nothing`]). Nothing is started,
/// made or recorded.
///
/// # Errors
/// Mistakes of the policy, a command that it does not allow, or every clause that cannot be held.
pub fn plan(mut loaded: Loaded, what: Workload, host: &Capabilities) -> Result<Planned, Error> {
    let what = launch::named(what, &loaded.policy)?;
    let judged = commands::judge(&mut loaded, what)?;
    super::language::refuse(&loaded, &judged.what)?;
    let Choice { plan, why } = choose(&loaded, &judged.what, host)?;
    super::broker::refuse(&plan)?;
    crate::links::copies_are_free(&plan)?;
    Ok(Planned { plan, why, lints: loaded.lints, judged })
}

/// One backend's answers.
type Ask<'a> = Box<dyn Fn(ClauseId) -> policy::Support + 'a>;

/// Puts a policy to the backends of this host that take what is to be run.
///
/// # Errors
/// Every clause that cannot be held.
fn choose(loaded: &Loaded, what: &Workload, host: &Capabilities) -> Result<Choice, Error> {
    let foreign = super::language::foreign(loaded, what);
    let answers: Vec<(Tier, &'static str, Ask<'_>)> = backends::ALL
        .iter()
        // Which one is named, the planner sees.
        .filter(|backend| !backend.only_by_name() || loaded.policy.backend.is_some())
        .filter(|backend| backend.tier() != Tier::Language || foreign.is_none())
        .filter(|backend| {
            backend.tier() != Tier::Language || super::language::takes(backend.name(), what, loaded.policy.tier)
        })
        .map(|backend| {
            let policy = loaded.policy_on(backend.tier()).into_owned();
            let ask = move |clause: ClauseId| backend.support(clause, &policy, host);
            (backend.tier(), backend.name(), Box::new(ask) as Ask<'_>)
        })
        .collect();
    let candidates: Vec<Candidate<'_>> =
        answers.iter().map(|(tier, backend, ask)| Candidate { tier: *tier, backend, answers: ask }).collect();
    let mut choice = policy::choose(loaded, &candidates).map_err(Error::Unheld)?;
    if let Some(asks) = foreign {
        choice
            .why
            .push_str(&format!("; the program {asks}, which tier `language` has not, or not with the same results"));
    }
    if let Some(why) = super::language::passed(loaded, what) {
        choice.why.push_str(&format!("; not `language`: {why}"));
    }
    Ok(choice)
}
