//! x86-64.

mod attempt;
mod call;
#[cfg(feature = "std")]
mod calls;
mod clone;
#[cfg(not(feature = "std"))]
mod memory;
#[cfg(feature = "std")]
mod waiting;

pub(crate) use attempt::BY_NOTHING;
pub(crate) use call::system_call;
#[cfg(feature = "std")]
pub(crate) use calls::CALLS;
pub(crate) use clone::clone_onto;
#[cfg(feature = "std")]
pub(crate) use clone::{clone, clone3};
/// The numbers of the calls, as `__NR_*`: all that `resources/seccomp` names. An architecture that lacks one gives it a
/// number that no call has.
#[cfg(feature = "std")]
pub(crate) use linux_raw_sys::general as numbers;
#[cfg(feature = "std")]
pub(crate) use waiting::WAITING;

/// Its name, as messages have it.
pub const NAME: &str = "x86-64";

/// Dynamic loaders of the usual C libraries: `execve` of a dynamic program opens one for execution.
pub const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"];

/// Its name in images, and in packages of Debian.
pub const PACKAGED_NAME: &str = "amd64";

/// Where Debian, Fedora and Arch have QEMU's emulator of it.
pub const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";

/// Debian's package of it.
pub const EMULATOR_PACKAGE: &str = "qemu-system-x86";

/// Debian's package that depends on its newest kernel for virtual machines.
pub const KERNEL_PACKAGE: &str = "linux-image-cloud-amd64";

/// Where a distribution with folders for each architecture keeps the shared libraries of this one.
pub const LIBRARY_FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// `AUDIT_ARCH_X86_64` of linux/audit.h: how a filter knows calls that came by the door of this architecture.
#[cfg(feature = "std")]
pub(crate) const AUDIT_ARCH: u32 = 0xc000_003e;

/// From here on numbers are those of x32, another ABI behind the same door. An architecture without such a one says where
/// no call of its own can be.
#[cfg(feature = "std")]
pub(crate) const FIRST_FOREIGN_CALL: u32 = 0x4000_0000;

/// `uretprobe` and `uprobe` (6.11, 6.18): the kernel never asks a filter about them, it answers SIGILL outside its own
/// trampoline, whoever calls.
#[cfg(test)]
pub(crate) const CALLS_NEVER_JUDGED: [u32; 2] = [335, 336];

/// `struct sigaction` of the kernel, which is not the C library's. All zero is SIG_DFL.
#[repr(C)]
#[derive(Default)]
pub(crate) struct KernelSigaction {
    handler: usize,
    flags: usize,
    restorer: usize,
    mask: u64,
}

/// `_start`, which calls `$start: extern "C" fn() -> !`. The kernel gives an aligned stack; a call must leave it misaligned by
/// eight.
#[doc(hidden)]
#[macro_export]
macro_rules! first_instructions {
    ($start:ident) => {
        /// The first instructions.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn _start() -> ! {
            ::core::arch::naked_asm!("xor ebp, ebp", "and rsp, -16", "call {start}", "ud2", start = sym $start)
        }
    };
}

/// getpid by the door of another architecture (i386).
#[cfg(test)]
pub(crate) fn foreign_getpid() {
    // SAFETY: call 20 of i386 is getpid, without arguments; the registers that the door clobbers are named.
    unsafe {
        core::arch::asm!("int 0x80", inlateout("eax") 20 => _, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
}
