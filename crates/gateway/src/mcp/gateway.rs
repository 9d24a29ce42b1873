//! What all sessions of a gateway share: the servers that are asked for, the broker, pins and allowlists.

use std::path::Path;
use std::sync::Arc;

use policy::span::Documents;
use policy::tools::Tools;

use super::allow::Allow;
use super::pins::{First, Pinning, Pins};
use super::servers::{self, Server, ServerError, Surroundings};
use super::upstream::ServerLauncher;
use crate::Broker;

/// What a gateway is made of.
pub struct Gateway {
    /// Upstream servers, by name.
    pub servers: Vec<Server>,
    /// What beside tools is allowed.
    pub allow: Allow,
    /// The one way to a tool. Clients that can be asked are asked about the calls that it parked.
    pub broker: Arc<Broker>,
    /// Pins.
    pub pinning: Pinning,
    /// Starts programs.
    pub launch: Arc<dyn ServerLauncher>,
    /// Whether servers are started with a session, or when they are needed.
    pub eager: bool,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("servers", &self.servers.len()).finish_non_exhaustive()
    }
}

/// What a policy says of a gateway.
#[derive(Clone, Debug)]
pub struct GatewayPolicy {
    /// Servers.
    pub servers: Vec<Server>,
    /// Allowlists.
    pub allow: Allow,
}

impl GatewayPolicy {
    /// Reads it from a policy.
    ///
    /// # Errors
    /// Everything that is wrong.
    pub fn of(tools: &Tools, documents: &Documents, surroundings: &dyn Surroundings) -> Result<Self, Vec<ServerError>> {
        let servers = servers::all(&tools.mcp.servers, documents, surroundings);
        let allow = Allow::new(&tools.mcp, documents);
        match (servers, allow) {
            (Ok(servers), Ok(allow)) => Ok(Self { servers, allow }),
            (Err(mut wrong), Err(more)) => {
                wrong.extend(more);
                Err(wrong)
            }
            (Err(wrong), Ok(_)) | (Ok(_), Err(wrong)) => Err(wrong),
        }
    }
}

/// Where pins are kept, and how.
#[must_use]
pub fn pinning(folder: &Path, scope: String, strict: bool) -> Pinning {
    Pinning { pins: Pins::new(folder), scope, first: if strict { First::Hold } else { First::Trust } }
}
