//! A process of ours that is told to go on, or to end: no other one of the same number.

use std::os::fd::OwnedFd;

use crate::tree;

/// Which process.
#[derive(Debug)]
pub(super) enum ProcessRef {
    /// By a descriptor that stays its own.
    Descriptor(OwnedFd),
    /// Where the kernel has none: its number, and when it began, which are compared before each signal. What a number could become
    /// between the two is for the kernel to give out all others first.
    Number(i32, u64),
}

impl ProcessRef {
    /// `None`: it is gone.
    pub(super) fn of(pid: i32) -> Option<Self> {
        match sys::pidfd::open(pid) {
            Ok(pidfd) => Some(Self::Descriptor(pidfd)),
            Err(_) => tree::started(pid).map(|began| Self::Number(pid, began)),
        }
    }

    /// Sends it a signal; it may just have ended.
    pub(super) fn signal(&self, number: i32) {
        match self {
            Self::Descriptor(pidfd) => drop(sys::pidfd::send_signal(pidfd, number)),
            Self::Number(pid, began) if tree::started(*pid) == Some(*began) => {
                drop(sys::signals::send(*pid, false, number));
            }
            Self::Number(..) => {}
        }
    }
}
