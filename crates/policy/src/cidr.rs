//! Ranges of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses; bits behind the length are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cidr {
    /// The first address.
    pub first: IpAddr,
    /// How many leading bits all addresses share: 0 to 32, or to 128.
    pub length: u8,
}

impl Cidr {
    /// The range that an address lies in.
    #[must_use]
    pub fn of(address: IpAddr, length: u8) -> Self {
        Self { first: masked(address, length), length: length.min(most(address)) }
    }

    /// Reads `ADDRESS/LENGTH` or a single address; `None` if it is neither, and the bits behind the length as written.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, IpAddr)> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (address, Some(length)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let plain = |text: &str| text.len() <= 3 && text.bytes().all(|byte| byte.is_ascii_digit());
        let length = match length {
            None => most(address),
            Some(length) => length.parse::<u8>().ok().filter(|n| *n <= most(address) && plain(length))?,
        };
        Some((Self::of(address, length), address))
    }

    /// Whether an address lies in the range. An IPv4 address lies in no range of IPv6.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.first.is_ipv4() == address.is_ipv4() && masked(address, self.length) == self.first
    }

    /// Whether the range is one address.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.length == most(self.first)
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.length)
    }
}

const fn most(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn masked(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(u32::from(length))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(v4.to_bits() & mask))
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(u32::from(length))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & mask))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_holds_its_addresses_alone() {
        let of = |text: &str| Cidr::parse(text).unwrap().0;
        for (range, address, inside) in [
            ("192.0.2.0/24", "192.0.2.255", true),
            ("192.0.2.0/24", "192.0.3.0", false),
            ("0.0.0.0/0", "255.255.255.255", true),
            ("0.0.0.0/0", "::1", false),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7/32", "192.0.2.6", false),
            ("2001:db8::/32", "2001:db8:ffff::", true),
            ("2001:db8::/32", "2001:db9::", false),
            ("::/0", "2001:db8::", true),
        ] {
            assert_eq!(of(range).contains(address.parse().unwrap()), inside, "{range} {address}");
        }
        for none in ["192.0.2.0/33", "::/129", "192.0.2.0/", "192.0.2.0/+8", "192.0.2.0/008x", "example.org", "192.0.2"]
        {
            assert!(Cidr::parse(none).is_none(), "{none}");
        }
    }
}
