//! The first words with a server: which revision it speaks.
//!
//! Asked is first what the newest servers answer (`server/discover`); whoever does not know it gets the handshake. A server
//! that ends at the first word that it does not know is started again and gets the handshake at once. One that is silent
//! gets the handshake as well, and whichever of the two it answers counts: silence is also how a slow start looks.

use std::pin::pin;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::mcp::peer::{Failure, Peer};
use crate::mcp::protocol::{self, Protocol};

/// How long a server may take to say hello: interpreters and package runners start slowly.
pub(super) const HELLO_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a server may stay silent on the first word before it gets the handshake too.
const PROBE: Duration = Duration::from_secs(8);

/// A server, as it introduced itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Introduced {
    /// How it is spoken to.
    pub protocol: Protocol,
    /// Its revision.
    pub version: String,
    /// `tools`, `resources`, ...
    pub capabilities: Json,
    /// Its name and version, escaped; for people and records.
    pub name: String,
}

/// Why there is no conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unmet {
    /// It ended at a word that it does not know: try the handshake.
    EndedAtProbe(String),
    /// Why.
    Failed(String),
}

/// Which words to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begin {
    /// With the newest.
    Probe,
    /// With the handshake.
    Handshake,
}

/// Introduces us and learns who it is.
///
/// # Errors
/// [`Unmet`]
pub(super) async fn hello(peer: &Peer, capabilities: &Json, begin: Begin) -> Result<Introduced, Unmet> {
    if begin == Begin::Handshake {
        return handshake(peer, capabilities).await;
    }
    let mut probing = pin!(probe(peer, capabilities));
    match tokio::time::timeout(PROBE, &mut probing).await {
        Ok(Ok(Some(found))) => return Ok(found),
        Ok(Ok(None)) => return handshake(peer, capabilities).await,
        Ok(Err(why)) => return Err(Unmet::EndedAtProbe(why)),
        Err(_) => {}
    }
    // It does not know the word and is silent, or it has not come to it yet: a new server that starts slowly answers the
    // word when it is there, and takes no handshake after that.
    let mut shaking = pin!(handshake(peer, capabilities));
    tokio::select! {
        biased;
        probed = &mut probing => match probed {
            Ok(Some(found)) => Ok(found),
            Ok(None) => shaking.await,
            Err(why) => Err(Unmet::EndedAtProbe(why)),
        },
        shaken = &mut shaking => match shaken {
            Ok(found) => Ok(found),
            Err(unmet) => match tokio::time::timeout(PROBE, probing).await {
                Ok(Ok(Some(found))) => Ok(found),
                Ok(Ok(None) | Err(_)) | Err(_) => Err(unmet),
            },
        },
    }
}

/// `Ok(None)`: it does not know the word.
async fn probe(peer: &Peer, capabilities: &Json) -> Result<Option<Introduced>, String> {
    let mut params = json!({});
    protocol::describe(&mut params, capabilities);
    let result = match peer.request("server/discover", params, None).answer().await {
        Ok(result) => result,
        Err(Failure::Gone(why)) => return Err(why),
        Err(Failure::Rpc(_)) => return Ok(None),
    };
    let speaks = result.get("supportedVersions").and_then(Json::as_array);
    if !speaks.is_some_and(|versions| versions.iter().any(|version| version.as_str() == Some(protocol::STATELESS))) {
        return Ok(None);
    }
    let info = result.get("_meta").and_then(|meta| meta.get(protocol::META_SERVER));
    Ok(Some(Introduced {
        protocol: Protocol::Stateless,
        version: protocol::STATELESS.to_owned(),
        capabilities: result.get("capabilities").cloned().unwrap_or_default(),
        name: name_of(info),
    }))
}

