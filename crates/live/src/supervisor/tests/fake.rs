//! An agent that keeps to the protocol, with programs of its own; and a run that can be ended.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use agent::frame::{Kind, Lane, MAX_DATA, WINDOW};
use agent::words::{Code, Ended, Entry, Exited, Failure, FileKind, Hello, Program, ProgramControl, Request, Started};
use policy::Violation;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::watch;

use crate::supervisor::{Finish, Run};
use crate::wire::{self, Frames, Owned};
use crate::words::{Changed, EndReason, Replaced};

/// A run that ends when it is told to.
#[derive(Debug)]
pub(super) struct FakeRun {
    pub(super) end: watch::Sender<Option<Finish>>,
    pub(super) walls: Mutex<Vec<Option<Duration>>>,
    pub(super) freezer: AtomicBool,
    pub(super) kills: AtomicU64,
    /// What its broker stopped, as far as it was told.
    pub(super) stopped: Mutex<Arc<[Violation]>>,
    /// What its broker says when it is asked to count; none: it has no broker.
    pub(super) counts: Mutex<Option<Counts>>,
    /// Rules that it was given, in their order.
    pub(super) rules: Mutex<Vec<Value>>,
    /// Its broker has ended.
    pub(super) lost: AtomicBool,
    /// While this is so, nothing that takes its time is done.
    held: Mutex<bool>,
    released: Condvar,
}

/// What a broker does that is asked to count.
#[derive(Clone, Debug)]
pub(super) enum Counts {
    /// It says this.
    Says(Arc<[Violation]>),
    /// It does not answer.
    Hangs,
}

impl FakeRun {
    pub(super) fn new() -> Self {
        let (walls, freezer, kills) = (Mutex::default(), AtomicBool::new(true), AtomicU64::new(0));
        let (stopped, counts) = (Mutex::new(Arc::from([])), Mutex::default());
        let (rules, held, released) = (Mutex::default(), Mutex::default(), Condvar::new());
        let lost = AtomicBool::new(false);
        Self { end: watch::channel(None).0, walls, freezer, kills, stopped, counts, rules, lost, held, released }
    }

    pub(super) fn hold(&self, held: bool) {
        *self.held.lock().unwrap() = held;
        self.released.notify_all();
    }

    fn wait(&self) {
        drop(self.released.wait_while(self.held.lock().unwrap(), |held| *held).unwrap());
    }

    pub(super) fn finish(&self, reason: EndReason, message: &str) {
        let report = Some(json!({ "outcome": { "limit": "pids" } }));
        self.end.send_if_modified(|end| {
            let first = end.is_none();
            end.get_or_insert(Finish { reason, message: message.to_owned(), report });
            first
        });
    }
}

impl Run for FakeRun {
    fn usage(&self) -> Value {
        json!({ "wall": 1.0, "memory_peak": 67_108_864 })
    }

    fn oom_kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    fn secret_in(&self, text: &str) -> Option<String> {
        text.contains("hunter22").then(|| "db".to_owned())
    }

    fn violations(&self) -> Arc<[Violation]> {
        Arc::clone(&self.stopped.lock().unwrap())
    }

    fn count(&self, done: Box<dyn FnOnce() + Send>) -> bool {
        match self.counts.lock().unwrap().clone() {
            Some(Counts::Says(now)) => {
                *self.stopped.lock().unwrap() = now;
                done();
                true
            }
            Some(Counts::Hangs) => {
                let _never_told = std::mem::ManuallyDrop::new(done);
                true
            }
            None => false,
        }
    }

    fn has_lost_network(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    fn kill(&self) {
        self.finish(EndReason::Killed, "the run was killed");
    }

    fn set_wall(&self, from_now: Option<Duration>) {
        self.walls.lock().unwrap().push(from_now);
    }

    fn changes(&self) -> Result<Changed, Failure> {
        self.wait();
        Ok(Changed::default())
    }

    fn network(&self, net: &Value, _secrets: Option<&Value>) -> Result<Replaced, Failure> {
        self.wait();
        self.rules.lock().unwrap().push(net.clone());
        Ok(Replaced::Done { digest: String::new() })
    }

    fn hosts(&self, net: &Value) -> Result<Replaced, Failure> {
        self.network(net, None)
    }

    fn rules(&self) -> Result<Value, Failure> {
        Ok(Value::Null)
    }

    fn freeze(&self, _frozen: bool) -> Result<(), Failure> {
        let can = self.freezer.load(Ordering::Relaxed);
        let message = "this host has no freezer".to_owned();
        if can { Ok(()) } else { Err(Failure::new(Code::Unsupported, message)) }
    }
}

/// What the agent does when something other than `hello` is opened, in place of what it should.
pub(super) type Hostile = fn(u32) -> Vec<u8>;

pub(super) fn ok(value: impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&Ended::Ok(value)).unwrap()
}

