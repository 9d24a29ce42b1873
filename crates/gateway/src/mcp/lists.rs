//! Resources, prompts, completions, subscriptions and log messages: by allowlist, cleaned, bounded, and each to the one
//! server that it belongs to.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json, json};

use super::lock;
use super::patience::{LIST_TIMEOUT, Patience};
use super::protocol::{self, Protocol};
use super::pushed::Pushed;
use super::session::{Context, Session};
use super::tools::page;
use super::upstream::Link;
use super::wire::{self, Outcome, RpcError};
use super::{client_requests, names, text};

/// Most bytes of what is read or of a prompt.
const MAX: usize = 4 << 20;
/// Most bytes of one log message.
const MAX_LOG: usize = 64 << 10;
/// Most rounds of questions.
const MAX_ROUNDS: usize = 10;
/// Levels of log messages, least first.
const LEVELS: &[&str] = &["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// One entry of a list and whose it is.
type Owned = (String, Json);

impl Session {
    /// The lists of all servers that have one; a server that is not there leaves a note.
    async fn gather(
        &self,
        has: &'static str,
        method: &'static str,
        key: &'static str,
        allowed: impl Fn(&str) -> bool,
    ) -> (Vec<Owned>, Vec<String>) {
        let begun = tokio::time::Instant::now();
        let mut set = tokio::task::JoinSet::new();
        for (name, upstream) in self.upstreams.iter().filter(|(name, _)| allowed(name)) {
            let (name, upstream) = (name.clone(), upstream.clone());
            set.spawn(async move {
                let listed = match upstream.link().await {
                    Ok(link) if link.has(has) => {
                        link.list(method, key).await.map_err(|failure| failure.into_rpc().message)
                    }
                    Ok(_) => Ok((Vec::new(), None)),
                    Err(down) => Err(down.describe(&name)),
                };
                (name, listed)
            });
        }
        let late = self.not_waited_for();
        let mut pending: BTreeSet<&String> = self.upstreams.keys().filter(|name| allowed(name)).collect();
        let mut found = BTreeMap::new();
        let mut notes = Vec::new();
        let mut patience = Patience::new();
        loop {
            // Whoever is up is given its time: these lists are asked for anew each time.
            let up = self.up(&pending);
            let until = if up.is_empty() {
                patience.until(pending.iter().any(|name| !late.contains(*name)))
            } else {
                begun + LIST_TIMEOUT
            };
            match tokio::time::timeout_at(until, set.join_next()).await {
                Ok(None) => break,
                Ok(Some(Ok((name, listed)))) => {
                    pending.remove(&name);
                    patience.saw(listed.is_ok());
                    match listed {
                        Ok((entries, note)) => {
                            notes.extend(note.map(|note| format!("{name}: {note}")));
                            found.insert(name, entries);
                        }
                        Err(why) => {
                            notes.push(format!("{name}: {}", text::shown(&self.pushed(&name).sanitized(&why), 300)));
                        }
                    }
                }
                Ok(Some(Err(_))) => {}
                // Somebody may have come up meanwhile.
                Err(_) if self.up(&pending) == up || begun.elapsed() >= LIST_TIMEOUT => break,
                Err(_) => {}
            }
        }
        // A server that hangs delays nobody: its own are missing this time.
        set.detach_all();
        let up = self.up(&pending);
        for name in pending {
            notes.push(if up.contains(name) {
                format!("the server `{name}` did not answer in time: what it has is missing")
            } else {
                let note = format!("the server `{name}` is still starting; what it has follows");
                lock(&self.late).insert(name.clone());
                self.miss(name, &note);
                note
            });
        }
        notes.sort();
        let owned =
            found.into_iter().flat_map(|(name, entries)| entries.into_iter().map(move |entry| (name.clone(), entry)));
        (owned.collect(), notes)
    }

    /// Those of these servers that are up.
    fn up<'a>(&self, names: &BTreeSet<&'a String>) -> BTreeSet<&'a String> {
        let is_up = |name: &&&String| self.link_of(name).is_some_and(|upstream| upstream.link_now().is_some());
        names.iter().filter(is_up).copied().collect()
    }

    pub(super) async fn list_resources(&self, params: &Json) -> Outcome {
        self.addresses("resources/list", "resources", "uri", params).await
    }

    pub(super) async fn list_templates(&self, params: &Json) -> Outcome {
        self.addresses("resources/templates/list", "resourceTemplates", "uriTemplate", params).await
    }

    async fn addresses(&self, method: &'static str, key: &'static str, address: &str, params: &Json) -> Outcome {
        let allow = &self.gateway.allow;
        let (found, mut notes) = self.gather("resources", method, key, |server| allow.any_resource(Some(server))).await;
        let mut by_address: BTreeMap<String, Vec<Owned>> = BTreeMap::new();
        for (server, mut entry) in found {
            let Some(uri) = entry.get(address).and_then(Json::as_str).map(str::to_owned) else { continue };
            let shown = if address == "uri" {
                allow.resource(&server, &uri)
            } else {
                !text::is_hidden(&uri) && allow.template(&server, &uri)
            };
            if shown {
                entry = self.pushed(&server).seen(&entry);
                by_address.entry(uri).or_default().push((server, entry));
            }
        }
        let mut entries = Vec::new();
        for (uri, owned) in by_address {
            match <[Owned; 1]>::try_from(owned) {
                Ok([(_, entry)]) => entries.push(entry),
                Err(owned) => {
                    let servers: Vec<_> = owned.iter().map(|(server, _)| server.as_str()).collect();
                    notes.push(format!(
                        "`{}` is claimed by {}: it is not shown",
                        text::shown(&uri, 200),
                        servers.join(" and ")
                    ));
                }
            }
        }
        with_notes(page(key, entries, params)?, &notes)
    }

    /// The one server whose resource this is.
    async fn owner_of(&self, uri: &str) -> Result<(String, std::sync::Arc<Link>), RpcError> {
        let allow = &self.gateway.allow;
        let unknown = || {
            RpcError::new(
                wire::NO_RESOURCE,
                format!("no resource `{}` is allowed here: mcp.resources names none", text::shown(uri, 200)),
            )
        };
        let mut allowed: Vec<&String> = self.upstreams.keys().filter(|server| allow.resource(server, uri)).collect();
        if allowed.len() > 1 {
            // More than one may have it: it is the one's that lists it, and nobody's if two do.
            let mut listing = Vec::new();
            for server in allowed {
                let Some(Ok(link)) = self.try_link(server).await else { continue };
                let Ok((entries, _)) = link.list("resources/list", "resources").await else { continue };
                if entries.iter().any(|entry| entry.get("uri").and_then(Json::as_str) == Some(uri)) {
                    listing.push(server);
                }
            }
            allowed = listing;
        }
        let [server] = allowed.as_slice() else { return Err(unknown()) };
        match self.try_link(server).await {
            Some(Ok(link)) => Ok(((*server).clone(), link)),
            Some(Err(why)) => Err(RpcError::new(wire::UNAVAILABLE, why)),
            None => Err(unknown()),
        }
    }

    async fn try_link(&self, server: &str) -> Option<Result<std::sync::Arc<Link>, String>> {
        let upstream = self.upstreams.get(server)?;
        Some(upstream.link().await.map_err(|down| self.pushed(server).sanitized(&down.describe(server))))
    }

    pub(super) async fn read_resource(&self, context: &Context, params: &Json) -> Outcome {
        let uri = text_of(params, "uri")?;
        let (server, link) = self.owner_of(uri).await?;
        let ours = json!({ "uri": uri });
        let mut result = self.rounds(context, &server, &link, "resources/read", ours).await?;
        bounded(&self.pushed(&server), &mut result)?;
        // A server answers for what was asked, or for what the policy would let it answer.
        let allow = &self.gateway.allow;
        if let Some(contents) = result.get_mut("contents").and_then(Json::as_array_mut) {
            contents.retain(|content| {
                content
                    .get("uri")
                    .and_then(Json::as_str)
                    .is_some_and(|found| found == uri || allow.resource(&server, found))
            });
        }
        Ok(result)
    }

    pub(super) async fn subscribe(&self, method: &str, params: &Json) -> Outcome {
        let uri = text_of(params, "uri")?;
        let (server, link) = self.owner_of(uri).await?;
        if method == "resources/unsubscribe" {
            self.listeners.unsubscribe(uri);
        } else {
            self.listeners.subscribe(&server, uri)?;
        }
        if link.who.protocol == Protocol::Handshake {
            let asked = link.ask(method, json!({ "uri": uri })).await;
            asked.map_err(|failure| self.failed(&server, failure))?;
        }
        Ok(json!({}))
    }

    pub(super) async fn listen(&self, context: &Context, params: &Json) -> Outcome {
        let wishes = params.get("notifications").cloned().unwrap_or_default();
        let mut uris = Vec::new();
        for uri in wishes.get("resourceSubscriptions").and_then(Json::as_array).into_iter().flatten() {
            let Some(uri) = uri.as_str() else { continue };
            if let Ok((server, link)) = self.owner_of(uri).await {
                self.listeners.subscribe(&server, uri)?;
                if link.who.protocol == Protocol::Handshake
                    && link.ask("resources/subscribe", json!({ "uri": uri })).await.is_err()
                {
                    continue;
                }
                uris.push(uri.to_owned());
            }
        }
        let granted = self.listeners.open(&context.peer, &context.id, &wishes, uris)?;
        let meta = json!({ protocol::META_SUBSCRIPTION: context.id.to_json() });
        let told = json!({ "notifications": granted, "_meta": meta });
        context.peer.notify("notifications/subscriptions/acknowledged", told, Some(&context.id)).await;
        let open = Open { session: self, context };
        context.cancel.cancelled().await;
        drop(open);
        Ok(json!({ "_meta": meta }))
    }

    pub(super) async fn list_prompts(&self, params: &Json) -> Outcome {
        let allow = &self.gateway.allow;
        let (found, notes) =
            self.gather("prompts", "prompts/list", "prompts", |server| allow.any_prompt(Some(server))).await;
        let mut table = names::Table::default();
        for (server, mut entry) in found {
            let Some(own) = entry.get("name").and_then(Json::as_str).map(str::to_owned) else { continue };
            let Some(public) = names::public(&server, &own).filter(|_| allow.prompt(&server, &own)) else { continue };
            entry = self.pushed(&server).seen(&entry);
            if let Some(map) = entry.as_object_mut() {
                map.insert("name".to_owned(), public.as_str().into());
            }
            table.add(public, |(server, _): &Owned| server.clone(), (server, entry));
        }
        let entries = table.iter().map(|(_, (_, entry))| entry.clone()).collect();
        with_notes(page("prompts", entries, params)?, &notes)
    }

    /// The server and own name of a prompt.
    async fn prompt(&self, public: &str) -> Result<(String, String, std::sync::Arc<Link>), RpcError> {
        let unknown = || RpcError::new(wire::INVALID_PARAMS, format!("unknown prompt: `{}`", text::shown(public, 100)));
        let begins = |name: &&String| public.strip_prefix(name.as_str()).is_some_and(|rest| rest.starts_with("__"));
        for server in self.upstreams.keys().filter(begins) {
            let Some(Ok(link)) = self.try_link(server).await else { continue };
            if !link.has("prompts") {
                continue;
            }
            let entries = link.list("prompts/list", "prompts").await;
            let (entries, _) = entries.map_err(|failure| self.failed(server, failure))?;
            let own = entries.iter().filter_map(|entry| entry.get("name").and_then(Json::as_str));
            let mut fits = own.filter(|own| names::public(server, own).as_deref() == Some(public));
            if let (Some(own), None) = (fits.next(), fits.next())
                && self.gateway.allow.prompt(server, own)
            {
                return Ok((server.clone(), own.to_owned(), link));
            }
        }
        Err(unknown())
    }

    pub(super) async fn get_prompt(&self, context: &Context, params: &Json) -> Outcome {
        let (server, own, link) = self.prompt(text_of(params, "name")?).await?;
        let mut ours = Map::new();
        ours.insert("name".to_owned(), own.into());
        if let Some(arguments @ Json::Object(_)) = params.get("arguments") {
            ours.insert("arguments".to_owned(), arguments.clone());
        }
        let mut result = self.rounds(context, &server, &link, "prompts/get", Json::Object(ours)).await?;
        bounded(&self.pushed(&server), &mut result)?;
        Ok(result)
    }

    /// Completion of an argument of an allowed prompt, or of a variable of a template that stands for allowed resources alone:
    /// what is completed are names, and names of what nobody may read stay unsaid.
    pub(super) async fn complete(&self, params: &Json) -> Outcome {
        let reference = params.get("ref").cloned().unwrap_or_default();
        // Written anew: what else stands in a reference a server may take for the one that it is about.
        let (server, link, reference) = match reference.get("type").and_then(Json::as_str) {
            Some("ref/prompt") => {
                let (server, own, link) = self.prompt(text_of(&reference, "name")?).await?;
                (server, link, json!({ "type": "ref/prompt", "name": own }))
            }
            Some("ref/resource") => {
                let template = text_of(&reference, "uri")?;
                let server = self.owner_of_template(template).await?;
                match self.try_link(&server).await {
                    Some(Ok(link)) => (server, link, json!({ "type": "ref/resource", "uri": template })),
                    Some(Err(_)) | None => return Err(RpcError::new(wire::UNAVAILABLE, "its server is not there")),
                }
            }
            _ => return Err(RpcError::new(wire::INVALID_PARAMS, "`ref` names neither a prompt nor a resource")),
        };
        if !link.has("completions") {
            return Ok(json!({ "completion": { "values": [] } }));
        }
        let mut ours = json!({ "ref": reference });
        if let Some(ours) = ours.as_object_mut() {
            let given = ["argument", "context"].into_iter().filter_map(|key| Some((key, params.get(key)?)));
            ours.extend(given.map(|(key, value)| (key.to_owned(), value.clone())));
        }
        let asked = link.ask("completion/complete", ours).await;
        let mut result = asked.map_err(|failure| self.failed(&server, failure))?;
        bounded(&self.pushed(&server), &mut result)?;
        Ok(result)
    }

    /// The one server whose template this is, if it stands for nothing but what is allowed.
    async fn owner_of_template(&self, template: &str) -> Result<String, RpcError> {
        let allow = &self.gateway.allow;
        let (found, _) = self
            .gather("resources", "resources/templates/list", "resourceTemplates", |server| {
                allow.completes(server, template)
            })
            .await;
        let mut owners =
            found.iter().filter(|(_, entry)| entry.get("uriTemplate").and_then(Json::as_str) == Some(template));
        let only = owners.next().filter(|_| owners.next().is_none());
        let unknown = || RpcError::new(wire::INVALID_PARAMS, "no such template is allowed here");
        only.map(|(server, _)| server.clone()).ok_or_else(unknown)
    }

    /// An error of a server, as a client may see it.
    fn failed(&self, server: &str, failure: super::peer::Failure) -> RpcError {
        self.pushed(server).error(&failure.into_rpc())
    }

    /// Asks a server until it no longer asks back.
    async fn rounds(&self, context: &Context, server: &str, link: &Link, method: &str, ours: Json) -> Outcome {
        let askable =
            client_requests::Askable::direct(context.peer.clone(), Some(context.id.clone()), context.client.clone());
        let mut more = Map::new();
        for _ in 0..MAX_ROUNDS {
            let mut params = ours.clone();
            if let Some(map) = params.as_object_mut() {
                map.extend(std::mem::take(&mut more));
            }
            let result = link.ask(method, params).await.map_err(|failure| self.failed(server, failure))?;
            if result.get("resultType").and_then(Json::as_str) != Some("input_required") {
                return Ok(result);
            }
            if context.client.protocol == Protocol::Stateless {
                return Err(RpcError::new(
                    wire::UNAVAILABLE,
                    "the server asks something back, which is passed for calls of tools only",
                ));
            }
            let from = client_requests::From { server, pushed: &self.pushed(server) };
            more = client_requests::next_round(&self.gateway.allow, from, &result, &askable).await?;
        }
        Err(RpcError::new(wire::UNAVAILABLE, "the server asks back without an end"))
    }

    pub(super) async fn set_level(&self, params: &Json) -> Outcome {
        let level = text_of(params, "level")?;
        if !LEVELS.contains(&level) {
            return Err(RpcError::new(wire::INVALID_PARAMS, format!("a level is one of {}", LEVELS.join(", "))));
        }
        *lock(&self.log_level) = Some(level.into());
        for upstream in self.upstreams.values() {
            let Some(link) =
                upstream.link_now().filter(|link| link.has("logging") && link.who.protocol == Protocol::Handshake)
            else {
                continue;
            };
            if link.ask("logging/setLevel", json!({ "level": level })).await.is_err() {
                // It keeps its own level; ours below holds all the same.
            }
        }
        Ok(json!({}))
    }

    /// A log message of a server: cleaned, bounded, under its name, never below the level that the client set.
    pub(super) fn log_message(&self, server: &str, mut params: Json) {
        let rank = |level: &Json| LEVELS.iter().position(|known| Some(*known) == level.as_str());
        let Some(said) = params.get("level").and_then(rank) else { return };
        let least = lock(&self.log_level).as_ref().and_then(rank).unwrap_or(0);
        let Some((client, peer)) = self.client() else { return };
        if said < least || client.protocol == Protocol::Stateless {
            return;
        }
        let size = params.get("data").map_or(0, |data| data.to_string().len());
        if size > MAX_LOG
            && let Some(data) = params.get_mut("data")
        {
            *data = "[fumehood: a message larger than 64 KiB was left out]".into();
        }
        let Some(params) = self.passes(server, &params) else { return };
        let data = params.get("data").cloned().unwrap_or_default();
        let logger = match params.get("logger").and_then(Json::as_str) {
            Some(logger) => format!("{server}/{}", text::shown(logger, 80)),
            None => server.to_owned(),
        };
        let level = LEVELS.get(said).copied().unwrap_or("info");
        peer.mention(
            "notifications/message",
            json!({ "level": level, "logger": logger, "data": data }),
            self.route_of(server).as_ref(),
        );
    }

    pub(super) fn resource_updated(&self, server: &str, params: &Json) {
        let Some(uri) = params.get("uri").and_then(Json::as_str).filter(|uri| self.listeners.wants(server, uri)) else {
            return;
        };
        if self.passes(server, &Json::from(uri)).is_none() {
            return;
        }
        if let Some((_, peer)) = self.client() {
            peer.mention("notifications/resources/updated", json!({ "uri": uri }), None);
        }
        self.listeners.updated(uri);
    }
}

