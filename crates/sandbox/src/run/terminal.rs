//! The caller's terminal and the payload's own: bytes between the two, and size.
//!
//! The payload has a pseudo terminal of its own devpts, so nothing that it does to it (modes, foreground group, TIOCSTI)
//! reaches the caller's. What it *prints* does reach the caller's screen, as with ssh(1); sequences that would make a
//! terminal answer or store text (OSC 52, title reports) are taken out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::termios::Winsize;
use sys::shared::SharedFd;

use super::options::Screen;
use super::streams::{Budget, Last, ReadBuffer};

/// What stands where output was cut; a raw terminal needs the CR.
const CUT: &[u8] = b"\r\n[fumehood: `limits.output` is reached, nothing more is shown]\r\n";

/// The two ends.
#[derive(Debug)]
pub(super) struct Terminal {
    master: Option<OwnedFd>,
    input: Option<SharedFd>,
    output: SharedFd,
    to_payload: VecDeque<u8>,
    to_caller: VecDeque<u8>,
    filter: Filter,
    last: Last,
    /// Bytes that were not shown, for `limits.output`.
    dropped: u64,
}

impl Terminal {
    /// Between the payload's terminal and the caller's.
    ///
    /// # Errors
    /// EBADF.
    pub(super) fn new(master: OwnedFd, Screen { input, output, size: _ }: Screen) -> std::io::Result<Self> {
        sys::channel::set_nonblocking(&master).map_err(|e| std::io::Error::from(e.errno))?;
        Ok(Self {
            master: Some(master),
            input: Some(SharedFd::input(input)),
            output: SharedFd::output(output),
            to_payload: VecDeque::new(),
            to_caller: VecDeque::new(),
            filter: Filter::default(),
            last: Last::default(),
            dropped: 0,
        })
    }

