//! What servers ask and tell, and whether they come and go.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json, json};

use super::Session;
use crate::mcp::allow::Asking;
use crate::mcp::catalog::Tool;
use crate::mcp::client_requests::{self, Askable, From};
use crate::mcp::lock;
use crate::mcp::packages;
use crate::mcp::peer::Incoming;
use crate::mcp::pins::PinState;
use crate::mcp::protocol::Protocol;
use crate::mcp::upstream::Owner;
use crate::mcp::wire::{self, Outcome, RpcError};

impl Owner for Session {
    fn capabilities(&self, server: &str) -> Json {
        let mut map = Map::new();
        if self.alone {
            return Json::Object(map);
        }
        let client = self.client().map(|(client, _)| client);
        for asking in [Asking::Sampling, Asking::Elicitation, Asking::Roots] {
            // Without a handshake the client says what it can do with each call; a server that was told more is answered
            // with an error then.
            let can = client.as_ref().is_none_or(|client| client.can(asking.as_str()));
            if can && self.gateway.allow.asks(server, asking) {
                let said = client.as_ref().and_then(|client| client.capabilities.get(asking.as_str()).cloned());
                map.insert(asking.as_str().to_owned(), said.unwrap_or_else(|| json!({})));
            }
        }
        Json::Object(map)
    }

    fn asked(&self, server: &str, incoming: Incoming) {
        let Some(me) = self.me.upgrade() else { return };
        let server = server.to_owned();
        self.tasks.spawn(async move {
            let cancel = incoming.cancel.clone();
            let outcome = tokio::select! {
                outcome = me.pass_question(&server, &incoming) => outcome,
                () = cancel.cancelled() => Err(RpcError::new(wire::UNAVAILABLE, "cancelled")),
            };
            incoming.answer(outcome).await;
        });
    }

    fn told(&self, server: &str, method: &str, params: Json) {
        let what = match method {
            "notifications/tools/list_changed" => "tools",
            "notifications/resources/list_changed" => "resources",
            "notifications/prompts/list_changed" => "prompts",
            "notifications/resources/updated" => return self.resource_updated(server, &params),
            "notifications/message" => return self.log_message(server, params),
            _ => return,
        };
        if what == "tools" {
            self.forget(Some(server));
        }
        self.changed_list(what);
    }

    fn changed(&self, server: &str, end: Option<&str>) {
        self.forget(Some(server));
        if end.is_none() {
            self.catch_up(server);
        }
        // Only what changes an answer that was given is told: the first coming up is what the first list waits for.
        self.found_again(server, end.is_some());
    }
}

impl Session {
    /// Tells that the lists changed, if the server was missing in an answer, or in any case.
    pub(super) fn found_again(&self, server: &str, anyhow: bool) {
        let missed = lock(&self.missed).remove(server);
        if anyhow || missed {
            for what in ["tools", "resources", "prompts"] {
                self.changed_list(what);
            }
        }
    }

    /// Servers that are looked at for a list, and not waited for: those that were late before, and those whose command alone
    /// says that they cannot come up.
    pub(in crate::mcp) fn not_waited_for(&self) -> BTreeSet<String> {
        let mut names = lock(&self.late).clone();
        let hopeless = self.upstreams.iter().filter(|(_, one)| packages::advice(&one.server).is_some());
        names.extend(hopeless.map(|(name, _)| name.clone()));
        names
    }

    /// A server that came (again) is told what its predecessor knew: the log level, subscriptions.
    fn catch_up(&self, server: &str) {
        let Some(link) = self.upstreams.get(server).and_then(|upstream| upstream.link_now()) else { return };
        let level =
            lock(&self.log_level).clone().filter(|_| link.has("logging") && link.who.protocol == Protocol::Handshake);
        let uris = self.listeners.subscribed(server);
        if level.is_none() && uris.is_empty() {
            return;
        }
        self.tasks.spawn(async move {
            if let Some(level) = level
                && link.ask("logging/setLevel", json!({ "level": level })).await.is_err()
            {
                // It keeps its own level then.
            }
            for uri in uris {
                if link.ask("resources/subscribe", json!({ "uri": uri })).await.is_err() {
                    // It no longer has it; the list says so.
                }
            }
        });
    }

    /// Whether a tool is still the one that was judged, or why not: it may have changed while its call waited for a person.
    /// After a wait its server is asked again what it has; the pins are looked at whenever somebody wrote them.
    pub(in crate::mcp) async fn still_is(&self, tool: &Tool, waited: bool) -> Result<(), String> {
        if waited {
            self.forget(Some(&tool.server));
        }
        let mut part = self.part(&tool.server).await;
        let reach = self.link_of(&tool.server).map(|upstream| upstream.server.pinned()).unwrap_or_default();
        if !waited && !part.is_trusted(&self.gateway.pinning, &tool.server, &reach, tool) {
            // Somebody wrote the pins: what the server has is judged by them again.
            self.forget(Some(&tool.server));
            part = self.part(&tool.server).await;
        }
        let now = part.tools.iter().find(|one| one.own == tool.own);
        if now.is_some_and(|now| now.standing != PinState::Held && now.hash == tool.hash) {
            return Ok(());
        }
        if now.is_none() && part.tools.is_empty() && !part.notes.is_empty() {
            return Err(format!("the tool `{}` is no longer there: {}", tool.named, part.notes.join("; ")));
        }
        Err(format!(
            "denied (mcp.pin/changed): the tool `{}` is no longer what was judged: its server says something else of it, or \
             somebody took the trust in it back. Nothing was run.\ninstead: tell the user; after a look at `fumehood mcp pins ls` \
             they may run `fumehood mcp pins accept {}`, and the call is made anew.",
            tool.named, tool.named
        ))
    }

    /// A question of a server goes to the client of the call that it is about; without one, to the client itself.
    async fn pass_question(&self, server: &str, incoming: &Incoming) -> Outcome {
        let of_call = {
            let running = lock(&self.running);
            running.values().rev().find(|(of, _)| of == server).map(|(_, askable)| askable.clone())
        };
        let askable = match (of_call, self.client()) {
            (Some(askable), _) => askable,
            (None, Some((client, peer))) => Askable::direct(peer, None, client),
            (None, None) => return Err(RpcError::new(wire::UNAVAILABLE, "there is no client to ask")),
        };
        let from = From { server, pushed: &self.pushed(server) };
        client_requests::pass(&self.gateway.allow, from, &incoming.method, incoming.params.clone(), &askable).await
    }
}
