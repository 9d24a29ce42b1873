//! `fumehood tools serve`: a policy becomes an engine, and the engine stands behind HTTP or a pipe.

mod command;
mod desk;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use broker::approvals::Approvals;
use broker::call::{Call, Caller, ToolFacts};
use broker::gate::Listed;
use broker::http::{Boxed, Called, Engine, Run, Wanted};
use broker::record::Record;
use broker::rules::Counters;
use broker::verdict::Verdict;
use broker::{Answer, Broker};
use policy::Loaded;
use serde_json::{Value as Json, json};

use crate::cli::{Ingredient, World};
use crate::state::State;
use crate::ui::Failure;

pub use command::Commands;
pub use desk::broker;
pub use record::Recorder;

/// Everything behind a front door.
#[derive(Debug)]
pub struct House {
    broker: Arc<Broker>,
    /// Names of the policy's entries that are no globs.
    named: Vec<String>,
    commands: Commands,
    facts: ToolFacts,
    /// What a program that starts us may know of the policy.
    pub about: Json,
}

/// The house of a policy.
///
/// # Errors
/// Everything that is wrong with the policy, the state folder, or the audit log.
pub fn house(layers: &[Ingredient], world: &World, commands: Commands) -> Result<House, Failure> {
    let (loaded, gate) = crate::cli::load::gated(layers, world)?;
    let Loaded { policy, .. } = &loaded;
    let (Some(tools), Some(gate)) = (&policy.tools, gate) else { return Err(super::mcp::no_tools(layers)) };
    let folder = world.cwd.clone().unwrap_or_default();
    let state = State::open(&world.state).map_err(|error| Failure::own(error.fault()))?;
    let broker = desk::broker(gate, &loaded, tools, &state, &folder)?;
    let digest = desk::digest(tools);
    let named = tools.entries.iter().map(|entry| entry.name.value.clone()).filter(|name| !name.contains('*'));
    Ok(House {
        broker,
        named: named.collect(),
        commands,
        facts: ToolFacts::default(),
        about: json!({ "fumehood": env!("CARGO_PKG_VERSION"), "protocol": 1, "policy": { "name": policy.name, "tools": digest } }),
    })
}

impl House {
    fn call_of<'a>(&'a self, what: Wanted<'a>) -> Call<'a> {
        let Wanted { tool, args, caller, facts } = what;
        let now = broker::call::now_ms();
        Call { tool, args, caller, facts: facts.unwrap_or(&self.facts), counters: Counters::default(), now }
    }
}

impl Engine for House {
    fn check(&self, tool: &str, args: Json, caller: &Caller, facts: Option<&ToolFacts>) -> Verdict {
        self.broker.check(&self.call_of(Wanted { tool, args, caller, facts }))
    }

    fn call<'a>(&'a self, what: Wanted<'a>, run: Run) -> Boxed<'a, Called> {
        let call = self.call_of(what);
        Box::pin(async move {
            let Answer { verdict, result, id: _, approver: _, took: _ } = self.broker.call(call, run).await;
            Called { verdict, result }
        })
    }

    fn implementation(&self, tool: &str, _: &Caller) -> Option<Run> {
        self.commands.run(tool)
    }

    fn tools(&self, _: &Caller) -> Boxed<'_, Vec<Json>> {
        let mut shown = BTreeMap::new();
        for name in &self.named {
            if let Listed::Shown { schema } = self.broker.lists(name, &self.facts) {
                let here = self.commands.has(name);
                shown.insert(name, json!({ "name": name, "schema": schema, "implemented": here }));
            }
        }
        Box::pin(std::future::ready(shown.into_values().collect()))
    }

    fn approvals(&self) -> &Approvals {
        self.broker.approvals()
    }

    fn record(&self) -> Arc<dyn Record> {
        self.broker.record()
    }
}