struct Open<'a> {
    session: &'a Session,
    context: &'a Context,
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.session.listeners.close(&self.context.peer, &self.context.id);
    }
}

fn text_of<'a>(params: &'a Json, key: &str) -> Result<&'a str, RpcError> {
    let found = params.get(key).and_then(Json::as_str);
    found.ok_or_else(|| RpcError::new(wire::INVALID_PARAMS, format!("`{key}` is missing")))
}

fn with_notes(mut map: Map<String, Json>, notes: &[String]) -> Outcome {
    if !notes.is_empty() {
        map.insert("_meta".to_owned(), json!({ "fumehood/notes": notes }));
    }
    Ok(Json::Object(map))
}

/// What a server says beside results of tools: cleaned, and no larger than what a client can be expected to take.
fn bounded(pushed: &Pushed, result: &mut Json) -> Result<(), RpcError> {
    let size = serde_json::to_vec(result).map_or(usize::MAX, |bytes| bytes.len());
    if size > MAX {
        return Err(RpcError::new(
            wire::UNAVAILABLE,
            format!("the answer has {size} bytes; {MAX} is the most that passes"),
        ));
    }
    *result = pushed.seen(result);
    if let Some(map) = result.as_object_mut() {
        let meta = protocol::strip_meta(map.get("_meta"));
        map.remove("_meta");
        if !meta.is_empty() {
            map.insert("_meta".to_owned(), Json::Object(meta));
        }
    }
    Ok(())
}
