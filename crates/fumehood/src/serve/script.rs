//! The tools of a policy for a program of the language tier: the gate judges each call, and the policy's MCP servers make it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use gate::call::Caller;
use gate::result::{Content, ToolResult};
use gateway::engine::{CallResult, Engine as _, ToolRequest, ToolRoute};
use gateway::tool_route::{error_text, route};
use policy::Plan;
use policy::control::{Control, Interpreter};
use sandbox::PolicyLayer;
use sandbox::fault::Fault;
use sandbox::run::{NoResult, Tools};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::{Commands, ToolServer, tool_server};
use crate::environment::Environment;
use crate::ui::Failure;

/// The tools of one run.
#[derive(Debug)]
struct ScriptTools {
    server: ToolServer,
    runtime: Runtime,
    caller: Caller,
    /// The run is over: a call that waits for somebody is given up.
    over: watch::Sender<bool>,
}

/// Those of the policy that these layers make, where the plan lets a program call any.
///
/// # Errors
/// The gate cannot be opened.
pub(crate) fn script_tools(
    plan: &Plan,
    layers: &[PolicyLayer],
    environment: &Environment,
) -> Result<Option<Arc<dyn Tools>>, Failure> {
    let calls = |control: &Control| matches!(control, Control::Interpreter(Interpreter { tools: true, .. }));
    if !plan.controls().any(calls) {
        return Ok(None);
    }
    let none = Commands::new(BTreeMap::new(), ("strict".to_owned(), BTreeSet::new()), environment);
    let server = tool_server(layers, environment, none)?;
    let runtime = gateway::mcp::run::runtime().map_err(|error| {
        Failure::own(Fault {
            id: "run/descriptors",
            what: error.to_string(),
            place: "before the program was started".to_owned(),
            why: "nothing was run".to_owned(),
            fix: "raise the limit of open files (ulimit -n)".to_owned(),
        })
    })?;
    // Each run is a session of its own: what was answered for one is not for the next.
    let session = gateway::mcp::run::session_id().map_err(|why| {
        Failure::own(Fault {
            id: "run/session",
            what: why,
            place: "getrandom(2)".to_owned(),
            why: "nothing was run".to_owned(),
            fix: "look at what the kernel said".to_owned(),
        })
    })?;
    let caller = Caller { agent: "local".to_owned(), session, key: None };
    Ok(Some(Arc::new(ScriptTools { server, runtime, caller, over: watch::Sender::new(false) })))
}

impl Tools for ScriptTools {
    fn end(&self) {
        self.over.send_replace(true);
        self.runtime.block_on(async {
            self.server.end_session(&self.caller).await;
            self.server.end().await;
        });
    }

    fn call(&self, tool: &str, args: &Map<String, Value>) -> Result<Value, NoResult> {
        // What a program wrote is read as what comes by any other front door.
        let args = gate::json::settle(&Value::Object(args.clone()))
            .map_err(|flaw| NoResult::Failed(format!("the arguments cannot be taken: {flaw}")))?;
        self.runtime.block_on(async {
            let caller = &self.caller;
            let ToolRoute { run, facts } = match route(&self.server, tool, &args, caller).await.1 {
                Ok(route) => route,
                Err(why) => {
                    self.server.refused(ToolRequest { tool, args, caller, facts: None }, &why);
                    let (_, [what, why, _]) = error_text(tool, &why);
                    return Err(NoResult::Failed(format!("{what}: {why}")));
                }
            };
            let mut over = self.over.subscribe();
            let called = self.server.call(ToolRequest { tool, args, caller, facts: facts.as_ref() }, run);
            let CallResult { verdict, result } = tokio::select! {
                biased;
                // Who is over goes away: dropped, its question is withdrawn.
                _ = over.wait_for(|over| *over) => return Err(NoResult::Failed("the run is over".to_owned())),
                called = called => called,
            };
            match result {
                Some(Ok(result)) => value(result),
                Some(Err(failure)) => Err(NoResult::Failed(failure.message)),
                None => {
                    let why = |reason: &gate::verdict::Reason| format!("{}: {}", reason.what, reason.why);
                    let words: Vec<String> = verdict.reasons.iter().map(why).collect();
                    Err(NoResult::Denied(words.join("; ")))
                }
            }
        })
    }
}

/// What a program takes of a result: its structured content, else its texts.
fn value(result: ToolResult) -> Result<Value, NoResult> {
    let texts: Vec<&str> = result
        .content
        .iter()
        .filter_map(|part| match part {
            Content::Text(text) | Content::ResourceText { text, .. } => Some(text.as_str()),
            Content::Image { .. } | Content::Audio { .. } | Content::ResourceBlob { .. } | Content::Link { .. } => None,
        })
        .collect();
    let text = texts.join("\n");
    if result.is_error {
        return Err(NoResult::Failed(text));
    }
    Ok(result.structured.unwrap_or(Value::String(text)))
}
