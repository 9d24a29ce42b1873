//! System calls by number, and what goes through their registers.

use core::ffi::CStr;

use super::errno::{Errno, Result};
use crate::arch::system_call;

/// One system call with up to six arguments; the rest is 0.
///
/// # Safety
/// What the call of this number demands of its arguments: pointers must be valid for what the kernel reads or writes,
/// and the call must not pull memory away from under safe code (munmap, a clone that returns twice on one stack, ...).
#[inline]
pub(super) unsafe fn call<const N: usize>(number: u32, arguments: [usize; N]) -> Result<usize> {
    let mut six = [0; 6];
    for (place, argument) in six.iter_mut().zip(arguments) {
        *place = argument;
    }
    // SAFETY: the caller promised what the call demands; arguments that it does not have are 0.
    Errno::split(unsafe { system_call(uint(number), six) })
}

/// A number that may be negative, as a register.
#[inline]
pub(super) const fn int(number: i32) -> usize {
    (number as isize).cast_unsigned()
}

/// An unsigned number as a register.
#[inline]
pub(super) const fn uint(number: u32) -> usize {
    number as usize
}

/// 64 bits as a register.
#[inline]
pub(super) const fn long(number: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "registers have 64 bits, see `arch`")]
    return number as usize;
}

/// The address of something that the kernel reads.
#[inline]
pub(super) fn read<T: ?Sized>(from: &T) -> usize {
    core::ptr::from_ref(from).cast::<()>().expose_provenance()
}

/// The address of something that the kernel writes.
#[inline]
pub(super) fn write<T: ?Sized>(to: &mut T) -> usize {
    core::ptr::from_mut(to).cast::<()>().expose_provenance()
}

/// The address of a text.
#[inline]
pub(super) fn text(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// A value that the kernel keeps within 32 bits (descriptors, pids, counts).
#[inline]
pub(super) fn small(value: usize) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
