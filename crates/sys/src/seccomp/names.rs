//! Names of system calls of this architecture and their numbers.

use crate::arch::CALLS;

/// The number of a call; `None` for a name that this architecture has not.
#[must_use]
pub fn number(name: &str) -> Option<u32> {
    CALLS.binary_search_by_key(&name, |(known, _)| known).ok().and_then(|at| CALLS.get(at)).map(|(_, number)| *number)
}

/// The name of a number.
#[must_use]
pub fn name(number: u32) -> Option<&'static str> {
    CALLS.iter().find(|(_, known)| *known == number).map(|(name, _)| *name)
}

/// All names, sorted.
pub fn all() -> impl Iterator<Item = &'static str> {
    CALLS.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_numbers_are_the_kernels() {
        assert!(CALLS.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!((number("read"), number("clone3"), number("no_such_call")), (Some(0), Some(435), None));
        assert_eq!(name(59), Some("execve"));
        let mut numbers: Vec<_> = CALLS.iter().map(|(_, number)| number).collect();
        numbers.sort_unstable();
        assert!(numbers.is_sorted_by(|a, b| a < b));
    }
}
