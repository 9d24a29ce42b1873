//! What the payload prints: passed on or kept, bounded while it streams.
//!
//! The supervisor must never block on a slow reader (a blocked supervisor enforces no limit), so a sink is written only when `poll` says
//! that it takes data, at most one page at a time (POLLOUT on a pipe promises room for `PIPE_BUF` bytes, pipe(7)), and by a call that does
//! not wait either: both streams may lead to one pipe, and other processes write to it as well ([`SharedFd`]).

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use policy::Bytes;
use policy::value::Over;
use rustix::io::Errno;
use sys::shared::SharedFd;

use super::options::{Sink as To, Stdin};
use super::terminal::Terminal;
use super::violations::limit_of;

/// Most bytes written at once: a pipe takes them whole, or none.
const PAGE: usize = 4096;
/// Read size; also the most that waits for a slow reader.
const CHUNK: usize = 64 * 1024;
/// Bytes remembered for hints.
const RECENT: usize = 16 * 1024;

/// Where a read puts its bytes. Only what was read is ever touched: a run that prints nothing pays for no page of it.
#[derive(Debug)]
pub(super) struct ReadBuffer(Vec<u8>);

impl ReadBuffer {
    /// For one read of up to 64 KiB after the other.
    #[must_use]
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(CHUNK))
    }

    /// Reads once; nothing at the end.
    ///
    /// # Errors
    /// As read(2).
    pub(super) fn read(&mut self, from: impl AsFd) -> rustix::io::Result<&[u8]> {
        self.0.clear();
        rustix::io::read(from, rustix::buffer::spare_capacity(&mut self.0))?;
        Ok(&self.0)
    }

    /// The same of what the caller gave.
    ///
    /// # Errors
    /// As read(2); EAGAIN where it would wait.
    pub(super) fn read_shared(&mut self, from: &SharedFd) -> rustix::io::Result<&[u8]> {
        self.0.clear();
        from.read(rustix::buffer::spare_capacity(&mut self.0))?;
        Ok(&self.0)
    }
}

/// The last byte that was handed on to the caller, and when: our own words begin on a line of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Last(Option<(Instant, u8)>);

impl Last {
    /// These bytes were handed on.
    pub(super) fn note(&mut self, bytes: &[u8]) {
        if let Some(byte) = bytes.last() {
            self.0 = Some((Instant::now(), *byte));
        }
    }

    /// Whether what stands there has no end of line yet.
    #[must_use]
    pub fn in_a_line(self) -> bool {
        self.0.is_some_and(|(_, byte)| byte != b'\n')
    }
}

/// The shared budget of both streams.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that may still be kept at the head.
    head: u64,
    /// Bytes kept at the tail of each stream.
    tail: usize,
    /// Bytes produced so far, both streams.
    produced: u64,
    limit: Option<u64>,
}

impl Budget {
    /// `limit` bytes together; `None` = all.
    #[must_use]
    pub(super) fn new(limit: Option<u64>) -> Self {
        // An eighth is held back for the two tails: the end of an output usually says why it ended.
        let tail = limit.map_or(0, |bytes| usize::try_from((bytes / 16).min(64 * 1024)).unwrap_or(0));
        let head = limit.map_or(u64::MAX, |bytes| bytes.saturating_sub(2 * tail as u64));
        Self { head, tail, produced: 0, limit }
    }

    /// Bytes produced so far.
    #[must_use]
    pub(super) const fn produced(&self) -> u64 {
        self.produced
    }

    /// Counts `bytes` more and tells how many of them are kept; for a terminal, which has no tail.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        self.produced = self.produced.saturating_add(bytes as u64);
        let kept = usize::try_from(self.head.min(bytes as u64)).unwrap_or(bytes);
        if self.limit.is_some() {
            self.head = self.head.saturating_sub(kept as u64);
        }
        kept
    }

    /// Whether more than the limit has been produced.
    #[must_use]
    pub(super) fn exceeded(&self) -> bool {
        self.limit.is_some_and(|limit| self.produced > limit)
    }

    /// That more was produced than `limits.output`, in words, where that ends the run.
    pub(super) fn passed(&self, output: Option<(Bytes, Over)>) -> Option<String> {
        let (limit, _) = output.filter(|(_, over)| *over == Over::Kill && self.exceeded())?;
        Some(format!("output passed {}", limit_of(Some(limit))))
    }
}

