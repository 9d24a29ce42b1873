//! `fumehood tools serve`: a policy becomes an engine, and the engine stands behind HTTP or a pipe.

mod command;
mod script;

use std::collections::BTreeMap;
use std::sync::Arc;

use gate::Listed;
use gate::call::{Call, Caller, ToolFacts};
use gate::rules::Counters;
use gate::verdict::{Reason, Verdict};
use gateway::approvals::Approvals;
use gateway::engine::{BoxFuture, CallResult, Engine, Run, ToolRequest, ToolRoute, ToolUnavailable};
use gateway::mcp::upstream_pool::UpstreamPool;
use gateway::record::Record;
use gateway::tool_route::error_text;
use gateway::{Broker, CallOutcome};
use policy::Loaded;
use policy::tools::Decision;
use serde_json::{Value as Json, json};

use crate::environment::Environment;
use crate::ui::{FAILED, Failure};
use sandbox::PolicyLayer;
use sandbox::fault::Fault;
use sandbox::state::State;

pub use command::Commands;
pub(crate) use script::script_tools;

/// Everything behind a front door.
#[derive(Debug)]
pub struct ToolServer {
    broker: Arc<Broker>,
    /// Names of the policy's entries that are no globs.
    named: Vec<String>,
    commands: Commands,
    /// MCP servers of the policy; none where it names none.
    upstreams: Option<Arc<UpstreamPool>>,
    facts: ToolFacts,
    /// What a program that starts us may know of the policy.
    pub about: Json,
}

/// The engine of a policy, with the MCP servers that it names.
///
/// # Errors
/// Everything that is wrong with the policy, the state folder, or the audit log.
pub fn tool_server(
    layers: &[PolicyLayer],
    environment: &Environment,
    commands: Commands,
) -> Result<ToolServer, Failure> {
    let (loaded, gate) = crate::load::gated(layers, environment)?;
    let Loaded { policy, .. } = &loaded;
    let (Some(tools), Some(gate)) = (&policy.tools, gate) else { return Err(crate::mcp::no_tools(layers)) };
    // What the next start goes by is one for all: neither a tool nor a server writes what the other is under.
    let configured = crate::mcp::Upstreams::of(tools, &loaded, layers, environment)?.holding(commands.documents());
    let commands = commands.holding(configured.documents());
    if let Some(both) = commands.names().find(|name| configured.has(name)) {
        return Err(two_ways(both));
    }
    let folder = environment.cwd.clone().unwrap_or_default();
    let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
    let broker = crate::broker::open(gate, &loaded, tools, &state, &folder)?;
    let digest = crate::broker::digest(tools);
    let named = tools.entries.iter().map(|entry| entry.name.value.clone()).filter(|name| !name.contains('*'));
    let upstreams = (!configured.is_empty()).then(|| {
        let options = crate::mcp::GatewayOptions { strict_pins: false, eager: false };
        UpstreamPool::new(configured.gateway(Arc::clone(&broker), &state, options))
    });
    Ok(ToolServer {
        broker,
        upstreams,
        named: named.collect(),
        commands,
        facts: ToolFacts::default(),
        about: json!({ "fumehood": env!("CARGO_PKG_VERSION"), "protocol": 1, "policy": { "name": policy.name, "tools": digest } }),
    })
}

fn two_ways(name: &str) -> Failure {
    Failure::Faults {
        code: FAILED,
        faults: vec![Fault {
            id: "usage/two-flags",
            what: format!("`--tool {name}=...` and an MCP server would both run `{name}`"),
            place: "command line".to_owned(),
            why: "what comes before the dot is the name of a server in the policy".to_owned(),
            fix: "give the program another name, or take the server out of [mcp.servers]".to_owned(),
        }],
    }
}

impl ToolServer {
    /// What to tell at the start: servers that cannot start as they are written.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.upstreams.as_ref().map(|upstreams| upstreams.notes()).unwrap_or_default()
    }

    /// Ends what was started for calls.
    pub async fn end(&self) {
        if let Some(upstreams) = &self.upstreams {
            upstreams.end_all().await;
        }
    }

    fn call_of<'a>(&'a self, what: ToolRequest<'a>) -> Call<'a> {
        let ToolRequest { tool, args, caller, facts } = what;
        let now = gateway::clock::now_ms();
        Call { tool, args, caller, facts: facts.unwrap_or(&self.facts), counters: Counters::default(), now }
    }
}

impl Engine for ToolServer {
    fn check(&self, tool: &str, args: Json, caller: &Caller, facts: Option<&ToolFacts>) -> Verdict {
        self.broker.check(&self.call_of(ToolRequest { tool, args, caller, facts }))
    }

    fn call<'a>(&'a self, what: ToolRequest<'a>, run: Run) -> BoxFuture<'a, CallResult> {
        let call = self.call_of(what);
        Box::pin(async move {
            let CallOutcome { verdict, result, id: _, approver: _, took: _ } = self.broker.call(call, run).await;
            CallResult { verdict, result }
        })
    }

    fn implementation<'a>(
        &'a self,
        tool: &'a str,
        caller: &'a Caller,
    ) -> BoxFuture<'a, Result<ToolRoute, ToolUnavailable>> {
        Box::pin(async move {
            if let Some(run) = self.commands.run(tool) {
                return Ok(ToolRoute { run, facts: None });
            }
            let upstreams = self.upstreams.as_ref().ok_or(ToolUnavailable::NoServer)?;
            let found = upstreams.find(tool, caller).await?;
            let facts = found.facts().clone();
            Ok(ToolRoute { run: found.run(), facts: Some(facts) })
        })
    }

    fn refused(&self, what: ToolRequest<'_>, why: &ToolUnavailable) {
        let (id, [said, why, instead]) = error_text(what.tool, why);
        let rule = "mcp".to_owned();
        let reason = Reason { id, rule, at: None, decision: Decision::Deny, what: said, why, instead };
        self.broker.refused(&self.call_of(what), reason);
    }

    fn end_session<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if let Some(upstreams) = &self.upstreams {
                upstreams.end(caller).await;
            }
            self.broker.end_session(caller);
        })
    }

    fn tools<'a>(&'a self, caller: &'a Caller) -> BoxFuture<'a, Vec<Json>> {
        Box::pin(async move {
            let mut shown = BTreeMap::new();
            for name in &self.named {
                if let Listed::Shown { schema } = self.broker.lists(name, &self.facts) {
                    let here = self.commands.has(name);
                    shown.insert(name.clone(), json!({ "name": name, "schema": schema, "implemented": here }));
                }
            }
            let theirs = match &self.upstreams {
                Some(upstreams) => upstreams.list(caller).await.unwrap_or_default(),
                None => Vec::new(),
            };
            for (name, description, schema) in theirs {
                let tool = json!({ "name": name, "description": description, "schema": schema, "implemented": true });
                shown.insert(name, tool);
            }
            shown.into_values().collect()
        })
    }

    fn approvals(&self) -> &Approvals {
        self.broker.approvals()
    }

    fn record(&self) -> Arc<dyn Record> {
        self.broker.record()
    }
}
