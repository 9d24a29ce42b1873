//! What is on the way: one queue to the supervisor, and what each stream may still send either way.

use std::os::fd::AsFd;

use rustix::io::Errno;
use serde::Serialize;

use crate::frame::{self, Frame, Kind, Lane, MAX_DATA, WINDOW};

/// Nothing more is produced while so much waits to be sent, bytes.
pub(crate) const FULL: usize = 1024 * 1024;
/// Nothing more is taken in while so much waits to be sent, bytes: also answers to bad requests are bounded.
const STUCK: usize = 2 * FULL;

/// Frames on their way out.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    bytes: Vec<u8>,
    sent: usize,
}

impl Outbox {
    fn waiting(&self) -> usize {
        self.bytes.len().saturating_sub(self.sent)
    }

    /// Whether tasks may produce.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting() < FULL
    }

    /// Whether requests may come in.
    pub(crate) fn takes_requests(&self) -> bool {
        self.waiting() < STUCK
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Appends a frame; false where it is too long for its kind.
    #[must_use]
    pub(crate) fn put(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> bool {
        frame::put(&mut self.bytes, Frame { kind, stream, payload })
    }

    /// Sends what the other side takes now.
    ///
    /// # Errors
    /// EPIPE, ECONNRESET: it is gone.
    pub(crate) fn flush(&mut self, to: impl AsFd) -> Result<(), Errno> {
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&to, rest) {
                Ok(0) => return Err(Errno::PIPE),
                Ok(count) => self.sent = self.sent.saturating_add(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
            // What one burst needed is not kept for ever.
            self.bytes.shrink_to(FULL / 8);
        } else if self.sent > FULL {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }
}

/// What a stream may send, and what it was sent.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Bytes of data that we may send.
    credit: u32,
    /// Bytes of data that the other side may send.
    window: u32,
    /// Bytes that were taken and not told as credit yet.
    owed: u32,
    input: Vec<u8>,
    taken: usize,
    /// The other side has no more data.
    pub(crate) eof: bool,
}

impl Flow {
    pub(crate) fn new() -> Self {
        Self { credit: WINDOW, window: WINDOW, owed: 0, input: Vec::new(), taken: 0, eof: false }
    }

    pub(crate) fn has_credit(&self) -> bool {
        self.credit > 0
    }

    pub(crate) fn has_input(&self) -> bool {
        self.taken < self.input.len()
    }

    pub(crate) fn may_send(&mut self, more: u32) {
        self.credit = self.credit.saturating_add(more);
    }

    /// Keeps data that came; false where it is more than was allowed.
    #[must_use]
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> bool {
        let Some(left) = u32::try_from(bytes.len()).ok().and_then(|length| self.window.checked_sub(length)) else {
            return false;
        };
        self.window = left;
        self.input.extend_from_slice(bytes);
        true
    }
}

/// One stream, as its task sees it.
pub(crate) struct Io<'a> {
    pub(crate) stream: u32,
    pub(crate) flow: &'a mut Flow,
    pub(crate) out: &'a mut Outbox,
    /// Space for whoever reads something; holds nothing between two steps.
    pub(crate) scratch: &'a mut Vec<u8>,
}

impl Io<'_> {
    /// Bytes of data that one frame may have now; 0 = wait.
    pub(crate) fn may_send(&self) -> usize {
        if !self.out.has_room() {
            return 0;
        }
        usize::try_from(self.flow.credit).unwrap_or(usize::MAX).min(MAX_DATA - 1)
    }

    /// Sends data, no more than [`Io::may_send`] said.
    pub(crate) fn data(&mut self, lane: Lane, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        if !bytes.is_empty() && frame::put_data(&mut self.out.bytes, self.stream, lane, bytes) {
            self.flow.credit = self.flow.credit.saturating_sub(length);
        }
    }

    /// Reads at most `most` bytes and what may be sent, with `read`, and sends them; how many.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn data_from(
        &mut self,
        lane: Lane,
        most: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Result<usize, Errno> {
        let most = most.min(self.may_send());
        let mut scratch = std::mem::take(self.scratch);
        let count = read(scratch.get_mut(..most).unwrap_or_default());
        if let Ok(count) = count {
            self.data(lane, scratch.get(..count).unwrap_or_default());
        }
        *self.scratch = scratch;
        count
    }

    /// Sends what is known at once.
    pub(crate) fn reply(&mut self, words: &impl Serialize) {
        self.send_json(Kind::Reply, words);
    }

    /// Sends an event.
    pub(crate) fn event(&mut self, words: &impl Serialize) {
        self.send_json(Kind::Event, words);
    }

    fn send_json(&mut self, kind: Kind, words: &impl Serialize) {
        // Texts and numbers of ours: they can be written, and each sender keeps within the bound.
        let sent = serde_json::to_vec(words).is_ok_and(|bytes| self.out.put(kind, self.stream, &bytes));
        debug_assert!(sent, "an event or a reply is too long");
    }

    /// Says that no more data will come from us.
    pub(crate) fn eof(&mut self) {
        let sent = self.out.put(Kind::Eof, self.stream, &[]);
        debug_assert!(sent);
    }

    /// Data that came and was not taken yet.
    pub(crate) fn input(&self) -> &[u8] {
        self.flow.input.get(self.flow.taken..).unwrap_or_default()
    }

    /// Whether all data came and was taken.
    pub(crate) fn is_over(&self) -> bool {
        self.flow.eof && self.input().is_empty()
    }

    /// Takes data, and lets the other side send as much again.
    pub(crate) fn take(&mut self, count: usize) {
        let count = count.min(self.input().len());
        self.flow.taken = self.flow.taken.saturating_add(count);
        let all = self.input().is_empty();
        if all {
            self.flow.input.clear();
            self.flow.taken = 0;
        } else if self.flow.taken > MAX_DATA {
            self.flow.input.drain(..self.flow.taken);
            self.flow.taken = 0;
        }
        self.flow.owed = self.flow.owed.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        // Not for each byte that is typed: the sender has three quarters left.
        if self.flow.owed >= WINDOW / 4 && !self.flow.eof {
            let owed = std::mem::take(&mut self.flow.owed);
            self.flow.window = self.flow.window.saturating_add(owed);
            let sent = self.out.put(Kind::Credit, self.stream, &owed.to_le_bytes());
            debug_assert!(sent);
        }
    }

    /// Takes all.
    pub(crate) fn drop_input(&mut self) {
        self.take(usize::MAX);
    }
}