async fn handshake(peer: &Peer, capabilities: &Json) -> Result<Introduced, Unmet> {
    let params = json!({
        "protocolVersion": protocol::HANDSHAKE.first(),
        "capabilities": capabilities,
        "clientInfo": protocol::implementation(),
    });
    let asked = tokio::time::timeout(HELLO_TIMEOUT, peer.request("initialize", params, None).answer()).await;
    let result = match asked {
        Ok(Ok(result)) => result,
        Ok(Err(failure)) => return Err(Unmet::Failed(failure.into_rpc().message)),
        Err(_) => {
            return Err(Unmet::Failed(format!("it did not introduce itself within {} s", HELLO_TIMEOUT.as_secs())));
        }
    };
    let version = result.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
    if !protocol::HANDSHAKE.contains(&version) {
        let shown = crate::mcp::text::shown(version, 40);
        return Err(Unmet::Failed(format!("it speaks the revision `{shown}`, which is not known here")));
    }
    if !peer.notify("notifications/initialized", Json::Null, None).await {
        return Err(Unmet::Failed("it ended while it introduced itself".to_owned()));
    }
    Ok(Introduced {
        protocol: Protocol::Handshake,
        version: version.to_owned(),
        capabilities: result.get("capabilities").cloned().unwrap_or_default(),
        name: name_of(result.get("serverInfo")),
    })
}

fn name_of(info: Option<&Json>) -> String {
    let part = |key: &str| info.and_then(|info| info.get(key)).and_then(Json::as_str).unwrap_or_default();
    crate::mcp::text::shown(format!("{} {}", part("name"), part("version")).trim(), 120)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use crate::engine::BoxFuture;
    use crate::mcp::peer::{Handler, Incoming, Outlet};
    use crate::mcp::wire::Id;

    struct Out(mpsc::UnboundedSender<Json>);

    impl Outlet for Out {
        fn send<'a>(&'a self, message: Json, _: Option<&'a Id>) -> BoxFuture<'a, bool> {
            Box::pin(async move { self.0.send(message).is_ok() })
        }
        fn offer(&self, message: Json, _: Option<&Id>) -> bool {
            self.0.send(message).is_ok()
        }
    }

    struct Deaf;

    impl Handler for Deaf {
        fn request(&self, _: Incoming) {}
        fn notification(&self, _: &Peer, _: &str, _: Json) {}
    }

    const NEW: &str = r#"{"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}"#;
    const OLD: &str = r#"{"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s"}}"#;

    /// Says hello to a server that answers its messages as told, in this order, once the handshake has come too.
    async fn slow(answers: Vec<(&str, Result<&str, ()>)>) -> Result<Protocol, Unmet> {
        let (sender, mut sent) = mpsc::unbounded_channel();
        let peer = Peer::new(Arc::new(Out(sender)), Arc::new(Deaf));
        let greeting = {
            let peer = peer.clone();
            tokio::spawn(async move { hello(&peer, &json!({}), Begin::Probe).await })
        };
        let mut asked = Vec::new();
        while asked.len() < 2 {
            asked.push(sent.recv().await.unwrap());
        }
        assert_eq!(asked[1]["method"], "initialize", "silence is answered by the handshake");
        for (method, answer) in answers {
            let id = &asked.iter().find(|message| message["method"] == method).unwrap()["id"];
            let outcome = match answer {
                Ok(result) => {
                    json!({"jsonrpc": "2.0", "id": id, "result": serde_json::from_str::<Json>(result).unwrap()})
                }
                Err(()) => json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32600, "message": "no"}}),
            };
            peer.accept(outcome);
            tokio::task::yield_now().await;
        }
        greeting.await.unwrap().map(|found| found.protocol)
    }

    /// `mcp-server-time` under load: it was there after nine seconds, answered the first word and refused the handshake.
    #[tokio::test]
    async fn a_server_that_starts_slowly_is_taken_by_whichever_word_it_answers() {
        let (new, old) = (Ok(Protocol::Stateless), Ok(Protocol::Handshake));
        let (first, second) = ("server/discover", "initialize");
        let all = tokio::join!(
            slow(vec![(first, Ok(NEW)), (second, Err(()))]),
            slow(vec![(second, Err(())), (first, Ok(NEW))]),
            slow(vec![(first, Err(())), (second, Ok(OLD))]),
            slow(vec![(second, Ok(OLD))]),
            slow(vec![(first, Err(())), (second, Err(()))]),
        );
        assert_eq!((all.0, all.1, all.2, all.3), (new.clone(), new, old.clone(), old));
        assert!(matches!(all.4, Err(Unmet::Failed(_))));
    }
}
