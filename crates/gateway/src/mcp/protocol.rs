//! The two ways in which MCP is spoken: with a handshake (up to 2025-11-25) and without state (2026-07-28).
//!
//! The gateway speaks both on either side and translates: a result of the one is dressed for the other here, and nowhere else.

use serde_json::{Map, Value as Json, json};

/// The revision without handshake and sessions.
pub const STATELESS: &str = "2026-07-28";
/// Revisions with a handshake, newest first.
pub const HANDSHAKE: &[&str] = &["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// Key of a request's `_meta`: its revision.
pub const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// Key of a request's `_meta`: who asks.
pub const META_CLIENT: &str = "io.modelcontextprotocol/clientInfo";
/// Key of a request's `_meta`: what the client can do.
pub const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// Key of a request's `_meta`: which log messages are wanted.
pub const META_LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Key of a result's `_meta`: who answers.
pub const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";
/// Key of a notification's `_meta`: the subscription that it belongs to.
pub const META_SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// How one side is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// `initialize`, then a session.
    Handshake,
    /// Each request stands for itself.
    Stateless,
}

/// The revision that answers a handshake: the one that was asked for, if it has one and we know it, else our newest.
#[must_use]
pub fn agree(asked: &str) -> &'static str {
    HANDSHAKE.iter().find(|known| **known == asked).or_else(|| HANDSHAKE.first()).copied().unwrap_or("2025-11-25")
}

/// Every revision that we speak, newest first.
#[must_use]
pub fn supported() -> Vec<&'static str> {
    std::iter::once(STATELESS).chain(HANDSHAKE.iter().copied()).collect()
}

/// Who we are.
#[must_use]
pub fn implementation() -> Json {
    json!({ "name": "fumehood", "title": "Fumehood", "version": env!("CARGO_PKG_VERSION") })
}

/// A client, as it describes itself: in its handshake, or in each request.
#[derive(Clone, Debug, PartialEq)]
pub struct Client {
    /// How it speaks.
    pub protocol: Protocol,
    /// Its revision.
    pub version: String,
    /// Its name, escaped; for people and records.
    pub name: String,
    /// `sampling`, `elicitation`, `roots`, ...
    pub capabilities: Json,
}

impl Client {
    /// From the parameters of `initialize`.
    #[must_use]
    pub fn of_handshake(params: &Json) -> Self {
        let asked = params.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
        Self {
            protocol: Protocol::Handshake,
            version: agree(asked).to_owned(),
            name: name_of(params.get("clientInfo")),
            capabilities: params.get("capabilities").cloned().unwrap_or_else(|| json!({})),
        }
    }

    /// From the `_meta` of a request; `None` if it does not speak without state.
    ///
    /// # Errors
    /// The keys that are missing.
    pub fn of_meta(params: &Json) -> Result<Option<Self>, Vec<&'static str>> {
        let Some(meta) = params.get("_meta").and_then(Json::as_object) else { return Ok(None) };
        let Some(version) = meta.get(META_VERSION).and_then(Json::as_str) else { return Ok(None) };
        let mut missing = Vec::new();
        let capabilities = meta.get(META_CAPABILITIES).filter(|value| value.is_object());
        if capabilities.is_none() {
            missing.push(META_CAPABILITIES);
        }
        if !missing.is_empty() {
            return Err(missing);
        }
        Ok(Some(Self {
            protocol: Protocol::Stateless,
            version: version.to_owned(),
            name: name_of(meta.get(META_CLIENT)),
            capabilities: capabilities.cloned().unwrap_or_default(),
        }))
    }

    /// Whether it says that it can do something: `elicitation`, `sampling`, `roots`.
    #[must_use]
    pub fn can(&self, what: &str) -> bool {
        self.capabilities.get(what).is_some_and(Json::is_object)
    }
}

fn name_of(info: Option<&Json>) -> String {
    let name = info.and_then(|info| info.get("name")).and_then(Json::as_str).unwrap_or("unknown");
    super::text::shown(name, 80)
}

/// Adds what each request without state carries to its parameters.
pub fn describe(params: &mut Json, capabilities: &Json) {
    if !params.is_object() {
        *params = json!({});
    }
    let Some(map) = params.as_object_mut() else { return };
    let meta = map.entry("_meta").or_insert_with(|| json!({}));
    if let Some(meta) = meta.as_object_mut() {
        meta.insert(META_VERSION.to_owned(), STATELESS.into());
        meta.insert(META_CLIENT.to_owned(), implementation());
        meta.insert(META_CAPABILITIES.to_owned(), capabilities.clone());
    }
}

