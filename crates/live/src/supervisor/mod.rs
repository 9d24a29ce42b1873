//! The supervisor of one live sandbox: one process, one thread, one run.
//!
//! It believes nothing of the agent and waits for nobody: not for the agent, not for a client that does not read. Whatever is
//! asked and said passes the hub, which decides at once; reading and writing is done by a task for each connection.

mod asks;
mod carrier;
mod client;
mod hub;
mod kernel;
mod line;
mod network;
mod program;
mod programs;
mod pump;
mod recorded;
mod stopped;
#[cfg(test)]
mod tests;
mod warm;

use std::future::Future;
use std::os::fd::{AsFd as _, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use policy::Policy;
use rustix::net::RecvFlags;
use sandbox::audit::Log;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use carrier::{Carrier, Finish, Run};
use client::ClientId;
use hub::{Hub, Note};
use line::Agent;
pub use warm::{are_modules, is_module};

use crate::begin::Begin;
use crate::client::Client;
use crate::error::LiveError;
use crate::place;
use crate::record::Claim;
use crate::restore::Restore;
use crate::wire::{self, Frames, WireError};
use crate::words::{EndReason, Info};

/// Most connections at once; another one is closed at once.
const MAX_CLIENTS: usize = 128;
/// Notes that wait; who has more to say waits.
const NOTES: usize = 32;
/// Last words are written within this time, or not at all.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Where the host gives no more descriptors, it is asked again after this time.
const NO_DESCRIPTORS: Duration = Duration::from_millis(100);
/// How often one that waits for somebody is looked at: whether it is whole.
const LOOK: Duration = Duration::from_secs(1);

/// What a supervisor is told about its sandbox.
#[derive(Debug)]
pub struct Setup {
    /// Its place.
    pub claim: Claim,
    /// All about it; what only the supervisor knows is filled in by it.
    pub info: Info,
    /// Where its events are written down.
    pub log: Option<Log>,
    /// What hints are read by; none without.
    pub policy: Option<Box<Policy>>,
    /// `limits.output`, for each program.
    pub output: Option<u64>,
    /// A program that prints more is killed, else the rest is left out.
    pub kill_over: bool,
    /// How long it lives.
    pub life: Option<Duration>,
    /// It is ended when it was idle for so long.
    pub idle: Option<Duration>,
}

/// A supervisor whose agent has answered.
pub struct Supervisor {
    hub: Hub,
    notes: Receiver<Note>,
    sender: Sender<Note>,
    ended: Pin<Box<dyn Future<Output = Finish> + Send>>,
    listener: UnixListener,
    signals: [Signal; 3],
    last_client: ClientId,
    /// The next one is accepted then.
    accepts: Instant,
    /// The socket to the agent, of one that is nobody's yet.
    agent: Option<OwnedFd>,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("id", &self.hub.setup.info.id).finish_non_exhaustive()
    }
}

impl Supervisor {
    /// Takes over a run that was let go: listens, and asks the agent who it is. Must be called within a tokio runtime of one
    /// thread.
    ///
    /// # Errors
    /// [`LiveError::Start`]; nothing runs any more then, and nothing is recorded.
    pub async fn begin(setup: Setup, carrier: Carrier) -> Result<Self, LiveError> {
        Self::ready(setup, carrier).await?.opened().await
    }

