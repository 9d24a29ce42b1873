//! The agent's one loop: frames in, a step for each task that can go on, frames out.

mod environment;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use environment::prepare;

use crate::files::failure::failure;
use crate::flow::{Flow, Io, Outbox};
use crate::frame::{self, Frame, FrameError, HEADER, Kind, Lane, MAX_DATA, MAX_STREAMS, MAX_WORDS, WINDOW};
use crate::inside::Inside;
use crate::machine::ORDERS;
use crate::task::{self, Progress, Task, Waiting};
use crate::words::{Code, Ended, Failure, ProgramControl, Request};

/// Bytes that are read from the supervisor at once: two of the longest frames of data, so that one is mostly whole.
const READ: usize = 2 * (MAX_DATA + HEADER);

/// Why the agent ends before its supervisor is gone.
#[derive(Debug)]
pub(crate) enum Broken {
    /// Bytes that are no frame.
    Frame(FrameError),
    /// A frame that may not come from a supervisor, or not now.
    Protocol(&'static str),
    /// A call that cannot fail did.
    Call(Errno),
    /// Something that descends from a program that was to be ended was not found, or not ended.
    Escaped,
}

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Frame(error) => write!(f, "the supervisor broke the protocol: {error}"),
            Self::Protocol(what) => write!(f, "the supervisor broke the protocol: {what}"),
            Self::Call(errno) => write!(f, "the agent cannot go on: {errno}"),
            Self::Escaped => f.write_str("what a program made was to be ended with it, and was not found"),
        }
    }
}

struct Stream {
    task: Box<dyn Task>,
    /// Whoever asked for it asked in another machine, of which this one is a copy: nobody is told anything of it.
    nobodys: bool,
    flow: Flow,
    /// It can go on.
    due: bool,
    /// It goes on then at the latest.
    at: Option<Instant>,
}

struct Agent {
    socket: OwnedFd,
    inbox: Vec<u8>,
    out: Outbox,
    streams: BTreeMap<u32, Stream>,
    inside: Inside,
    scratch: Vec<u8>,
    /// The stream that had the last turn.
    last: u32,
}

/// Who a descriptor is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Supervisor,
    Starter,
    Stream(u32),
    Leftover,
}

/// The program: speaks on descriptor 0 until that is closed.
#[must_use]
pub(crate) fn main() -> ExitCode {
    match prepare().map_err(Broken::Call).and_then(serve_prepared) {
        Ok(()) => ExitCode::SUCCESS,
        Err(broken) => {
            environment::complain(&broken);
            ExitCode::FAILURE
        }
    }
}

/// Serves one supervisor until it closes its end; for tests, in a thread. `home`, working directory and environment are those
/// of this process.
///
/// # Errors
/// A text: how the supervisor broke the protocol.
pub fn serve(socket: OwnedFd, home: &Path) -> Result<(), String> {
    environment::surroundings(socket, Some(home), false)
        .map_err(Broken::Call)
        .and_then(serve_prepared)
        .map_err(|broken| broken.to_string())
}

fn serve_prepared((socket, inside): (OwnedFd, Inside)) -> Result<(), Broken> {
    let mut agent = Agent::new(socket, inside);
    loop {
        let ready = agent.wait()?;
        if ready.contains(&For::Starter) {
            agent.hear_the_starters();
        }
        agent.inside.starters.look();
        if agent.inside.starters.has_escaped() {
            return Err(Broken::Escaped);
        }
        if ready.contains(&For::Leftover) {
            agent.inside.leftovers.read(&mut agent.scratch);
        }
        if ready.contains(&For::Supervisor) && agent.out.takes_requests() && !agent.read()? {
            return Ok(());
        }
        agent.step_all();
        match agent.out.flush(&agent.socket) {
            Ok(()) => {}
            Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
            Err(errno) => return Err(Broken::Call(errno)),
        }
    }
}

impl Agent {
    fn new(socket: OwnedFd, inside: Inside) -> Self {
        let (out, scratch) = (Outbox::default(), vec![0; READ]);
        Self { socket, inbox: Vec::new(), out, streams: BTreeMap::new(), inside, scratch, last: 0 }
    }

