//! What the kernel says when it says no.

/// An error number of the kernel, 1 to 4095.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(u16);

/// The answer of a system call.
pub type Result<T> = core::result::Result<T, Errno>;

macro_rules! names {
    ($($name:ident)+) => {
        impl Errno {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Self = Self::known(linux_raw_sys::errno::$name);)+
        }

        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Self::$name => f.write_str(stringify!($name)),)+
                    Self(number) => write!(f, "errno {number}"),
                }
            }
        }
    };
}

names! {
    EPERM ENOENT ESRCH EINTR EIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR
    EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY ENOSPC EROFS EPIPE ENAMETOOLONG ENOSYS ELOOP EPROTO EOVERFLOW EMSGSIZE
    EOPNOTSUPP ECONNRESET ESTALE ENODATA ELIBBAD ENXIO
    ECHRNG ESHUTDOWN
}

impl Errno {
    const fn known(number: u32) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "error numbers end at 4095")]
        Self(number as u16)
    }

    /// The number.
    #[must_use]
    pub fn number(self) -> i32 {
        i32::from(self.0)
    }

    /// That of a message of netlink, where it is negative.
    pub(super) fn of_message(number: i32) -> Self {
        Self(u16::try_from(number.unsigned_abs()).unwrap_or(u16::MAX))
    }

    /// Splits what a system call returned into its value and its error.
    #[inline]
    pub(super) fn split(returned: isize) -> Result<usize> {
        match usize::try_from(returned) {
            Ok(value) => Ok(value),
            // An address in the upper half is no error; the calls that give addresses never give such ones in user space.
            Err(_) => Err(Self(u16::try_from(returned.unsigned_abs()).unwrap_or(u16::MAX))),
        }
    }
}
