//! `fumehood tools`: what an agent may call, and what the gate says to one call.

mod check;
mod ls;

pub(super) use check::SPEC as CHECK;
pub(super) use ls::SPEC as LS;

use policy::Loaded;
use policy::mistake::Mistakes;
use policy::tools::{Decision, Mcp, Tools};

use super::ask::layers;
use super::load;
use super::spec::Call;
use crate::ui::{Failure, Role};

/// The policy of a call, and its gate; a policy without `[tools]` names no tool and so denies all.
fn gated(call: &Call<'_>) -> Result<(Loaded, Tools, broker::Gate), Failure> {
    let (layers, wrong) = layers(&call.parsed.flags);
    if !wrong.is_empty() {
        return Err(Failure::Faults { code: 126, faults: wrong });
    }
    let loaded = load::policy(&layers, call.world)?;
    let none = || Tools {
        default: Decision::Deny,
        entries: Vec::new(),
        mcp: Mcp::default(),
        written: serde_json::Value::Null,
    };
    let tools = loaded.policy.tools.as_deref().cloned().unwrap_or_else(none);
    let (gate, _lints) =
        broker::Gate::new(&tools, &loaded.documents).map_err(|mistakes: Mistakes| Failure::Mistakes(mistakes))?;
    Ok((loaded, tools, gate))
}

const fn role(decision: Decision) -> Role {
    match decision {
        Decision::Allow => Role::Good,
        Decision::Ask => Role::Weak,
        Decision::Deny => Role::Bad,
    }
}