pub(super) fn hello() -> Hello {
    let text = |text: &str| text.to_owned();
    Hello {
        version: agent::frame::VERSION,
        pid: 2,
        uid: 1000,
        gid: 1000,
        home: text("/home"),
        cwd: text("/workspace"),
        user: text("agent"),
        guarded: true,
    }
}

pub(super) fn entry() -> Entry {
    Entry {
        name: "a".to_owned(),
        path: "/a".to_owned(),
        kind: FileKind::File,
        size: 3,
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        modified: (0, 0),
        target: None,
        target_kind: None,
        metadata: BTreeMap::new(),
    }
}

/// A program or a file of the agent.
struct Job {
    argv: Vec<String>,
    /// What it has still to send.
    left: u64,
    credit: u64,
    /// What it has read and not given back.
    echo: Vec<u8>,
    eof: bool,
}

pub(super) struct Agent {
    out: OwnedWriteHalf,
    jobs: BTreeMap<u32, Job>,
    hostile: Option<Hostile>,
}

/// Waits for the end of a run.
pub(super) async fn ended(mut end: watch::Receiver<Option<Finish>>) -> Finish {
    loop {
        let finish = end.borrow_and_update().clone();
        if let Some(finish) = finish {
            return finish;
        }
        end.changed().await.unwrap();
    }
}

/// Answers until the connection or the run ends.
pub(super) async fn serve(socket: UnixStream, hostile: Option<Hostile>, end: watch::Receiver<Option<Finish>>) {
    let (from, out) = socket.into_split();
    let mut frames = Frames::new(from);
    let mut agent = Agent { out, jobs: BTreeMap::new(), hostile };
    let over = ended(end);
    tokio::pin!(over);
    loop {
        tokio::select! {
            frame = frames.next() => match frame {
                Ok(Some(frame)) => {
                    if agent.hear(frame).await.is_none() {
                        return;
                    }
                }
                Ok(None) | Err(_) => return,
            },
            _ = &mut over => return,
        }
    }
}

impl Agent {
    async fn put(&mut self, frame: Option<Vec<u8>>) -> Option<()> {
        self.out.write_all(&frame.unwrap()).await.ok()
    }

    async fn end(&mut self, stream: u32, payload: &[u8]) -> Option<()> {
        self.jobs.remove(&stream);
        self.put(wire::encode(Kind::End, stream, payload)).await
    }

    async fn hear(&mut self, frame: Owned) -> Option<()> {
        let Owned { kind, stream, payload } = frame;
        match kind {
            Kind::Open => self.open(stream, serde_json::from_slice(&payload).unwrap()).await?,
            Kind::Data => self.fed(stream, &payload).await?,
            Kind::Eof => {
                if let Some(job) = self.jobs.get_mut(&stream) {
                    job.eof = true;
                }
            }
            Kind::Credit => {
                if let Some(job) = self.jobs.get_mut(&stream) {
                    job.credit += u64::from(wire::credit_of(&payload));
                }
            }
            Kind::Control => {
                let ProgramControl::Signal { number, .. } = serde_json::from_slice(&payload).unwrap() else {
                    return Some(());
                };
                self.end(stream, &ok(Exited { signal: Some(number), ..Exited::default() })).await?;
            }
            Kind::Cancel if self.jobs.get(&stream).is_some_and(|job| job.argv[0] == "watch") => {
                self.end(stream, &ok(())).await?;
            }
            Kind::Cancel if self.jobs.get(&stream).is_some_and(|job| job.argv[0] == "slow") => {
                let failure = Failure::new(Code::Cancelled, "it was given up".to_owned());
                self.end(stream, &serde_json::to_vec(&Ended::<()>::Error(failure)).unwrap()).await?;
            }
            Kind::Cancel if self.jobs.contains_key(&stream) => {
                self.end(stream, &ok(Exited { signal: Some(9), ..Exited::default() })).await?;
            }
            Kind::Cancel => {}
            Kind::Reply | Kind::Event | Kind::End => panic!("no supervisor says {kind:?}"),
        }
        self.flow(stream).await
    }

