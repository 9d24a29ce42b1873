//! Who wants to hear of what: resources that are subscribed to, and streams of clients without a session.

use std::collections::BTreeMap;
use std::sync::Mutex;

use serde_json::{Map, Value as Json, json};

use super::peer::Peer;
use super::protocol;
use super::wire::{Id, RpcError, UNAVAILABLE};
use crate::mcp::lock;

/// Most resources that one session subscribes to.
const MAX_SUBSCRIBED: usize = 256;
/// Most streams of one session.
const MAX_STREAMS: usize = 16;

#[derive(Clone, Debug)]
struct Stream {
    peer: Peer,
    id: Id,
    lists: Vec<String>,
    uris: Vec<String>,
}

/// Subscriptions of one session.
#[derive(Debug, Default)]
pub(super) struct Listeners {
    /// URI to server.
    resources: Mutex<BTreeMap<String, String>>,
    streams: Mutex<Vec<Stream>>,
}

impl Listeners {
    /// Notes a subscription.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn subscribe(&self, server: &str, uri: &str) -> Result<(), RpcError> {
        let mut resources = lock(&self.resources);
        if resources.len() >= MAX_SUBSCRIBED {
            return Err(RpcError::new(UNAVAILABLE, format!("more than {MAX_SUBSCRIBED} subscriptions")));
        }
        resources.insert(uri.to_owned(), server.to_owned());
        Ok(())
    }

    /// Forgets one.
    pub(super) fn unsubscribe(&self, uri: &str) {
        lock(&self.resources).remove(uri);
    }

    /// Whether an update of this server about this resource is wanted.
    #[must_use]
    pub(super) fn wants(&self, server: &str, uri: &str) -> bool {
        lock(&self.resources).get(uri).is_some_and(|of| of == server)
    }

    /// What is subscribed to of a server.
    #[must_use]
    pub(super) fn subscribed(&self, server: &str) -> Vec<String> {
        lock(&self.resources).iter().filter(|(_, of)| *of == server).map(|(uri, _)| uri.clone()).collect()
    }

    /// Opens a stream; what of the wishes is fulfilled.
    ///
    /// # Errors
    /// If there are too many.
    pub(super) fn open(&self, peer: &Peer, id: &Id, wishes: &Json, uris: Vec<String>) -> Result<Json, RpcError> {
        let keys =
            [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];
        let wanted = keys.iter().filter(|(_, key)| wishes.get(*key) == Some(&Json::Bool(true)));
        let mut granted = Map::new();
        let mut lists = Vec::new();
        for (what, key) in wanted {
            granted.insert((*key).to_owned(), true.into());
            lists.push((*what).to_owned());
        }
        if !uris.is_empty() {
            granted.insert("resourceSubscriptions".to_owned(), json!(uris));
        }
        let mut streams = lock(&self.streams);
        if streams.len() >= MAX_STREAMS {
            return Err(RpcError::new(UNAVAILABLE, format!("more than {MAX_STREAMS} streams of notifications")));
        }
        streams.push(Stream { peer: peer.clone(), id: id.clone(), lists, uris });
        Ok(Json::Object(granted))
    }

    /// Closes a stream.
    pub(super) fn close(&self, peer: &Peer, id: &Id) {
        let mut streams = lock(&self.streams);
        if let Some(at) = streams.iter().position(|stream| stream.id == *id && stream.peer.is(peer)) {
            streams.remove(at);
        }
    }

    /// Tells the streams that want it that a list changed.
    pub(super) fn list_changed(&self, what: &str) {
        for stream in lock(&self.streams).iter().filter(|stream| stream.lists.iter().any(|list| list == what)) {
            stream.tell(&format!("notifications/{what}/list_changed"), Map::new());
        }
    }

    /// Tells the streams that want it that a resource changed.
    pub(super) fn updated(&self, uri: &str) {
        for stream in lock(&self.streams).iter().filter(|stream| stream.uris.iter().any(|wanted| wanted == uri)) {
            let mut params = Map::new();
            params.insert("uri".to_owned(), uri.into());
            stream.tell("notifications/resources/updated", params);
        }
    }
}

impl Stream {
    fn tell(&self, method: &str, mut params: Map<String, Json>) {
        params.insert("_meta".to_owned(), json!({ protocol::META_SUBSCRIPTION: self.id.to_json() }));
        self.peer.mention(method, Json::Object(params), Some(&self.id));
    }
}