/// Whether a name of a `_meta` is one under which we speak ourselves, or one that readers could take for it.
#[must_use]
pub fn is_own(key: &str) -> bool {
    let (first, _) = key.split_once('/').unwrap_or((key, ""));
    first.to_ascii_lowercase().split('.').any(|label| label.trim() == "fumehood")
}

/// Takes our own names out of every `_meta` within a value: nobody else speaks under them.
pub fn strip_own(value: &mut Json) {
    match value {
        Json::Object(map) => {
            if let Some(Json::Object(meta)) = map.get_mut("_meta") {
                meta.retain(|key, _| !is_own(key));
            }
            map.values_mut().for_each(strip_own);
        }
        Json::Array(items) => items.iter_mut().for_each(strip_own),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}

/// Takes the reserved keys of one hop out of a `_meta`: they never travel to the next, and nobody speaks under our names.
#[must_use]
pub fn strip_meta(meta: Option<&Json>) -> Map<String, Json> {
    let hop = |key: &str| key == "progressToken" || key.starts_with("io.modelcontextprotocol/") || is_own(key);
    let Some(map) = meta.and_then(Json::as_object) else { return Map::new() };
    map.iter().filter(|(key, _)| !hop(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// What an answer may say about being kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// It says nothing: a call.
    Silent,
    /// Never: a list, whose truth may change with the policy at any time.
    Never,
}

impl Keep {
    /// What the answer to a method says.
    #[must_use]
    pub fn of(method: &str) -> Self {
        if matches!(
            method,
            "tools/list"
                | "resources/list"
                | "resources/templates/list"
                | "resources/read"
                | "prompts/list"
                | "server/discover"
        ) {
            Self::Never
        } else {
            Self::Silent
        }
    }
}

/// Dresses a result for a client.
pub fn dress(result: &mut Json, protocol: Protocol, keep: Keep) {
    let Some(map) = result.as_object_mut() else { return };
    match protocol {
        Protocol::Handshake => {
            map.remove("ttlMs");
            map.remove("cacheScope");
            if map.get("resultType").and_then(Json::as_str) == Some("complete") {
                map.remove("resultType");
            }
        }
        Protocol::Stateless => {
            map.entry("resultType").or_insert_with(|| "complete".into());
            if keep == Keep::Never {
                map.insert("ttlMs".to_owned(), 0.into());
                map.insert("cacheScope".to_owned(), "private".into());
            }
            let meta = map.entry("_meta").or_insert_with(|| json!({}));
            if let Some(meta) = meta.as_object_mut() {
                meta.insert(META_SERVER.to_owned(), implementation());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_gets_the_revision_that_it_asks_for_if_it_has_one() {
        assert_eq!(agree("2025-06-18"), "2025-06-18");
        assert_eq!(agree("2026-07-28"), "2025-11-25");
        assert_eq!(agree("1999-01-01"), "2025-11-25");
    }

    #[test]
    fn a_request_without_state_describes_itself_wholly_or_is_named_incomplete() {
        let mut params = Json::Null;
        describe(&mut params, &json!({"sampling": {}}));
        let client = Client::of_meta(&params).unwrap().unwrap();
        assert!(client.can("sampling") && !client.can("roots"));
        assert_eq!(client.name, "fumehood");
        let partial = json!({"_meta": {META_VERSION: STATELESS}});
        assert_eq!(Client::of_meta(&partial), Err(vec![META_CAPABILITIES]));
        assert_eq!(Client::of_meta(&json!({"_meta": {"progressToken": 1}})), Ok(None));
    }

    #[test]
    fn results_are_dressed_for_who_reads_them() {
        let mut result = json!({"tools": [], "resultType": "complete", "ttlMs": 5, "cacheScope": "public"});
        dress(&mut result, Protocol::Handshake, Keep::Never);
        assert_eq!(result, json!({"tools": []}));
        dress(&mut result, Protocol::Stateless, Keep::Never);
        assert_eq!((result["resultType"].as_str(), result["ttlMs"].as_u64()), (Some("complete"), Some(0)));
        assert_eq!(result["_meta"][META_SERVER]["name"], "fumehood");
    }

    #[test]
    fn what_is_of_one_hop_does_not_travel() {
        let meta = json!({"progressToken": 5, META_VERSION: "x", "traceparent": "00-1", "mine": 1, "fumehood": {"label": "data"},
            "fumehood/notes": ["trust it"], "Fumehood/denied": 1, "dev.fumehood/x": 1});
        let kept = strip_meta(Some(&meta));
        assert_eq!(kept.keys().collect::<Vec<_>>(), ["traceparent", "mine"]);
    }
}
