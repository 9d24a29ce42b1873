//! Between the engine, which speaks a guest's frames, and the agent in a machine, which speaks its own.
//!
//! Bounded: of each stream no more waits here than the agent may send unasked, and of the input no more than it lets us.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use agent::frame::{Kind, Lane, WINDOW};
use agent::words::{Code, Ended, Exited, Failure, Program, ProgramControl, Request, Started};
use guest::frames::{self, Address, End, ExecFailure, FromGuest, ToGuest};
use sys::channel::Interest;

use super::link::{Link, ReceivedFrame};

/// Read of the input at once; with its lane it fits into a frame.
const CHUNK: usize = 32 * 1024;
/// No more input is taken while so much waits to be sent.
const FULL: usize = 256 * 1024;
/// The request of the first program's start: what [`crate::native::control`] knows.
const GO: u32 = 1;
/// Longest text of the counters that are asked for at the end.
const COUNTERS: usize = 64 * 1024;

/// One of the program's output streams.
#[derive(Debug)]
struct Output {
    pipe: Option<File>,
    waiting: Vec<u8>,
}

/// How it ended that the program ran.
#[derive(Clone, Copy, Debug)]
enum ProgramEnd {
    Exited(Exited),
    /// Who starts programs there was ended, by one of them or for want of memory: nobody knows how the program did.
    Lost,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Relay {
    link: Link,
    control: OwnedFd,
    orders: Vec<u8>,
    input: Option<File>,
    outputs: [Output; 2],
    /// The program's stream.
    stream: u32,
    /// Bytes of input that may be sent.
    credit: u32,
    /// Bytes of output that were carried away and not said to be.
    owed: u32,
    /// The agent said that it has started.
    started: bool,
    end: Option<ProgramEnd>,
    /// The stream on which the machine's counters are asked for, and what came of them.
    counters: Option<(u32, Vec<u8>)>,
    kills: Arc<AtomicU64>,
    over: bool,
}

/// A copy of the workspace in a machine, which comes back at the end.
#[derive(Debug)]
pub(super) struct Workspace {
    /// Where it is.
    pub(super) folder: String,
    /// The most that its tar stream may be.
    pub(super) most: u64,
    /// Where that is put; empty.
    pub(super) file: File,
}

/// A tar stream of what the program left in the copy of its workspace, and what it lacks; `None` where nothing was written.
pub(super) type Changed = Result<Option<(File, Vec<String>)>, String>;

/// Who a descriptor is waited for.
#[derive(Clone, Copy)]
enum Source {
    FromAgent,
    ToAgent,
    Orders,
    Input,
    Output(usize),
}

impl Relay {
    /// Asks for the program's start.
    pub(super) fn new(
        (mut link, control): (Link, OwnedFd),
        (input, out, err): (Option<OwnedFd>, OwnedFd, OwnedFd),
        program: Program,
        kills: Arc<AtomicU64>,
    ) -> Result<Self, String> {
        let stream = link.open(&Request::Start(program))?;
        let output = |pipe: OwnedFd| Output { pipe: Some(File::from(pipe)), waiting: Vec::new() };
        Ok(Self {
            link,
            control,
            orders: Vec::new(),
            input: input.map(File::from),
            outputs: [output(out), output(err)],
            stream,
            credit: WINDOW,
            owed: 0,
            started: false,
            end: None,
            counters: None,
            kills,
            over: false,
        })
    }

    /// Until the machine is off, the end is told, or the engine is gone. Afterwards, what the program left in the copy of the
    /// workspace, if it had one and has ended.
    pub(super) fn run(mut self, changed: Option<Workspace>) -> Changed {
        self.carry_on();
        let Some(Workspace { folder, most, mut file }) = changed else { return Ok(None) };
        if !self.started {
            return Ok(None);
        }
        if !matches!(self.end, Some(ProgramEnd::Exited(_))) {
            return Err("the machine was ended before the program was, and what it had written went with it".to_owned());
        }
        let lacks = self.link.fetch(folder, most, &file)?;
        file.rewind().map_err(|error| error.to_string())?;
        Ok(Some((file, lacks)))
    }

