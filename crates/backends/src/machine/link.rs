//! The line to the agent in a machine: its protocol over the emulator's standard streams.
//!
//! What comes over it is hostile from *go* on, and bounded always.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use agent::frame::{self, Frame, Kind, Lane, WINDOW};
use agent::machine::{Begin, ORDERS, Order, SeedReply, Waits};
use agent::words::{Ended, Request, Skipped};
use serde::de::DeserializeOwned;

/// Read at once.
const CHUNK: usize = 64 * 1024;
/// How long nothing may come of what is being fetched.
const SILENCE: Duration = Duration::from_secs(60);
/// Most bytes of an answer to one of our own questions: the longest are a root's certificates (4 MiB) with those of a run.
const MAX_DATA: usize = 5 << 20;

/// Both directions.
#[derive(Debug)]
pub(super) struct Link {
    to: File,
    from: File,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The next stream that is opened.
    next: u32,
    closed: bool,
}

/// What is being fetched.
struct Fetched<'a> {
    to: &'a File,
    /// Bytes that may still come.
    most: u64,
    /// Bytes that came and were not said to be taken.
    owed: u32,
}

impl Fetched<'_> {
    /// Takes one frame; at the end, what it lacks.
    fn take(&mut self, came: &ReceivedFrame) -> Result<Option<Vec<String>>, String> {
        match (came.kind, Lane::split(&came.payload)) {
            (Kind::Data, Some((Lane::Out, bytes))) => {
                let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                self.most = self.most.checked_sub(u64::from(count)).ok_or("it is more than there can be")?;
                self.to.write_all(bytes).map_err(|error| error.to_string())?;
                self.owed = self.owed.saturating_add(count);
                Ok(None)
            }
            (Kind::End, _) => ended::<Skipped>(&came.payload).map(|skipped| Some(skipped.skipped)),
            (Kind::Reply | Kind::Event | Kind::Credit | Kind::Eof, _) => Ok(None),
            (Kind::Data | Kind::Open | Kind::Control | Kind::Cancel, _) => {
                Err("the agent says what has no place in an answer".to_owned())
            }
        }
    }
}

/// A frame that came, with its own bytes.
#[derive(Debug)]
pub(super) struct ReceivedFrame {
    pub(super) kind: Kind,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Link {
    /// Over a socket that does not block.
    pub(super) fn new(socket: OwnedFd) -> std::io::Result<Self> {
        let from = File::from(socket);
        let to = from.try_clone()?;
        Ok(Self { to, from, inbox: Vec::new(), outbox: Vec::new(), next: agent::machine::FIRST, closed: false })
    }

    /// Waits until the machine's first process says that it waits, within so long.
    pub(super) fn waits(&mut self, limit: Duration) -> Result<Waits, String> {
        let until = Instant::now() + limit;
        loop {
            if let Some(came) = self.take()? {
                return match came.kind {
                    Kind::Event if came.stream == agent::machine::FIRST => {
                        serde_json::from_slice(&came.payload).map_err(|error| format!("its first word: {error}"))
                    }
                    Kind::End => ended(&came.payload),
                    Kind::Open
                    | Kind::Reply
                    | Kind::Event
                    | Kind::Data
                    | Kind::Eof
                    | Kind::Control
                    | Kind::Credit
                    | Kind::Cancel => Err("the machine says what has no place at its start".to_owned()),
                };
            }
            self.wait(until, limit)?;
        }
    }

    /// Tells it what it is to become, with fresh random bytes; it has taken those when it answers.
    pub(super) fn begin(&mut self, begin: &Begin, data: &[&[u8]], limit: Duration) -> Result<SeedReply, String> {
        let words = serde_json::to_vec(begin).map_err(|error| error.to_string())?;
        let stream = self.open_words(&words)?;
        for part in data.iter().flat_map(|part| part.chunks(CHUNK / 2)) {
            self.put_data(stream, part);
        }
        self.put(Kind::Eof, stream, &[])?;
        self.answer(stream, limit).map(|(begun, _)| begun)
    }

    /// Gives the machine's first process an order, and waits until it is done, or refused. Nothing else may be open.
    pub(super) fn order<T: DeserializeOwned>(&mut self, order: &Order, limit: Duration) -> Result<Ended<T>, String> {
        let until = Instant::now() + limit;
        self.put_order(order)?;
        loop {
            if let Some(came) = self.take()? {
                if (came.kind, came.stream) != (Kind::End, ORDERS) {
                    return Err("the machine says what has no place in an answer to an order".to_owned());
                }
                let said = serde_json::from_slice(&came.payload);
                return said.map_err(|error| format!("the answer to an order cannot be read: {error}"));
            }
            self.wait(until, limit)?;
        }
    }

    /// Queues an order.
    pub(super) fn put_order(&mut self, order: &Order) -> Result<(), String> {
        let words = serde_json::to_vec(order).map_err(|error| error.to_string())?;
        self.put(Kind::Open, ORDERS, &words)
    }

    /// Both directions, and what has come and was not taken.
    pub(super) fn into_parts(self) -> (File, File, Vec<u8>) {
        (self.to, self.from, self.inbox)
    }

    /// Readable when something came.
    pub(super) fn reads(&self) -> BorrowedFd<'_> {
        self.from.as_fd()
    }

