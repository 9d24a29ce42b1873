//! Our own MCP server: code, commands and files of a workspace for a client, each call a run of its own under the policy.
//!
//! What a run changes is kept aside, as with `fumehood run`: `diff` shows it, and `apply` takes over exactly what was shown.
//! So each call begins with the workspace as it is, and nothing reaches it unseen. Where the policy has `[tools]`, calls
//! are judged by the broker under these names too.

mod act;
mod tools;

use std::sync::{Arc, Weak};

use gate::Listed;
use gate::call::{Call, Caller, ToolFacts};
use gate::rules::Counters;
use gateway::Broker;
use gateway::clock::now_ms;
use gateway::mcp::denial_text;
use gateway::mcp::peer::{Handler, Incoming, Peer};
use gateway::mcp::protocol::{self, Client, Keep, Protocol};
use gateway::mcp::wire::{self, Outcome, RpcError};
use serde_json::{Value as Json, json};

pub use act::Actor;
pub use tools::TOOLS;

/// The server of one client.
pub struct Server {
    me: Weak<Self>,
    actor: Arc<Actor>,
    /// The broker, where the policy has `[tools]`.
    broker: Option<Arc<Broker>>,
    caller: Caller,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Server {
    /// A server for a caller.
    #[must_use]
    pub fn new(actor: Actor, broker: Option<Arc<Broker>>, caller: Caller) -> Arc<Self> {
        Arc::new_cyclic(|me| Self { me: me.clone(), actor: Arc::new(actor), broker, caller })
    }

    async fn serve(self: Arc<Self>, incoming: Incoming) {
        let described = Client::of_meta(&incoming.params);
        let protocol = match described {
            Ok(Some(client)) if client.version == protocol::STATELESS => Protocol::Stateless,
            Ok(Some(_)) => {
                let error = RpcError::new(wire::UNSUPPORTED_VERSION, "unsupported protocol version")
                    .with(json!({ "supported": protocol::supported() }));
                return incoming.answer(Err(error)).await;
            }
            Ok(None) => Protocol::Handshake,
            Err(missing) => {
                let words = format!("`_meta` of the request lacks {}", missing.join(", "));
                return incoming.answer(Err(RpcError::new(wire::INVALID_PARAMS, words))).await;
            }
        };
        let cancel = incoming.cancel.clone();
        let mut outcome = tokio::select! {
            outcome = self.dispatch(protocol, &incoming.method, &incoming.params) => outcome,
            () = cancel.cancelled() => Err(RpcError::new(wire::UNAVAILABLE, "cancelled")),
        };
        if let Ok(result) = &mut outcome {
            let keep = if incoming.method == "tools/call" { Keep::Silent } else { Keep::Never };
            protocol::dress(result, protocol, keep);
        }
        incoming.answer(outcome).await;
    }

    async fn dispatch(&self, protocol: Protocol, method: &str, params: &Json) -> Outcome {
        let capabilities = json!({ "tools": {} });
        match (method, protocol) {
            ("initialize", Protocol::Handshake) => Ok(json!({
                "protocolVersion": Client::of_handshake(params).version,
                "capabilities": capabilities,
                "serverInfo": protocol::implementation(),
                "instructions": self.actor.instructions(),
            })),
            ("server/discover", Protocol::Stateless) => Ok(json!({
                "supportedVersions": protocol::supported(),
                "capabilities": capabilities,
                "instructions": self.actor.instructions(),
            })),
            ("ping", Protocol::Handshake) => Ok(json!({})),
            ("tools/list", Protocol::Handshake | Protocol::Stateless) => Ok(json!({ "tools": self.shown() })),
            ("tools/call", Protocol::Handshake | Protocol::Stateless) => self.call(params).await,
            (other, Protocol::Handshake | Protocol::Stateless) => Err(RpcError::no_method(other)),
        }
    }

    fn shown(&self) -> Vec<Json> {
        let offered = TOOLS.iter().filter(|tool| self.actor.offers(tool));
        offered.filter_map(|tool| self.one_shown(tool)).collect()
    }

    /// As a client sees it; none if the gate hides it.
    fn one_shown(&self, tool: &tools::Tool) -> Option<Json> {
        let mut definition = tool.definition();
        if let Some(broker) = &self.broker {
            match broker.lists(tool.name, &tool.facts()) {
                Listed::Hidden => return None,
                Listed::Shown { schema } => {
                    definition.as_object_mut()?.insert("inputSchema".to_owned(), schema);
                }
            }
        }
        Some(definition)
    }

    async fn call(&self, params: &Json) -> Outcome {
        let name = params.get("name").and_then(Json::as_str).unwrap_or_default();
        let Some(tool) = TOOLS.iter().find(|tool| tool.name == name && self.actor.offers(tool)) else {
            let shown = gateway::mcp::text::shown(name, 100);
            return Err(RpcError::new(wire::INVALID_PARAMS, format!("unknown tool: `{shown}`")));
        };
        let args = match params.get("arguments") {
            None | Some(Json::Null) => json!({}),
            Some(args @ Json::Object(_)) => args.clone(),
            Some(_) => return Err(RpcError::new(wire::INVALID_PARAMS, "`arguments` is no object")),
        };
        let actor = self.actor.clone();
        let Some(broker) = &self.broker else {
            let mut result = match tools::fits(tool, &args) {
                Ok(()) => actor.act(tool, &args).await.to_json(),
                Err(why) => act::failed(&why).to_json(),
            };
            gateway::mcp::text::clean_all(&mut result);
            return Ok(result);
        };
        let facts: ToolFacts = tool.facts();
        let run = async move |args| {
            // The gate may have been told another schema: ours holds all the same.
            match tools::fits(tool, &args) {
                Ok(()) => Ok(actor.act(tool, &args).await.into_result()),
                Err(why) => Ok(act::failed(&why).into_result()),
            }
        };
        let call = Call {
            tool: tool.name,
            args,
            caller: &self.caller,
            facts: &facts,
            counters: Counters::default(),
            now: now_ms(),
        };
        let answer = broker.call(call, run).await;
        let told = |text: String| json!({ "content": [{ "type": "text", "text": text }], "isError": true });
        Ok(match answer.result {
            Some(Ok(result)) => gateway::mcp::written(&result),
            Some(Err(failure)) => told(failure.message),
            None => told(denial_text(&answer.verdict)),
        })
    }
}

impl Handler for Server {
    fn request(&self, incoming: Incoming) {
        if let Some(me) = self.me.upgrade() {
            tokio::spawn(me.serve(incoming));
        }
    }

    fn notification(&self, _: &Peer, _: &str, _: Json) {}
}
