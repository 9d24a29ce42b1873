//! Files inside, with the rights of the sandbox's user.

pub(crate) mod entry;
pub(crate) mod failure;
pub(crate) mod names;
pub(crate) mod place;

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// `/dev/null`; where there is none, a pipe that is closed at its other end.
pub(crate) fn nothing() -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOCTTY;
    match rustix::fs::open("/dev/null", flags, Mode::empty()) {
        Ok(null) => Ok(null),
        Err(_) => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map(|(read, _)| read),
    }
}
