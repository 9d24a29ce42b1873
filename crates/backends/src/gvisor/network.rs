//! The network of a run that reaches hosts by the broker: gVisor's own network stack sends into one end of a pair of interfaces, and
//! at the other end, in a namespace where nobody runs, every address is local and the broker's sockets wait.

use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::PathBuf;

use guest::config::Inlet;
use sys::bare::{DEVICE, OUTSIDE};
use sys::network::{Families, Network};
use sys::spawn::InnerMount;

use crate::StartError;
use crate::native::verify::{Evident, must};

/// From this release on gVisor tells the host's own network namespace by a file that is in no other.
const TELLS_ROOT: u32 = 20_240_801;
/// Before, by `net/core/rmem_default`, which newer kernels show in each: it enters none then. Such a runtime sees no file there; it has no
/// use of others. That the namespace is not the host's is for our evidence to say.
const NO_SYSCTL: InnerMount<'static> =
    InnerMount::New { kind: c"tmpfs", at: c"/proc/sys/net", noexec: true, options: c"size=4096,nr_inodes=2,mode=555" };

/// What is mounted for a runtime of this release that is to enter a namespace.
pub(super) const fn mounts_of(date: u32) -> &'static [InnerMount<'static>] {
    if date < TELLS_ROOT { &[NO_SYSCTL] } else { &[] }
}

/// What the plan wants of it beside the routes, which the guest's config has.
#[derive(Debug, Default)]
pub(super) struct NetworkRequest {
    /// An interface for gVisor.
    pub(super) pair: bool,
    pub(super) inlets: Vec<Inlet>,
}

/// What was made, until the sandbox has it.
#[derive(Debug)]
pub(super) struct PreparedNetwork {
    network: Network,
    pair: bool,
}

impl NetworkRequest {
    /// Makes it, if anything of it is wanted. `local`: IPv4, IPv6.
    pub(super) fn make(&self, local: [bool; 2]) -> Result<Option<PreparedNetwork>, StartError> {
        if !self.pair && self.inlets.is_empty() && local == [false; 2] {
            return Ok(None);
        }
        let [ipv4, ipv6] = local;
        let local = Families { ipv4, ipv6 };
        let sockets: Vec<(bool, bool, u16)> = self.inlets.iter().map(|one| (one.ipv6, one.udp, one.port)).collect();
        let wanted = sys::network::NetworkSpec { pair: self.pair.then_some(local), local, sockets: &sockets };
        let network = sys::network::make(&wanted).map_err(|error| StartError::Network { why: error.to_string() })?;
        Ok(Some(PreparedNetwork { network, pair: self.pair }))
    }
}

impl PreparedNetwork {
    /// By which the runtime finds the namespace, as long as this lives.
    pub(super) fn path(&self) -> PathBuf {
        let number = self.network.inner.namespace.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{number}", sys::caller::pid()))
    }

    /// Whether gVisor is told to take an interface.
    pub(super) const fn pair(&self) -> bool {
        self.pair
    }

    /// The namespace of the sockets, to be held for as long as anything inside sends to it.
    ///
    /// # Errors
    /// There are no descriptors left.
    pub(super) fn hold_outer(&self) -> Result<OwnedFd, StartError> {
        let held = self.network.outer.namespace.try_clone();
        held.map_err(|error| StartError::Network { why: format!("its namespace cannot be held: {error}") })
    }

    /// The namespace of the sockets, by its number.
    pub(super) const fn outer(&self) -> u64 {
        self.network.outer.number
    }

    pub(super) fn take_sockets(&mut self) -> Vec<OwnedFd> {
        std::mem::take(&mut self.network.sockets)
    }

    /// gVisor's kernel is in the namespace that was made, which has its end of the pair and nothing else, as the other namespace has.
    pub(super) fn evidence(&self, kernel: u64) -> Evident {
        let Network { inner, outer, sockets: _ } = &self.network;
        must(kernel == inner.number, || "gVisor's kernel is in another network namespace".to_owned())?;
        for (side, own) in [(inner, DEVICE), (outer, OUTSIDE)] {
            let up = side.interfaces_up().map_err(|error| error.to_string())?;
            must(up == ["lo", own], || format!("of its interfaces these are up: {}", up.join(", ")))?;
        }
        Ok(())
    }
}
