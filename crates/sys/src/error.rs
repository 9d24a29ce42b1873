//! The one error of plain calls: which call, on what, and the errno. Rooms with stages have enums of their own.

use rustix::io::Errno;

/// A system call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{call}` on `{object}`: {errno}")]
pub struct Error {
    /// Name of the call as in its manual page.
    pub call: &'static str,
    /// What it was applied to: a path, a process, a kind of descriptor.
    pub object: String,
    /// The kernel's answer.
    pub errno: Errno,
}

/// Result of a plain call.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// Names call and object of a failure.
    #[must_use]
    pub fn new(call: &'static str, object: impl Into<String>, errno: Errno) -> Self {
        Self { call, object: object.into(), errno }
    }

    /// Whether a process or file that was asked about is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.errno, Errno::SRCH | Errno::NOENT)
    }

    /// Whether a nonblocking call found nothing to do.
    #[must_use]
    pub fn is_again(&self) -> bool {
        self.errno == Errno::AGAIN
    }
}

/// Adds call and object to a bare errno. The object is built only when needed.
pub(crate) trait ErrorContext<T> {
    /// Turns `Err(errno)` into an [`Error`].
    fn named(self, call: &'static str, object: impl FnOnce() -> String) -> Result<T>;
}

impl<T> ErrorContext<T> for rustix::io::Result<T> {
    fn named(self, call: &'static str, object: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|errno| Error::new(call, object(), errno))
    }
}