    /// Waits until something can go on; marks the streams that can.
    fn wait(&mut self) -> Result<Vec<For>, Broken> {
        let mut whom = Vec::new();
        let mut list: Vec<PollFd<'_>> = Vec::new();
        let mut add = |for_whom: For, fd, flags: PollFlags| {
            if !flags.is_empty() {
                whom.push(for_whom);
                list.push(PollFd::from_borrowed_fd(fd, flags));
            }
        };
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.out.takes_requests());
        flags.set(PollFlags::OUT, !self.out.is_empty());
        add(For::Supervisor, self.socket.as_fd(), flags);
        self.inside.starters.waits(&mut |fd, flags| add(For::Starter, fd, flags));
        self.inside.leftovers.waits(&mut |fd| add(For::Leftover, fd, PollFlags::IN));
        let has_room = self.out.has_room();
        let mut at = self.inside.starters.due();
        let mut due = false;
        for (number, stream) in self.streams.iter().filter(|_| has_room) {
            due |= stream.due;
            at = at.into_iter().chain(stream.at).min();
            if !stream.due {
                let flow = Waiting { can_send: stream.flow.has_credit(), has_input: stream.flow.has_input() };
                stream.task.waits(&flow, &mut |fd, flags| add(For::Stream(*number), fd, flags));
            }
        }
        poll(&mut list, limit(due, at, Instant::now())).map_err(Broken::Call)?;
        let mut ready: Vec<For> =
            list.iter().zip(whom).filter(|(fd, _)| !fd.revents().is_empty()).map(|(_, whom)| whom).collect();
        drop(list);
        let now = at.map(|_| Instant::now());
        for (number, stream) in &mut self.streams {
            let late = stream.at.zip(now).is_some_and(|(at, now)| at <= now);
            stream.due |= late || ready.contains(&For::Stream(*number));
        }
        ready.dedup();
        Ok(ready)
    }

    /// Takes in what the supervisor sent; false when it is gone.
    fn read(&mut self) -> Result<bool, Broken> {
        let count = match rustix::io::read(&self.socket, &mut self.scratch) {
            Ok(0) | Err(Errno::CONNRESET) => return Ok(false),
            Ok(count) => count,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(true),
            Err(errno) => return Err(Broken::Call(errno)),
        };
        // What was left of the last read goes before it; mostly nothing was, and nothing is copied.
        let (inbox, scratch) = (std::mem::take(&mut self.inbox), std::mem::take(&mut self.scratch));
        let new = scratch.get(..count).unwrap_or_default();
        let taken = if inbox.is_empty() { self.take_all(new) } else { self.take_all(&[&inbox, new].concat()) };
        self.scratch = scratch;
        taken.map(|()| true)
    }

    /// Takes the whole frames, and keeps the rest.
    fn take_all(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        while let Some((frame, length)) = frame::first(bytes).map_err(Broken::Frame)? {
            self.take(frame)?;
            bytes = bytes.get(length..).unwrap_or_default();
        }
        debug_assert!(bytes.len() <= MAX_WORDS.saturating_add(HEADER));
        self.inbox = bytes.to_vec();
        Ok(())
    }

    fn take(&mut self, frame: Frame<'_>) -> Result<(), Broken> {
        if frame.stream == ORDERS {
            self.forget();
            return Ok(());
        }
        match frame.kind {
            Kind::Open => return self.open(frame),
            Kind::Reply | Kind::Event | Kind::End => return Err(Broken::Protocol("it answers what nobody asked")),
            Kind::Data | Kind::Eof | Kind::Control | Kind::Credit | Kind::Cancel => {}
        }
        // It may have been sent before the other side heard of the stream's end.
        let Some(stream) = self.streams.get_mut(&frame.stream) else { return Ok(()) };
        stream.due = true;
        match frame.kind {
            Kind::Data => {
                let Some((Lane::In, bytes)) = Lane::split(frame.payload) else {
                    return Err(Broken::Protocol("data on a lane that leads out"));
                };
                if stream.flow.eof || !stream.flow.keep(bytes) {
                    return Err(Broken::Protocol("more data than it may send"));
                }
            }
            Kind::Eof => stream.flow.eof = true,
            Kind::Control => match serde_json::from_slice::<ProgramControl>(frame.payload) {
                Ok(control) => stream.task.control(control),
                Err(_) => return Err(Broken::Protocol("a control that does not exist")),
            },
            Kind::Credit => {
                let bytes = frame.payload.first_chunk::<4>().copied().unwrap_or_default();
                stream.flow.may_send(u32::from_le_bytes(bytes));
            }
            Kind::Cancel => {
                if let Some(mut stream) = self.streams.remove(&frame.stream) {
                    stream.task.cancel(&mut self.inside);
                    self.end(frame.stream, Err(failure(Code::Cancelled, "it was given up")));
                }
            }
            Kind::Open | Kind::Reply | Kind::Event | Kind::End => {}
        }
        Ok(())
    }

    fn open(&mut self, frame: Frame<'_>) -> Result<(), Broken> {
        if self.streams.contains_key(&frame.stream) {
            return Err(Broken::Protocol("it opens a stream that is open"));
        }
        if self.streams.values().filter(|stream| !stream.nobodys).count() >= MAX_STREAMS {
            return Err(Broken::Protocol("it opens too many streams"));
        }
        let task = serde_json::from_slice::<Request>(frame.payload)
            .map_err(|error| failure(Code::Invalid, format!("the request cannot be read: {error}")))
            .and_then(|request| task::of(request, &mut self.inside));
        match task {
            Ok(task) => {
                let stream = Stream { task, nobodys: false, flow: Flow::new(), due: true, at: None };
                self.streams.insert(frame.stream, stream);
            }
            Err(failure) => self.end(frame.stream, Err(failure)),
        }
        Ok(())
    }

    /// This is a copy of the machine in which all was asked. Programs go on: what they write is thrown away, and there is nothing
    /// more to read for them. All else is given up.
    fn forget(&mut self) {
        let mut free = ORDERS;
        for mut stream in std::mem::take(&mut self.streams).into_values() {
            if stream.nobodys || stream.task.order().is_some() {
                stream.nobodys = true;
                stream.flow.eof = true;
                stream.due = true;
                // From the top: whoever asks counts from below.
                free = free.saturating_sub(1);
                self.streams.insert(free, stream);
            } else {
                stream.task.cancel(&mut self.inside);
            }
        }
        // The first process hears it, and passes on what comes behind it.
        self.end(ORDERS, serde_json::to_vec(&Ended::Ok(())).map_err(|error| failure(Code::Failed, error.to_string())));
    }

    /// One step for each stream that can go on, beginning behind the one that had the last turn.
    fn step_all(&mut self) {
        let behind = self.streams.range((Bound::Excluded(self.last), Bound::Unbounded));
        let order: Vec<u32> = behind
            .chain(self.streams.range(..=self.last))
            .filter(|(_, stream)| stream.due)
            .map(|(number, _)| *number)
            .collect();
        for number in order {
            if !self.out.has_room() {
                return;
            }
            self.last = number;
            self.step(number);
        }
    }

    fn step(&mut self, number: u32) {
        let Some(stream) = self.streams.get_mut(&number) else { return };
        let mut nowhere = Outbox::default();
        let nobodys = stream.nobodys;
        if nobodys {
            stream.flow.may_send(WINDOW);
        }
        let out = if nobodys { &mut nowhere } else { &mut self.out };
        let mut io = Io { stream: number, flow: &mut stream.flow, out, scratch: &mut self.scratch };
        stream.due = false;
        stream.at = None;
        let ended = match stream.task.step(&mut io, &mut self.inside) {
            Ok(Progress::More) => return stream.due = true,
            // What it said itself may have filled the queue: then it waits for room, of which nobody tells it.
            Ok(Progress::Wait) => return stream.due = !io.out.has_room(),
            Ok(Progress::Until(at)) => return stream.at = Some(at),
            Ok(Progress::Done(result)) => Ok(result),
            Err(failure) => Err(failure),
        };
        self.streams.remove(&number);
        if !nobodys {
            self.end(number, ended);
        }
    }

    fn end(&mut self, stream: u32, result: Result<Vec<u8>, Failure>) {
        let words = result.unwrap_or_else(|failure| {
            // Two texts of ours.
            serde_json::to_vec(&Ended::<()>::Error(failure)).unwrap_or_default()
        });
        if !self.out.put(Kind::End, stream, &words) {
            let long = failure(Code::TooMany, "the answer is longer than an answer may be");
            let words = serde_json::to_vec(&Ended::<()>::Error(long)).unwrap_or_default();
            let sent = self.out.put(Kind::End, stream, &words);
            debug_assert!(sent, "an error fits");
        }
    }

    fn hear_the_starters(&mut self) {
        for (order, told) in self.inside.starters.hear() {
            for stream in self.streams.values_mut().filter(|stream| stream.task.order() == Some(order)) {
                stream.task.told(told.clone());
                stream.due = true;
            }
        }
    }
}

