//! The caller's terminal and the payload's own: bytes between the two, size, and the way back to normal.
//!
//! The payload has a pseudo terminal of its own devpts, so nothing that it does to it (modes, foreground group, TIOCSTI)
//! reaches the caller's. What it *prints* does reach the caller's screen, as with ssh(1); sequences that would make a
//! terminal answer or store text (OSC 52, title reports) are taken out.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use policy::{ClauseId, Loaded};
use rustix::io::Errno;
use rustix::termios::Termios;

use super::streams::{Budget, Last, Room};
use crate::cli::{Request, What, World};
use crate::fault::{Fault, show_text};
use crate::ui::Failure;

/// Whether the caller has the terminal that the policy wants to be matched inside (`process.tty`, which `-t` sets).
///
/// # Errors
/// 125: there is none, or a report is wanted that would hold both streams apart.
pub(super) fn there(loaded: &Loaded, request: &Request, world: &World) -> Result<(), Failure> {
    if !loaded.policy.process.tty || matches!(request.what, What::Nothing) {
        return Ok(());
    }
    let fault = |id, why: &str, fix: &str| {
        Err(Failure::own(Fault {
            id,
            what: "`process.tty` asks for a terminal inside".to_owned(),
            place: show_text(loaded.origins.of(ClauseId::ProcessTty)),
            why: why.to_owned(),
            fix: fix.to_owned(),
        }))
    };
    if request.json {
        let why = "a terminal mixes stdout and stderr, and `--json` holds them apart";
        return fault("usage/two-flags", why, "`--report FILE` instead of `--json`, or `--set process.tty=false`");
    }
    if !world.stdin_terminal {
        return fault("usage/no-terminal", "stdin is not one", "call it from a terminal, or `--set process.tty=false`");
    }
    Ok(())
}

/// The two ends.
#[derive(Debug)]
pub(super) struct Terminal {
    master: Option<OwnedFd>,
    input: Option<OwnedFd>,
    output: OwnedFd,
    restore: Option<Termios>,
    to_payload: VecDeque<u8>,
    to_caller: VecDeque<u8>,
    filter: Filter,
    last: Last,
}

impl Terminal {
    /// Puts the caller's terminal into raw mode until this is dropped.
    ///
    /// # Errors
    /// `input` is no terminal.
    pub(super) fn new(master: OwnedFd, input: OwnedFd, output: OwnedFd) -> std::io::Result<Self> {
        let before = rustix::termios::tcgetattr(&input)?;
        let mut raw = before.clone();
        raw.make_raw();
        rustix::termios::tcsetattr(&input, rustix::termios::OptionalActions::Flush, &raw)?;
        sys::channel::set_nonblocking(&master).map_err(|e| std::io::Error::from(e.errno))?;
        Ok(Self {
            master: Some(master),
            input: Some(input),
            output,
            restore: Some(before),
            to_payload: VecDeque::new(),
            to_caller: VecDeque::new(),
            filter: Filter::default(),
            last: Last::default(),
        })
    }

    /// Rows and columns of a terminal.
    #[must_use]
    pub(super) fn size_of(fd: impl AsFd) -> Option<(u16, u16)> {
        rustix::termios::tcgetwinsize(fd).ok().map(|size| (size.ws_row, size.ws_col))
    }

    /// Gives the payload's terminal the size of the caller's.
    pub(super) fn follow_size(&self) {
        if let (Some(master), Some(input)) = (&self.master, &self.input)
            && let Ok(size) = rustix::termios::tcgetwinsize(input)
        {
            // A terminal that is gone shows at the next read.
            if rustix::termios::tcsetwinsize(master, size).is_err() {}
        }
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
    pub(super) fn serve(&mut self, budget: &mut Budget, room: &mut Room) {
        self.read_master(budget, room);
        if self.to_payload.is_empty()
            && let Some(input) = &self.input
            && readable(input.as_fd())
        {
            match room.read(input) {
                Ok([]) => self.input = None,
                Ok(bytes) => self.to_payload.extend(bytes),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.input = None,
            }
        }
        if let Some(master) = &self.master {
            hand_on(master, &mut self.to_payload, None);
        }
        if !self.to_caller.is_empty() && writable(self.output.as_fd()) {
            hand_on(&self.output, &mut self.to_caller, Some(&mut self.last));
        }
    }

    fn read_master(&mut self, budget: &mut Budget, room: &mut Room) -> bool {
        let Some(master) = &self.master else { return false };
        if !self.to_caller.is_empty() {
            return false;
        }
        match room.read(master) {
            Ok(bytes) if !bytes.is_empty() => {
                let kept = budget.take(bytes.len());
                self.to_caller.extend(self.filter.pass(bytes.get(..kept).unwrap_or_default()));
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

    /// The last byte that the caller was shown.
    pub(super) const fn last(&self) -> Last {
        self.last
    }

    /// Shows what is left.
    pub(super) fn finish(&mut self, budget: &mut Budget, room: &mut Room) {
        loop {
            while !self.to_caller.is_empty() {
                if !hand_on(&self.output, &mut self.to_caller, Some(&mut self.last)) {
                    self.to_caller.clear();
                }
            }
            if !self.read_master(budget, room) {
                return;
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let (Some(input), Some(before)) = (&self.input, &self.restore) {
            // The caller's terminal may be gone; then there is nothing to restore.
            if rustix::termios::tcsetattr(input, rustix::termios::OptionalActions::Drain, before).is_err() {}
        }
    }
}

fn readable(fd: BorrowedFd<'_>) -> bool {
    sys::channel::wait(&[sys::channel::Interest { fd, write: false }], Some(std::time::Duration::ZERO))
        .is_ok_and(|ready| ready.first() == Some(&true))
}

fn writable(fd: BorrowedFd<'_>) -> bool {
    sys::channel::wait(&[sys::channel::Interest { fd, write: true }], Some(std::time::Duration::ZERO))
        .is_ok_and(|ready| ready.first() == Some(&true))
}

/// Writes some of it; whether the reader is still there.
fn hand_on(to: &OwnedFd, bytes: &mut VecDeque<u8>, last: Option<&mut Last>) -> bool {
    let (front, _) = bytes.as_slices();
    let chunk = front.get(..front.len().min(4096)).unwrap_or_default();
    match rustix::io::write(to, chunk) {
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
