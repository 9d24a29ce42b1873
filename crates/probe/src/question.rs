//! One question to the kernel: a system call with arguments, and the answers that show it was let through.

use rustix::io::Errno;

use crate::{call, task};

/// One question.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// Name of the call, with a word for the variant.
    pub name: &'static str,
    number: libc::c_long,
    args: [usize; 6],
    /// Answers beside success that show that permission was given.
    let_through: &'static [Errno],
}

/// A pointer that no process has mapped: the kernel answers EFAULT once it looks.
pub(crate) const NOWHERE: usize = 8;
/// No descriptor has this number.
pub(crate) const NO_FD: usize = 0x7fff_fff0;
/// A number that is wrong for every call that wants one.
pub(crate) const WRONG: usize = 0x0bad_0bad;

pub(crate) const fn ask(
    name: &'static str,
    number: libc::c_long,
    args: [usize; 6],
    let_through: &'static [Errno],
) -> Question {
    Question { name, number, args, let_through }
}

pub(crate) const BAD: &[Errno] = &[Errno::INVAL, Errno::FAULT, Errno::BADF, Errno::NOENT];

// Stand-ins for addresses, which a constant table cannot hold; `resolve` puts the address of a static in their place.
pub(crate) const DOT: usize = usize::MAX / 2;
pub(crate) const EMPTY: usize = DOT + 1;
pub(crate) const TMPFS: usize = DOT + 2;
pub(crate) const ZEROS: usize = DOT + 3;
pub(crate) const ONE: usize = DOT + 4;
pub(crate) const PERF: usize = DOT + 5;
pub(crate) const TIMEX: usize = DOT + 6;
pub(crate) const NO_TYPE: usize = DOT + 7;
pub(crate) const PROC_SELF: usize = DOT + 8;

/// Memory that a call may read and, were it to succeed, write.
struct Scratch {
    zeros: [u64; 32],
    one: [i32; 2],
    perf: [u64; 16],
    timex: [u64; 32],
}

impl Question {
    /// Asks, in a child, so that no answer changes the next one. `Ok` says that the call was let through: it succeeded, or failed with an errno that only who may gets.
    ///
    /// # Errors
    /// The errno with which it was stopped.
    pub fn ask(&self) -> rustix::io::Result<()> {
        let mut scratch = Scratch { zeros: [0; 32], one: [1, 0], perf: [0; 16], timex: [0; 32] };
        // perf_event_attr: type hardware (0), size 64 in the upper half of the first word, `exclude_kernel` so that it is
        // judged as the least that one can ask for.
        let [head, _, _, _, _, flags, ..] = &mut scratch.perf;
        *head = 64 << 32;
        *flags = 1 << 5;
        // struct timex: ADJ_TICK with a tick of 0, which is refused after the question of permission.
        let [modes, ..] = &mut scratch.timex;
        *modes = 0x4000;
        let args = self.args.map(|arg| resolve(arg, &mut scratch));
        task::of_child(|| match call(self.number, args) {
            Ok(_) => Ok(()),
            Err(errno) if self.let_through.contains(&errno) => Ok(()),
            Err(errno) => Err(errno),
        })
    }
}

/// Puts an address in the place of a stand-in.
fn resolve(arg: usize, scratch: &mut Scratch) -> usize {
    match arg {
        DOT => c".".as_ptr().addr(),
        EMPTY => c"".as_ptr().addr(),
        TMPFS => c"tmpfs".as_ptr().addr(),
        ZEROS => scratch.zeros.as_mut_ptr().expose_provenance(),
        ONE => scratch.one.as_mut_ptr().expose_provenance(),
        TIMEX => scratch.timex.as_mut_ptr().expose_provenance(),
        NO_TYPE => c"no-such-file-system".as_ptr().addr(),
        // Never a mount point: who may unmount gets EINVAL.
        PROC_SELF => c"/proc/self".as_ptr().addr(),
        PERF => scratch.perf.as_mut_ptr().expose_provenance(),
        number => number,
    }
}
