//! The servers of a gateway for callers that are no MCP clients: those of the HTTP front door and of the pipe.
//!
//! A tool is found by the name that policies have for it, and only its own server is started for that. Each conversation of
//! an agent has servers of its own, as an MCP session has; nobody can be asked anything by them, and they are told so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gate::Listed;
use gate::call::{Caller, ToolFacts};
use serde_json::{Map, Value as Json};
use tokio::time::Instant;

use super::catalog::Tool;
use super::client_requests::Askable;
use super::gateway::Gateway;
use super::lock;
use super::names::server_of;
use super::pins::PinState;
use super::protocol::Client;
use super::session::Session;
use super::tools::{OnTheList, ToolCall};
use crate::engine::{Run, ToolUnavailable};

/// Most conversations with servers of their own.
const MAX_CONVERSATIONS: usize = 64;
/// A conversation that nobody used for so long has no servers any more; the next call starts them again.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How often that is looked at.
const LOOK: Duration = Duration::from_secs(60);

/// A tool of a server, ready to be called once.
pub struct ResolvedTool {
    session: Arc<Session>,
    tool: Arc<Tool>,
    begun: Instant,
}

impl std::fmt::Debug for ResolvedTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResolvedTool").field("tool", &self.tool).finish_non_exhaustive()
    }
}

impl ResolvedTool {
    /// What it says of itself.
    #[must_use]
    pub fn facts(&self) -> &ToolFacts {
        &self.tool.facts
    }

    /// Calls it. Dropped on the way, the server is told that nobody waits any more.
    #[must_use]
    pub fn run(self) -> Run {
        let Self { session, tool, begun } = self;
        Box::new(move |args| {
            Box::pin(async move {
                let (askable, _nobody) = Askable::waiting(Client::of_handshake(&Json::Null));
                let listed = OnTheList::new(session.clone(), &tool.server, &askable);
                let trip = ToolCall { session, tool, meta: Map::new(), askable, progress: None, begun };
                let result = trip.there_and_back(args).await;
                drop(listed);
                result
            })
        })
    }
}

/// A tool as its server describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered {
    /// `server.tool`
    pub name: String,
    /// In its server's words, with what hides written out.
    pub description: String,
    /// What it says of itself.
    pub facts: ToolFacts,
}

/// One conversation of an agent.
struct Conversation {
    session: Arc<Session>,
    used: Instant,
}

/// The servers of all conversations, started when they are needed.
pub struct UpstreamPool {
    gateway: Arc<Gateway>,
    conversations: Mutex<HashMap<(String, String), Conversation>>,
    looking: std::sync::Once,
}

