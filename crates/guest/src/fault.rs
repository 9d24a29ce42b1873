//! Why a step of the guest failed, as it is told outside: an errno, and which of many things it was.

use sys::bare::{self, Errno};

/// Why a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) errno: i32,
    pub(crate) detail: u32,
}

impl From<Errno> for Fault {
    fn from(errno: Errno) -> Self {
        Self { errno: errno.number(), detail: 0 }
    }
}

pub(crate) type Taken<T = ()> = Result<T, Fault>;

/// Adds which of many it was.
pub(crate) trait At<T> {
    fn at(self, detail: usize) -> Taken<T>;
}

impl<T> At<T> for bare::Result<T> {
    fn at(self, detail: usize) -> Taken<T> {
        let detail = u32::try_from(detail).unwrap_or(u32::MAX);
        self.map_err(|errno| Fault { errno: errno.number(), detail })
    }
}