/// Where a stream goes.
#[derive(Debug)]
enum Sink {
    /// To a descriptor of the caller.
    Pass(SharedFd),
    /// Into memory, for the JSON report.
    Keep(Vec<u8>),
    /// The reader went away.
    Closed,
}

/// One of the payload's streams.
#[derive(Debug)]
pub(super) struct Stream {
    source: Option<OwnedFd>,
    sink: Sink,
    pending: VecDeque<u8>,
    tail: VecDeque<u8>,
    dropped: u64,
    /// The last bytes, whatever became of them: error texts are read for hints.
    recent: VecDeque<u8>,
    lost: Option<Errno>,
    last: Last,
}

/// What was kept of a stream.
#[derive(Clone, Debug, Default)]
pub struct CapturedStream {
    /// Head and tail, in order.
    pub bytes: Vec<u8>,
    /// Bytes dropped between them.
    pub dropped: u64,
    /// Offset in `bytes` where they were dropped.
    pub cut_at: Option<usize>,
}

impl Stream {
    /// Carries what comes from `source` to where the caller wants it.
    #[must_use]
    pub(super) fn new(source: OwnedFd, to: To) -> Self {
        let sink = match to {
            To::Keep => Sink::Keep(Vec::new()),
            To::Descriptor(fd) => Sink::Pass(SharedFd::output(fd)),
        };
        Self {
            source: Some(source),
            sink,
            pending: VecDeque::new(),
            tail: VecDeque::new(),
            dropped: 0,
            recent: VecDeque::new(),
            lost: None,
            last: Last::default(),
        }
    }

    /// The descriptor to wait on for data; `None` while the reader is behind, or at the end.
    #[must_use]
    pub(super) fn wants_read(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { self.source.as_ref().map(AsFd::as_fd) } else { None }
    }

