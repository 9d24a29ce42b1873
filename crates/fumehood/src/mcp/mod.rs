//! The MCP front doors, as far as they are of this program: policies and state folders in, a gateway out, upstream servers
//! started as runs of our own.

pub mod install;
mod launch;
pub mod server;

use std::path::Path;
use std::sync::Arc;

use broker::Broker;
use broker::call::Caller;
use broker::mcp::engine::Engine;
use broker::mcp::names::server_of;
use broker::mcp::servers::{self, Wrong};
use broker::mcp::{Asked, Gateway, pinning};
use policy::Loaded;
use policy::spot::Documents;
use policy::tools::Tools;

use crate::cli::{Ingredient, World};
use crate::fault::Fault;
use crate::state::State;
use crate::ui::Failure;

pub use launch::Launcher;

/// What a gateway is asked to be, beside its policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// Nothing is trusted at first sight.
    pub strict_pins: bool,
    /// Servers are started with the session.
    pub eager: bool,
}

/// The gateway of a policy.
///
/// # Errors
/// Everything that is wrong with the policy, its servers or theirs.
pub fn gateway(layers: &[Ingredient], world: &World, manner: Manner) -> Result<Gateway, Failure> {
    let (loaded, gate) = crate::cli::load::gated(layers, world)?;
    let Loaded { policy, documents, .. } = &loaded;
    let (Some(tools), Some(gate)) = (&policy.tools, gate) else { return Err(no_tools(layers)) };
    let behind = Behind::of(tools, documents, layers, world)?;
    let state = State::open(&world.state).map_err(|error| Failure::own(error.fault()))?;
    let folder = world.cwd.clone().unwrap_or_default();
    let broker = crate::serve::broker(gate, &loaded, tools, &state, &folder)?;
    Ok(behind.gateway(broker, &state, manner))
}

/// The servers of a policy, looked through and ready to be started: what stands behind each front door that has them.
#[derive(Debug)]
pub struct Behind {
    asked: Asked,
    launcher: Launcher,
    scope: String,
}

impl Behind {
    /// Those of a policy; their own policies are read now.
    ///
    /// # Errors
    /// Everything that is wrong with the servers or their policies.
    pub fn of(tools: &Tools, documents: &Documents, layers: &[Ingredient], world: &World) -> Result<Self, Failure> {
        let asked = Asked::of(tools, documents, &Around { world }).map_err(all_wrong)?;
        let launcher = Launcher::new(world, &asked.servers)?;
        Ok(Self { asked, launcher, scope: scope(layers, world) })
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
    pub fn gateway(self, broker: Arc<Broker>, state: &State, manner: Manner) -> Gateway {
        let Asked { servers, allow } = self.asked;
        Gateway {
            servers,
            allow,
            approvals: Some(broker.approvals().clone()),
            engine: broker,
            pinning: pinning(state.path(), self.scope, manner.strict_pins),
            launch: Arc::new(self.launcher),
            eager: manner.eager,
        }
    }
}

/// Whether the servers that a policy names can be what it says; nothing is started.
///
/// # Errors
/// Everything that is wrong with `[mcp]`.
pub fn check(loaded: &Loaded, world: &World) -> Result<(), Failure> {
    let Some(tools) = &loaded.policy.tools else { return Ok(()) };
    Asked::of(tools, &loaded.documents, &Around { world }).map(|_| ()).map_err(all_wrong)
}

/// Our own server under a policy.
///
/// # Errors
/// Everything that is wrong with the policy, or that our own binary cannot be found.
pub fn own_server(
    layers: &[Ingredient],
    world: &World,
    agent: &str,
    may_apply: bool,
) -> Result<Arc<server::Server>, Failure> {
    let (loaded, gate) = crate::cli::load::gated(layers, world)?;
    let actor = server::Actor::new(launch::own_binary()?, layers, world, may_apply);
    let engine = match (&loaded.policy.tools, gate) {
        (None, _) | (_, None) => None,
        (Some(tools), Some(gate)) => {
            let state = State::open(&world.state).map_err(|error| Failure::own(error.fault()))?;
            let folder = world.cwd.clone().unwrap_or_default();
            let engine: Arc<dyn Engine> = crate::serve::broker(gate, &loaded, tools, &state, &folder)?;
            Some(engine)
        }
    };
    let session = broker::mcp::run::session_id().map_err(|why| {
        let (what, place, fix) = ("cannot name a session", "/proc/self/exe".to_owned(), "mount /proc".to_owned());
        Failure::own(Fault { id: "mcp/own-binary", what: what.to_owned(), place, why, fix })
    })?;
    let caller = Caller { agent: agent.to_owned(), session, key: None };
    Ok(server::Server::new(actor, engine, caller))
}

/// Which policy pins are of: the documents that make it, by their full paths.
#[must_use]
pub fn scope(layers: &[Ingredient], world: &World) -> String {
    let full = |name: &String| match &world.cwd {
        Some(dir) if name.contains('/') || Path::new(name).extension().is_some() => {
            let path = dir.join(name);
            std::fs::canonicalize(&path).unwrap_or(path).display().to_string()
        }
        Some(_) | None => name.clone(),
    };
    let documents = layers.iter().filter_map(|layer| match layer {
        Ingredient::Document(name) => Some(full(name)),
        Ingredient::Flag { .. } | Ingredient::Set(_) => None,
    });
    documents.collect::<Vec<_>>().join(":")
}

struct Around<'a> {
    world: &'a World,
}

impl servers::Surroundings for Around<'_> {
    fn read(&self, path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path).map_err(|error| error.to_string().to_lowercase())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.world.variable(name).and_then(|value| value.to_str()).map(str::to_owned)
    }
}

pub(crate) fn no_tools(layers: &[Ingredient]) -> Failure {
    let named = layers.iter().any(|layer| matches!(layer, Ingredient::Document(_)));
    Failure::Faults {
        code: 126,
        faults: vec![Fault {
            id: "mcp/no-tools",
            what: "the policy names neither tools nor servers".to_owned(),
            place: if named { "the policy" } else { "command line" }.to_owned(),
            why: "a gateway lets nothing through that no entry names, so there would be nothing to do".to_owned(),
            fix: "name servers in [mcp.servers.NAME] and tools in [[tools.tool]]; see docs/reference/mcp.md".to_owned(),
        }],
    }
}

fn all_wrong(wrong: Vec<Wrong>) -> Failure {
    let fault = |Wrong { id, what, place, why, fix }| Fault { id, what, place, why, fix };
    Failure::Faults { code: 126, faults: wrong.into_iter().map(fault).collect() }
}
