//! A pair of interfaces between two network namespaces, for a kernel that takes an interface and sends frames by itself, as
//! gVisor's does.
//!
//! Each side is told where the other is, so that neither asks. The addresses are those of [`super::link`], for the same purpose.

use super::errno::Result;
use super::fd::Fd;
use super::link::{
    self, DEVICE, End, GATEWAY, MACHINE, MACHINE6, TABLE_LOCAL, TABLE_MAIN, address, interface, route, up,
};
use super::netlink::{CREATE, Message, NEW, RTM_NEWLINK, family};

/// What the interface outside is called.
pub const OUTSIDE: &str = "broker0";
/// The gateway in IPv6; the range that holds both ends has no address of a name.
const GATEWAY6: [u8; 16] = [0xfd, 0x66, 0x75, 0x6d, 0x65, 0x68, 0x6f, 0x6f, 0, 0, 0, 0, 0, 0, 0, 1];
const BITS: u8 = 30;
const BITS6: u8 = 126;
/// Locally administered addresses of the interfaces.
const INSIDE_AT: [u8; 6] = [2, 0, 0, 0, 0, 2];
const OUTSIDE_AT: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The numbers of the interfaces, far above what the kernel makes by itself in a fresh namespace. With the same one in both the
/// kernel would take a second to let the end send that was up first (`linkwatch_urgent_event`).
const INNER: u32 = 100;
const OUTER: u32 = 101;

/// Makes the pair: one end in the caller's namespace, the other in `outside`. One call.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN over both. `EOPNOTSUPP`: the kernel has no pairs of interfaces (veth).
pub fn add_pair(outside: Fd) -> Result<()> {
    let own = End { number: INNER, name: DEVICE, at: Some(&INSIDE_AT), outside: None };
    let other = End { number: OUTER, name: OUTSIDE, at: Some(&OUTSIDE_AT), outside: Some(outside) };
    link::add_pair(&own, &other)
}

/// In the namespace of the other end: that end up, and the way to the one address behind it. Some calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN.
pub fn set_outside(ipv4: bool, ipv6: bool) -> Result<()> {
    ready(OUTER, ipv6)?;
    if ipv4 {
        neighbour(OUTER, &MACHINE, &INSIDE_AT)?;
        route(false, OUTER, TABLE_LOCAL, Some(&MACHINE), None)?;
    }
    if ipv6 {
        neighbour(OUTER, &MACHINE6, &INSIDE_AT)?;
        route(true, OUTER, TABLE_LOCAL, Some(&MACHINE6), None)?;
    }
    Ok(())
}

/// In the namespace of this end, once the other is up: this end up, with its address and the way to everything. Some calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN.
pub fn set_inside(ipv4: bool, ipv6: bool) -> Result<()> {
    ready(INNER, ipv6)?;
    if ipv4 {
        address(INNER, &MACHINE, BITS)?;
        neighbour(INNER, &GATEWAY, &OUTSIDE_AT)?;
        route(false, INNER, TABLE_MAIN, None, Some(&GATEWAY))?;
    }
    if ipv6 {
        address(INNER, &MACHINE6, BITS6)?;
        neighbour(INNER, &GATEWAY6, &OUTSIDE_AT)?;
        route(true, INNER, TABLE_MAIN, None, Some(&GATEWAY6))?;
    }
    Ok(())
}

/// The interface up, with no address in IPv6 that nobody gave it.
fn ready(number: u32, ipv6: bool) -> Result<()> {
    const IFLA_AF_SPEC: u16 = 26;
    const AF_INET6: u16 = 10;
    const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
    const NONE: u8 = 1;
    if ipv6 {
        let mode = |message: Message| message.with(IFLA_INET6_ADDR_GEN_MODE, &[NONE]);
        let of_family = |message: Message| message.nested(AF_INET6, mode);
        Message::new(RTM_NEWLINK, 0, &interface(number, 0)).nested(IFLA_AF_SPEC, of_family).order()?;
    }
    up(number)
}

fn neighbour(number: u32, of: &[u8], at: &[u8; 6]) -> Result<()> {
    const RTM_NEWNEIGH: u16 = 28;
    const NUD_PERMANENT: u8 = 0x80;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    // `struct ndmsg`.
    let mut body = [0; 12];
    body[0] = family(of.len() == 16);
    body[4..8].copy_from_slice(&number.to_le_bytes());
    body[8] = NUD_PERMANENT;
    Message::new(RTM_NEWNEIGH, CREATE | NEW, &body).with(NDA_DST, of).with(NDA_LLADDR, at).order()
}