    /// The descriptor to wait on for room.
    #[must_use]
    pub(super) fn wants_write(&self) -> Option<BorrowedFd<'_>> {
        match &self.sink {
            Sink::Pass(fd) if !self.pending.is_empty() => Some(fd.as_fd()),
            Sink::Pass(_) | Sink::Keep(_) | Sink::Closed => None,
        }
    }

    /// Takes what the payload wrote. Returns whether anything was read.
    pub(super) fn read(&mut self, budget: &mut Budget, buffer: &mut ReadBuffer) -> bool {
        let Some(source) = &self.source else { return false };
        match buffer.read(source) {
            Ok([]) | Err(Errno::IO) => {
                self.source = None;
                false
            }
            Ok(bytes) => {
                self.accept(budget, bytes);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                self.source = None;
                false
            }
        }
    }

    fn accept(&mut self, budget: &mut Budget, bytes: &[u8]) {
        budget.produced = budget.produced.saturating_add(bytes.len() as u64);
        let head = if self.tail.is_empty() && self.dropped == 0 {
            usize::try_from(budget.head.min(bytes.len() as u64)).unwrap_or(bytes.len())
        } else {
            0
        };
        let (now, later) = bytes.split_at_checked(head).unwrap_or((bytes, &[]));
        if budget.limit.is_some() {
            budget.head = budget.head.saturating_sub(now.len() as u64);
        }
        match &mut self.sink {
            Sink::Pass(_) => self.pending.extend(now),
            Sink::Keep(kept) => kept.extend_from_slice(now),
            Sink::Closed => {}
        }
        self.recent.extend(bytes);
        let old = self.recent.len().saturating_sub(RECENT);
        self.recent.drain(..old);
        self.tail.extend(later);
        let excess = self.tail.len().saturating_sub(budget.tail);
        self.tail.drain(..excess);
        self.dropped = self.dropped.saturating_add(excess as u64);
    }

    /// Hands on what waits, without blocking. When the reader is gone the payload's pipe is closed too, so that it
    /// sees SIGPIPE as it would without us.
    pub(super) fn write(&mut self) {
        let Sink::Pass(fd) = &self.sink else { return };
        let (front, _) = self.pending.as_slices();
        let chunk = front.get(..front.len().min(PAGE)).unwrap_or_default();
        match fd.write(chunk) {
            Ok(count) => {
                self.last.note(chunk.get(..count).unwrap_or_default());
                self.pending.drain(..count);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => {
                // A reader that went away, or a terminal that was closed, has seen what it wanted.
                self.lose((!matches!(errno, Errno::PIPE | Errno::IO)).then_some(errno));
            }
        }
    }

    /// Whether a reader who stands still could hold us up.
    pub(super) fn may_block(&self) -> bool {
        matches!(&self.sink, Sink::Pass(fd) if fd.may_block())
    }

    /// Why the rest could not be handed on, e.g. a full disk.
    pub(super) const fn lost(&self) -> Option<Errno> {
        self.lost
    }

    /// The last byte that was handed on.
    pub(super) const fn last(&self) -> Last {
        self.last
    }

    /// Reads to the end and hands everything on; call it when no writer is left. `waits` waits until a slow reader takes
    /// more, and says whether to go on: somebody may have had enough of waiting.
    pub(super) fn finish(
        &mut self,
        budget: &mut Budget,
        buffer: &mut ReadBuffer,
        waits: &mut dyn FnMut(BorrowedFd<'_>) -> bool,
    ) {
        loop {
            self.hand_on(waits);
            if !self.read(budget, buffer) {
                break;
            }
        }
        if let Sink::Pass(_) = &self.sink {
            if self.dropped > 0 {
                // Where it was cut: head and tail would read as one.
                self.pending.extend(format!("\n[fumehood: {} bytes were cut here]\n", self.dropped).as_bytes());
            }
            self.pending.extend(&self.tail);
            self.hand_on(waits);
        }
        self.source = None;
    }

    fn hand_on(&mut self, waits: &mut dyn FnMut(BorrowedFd<'_>) -> bool) {
        while let Some(fd) = self.wants_write() {
            if waits(fd) {
                self.write();
            } else {
                self.lose(Some(Errno::INTR));
            }
        }
    }

    /// Hands nothing on any more.
    fn lose(&mut self, why: Option<Errno>) {
        self.lost = why;
        self.sink = Sink::Closed;
        self.pending.clear();
        self.source = None;
    }

    /// What was kept, for the report.
    #[must_use]
    pub(super) fn into_kept(self) -> CapturedStream {
        let Sink::Keep(mut bytes) = self.sink else {
            return CapturedStream { dropped: self.dropped, ..CapturedStream::default() };
        };
        let cut_at = (self.dropped > 0).then_some(bytes.len());
        bytes.extend(self.tail);
        CapturedStream { bytes, dropped: self.dropped, cut_at }
    }

    /// The last bytes of the stream.
    #[must_use]
    pub(super) fn hints(&mut self) -> &[u8] {
        self.recent.make_contiguous()
    }
}

/// The caller's standard input on its way in.
#[derive(Debug)]
pub(super) struct Input {
    source: Option<SharedFd>,
    to: Option<OwnedFd>,
    pending: VecDeque<u8>,
}

impl Input {
    /// From the caller to the payload's pipe `to`, which does not block.
    #[must_use]
    pub(super) fn new(from: Stdin, to: OwnedFd) -> Self {
        let (source, pending) = match from {
            Stdin::Nothing => (None, VecDeque::new()),
            Stdin::Bytes(bytes) => (None, VecDeque::from(bytes)),
            Stdin::Descriptor(fd) => (Some(SharedFd::input(fd)), VecDeque::new()),
        };
        let mut input = Self { source, to: Some(to), pending };
        input.close_at_end();
        input
    }

    /// The descriptor to wait on for data.
    #[must_use]
    pub(super) fn wants_read(&self) -> Option<BorrowedFd<'_>> {
        match (&self.source, &self.to) {
            (Some(fd), Some(_)) if self.pending.is_empty() => Some(fd.as_fd()),
            (Some(_) | None, Some(_) | None) => None,
        }
    }

    /// The descriptor to wait on for room.
    #[must_use]
    pub(super) fn wants_write(&self) -> Option<BorrowedFd<'_>> {
        if self.pending.is_empty() { None } else { self.to.as_ref().map(AsFd::as_fd) }
    }

    /// Whether a writer who stands still could hold us up.
    pub(super) fn may_block(&self) -> bool {
        self.source.as_ref().is_some_and(SharedFd::may_block)
    }

    /// Takes what the caller gave; at its end the payload sees the end.
    pub(super) fn read(&mut self, buffer: &mut ReadBuffer) {
        let Some(source) = &self.source else { return };
        match buffer.read_shared(source) {
            Ok([]) => self.source = None,
            Ok(bytes) => self.pending.extend(bytes),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.source = None,
        }
        self.close_at_end();
    }

    /// Hands on what waits; a payload that closed its input ends the flow.
    pub(super) fn write(&mut self) {
        let Some(to) = &self.to else { return };
        let (front, _) = self.pending.as_slices();
        match rustix::io::write(to, front) {
            Ok(count) => {
                self.pending.drain(..count);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => {
                self.pending.clear();
                self.to = None;
                self.source = None;
            }
        }
        self.close_at_end();
    }

    /// Closes the payload's end once there is nothing more to hand on.
    fn close_at_end(&mut self) {
        if self.source.is_none() && self.pending.is_empty() {
            self.to = None;
        }
    }
}

/// What goes in and out of the payload.
#[derive(Debug)]
pub(super) struct StdStreams {
    /// Its stdin.
    pub(super) input: Option<Input>,
    /// Its stdout and stderr.
    pub(super) streams: Vec<Stream>,
    /// Its terminal, instead.
    pub(super) terminal: Option<Terminal>,
    /// The socket to it, until its caller has it.
    pub(super) socket: Option<OwnedFd>,
    /// Their budget.
    pub(super) budget: Budget,
}

impl StdStreams {
    /// Whether somebody who stands still on the caller's side could hold us up.
    pub(super) fn may_block(&self) -> bool {
        self.streams.iter().any(Stream::may_block)
            || self.input.as_ref().is_some_and(Input::may_block)
            || self.terminal.as_ref().is_some_and(Terminal::may_block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn produced(limit: u64, size: usize) -> (CapturedStream, Budget) {
        let (read, write) = rustix::pipe::pipe().unwrap();
        let writer = std::thread::spawn(move || {
            let bytes: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let mut rest = bytes.as_slice();
            while !rest.is_empty() {
                let n = rustix::io::write(&write, rest).unwrap();
                rest = &rest[n..];
            }
        });
        let mut budget = Budget::new(Some(limit));
        let mut stream = Stream::new(read, To::Keep);
        stream.finish(&mut budget, &mut ReadBuffer::new(), &mut |_| true);
        writer.join().unwrap();
        (stream.into_kept(), budget)
    }

    #[test]
    fn output_below_the_limit_is_kept_whole() {
        let (kept, budget) = produced(100_000, 90_000);
        assert_eq!(kept.bytes.len(), 90_000);
        assert_eq!((kept.dropped, kept.cut_at, budget.exceeded()), (0, None, false));
    }

    #[test]
    fn output_past_the_limit_keeps_head_and_tail_and_counts_the_rest() {
        let (kept, budget) = produced(64_000, 1_000_000);
        assert!(kept.bytes.len() <= 64_000);
        assert_eq!(kept.bytes.len() as u64 + kept.dropped, 1_000_000);
        assert_eq!(kept.bytes[0], 0);
        assert_eq!(*kept.bytes.last().unwrap(), u8::try_from(999_999 % 251).unwrap());
        assert!(budget.exceeded());
        assert_eq!(kept.cut_at, Some(64_000 - 2 * 4_000));
        // All of it was read when the program had ended: that ends the run as much as what is read before.
        let over = |over| budget.passed(Some((Bytes(64_000), over)));
        assert_eq!((over(Over::Kill).is_some(), over(Over::Cut), budget.passed(None)), (true, None, None));
    }
}
