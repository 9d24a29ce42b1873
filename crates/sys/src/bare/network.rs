//! A fresh network namespace: its one interface, routes that lead every address to it, and sockets in it.

use linux_raw_sys::general::{__NR_bind, __NR_ioctl, __NR_listen, __NR_setsockopt, __NR_socket};
use linux_raw_sys::net::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_RAW, SOCK_STREAM};

use super::errno::{Errno, Result};
use super::fd::{Fd, Owned};
use super::file::{read_some, write_all};
use super::raw::{call, read, uint};

const SOCK_CLOEXEC: u32 = 0x0008_0000;
const SOCK_NONBLOCK: u32 = 0x0000_0800;

/// `struct ifreq` with flags, padded to the size that the kernel copies.
#[repr(C)]
struct Request {
    name: [u8; 16],
    flags: u16,
    rest: [u8; 22],
}

fn socket(family: u32, kind: u32) -> Result<Owned> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_socket, [uint(family), uint(kind | SOCK_CLOEXEC), 0]) }.map(Owned::new)
}

/// `lo` up. Three calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over the network namespace.
pub fn loopback_up() -> Result<()> {
    const SIOCSIFFLAGS: u32 = 0x8914;
    const IFF_UP_RUNNING: u16 = 0x41;
    let socket = socket(AF_INET, SOCK_DGRAM)?;
    let mut request = Request { name: [0; 16], flags: IFF_UP_RUNNING, rest: [0; 22] };
    request.name[..2].copy_from_slice(b"lo");
    // SAFETY: SIOCSIFFLAGS reads an ifreq of 40 bytes.
    unsafe { call(__NR_ioctl, [socket.fd().raw(), uint(SIOCSIFFLAGS), read(&request)]) }.map(drop)
}

const AF_NETLINK: u32 = 16;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const NLMSG_ERROR: u16 = 2;
const RTN_LOCAL: u8 = 2;
/// The one interface of a fresh namespace; the kernel makes it first.
const LOOPBACK: u32 = 1;

/// A message about a route: `struct nlmsghdr`, `struct rtmsg`, and one attribute of 4 or 16 bytes.
struct Message {
    bytes: [u8; 52],
    length: usize,
}

impl Message {
    /// `route`: family, length of the destination, of the source, service, table, protocol, scope, type (rtnetlink(7)).
    fn new(kind: u16, flags: u16, route: [u8; 8], attribute: u16, value: &[u8]) -> Self {
        const REQUEST: u16 = 1;
        const BEFORE_ATTRIBUTE: usize = 28;
        const HEADER: usize = 4;
        let attribute_length = HEADER.saturating_add(value.len());
        let length = BEFORE_ATTRIBUTE.saturating_add(attribute_length);
        let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
        let mut message = Self { bytes: [0; 52], length };
        message.put(0, &u32::from(short(length)).to_le_bytes());
        message.put(4, &kind.to_le_bytes());
        message.put(6, &(REQUEST | flags).to_le_bytes());
        message.put(16, &route);
        message.put(BEFORE_ATTRIBUTE, &short(attribute_length).to_le_bytes());
        message.put(30, &attribute.to_le_bytes());
        message.put(32, value);
        message
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(value) {
            *to = *from;
        }
    }

    /// Sends it to the kernel and takes the first answer; how long it is.
    fn ask(&self, answer: &mut [u8]) -> Result<usize> {
        let netlink = socket(AF_NETLINK, SOCK_RAW)?;
        write_all(netlink.fd(), self.bytes.get(..self.length).unwrap_or(&[]))?;
        read_some(netlink.fd(), answer)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number of a family, as messages have it.
const fn family(ipv6: bool) -> u8 {
    if ipv6 { 10 } else { 2 }
}

/// A route by which every address is one of this namespace's own, so that whoever listens on all addresses is reached by a
/// connection to any of them. Three calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN; `EOPNOTSUPP`, `EACCES`: the kernel has no IPv6, or it is switched off.
pub fn add_local_route(ipv6: bool) -> Result<()> {
    const ACK_CREATE: u16 = 4 | 0x400;
    const RTA_OIF: u16 = 4;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_HOST: u8 = 254;
    let scope = if ipv6 { 0 } else { SCOPE_HOST };
    let route = [family(ipv6), 0, 0, 0, TABLE_LOCAL, PROTOCOL_STATIC, scope, RTN_LOCAL];
    let message = Message::new(RTM_NEWROUTE, ACK_CREATE, route, RTA_OIF, &LOOPBACK.to_le_bytes());
    let mut answer = [0; 256];
    let length = message.ask(&mut answer)?;
    let answer = answer.get(..length).unwrap_or(&[]);
    match (u16_at(answer, 4), i32_at(answer, 16)) {
        (Some(NLMSG_ERROR), Some(0)) => Ok(()),
        (Some(NLMSG_ERROR), Some(error)) => Err(Errno::of_message(error)),
        (_, _) => Err(Errno::EPROTO),
    }
}

/// Whether the kernel takes an address for one of this namespace's own, as it would route a packet now. Three calls.
///
/// # Errors
/// What the kernel says instead of a route: `ENETUNREACH` where there is none.
pub fn is_local(address: &[u8; 16], ipv6: bool) -> Result<bool> {
    const RTA_DST: u16 = 1;
    let (bits, length) = if ipv6 { (128, 16) } else { (32, 4) };
    let route = [family(ipv6), bits, 0, 0, 0, 0, 0, 0];
    let message = Message::new(RTM_GETROUTE, 0, route, RTA_DST, address.get(..length).unwrap_or(&[]));
    let mut answer = [0; 512];
    let length = message.ask(&mut answer)?;
    let answer = answer.get(..length).unwrap_or(&[]);
    match u16_at(answer, 4) {
        Some(RTM_NEWROUTE) => Ok(answer.get(23) == Some(&RTN_LOCAL)),
        Some(NLMSG_ERROR) => Err(Errno::of_message(i32_at(answer, 16).unwrap_or(0))),
        Some(_) | None => Err(Errno::EPROTO),
    }
}

fn switch_on(socket: Fd, level: u32, option: u32) -> Result<()> {
    let on: u32 = 1;
    let arguments = [socket.raw(), uint(level), uint(option), read(&on), size_of::<u32>()];
    // SAFETY: the option's value is the four bytes of `on`.
    unsafe { call(__NR_setsockopt, arguments) }.map(drop)
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
    // `struct sockaddr_in6`, of which `struct sockaddr_in` is the first 16 bytes: the address of all is 0.
    let mut address = [0_u8; 28];
    address[0] = family(ipv6);
    address[2..4].copy_from_slice(&port.to_be_bytes());
    let length = if ipv6 { 28 } else { 16 };
    // SAFETY: the kernel reads `length` bytes of the address, which has 28.
    unsafe { call(__NR_bind, [made.fd().raw(), read(&address), length]) }?;
    if !udp {
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        unsafe { call(__NR_listen, [made.fd().raw(), uint(BACKLOG)]) }?;
    }
    Ok(made)
}