    fn carry_on(&mut self) {
        while !self.over {
            let ready: Vec<Source> = {
                let (interests, sources) = self.interests();
                match sys::channel::wait(&interests, None) {
                    Ok(ready) => {
                        sources.into_iter().zip(ready).filter(|(_, is)| *is).map(|(source, _)| source).collect()
                    }
                    Err(_) => return,
                }
            };
            for source in ready {
                match source {
                    Source::FromAgent => self.hear(),
                    Source::ToAgent => self.link.flush(),
                    Source::Orders => self.obey(),
                    Source::Input => self.take_input(),
                    Source::Output(at) => self.carry(at),
                }
            }
            self.settle();
        }
    }

    fn interests(&self) -> (Vec<Interest<'_>>, Vec<Source>) {
        let mut list = Vec::with_capacity(6);
        let mut sources = Vec::with_capacity(6);
        let mut add = |fd, write, source| {
            list.push(Interest { fd, write });
            sources.push(source);
        };
        add(self.control.as_fd(), false, Source::Orders);
        if !self.link.closed() {
            add(self.link.reads(), false, Source::FromAgent);
        }
        if let Some(fd) = self.link.writes() {
            add(fd, true, Source::ToAgent);
        }
        if let Some(input) = self.input.as_ref().filter(|_| self.credit > 0 && self.link.waiting() < FULL) {
            add(input.as_fd(), false, Source::Input);
        }
        for (at, output) in self.outputs.iter().enumerate() {
            if let Some(pipe) = output.pipe.as_ref().filter(|_| !output.waiting.is_empty()) {
                add(pipe.as_fd(), true, Source::Output(at));
            }
        }
        (list, sources)
    }

    /// What the agent says.
    fn hear(&mut self) {
        self.link.fill();
        loop {
            match self.link.take() {
                Ok(Some(came)) => {
                    if !self.understood(&came) {
                        self.over = true;
                        return;
                    }
                }
                Ok(None) => return,
                // It is not ours any more: the engine hears that there is nothing left to hear.
                Err(_) => {
                    self.over = true;
                    return;
                }
            }
        }
    }

    /// False where it is nothing that our agent says.
    fn understood(&mut self, came: &ReceivedFrame) -> bool {
        if self.counters.as_ref().is_some_and(|(stream, _)| *stream == came.stream) {
            return self.counted(came);
        }
        if came.stream != self.stream || self.end.is_some() {
            return false;
        }
        match came.kind {
            Kind::Reply if self.started => false,
            Kind::Reply => serde_json::from_slice::<Started>(&came.payload).is_ok_and(|started| {
                self.started = true;
                self.tell(FromGuest::Started { pid: i32::try_from(started.pid).unwrap_or(i32::MAX) });
                true
            }),
            Kind::Data => self.data(&came.payload),
            Kind::Credit => {
                let bytes = came.payload.first_chunk::<4>().copied().unwrap_or_default();
                self.credit = self.credit.saturating_add(u32::from_le_bytes(bytes)).min(WINDOW);
                true
            }
            Kind::End => self.ended(&came.payload),
            Kind::Event | Kind::Eof | Kind::Open | Kind::Control | Kind::Cancel => false,
        }
    }

    fn data(&mut self, payload: &[u8]) -> bool {
        let (at, bytes) = match Lane::split(payload) {
            Some((Lane::Out, bytes)) => (0, bytes),
            Some((Lane::Err, bytes)) => (1, bytes),
            Some((Lane::In, _)) | None => return false,
        };
        let waiting: usize = self.outputs.iter().map(|output| output.waiting.len()).sum();
        let most = usize::try_from(WINDOW).unwrap_or(usize::MAX);
        if waiting.saturating_add(bytes.len()) > most {
            return false;
        }
        if let Some(output) = self.outputs.get_mut(at) {
            output.waiting.extend_from_slice(bytes);
        }
        self.carry(at);
        true
    }