    /// To be waited for when something is to be sent.
    pub(super) fn writes(&self) -> Option<BorrowedFd<'_>> {
        (!self.outbox.is_empty() && !self.closed).then(|| self.to.as_fd())
    }

    /// How much is to be sent.
    pub(super) const fn waiting(&self) -> usize {
        self.outbox.len()
    }

    /// Whether the machine is off.
    pub(super) const fn closed(&self) -> bool {
        self.closed
    }

    /// Opens a stream; its number.
    pub(super) fn open(&mut self, request: &Request) -> Result<u32, String> {
        self.open_words(&serde_json::to_vec(request).map_err(|error| error.to_string())?)
    }

    fn open_words(&mut self, words: &[u8]) -> Result<u32, String> {
        let stream = self.next;
        self.next = stream.checked_add(1).ok_or("too many requests")?;
        self.put(Kind::Open, stream, words)?;
        Ok(stream)
    }

    /// Queues a frame.
    pub(super) fn put(&mut self, kind: Kind, stream: u32, payload: &[u8]) -> Result<(), String> {
        if frame::put(&mut self.outbox, Frame { kind, stream, payload }) {
            Ok(())
        } else {
            Err("what is to be said to the agent is too long".to_owned())
        }
    }

    /// Queues data for what was opened; fewer bytes than a frame takes.
    pub(super) fn put_data(&mut self, stream: u32, bytes: &[u8]) {
        let fits = frame::put_data(&mut self.outbox, stream, Lane::In, bytes);
        debug_assert!(fits, "the caller reads less at once");
    }

    /// Sends what is taken now.
    pub(super) fn flush(&mut self) {
        while !self.outbox.is_empty() && !self.closed {
            match self.to.write(&self.outbox) {
                Ok(count) => drop(self.outbox.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.closed = true,
            }
        }
    }

    /// Takes what has come.
    pub(super) fn fill(&mut self) {
        let mut part = vec![0; CHUNK];
        match self.from.read(&mut part) {
            Ok(0) => self.closed = true,
            Ok(count) => self.inbox.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.closed = true,
        }
    }

    /// The next frame that is whole.
    pub(super) fn take(&mut self) -> Result<Option<ReceivedFrame>, String> {
        let Some((frame, length)) = frame::first(&self.inbox).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        let came = ReceivedFrame { kind: frame.kind, stream: frame.stream, payload: frame.payload.to_vec() };
        self.inbox.drain(..length);
        Ok(Some(came))
    }

    /// Asks, and waits for the end: what it says, and the data before it. Nothing else may be open.
    pub(super) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        limit: Duration,
    ) -> Result<(T, Vec<u8>), String> {
        let stream = self.open(request)?;
        self.answer(stream, limit)
    }

    fn answer<T: DeserializeOwned>(&mut self, stream: u32, limit: Duration) -> Result<(T, Vec<u8>), String> {
        let until = Instant::now() + limit;
        let (mut data, mut owed) = (Vec::new(), 0_u32);
        loop {
            while let Some(came) = self.take()? {
                if came.stream != stream {
                    return Err("the agent answers what was not asked".to_owned());
                }
                match (came.kind, Lane::split(&came.payload)) {
                    (Kind::Data, Some((Lane::Out, bytes))) => {
                        data.extend_from_slice(bytes);
                        owed = owed.saturating_add(u32::try_from(bytes.len()).unwrap_or(u32::MAX));
                    }
                    (Kind::End, _) => return ended(&came.payload).map(|ok| (ok, data)),
                    (Kind::Reply | Kind::Event | Kind::Credit | Kind::Eof, _) => {}
                    (Kind::Data | Kind::Open | Kind::Control | Kind::Cancel, _) => {
                        return Err("the agent says what has no place in an answer".to_owned());
                    }
                }
                if data.len() > MAX_DATA {
                    return Err("the agent's answer is too long".to_owned());
                }
            }
            self.give(stream, &mut owed)?;
            self.wait(until, limit)?;
        }
    }

    /// What is in a folder as a tar stream into a file, of at most so many bytes; what it lacks. Frames of other streams, which
    /// may still be on their way, are dropped. How long all of it may take is the caller's to say, who can end the machine.
    pub(super) fn fetch(&mut self, folder: String, most: u64, to: &File) -> Result<Vec<String>, String> {
        let stream = self.open(&Request::Archive { path: folder })?;
        let mut silent = Instant::now() + SILENCE;
        let mut fetched = Fetched { to, most, owed: 0 };
        loop {
            while let Some(came) = self.take()? {
                if came.stream != stream {
                    continue;
                }
                silent = Instant::now() + SILENCE;
                if let Some(lacks) = fetched.take(&came)? {
                    return Ok(lacks);
                }
            }
            self.give(stream, &mut fetched.owed)?;
            self.wait(silent, SILENCE)?;
        }
    }

    /// Says that so much was taken, once it is a good part of what may be on its way.
    fn give(&mut self, stream: u32, owed: &mut u32) -> Result<(), String> {
        if *owed < WINDOW / 4 {
            return Ok(());
        }
        self.put(Kind::Credit, stream, &std::mem::take(owed).to_le_bytes())
    }

    /// Until something came or went, or that time, which is `limit` after it began.
    fn wait(&mut self, until: Instant, limit: Duration) -> Result<(), String> {
        if self.closed {
            return Err("the machine is off".to_owned());
        }
        let mut interests = vec![sys::channel::Interest { fd: self.reads(), write: false }];
        interests.extend(self.writes().map(|fd| sys::channel::Interest { fd, write: true }));
        let ready = sys::channel::wait_until(&interests, Some(until)).map_err(|error| error.to_string())?;
        if !ready.contains(&true) {
            return Err(format!("no answer came within {} s", limit.as_secs()));
        }
        let (reads, writes) = (ready.first() == Some(&true), ready.get(1) == Some(&true));
        if reads {
            self.fill();
        }
        if writes {
            self.flush();
        }
        Ok(())
    }
}

