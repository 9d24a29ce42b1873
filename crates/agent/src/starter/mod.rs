//! The starter: a second process of ours that starts all programs, under a Landlock layer of its own.
//!
//! Programs inherit the layer. So they can signal one another, and neither signal nor trace the agent, which stands outside of
//! it. What the starter says is not believed: a program can end it, or worse.

mod inside;
mod messages;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::files::failure::failure;
use crate::words::{Code, Exited, Failure, Program};
use messages::{News, Order};

/// SIGCONT.
const CONTINUE: i32 = 18;

/// News of a program.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// It runs, with this pid.
    Started(i32),
    /// It was not started.
    Failed(Failure),
    /// It has ended.
    Exited(Exited),
    /// Whoever was to tell is gone.
    Gone,
}

/// The agent's side of it.
#[derive(Debug, Default)]
pub(crate) struct Starter {
    link: Option<Link>,
    orders: u64,
    guarded: bool,
}

#[derive(Debug)]
struct Link {
    pid: i32,
    socket: OwnedFd,
    inbox: Vec<u8>,
    queue: VecDeque<Message>,
}

/// On its way to the starter, which may have been stopped by a program: nobody waits for it.
#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

impl Starter {
    /// Makes the process; where that fails it is tried again with the first order.
    pub(crate) fn begin() -> Self {
        let mut starter = Self::default();
        drop(starter.ensure());
        starter
    }

    /// Whether programs are kept from signalling the agent.
    pub(crate) fn guarded(&self) -> bool {
        self.guarded
    }

    fn ensure(&mut self) -> Result<&mut Link, Failure> {
        if self.link.is_none() {
            let (link, guarded) = Link::new().map_err(|errno| {
                let why = crate::files::failure::words(errno);
                failure(Code::TooMany, format!("no process could be made that starts programs (limits.pids): {why}"))
            })?;
            self.guarded = guarded;
            self.link = Some(link);
        }
        self.link.as_mut().ok_or_else(|| failure(Code::Failed, "nobody starts programs"))
    }

    /// Orders a program with its three descriptors, or with its terminal; the number under which news come.
    pub(crate) fn order(&mut self, program: Program, descriptors: Vec<OwnedFd>) -> Result<u64, Failure> {
        let id = self.orders.wrapping_add(1);
        let Program { argv, env, cwd, tty, stdin: _ } = program;
        let bytes = messages::encode(&Order { id, argv, env, cwd, tty: tty.is_some() })
            .ok_or_else(|| failure(Code::Invalid, "the program cannot be described"))?;
        let link = self.ensure()?;
        link.queue.push_back(Message { bytes, sent: 0, descriptors });
        link.send();
        self.orders = id;
        Ok(id)
    }

    /// Lets it go on, if a program has stopped it; to one that runs this is nothing.
    pub(crate) fn wake(&self) {
        if let Some(link) = &self.link {
            // It is our child and not waited for yet: the number is still its own.
            drop(sys::signals::send(link.pid, false, CONTINUE));
        }
    }

    pub(crate) fn waits<'a>(&'a self, add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        if let Some(link) = &self.link {
            let mut flags = PollFlags::IN;
            flags.set(PollFlags::OUT, !link.queue.is_empty());
            add(link.socket.as_fd(), flags);
        }
    }

    /// What it said, each with the number of the order; none = of all.
    pub(crate) fn hear(&mut self) -> Vec<(Option<u64>, Told)> {
        let Some(link) = &mut self.link else { return Vec::new() };
        link.send();
        let (mut told, lives) = link.hear();
        if !lives {
            // Ends it where it only misbehaved.
            self.link = None;
            told.push((None, Told::Gone));
        }
        told
    }
}

impl Link {
    fn new() -> Result<(Self, bool), Errno> {
        let (socket, theirs) = sys::channel::pair().map_err(|error| error.errno)?;
        let pid = sys::fork::run(|| inside::run(&theirs)).map_err(|error| error.errno)?;
        drop(theirs);
        let mut link = Self { pid, socket, inbox: Vec::new(), queue: VecDeque::new() };
        let mut part = [0; 512];
        // It has just been made by us, and started nothing yet that could keep it from answering.
        loop {
            let count = sys::channel::receive(&link.socket, &mut part, false).map_err(|error| error.errno)?.count;
            link.inbox.extend_from_slice(part.get(..count).unwrap_or_default());
            match messages::decode(&mut link.inbox) {
                Ok(Some(News::Ready { guarded })) => return Ok((link, guarded)),
                Ok(None) if count > 0 => {}
                Ok(_) | Err(()) => return Err(Errno::CHILD),
            }
        }
    }

    fn send(&mut self) {
        while let Some(message) = self.queue.front_mut() {
            let rest = message.bytes.get(message.sent..).unwrap_or_default();
            let descriptors: Vec<BorrowedFd<'_>> = message.descriptors.iter().map(OwnedFd::as_fd).collect();
            match sys::channel::send_some(&self.socket, rest, &descriptors) {
                Ok(count) => {
                    message.sent = message.sent.saturating_add(count);
                    message.descriptors.clear();
                    if message.sent >= message.bytes.len() {
                        self.queue.pop_front();
                    }
                }
                // Later; or it is gone, which the next read tells.
                Err(_) => return,
            }
        }
    }

    /// What came, and whether it lives and speaks as it should.
    fn hear(&mut self) -> (Vec<(Option<u64>, Told)>, bool) {
        let mut part = [0; 16 * 1024];
        let lives = match sys::channel::receive(&self.socket, &mut part, true) {
            Ok(received) => {
                self.inbox.extend_from_slice(part.get(..received.count).unwrap_or_default());
                received.count > 0
            }
            Err(error) => error.is_again(),
        };
        let mut told = Vec::new();
        loop {
            match messages::decode(&mut self.inbox) {
                Ok(None) => return (told, lives),
                Ok(Some(News::Started { id, pid })) if self.may_be(pid) => told.push((Some(id), Told::Started(pid))),
                Ok(Some(News::Failed { id, failure })) => told.push((Some(id), Told::Failed(failure))),
                Ok(Some(News::Exited { id, exited })) => told.push((Some(id), Told::Exited(exited))),
                Ok(Some(News::Started { .. } | News::Ready { .. })) | Err(()) => return (told, false),
            }
        }
    }

    /// Whether a program can have this pid: it is going to be signalled.
    fn may_be(&self, pid: i32) -> bool {
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        pid > 1 && pid != self.pid && pid != parent && pid != sys::caller::pid()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // It is our child and not waited for yet: the number is still its own.
        drop(sys::signals::send(self.pid, false, 9));
        if let Ok(pidfd) = sys::pidfd::open(self.pid) {
            drop(sys::pidfd::wait(pidfd));
        }
    }
}
