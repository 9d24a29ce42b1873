//! From the plan to a container: what the native backend prepares, with every tree of it to be handed in.

use std::path::PathBuf;

use policy::Plan;
use policy::control::Namespace;

use crate::host::{Capabilities, Daemon};
use crate::native::handed::Handed;
use crate::native::prepare as native;
use crate::{Launch, StartError, backend, identity};

/// Set apart from every id that a run has outside: the container's root, who is nobody after the start.
const ABOVE_RUNS: u32 = 0x0100_0000;

/// Who makes the container.
#[derive(Clone, Debug)]
pub(super) enum Maker {
    /// podman's service, by the runtime at this place.
    Podman(PathBuf),
    /// Docker's daemon.
    Docker(Daemon),
}

impl Maker {
    /// podman's service.
    ///
    /// # Errors
    /// The runtime is gone.
    pub(super) fn podman(host: &Capabilities) -> Result<Self, StartError> {
        let runtime = host.crun().map_err(|missing| StartError::system("looking for `crun`", missing.why))?;
        Ok(Self::Podman(runtime.path.clone()))
    }

    /// Docker's daemon.
    ///
    /// # Errors
    /// It is gone.
    pub(super) fn docker(host: &Capabilities) -> Result<Self, StartError> {
        let daemon = host.docker().map_err(|missing| StartError::system("looking for Docker's daemon", missing.why))?;
        Ok(Self::Docker(daemon.clone()))
    }
}

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) inner: native::Prepared,
    /// The run's own folder.
    pub(super) folder: PathBuf,
    pub(super) maker: Maker,
    /// Who the container's root is outside.
    pub(super) root: u32,
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
/// A path of the plan cannot be used, or a profile is unknown.
pub(super) fn prepare(plan: &Plan, host: &Capabilities, launch: &Launch, maker: Maker) -> Result<Prepared, StartError> {
    let folder = launch.tmp.clone().ok_or_else(|| StartError::Internal("no folder of our own".to_owned()))?;
    let mut inner = native::prepare(plan, host, launch)?;
    inner.folder = None;
    inner.by_engine = true;
    // The id maps are written before the guest is told anything.
    inner.config.wait_mapped = false;
    inner.config.new_cgroup = inner.blueprint.namespaces.contains(&Namespace::Cgroup);
    let root = identity::unused(&launch.run) | ABOVE_RUNS;
    Ok(Prepared { inner, folder, maker, root })
}

impl Prepared {
    /// Ids inside and what they are outside, of users and of groups.
    pub(super) fn maps(&self) -> [Vec<(u32, u32)>; 2] {
        let inside = self.inner.blueprint.user.as_ref().map_or(0, |(_, id)| *id);
        let (uid, gid) = (self.inner.identity.uid, self.inner.identity.gid);
        [uid, gid].map(|own| if inside == 0 { vec![(0, own)] } else { vec![(0, self.root), (inside, own)] })
    }
}
