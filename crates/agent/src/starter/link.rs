//! The socket to a process that starts programs. Whoever holds the other end may have been stopped by a program, or be one that took
//! its place: nobody waits for it.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;

use super::messages::{self, StarterMessage};

/// Our end.
#[derive(Debug)]
pub(super) struct Link {
    socket: OwnedFd,
    inbox: Vec<u8>,
    queue: VecDeque<Message>,
}

#[derive(Debug)]
struct Message {
    bytes: Vec<u8>,
    sent: usize,
    descriptors: Vec<OwnedFd>,
}

impl Link {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self { socket, inbox: Vec::new(), queue: VecDeque::new() }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// What it waits for.
    pub(super) fn flags(&self) -> PollFlags {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.queue.is_empty());
        flags
    }

    /// Sends a message, now or later.
    pub(super) fn put(&mut self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) {
        self.queue.push_back(Message { bytes, sent: 0, descriptors });
        self.send();
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

    /// What came, and whether it lives and speaks our words. Nothing is waited for.
    pub(super) fn hear(&mut self) -> (Vec<StarterMessage>, bool) {
        self.send();
        let mut part = [0; 16 * 1024];
        let lives = match sys::channel::receive(&self.socket, &mut part, true) {
            Ok(received) => {
                self.inbox.extend_from_slice(part.get(..received.count).unwrap_or_default());
                received.count > 0
            }
            Err(error) => error.is_again(),
        };
        let mut heard = Vec::new();
        loop {
            match messages::decode(&mut self.inbox) {
                Ok(None) => return (heard, lives),
                Ok(Some(news)) => heard.push(news),
                Err(()) => return (heard, false),
            }
        }
    }
}