    /// As [`Supervisor::begin`], of what is nobody's sandbox yet: no record says that it is there.
    ///
    /// # Errors
    /// As [`Supervisor::begin`].
    pub(crate) async fn ready(setup: Setup, carrier: Carrier) -> Result<Self, LiveError> {
        let Carrier { socket, run, ended } = carrier;
        let opened = open(&setup, socket);
        let (listener, signals, socket) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                run.kill();
                ended.await;
                return Err(LiveError::Start { why: error.to_string() });
            }
        };
        let (sender, notes) = channel(NOTES);
        let agent = socket.as_fd().try_clone_to_owned().ok();
        let (from, to) = socket.into_split();
        let (out, queued, _writer) = writer(to);
        tokio::spawn(read_agent(Frames::new(from), sender.clone()));
        let hub = Hub::new(setup, run, Agent::new(out, queued), sender.clone());
        let accepts = Instant::now();
        let mut supervisor = Self { hub, notes, sender, ended, listener, signals, last_client: 0, accepts, agent };
        supervisor.hub.spare = true;
        supervisor.hub.greet();
        while !supervisor.hub.is_ready() {
            supervisor.step(false).await;
            if supervisor.hub.over {
                let why = supervisor.hub.setup.info.message.clone().unwrap_or_default();
                return Err(LiveError::Start { why });
            }
        }
        Ok(supervisor)
    }

    /// Somebody's sandbox from now on.
    async fn opened(mut self) -> Result<Self, LiveError> {
        self.hub.spare = false;
        self.agent = None;
        let info = self.hub.info();
        if let Err(error) = self.hub.setup.claim.write(&info) {
            self.hub.end(EndReason::Failed, error.to_string());
            self.ended().await;
            return Err(error);
        }
        self.make_room_for_kernels();
        Ok(self)
    }

    async fn ended(&mut self) {
        while !self.hub.over {
            self.step(false).await;
        }
    }

    /// A Python with these modules is to wait for code.
    pub(crate) fn warm(&mut self, imports: Vec<String>) {
        self.hub.imports = Some(imports);
        self.hub.warm_up();
    }

    /// Lives on as nobody's sandbox until `wanted` says whose it is; none where nobody will, and it has ended. It has no end of its own
    /// but where a Python in it runs what its modules say.
    pub(crate) async fn wait<T>(mut self, wanted: impl Future<Output = Option<T>>) -> Option<(Self, T)> {
        if self.hub.imports.is_none() {
            self.hub.run.set_wall(None);
        }
        let mut wanted = std::pin::pin!(wanted);
        let mut looks = tokio::time::interval(LOOK);
        let why = loop {
            tokio::select! {
                said = &mut wanted => match said {
                    Some(said) => return Some((self, said)),
                    None => break (EndReason::Killed, "it was made ready and never used".to_owned()),
                },
                _ = looks.tick() => {
                    if let Some(why) = self.lost() {
                        break (EndReason::Failed, format!("it was made ready, and before anybody used it {why}"));
                    }
                }
                () = self.step(false) => {
                    if self.hub.over {
                        return None;
                    }
                }
            }
        };
        self.hub.end(why.0, why.1);
        self.ended().await;
        None
    }

    /// What one that waits for somebody has not any more, so that it is nobody's sandbox.
    fn lost(&self) -> Option<String> {
        if let Some((_, why)) = &self.hub.ending {
            return Some(why.clone());
        }
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        // What the agent says is for its reader, who may not have been told of its end yet.
        let has_left = |agent: &OwnedFd| rustix::net::recv(agent, &mut byte, flags).is_ok_and(|(_, count)| count == 0);
        if self.agent.as_ref().is_some_and(has_left) {
            return Some("its agent has ended".to_owned());
        }
        if std::fs::symlink_metadata(self.hub.setup.claim.socket()).is_err() {
            return Some("its folder, or the socket in it, is not there".to_owned());
        }
        self.hub.run.has_lost_network().then(|| "the broker of its network has ended".to_owned())
    }

    /// Its place, its life and all that is said of it, when it is taken.
    ///
    /// # Errors
    /// What `name` says, or as [`Supervisor::begin`], also where it is not whole any more; nothing runs then.
    pub(crate) async fn taken(
        mut self,
        (life, idle_ms): (Option<Duration>, Option<u64>),
        tell: impl FnOnce(&mut Claim, &mut Info) -> Result<(), LiveError>,
    ) -> Result<Self, LiveError> {
        let lost = self.lost().map(|why| LiveError::Start { why });
        let setup = &mut self.hub.setup;
        if let Err(error) = lost.map_or_else(|| tell(&mut setup.claim, &mut setup.info), Err) {
            self.hub.end(EndReason::Failed, error.to_string());
            self.ended().await;
            return Err(error);
        }
        let now = Instant::now();
        (self.hub.busy, self.hub.setup.life) = (now, life);
        (self.hub.setup.idle, self.hub.setup.info.idle_ms) = (idle_ms.map(Duration::from_millis), idle_ms);
        self.hub.ends = life.and_then(|life| now.checked_add(life));
        self.hub.run.set_wall(life);
        self.hub.run.taken();
        self.opened().await
    }

    /// Makes the sandbox what a snapshot was, before anybody else is heard; in words why not. Then it has ended.
    pub(crate) async fn restored(self, restore: Restore) -> Result<Self, String> {
        let home = self.hub.setup.info.agent.as_ref().map(|agent| agent.home.clone()).unwrap_or_default();
        self.first("it did not become what its snapshot was", |client| restore.run(client, home)).await
    }

    /// Starts what the template of the sandbox begins with, and waits until it is ready; as [`Self::restored`].
    pub(crate) async fn begun(self, begin: Begin) -> Result<Self, String> {
        self.first("it did not begin as its template says", |client| begin.run(client)).await
    }

    async fn first<W>(mut self, failed: &str, work: impl FnOnce(Client) -> W) -> Result<Self, String>
    where
        W: Future<Output = Result<(), String>>,
    {
        let done = match UnixStream::pair() {
            Ok((ours, theirs)) => {
                let id = self.admit(theirs);
                let done = self.until(work(Client::over(ours))).await;
                self.hub.left(id);
                done
            }
            Err(error) => Err(error.to_string()),
        };
        let Err(why) = done else { return Ok(self) };
        // What ended it meanwhile says more than that a request was lost.
        self.hub.end(EndReason::Failed, format!("{failed}: {why}"));
        while !self.hub.over {
            self.step(false).await;
        }
        let info = &self.hub.setup.info;
        let ended = info.message.clone().filter(|_| info.reason != Some(EndReason::Failed));
        Err(ended.unwrap_or(why))
    }

    async fn until(&mut self, work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = self.step(false) => {
                    if self.hub.over {
                        return Err("the sandbox has ended".to_owned());
                    }
                }
            }
        }
    }

    /// All about the sandbox.
    #[must_use]
    pub fn info(&self) -> Info {
        self.hub.info()
    }

    /// Answers until the sandbox has ended; its last word.
    pub async fn serve(mut self) -> Info {
        while !self.hub.over {
            self.step(true).await;
        }
        let info = self.hub.info();
        // Whoever listens is given the last words, but not for ever.
        let clients = std::mem::take(&mut self.hub.clients);
        let written = async {
            for client in clients.into_values() {
                client.close().await;
            }
        };
        drop(tokio::time::timeout(LAST_WORDS, written).await);
        info
    }

    /// Waits for one thing, and deals with it.
    async fn step(&mut self, accept: bool) {
        let next = self.hub.next();
        let [terminate, interrupt, hangup] = &mut self.signals;
        let due = async {
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => std::future::pending().await,
            }
        };
        let (listener, accepts) = (&self.listener, self.accepts);
        let arrival = async {
            tokio::time::sleep_until(accepts).await;
            listener.accept().await
        };
        let stopped = "it was told to stop by a signal";
        tokio::select! {
            finish = &mut self.ended, if !self.hub.over => self.hub.finish(finish),
            note = self.notes.recv() => {
                if let Some(note) = note {
                    self.hub.hear(note);
                }
            }
            arrived = arrival, if accept => match arrived {
                Ok((socket, _)) => self.arrived(socket),
                Err(_) => self.accepts = Instant::now().checked_add(NO_DESCRIPTORS).unwrap_or(self.accepts),
            },
            _ = terminate.recv() => self.hub.end(EndReason::Signal, format!("{stopped} (SIGTERM)")),
            _ = interrupt.recv() => self.hub.end(EndReason::Signal, format!("{stopped} (SIGINT)")),
            _ = hangup.recv() => self.hub.end(EndReason::Signal, format!("{stopped} (SIGHUP)")),
            () = due => self.hub.tick(),
        }
    }

    /// A connection: of the same user, or of root.
    fn arrived(&mut self, socket: UnixStream) {
        let ours = rustix::process::geteuid().as_raw();
        let may = socket.peer_cred().is_ok_and(|peer| peer.uid() == ours || peer.uid() == 0);
        let ours = usize::from(self.hub.kernels.is_some());
        if !may || self.hub.clients.len().saturating_sub(ours) >= MAX_CLIENTS {
            return;
        }
        self.admit(socket);
    }

    /// A client of our own, to whom the kernels belong. Where the host has no descriptors left, nobody can ask for any.
    fn make_room_for_kernels(&mut self) {
        if let Ok((ours, theirs)) = UnixStream::pair() {
            let id = self.admit(theirs);
            self.hub.has_kernels(id, Client::over(ours));
        }
    }

    fn admit(&mut self, socket: UnixStream) -> ClientId {
        self.last_client = self.last_client.saturating_add(1);
        let id = self.last_client;
        let (from, to) = socket.into_split();
        let (out, queued, writer) = writer(to);
        let reader = tokio::spawn(read_client(Frames::new(from), id, self.sender.clone())).abort_handle();
        self.hub.clients.insert(id, client::Client::new(out, queued, reader, writer));
        id
    }
}