    async fn open(&mut self, stream: u32, request: Request) -> Option<()> {
        match request {
            Request::Hello { .. } => self.end(stream, &ok(hello())).await,
            _ if self.hostile.is_some() => {
                let bytes = self.hostile.unwrap()(stream);
                self.out.write_all(&bytes).await.ok()
            }
            Request::Start(program) => self.start(stream, program).await,
            Request::Stat { path, .. } if path == "/a" => self.end(stream, &ok(entry())).await,
            Request::Watch { .. } => {
                self.job(stream, vec!["watch".to_owned()]);
                self.put(wire::encode(Kind::Reply, stream, b"{}")).await
            }
            Request::Port { .. } => {
                self.put(wire::encode(Kind::Reply, stream, b"{}")).await?;
                self.job(stream, vec!["cat".to_owned()]);
                Some(())
            }
            Request::Stat { .. }
            | Request::List { .. }
            | Request::Read { .. }
            | Request::Write { .. }
            | Request::Mkdir { .. }
            | Request::Move { .. }
            | Request::Remove { .. }
            | Request::Archive { .. }
            | Request::Extract { .. }
            | Request::Processes {} => {
                let failure = Failure::new(Code::NotFound, "nothing is there".to_owned());
                self.end(stream, &serde_json::to_vec(&Ended::<()>::Error(failure)).unwrap()).await
            }
        }
    }

    fn job(&mut self, stream: u32, argv: Vec<String>) {
        let number = argv.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let left = if argv[0] == "print" { number } else { 0 };
        self.jobs.insert(stream, Job { argv, left, credit: u64::from(WINDOW), echo: Vec::new(), eof: false });
    }

    async fn start(&mut self, stream: u32, program: Program) -> Option<()> {
        if program.argv[0] == "missing" {
            let failure = Failure::new(Code::NotFound, "no such program".to_owned());
            return self.end(stream, &serde_json::to_vec(&Ended::<()>::Error(failure)).unwrap()).await;
        }
        if program.argv[0] == "slow" {
            // Its start takes for ever.
            self.job(stream, program.argv);
            return Some(());
        }
        let started = serde_json::to_vec(&Started { pid: 100 + stream }).unwrap();
        self.put(wire::encode(Kind::Reply, stream, &started)).await?;
        self.job(stream, program.argv);
        Some(())
    }

    async fn fed(&mut self, stream: u32, payload: &[u8]) -> Option<()> {
        let Some((Lane::In, bytes)) = Lane::split(payload) else { panic!("a lane of the other direction") };
        let Some(job) = self.jobs.get_mut(&stream) else { return Some(()) };
        if job.argv[0] == "deaf" {
            return Some(());
        }
        job.echo.extend(bytes);
        Some(())
    }

    /// Sends what may be sent, and ends what is over.
    async fn flow(&mut self, stream: u32) -> Option<()> {
        let Some(job) = self.jobs.get_mut(&stream) else { return Some(()) };
        let mut frames = Vec::new();
        while job.left > 0 && job.credit > 0 {
            let size = job.left.min(job.credit).min(MAX_DATA as u64 - 1);
            (job.left, job.credit) = (job.left - size, job.credit - size);
            frames.push(wire::data(stream, Lane::Out, &vec![b'x'; size as usize]));
        }
        while !job.echo.is_empty() && job.credit > 0 {
            let size = job.echo.len().min(job.credit as usize).min(MAX_DATA - 1);
            let rest = job.echo.split_off(size);
            frames.push(wire::data(stream, Lane::Out, &job.echo));
            frames.push(wire::credit(stream, size as u32));
            (job.echo, job.credit) = (rest, job.credit - size as u64);
        }
        let code = match job.argv[0].as_str() {
            "exit" => job.argv.get(1).and_then(|code| code.parse().ok()),
            "print" if job.left == 0 => Some(0),
            "cat" if job.eof && job.echo.is_empty() => Some(0),
            _ => None,
        };
        let port = job.argv[0] == "cat" && job.argv.len() == 1;
        for frame in frames {
            self.put(frame).await?;
        }
        match code {
            Some(_) if port => self.end(stream, &ok(())).await,
            Some(code) => self.end(stream, &ok(Exited { code: Some(code), user_us: 5, ..Exited::default() })).await,
            None => Some(()),
        }
    }
}