/// The result in an `End`, or its error in words.
pub(super) fn ended<T: DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    match serde_json::from_slice::<Ended<T>>(payload) {
        Ok(Ended::Ok(result)) => Ok(result),
        Ok(Ended::Error(failure)) => Err(failure.message),
        Err(error) => Err(format!("the agent's answer cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Sends `size` bytes as an agent does: no more on their way than it may.
    fn agent(mut line: UnixStream, size: usize) {
        let (mut came, mut may, mut left) = (Vec::new(), usize::try_from(WINDOW).unwrap(), size);
        let mut opened = None;
        while opened.is_none() || left > 0 {
            if let Some((frame, length)) = frame::first(&came).unwrap() {
                if frame.kind == Kind::Open {
                    opened = Some(frame.stream);
                } else {
                    assert_eq!(frame.kind, Kind::Credit);
                    may += usize::try_from(u32::from_le_bytes(frame.payload.try_into().unwrap())).unwrap();
                }
                came.drain(..length);
            } else if let Some(stream) = opened.filter(|_| may > 0) {
                let (mut out, part) = (Vec::new(), may.min(left).min(CHUNK / 2));
                assert!(frame::put_data(&mut out, stream, Lane::Out, &vec![7; part]));
                if line.write_all(&out).is_err() {
                    return;
                }
                (may, left) = (may - part, left - part);
            } else {
                let mut bytes = [0; 256];
                let count = line.read(&mut bytes).unwrap();
                if count == 0 {
                    return;
                }
                came.extend_from_slice(&bytes[..count]);
            }
        }
        let (mut out, end) = (Vec::new(), serde_json::to_vec(&Ended::Ok(())).unwrap());
        assert!(frame::put(&mut out, Frame { kind: Kind::End, stream: opened.unwrap(), payload: &end }));
        // Who takes no more has left; else it stays until then.
        if line.write_all(&out).is_ok() {
            drop(line.read_to_end(&mut came));
        }
    }

    #[test]
    fn an_answer_may_be_longer_than_what_is_on_its_way_at_once_and_has_a_bound() {
        for (size, whole) in [(219_597, true), (3 << 20, true), (MAX_DATA + CHUNK, false)] {
            let (here, there) = UnixStream::pair().unwrap();
            here.set_nonblocking(true).unwrap();
            let sends = std::thread::spawn(move || agent(there, size));
            let mut link = Link::new(here.into()).unwrap();
            let request =
                Request::Read { path: "/etc/ssl/certs/ca-certificates.crt".to_owned(), offset: 0, length: None };
            let answer = link.ask::<()>(&request, Duration::from_secs(20));
            let told = format!("{size}: {:?}", answer.as_ref().err());
            assert_eq!(answer.map(|((), data)| data.len()).ok(), whole.then_some(size), "{told}");
            drop(link);
            drop(sends.join());
        }
    }
}
