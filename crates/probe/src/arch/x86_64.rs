//! x86-64: system calls by doors of its relatives, and calls that only it has.

use rustix::io::Errno;

use crate::question::{BAD, NOWHERE, Question, ask};
use crate::{call, task};

/// Questions about calls that only this architecture has.
pub const QUESTIONS: &[Question] = &[
    ask("iopl", libc::SYS_iopl, [3, 0, 0, 0, 0, 0], &[]),
    ask("ioperm", libc::SYS_ioperm, [0x80, 1, 1, 0, 0, 0], &[]),
    ask("modify_ldt-read", libc::SYS_modify_ldt, [0, 0, 0, 0, 0, 0], &[]),
    ask("ustat", libc::SYS_ustat, [0, NOWHERE, 0, 0, 0, 0], BAD),
];

/// `getpid` with the x32 bit in its number.
///
/// # Errors
/// ENOSYS from a kernel without x32, or what a filter says.
pub fn x32_getpid() -> rustix::io::Result<()> {
    call(libc::SYS_getpid | 0x4000_0000, [0; 6]).map(|_| ())
}

/// `getpid` of i386 by `int 0x80`, in a child, since a kernel without it answers with a signal.
///
/// # Errors
/// EFAULT: the child died of SIGSEGV (no such door), EPERM: of another signal, else the errno.
pub fn int80_getpid() -> rustix::io::Result<()> {
    let code = task::in_child(|| {
        let mut number: i64 = 20;
        // SAFETY: the i386 door takes its arguments in registers and writes the result to rax; getpid takes none, touches no
        // memory, and the registers that entry code clobbers (r8 to r11) are named.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") number, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        let own = i64::from(rustix::process::getpid().as_raw_nonzero().get());
        if number == own { 0 } else { u8::try_from(-number).unwrap_or(255) }
    })?;
    match code {
        task::Ended::Code(0) => Ok(()),
        task::Ended::Code(code) => Err(Errno::from_raw_os_error(i32::from(code))),
        task::Ended::Signal(libc::SIGSEGV) => Err(Errno::FAULT),
        task::Ended::Signal(_) => Err(Errno::PERM),
    }
}