type Opened = (UnixListener, [Signal; 3], UnixStream);

fn open(setup: &Setup, socket: std::os::unix::net::UnixStream) -> std::io::Result<Opened> {
    let listener = place::bind(&setup.claim.socket())?;
    let signals = [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
    socket.set_nonblocking(true)?;
    Ok((listener, signals, UnixStream::from_std(socket)?))
}

/// A task that writes what is queued; where to queue it, and how much waits.
fn writer(
    to: impl AsyncWrite + Unpin + Send + 'static,
) -> (UnboundedSender<Vec<u8>>, Arc<AtomicUsize>, JoinHandle<()>) {
    let (out, bytes) = unbounded_channel();
    let queued = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&queued);
    let write = async move {
        let written = |count| {
            counted.fetch_sub(count, Ordering::Relaxed);
        };
        // Whoever does not take it any more is told by his reader.
        if wire::write_all(to, bytes, written).await.is_err() {}
    };
    (out, queued, tokio::spawn(write))
}

async fn read_client(mut frames: Frames<impl AsyncRead + Unpin>, id: ClientId, notes: Sender<Note>) {
    // What is no frame, and a connection that broke, are the same: he is gone.
    while let Ok(Some(frame)) = frames.next().await {
        if notes.send(Note::Asked(id, frame)).await.is_err() {
            return;
        }
    }
    if notes.send(Note::Left(id)).await.is_err() {}
}

async fn read_agent(mut frames: Frames<impl AsyncRead + Unpin>, notes: Sender<Note>) {
    loop {
        let note = match frames.next().await {
            Ok(Some(frame)) => Note::Agent(frame),
            Ok(None) | Err(WireError::Io(_) | WireError::Torn) => Note::Gone,
            Err(WireError::Frame(error)) => Note::Broke(error.to_string()),
        };
        let last = !matches!(note, Note::Agent(_));
        if notes.send(note).await.is_err() || last {
            return;
        }
    }
}
