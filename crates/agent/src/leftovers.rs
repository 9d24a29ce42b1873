//! Output of what a program left behind: it is read and dropped, so that nobody who writes there blocks or is ended for it.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

/// Most pipes that are read so; beyond, the oldest is closed.
const MAX_PIPES: usize = 128;

/// The pipes.
#[derive(Debug, Default)]
pub(crate) struct Leftovers {
    pipes: VecDeque<OwnedFd>,
}

impl Leftovers {
    /// One more, which does not block.
    pub(crate) fn add(&mut self, pipe: OwnedFd) {
        if self.pipes.len() >= MAX_PIPES {
            self.pipes.pop_front();
        }
        self.pipes.push_back(pipe);
    }

    pub(crate) fn waits<'a>(&'a self, add: &mut dyn FnMut(BorrowedFd<'a>)) {
        self.pipes.iter().for_each(|pipe| add(pipe.as_fd()));
    }

    /// Drops what is there.
    pub(crate) fn read(&mut self, scratch: &mut [u8]) {
        self.pipes
            .retain(|pipe| matches!(rustix::io::read(pipe, &mut *scratch), Ok(1..) | Err(Errno::AGAIN | Errno::INTR)));
    }
}
