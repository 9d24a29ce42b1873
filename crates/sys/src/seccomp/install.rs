//! Installing a filter on the calling thread.

use rustix::io::Errno;

use super::compile::Program;
use crate::error::{Error, Result};

/// Puts `program` on the calling thread and all that it starts from now on, for good. `no_new_privs` must be set.
///
/// # Errors
/// EACCES: `no_new_privs` is not set. EINVAL: the kernel does not accept the program. ENOMEM: too many filters.
pub fn apply(program: &Program) -> Result<()> {
    let instructions = program.instructions();
    let failed = |errno| Error::new("seccomp", "calling thread", errno);
    let length = u16::try_from(instructions.len()).map_err(|_too_long| failed(Errno::INVAL))?;
    let header = libc::sock_fprog { len: length, filter: instructions.as_ptr().cast_mut().cast() };
    // SAFETY: `header` points to `length` live instructions of the kernel's layout, which the call only reads.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const header) };
    if result == 0 {
        return Ok(());
    }
    Err(failed(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)))
}
