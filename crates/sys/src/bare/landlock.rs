//! Landlock, by its three calls: an unknown bit is the kernel's error and never a weaker layer.

use linux_raw_sys::general::{__NR_landlock_add_rule, __NR_landlock_create_ruleset, __NR_landlock_restrict_self};
use linux_raw_sys::landlock::{landlock_path_beneath_attr, landlock_ruleset_attr};

use super::errno::Result;
use super::fd::{Fd, Owned};
use super::raw::{call, read, uint};

const PATH_BENEATH: u32 = 1;
const NET_PORT: u32 = 2;

/// `struct landlock_net_port_attr`.
#[repr(C)]
struct NetPort {
    access: u64,
    port: u64,
}

/// Rules that are being gathered.
#[derive(Debug)]
pub struct Ruleset(Owned);

impl Ruleset {
    /// landlock_create_ruleset(2).
    ///
    /// # Errors
    /// `E2BIG` or `EINVAL`: the kernel does not know a right or a scope. `EOPNOTSUPP`: switched off at boot.
    pub fn new(handled_fs: u64, handled_net: u64, scoped: u64) -> Result<Self> {
        let attr = landlock_ruleset_attr { handled_access_fs: handled_fs, handled_access_net: handled_net, scoped };
        let size = size_of::<landlock_ruleset_attr>();
        // SAFETY: a landlock_ruleset_attr of the given size; an older kernel accepts the longer one if its end is 0.
        unsafe { call(__NR_landlock_create_ruleset, [read(&attr), size, 0]) }.map(|fd| Self(Owned::new(fd)))
    }

    /// Rights beneath a path.
    ///
    /// # Errors
    /// `EINVAL`: a right that is not handled, or one of directories for a file.
    pub fn allow_path(&self, path: Fd, access: u64) -> Result<()> {
        let attr = landlock_path_beneath_attr { allowed_access: access, parent_fd: path.number() };
        // SAFETY: a landlock_path_beneath_attr, as the type of rule demands.
        unsafe { call(__NR_landlock_add_rule, [self.0.fd().raw(), uint(PATH_BENEATH), read(&attr), 0]) }.map(drop)
    }

    /// Rights on a TCP port.
    ///
    /// # Errors
    /// `EINVAL`: a right that is not handled.
    pub fn allow_port(&self, port: u16, access: u64) -> Result<()> {
        let attr = NetPort { access, port: u64::from(port) };
        // SAFETY: a landlock_net_port_attr, as the type of rule demands.
        unsafe { call(__NR_landlock_add_rule, [self.0.fd().raw(), uint(NET_PORT), read(&attr), 0]) }.map(drop)
    }

    /// Puts the layer on this thread, for good.
    ///
    /// # Errors
    /// `EPERM` without no_new_privs; `E2BIG` after 16 layers; `EINVAL` for a flag that the kernel does not know.
    pub fn restrict_self(&self, flags: u32) -> Result<()> {
        // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
        unsafe { call(__NR_landlock_restrict_self, [self.0.fd().raw(), uint(flags)]) }.map(drop)
    }
}
