//! Time as limits need it: it never goes back, it goes on while the machine sleeps, and nobody can set it.
//!
//! CLOCK_BOOTTIME is that, within one boot and one time namespace; which these are, the epoch says. Between two epochs the
//! wall clock bridges, once, and only forwards.

use std::fmt;

use rustix::time::{ClockId, clock_gettime};
use sha2::{Digest as _, Sha256};

/// Where time comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Microseconds since an instant of this epoch; never less than before.
    fn elapsed_us(&self) -> u64;
    /// Microseconds since 1970, as the wall clock says.
    fn wall_us(&self) -> u64;
    /// Tells apart clocks whose `elapsed_us` cannot be compared.
    fn epoch(&self) -> u128;
}

/// The machine's own.
#[derive(Debug)]
pub struct System {
    epoch: u128,
}

impl System {
    /// Asks which boot and which time namespace this is.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn new() -> Result<Self, sys::error::Error> {
        let boot = sys::machine::boot_id()?;
        // A kernel before 5.6 has no time namespaces, and so no such link.
        let space = std::fs::read_link("/proc/self/ns/time").unwrap_or_default();
        let mut hash = Sha256::new();
        hash.update(boot.as_bytes());
        hash.update(space.as_os_str().as_encoded_bytes());
        let digest = hash.finalize();
        let epoch = digest.iter().take(16).fold(0_u128, |number, byte| (number << 8) | u128::from(*byte));
        Ok(Self { epoch })
    }
}

impl Clock for System {
    fn elapsed_us(&self) -> u64 {
        micros(ClockId::Boottime)
    }

    fn wall_us(&self) -> u64 {
        micros(ClockId::Realtime)
    }

    fn epoch(&self) -> u128 {
        self.epoch
    }
}

/// A time before 1970 is 1970: it only makes the bridge between two boots shorter.
fn micros(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    seconds.saturating_mul(1_000_000).saturating_add(nanos / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machines_clock_goes_forwards_and_its_epoch_is_that_of_the_boot() {
        let (a, b) = (System::new().unwrap(), System::new().unwrap());
        assert_eq!(a.epoch(), b.epoch());
        let first = a.elapsed_us();
        assert!(first > 0 && b.elapsed_us() >= first);
        assert!(a.wall_us() > 1_700_000_000_000_000);
    }
}
