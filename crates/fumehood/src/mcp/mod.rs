//! The MCP front doors, as far as they are of this program: policies and state folders in, a gateway out, upstream servers
//! started as runs of our own.

pub mod fetched;
pub mod install;
mod launch;
pub mod pulled;
pub mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gate::call::Caller;
use gateway::Broker;
use gateway::mcp::names::server_of;
use gateway::mcp::packages::FromRegistry;
use gateway::mcp::servers::{self, Server, ServerError};
use gateway::mcp::{Gateway, GatewayPolicy, packages, pinning};
use live::template::Store;
use policy::Loaded;
use policy::tools::Tools;

use crate::environment::Environment;
use crate::ui::{Failure, REFUSED};
use sandbox::PolicyLayer;
use sandbox::fault::{Fault, show_text};
use sandbox::state::State;

use fetched::Unfit;
pub use launch::{Launcher, Origin};

/// What a gateway is asked to be, beside its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayOptions {
    /// Nothing is trusted at first sight.
    pub strict_pins: bool,
    /// Servers are started with the session.
    pub eager: bool,
}

/// The gateway of a policy.
///
/// # Errors
/// Everything that is wrong with the policy, its servers or theirs.
pub fn gateway(layers: &[PolicyLayer], environment: &Environment, options: GatewayOptions) -> Result<Gateway, Failure> {
    let (loaded, gate) = crate::load::gated(layers, environment)?;
    let (Some(tools), Some(gate)) = (&loaded.policy.tools, gate) else { return Err(no_tools(layers)) };
    let behind = Upstreams::of(tools, &loaded, layers, environment)?;
    let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
    let folder = environment.cwd.clone().unwrap_or_default();
    let broker = crate::broker::open(gate, &loaded, tools, &state, &folder)?;
    Ok(behind.gateway(broker, &state, options))
}

/// The servers of a policy, looked through and ready to be started: what stands behind each front door that has them.
#[derive(Debug)]
pub struct Upstreams {
    asked: GatewayPolicy,
    launcher: Launcher,
    scope: String,
}

impl Upstreams {
    /// Those of a policy; their own policies are read now.
    ///
    /// # Errors
    /// Everything that is wrong with the servers or their policies.
    pub fn of(
        tools: &Tools,
        loaded: &Loaded,
        layers: &[PolicyLayer],
        environment: &Environment,
    ) -> Result<Self, Failure> {
        let mut asked =
            GatewayPolicy::of(tools, &loaded.documents, &HostSurroundings { environment }).map_err(all_wrong)?;
        let fetched = fetched_before(&mut asked.servers, environment)?;
        let launcher = Launcher::new(environment, &asked.servers, &loaded.policy.documents.0)?.with(fetched);
        Ok(Self { asked, launcher, scope: scope(layers, environment) })
    }

    /// The same where these documents are held too, of whatever else its front door starts.
    #[must_use]
    pub fn holding(mut self, documents: &BTreeSet<PathBuf>) -> Self {
        self.launcher.documents.extend(documents.iter().cloned());
        self
    }

    /// What no server writes: the gateway's documents, those of each server's policy, and what it was told to hold.
    #[must_use]
    pub const fn documents(&self) -> &BTreeSet<PathBuf> {
        &self.launcher.documents
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.asked.servers.is_empty()
    }

    /// Whether a name belongs to one of the servers.
    #[must_use]
    pub fn has(&self, tool: &str) -> bool {
        server_of(tool).is_some_and(|server| self.asked.servers.iter().any(|one| one.name == server))
    }

    /// A gateway before them.
    #[must_use]
    pub fn gateway(self, broker: Arc<Broker>, state: &State, options: GatewayOptions) -> Gateway {
        let GatewayPolicy { servers, allow } = self.asked;
        Gateway {
            servers,
            allow,
            broker,
            pinning: pinning(state.path(), self.scope, options.strict_pins),
            launch: Arc::new(self.launcher),
            eager: options.eager,
        }
    }
}

/// The servers of a policy as they are written; nothing is started.
///
/// # Errors
/// Everything that is wrong with `[mcp]`.
pub fn servers(loaded: &Loaded, environment: &Environment) -> Result<Vec<Server>, Failure> {
    let Some(tools) = &loaded.policy.tools else { return Ok(Vec::new()) };
    GatewayPolicy::of(tools, &loaded.documents, &HostSurroundings { environment })
        .map(|asked| asked.servers)
        .map_err(all_wrong)
}

