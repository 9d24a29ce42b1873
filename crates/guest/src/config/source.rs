//! Where a mount comes from.

use core::ffi::CStr;

use super::list::Item;
use crate::wire::Reader;

/// Which file the supervisor judged, so that another one under the same name is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Major number of the device, as statx(2) gives it.
    pub major: u32,
    /// Minor number of the device.
    pub minor: u32,
    /// Inode.
    pub ino: u64,
}

impl Identity {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self { major: reader.u32()?, minor: reader.u32()?, ino: reader.u64()? })
    }
}

/// Where a mount comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source<P> {
    /// A path of the host without any symlink in it, cloned with all that is mounted below.
    Path {
        /// Absolute path outside.
        path: P,
        /// What must be found there.
        is: Identity,
    },
    /// A detached mount that was passed in, by its number.
    Fd(u32),
}

impl<'a> Item<'a> for Source<&'a CStr> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        match reader.u8()? {
            0 => Some(Self::Path { path: reader.text()?, is: Identity::read(reader)? }),
            1 => Some(Self::Fd(reader.u32()?)),
            2.. => None,
        }
    }
}

#[cfg(feature = "std")]
mod put {
    use super::{CStr, Identity, Source};
    use crate::config::builder::Put;

    impl Put for Identity {
        fn put(&self, out: &mut Vec<u8>) {
            self.major.put(out);
            self.minor.put(out);
            self.ino.put(out);
        }
    }

    impl<P: AsRef<CStr>> Put for Source<P> {
        fn put(&self, out: &mut Vec<u8>) {
            match self {
                Self::Path { path, is } => {
                    0_u8.put(out);
                    path.as_ref().put(out);
                    is.put(out);
                }
                Self::Fd(number) => {
                    1_u8.put(out);
                    number.put(out);
                }
            }
        }
    }
}
