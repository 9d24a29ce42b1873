//! Which network addresses belong to somebody's inside: private, link-local, metadata, and IPv4 hidden in IPv6.
//!
//! The guard of a URL judges addresses that stand in the text. A name is looked up later, by whoever dials: it must ask
//! [`judge_address`] about the address that it is about to connect to, every time, or a name that resolves differently
//! the second time leads inside.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use policy::value::Cidr;

/// Why an address is not one of the public network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressFault {
    /// As it was given.
    pub address: IpAddr,
    /// The IPv4 address inside it, where there is one.
    pub inner: Option<Ipv4Addr>,
    /// What it is: `loopback`, `a private network`.
    pub what: &'static str,
}

impl fmt::Display for AddressFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            Some(inner) => write!(f, "{} holds {inner}, which is {}", self.address, self.what),
            None => write!(f, "{} is {}", self.address, self.what),
        }
    }
}

impl std::error::Error for AddressFault {}

/// IANA's special-purpose registry, and the metadata services that lie in public ranges.
const V4: &[(Ipv4Addr, u8, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this host"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a carrier's shared network"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, where metadata services are"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a relay to IPv6"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for measurements"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

const V6: &[(Ipv6Addr, u8, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "this host"),
    (Ipv6Addr::LOCALHOST, 128, "loopback"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a local translation prefix"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "discarded"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "for measurements"),
    (Ipv6Addr::new(0x2001, 0x10, 0, 0, 0, 0, 0, 0), 28, "no routed address"),
    (Ipv6Addr::new(0x2001, 0x20, 0, 0, 0, 0, 0, 0), 28, "no routed address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "segment routing"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "link-local, where metadata services are"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "site-local, a private network"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Whether an address lies in the public network. Asked about the address that is dialled, not about its name.
///
/// # Errors
/// What it is instead; an IPv4 address hidden in an IPv6 one is judged as itself.
pub fn judge_address(address: IpAddr) -> Result<(), AddressFault> {
    let fault = |inner, what| Err(AddressFault { address, inner, what });
    match address {
        IpAddr::V4(v4) => match special_v4(v4) {
            Some(what) => fault(None, what),
            None => Ok(()),
        },
        IpAddr::V6(v6) => {
            if let Some(what) = special_v6(v6) {
                return fault(None, what);
            }
            match embedded(v6).into_iter().flatten().find_map(|v4| special_v4(v4).map(|what| (v4, what))) {
                Some((v4, what)) => fault(Some(v4), what),
                None => unicast(v6).map_or(Ok(()), |what| fault(None, what)),
            }
        }
    }
}

fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    special(V4.iter().map(|(first, length, what)| (IpAddr::V4(*first), *length, *what)), address.into())
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    special(V6.iter().map(|(first, length, what)| (IpAddr::V6(*first), *length, *what)), address.into())
}

fn special(mut ranges: impl Iterator<Item = (IpAddr, u8, &'static str)>, address: IpAddr) -> Option<&'static str> {
    ranges.find(|(first, length, _)| Cidr::of(*first, *length).contains(address)).map(|(_, _, what)| what)
}

/// What is not global unicast (2000::/3) and carries no IPv4 address either.
fn unicast(address: Ipv6Addr) -> Option<&'static str> {
    let carries = embedded(address).iter().any(Option::is_some);
    (address.to_bits() >> 125 != 1 && !carries).then_some("reserved")
}

/// The IPv4 addresses that an IPv6 one stands for: mapped, compatible, translated, NAT64, 6to4, Teredo (its server and, inverted, its client), ISATAP.
fn embedded(address: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match [a, b, c, d, e, f] {
        // mapped, and compatible: beside `::` and `::1`, which have rows of their own
        [0, 0, 0, 0, 0, 0 | 0xffff] | [0, 0, 0, 0, 0xffff, 0] | [0x64, 0xff9b, 0, 0, 0, 0] => {
            [Some(join(g, h)), None, None]
        }
        [0x2002, high, low, ..] => [Some(join(high, low)), isatap(e, f, g, h), None],
        [0x2001, 0, high, low, ..] => [Some(join(high, low)), Some(join(!g, !h)), None],
        _ => [isatap(e, f, g, h), None, None],
    }
}

fn isatap(e: u16, f: u16, g: u16, h: u16) -> Option<Ipv4Addr> {
    (e & !0x200 == 0 && f == 0x5efe).then(|| Ipv4Addr::from_bits(u32::from(g) << 16 | u32::from(h)))
}
