//! The agent's side of the process that makes starters.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use super::inside;
use super::link::Link;
use super::messages::{self, StarterMessage};

/// SIGCONT.
const CONTINUE: i32 = 18;
const KILL: i32 = 9;

/// The process.
#[derive(Debug)]
pub(super) struct Spawner {
    pub(super) pid: i32,
    pidfd: OwnedFd,
    pub(super) link: Link,
}

impl Spawner {
    /// Makes it; and whether programs of its starters are kept from signalling the agent.
    pub(super) fn new() -> Result<(Self, bool), Errno> {
        let (socket, theirs) = sys::channel::pair().map_err(|error| error.errno)?;
        let pid = sys::fork::run(|| inside::make(&theirs)).map_err(|error| error.errno)?;
        let pidfd = sys::pidfd::open(pid).map_err(|error| error.errno)?;
        drop(theirs);
        let (mut inbox, mut part) = (Vec::new(), [0; 512]);
        // It has just been made by us, and started nothing yet that could keep it from answering.
        loop {
            let count = sys::channel::receive(&socket, &mut part, false).map_err(|error| error.errno)?.count;
            inbox.extend_from_slice(part.get(..count).unwrap_or_default());
            match messages::decode(&mut inbox) {
                Ok(Some(StarterMessage::Ready { guarded, pid: _ })) => {
                    return Ok((Self { pid, pidfd, link: Link::new(socket) }, guarded));
                }
                Ok(None) if count > 0 => {}
                Ok(_) | Err(()) => return Err(Errno::CHILD),
            }
        }
    }

    /// Lets it go on, if a program has stopped it.
    pub(super) fn wake(&self) {
        drop(sys::pidfd::send_signal(&self.pidfd, CONTINUE));
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        drop(sys::pidfd::send_signal(&self.pidfd, KILL));
        // Or it was waited for with the others.
        drop(sys::pidfd::wait(&self.pidfd));
    }
}