impl std::fmt::Debug for UpstreamPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UpstreamPool").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl UpstreamPool {
    /// Those of a gateway. Nothing is started.
    #[must_use]
    pub fn new(gateway: Gateway) -> Arc<Self> {
        let gateway = Arc::new(gateway);
        Arc::new(Self { gateway, conversations: Mutex::default(), looking: std::sync::Once::new() })
    }

    /// Whether the part before the dot is one of the servers.
    #[must_use]
    pub fn has_server(&self, tool: &str) -> bool {
        server_of(tool).is_some_and(|server| self.gateway.servers.iter().any(|one| one.name == server))
    }

    /// The tool that policies call so; its server is started if it does not run.
    ///
    /// # Errors
    /// [`ToolUnavailable`]
    pub async fn find(self: &Arc<Self>, tool: &str, caller: &Caller) -> Result<ResolvedTool, ToolUnavailable> {
        if !self.has_server(tool) {
            return Err(ToolUnavailable::NoServer);
        }
        let session = self.session(caller)?;
        let tool = session.named(tool).await?;
        Ok(ResolvedTool { session, tool, begun: Instant::now() })
    }

    /// All tools that may be seen: name, description, schema as the gate judges it. Servers that do not run are started.
    ///
    /// # Errors
    /// [`ToolUnavailable::Full`]
    pub async fn list(self: &Arc<Self>, caller: &Caller) -> Result<Vec<(String, Json, Json)>, ToolUnavailable> {
        Ok(self.session(caller)?.all_named().await)
    }

    /// What to tell when it is loaded: servers that cannot start as they are written.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        super::packages::notes(&self.gateway.servers)
    }

    /// What to tell of one server before it is waited for: that it cannot start as it is written, and what helps.
    #[must_use]
    pub fn advice(&self, server: &str) -> Option<String> {
        self.gateway.servers.iter().find(|one| one.name == server).and_then(super::packages::advice)
    }

    /// What one server offers, whatever the policy says of it, and what there is to say of the server. It is started if it does
    /// not run; looking trusts nothing.
    ///
    /// # Errors
    /// [`ToolUnavailable`]
    pub async fn offered(
        self: &Arc<Self>,
        server: &str,
        caller: &Caller,
    ) -> Result<(Vec<Offered>, Vec<String>), ToolUnavailable> {
        let session = self.session(caller)?;
        let upstream = session.link_of(server).ok_or(ToolUnavailable::NoServer)?;
        let link = upstream.link().await.map_err(|down| {
            let advice = super::packages::advice(&upstream.server).map(|advice| format!(". {advice}"));
            ToolUnavailable::NotThere(format!("{}{}", down.describe(server), advice.unwrap_or_default()))
        })?;
        let part = super::catalog::offered(&link, server).await;
        let offered = part.tools.iter().map(|tool| Offered {
            name: tool.named.clone(),
            description: tool.definition.get("description").and_then(Json::as_str).unwrap_or_default().to_owned(),
            facts: tool.facts.clone(),
        });
        Ok((offered.collect(), part.notes.clone()))
    }

    /// A conversation is over: its servers end, and what was counted for it is forgotten.
    pub async fn end(&self, caller: &Caller) {
        let ended = lock(&self.conversations).remove(&key(caller));
        if let Some(conversation) = ended {
            conversation.session.end().await;
        }
    }

    /// Ends all of them.
    pub async fn end_all(&self) {
        let all: Vec<_> = lock(&self.conversations).drain().map(|(_, conversation)| conversation).collect();
        Session::end_all(all.into_iter().map(|conversation| conversation.session)).await;
    }

    fn session(self: &Arc<Self>, caller: &Caller) -> Result<Arc<Session>, ToolUnavailable> {
        self.looking.call_once(|| drop(tokio::spawn(look(Arc::downgrade(self)))));
        let mut conversations = lock(&self.conversations);
        if let Some(one) = conversations.get_mut(&key(caller)) {
            one.used = Instant::now();
            return Ok(one.session.clone());
        }
        if conversations.len() >= MAX_CONVERSATIONS {
            return Err(ToolUnavailable::Full);
        }
        let session = Session::without_client(&self.gateway, caller.clone());
        let conversation = Conversation { session: session.clone(), used: Instant::now() };
        conversations.insert(key(caller), conversation);
        Ok(session)
    }
}

fn key(caller: &Caller) -> (String, String) {
    (caller.agent.clone(), caller.session.clone())
}

/// Ends the servers of conversations that nobody uses.
async fn look(upstreams: Weak<UpstreamPool>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Some(upstreams) = upstreams.upgrade() else { return };
        let idle: Vec<_> = {
            let mut conversations = lock(&upstreams.conversations);
            let is_idle = |one: &Conversation| one.used.elapsed() > IDLE && lock(&one.session.running).is_empty();
            let keys: Vec<_> =
                conversations.iter().filter(|(_, one)| is_idle(one)).map(|(key, _)| key.clone()).collect();
            keys.iter().filter_map(|key| conversations.remove(key)).collect()
        };
        for conversation in idle {
            conversation.session.end_servers().await;
        }
    }
}

impl Session {
    async fn named(&self, name: &str) -> Result<Arc<Tool>, ToolUnavailable> {
        self.look_at_pins();
        let server = server_of(name).unwrap_or(name);
        let part = self.part(server).await;
        let found = part.tools.iter().find(|tool| tool.named == name);
        match found {
            Some(tool) if tool.standing == PinState::Held => Err(ToolUnavailable::Held),
            Some(tool) => Ok(tool.clone()),
            None if part.tools.is_empty() && !part.notes.is_empty() => {
                Err(ToolUnavailable::NotThere(part.notes.join("; ")))
            }
            None => Err(ToolUnavailable::NotThere(format!("the server `{server}` has no such tool"))),
        }
    }

    async fn all_named(&self) -> Vec<(String, Json, Json)> {
        let catalog = self.catalog().await;
        let mut all = Vec::new();
        for (_, tool) in catalog.tools.iter() {
            if tool.standing == PinState::Held {
                continue;
            }
            if let Listed::Shown { schema } = self.gateway.broker.lists(&tool.named, &tool.facts) {
                let pushed = self.pushed(&tool.server);
                let description = tool.definition.get("description").cloned().unwrap_or_default();
                all.push((tool.named.clone(), pushed.definition(description), pushed.definition(schema)));
            }
        }
        all
    }
}