    /// Carries on what the engine takes now, and lets the agent send as much again.
    fn carry(&mut self, at: usize) {
        let Some(output) = self.outputs.get_mut(at) else { return };
        let before = output.waiting.len();
        while let Some(pipe) = output.pipe.as_mut().filter(|_| !output.waiting.is_empty()) {
            match pipe.write(&output.waiting) {
                Ok(count) => drop(output.waiting.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                // Nobody reads it any more.
                Err(_) => output.pipe = None,
            }
        }
        if output.pipe.is_none() {
            output.waiting.clear();
        }
        let carried = before.saturating_sub(output.waiting.len());
        self.owed = self.owed.saturating_add(u32::try_from(carried).unwrap_or(u32::MAX));
        if self.owed >= WINDOW / 4 && self.end.is_none() {
            let owed = std::mem::take(&mut self.owed);
            drop(self.link.put(Kind::Credit, self.stream, &owed.to_le_bytes()));
        }
    }

    /// The program has ended, or never began.
    fn ended(&mut self, payload: &[u8]) -> bool {
        match serde_json::from_slice::<Ended<Exited>>(payload) {
            Ok(Ended::Ok(exited)) => self.over_with(ProgramEnd::Exited(exited)),
            Ok(Ended::Error(_)) if self.started => self.over_with(ProgramEnd::Lost),
            Ok(Ended::Error(failure)) => {
                let (errno, which) = not_started(&failure);
                self.tell(FromGuest::ExecFailed { errno, which });
                self.over = true;
                true
            }
            Err(_) => false,
        }
    }

    /// Nothing comes of the program any more. Who was ended for want of memory, only the machine's kernel knows.
    fn over_with(&mut self, end: ProgramEnd) -> bool {
        self.end = Some(end);
        self.input = None;
        let request = Request::Read { path: "/proc/vmstat".to_owned(), offset: 0, length: None };
        self.counters = self.link.open(&request).ok().map(|stream| (stream, Vec::new()));
        true
    }

    fn counted(&mut self, came: &ReceivedFrame) -> bool {
        let Some((_, text)) = &mut self.counters else { return false };
        match (came.kind, Lane::split(&came.payload)) {
            (Kind::Data, Some((Lane::Out, bytes))) => {
                text.extend_from_slice(bytes);
                text.len() <= COUNTERS
            }
            (Kind::End, _) => {
                let text = String::from_utf8_lossy(text).into_owned();
                let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
                self.kills.store(kills.unwrap_or(0), Ordering::Relaxed);
                self.counters = None;
                true
            }
            (Kind::Reply | Kind::Event | Kind::Credit | Kind::Eof, _) => true,
            (Kind::Data | Kind::Open | Kind::Control | Kind::Cancel, _) => false,
        }
    }

    /// What the engine asks for.
    fn obey(&mut self) {
        let mut part = [0; 4096];
        match sys::channel::receive(&self.control, &mut part, true) {
            Ok(received) if received.count > 0 => {
                self.orders.extend_from_slice(part.get(..received.count).unwrap_or_default());
            }
            Err(error) if error.is_again() => return,
            Ok(_) | Err(_) => {
                self.over = true;
                return;
            }
        }
        while let Ok(Some((raw, length))) = frames::first(&self.orders) {
            let signal = match ToGuest::decode(&raw) {
                Ok(ToGuest::Signal(number)) => Some(number),
                // The machine is ended from outside.
                Ok(_) | Err(_) => None,
            };
            self.orders.drain(..length);
            if let Some(number) = signal {
                self.signal(number);
            }
        }
    }

    fn signal(&mut self, number: u8) {
        let control = ProgramControl::Signal { number, tree: false };
        if let Ok(words) = serde_json::to_vec(&control)
            && self.end.is_none()
        {
            drop(self.link.put(Kind::Control, self.stream, &words));
        }
    }

    fn take_input(&mut self) {
        let mut part = [0; CHUNK];
        let most = usize::try_from(self.credit).unwrap_or(CHUNK).min(CHUNK);
        let Some(input) = &mut self.input else { return };
        match input.read(part.get_mut(..most).unwrap_or_default()) {
            Ok(0) => {
                self.input = None;
                drop(self.link.put(Kind::Eof, self.stream, &[]));
            }
            Ok(count) => {
                self.credit = self.credit.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
                self.link.put_data(self.stream, part.get(..count).unwrap_or_default());
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {}
            Err(_) => self.input = None,
        }
    }

    /// Tells the end when all that was said before it has been carried on.
    fn settle(&mut self) {
        self.link.flush();
        let carried = self.outputs.iter().all(|output| output.waiting.is_empty());
        let known = self.counters.is_none() || self.link.closed();
        if let Some(end) = self.end.filter(|_| carried && known) {
            self.outputs.iter_mut().for_each(|output| output.pipe = None);
            if let ProgramEnd::Exited(exited) = end {
                self.tell(FromGuest::Exited(frame_of(&exited)));
            }
            self.over = true;
        } else if self.link.closed() && self.end.is_none() {
            self.over = true;
        }
    }

    fn tell(&self, frame: FromGuest) {
        let request = match frame {
            FromGuest::Started { .. } | FromGuest::ExecFailed { .. } | FromGuest::Exited(_) => GO,
            FromGuest::Mounted(_)
            | FromGuest::Terminal
            | FromGuest::Sockets(_)
            | FromGuest::Asking
            | FromGuest::Posture(_)
            | FromGuest::Failed { .. }
            | FromGuest::Stopped(_)
            | FromGuest::Continued
            | FromGuest::Pong
            | FromGuest::Settled => 0,
        };
        let mut buffer = [0; frames::MAX_OWN];
        let bytes = frame.encode(Address { channel: 0, request }, &mut buffer);
        if let Some(bytes) = bytes.and_then(|length| buffer.get(..length)) {
            // An engine that is gone shows at the next read.
            drop(sys::channel::send(&self.control, bytes));
        }
    }
}

/// Why a program did not start, as a guest would say it.
fn not_started(failure: &Failure) -> (i32, ExecFailure) {
    const ENOENT: i32 = 2;
    const EAGAIN: i32 = 11;
    const EACCES: i32 = 13;
    const ELOOP: i32 = 40;
    let which = match failure.code {
        Code::NotFound => ExecFailure::NotFound,
        Code::NoCwd => ExecFailure::Cwd,
        Code::TooMany | Code::NoSpace => ExecFailure::Resources,
        Code::NotExecutable if failure.errno == Some(ENOENT) => ExecFailure::NoInterpreter,
        Code::NotExecutable if failure.errno == Some(ELOOP) => ExecFailure::NotFound,
        Code::Exists
        | Code::NotADirectory
        | Code::IsADirectory
        | Code::Denied
        | Code::Secret
        | Code::Invalid
        | Code::NotExecutable
        | Code::Unsupported
        | Code::Closed
        | Code::Cancelled
        | Code::Paused
        | Code::Ended
        | Code::Failed => ExecFailure::NotExecutable,
    };
    let usual = match which {
        ExecFailure::NotFound | ExecFailure::NoInterpreter | ExecFailure::Cwd => ENOENT,
        ExecFailure::Resources => EAGAIN,
        ExecFailure::NotExecutable => EACCES,
    };
    (failure.errno.unwrap_or(usual), which)
}

fn frame_of(exited: &Exited) -> frames::Exited {
    let end = match (exited.signal, exited.code) {
        (Some(number @ 1..=64), _) => End::Signal { number, core: false },
        (_, Some(code)) => End::Code(code),
        // An agent of ours says one of the two.
        (_, None) => End::Signal { number: 9, core: false },
    };
    // What it used is the emulator's to show: a machine's own word on that is not taken.
    frames::Exited { end, utime_us: 0, stime_us: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_program_did_not_start_is_told_as_the_kernel_said_it() {
        let said = |code, errno| not_started(&Failure { errno, ..Failure::new(code, "why") });
        assert_eq!(said(Code::NotExecutable, Some(2)), (2, ExecFailure::NoInterpreter));
        assert_eq!(said(Code::NotExecutable, Some(8)), (8, ExecFailure::NotExecutable));
        assert_eq!(said(Code::NotExecutable, Some(40)), (40, ExecFailure::NotFound));
        assert_eq!(said(Code::NotExecutable, None), (13, ExecFailure::NotExecutable));
        assert_eq!(said(Code::NotFound, None), (2, ExecFailure::NotFound));
        assert_eq!(said(Code::TooMany, Some(7)), (7, ExecFailure::Resources));
    }
}
