//! The first function of a program, without what the standard library puts before it.
//!
//! That reads `/proc/self/maps` for a handler of overflowing stacks, in this thread and in each other one: 25 system calls
//! of a run that has 400. What matters of it is done here: closed descriptors 0 to 2 are held by /dev/null, so that no file
//! of ours takes their number, and a reader that goes away is an error and no signal. What is written must be flushed by who
//! writes it.

use std::os::fd::IntoRawFd as _;

use rustix::event::{PollFd, PollFlags};

/// Makes a function that takes nothing and gives an exit code the first one of the program.
#[macro_export]
macro_rules! program {
    ($main:path) => {
        #[unsafe(no_mangle)]
        extern "C" fn main(_: ::core::ffi::c_int, _: *const *const ::core::ffi::c_char) -> ::core::ffi::c_int {
            $crate::entry::prepare();
            ::core::ffi::c_int::from($main())
        }
    };
}

/// What the standard library does before `main`, as far as it matters here.
pub fn prepare() {
    hold_closed();
    crate::signals::ignore_broken_pipes();
}

/// poll(2) says POLLNVAL of what is not open. Where /dev/null is missing too, nothing that we could open is safe.
fn hold_closed() {
    // SAFETY: only asked whether they are open, which poll may be of any number.
    let [input, output, errors] = [0, 1, 2].map(|number| unsafe { std::os::fd::BorrowedFd::borrow_raw(number) });
    let mut three = [input, output, errors].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::empty()));
    let now = rustix::event::Timespec::default();
    if rustix::event::poll(&mut three, Some(&now)).is_err() {
        return;
    }
    for _closed in three.iter().filter(|fd| fd.revents().contains(PollFlags::NVAL)) {
        // The lowest free number is given: in this order, the one that is missing.
        match crate::channel::dev_null() {
            Ok(held) => drop(held.into_raw_fd()),
            Err(_) => std::process::abort(),
        }
    }
}
