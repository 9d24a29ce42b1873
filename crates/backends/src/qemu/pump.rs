//! Between the supervisor of a live sandbox and the agent in its machine, who speak the same protocol: bytes both ways, into
//! which nothing is read. The supervisor judges what comes out, as on every tier.
//!
//! Bounded: nothing more is read of a side before all that it said has been carried on.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};

use sys::channel::Interest;

use super::link::Link;

/// Read at once.
const CHUNK: usize = 64 * 1024;

/// One way.
#[derive(Debug)]
struct Way {
    from: File,
    to: File,
    waiting: Vec<u8>,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Pump {
    /// In, and out.
    ways: [Way; 2],
    control: OwnedFd,
}

/// What is left of a way.
type Goes = Result<(), std::io::Error>;

impl Way {
    fn interest(&self) -> Interest<'_> {
        let write = !self.waiting.is_empty();
        Interest { fd: if write { self.to.as_fd() } else { self.from.as_fd() }, write }
    }

    /// Carries on what waits, or takes what is there.
    fn step(&mut self) -> Goes {
        let done = if self.waiting.is_empty() { self.take() } else { self.carry() };
        match done {
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => Ok(()),
            other => other,
        }
    }

    fn take(&mut self) -> Goes {
        let mut part = vec![0; CHUNK];
        let count = self.from.read(&mut part)?;
        if count == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        part.truncate(count);
        self.waiting = part;
        self.carry()
    }

    fn carry(&mut self) -> Goes {
        let count = self.to.write(&self.waiting)?;
        self.waiting.drain(..count);
        Ok(())
    }
}

impl Pump {
    /// Between the agent and a socket, none of which blocks.
    pub(super) fn new(link: Link, socket: OwnedFd, control: OwnedFd) -> Result<Self, std::io::Error> {
        let (to, from, came) = link.into_parts();
        let socket = File::from(socket);
        let inward = Way { from: socket.try_clone()?, to, waiting: Vec::new() };
        Ok(Self { ways: [inward, Way { from, to: socket, waiting: came }], control })
    }

    /// Until one side is gone. Then the other hears it, and the engine that there is nothing left to hear.
    pub(super) fn run(mut self) {
        loop {
            let [inward, outward] = &self.ways;
            let orders = Interest { fd: self.control.as_fd(), write: false };
            let Ok(ready) = sys::channel::wait(&[orders, inward.interest(), outward.interest()], None) else { return };
            let mut ready = ready.into_iter();
            if ready.next() == Some(true) && !self.obeyed() {
                return;
            }
            for (way, ready) in self.ways.iter_mut().zip(ready) {
                if ready && way.step().is_err() {
                    return;
                }
            }
        }
    }

    /// The engine ends a machine from outside, and its signals are for single programs: nothing that it says is for the agent.
    fn obeyed(&self) -> bool {
        let mut part = [0; 4096];
        match sys::channel::receive(&self.control, &mut part, true) {
            Ok(received) => received.count > 0,
            Err(error) => error.is_again(),
        }
    }
}