    /// Gives the payload's terminal another size.
    pub(super) fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // A terminal that is gone shows at the next read.
        if let Some(master) = &self.master
            && rustix::termios::tcsetwinsize(master, size).is_err()
        {}
    }

    /// What to wait for: (descriptor, for writing).
    pub(super) fn wants(&self) -> impl Iterator<Item = (BorrowedFd<'_>, bool)> {
        let master = self.master.as_ref().map(AsFd::as_fd);
        let input = self.input.as_ref().map(AsFd::as_fd);
        let behind = !self.to_caller.is_empty();
        [
            master.filter(|_| !behind).map(|fd| (fd, false)),
            input.filter(|_| self.to_payload.is_empty()).map(|fd| (fd, false)),
            master.filter(|_| !self.to_payload.is_empty()).map(|fd| (fd, true)),
            behind.then(|| (self.output.as_fd(), true)),
        ]
        .into_iter()
        .flatten()
    }

    /// Moves what can be moved without waiting.
    pub(super) fn serve(&mut self, budget: &mut Budget, buffer: &mut ReadBuffer) {
        self.read_master(budget, buffer);
        if self.to_payload.is_empty()
            && let Some(input) = &self.input
        {
            match buffer.read_shared(input) {
                Ok([]) => self.input = None,
                Ok(bytes) => self.to_payload.extend(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.input = None,
            }
        }
        if let Some(master) = &self.master {
            hand_on(|bytes| rustix::io::write(master, bytes), &mut self.to_payload, None);
        }
        self.show();
    }

    /// Shows some of it; whether somebody is there who sees it.
    fn show(&mut self) -> bool {
        self.to_caller.is_empty()
            || hand_on(|bytes| self.output.write(bytes), &mut self.to_caller, Some(&mut self.last))
    }

    /// Whether a terminal that stands still could hold us up.
    pub(super) fn may_block(&self) -> bool {
        self.output.may_block() || self.input.as_ref().is_some_and(SharedFd::may_block)
    }

    fn read_master(&mut self, budget: &mut Budget, buffer: &mut ReadBuffer) -> bool {
        let Some(master) = &self.master else { return false };
        if !self.to_caller.is_empty() {
            return false;
        }
        match buffer.read(master) {
            Ok(bytes) if !bytes.is_empty() => {
                let kept = budget.take(bytes.len());
                self.to_caller.extend(self.filter.pass(bytes.get(..kept).unwrap_or_default()));
                let dropped = bytes.len().saturating_sub(kept) as u64;
                // Once, where it happens: a screen on which nothing moves says nothing.
                if dropped > 0 && self.dropped == 0 {
                    self.to_caller.extend(CUT);
                }
                self.dropped = self.dropped.saturating_add(dropped);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            // EIO: nobody has the other side open any more.
            Ok(_) | Err(_) => {
                self.master = None;
                false
            }
        }
    }

    /// Bytes that were not shown, for `limits.output`.
    pub(super) const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The last byte that the caller was shown.
    pub(super) const fn last(&self) -> Last {
        self.last
    }

    /// Shows what is left. `waits` waits until a slow terminal takes more, and says whether to go on.
    pub(super) fn finish(
        &mut self,
        budget: &mut Budget,
        buffer: &mut ReadBuffer,
        waits: &mut dyn FnMut(BorrowedFd<'_>) -> bool,
    ) {
        loop {
            while !self.to_caller.is_empty() {
                if !waits(self.output.as_fd()) || !self.show() {
                    self.to_caller.clear();
                }
            }
            if !self.read_master(budget, buffer) {
                return;
            }
        }
    }
}

/// Writes some of it; whether the reader is still there.
fn hand_on(
    write: impl FnOnce(&[u8]) -> rustix::io::Result<usize>,
    bytes: &mut VecDeque<u8>,
    last: Option<&mut Last>,
) -> bool {
    let (front, _) = bytes.as_slices();
    let chunk = front.get(..front.len().min(4096)).unwrap_or_default();
    match write(chunk) {
        Ok(count) => {
            last.into_iter().for_each(|last| last.note(chunk.get(..count).unwrap_or_default()));
            bytes.drain(..count);
            true
        }
        Err(Errno::AGAIN | Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Takes operating system commands (OSC: title, clipboard, colours) and device control strings out of what is shown:
/// they store text in the terminal or make it answer, and an answer is typed into the caller's shell after the run.
#[derive(Debug, Default)]
struct Filter {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    Escape,
    String,
    StringEscape,
    Csi,
}

impl Filter {
    fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        for byte in bytes {
            self.state = match (self.state, *byte) {
                (State::Text, 0x1b) => State::Escape,
                (State::Text, other) => {
                    out.push(other);
                    State::Text
                }
                // OSC, DCS, APC, PM, SOS
                (State::Escape, b']' | b'P' | b'_' | b'^' | b'X') => State::String,
                (State::Escape, b'[') => {
                    out.extend([0x1b, b'[']);
                    State::Csi
                }
                // DECID asks the terminal to identify itself.
                (State::Escape, b'Z') => State::Text,
                (State::Escape, other) => {
                    out.extend([0x1b, other]);
                    State::Text
                }
                (State::String, 0x07) => State::Text,
                (State::String, 0x1b) => State::StringEscape,
                (State::String, _) => State::String,
                (State::StringEscape, b'\\') => State::Text,
                (State::StringEscape, _) => State::String,
                (State::Csi, other) => {
                    out.push(other);
                    if (0x40..=0x7e).contains(&other) { State::Text } else { State::Csi }
                }
            };
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::Filter;

    #[test]
    fn the_clipboard_and_the_title_cannot_be_written_and_colours_pass() {
        let mut filter = Filter::default();
        assert_eq!(filter.pass(b"a\x1b]52;c;ZXZpbA==\x07b\x1b]0;title\x1b\\c"), b"abc");
        assert_eq!(filter.pass(b"\x1b[31mred\x1b[0m"), b"\x1b[31mred\x1b[0m");
    }

    #[test]
    fn a_sequence_that_is_split_over_two_reads_is_still_taken_out() {
        let mut filter = Filter::default();
        assert_eq!(filter.pass(b"a\x1b]52;c;"), b"a");
        assert_eq!(filter.pass(b"x\x1b"), b"");
        assert_eq!(filter.pass(b"\\b"), b"b");
    }
}
