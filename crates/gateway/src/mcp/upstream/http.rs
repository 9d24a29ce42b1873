//! A server behind HTTP. The transport is `rmcp`'s: sessions, resumption, headers of both revisions; the conversation is ours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientNotification, ClientRequest, ClientResult, CustomResult, ServerJsonRpcMessage,
};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, Transport};
use serde::de::DeserializeOwned;
use serde_json::Value as Json;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::header_mask::HeaderMask;
use super::process::Queue;
use crate::mcp::peer::{Handler, Peer};
use crate::mcp::text;
use crate::mcp::wire::{self, Id, MAX_FROM_SERVER, RpcError};

const QUEUE: usize = 256;
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server is told that its session is over.
const GOODBYE: Duration = Duration::from_millis(1800);

/// Opens the way to a server; nothing is sent yet.
///
/// # Errors
/// Why its headers or TLS cannot be set up.
pub(super) fn start(
    url: &str,
    headers: &BTreeMap<String, String>,
    handler: Arc<dyn Handler>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<Peer, String> {
    let mask = Arc::new(HeaderMask::of(headers)?);
    let mut named = HashMap::new();
    for (name, value) in headers {
        let name = HeaderName::try_from(name.as_str())
            .map_err(|error| format!("`{}` is no header: {error}", text::shown(name, 60)));
        let mut value = HeaderValue::try_from(value.as_str())
            .map_err(|error| format!("a header has a value that cannot be sent: {error}"))?;
        value.set_sensitive(true);
        named.insert(name?, value);
    }
    crate::mcp::install_tls();
    // A redirect would carry the call, and its token, to somebody whom nobody named.
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT)
        .no_proxy()
        .build()
        .map_err(|error| error.to_string().to_lowercase())?;
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(named)
        .max_sse_event_size(MAX_FROM_SERVER)
        .max_concurrent_requests(64)
        .reinit_on_expired_session(true);
    let transport = StreamableHttpClientTransport::with_client(client, config);
    let (sender, receiver) = mpsc::channel(QUEUE);
    let peer = Peer::new(Arc::new(Queue(sender)), handler);
    tasks.spawn(carry(transport, receiver, (peer.clone(), mask), stop.child_token()));
    Ok(peer)
}

async fn carry(
    mut transport: impl Transport<RoleClient> + 'static,
    mut frames: mpsc::Receiver<Json>,
    (peer, mask): (Peer, Arc<HeaderMask>),
    quit: CancellationToken,
) {
    let why = loop {
        tokio::select! {
            frame = frames.recv() => match frame {
                Some(frame) => send(&mut transport, frame, (&peer, &mask)),
                None => break "the gateway let go of it".to_owned(),
            },
            message = transport.receive() => match message {
                Some(message) => hear(&message, (&peer, &mask)),
                None => break "it closed the connection, or cannot be reached".to_owned(),
            },
            () = quit.cancelled() => break "the gateway ended".to_owned(),
            () = peer.closed() => break "it was closed".to_owned(),
        }
    };
    peer.close(&why);
    // A server that answers nothing is not waited for.
    match tokio::time::timeout(GOODBYE, transport.close()).await {
        Ok(Ok(()) | Err(_)) | Err(_) => {}
    }
}

fn hear(message: &ServerJsonRpcMessage, (peer, mask): (&Peer, &HeaderMask)) {
    if let Ok(value) = serde_json::to_value(message) {
        peer.accept_silently(mask.frame(value));
    }
}

/// Sending goes on in a task of its own: it waits for the answer's headers, and others must not wait behind it.
fn send(transport: &mut impl Transport<RoleClient>, frame: Json, (peer, mask): (&Peer, &Arc<HeaderMask>)) {
    let id = frame.get("id").and_then(Id::of).filter(|_| frame.get("method").is_some());
    let failed = move |peer: &Peer, why: String| {
        if let Some(id) = &id {
            peer.accept_silently(wire::response(id, Err(RpcError::new(wire::UNAVAILABLE, why))));
        }
    };
    let message = match typed(frame) {
        Ok(message) => message,
        Err(error) => return failed(peer, format!("it cannot be sent: {error}")),
    };
    let (sending, peer, mask) = (transport.send(message), peer.clone(), Arc::clone(mask));
    tokio::spawn(async move {
        if let Err(error) = sending.await {
            // Of an answer that is no message the transport repeats the words.
            let why = mask.text(error.to_string());
            failed(&peer, format!("it cannot be reached: {}", text::shown(&why, 300)));
        }
    });
}

