//! From the plan to a bundle for a runtime on Linux: what the native backend prepares, with the tree as a document.

use std::path::Path;

use guest::config::Mode;
use policy::Plan;

use super::bundle::{self, Bundle, UserMapping};
use super::linux::Linux;
use super::verify;
use crate::backend::{self, Launch};
use crate::host::{Capabilities, Runtime};
use crate::native::handed::Handed;
use crate::native::prepare as native;
use crate::{StartError, identity};

/// Everything that a start needs.
#[derive(Debug)]
pub(super) struct Prepared {
    pub(super) inner: native::Prepared,
    pub(super) bundle: Bundle,
    pub(super) runtime: Runtime,
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
    let runtime = host.crun().map_err(|missing| StartError::system("looking for `crun`", missing.why))?.clone();
    let folder = launch.tmp.as_deref().ok_or_else(|| StartError::Internal("no folder of our own".to_owned()))?;
    let mut inner = native::prepare(plan, host, launch)?;
    let blueprint = &inner.blueprint;
    let linux = Linux::new(
        blueprint.namespaces.clone(),
        blueprint.user.as_ref().map_or(0, |(_, id)| *id),
        (inner.identity.uid, inner.identity.gid),
        identity::unused(&launch.run),
        blueprint.no_new_privs,
    );
    let hostname = blueprint.hostname.as_deref().unwrap_or_default();
    let sources = (inner.config.sources.as_slice(), inner.mapped.as_slice());
    let bundle = Bundle::of(&inner.config.ops, sources, folder, hostname, UserMapping::Mapped(linux))?;
    bundle.all_text()?;
    let config = &mut inner.config;
    config.mode = Mode::Runtime;
    // The runtime's work.
    (config.wait_mapped, config.clear_groups) = (false, false);
    (config.hostname, config.sources) = (Vec::new(), Vec::new());
    // The supervisor fills what it fills before the guest is told to go on.
    config.wait_filled |= bundle.places.iter().any(|place| place.filled);
    let has_tmp = bundle.places.iter().any(|place| place.at == Path::new("/tmp"));
    config.ops = has_tmp.then(bundle::home).into_iter().collect();
    config.program = launch.program.as_ref().map(|_| native::number_after(0));
    (inner.exports, inner.folder, inner.mapped) = (false, None, Vec::new());
    inner.by_runtime = Some(verify::points(&bundle));
    Ok(Prepared { inner, bundle, runtime })
}
