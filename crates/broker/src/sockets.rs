//! The sandbox's sockets: those that listen already, and spare ones that are bound when a name with high ports is looked up.
//!
//! All of them were made inside; a socket stays in the network namespace in which it was made.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use egress::wire::{Socket, SocketKind};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags};
use tokio::net::TcpListener;

use crate::error::BrokerError;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// How long two of our own sockets may take to meet: both ends are this kernel's, and the broker waits meanwhile.
const MEETING: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// What came, sorted.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    pub(crate) listeners: Vec<OwnedFd>,
    /// With their ports.
    pub(crate) datagrams: Vec<(u16, OwnedFd)>,
    pub(crate) spares: Spares,
}

/// Sockets that are not bound yet.
#[derive(Debug, Default)]
pub(crate) struct Spares {
    v4: Vec<OwnedFd>,
    v6: Vec<OwnedFd>,
}

/// Sorts what came, after a look at whether each is what it is said to be.
///
/// # Errors
/// A socket of another family or port than the orders name.
pub(crate) fn sorted(named: &[Socket], came: Vec<OwnedFd>) -> Result<Sockets, BrokerError> {
    let mut sockets = Sockets::default();
    for (socket, fd) in named.iter().zip(came) {
        fits(*socket, &fd).map_err(|why| BrokerError::Orders(format!("a socket {socket:?}: {why}")))?;
        match socket.kind {
            SocketKind::Tcp4 | SocketKind::Tcp6 => sockets.listeners.push(fd),
            SocketKind::Udp4 | SocketKind::Udp6 => sockets.datagrams.push((socket.port, fd)),
            SocketKind::SpareTcp4 => sockets.spares.v4.push(fd),
            SocketKind::SpareTcp6 => sockets.spares.v6.push(fd),
        }
    }
    Ok(sockets)
}

fn fits(socket: Socket, fd: &OwnedFd) -> Result<(), String> {
    let wanted = match socket.kind {
        SocketKind::Tcp4 | SocketKind::Udp4 | SocketKind::SpareTcp4 => AddressFamily::INET,
        SocketKind::Tcp6 | SocketKind::Udp6 | SocketKind::SpareTcp6 => AddressFamily::INET6,
    };
    let address = rustix::net::getsockname(fd).map_err(|errno| errno.to_string())?;
    if address.address_family() != wanted {
        return Err("it is of another family".to_owned());
    }
    let address = SocketAddr::try_from(address).map_err(|errno| errno.to_string())?;
    if address.port() == socket.port { Ok(()) } else { Err(format!("it is bound to {address}")) }
}

/// A listener for the runtime.
///
/// # Errors
/// The socket does not listen.
pub(crate) fn listener(fd: OwnedFd) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::from(fd);
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

impl Spares {
    fn of(&mut self, at: SocketAddr) -> &mut Vec<OwnedFd> {
        if at.is_ipv4() { &mut self.v4 } else { &mut self.v6 }
    }

    /// Whether there are any of IPv6.
    pub(crate) fn has_v6(&self) -> bool {
        !self.v6.is_empty()
    }

    /// How many are left for such an address.
    pub(crate) fn left(&self, at: SocketAddr) -> usize {
        if at.is_ipv4() { self.v4.len() } else { self.v6.len() }
    }

    /// Listens on an address inside with a spare socket, unless so many or fewer are left.
    ///
    /// # Errors
    /// There is none left, or a program inside holds that port on all addresses.
    pub(crate) fn listen(&mut self, at: SocketAddr, kept: usize) -> io::Result<TcpListener> {
        let spares = self.of(at);
        let spare = if spares.len() > kept { spares.pop() } else { None };
        let spare = spare.ok_or_else(none_left)?;
        // What was open here before may still be on its way out.
        rustix::net::sockopt::set_socket_reuseaddr(spare.as_fd(), true)?;
        // The route makes every address the sandbox's own; to IPv6 it has to be said again.
        if at.is_ipv6() {
            rustix::net::sockopt::set_ipv6_freebind(spare.as_fd(), true)?;
        }
        rustix::net::bind(spare.as_fd(), &at)?;
        rustix::net::listen(spare.as_fd(), BACKLOG)?;
        listener(spare)
    }

    /// Ends a listener, and has a spare socket instead. A socket that was bound to a port stays bound to it, and outside none can be
    /// made for the sandbox; but one that was accepted can be unbound. So a spare connects there, and what is accepted is the new one.
    ///
    /// # Errors
    /// There is no spare socket that could connect, or somebody else connects there: then it is in use.
    pub(crate) fn renew(&mut self, old: &TcpListener, at: SocketAddr) -> io::Result<()> {
        let spares = self.of(at);
        let asking = spares.last().ok_or_else(none_left)?;
        let accepted = accepted_from(asking, old, at);
        // Whatever came of it, it is to be as it was.
        rustix::net::connect_unspec(asking)?;
        let accepted = accepted?;
        rustix::net::connect_unspec(&accepted)?;
        rustix::net::shutdown(old, Shutdown::Read)?;
        spares.push(accepted);
        Ok(())
    }
}

fn none_left() -> io::Error {
    io::Error::other("the run has no spare sockets left")
}

/// The other end of a connection that `asking` makes to a listener on which nobody waits.
fn accepted_from(asking: &OwnedFd, to: &TcpListener, at: SocketAddr) -> io::Result<OwnedFd> {
    if is_waited_on(to, &Timespec::default())? {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    rustix::io::ioctl_fionbio(asking, true)?;
    match rustix::net::connect(asking, &at) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(errno) => return Err(errno.into()),
    }
    if !is_waited_on(to, &MEETING)? {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let accepted = rustix::net::accept_with(to, SocketFlags::CLOEXEC)?;
    let same = rustix::net::getpeername(&accepted)? == Some(rustix::net::getsockname(asking)?);
    if same { Ok(accepted) } else { Err(io::ErrorKind::ResourceBusy.into()) }
}

/// Whether a connection can be accepted there, in this time.
fn is_waited_on(listener: &TcpListener, time: &Timespec) -> io::Result<bool> {
    let mut polled = [PollFd::new(listener, PollFlags::IN)];
    Ok(rustix::event::poll(&mut polled, Some(time))? > 0)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use egress::names::{Names, RESOLVER, is_given};
    use sys::bare::{GATEWAY, MACHINE, MACHINE6};

    /// No address that a program could mean by a rule, and none that a name has.
    #[test]
    fn a_machines_own_addresses_are_of_the_range_that_is_given_and_no_names() {
        assert_eq!(Ipv4Addr::from(GATEWAY), RESOLVER);
        let own = [IpAddr::from(MACHINE), IpAddr::from(MACHINE6)];
        let first = Names::default().give("a.test").map(|(pair, _)| pair);
        for address in own {
            assert!(is_given(address) && address != IpAddr::from(RESOLVER), "{address}");
        }
        assert!(first.is_some_and(|pair| pair.v4 > Ipv4Addr::from(MACHINE) && pair.v6 > Ipv6Addr::from(MACHINE6)));
    }
}
