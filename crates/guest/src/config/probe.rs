//! Questions that the guest asks the kernel after all controls, since Landlock is visible nowhere else.

use core::ffi::CStr;

use super::list::Item;
use crate::wire::Reader;

/// One attempt. The posture tells its errno (0 = it worked); [`Probe::held`] judges it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe<P> {
    /// Opening this file for reading must fail.
    OpenMustFail(P),
    /// Opening this file for reading must work: a sandbox that denies everything proves nothing.
    OpenMustWork(P),
    /// Opening this directory for listing must fail.
    ReadDirMustFail(P),
    /// socket(2) must fail.
    SocketMustFail {
        /// Address family.
        family: u32,
        /// Type, with or without flags.
        kind: u32,
        /// Protocol.
        protocol: u32,
    },
    /// kill(pid, 0) must fail.
    SignalMustFail(i32),
    /// A system call must be refused with this errno, or (0) not be refused: it may fail as the kernel likes.
    Call {
        /// Number.
        number: u32,
        /// Arguments: numbers, and pointers that lead nowhere.
        args: [u64; 6],
        /// Errno of the filter; 0 = the call reaches the kernel.
        errno: i32,
    },
}

impl<P> Probe<P> {
    /// Whether the control stands, given the errno of the attempt.
    #[must_use]
    pub const fn held(&self, errno: i32) -> bool {
        // ENOENT proves nothing about a denial: the object must exist.
        const ENOENT: i32 = 2;
        match self {
            Self::OpenMustWork(_) => errno == 0,
            Self::OpenMustFail(_) | Self::ReadDirMustFail(_) => errno != 0 && errno != ENOENT,
            Self::SocketMustFail { .. } | Self::SignalMustFail(_) => errno != 0,
            Self::Call { errno: wanted, .. } => sys::bare::answered(*wanted, errno),
        }
    }
}

impl<'a> Item<'a> for Probe<&'a CStr> {
    fn read(reader: &mut Reader<'a>) -> Option<Self> {
        match reader.u8()? {
            0 => Some(Self::OpenMustFail(reader.text()?)),
            1 => Some(Self::OpenMustWork(reader.text()?)),
            2 => Some(Self::ReadDirMustFail(reader.text()?)),
            3 => Some(Self::SocketMustFail { family: reader.u32()?, kind: reader.u32()?, protocol: reader.u32()? }),
            4 => Some(Self::SignalMustFail(reader.i32()?)),
            5 => {
                let number = reader.u32()?;
                let mut args = [0; 6];
                for argument in &mut args {
                    *argument = reader.u64()?;
                }
                Some(Self::Call { number, args, errno: reader.i32()? })
            }
            6.. => None,
        }
    }
}

#[cfg(feature = "std")]
mod put {
    use super::{CStr, Probe};
    use crate::config::builder::Put;

    impl<P: AsRef<CStr>> Put for Probe<P> {
        fn put(&self, out: &mut Vec<u8>) {
            let (kind, path) = match self {
                Self::OpenMustFail(path) => (0_u8, path),
                Self::OpenMustWork(path) => (1, path),
                Self::ReadDirMustFail(path) => (2, path),
                Self::SocketMustFail { family, kind, protocol } => {
                    3_u8.put(out);
                    family.put(out);
                    kind.put(out);
                    return protocol.put(out);
                }
                Self::SignalMustFail(pid) => {
                    4_u8.put(out);
                    return pid.put(out);
                }
                Self::Call { number, args, errno } => {
                    5_u8.put(out);
                    number.put(out);
                    args.iter().for_each(|argument| argument.put(out));
                    return errno.put(out);
                }
            };
            kind.put(out);
            path.as_ref().put(out);
        }
    }
}
