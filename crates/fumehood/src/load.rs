//! Documents and flags become one policy, with what only the gate can tell of it.

use gate::Gate;
use policy::Loaded;
use sandbox::{Environment, Error, Inputs, PolicyLayer};

/// The policy that these layers make.
///
/// # Errors
/// Everything that is wrong, or a current directory that is gone.
pub fn policy(layers: &[PolicyLayer], environment: &Environment) -> Result<Loaded, Error> {
    judged(layers, environment, Inputs::Now).map(|(loaded, _)| loaded)
}

/// The policy as it is looked at: its inputs are given when something runs.
///
/// # Errors
/// As [`policy()`].
pub fn policy_alone(layers: &[PolicyLayer], environment: &Environment) -> Result<Loaded, Error> {
    judged(layers, environment, Inputs::Later).map(|(loaded, _)| loaded)
}

/// The policy with the gate of its `[tools]`, if it has any: a front door takes the one that its reading made.
///
/// # Errors
/// As [`policy()`].
pub fn gated(layers: &[PolicyLayer], environment: &Environment) -> Result<(Loaded, Option<Gate>), Error> {
    judged(layers, environment, Inputs::Now)
}

/// What only the gate can tell of `[tools]` (schemas, conditions, examples) is told wherever the policy is read.
fn judged(layers: &[PolicyLayer], environment: &Environment, inputs: Inputs) -> Result<(Loaded, Option<Gate>), Error> {
    let mut loaded = sandbox::load(layers, environment, inputs)?;
    let Some(tools) = &loaded.policy.tools else { return Ok((loaded, None)) };
    let (gate, lints) = Gate::new(tools, &loaded.documents).map_err(Error::Mistakes)?;
    loaded.lints.extend(lints);
    Ok((loaded, Some(gate)))
}
