//! Random bytes of the kernel, by the system call itself: no descriptor, no folder that must be there.

/// Fills `bytes`, of which there may be at most 256 (getrandom(2) then gives all or none of them, and is not interrupted).
/// `false`: the call is not let through, and `bytes` hold what they held.
#[must_use]
pub fn fill(bytes: &mut [u8]) -> bool {
    debug_assert!(bytes.len() <= 256);
    // SAFETY: the kernel writes at most `len` bytes, all of them inside the slice that we hold alone.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    usize::try_from(got) == Ok(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_fillings_differ() {
        let (mut one, mut other) = ([0; 16], [0; 16]);
        assert!(fill(&mut one) && fill(&mut other));
        assert_ne!(one, other);
    }
}
