//! The supervisor's side of a conversation, for tests: one thread, every wait bounded.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use agent::frame::{self, Frame, Kind, Lane};
use agent::words::{Code, Ended, Entry, Exited, Failure, Program, ProgramControl, Request, Started};
use rustix::event::{PollFd, PollFlags};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Longer than anything here takes on a machine with other work.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// What a stream has brought so far.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) reply: Option<Value>,
    pub(crate) events: Vec<Value>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: Vec<u8>,
    pub(crate) eof: bool,
    pub(crate) end: Option<Value>,
    /// Bytes that were read and not given back as credit.
    pub(crate) owed: u32,
    /// Bytes that the agent lets us send.
    pub(crate) window: u64,
}

impl std::fmt::Debug for Heard {
    /// Not megabytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let some = |bytes: &[u8]| {
            format!("{} bytes, {:?}", bytes.len(), bytes.get(..200).unwrap_or(bytes).escape_ascii().to_string())
        };
        let events = self.events.len();
        let words = format!("reply {:?}, {events} events, eof {}, end {:?}", self.reply, self.eof, self.end);
        write!(
            f,
            "{words}, owed {}, window {}, out {}, err {}",
            self.owed,
            self.window,
            some(&self.out),
            some(&self.err)
        )
    }
}

pub(crate) struct Agent {
    socket: Option<OwnedFd>,
    thread: Option<JoinHandle<Result<(), String>>>,
    pub(crate) home: tempfile::TempDir,
    inbox: Vec<u8>,
    next: u32,
    pub(crate) streams: BTreeMap<u32, Heard>,
    /// Streams that are given no credit.
    pub(crate) slow: Vec<u32>,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// Such a kernel is one sandbox's: marks of two agents in one pid namespace would be the same.
static OTHER_KERNEL: Mutex<()> = Mutex::new(());

impl Agent {
    pub(crate) fn new() -> Self {
        Self::with(|_home| {})
    }

    /// An agent of an ordinary user, who is held by the modes of files; whoever tests may be root.
    pub(crate) fn of_a_user() -> Self {
        const USER: u32 = 1000;
        Self::with(|home| {
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::chown(home, Some(USER), Some(USER)).unwrap();
                // Of this thread alone, and with it of the agent.
                sys::bare::set_user(USER).unwrap();
            }
        })
    }

    /// An agent on a kernel that lets nobody adopt orphans and has no pidfds, as gVisor's of 2022.
    pub(crate) fn on_another_kernel() -> Self {
        use sys::seccomp::rule::{Action, Calls, Condition, Filter, Test, Verdict, Width};
        const PR_SET_CHILD_SUBREAPER: u64 = 36;
        let alone = OTHER_KERNEL.lock().unwrap_or_else(PoisonError::into_inner);
        let mut agent = Self::with(|_home| {
            let test = Test::MaskedIn { mask: u64::from(u32::MAX), values: vec![PR_SET_CHILD_SUBREAPER].into() };
            let adopts = vec![Condition { argument: 0, width: Width::Int, test }];
            let mut calls = Calls::new();
            let number = |name| sys::seccomp::names::number(name).unwrap();
            let (then, otherwise) = (Action::Errno(22), Action::Allow);
            calls.insert(number("prctl"), Verdict::When { any: vec![adopts.into()].into(), then, otherwise });
            for name in ["pidfd_open", "pidfd_send_signal", "clone3"] {
                calls.insert(number(name), Verdict::Always(Action::Errno(38)));
            }
            // Of this thread alone, and with it of the agent.
            sys::bare::set_no_new_privs().unwrap();
            sys::seccomp::apply(&Filter { calls, unknown: Action::Allow }.compile().unwrap()).unwrap();
        });
        agent._alone = Some(alone);
        agent
    }

    fn with(begin: fn(&std::path::Path)) -> Self {
        let (ours, theirs) = sys::channel::pair().unwrap();
        let home = tempfile::tempdir().unwrap();
        let path = home.path().to_owned();
        let thread = std::thread::spawn(move || {
            begin(&path);
            agent::serve(theirs, &path)
        });
        Self {
            socket: Some(ours),
            thread: Some(thread),
            home,
            inbox: Vec::new(),
            next: 1,
            streams: BTreeMap::new(),
            slow: Vec::new(),
            _alone: None,
        }
    }

    /// A supervisor of an agent that runs elsewhere.
    #[cfg(feature = "embed")]
    pub(crate) fn of(socket: OwnedFd) -> Self {
        Self {
            socket: Some(socket),
            thread: None,
            home: tempfile::tempdir().unwrap(),
            inbox: Vec::new(),
            next: 1,
            streams: BTreeMap::new(),
            slow: Vec::new(),
            _alone: None,
        }
    }

