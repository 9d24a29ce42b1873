//! `fumehood tools`: what an agent may call, and what the gate says to one call.

mod check;
mod ls;
mod offered;
mod suggest;

pub(super) use check::SPEC as CHECK;
pub(super) use ls::SPEC as LS;
pub(super) use suggest::SPEC as SUGGEST;

use policy::Loaded;
use policy::tools::{Decision, Mcp, Tools};

use super::ask::asked_layers;
use super::spec::Call;
use crate::load;
use crate::ui::{Failure, REFUSED, Role};

/// The policy of a call, and its gate; a policy without `[tools]` names no tool and so denies all.
fn gated(call: &Call<'_>) -> Result<(Loaded, Tools, gate::Gate), Failure> {
    let (loaded, gate) = load::gated(&asked_layers(call, REFUSED)?, call.environment)?;
    let none = || Tools {
        default: Decision::Deny,
        entries: Vec::new(),
        mcp: Mcp::default(),
        written: serde_json::Value::Null,
    };
    let tools = loaded.policy.tools.as_deref().cloned().unwrap_or_else(none);
    let gate = match gate {
        Some(gate) => gate,
        None => gate::Gate::new(&tools, &loaded.documents).map_err(Failure::Diagnostics)?.0,
    };
    Ok((loaded, tools, gate))
}

const fn role(decision: Decision) -> Role {
    match decision {
        Decision::Allow => Role::Good,
        Decision::Ask => Role::Weak,
        Decision::Deny => Role::Bad,
    }
}
