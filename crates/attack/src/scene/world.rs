//! A network for a row: whoever starts the sandbox stands in a namespace of its own, from which every address leads to a second one,
//! where the row's server and resolver are.
//!
//! So the addresses of clouds, translators and tunnels are somebody's for the row, of whom the broker knows nothing, and no interface,
//! address or route of this machine is touched.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use sys::network::{Families, Network, NetworkSpec};

use super::resolver::{self, Answers};

/// Where the resolver is, at the port of DNS.
pub(super) const RESOLVER: &str = "192.0.2.53";

/// One that was made; it goes when this and whoever entered it are gone.
pub(super) struct World {
    network: Network,
    /// Where every name is, at the port of the server.
    server: SocketAddr,
}

impl World {
    /// One in which every name is at `to`, with what waits at port 80 of any address, and the thread that answers names until `over`;
    /// `told` is set once one was told.
    pub(super) fn make(
        to: IpAddr,
        (told, over): (&Arc<AtomicBool>, &Arc<AtomicBool>),
    ) -> io::Result<(Self, TcpListener, JoinHandle<()>)> {
        let families = Families { ipv4: true, ipv6: to.is_ipv6() };
        let wanted = NetworkSpec { pair: Some(families), local: families, sockets: &[] };
        let network = sys::network::make(&wanted).map_err(io::Error::other)?;
        let every: SocketAddr = if to.is_ipv6() { ([0_u16; 8], 80).into() } else { ([0_u8; 4], 80).into() };
        let listening = || -> io::Result<_> {
            move_into_link_name_space(network.outer.namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            let answers = Answers::There { to, told: Arc::clone(told) };
            let (_, resolver) = resolver::serve(&format!("{RESOLVER}:53"), answers, Arc::clone(over))?;
            Ok((TcpListener::bind(every)?, resolver))
        };
        // A thread of its own, so that nothing else of this process is there.
        let joined = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().spawn_scoped(scope, listening)?;
            thread.join().unwrap_or_else(|_panic| Err(io::Error::other("the thread of the server broke")))
        });
        let (server, resolver) = joined?;
        Ok((Self { network, server: SocketAddr::new(to, 80) }, server, resolver))
    }

    /// Where the server is, which a rule may say for one name.
    pub(super) const fn server(&self) -> SocketAddr {
        self.server
    }

    /// The namespace of whoever starts the sandbox.
    pub(super) fn inside(&self) -> PathBuf {
        let own = rustix::process::getpid().as_raw_nonzero();
        PathBuf::from(format!("/proc/{own}/fd/{}", self.network.inner.namespace.as_raw_fd()))
    }
}
