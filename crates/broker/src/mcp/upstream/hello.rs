//! The first words with a server: which revision it speaks.
//!
//! Asked is first what the newest servers answer (`server/discover`); whoever does not know it gets the handshake. A server
//! that ends at the first word that it does not know is started again and gets the handshake at once.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::mcp::era::{self, Era};
use crate::mcp::peer::{Failure, Peer};

/// How long a server may take to say hello: interpreters and package runners start slowly.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// How long an old server may stay silent on a word that it does not know.
const PROBE: Duration = Duration::from_secs(8);

/// A server, as it introduced itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Introduced {
    /// How it is spoken to.
    pub era: Era,
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
    if begin == Begin::Probe {
        match probe(peer, capabilities).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(why) => return Err(Unmet::EndedAtProbe(why)),
        }
    }
    handshake(peer, capabilities).await
}

/// `Ok(None)`: it does not know the word.
async fn probe(peer: &Peer, capabilities: &Json) -> Result<Option<Introduced>, String> {
    let mut params = json!({});
    era::describe(&mut params, capabilities);
    let asked = tokio::time::timeout(PROBE, peer.request("server/discover", params, None).answer()).await;
    let result = match asked {
        Ok(Ok(result)) => result,
        Ok(Err(Failure::Gone(why))) => return Err(why),
        Ok(Err(Failure::Rpc(_))) | Err(_) => return Ok(None),
    };
    let speaks = result.get("supportedVersions").and_then(Json::as_array);
    if !speaks.is_some_and(|versions| versions.iter().any(|version| version.as_str() == Some(era::STATELESS))) {
        return Ok(None);
    }
    let info = result.get("_meta").and_then(|meta| meta.get(era::META_SERVER));
    Ok(Some(Introduced {
        era: Era::Stateless,
        version: era::STATELESS.to_owned(),
        capabilities: result.get("capabilities").cloned().unwrap_or_default(),
        name: name_of(info),
    }))
}

async fn handshake(peer: &Peer, capabilities: &Json) -> Result<Introduced, Unmet> {
    let params = json!({
        "protocolVersion": era::HANDSHAKE.first(),
        "capabilities": capabilities,
        "clientInfo": era::implementation(),
    });
    let asked = tokio::time::timeout(PATIENCE, peer.request("initialize", params, None).answer()).await;
    let result = match asked {
        Ok(Ok(result)) => result,
        Ok(Err(failure)) => return Err(Unmet::Failed(failure.into_rpc().message)),
        Err(_) => return Err(Unmet::Failed(format!("it did not introduce itself within {} s", PATIENCE.as_secs()))),
    };
    let version = result.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
    if !era::HANDSHAKE.contains(&version) {
        let shown = crate::mcp::text::shown(version, 40);
        return Err(Unmet::Failed(format!("it speaks the revision `{shown}`, which is not known here")));
    }
    if !peer.notify("notifications/initialized", Json::Null, None).await {
        return Err(Unmet::Failed("it ended while it introduced itself".to_owned()));
    }
    Ok(Introduced {
        era: Era::Handshake,
        version: version.to_owned(),
        capabilities: result.get("capabilities").cloned().unwrap_or_default(),
        name: name_of(result.get("serverInfo")),
    })
}

fn name_of(info: Option<&Json>) -> String {
    let part = |key: &str| info.and_then(|info| info.get(key)).and_then(Json::as_str).unwrap_or_default();
    crate::mcp::text::shown(format!("{} {}", part("name"), part("version")).trim(), 120)
}
