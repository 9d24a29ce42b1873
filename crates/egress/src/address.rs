//! Which real addresses no name may lead to unless a rule says where it is (`address`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use policy::value::Cidr;

/// Ranges of IPv4 that are somebody's inside, this machine's, or nobody's.
const V4: [(Ipv4Addr, u8, &str); 15] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "this machine"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private network"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "a provider's inside"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "this machine's loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, where clouds keep their metadata service"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private network"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "an anycast sink"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "multicast relays"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "relays from IPv4 to IPv6"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private network"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "the broker's own range"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved, or broadcast"),
];

/// The same for IPv6, with every range in which an IPv4 address is hidden: what is inside need not be asked then.
const V6: [(Ipv6Addr, u8, &str); 12] = [
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0, 0), 96, "this machine, or an IPv4 address in disguise"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4 address in disguise (mapped)"),
    (Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0, 0), 96, "an IPv4 address in disguise (translated)"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "an IPv4 address in disguise (NAT64)"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "an IPv4 address in disguise (local NAT64)"),
    (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 64, "the discard prefix"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "an IPv4 address in disguise (Teredo), or a protocol's own"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "an IPv4 address in disguise (6to4)"),
    (Ipv6Addr::new(0x5f00, 0, 0, 0, 0, 0, 0, 0), 16, "segments of a router"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private network"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 9, "link-local, or a private network of old"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "multicast"),
];

/// Every range, with what it is.
fn ranges() -> impl Iterator<Item = (Cidr, &'static str)> {
    let v4 = V4.iter().map(|(first, length, what)| (Cidr::of(IpAddr::V4(*first), *length), *what));
    let v6 = V6.iter().map(|(first, length, what)| (Cidr::of(IpAddr::V6(*first), *length), *what));
    v4.chain(v6)
}

/// What an address is that the public network does not have; `None`: it is public.
#[must_use]
pub fn special(address: IpAddr) -> Option<&'static str> {
    ranges().find(|(range, _)| range.contains(address)).map(|(_, what)| what)
}

/// Whether all of a range is not public.
#[must_use]
pub fn is_special(range: Cidr) -> bool {
    ranges().any(|(known, _)| range.length >= known.length && known.contains(range.first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn public_addresses_are_told_from_all_others() {
        for public in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.0.1",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00::1",
            "2003::1",
            "fb00::1",
        ] {
            assert_eq!(special(public.parse().unwrap()), None, "{public}");
        }
        for special_one in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.255",
            "168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.1.1",
            "198.18.0.1",
            "198.19.255.255",
            "224.0.0.251",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::ffff:0:8.8.8.8",
            "64:ff9b::7f00:1",
            "64:ff9b::808:808",
            "64:ff9b:1::a00:1",
            "100::1",
            "2001::1",
            "2001:10::1",
            "2002:7f00:1::",
            "2002:808:808::1",
            "fc00::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd66:756d:6568:6f6f::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "5f00::1",
        ] {
            assert!(special(special_one.parse().unwrap()).is_some(), "{special_one}");
        }
    }
}
