//! What a socket is, asked of the kernel: which network namespace it belongs to, and where it waits.

use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::error::{ErrorContext as _, Result};

/// A socket of another network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inlet {
    /// Inode number of its network namespace, as `/proc/PID/ns/net` shows it.
    pub namespace: u64,
    /// Of IPv6, else of IPv4.
    pub ipv6: bool,
    /// Of UDP, else of TCP.
    pub udp: bool,
    /// It takes connections.
    pub listens: bool,
    /// The port to which it is bound, on all addresses; 0 = it is not bound. `None` = it is bound to one address.
    pub port: Option<u16>,
}

/// Looks at a socket.
///
/// # Errors
/// ENOTSOCK; EPERM: its namespace is none that the caller's user made; EAFNOSUPPORT: it is neither IPv4 nor IPv6.
pub fn look(socket: impl AsFd) -> Result<Inlet> {
    let named = || "socket of the sandbox".to_owned();
    let socket = socket.as_fd();
    let family = sockopt::socket_domain(socket).named("getsockopt(SO_DOMAIN)", named)?;
    if family != AddressFamily::INET && family != AddressFamily::INET6 {
        return Err(rustix::io::Errno::AFNOSUPPORT).named("getsockopt(SO_DOMAIN)", named);
    }
    let kind = sockopt::socket_type(socket).named("getsockopt(SO_TYPE)", named)?;
    let listens = sockopt::socket_acceptconn(socket).named("getsockopt(SO_ACCEPTCONN)", named)?;
    let name = rustix::net::getsockname(socket).named("getsockname", named)?;
    let name = std::net::SocketAddr::try_from(name).named("getsockname", named)?;
    Ok(Inlet {
        namespace: namespace(socket)?,
        ipv6: family == AddressFamily::INET6,
        udp: kind == SocketType::DGRAM,
        listens,
        port: name.ip().is_unspecified().then_some(name.port()),
    })
}

/// A packet socket of another network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    /// Inode number of its network namespace.
    pub namespace: u64,
    /// The interface whose frames it has.
    pub interface: u32,
}

/// Looks at a packet socket.
///
/// # Errors
/// ENOTSOCK; EPERM: its namespace is none that the caller's user made; EAFNOSUPPORT: it is no packet socket.
pub fn look_frames(socket: impl AsFd) -> Result<Frames> {
    let named = || "packet socket".to_owned();
    let socket = socket.as_fd();
    // SAFETY: all bytes zero is a value of this C struct of numbers.
    let mut name: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    let mut length = libc::socklen_t::try_from(size_of_val(&name)).unwrap_or(0);
    // SAFETY: the kernel writes at most `length` bytes to `name`, which has as many.
    let answer = unsafe { libc::getsockname(socket.as_raw_fd(), (&raw mut name).cast(), &raw mut length) };
    if answer < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        return Err(rustix::io::Errno::from_raw_os_error(errno)).named("getsockname", named);
    }
    if i32::from(name.sll_family) != libc::AF_PACKET {
        return Err(rustix::io::Errno::AFNOSUPPORT).named("getsockname", named);
    }
    Ok(Frames { namespace: namespace(socket)?, interface: u32::try_from(name.sll_ifindex).unwrap_or(0) })
}

/// The inode number of a socket's network namespace.
fn namespace(socket: std::os::fd::BorrowedFd<'_>) -> Result<u64> {
    const SIOCGSKNS: libc::Ioctl = 0x894c;
    let named = || "socket of the sandbox".to_owned();
    // SAFETY: SIOCGSKNS takes no argument and answers with a new descriptor.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCGSKNS) };
    if answer < 0 {
        let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
        return Err(rustix::io::Errno::from_raw_os_error(errno)).named("ioctl(SIOCGSKNS)", named);
    }
    // SAFETY: it is open, new, and nobody else's.
    let namespace = unsafe { OwnedFd::from_raw_fd(answer) };
    rustix::fs::fstat(&namespace).map(|stat| stat.st_ino).named("fstat", named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_says_what_it_is_and_where_it_waits() {
        let own = crate::proc::Process::own().unwrap().namespace(crate::proc::Namespace::Net).unwrap();
        let listener = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let seen = match look(&listener) {
            // An ordinary user made no network namespace that could be asked about.
            Err(_) if !rustix::process::geteuid().is_root() => return,
            seen => seen.unwrap(),
        };
        let port = Some(listener.local_addr().unwrap().port());
        assert_eq!(seen, Inlet { namespace: own, ipv6: false, udp: false, listens: true, port });
        let bound = look(std::net::UdpSocket::bind("[::1]:0").unwrap()).unwrap();
        assert_eq!((bound.ipv6, bound.udp, bound.listens, bound.port), (true, true, false, None));
        let (pair, _other) = crate::channel::pair().unwrap();
        assert!(look(&pair).is_err());
    }
}