/// How long to wait at most; without, until something comes. What is due is not waited for: a file is read in as many steps as it
/// has frames.
fn limit(due: bool, at: Option<Instant>, now: Instant) -> Option<Timespec> {
    let limit = if due { Some(Duration::ZERO) } else { at.map(|at| at.saturating_duration_since(now)) };
    limit.map(|limit| Timespec::try_from(limit).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }))
}

fn poll(list: &mut [PollFd<'_>], limit: Option<Timespec>) -> Result<(), Errno> {
    match rustix::event::poll(list, limit.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::FULL;

    #[test]
    fn what_is_due_is_not_waited_for() {
        let now = Instant::now();
        let later = now + Duration::from_micros(1);
        let in_ns = |ns| Some(Timespec { tv_sec: 0, tv_nsec: ns });
        assert_eq!(limit(true, Some(later), now), in_ns(0));
        assert_eq!(limit(false, Some(now), later), in_ns(0));
        assert_eq!(limit(false, Some(later), now), in_ns(1000));
        assert_eq!(limit(false, None, now), None);
    }

    #[test]
    fn a_stream_whose_own_reply_filled_the_queue_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("file"), b"all of it").unwrap();
        let (_supervisor, socket) = sys::channel::pair().unwrap();
        let (socket, inside) = environment::surroundings(socket, Some(folder.path()), false).unwrap();
        let mut agent = Agent::new(socket, inside);
        let path = folder.path().join("file").to_str().unwrap().to_owned();
        let request = serde_json::to_vec(&Request::Read { path, offset: 0, length: None }).unwrap();
        agent.open(Frame { kind: Kind::Open, stream: 7, payload: &request }).unwrap();
        // Room for some bytes, and for no reply.
        (1..FULL / (HEADER + 1)).for_each(|_| assert!(agent.out.put(Kind::Event, 9, &[0])));
        assert!(agent.out.has_room());
        agent.step_all();
        assert!(!agent.out.has_room() && agent.streams.contains_key(&7));
        agent.out = Outbox::default();
        (0..2).for_each(|_| agent.step_all());
        assert!(agent.streams.is_empty(), "it waits for nothing that comes");
    }
}