/// Our frame as the transport's message. It looks into what opens a conversation and into what takes a request back; everything
/// else goes through as it is, also what its types do not know.
fn typed(mut frame: Json) -> Result<ClientJsonRpcMessage, serde_json::Error> {
    let id = frame.get_mut("id").map(Json::take);
    let method = frame.get("method").and_then(Json::as_str).map(str::to_owned);
    // The transport would write `null` where there are no parameters, which servers refuse.
    if method.is_some()
        && let Some(frame) = frame.as_object_mut()
    {
        frame.entry("params").or_insert_with(|| Json::Object(serde_json::Map::new()));
    }
    let (result, error) = (frame.get_mut("result").map(Json::take), frame.get_mut("error").map(Json::take));
    Ok(match (method.as_deref(), id) {
        (Some(method), Some(id)) => {
            let request = match method {
                "ping" => ClientRequest::PingRequest(of(frame)?),
                "initialize" => ClientRequest::InitializeRequest(of(frame)?),
                "server/discover" => ClientRequest::DiscoverRequest(of(frame)?),
                _ => ClientRequest::CustomRequest(of(frame)?),
            };
            ClientJsonRpcMessage::request(request, of(id)?)
        }
        (Some(method), None) => ClientJsonRpcMessage::notification(match method {
            "notifications/initialized" => ClientNotification::InitializedNotification(of(frame)?),
            "notifications/roots/list_changed" => ClientNotification::RootsListChangedNotification(of(frame)?),
            "notifications/cancelled" => ClientNotification::CancelledNotification(of(frame)?),
            _ => ClientNotification::CustomNotification(of(frame)?),
        }),
        (None, id) => match (error, id) {
            (Some(error), id) => ClientJsonRpcMessage::error(of(error)?, id.map(of).transpose()?),
            (None, id) => {
                let result = ClientResult::CustomResult(CustomResult(result.unwrap_or_default()));
                ClientJsonRpcMessage::response(result, of(id.unwrap_or_default())?)
            }
        },
    })
}

fn of<T: DeserializeOwned>(part: Json) -> Result<T, serde_json::Error> {
    serde_json::from_value(part)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn our_messages_survive_the_types_of_the_transport() {
        for frame in [
            json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18",
                "capabilities": {"roots": {"listChanged": true}}, "clientInfo": {"name": "n", "version": "1"}}}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call",
                "params": {"name": "x", "arguments": {"a": [1, null, {"b": 2.5}]}, "_meta": {"progressToken": 5, "k": "v"}}}),
            json!({"jsonrpc": "2.0", "id": 4, "method": "resources/list", "params": {}}),
            json!({"jsonrpc": "2.0", "id": "s", "method": "tools/list", "params": {"cursor": "c", "unknown": [1]}}),
            json!({"jsonrpc": "2.0", "id": 6, "method": "ping"}),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5, "reason": "r"}}),
            json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}),
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 5, "progress": 0.5}}),
            json!({"jsonrpc": "2.0", "id": 7, "method": "logging/setLevel", "params": {"level": "info"}}),
            json!({"jsonrpc": "2.0", "id": 8, "result": {"roots": [], "unknown": {"a": 1}}}),
            json!({"jsonrpc": "2.0", "id": 9, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 10, "error": {"code": -32601, "message": "m", "data": {"d": 1}}}),
        ] {
            assert_eq!(serde_json::to_value(typed(frame.clone()).unwrap()).unwrap(), frame);
        }
    }

    #[test]
    fn a_request_without_parameters_has_none_or_empty_ones() {
        let sent = |frame| serde_json::to_value(typed(frame).unwrap()).unwrap();
        let listed = sent(json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list"}));
        assert_eq!(listed, json!({"jsonrpc": "2.0", "id": 4, "method": "tools/list", "params": {}}));
        let told = sent(json!({"jsonrpc": "2.0", "method": "notifications/x"}));
        assert_eq!(told, json!({"jsonrpc": "2.0", "method": "notifications/x", "params": {}}));
    }

    #[test]
    fn the_transport_sees_what_opens_a_conversation_and_what_takes_a_request_back() {
        let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
            "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "n", "version": "1"}}});
        let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}});
        assert!(matches!(typed(initialize).unwrap(),
            ClientJsonRpcMessage::Request(one) if matches!(one.request, ClientRequest::InitializeRequest(_))));
        assert!(matches!(typed(cancelled).unwrap(),
            ClientJsonRpcMessage::Notification(one) if matches!(one.notification, ClientNotification::CancelledNotification(_))));
        assert!(typed(json!({"jsonrpc": "2.0", "id": {"no": "id"}, "method": "ping"})).is_err());
    }
}
