//! Landlock: which rights this kernel knows (landlock(7)). The rules themselves are put in force by the program that
//! confines itself, through raw calls.
//!
//! *Kernel facts*: ABI 1 in 5.13; 2 (REFER) 5.19; 3 (TRUNCATE) 6.2; 4 (TCP) 6.7; 5 (IOCTL_DEV) 6.10; 6 (scopes) 6.12;
//! 7 (audit flags) 6.15. A right that the kernel does not know is an error (EINVAL) there, never ignored.

/// Rights of the file system, as the kernel numbers them.
pub mod fs {
    /// Execute a file.
    pub const EXECUTE: u64 = 1;
    /// Open a file for writing.
    pub const WRITE_FILE: u64 = 1 << 1;
    /// Open a file for reading.
    pub const READ_FILE: u64 = 1 << 2;
    /// List a directory.
    pub const READ_DIR: u64 = 1 << 3;
    /// Remove a directory.
    pub const REMOVE_DIR: u64 = 1 << 4;
    /// Remove a file.
    pub const REMOVE_FILE: u64 = 1 << 5;
    /// Make a character device.
    pub const MAKE_CHAR: u64 = 1 << 6;
    /// Make a directory.
    pub const MAKE_DIR: u64 = 1 << 7;
    /// Make a regular file.
    pub const MAKE_REG: u64 = 1 << 8;
    /// Make a unix socket.
    pub const MAKE_SOCK: u64 = 1 << 9;
    /// Make a named pipe.
    pub const MAKE_FIFO: u64 = 1 << 10;
    /// Make a block device.
    pub const MAKE_BLOCK: u64 = 1 << 11;
    /// Make a symbolic link.
    pub const MAKE_SYM: u64 = 1 << 12;
    /// Link or rename across directories (ABI 2).
    pub const REFER: u64 = 1 << 13;
    /// Truncate (ABI 3).
    pub const TRUNCATE: u64 = 1 << 14;
    /// ioctl(2) on devices (ABI 5).
    pub const IOCTL_DEV: u64 = 1 << 15;
}

/// Rights that a rule on something other than a directory may have (else EINVAL).
pub const FILE_RIGHTS: u64 = fs::EXECUTE | fs::WRITE_FILE | fs::READ_FILE | fs::TRUNCATE | fs::IOCTL_DEV;
/// BIND_TCP and CONNECT_TCP (ABI 4).
pub const NET_RIGHTS: u64 = 3;

/// The newest ABI that this module knows; a newer kernel is asked for no more than this.
const KNOWN: u32 = 7;

/// ABI of the running kernel as far as it is known here; 0 = Landlock is not there or not enabled.
#[must_use]
pub fn abi() -> u32 {
    // SAFETY: with the flag LANDLOCK_CREATE_RULESET_VERSION (1) the call reads no memory: attributes are null, their
    // size is 0, and nothing is made.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 1_u32) };
    u32::try_from(answer).unwrap_or(0).min(KNOWN)
}

/// Corrections that this kernel has, a bit each (1: TCP rules judge TCP alone; 2: signals among the threads of one
/// process pass the scope; 3: disconnected folders are judged). `None` where the kernel cannot say (before 6.15).
#[must_use]
pub fn errata() -> Option<u32> {
    // SAFETY: with the flag LANDLOCK_CREATE_RULESET_ERRATA (2) the call reads no memory and makes nothing, as above.
    let answer = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0_usize, 2_u32) };
    u32::try_from(answer).ok()
}

/// All rights of the file system at an ABI.
#[must_use]
pub const fn fs_rights(abi: u32) -> u64 {
    match abi {
        0 => 0,
        1 => (1 << 13) - 1,
        2 => (1 << 14) - 1,
        3 | 4 => (1 << 15) - 1,
        5.. => (1 << 16) - 1,
    }
}

/// Scopes at an ABI: abstract unix sockets and signals (ABI 6).
#[must_use]
pub const fn scopes(abi: u32) -> u64 {
    if abi >= 6 { 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rights_are_those_that_the_landlock_crate_knows() {
        use ::landlock::{ABI, Access as _, AccessFs};
        let theirs = |abi| AccessFs::from_all(abi).bits();
        for (number, abi) in [(1, ABI::V1), (2, ABI::V2), (3, ABI::V3), (4, ABI::V4), (5, ABI::V5), (6, ABI::V6)] {
            assert_eq!(fs_rights(number), theirs(abi), "ABI {number}");
        }
        let files = AccessFs::from_file(ABI::V6).bits();
        assert_eq!(FILE_RIGHTS, files);
    }

    #[test]
    fn errata_come_with_the_abi_that_can_tell_them() {
        // Older kernels may have it as a correction of their own.
        assert!(abi() < 7 || errata().is_some());
    }

    #[test]
    fn the_rights_of_an_abi_are_those_of_the_manual_page() {
        assert_eq!(fs_rights(1) & fs::REFER, 0);
        assert_ne!(fs_rights(2) & fs::REFER, 0);
        assert_eq!(fs_rights(2) & fs::TRUNCATE, 0);
        assert_ne!(fs_rights(5) & fs::IOCTL_DEV, 0);
        assert_eq!((scopes(5), scopes(6)), (0, 3));
    }
}
