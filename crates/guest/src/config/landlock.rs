//! Landlock rules, in the kernel's own bits.

use core::ffi::CStr;

use super::list::{Item, List};
use super::source::Identity;
use crate::wire::Reader;

/// One path beneath which rights are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<P> {
    /// Absolute path without symlinks: inside the new root, or of the host in the process tier.
    pub path: P,
    /// `LANDLOCK_ACCESS_FS_*`; for a file only the rights that files have.
    pub access: u64,
    /// What must be found there; needed in the process tier, whose paths belong to the host.
    pub is: Option<Identity>,
}

/// One TCP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port {
    /// Port.
    pub port: u16,
    /// `LANDLOCK_ACCESS_NET_*`.
    pub access: u64,
}

/// One layer. All is handed to the kernel as it is: an unknown bit is an error, never a weaker layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landlock<R, N> {
    /// Rights that are denied but for the rules.
    pub handled_fs: u64,
    /// Network rights that are denied but for the ports.
    pub handled_net: u64,
    /// `LANDLOCK_SCOPE_*`.
    pub scoped: u64,
    /// Flags of landlock_restrict_self(2).
    pub flags: u32,
    /// Paths. A missing one is fatal.
    pub rules: R,
    /// Ports.
    pub ports: N,
}

/// A layer inside a config.
pub type LandlockView<'a> = Landlock<List<'a, Rule<&'a CStr>>, List<'a, Port>>;

impl<'a> Item<'a> for Rule<&'a CStr> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self { path: reader.text()?, access: reader.u64()?, is: reader.option(Identity::read)? })
    }
}

impl<'a> Item<'a> for Port {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self { port: reader.u16()?, access: reader.u64()? })
    }
}

impl<'a> Item<'a> for LandlockView<'a> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        Some(Self {
            handled_fs: reader.u64()?,
            handled_net: reader.u64()?,
            scoped: reader.u64()?,
            flags: reader.u32()?,
            rules: List::read(reader)?,
            ports: List::read(reader)?,
        })
    }
}

#[cfg(feature = "std")]
mod put {
    use super::{CStr, Landlock, Port, Rule};
    use crate::config::builder::Put;

    impl<P: AsRef<CStr>> Put for Rule<P> {
        fn put(&self, out: &mut Vec<u8>) {
            self.path.as_ref().put(out);
            self.access.put(out);
            self.is.put(out);
        }
    }

    impl Put for Port {
        fn put(&self, out: &mut Vec<u8>) {
            self.port.put(out);
            self.access.put(out);
        }
    }

    impl<R: Put, N: Put> Put for Landlock<R, N> {
        fn put(&self, out: &mut Vec<u8>) {
            self.handled_fs.put(out);
            self.handled_net.put(out);
            self.scoped.put(out);
            self.flags.put(out);
            self.rules.put(out);
            self.ports.put(out);
        }
    }
}