    /// Closes our end.
    #[cfg(feature = "embed")]
    pub(crate) fn hang_up(&mut self) {
        self.socket = None;
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn write_raw(&mut self, mut bytes: &[u8]) {
        let socket = self.socket.as_ref().unwrap();
        while !bytes.is_empty() {
            match rustix::io::write(socket, bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(errno) => panic!("the agent is gone: {errno}"),
            }
        }
    }

    /// As far as it takes them; what comes is dropped.
    pub(crate) fn write_loosely(&mut self, bytes: &[u8]) {
        let socket = self.socket.as_ref().unwrap();
        sys::channel::set_nonblocking(socket).unwrap();
        let (mut at, mut part) = (0, vec![0; 64 * 1024]);
        while at < bytes.len() {
            let _dropped = rustix::io::read(socket, &mut part);
            match sys::channel::send_some(socket, &bytes[at..], &[]) {
                Ok(count) => at += count,
                Err(error) if error.is_again() => {}
                Err(_) => return,
            }
        }
    }

    fn put(&mut self, kind: Kind, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        assert!(frame::put(&mut bytes, Frame { kind, stream, payload }));
        self.write_raw(&bytes);
    }

    pub(crate) fn open(&mut self, request: &Request) -> u32 {
        self.open_raw(&serde_json::to_vec(request).unwrap())
    }

    pub(crate) fn open_raw(&mut self, words: &[u8]) -> u32 {
        let stream = self.next;
        self.next += 1;
        self.streams.insert(stream, Heard { window: u64::from(frame::WINDOW), ..Heard::default() });
        self.put(Kind::Open, stream, words);
        stream
    }

    /// What the first process of a copied machine says.
    pub(crate) fn forget(&mut self) {
        self.streams.insert(agent::machine::ORDERS, Heard::default());
        self.put(Kind::Open, agent::machine::ORDERS, b"{}");
    }

    pub(crate) fn eof(&mut self, stream: u32) {
        self.put(Kind::Eof, stream, &[]);
    }

    pub(crate) fn cancel(&mut self, stream: u32) {
        self.put(Kind::Cancel, stream, &[]);
    }

    pub(crate) fn credit(&mut self, stream: u32, bytes: u32) {
        let heard = self.streams.get_mut(&stream).unwrap();
        heard.owed = heard.owed.saturating_sub(bytes);
        self.put(Kind::Credit, stream, &bytes.to_le_bytes());
    }

    pub(crate) fn control(&mut self, stream: u32, control: ProgramControl) {
        self.put(Kind::Control, stream, &serde_json::to_vec(&control).unwrap());
    }

    /// Sends all bytes, as the agent gives credit.
    pub(crate) fn send(&mut self, stream: u32, bytes: &[u8]) {
        for chunk in bytes.chunks(frame::MAX_DATA - 1) {
            let length = u64::try_from(chunk.len()).unwrap();
            self.until("credit to send", |agent| {
                let heard = &agent.streams[&stream];
                heard.window >= length || heard.end.is_some()
            });
            let heard = self.streams.get_mut(&stream).unwrap();
            if heard.end.is_some() {
                return;
            }
            heard.window -= length;
            let mut frame = Vec::new();
            assert!(frame::put_data(&mut frame, stream, Lane::In, chunk));
            self.write_raw(&frame);
        }
    }

    /// Takes in what is there; false if the agent is gone or nothing came in time.
    pub(crate) fn hear(&mut self, limit: Duration) -> bool {
        let socket = self.socket.as_ref().unwrap();
        let timeout = rustix::event::Timespec::try_from(limit).unwrap();
        let mut list = [PollFd::new(socket, PollFlags::IN)];
        if rustix::event::poll(&mut list, Some(&timeout)).unwrap_or(0) == 0 {
            return false;
        }
        let mut part = vec![0; 256 * 1024];
        let count = rustix::io::read(socket, &mut part).unwrap_or(0);
        self.inbox.extend_from_slice(&part[..count]);
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Some((frame, length)) = frame::first(rest).unwrap() {
            self.take(frame);
            rest = &rest[length..];
        }
        self.inbox = rest.to_vec();
        count > 0
    }

    fn take(&mut self, frame: Frame<'_>) {
        let slow = self.slow.contains(&frame.stream);
        let heard = self.streams.get_mut(&frame.stream).expect("a stream that we opened");
        assert!(heard.end.is_none(), "something comes after the end");
        let words = || serde_json::from_slice::<Value>(frame.payload).unwrap();
        match frame.kind {
            Kind::Reply => {
                assert!(heard.reply.is_none() && heard.events.is_empty() && heard.out.is_empty());
                heard.reply = Some(words());
            }
            Kind::Event => heard.events.push(words()),
            Kind::Data => {
                let (lane, bytes) = Lane::split(frame.payload).unwrap();
                match lane {
                    Lane::Out => heard.out.extend_from_slice(bytes),
                    Lane::Err => heard.err.extend_from_slice(bytes),
                    Lane::In => panic!("data on a lane that leads in"),
                }
                heard.owed += u32::try_from(bytes.len()).unwrap();
                assert!(heard.owed <= frame::WINDOW, "more than it may send");
                if !slow {
                    let owed = std::mem::take(&mut heard.owed);
                    self.credit_if_open(frame.stream, owed);
                }
            }
            Kind::Eof => heard.eof = true,
            Kind::Credit => heard.window += u64::from(u32::from_le_bytes(frame.payload.try_into().unwrap())),
            Kind::End => heard.end = Some(words()),
            Kind::Open | Kind::Control | Kind::Cancel => panic!("{:?} is not the agent's to say", frame.kind),
        }
    }

    fn credit_if_open(&mut self, stream: u32, bytes: u32) {
        let mut frame = Vec::new();
        assert!(frame::put(&mut frame, Frame { kind: Kind::Credit, stream, payload: &bytes.to_le_bytes() }));
        // It may be gone.
        drop(sys::channel::send(self.socket.as_ref().unwrap(), &frame));
    }

    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, mut there: impl FnMut(&mut Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !there(self) {
            if Instant::now() >= end {
                let open: Vec<_> = self.streams.iter().filter(|(_, heard)| heard.end.is_none()).collect();
                panic!("waited in vain for {what}, of {} streams: {open:?}", self.streams.len());
            }
            self.hear(Duration::from_millis(100));
        }
    }

    /// Waits for the end of a stream.
    #[track_caller]
    pub(crate) fn end(&mut self, stream: u32) -> Heard {
        self.until("the end of a stream", |agent| agent.streams[&stream].end.is_some());
        self.streams.remove(&stream).unwrap()
    }

    #[track_caller]
    pub(crate) fn ask<T: DeserializeOwned>(&mut self, request: &Request) -> Result<T, Failure> {
        let stream = self.open(request);
        self.end(stream).result()
    }

    /// The code of the failure of a request.
    #[track_caller]
    pub(crate) fn fails(&mut self, request: &Request) -> Code {
        self.ask::<Value>(request).expect_err("it should fail").code
    }

    #[track_caller]
    pub(crate) fn start(&mut self, program: Program) -> (u32, u32) {
        let stream = self.open(&Request::Start(program));
        self.until("a program's start", |agent| {
            agent.streams[&stream].reply.is_some() || agent.streams[&stream].end.is_some()
        });
        let heard = &self.streams[&stream];
        let reply = heard.reply.clone().unwrap_or_else(|| panic!("it was not started: {heard:?}"));
        (stream, serde_json::from_value::<Started>(reply).unwrap().pid)
    }

    /// Runs a shell command to its end.
    #[track_caller]
    pub(crate) fn shell(&mut self, command: &str) -> Heard {
        let (stream, _) = self.start(shell(command));
        self.end(stream)
    }

    #[track_caller]
    pub(crate) fn write(&mut self, path: &str, bytes: &[u8]) -> Result<Entry, Failure> {
        let stream = self.open(&Request::Write { path: path.into(), mode: None, metadata: None });
        self.send(stream, bytes);
        self.eof(stream);
        self.end(stream).result()
    }

    #[track_caller]
    pub(crate) fn read(&mut self, path: &str) -> Result<Vec<u8>, Failure> {
        let stream = self.open(&Request::Read { path: path.into(), offset: 0, length: None });
        let heard = self.end(stream);
        let bytes = heard.out.clone();
        heard.result::<()>().map(|()| bytes)
    }

    /// Closes our end; how the agent ended.
    pub(crate) fn close(mut self) -> Result<(), String> {
        self.socket = None;
        self.thread.take().unwrap().join().unwrap()
    }

    /// How the agent ended by itself.
    #[track_caller]
    pub(crate) fn ended(mut self, what: &str) -> Result<(), String> {
        let end = Instant::now() + LIMIT;
        while !self.thread.as_ref().unwrap().is_finished() {
            assert!(Instant::now() < end, "the agent goes on: {what}");
            // What it still says may be about streams that no test opened by this client.
            let mut part = vec![0; 64 * 1024];
            let socket = self.socket.as_ref().unwrap();
            let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            if rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&wait)) == Ok(1) {
                let _dropped = rustix::io::read(socket, &mut part);
            }
        }
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Heard {
    pub(crate) fn result<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        match serde_json::from_value(self.end.clone().unwrap()).unwrap() {
            Ended::Ok(value) => Ok(value),
            Ended::Error(failure) => Err(failure),
        }
    }

    #[track_caller]
    pub(crate) fn exited(&self) -> Exited {
        self.result().unwrap()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into_owned()
    }
}

pub(crate) fn program(argv: &[&str]) -> Program {
    Program { argv: argv.iter().map(|text| (*text).to_owned()).collect(), ..Program::default() }
}

pub(crate) fn shell(command: &str) -> Program {
    program(&["/bin/sh", "-c", command])
}

pub(crate) fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}
