//! The agent's side of the process that makes starters.

use rustix::io::Errno;

use super::inside;
use super::link::Link;
use super::messages::{self, StarterMessage};
use super::process::ProcessRef;

/// SIGCONT.
const CONTINUE: i32 = 18;
const KILL: i32 = 9;

/// The process.
#[derive(Debug)]
pub(super) struct Spawner {
    pub(super) pid: i32,
    process: ProcessRef,
    pub(super) link: Link,
    /// Its starters mark their programs.
    pub(super) marks: bool,
}

impl Spawner {
    /// Makes it; and whether programs of its starters are kept from signalling the agent. `made`: so many starters were made before.
    pub(super) fn new(made: u64) -> Result<(Self, bool), Errno> {
        let (socket, theirs) = sys::channel::pair().map_err(|error| error.errno)?;
        let agent = sys::caller::pid();
        let pid = sys::fork::run(|| inside::make(&theirs, agent, made)).map_err(|error| error.errno)?;
        let process = ProcessRef::of(pid).ok_or(Errno::CHILD)?;
        drop(theirs);
        let (mut inbox, mut part) = (Vec::new(), [0; 512]);
        // It has just been made by us, and started nothing yet that could keep it from answering.
        loop {
            let count = sys::channel::receive(&socket, &mut part, false).map_err(|error| error.errno)?.count;
            inbox.extend_from_slice(part.get(..count).unwrap_or_default());
            match messages::decode(&mut inbox) {
                Ok(Some(StarterMessage::Ready { guarded, marks, pid: _ })) => {
                    return Ok((Self { pid, process, link: Link::new(socket), marks }, guarded));
                }
                Ok(None) if count > 0 => {}
                Ok(_) | Err(()) => return Err(Errno::CHILD),
            }
        }
    }

    /// Lets it go on, if a program has stopped it.
    pub(super) fn wake(&self) {
        self.process.signal(CONTINUE);
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.process.signal(KILL);
        // Or it was waited for with the others; its number is no other child's then.
        let _gone = sys::reap::wait(self.pid);
    }
}
