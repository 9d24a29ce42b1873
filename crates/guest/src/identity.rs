//! Whether a file is still the one that the supervisor judged.

use sys::bare::{self, Errno, Fd};

use crate::config::Identity;

/// `ESTALE`: another file than the one that was judged.
pub(crate) fn same(fd: Fd, is: Identity) -> bare::Result<()> {
    let found = bare::status(fd, c"")?;
    let found = Identity { major: found.major, minor: found.minor, ino: found.ino };
    if found == is { Ok(()) } else { Err(Errno::ESTALE) }
}