/// What was fetched before of those that a registry would be asked for: they start from there.
fn fetched_before(servers: &mut [Server], environment: &Environment) -> Result<BTreeMap<String, Origin>, Failure> {
    let mut found = BTreeMap::new();
    for server in servers {
        let Some(Ok(asked)) = packages::of(server) else { continue };
        let origin = match asked {
            FromRegistry::Package(package) => {
                let (folder, _) = environment.state.state().map_err(|error| Failure::own(error.fault()))?;
                let before = fetched::find(&Store::new(&folder), &package);
                let before = before.map_err(|unfit| unfit_failure(&unfit, &server.name))?;
                before.map(|fetched| {
                    fetched::start_from(server, &fetched, package);
                    Origin::Template(Box::new(fetched.template))
                })
            }
            FromRegistry::Image(container) => {
                let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
                let before = pulled::find(&state, &container);
                let before = before.map_err(|unfetched| unfetched_failure(&unfetched, &server.name))?;
                before.map(|pulled| {
                    pulled.start(server);
                    Origin::Image(Box::new(pulled))
                })
            }
        };
        found.extend(origin.map(|origin| (server.name.clone(), origin)));
    }
    Ok(found)
}

/// Why there is no image for a server.
pub(crate) fn unfetched_failure(unfetched: &pulled::Unfetched, server: &str) -> Failure {
    Failure::judged(unfetched.is_refusal(), unfetched.fault(server))
}

/// Why a server cannot be fetched, or not be started from what was.
pub(crate) fn unfit_failure(unfit: &Unfit, server: &str) -> Failure {
    match unfit {
        Unfit::Template(error) => error.error().into(),
        Unfit::Program(why) => Failure::own(Fault {
            id: "mcp.fetch/program",
            what: format!("the server `{server}` cannot be started from its package"),
            place: format!("mcp.servers.{server}"),
            why: show_text(why),
            fix: "name the package's own program, as its documentation writes it".to_owned(),
        }),
    }
}

/// Whether the servers that a policy names can be what it says; nothing is started.
///
/// # Errors
/// Everything that is wrong with `[mcp]`.
pub fn check(loaded: &Loaded, environment: &Environment) -> Result<(), Failure> {
    servers(loaded, environment).map(|_| ())
}

/// Our own server under a policy.
///
/// # Errors
/// Everything that is wrong with the policy.
pub fn own_server(
    layers: &[PolicyLayer],
    environment: &Environment,
    agent: &str,
    may_apply: bool,
) -> Result<Arc<server::Server>, Failure> {
    let (loaded, gate) = crate::load::gated(layers, environment)?;
    let actor = server::Actor::new(layers, environment, may_apply);
    let broker = match (&loaded.policy.tools, gate) {
        (None, _) | (_, None) => None,
        (Some(tools), Some(gate)) => {
            let state = State::open(&environment.state).map_err(|error| Failure::own(error.fault()))?;
            let folder = environment.cwd.clone().unwrap_or_default();
            Some(crate::broker::open(gate, &loaded, tools, &state, &folder)?)
        }
    };
    let session = gateway::mcp::run::session_id().map_err(|why| {
        let (what, place, fix) = ("cannot name a session", "/proc/self/exe".to_owned(), "mount /proc".to_owned());
        Failure::own(Fault { id: "mcp/own-binary", what: what.to_owned(), place, why, fix })
    })?;
    let caller = Caller { agent: agent.to_owned(), session, key: None };
    Ok(server::Server::new(actor, broker, caller))
}

/// Which policy pins are of: the documents that make it, by their full paths.
#[must_use]
pub fn scope(layers: &[PolicyLayer], environment: &Environment) -> String {
    let full = |name: &String| match &environment.cwd {
        Some(dir) if name.contains('/') || Path::new(name).extension().is_some() => {
            let path = dir.join(name);
            std::fs::canonicalize(&path).unwrap_or(path).display().to_string()
        }
        Some(_) | None => name.clone(),
    };
    let documents = layers.iter().filter_map(|layer| match layer {
        PolicyLayer::Document(name) => Some(full(name)),
        PolicyLayer::Flag { .. } | PolicyLayer::Set(_) => None,
    });
    documents.collect::<Vec<_>>().join(":")
}

struct HostSurroundings<'a> {
    environment: &'a Environment,
}

impl servers::Surroundings for HostSurroundings<'_> {
    fn read(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string().to_lowercase())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.variable(name).and_then(|value| value.to_str()).map(str::to_owned)
    }
}

pub(crate) fn no_tools(layers: &[PolicyLayer]) -> Failure {
    let named = layers.iter().any(|layer| matches!(layer, PolicyLayer::Document(_)));
    Failure::Faults {
        code: REFUSED,
        faults: vec![Fault {
            id: "mcp/no-tools",
            what: "the policy names neither tools nor servers".to_owned(),
            place: if named { "the policy" } else { "command line" }.to_owned(),
            why: "a gateway lets nothing through that no entry names, so there would be nothing to do".to_owned(),
            fix: "name servers in [mcp.servers.NAME] and tools in [[tools.tool]]; see docs/reference/mcp.md".to_owned(),
        }],
    }
}

fn all_wrong(wrong: Vec<ServerError>) -> Failure {
    let fault = |ServerError { id, what, place, why, fix }| Fault { id, what, place, why, fix };
    Failure::Faults { code: REFUSED, faults: wrong.into_iter().map(fault).collect() }
}
