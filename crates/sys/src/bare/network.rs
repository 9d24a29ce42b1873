//! A fresh network namespace: its one interface, routes that lead every address to it, and sockets in it.

use linux_raw_sys::general::{__NR_bind, __NR_connect, __NR_ioctl, __NR_listen};
use linux_raw_sys::net::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_STREAM};

use super::errno::{Errno, Result};
use super::fd::Owned;
use super::netlink::{CREATE, Message, failed, family, kind};
use super::raw::{call, read, uint};
use super::socket::{InterfaceRequest, SOCK_NONBLOCK, socket, switch_on};

/// `lo` up. Three calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the network namespace.
pub fn loopback_up() -> Result<()> {
    const SIOCSIFFLAGS: u32 = 0x8914;
    const IFF_UP_RUNNING: usize = 0x41;
    let socket = socket(AF_INET, SOCK_DGRAM)?;
    let request = InterfaceRequest::of(b"lo", IFF_UP_RUNNING);
    // SAFETY: SIOCSIFFLAGS reads an ifreq of 40 bytes.
    unsafe { call(__NR_ioctl, [socket.fd().raw(), uint(SIOCSIFFLAGS), read(&request)]) }.map(drop)
}

const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTN_LOCAL: u8 = 2;
/// The one interface of a fresh namespace; the kernel makes it first.
const LOOPBACK: u32 = 1;

/// A route by which every address is one of this namespace's own, so that whoever listens on all addresses is reached by a
/// connection to any of them. Three calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN; `EOPNOTSUPP`, `EACCES`: the kernel has no IPv6, or it is switched off.
pub fn add_local_route(ipv6: bool) -> Result<()> {
    const RTA_OIF: u16 = 4;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    let scope = if ipv6 { 0 } else { SCOPE_HOST };
    let route = [family(ipv6), 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, scope, RTN_LOCAL, 0, 0, 0, 0];
    Message::new(RTM_NEWROUTE, CREATE, &route).with(RTA_OIF, &LOOPBACK.to_le_bytes()).order()
}

/// Whether the kernel takes an address for one of this namespace's own, as it would route a packet now. Three calls.
///
/// # Errors
/// What the kernel says instead of a route: `ENETUNREACH` where there is none.
pub fn is_local(address: &[u8; 16], ipv6: bool) -> Result<bool> {
    const RTA_DST: u16 = 1;
    let (bits, length) = if ipv6 { (128, 16) } else { (32, 4) };
    let route = [family(ipv6), bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let message = Message::new(RTM_GETROUTE, 0, &route).with(RTA_DST, address.get(..length).unwrap_or(&[]));
    let mut answer = [0; 512];
    let length = message.ask(&mut answer)?;
    let answer = answer.get(..length).unwrap_or(&[]);
    match (kind(answer), failed(answer)) {
        (Some(RTM_NEWROUTE), _) => Ok(answer.get(23) == Some(&RTN_LOCAL)),
        (_, Some(error)) => Err(Errno::of_message(error)),
        (_, None) => Err(Errno::EPROTO),
    }
}

/// A connection to an address, which is closed at once: whether anybody takes one there. Three calls.
///
/// # Errors
/// That of connect(2): `ENETUNREACH`, `ECONNREFUSED`, `ETIMEDOUT`.
pub fn reach(address: &[u8; 16], ipv6: bool, port: u16) -> Result<()> {
    let (name, length) = socket_address(address, ipv6, port);
    let made = socket(if ipv6 { AF_INET6 } else { AF_INET }, SOCK_STREAM)?;
    // SAFETY: the kernel reads `length` bytes of the address, which has 28.
    unsafe { call(__NR_connect, [made.fd().raw(), read(&name), length]) }.map(drop)
}

/// `struct sockaddr_in6`, or `struct sockaddr_in` with the first four bytes of the address, and its length.
fn socket_address(address: &[u8; 16], ipv6: bool, port: u16) -> ([u8; 28], usize) {
    let mut name = [0_u8; 28];
    let (at, length, whole) = if ipv6 { (8, 16, 28) } else { (4, 4, 16) };
    name[0] = family(ipv6);
    name[2..4].copy_from_slice(&port.to_be_bytes());
    for (to, from) in name.iter_mut().skip(at).zip(address.iter().take(length)) {
        *to = *from;
    }
    (name, whole)
}

/// A socket, not waiting, of TCP or UDP. With a port it is bound to all addresses of its family, and a TCP one listens; with
/// port 0 it is neither, and may be bound to an address that no interface has.
///
/// # Errors
/// `EACCES`: a port below 1024 without CAP_NET_BIND_SERVICE. `EADDRINUSE`.
pub fn inlet(ipv6: bool, udp: bool, port: u16) -> Result<Owned> {
    const IPPROTO_IP: u32 = 0;
    const IPPROTO_IPV6: u32 = 41;
    const IP_FREEBIND: u32 = 15;
    const IP_PKTINFO: u32 = 8;
    const IPV6_V6ONLY: u32 = 26;
    const IPV6_RECVPKTINFO: u32 = 49;
    const IPV6_FREEBIND: u32 = 78;
    /// Connections that wait to be accepted; the kernel takes no more than `net.core.somaxconn`.
    const BACKLOG: u32 = 256;
    let kind = if udp { SOCK_DGRAM } else { SOCK_STREAM };
    let made = socket(if ipv6 { AF_INET6 } else { AF_INET }, kind | SOCK_NONBLOCK)?;
    if ipv6 {
        switch_on(made.fd(), IPPROTO_IPV6, IPV6_V6ONLY)?;
    }
    match (ipv6, udp) {
        (true, true) => switch_on(made.fd(), IPPROTO_IPV6, IPV6_RECVPKTINFO)?,
        (false, true) => switch_on(made.fd(), IPPROTO_IP, IP_PKTINFO)?,
        (_, false) => {}
    }
    if port == 0 {
        let (level, option) = if ipv6 { (IPPROTO_IPV6, IPV6_FREEBIND) } else { (IPPROTO_IP, IP_FREEBIND) };
        return switch_on(made.fd(), level, option).map(|()| made);
    }
    // The address of all is 0.
    let (address, length) = socket_address(&[0; 16], ipv6, port);
    // SAFETY: the kernel reads `length` bytes of the address, which has 28.
    unsafe { call(__NR_bind, [made.fd().raw(), read(&address), length]) }?;
    if !udp {
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        unsafe { call(__NR_listen, [made.fd().raw(), uint(BACKLOG)]) }?;
    }
    Ok(made)
}
