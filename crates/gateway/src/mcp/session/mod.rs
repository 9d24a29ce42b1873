//! One client's conversation: who it is, its own upstream servers, and what each of its requests leads to.
//!
//! Sessions share nothing that a server could carry from one to another: each has its own server processes, tables and
//! subscriptions.

mod heard;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use gate::call::Caller;
use serde_json::{Map, Value as Json, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::mcp::allow::Asking;
use crate::mcp::catalog::{self, Catalog, Part};
use crate::mcp::client_requests::{Askable, Waiting};
use crate::mcp::gateway::Gateway;
use crate::mcp::listen::Listeners;
use crate::mcp::lock;
use crate::mcp::patience::Patience;
use crate::mcp::peer::{Handler, Incoming, Peer};
use crate::mcp::pins::Version;
use crate::mcp::protocol::{self, Client, Keep, Protocol};
use crate::mcp::pushed::{Passed, Pushed};
use crate::mcp::upstream::{Owner, Upstream};
use crate::mcp::wire::{self, Id, Outcome, RpcError};

/// Changes within this time are told once.
pub(in crate::mcp) const QUIET: Duration = Duration::from_millis(200);

/// Where a request of a client stands.
pub(in crate::mcp) struct Context {
    pub(in crate::mcp) client: Client,
    pub(in crate::mcp) peer: Peer,
    pub(in crate::mcp) id: Id,
    pub(in crate::mcp) progress: Option<Json>,
    pub(in crate::mcp) cancel: CancellationToken,
}

/// One client's conversation.
pub struct Session {
    pub(in crate::mcp) gateway: Arc<Gateway>,
    pub(in crate::mcp) caller: Caller,
    pub(in crate::mcp) upstreams: BTreeMap<String, Arc<Upstream>>,
    pub(in crate::mcp) waiting: Waiting,
    /// What each server may push.
    pushed: BTreeMap<String, Arc<Pushed>>,
    /// Calls that run, by server: whom a server's question is about.
    pub(in crate::mcp) running: Mutex<BTreeMap<u64, (String, Askable)>>,
    pub(in crate::mcp) next: AtomicU64,
    pub(in crate::mcp) listeners: Listeners,
    pub(in crate::mcp) log_level: Mutex<Option<Json>>,
    client: Mutex<Option<(Client, Peer)>>,
    parts: Mutex<BTreeMap<String, Arc<Part>>>,
    taking: BTreeMap<String, tokio::sync::Mutex<()>>,
    catalog: Mutex<Option<(u64, Arc<Catalog>)>>,
    /// Counts what makes a catalog old.
    age: AtomicU64,
    /// The same by server: what one says of itself makes no other's part old.
    ages: BTreeMap<String, AtomicU64>,
    /// Which version of the pins was seen last: none if nobody has looked, and none in it if there were none yet.
    pins_seen: Mutex<Option<Option<Version>>>,
    changes: Mutex<BTreeSet<&'static str>>,
    /// Parked calls that the client was asked about.
    asked_about: Mutex<BTreeSet<String>>,
    /// Servers that were missing in an answer.
    missed: Mutex<BTreeSet<String>>,
    /// Servers that the last list did not wait for any longer.
    pub(in crate::mcp) late: Mutex<BTreeSet<String>>,
    telling: AtomicBool,
    /// No MCP client stands before it: nobody can be asked, and servers are told so.
    alone: bool,
    me: Weak<Session>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Session {
    /// A session of a caller; none of its servers is started yet.
    #[must_use]
    pub fn new(gateway: &Arc<Gateway>, caller: Caller) -> Arc<Self> {
        Self::made(gateway, caller, false)
    }

    /// A session of a caller who is no MCP client: see [`crate::mcp::upstream_pool`].
    #[must_use]
    pub(in crate::mcp) fn without_client(gateway: &Arc<Gateway>, caller: Caller) -> Arc<Self> {
        Self::made(gateway, caller, true)
    }

    fn made(gateway: &Arc<Gateway>, caller: Caller, alone: bool) -> Arc<Self> {
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        let upstreams: BTreeMap<_, _> = gateway
            .servers
            .iter()
            .map(|server| (server.name.clone(), Upstream::new(server.clone(), gateway.launch.clone(), &stop, &tasks)))
            .collect();
        let bounded = |name: &String| (name.clone(), Arc::new(Pushed::new(gateway.broker.bounds_of_server(name))));
        let pushed = upstreams.keys().map(bounded).collect();
        let taking = upstreams.keys().map(|name| (name.clone(), tokio::sync::Mutex::new(()))).collect();
        let ages = upstreams.keys().map(|name| (name.clone(), AtomicU64::new(0))).collect();
        let session = Arc::new_cyclic(|me: &Weak<Self>| Self {
            gateway: gateway.clone(),
            caller,
            upstreams,
            pushed,
            waiting: Waiting::default(),
            running: Mutex::default(),
            next: AtomicU64::new(1),
            listeners: Listeners::default(),
            log_level: Mutex::default(),
            client: Mutex::default(),
            parts: Mutex::default(),
            taking,
            catalog: Mutex::default(),
            age: AtomicU64::new(0),
            ages,
            pins_seen: Mutex::default(),
            changes: Mutex::default(),
            asked_about: Mutex::default(),
            missed: Mutex::default(),
            late: Mutex::default(),
            telling: AtomicBool::new(false),
            alone,
            me: me.clone(),
            stop,
            tasks,
        });
        for upstream in session.upstreams.values() {
            let owner: Weak<dyn Owner> = session.me.clone();
            upstream.belong_to(owner);
        }
        session
    }

    /// Ends the session and its servers; done when none of them runs any more.
    pub async fn end(&self) {
        self.end_servers().await;
        self.gateway.broker.end_session(&self.caller);
    }

    /// Ends many side by side: none waits for the servers of another.
    pub(in crate::mcp) async fn end_all(sessions: impl IntoIterator<Item = Arc<Self>>) {
        let mut ending: tokio::task::JoinSet<()> =
            sessions.into_iter().map(|session| async move { session.end().await }).collect();
        while ending.join_next().await.is_some() {}
    }

    /// Ends the servers alone: what was counted for the session stands.
    pub(in crate::mcp) async fn end_servers(&self) {
        self.stop.cancel();
        for upstream in self.upstreams.values() {
            upstream.stop();
        }
        lock(&self.client).take();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Whether its handshake was made.
    pub(in crate::mcp) fn is_met(&self) -> bool {
        lock(&self.client).is_some()
    }

    /// The client of a handshake, and its conversation.
    pub(in crate::mcp) fn client(&self) -> Option<(Client, Peer)> {
        lock(&self.client).clone()
    }

    pub(in crate::mcp) fn me(&self) -> Option<Arc<Self>> {
        self.me.upgrade()
    }

    /// Whether nobody has asked the client about this parked call yet.
    pub(in crate::mcp) fn ask_once(&self, id: &str) -> bool {
        lock(&self.asked_about).insert(id.to_owned())
    }

    /// The stream on which a server's words about its call are expected.
    pub(in crate::mcp) fn route_of(&self, server: &str) -> Option<Id> {
        let running = lock(&self.running);
        running.values().rev().find(|(of, _)| of == server).and_then(|(_, askable)| askable.route())
    }

    /// What a server may push. One that nobody knows may push nothing.
    pub(in crate::mcp) fn pushed(&self, server: &str) -> Arc<Pushed> {
        self.pushed.get(server).cloned().unwrap_or_else(|| Arc::new(Pushed::new(None)))
    }

    /// A message of a server as it may pass. When the first is dropped, the client is told, once.
    pub(in crate::mcp) fn passes(&self, server: &str, message: &Json) -> Option<Json> {
        match self.pushed(server).message(message) {
            Passed::Whole(message) => return Some(message),
            Passed::DroppedFirst => {}
            Passed::Dropped => return None,
        }
        if let Some((client, peer)) = self.client()
            && client.protocol == Protocol::Handshake
        {
            let told = json!({ "level": "warning", "logger": "fumehood", "data": Pushed::told(server) });
            peer.mention("notifications/message", told, self.route_of(server).as_ref());
        }
        None
    }

    /// Starts all servers side by side.
    fn warm(&self) {
        for upstream in self.upstreams.values() {
            let upstream = upstream.clone();
            self.tasks.spawn(async move {
                if upstream.link().await.is_err() {
                    // The next list says so.
                }
            });
        }
    }

    async fn serve(self: Arc<Self>, incoming: Incoming) {
        let context = match self.context(&incoming) {
            Ok(context) => context,
            Err(error) => return incoming.answer(Err(error)).await,
        };
        // Calls and streams see for themselves that they are no longer wanted: they have something to bring to its end.
        let by_itself = matches!(incoming.method.as_str(), "tools/call" | "subscriptions/listen");
        let cancel = incoming.cancel.clone();
        let mut outcome = tokio::select! {
            outcome = self.dispatch(&context, &incoming.method, &incoming.params) => outcome,
            () = cancel.cancelled(), if !by_itself => Err(RpcError::new(wire::UNAVAILABLE, "cancelled")),
        };
        if let Ok(result) = &mut outcome {
            protocol::dress(result, context.client.protocol, Keep::of(&incoming.method));
        }
        incoming.answer(outcome).await;
    }

    /// Who asks: the client of the handshake, or the request itself says so.
    fn context(&self, incoming: &Incoming) -> Result<Context, RpcError> {
        let described = Client::of_meta(&incoming.params).map_err(|missing| {
            let missing = missing.join(", ");
            RpcError::new(wire::INVALID_PARAMS, format!("`_meta` of the request lacks {missing}"))
        })?;
        let client = match (described, self.client()) {
            (_, Some((client, _))) => client,
            (Some(client), None) if client.version == protocol::STATELESS => client,
            (Some(client), None) => {
                let known = protocol::supported();
                return Err(RpcError::new(wire::UNSUPPORTED_VERSION, "unsupported protocol version")
                    .with(json!({ "supported": known, "requested": crate::mcp::text::shown(&client.version, 40) })));
            }
            (None, None) if incoming.method == "initialize" => Client::of_handshake(&incoming.params),
            (None, None) if incoming.method == "ping" => Client::of_handshake(&Json::Null),
            (None, None) => {
                return Err(RpcError::new(
                    wire::INVALID_PARAMS,
                    "neither a handshake came before, nor does the request describe itself",
                ));
            }
        };
        Ok(Context {
            client,
            peer: incoming.peer.clone(),
            id: incoming.id.clone(),
            progress: incoming.progress_token(),
            cancel: incoming.cancel.clone(),
        })
    }

    async fn dispatch(&self, context: &Context, method: &str, params: &Json) -> Outcome {
        let stateful = context.client.protocol == Protocol::Handshake;
        match method {
            "initialize" if stateful => self.initialize(context, params),
            "server/discover" if !stateful => Ok(self.discover()),
            "ping" if stateful => Ok(json!({})),
            "tools/list" => self.list_tools(params).await,
            "tools/call" => self.call_tool(context, params).await,
            "resources/list" => self.list_resources(params).await,
            "resources/templates/list" => self.list_templates(params).await,
            "resources/read" => self.read_resource(context, params).await,
            "resources/subscribe" | "resources/unsubscribe" if stateful => self.subscribe(method, params).await,
            "prompts/list" => self.list_prompts(params).await,
            "prompts/get" => self.get_prompt(context, params).await,
            "completion/complete" => self.complete(params).await,
            "logging/setLevel" if stateful => self.set_level(params).await,
            "subscriptions/listen" if !stateful => self.listen(context, params).await,
            _ => Err(RpcError::no_method(method)),
        }
    }

    fn initialize(&self, context: &Context, params: &Json) -> Outcome {
        let client = Client::of_handshake(params);
        let version = client.version.clone();
        {
            let mut known = lock(&self.client);
            if known.is_some() {
                return Err(RpcError::new(wire::INVALID_REQUEST, "the handshake was made already"));
            }
            *known = Some((client, context.peer.clone()));
        }
        if self.gateway.eager {
            self.warm();
        }
        Ok(json!({
            "protocolVersion": version,
            "capabilities": self.capabilities_shown(),
            "serverInfo": protocol::implementation(),
            "instructions": self.instructions(),
        }))
    }

    fn discover(&self) -> Json {
        if self.gateway.eager {
            self.warm();
        }
        json!({
            "supportedVersions": protocol::supported(),
            "capabilities": self.capabilities_shown(),
            "instructions": self.instructions(),
            "ttlMs": 0,
            "cacheScope": "private",
        })
    }

    fn capabilities_shown(&self) -> Json {
        let allow = &self.gateway.allow;
        let mut map = Map::new();
        map.insert("tools".to_owned(), json!({ "listChanged": true }));
        map.insert("logging".to_owned(), json!({}));
        if allow.any_resource(None) {
            map.insert("resources".to_owned(), json!({ "listChanged": true, "subscribe": true }));
        }
        if allow.any_prompt(None) {
            map.insert("prompts".to_owned(), json!({ "listChanged": true }));
        }
        if allow.any_prompt(None) || allow.any_resource(None) {
            map.insert("completions".to_owned(), json!({}));
        }
        Json::Object(map)
    }

    /// Ours alone: what servers would tell the model before anybody has read it does not pass.
    fn instructions(&self) -> String {
        let names: Vec<_> = self.upstreams.keys().map(String::as_str).collect();
        format!(
            "Tools are called SERVER__TOOL; the servers are: {}. A policy judges each call. A call that is denied says why and \
             what would be allowed: do that instead of trying again.",
            names.join(", ")
        )
    }

    /// The part of one server, taken anew if it is old. A server that is not there has a part of notes.
    pub(in crate::mcp) async fn part(&self, name: &str) -> Arc<Part> {
        if let Some(part) = lock(&self.parts).get(name) {
            return part.clone();
        }
        let (Some(upstream), Some(taking)) = (self.upstreams.get(name), self.taking.get(name)) else {
            return Arc::default();
        };
        let _one_at_a_time = taking.lock().await;
        if let Some(part) = lock(&self.parts).get(name) {
            return part.clone();
        }
        // What somebody accepts from here on is a change.
        self.look_at_pins();
        match upstream.link().await {
            Ok(link) => {
                let now = || self.ages.get(name).map(|age| age.load(Ordering::Acquire));
                let age = now();
                let reach = upstream.server.pinned();
                let mut part = catalog::take(&link, name, &reach, &self.gateway.pinning).await;
                self.clean(name, &mut part.notes);
                let part = Arc::new(part);
                // What changed while it was taken is taken again next time.
                if age == now() && !link.peer.is_closed() {
                    lock(&self.parts).insert(name.to_owned(), part.clone());
                    lock(&self.catalog).take();
                    // It was up when a list was given, and its part was not: coming up told nobody.
                    self.found_again(name, false);
                }
                part
            }
            Err(down) => {
                let mut notes = vec![down.describe(name)];
                self.clean(name, &mut notes);
                notes.iter().for_each(|note| self.miss(name, note));
                notes.iter_mut().for_each(|note| *note = self.with_advice(name, std::mem::take(note)));
                Arc::new(Part::of_notes(notes))
            }
        }
    }

    /// Notes quote what a server said, which may be what its results may not say.
    fn clean(&self, server: &str, notes: &mut [String]) {
        let pushed = self.pushed(server);
        notes.iter_mut().for_each(|note| *note = pushed.sanitized(note));
    }

    /// All parts that can be had in time.
    pub(in crate::mcp) async fn catalog(&self) -> Arc<Catalog> {
        self.look_at_pins();
        if let Some(catalog) = self.catalog_now(None).filter(|_| lock(&self.parts).len() == self.upstreams.len()) {
            return catalog;
        }
        let mut set = tokio::task::JoinSet::new();
        let late = self.not_waited_for();
        for name in self.upstreams.keys().cloned() {
            let me = self.me.upgrade();
            set.spawn(async move {
                let part = match me {
                    Some(me) => me.part(&name).await,
                    None => Arc::default(),
                };
                (name, part)
            });
        }
        let mut parts = BTreeMap::new();
        let mut patience = Patience::new();
        loop {
            let awaited = self.upstreams.keys().any(|name| !parts.contains_key(name) && !late.contains(name));
            match tokio::time::timeout_at(patience.until(awaited), set.join_next()).await {
                Ok(Some(Ok((name, part)))) => {
                    patience.saw(!part.tools.is_empty());
                    parts.insert(name, part);
                }
                Ok(Some(Err(_))) => {}
                Ok(None) | Err(_) => break,
            }
        }
        // Those that are late go on by themselves, and tell that the lists changed.
        set.detach_all();
        let absent: Vec<_> = self.upstreams.keys().filter(|name| !parts.contains_key(*name)).cloned().collect();
        *lock(&self.late) = absent.iter().cloned().collect();
        for name in absent {
            let note = format!("the server `{name}` is still starting; its tools follow");
            self.miss(&name, &note);
            parts.insert(name.clone(), Arc::new(Part::of_notes(vec![self.with_advice(&name, note)])));
        }
        Arc::new(Catalog::of(&parts))
    }

    /// A server is missing in an answer: when it comes the client is told, and that it is missing the client's people are, once.
    pub(in crate::mcp) fn miss(&self, server: &str, why: &str) {
        if !lock(&self.missed).insert(server.to_owned()) {
            return;
        }
        if let Some((client, peer)) = self.client()
            && client.protocol == Protocol::Handshake
        {
            let words = self.with_advice(server, why.to_owned());
            let told = json!({ "level": "warning", "logger": "fumehood", "data": words });
            peer.mention("notifications/message", told, None);
        }
    }

    /// What is told of a server that is not there, and what helps, where its command tells.
    fn with_advice(&self, server: &str, words: String) -> String {
        match self.upstreams.get(server).and_then(|upstream| crate::mcp::packages::advice(&upstream.server)) {
            Some(advice) => format!("{words}. {advice}"),
            None => words,
        }
    }

    /// What is known now, with one part more.
    pub(in crate::mcp) fn catalog_now(&self, also: Option<&str>) -> Option<Arc<Catalog>> {
        let age = self.age.load(Ordering::Acquire);
        if let Some((of, catalog)) = &*lock(&self.catalog)
            && *of == age
        {
            return Some(catalog.clone());
        }
        let parts = lock(&self.parts).clone();
        if also.is_some_and(|also| !parts.contains_key(also)) || parts.is_empty() {
            return None;
        }
        let catalog = Arc::new(Catalog::of(&parts));
        *lock(&self.catalog) = Some((age, catalog.clone()));
        Some(catalog)
    }

    /// Somebody accepted or reset pins: everything is judged again.
    pub(in crate::mcp) fn look_at_pins(&self) {
        let changed = self.gateway.pinning.pins.changed();
        let mut seen = lock(&self.pins_seen);
        if *seen != Some(changed) {
            let first = seen.is_none();
            *seen = Some(changed);
            drop(seen);
            if !first && lock(&self.parts).values().any(|part| !part.notes.is_empty()) {
                self.forget(None);
            }
        }
    }

    /// Makes the part of a server old, or all.
    pub(super) fn forget(&self, server: Option<&str>) {
        {
            let mut parts = lock(&self.parts);
            match server {
                Some(server) => drop(parts.remove(server)),
                None => parts.clear(),
            }
        }
        for (_, age) in self.ages.iter().filter(|(name, _)| server.is_none_or(|server| server == *name)) {
            age.fetch_add(1, Ordering::AcqRel);
        }
        self.age.fetch_add(1, Ordering::AcqRel);
        lock(&self.catalog).take();
    }

    /// What is known, and this part, which may be too new or too old to be kept.
    pub(in crate::mcp) fn catalog_with(&self, server: &str, part: Arc<Part>) -> Arc<Catalog> {
        self.catalog_now(Some(server)).unwrap_or_else(|| {
            let mut parts = lock(&self.parts).clone();
            parts.insert(server.to_owned(), part);
            Arc::new(Catalog::of(&parts))
        })
    }

    /// Tells the client that a list changed: many changes at once are told once.
    fn changed_list(&self, what: &'static str) {
        lock(&self.changes).insert(what);
        if self.telling.swap(true, Ordering::AcqRel) {
            return;
        }
        let (me, stop) = (self.me.clone(), self.stop.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(QUIET) => {}
                () = stop.cancelled() => return,
            }
            let Some(me) = me.upgrade() else { return };
            me.telling.store(false, Ordering::Release);
            let changes = std::mem::take(&mut *lock(&me.changes));
            for what in changes {
                if let Some((_, peer)) = me.client() {
                    peer.mention(&format!("notifications/{what}/list_changed"), Json::Null, None);
                }
                me.listeners.list_changed(what);
            }
        });
    }
}

impl Handler for Session {
    fn request(&self, incoming: Incoming) {
        if let Some(me) = self.me.upgrade() {
            // A handshake is made before the next message is read, or that would find none.
            tokio::spawn(me.serve(incoming));
        }
    }

    fn notification(&self, _: &Peer, method: &str, params: Json) {
        if method == "notifications/roots/list_changed" {
            for (name, upstream) in &self.upstreams {
                if let Some(link) = upstream.link_now().filter(|_| self.gateway.allow.asks(name, Asking::Roots)) {
                    link.peer.mention(method, Json::Null, None);
                }
            }
        }
        drop(params);
    }
}
