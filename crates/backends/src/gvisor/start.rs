//! From `Prepared` to a guest inside gVisor that has confined itself and waits for *go*.

use std::ffi::CString;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::path::Path;

use guest::frames::{FromGuest, Posture, ToGuest};
use policy::Control;

use super::network::{PreparedNetwork, mounts_of};
use super::prepare::Prepared;
use super::verify;
use crate::StartError;
use crate::backend::{self, FoundPaths};
use crate::host::{Capabilities, Engine};
use crate::native::capacity::WatchedMounts;
use crate::native::devices::Nodes;
use crate::native::running::Running;
use crate::native::start as native;
use crate::oci::begin::{self, Order};
use crate::oci::bundle::Bundle;

/// gVisor's own network stack takes the interface that it finds, or it has its loopback alone.
pub(super) const WITH_NETWORK: &str = "--network=sandbox";
pub(super) const WITHOUT_NETWORK: &str = "--network=none";
/// Most bytes of the list of mounts: what a pipe takes without a reader.
const MAX_MOUNTS: usize = 64 << 10;

/// gVisor on its way. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) inner: native::Started,
    pub(super) bundle: Bundle,
    /// Its processes are told their platform.
    pub(super) says_platform: bool,
    /// The list of mounts comes out here.
    mounts: OwnedFd,
    /// As they were before the runtime.
    nodes: Nodes,
    /// Its way to the broker.
    pub(super) network: Option<PreparedNetwork>,
}

/// Writes the bundle and starts the runtime, all of whose processes are in the run's control group.
///
/// # Errors
/// The host refused a file, a group or a mount.
pub(super) fn start(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let Prepared { inner, mut bundle, engine, network } = prepared;
    let failed = |error| StartError::system("making a pipe", error);
    let network = network.make([inner.config.local_ipv4, inner.config.local_ipv6])?;
    bundle.network = network.as_ref().map(PreparedNetwork::path);
    bundle.write()?;
    let (mounts, mounts_inner) = sys::channel::pipe().map_err(failed)?;
    sys::channel::set_nonblocking(&mounts).map_err(failed)?;
    let order = Order {
        name: "runsc",
        program: &engine.path,
        words: runtime_argv(&engine, &bundle, &inner.run, network.as_ref().is_some_and(PreparedNetwork::pair)),
        socket: 0,
        mounts: if network.is_some() { mounts_of(engine.date) } else { &[] },
    };
    let nodes = Nodes::look();
    let mut inner = begin::begin(inner, &bundle, &order, mounts_inner, host)?;
    inner.child.own_kernel = true;
    inner.seen.network = network.as_ref().map(PreparedNetwork::outer);
    inner.child._outer_network = network.as_ref().map(PreparedNetwork::hold_outer).transpose()?;
    Ok(Started { inner, bundle, says_platform: engine.says_platform, mounts, nodes, network })
}

/// The runtime's words: no network or the one of the bundle's namespace, no control group of its own making, nothing written
/// through.
fn runtime_argv(engine: &Engine, bundle: &Bundle, run: &str, network: bool) -> Vec<CString> {
    let (state, platform) = (bundle.state(), format!("--platform={}", engine.platform));
    let mut all: Vec<&Path> = vec![Path::new("runsc"), Path::new("--root"), &state];
    let network = if network { WITH_NETWORK } else { WITHOUT_NETWORK };
    all.extend([network, "--ignore-cgroups", "--host-uds=none", &platform].map(Path::new));
    all.extend(engine.layers_root.then_some(Path::new("--overlay2=none")));
    all.extend([Path::new("run"), Path::new("--bundle"), bundle.folder(), Path::new(run)]);
    begin::container_argv(all)
}

impl Started {
    /// Waits until the guest has confined itself and said what is in force.
    fn posture(&mut self) -> Result<Posture, StartError> {
        match self.inner.expect() {
            Ok(FromGuest::Posture(posture)) => Ok(posture),
            Ok(frame) => Err(native::unexpected(&frame)),
            Err(error) => Err(begin::with_said(error, &self.bundle, "runsc")),
        }
    }

    /// All that the guest wrote before its posture.
    pub(super) fn mounts(&self) -> Result<Vec<sys::proc::Mount>, String> {
        let mut bytes = Vec::new();
        let file = self.mounts.try_clone().map_err(|error| error.to_string())?;
        match std::fs::File::from(file).take(MAX_MOUNTS as u64).read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error.to_string()),
            Ok(_) | Err(_) => {}
        }
        sys::proc::parse_mountinfo(&String::from_utf8_lossy(&bytes)).ok_or_else(|| "it is no list of mounts".to_owned())
    }
}

impl backend::Started for Started {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        begin::layers(&self.inner, &self.bundle)
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        let all = self.network.as_mut().map(PreparedNetwork::take_sockets).unwrap_or_default();
        self.inner.seen.sockets(&all, false);
        Ok(all)
    }

    fn waits(&self) -> bool {
        self.inner.prepared.config.wait_filled
    }

    fn filled(&self) -> Result<(), StartError> {
        self.inner.control.send(ToGuest::Filled)
    }

    fn verify(
        mut self: Box<Self>,
        armed: &[Control],
        found: &FoundPaths,
    ) -> Result<Box<dyn backend::Verified>, StartError> {
        let posture = self.posture()?;
        self.inner.seen.born(&self.inner.child, &self.inner.prepared.plan);
        let seen = verify::Observation::look(&self);
        if let Ok(seen) = &seen {
            let places: Vec<String> =
                self.bundle.places.iter().map(|place| place.at.to_string_lossy().into_owned()).collect();
            self.inner.child.watched = WatchedMounts::of(&seen.gofer, &places);
        }
        let mut wrong = match seen {
            Ok(seen) => verify::lacks(&self, &seen, &posture, (armed, found)),
            Err(why) => vec![format!("gVisor's processes could not be looked at: {why}")],
        };
        wrong.extend(self.nodes.changed());
        if wrong.is_empty() { Ok(Box::new(Verified(self.inner))) } else { Err(StartError::Posture(wrong)) }
    }
}

/// A sandbox in which every control left its evidence.
#[derive(Debug)]
struct Verified(native::Started);

impl backend::Verified for Verified {
    fn pid(&self) -> i32 {
        self.0.child.child.pid
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        let native::Started { child, control, streams, .. } = self.0;
        control.send(ToGuest::Go)?;
        Ok(Box::new(Running { held: child, control, streams, label: None }))
    }
}
