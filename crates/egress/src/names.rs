//! Which address stands for which name inside a sandbox.
//!
//! Every name that is looked up gets an address of its own, for the whole run: what a program then connects to says which name
//! it meant, and no second answer can move the name elsewhere (rebinding).

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most names in one run: a program that looks up more is denied, not served at the cost of our memory.
pub const MAX_NAMES: usize = 4096;
/// The broker's own address: resolver of the sandbox.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
/// The same in IPv6.
pub const RESOLVER6: Ipv6Addr = Ipv6Addr::new(0xfd66, 0x756d, 0x6568, 0x6f6f, 0, 0, 0, 1);
/// The first name's address; 198.18.0.0/15 is set aside for tests of networks, and so is nobody's.
const FIRST: u32 = Ipv4Addr::new(198, 18, 1, 0).to_bits();
/// The first name's, in a prefix of our own below fd00::/8.
const FIRST6: u128 = Ipv6Addr::new(0xfd66, 0x756d, 0x6568, 0x6f6f, 0, 0, 1, 0).to_bits();

/// The addresses of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// For A.
    pub v4: Ipv4Addr,
    /// For AAAA.
    pub v6: Ipv6Addr,
}

/// The names that were given an address.
#[derive(Debug, Default)]
pub struct Names {
    numbers: HashMap<String, u32>,
    names: Vec<String>,
}

impl Names {
    /// The addresses of a name (lower case, no trailing dot), and whether they are new; `None`: there are [`MAX_NAMES`].
    pub fn give(&mut self, name: &str) -> Option<(Pair, bool)> {
        if let Some(number) = self.numbers.get(name) {
            return Some((pair(*number), false));
        }
        if self.names.len() >= MAX_NAMES {
            return None;
        }
        let number = u32::try_from(self.names.len()).ok()?;
        self.names.push(name.to_owned());
        self.numbers.insert(name.to_owned(), number);
        Some((pair(number), true))
    }

    /// The addresses that a name was given.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<Pair> {
        self.numbers.get(name).map(|number| pair(*number))
    }

    /// The name that an address was given to.
    #[must_use]
    pub fn of(&self, address: IpAddr) -> Option<&str> {
        let number = match address {
            IpAddr::V4(v4) => v4.to_bits().checked_sub(FIRST).map(u128::from)?,
            IpAddr::V6(v6) => v6.to_bits().checked_sub(FIRST6)?,
        };
        self.names.get(usize::try_from(number).ok()?).map(String::as_str)
    }
}

fn pair(number: u32) -> Pair {
    // Neither sum can wrap: there are MAX_NAMES numbers.
    let v4 = Ipv4Addr::from_bits(FIRST.saturating_add(number));
    Pair { v4, v6: Ipv6Addr::from_bits(FIRST6.saturating_add(u128::from(number))) }
}

/// Whether an address is one that only a broker gives: 198.18.0.0/15, or our prefix of fd00::/8.
#[must_use]
pub fn is_given(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets().first() == Some(&198) && matches!(v4.octets().get(1), Some(18 | 19)),
        IpAddr::V6(v6) => v6.segments().get(..4) == RESOLVER6.segments().get(..4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_addresses_and_they_say_the_name() {
        let mut names = Names::default();
        let (first, new) = names.give("a.example").unwrap();
        assert!(new && first.v4 == Ipv4Addr::new(198, 18, 1, 0));
        let (second, _) = names.give("b.example").unwrap();
        assert_eq!(names.give("a.example"), Some((first, false)));
        assert_eq!((names.given("b.example"), names.given("c.example")), (Some(second), None));
        for (pair, name) in [(first, "a.example"), (second, "b.example")] {
            for address in [IpAddr::V4(pair.v4), IpAddr::V6(pair.v6)] {
                assert_eq!(names.of(address), Some(name));
                assert!(is_given(address));
            }
        }
    }

    #[test]
    fn an_address_that_nobody_was_given_says_nothing() {
        let mut names = Names::default();
        names.give("a.example").unwrap();
        for address in
            ["198.18.1.1", "198.18.0.255", "198.18.0.1", "0.0.0.0", "8.8.8.8", "::", "fd66::1", "2001:db8::1"]
        {
            assert_eq!(names.of(address.parse().unwrap()), None, "{address}");
        }
        assert!(is_given(IpAddr::V4(RESOLVER)) && is_given(IpAddr::V6(RESOLVER6)));
        assert!(!is_given("198.20.0.1".parse().unwrap()) && !is_given("fd00::1".parse().unwrap()));
    }

    #[test]
    fn there_is_an_end_to_names_and_all_stay_in_their_range() {
        let mut names = Names::default();
        for number in 0..MAX_NAMES {
            let (pair, _) = names.give(&format!("n{number}.example")).unwrap();
            assert!(is_given(pair.v4.into()) && is_given(pair.v6.into()));
            assert_eq!(names.of(pair.v4.into()), names.of(pair.v6.into()));
        }
        assert_eq!(names.give("one-more.example"), None);
        assert!(names.give("n0.example").is_some());
    }
}
