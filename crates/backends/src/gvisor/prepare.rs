//! From the plan to a bundle, and to the config of the guest that is its first process. Nothing is made on the host here.

use std::path::Path;

use guest::config::{Mode, OwnedProbe as Probe};
use policy::Plan;
use policy::control::{Control, Filter};

use crate::StartError;
use crate::backend::{self, Launch, Trust};
use crate::host::{Capabilities, Engine};
use crate::identity::{INSIDE, Identity};
use crate::native::blueprint::Blueprint;
use crate::native::handed::Handed;
use crate::native::source::text;
use crate::native::{filter, prepare as native, tree};
use crate::oci::bundle::{self, Bundle, UserMapping};

use super::network::NetworkRequest;

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) inner: native::Prepared,
    pub(super) bundle: Bundle,
    pub(super) engine: Engine,
    pub(super) network: NetworkRequest,
}

impl Handed for Prepared {
    fn inner(&self) -> &native::Prepared {
        &self.inner
    }

    fn start(self, host: &Capabilities) -> Result<Box<dyn backend::Started>, StartError> {
        Ok(Box::new(super::start::start(self, host)?))
    }
}

/// Prepares a plan.
///
/// # Errors
/// A path of the plan cannot be used, a profile is unknown, or the runtime is gone.
pub(super) fn prepare(plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Prepared, StartError> {
    let engine = host.runsc().map_err(|missing| StartError::system("looking for `runsc`", missing.why))?.clone();
    let mut blueprint = Blueprint::of(plan, launch);
    // Of a grant what it is itself, and no file system that is mounted below it.
    blueprint.readonly_overlay = true;
    // Inside and outside are one: gVisor's own process that serves files asks the host for what its own kernel judged.
    let user = blueprint.user.as_ref().map_or(INSIDE, |(_, id)| *id);
    let identity = Identity { uid: user, gid: user, maps: false };
    let filter = filter::build(&blueprint)?;
    let tree = tree::build(&blueprint, host, launch, identity, false)?;
    let folder = launch.tmp.as_deref().ok_or_else(|| StartError::Internal("no folder of our own".to_owned()))?;
    let hostname = blueprint.hostname.as_deref().unwrap_or_default();
    let bundle = Bundle::of(&tree.ops, (&tree.sources, &tree.mapped), folder, hostname, UserMapping::Same(user))?;
    bundle.all_text()?;
    let mut config = native::common(&blueprint, host, launch);
    config.mode = Mode::Bundle;
    // The runtime's work.
    (config.wait_mapped, config.loopback, config.inner_limits, config.new_keyring) = (false, false, false, false);
    (config.clear_groups, config.prove_payload_scope, config.hostname) = (false, false, Vec::new());
    let network = NetworkRequest { pair: blueprint.veth, inlets: std::mem::take(&mut config.inlets) };
    // The supervisor fills what it fills before the guest is told to go on.
    config.wait_filled = bundle.places.iter().any(|place| place.filled);
    config.ops =
        if bundle.places.iter().any(|place| place.at == Path::new("/tmp")) { vec![bundle::home()] } else { Vec::new() };
    config.cwd = text(&tree.cwd);
    config.program = launch.program.as_ref().map(|_| native::number_after(0));
    config.seccomp = filter.as_ref().map(|built| built.program.clone()).unwrap_or_default();
    (config.env, config.search) = native::environment(&blueprint, launch);
    config.probes = probes(plan, filter.as_ref());
    let inner = native::Prepared {
        limits: blueprint.cgroup.clone(),
        run: launch.run.clone(),
        program: launch.program.clone(),
        stdio: launch.stdio,
        rootless: false,
        tier: plan.tier,
        plan: plan.clone(),
        identity,
        workspace: tree.workspace,
        mapped: Vec::new(),
        exports: false,
        folder: None,
        copy_to: None,
        certificates: launch.trust.as_ref().map(Trust::certificates),
        etc: tree.etc,
        label: None,
        interpreted: None,
        by_runtime: None,
        by_engine: false,
        config,
        blueprint,
        placed: tree.placed,
        filter,
    };
    Ok(Prepared { inner, bundle, engine, network })
}

/// What the guest's answers must be when its filter is in force.
fn probes(plan: &Plan, filter: Option<&filter::Built>) -> Vec<Probe> {
    let mut all = Vec::new();
    if plan.controls().any(|control| *control == Control::Filter(Filter::NoInet)) {
        all.push(Probe::SocketMustFail { family: 2, kind: 1, protocol: 0 });
        all.push(Probe::SocketMustFail { family: 10, kind: 2, protocol: 0 });
    }
    let lacked = filter::LACKED.map(sys::seccomp::names::number);
    let told =
        |probe: &&Probe| !matches!(probe, Probe::Call { number, errno: 0, .. } if lacked.contains(&Some(*number)));
    all.extend(filter.iter().flat_map(|built| built.probes.iter().filter(told).cloned()));
    all
}
