//! Who asks a supervisor: one connection, any number of requests at once.
//!
//! Each request is a [`Stream`]. What comes in waits in memory until it is taken, and no more comes than a window of data that
//! was not taken: who does not read is waited for, and nobody else waits with him.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::frame::{Kind, Lane, MAX_DATA, MAX_STREAMS, MAX_WORDS, WINDOW};
use agent::words::{Code, Ended, Failure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::place;
use crate::wire::{self, Frames, Owned};

/// Data is acknowledged when so much of it was taken.
const ACKNOWLEDGE: u32 = WINDOW / 4;
/// Most bytes of events that wait to be taken, of one stream; beyond it the stream is given up.
const MAX_UNREAD: usize = 64 << 20;
/// Bytes that an event takes beside its text once it is read: its table, names and place among those that wait.
const EVENT: usize = 1 << 10;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket could not be reached: the sandbox has ended, or is not there.
    #[error("no supervisor answers: {0}")]
    Connect(#[source] std::io::Error),
    /// The supervisor, or the agent, says why.
    #[error("{0}")]
    Failed(#[from] Failure),
    /// The connection ended: the sandbox is gone.
    #[error("the supervisor of the sandbox is gone")]
    Lost,
    /// What was answered is not what the protocol says.
    #[error("the supervisor answered what it should not: {0}")]
    Protocol(String),
    /// More requests at once than a connection takes ([`MAX_STREAMS`]), or one that is too long.
    #[error("{0}")]
    TooMany(&'static str),
}

impl Error {
    /// Whether the sandbox has ended, or its supervisor is gone.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Lost | Self::Connect(_) => true,
            Self::Failed(failure) => failure.code == Code::Ended,
            Self::Protocol(_) | Self::TooMany(_) => false,
        }
    }

    /// The same as what an agent could have said.
    #[must_use]
    pub fn failure(self) -> Failure {
        let code = match &self {
            Self::Failed(failure) => return failure.clone(),
            Self::Connect(_) | Self::Lost => Code::Ended,
            Self::TooMany(_) => Code::TooMany,
            Self::Protocol(_) => Code::Failed,
        };
        Failure::new(code, self.to_string())
    }
}

/// What comes in on a stream, beside its reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Incoming {
    /// Something happened.
    Event(Value),
    /// Output, or the content of a file.
    Out(Vec<u8>),
    /// Errors of a program.
    Err(Vec<u8>),
    /// The result, or why there is none; the last that comes. A connection that ends says [`Code::Ended`].
    End(Result<Value, Failure>),
}

/// A connection to a supervisor. Clones share it; it ends with the last of them and of their streams.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    table: Arc<Mutex<Table>>,
    out: UnboundedSender<Vec<u8>>,
    reader: tokio::task::AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

#[derive(Debug, Default)]
struct Table {
    last: u32,
    open: BTreeMap<u32, Open>,
    gone: bool,
}

/// A stream as the reader of the connection knows it.
#[derive(Debug)]
struct Open {
    to: UnboundedSender<Got>,
    /// Bytes that we may send.
    credit: Arc<Semaphore>,
    /// Bytes of words that wait to be taken.
    unread: Arc<AtomicUsize>,
}

#[derive(Debug)]
enum Got {
    Reply(Value),
    /// No more data comes.
    Eof,
    Other(Incoming, usize),
}

fn locked(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    /// Connects to the socket of a sandbox (`Home::socket_of`). Must be called within a tokio runtime, which then carries it.
    ///
    /// # Errors
    /// [`Error::Connect`].
    pub async fn connect(path: &Path) -> Result<Self, Error> {
        Ok(Self::over(place::connect(path).await.map_err(Error::Connect)?))
    }

    /// Over a connection that stands already.
    #[must_use]
    pub fn over(socket: UnixStream) -> Self {
        let (from, to) = socket.into_split();
        let (out, bytes) = unbounded_channel();
        let table = Arc::new(Mutex::new(Table::default()));
        // Whoever cannot write any more reads the end soon; the reader tells everybody.
        tokio::spawn(wire::write_all(to, bytes, |_| ()));
        let reader = tokio::spawn(read(Frames::new(from), Arc::clone(&table))).abort_handle();
        Self { inner: Arc::new(Inner { table, out, reader }) }
    }

    /// Asks: [`crate::words::Ask`] or [`agent::words::Request`].
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::TooMany`].
    pub fn open(&self, ask: &impl Serialize) -> Result<Stream, Error> {
        let words = serde_json::to_vec(ask).map_err(|error| Error::Protocol(error.to_string()))?;
        if words.len() > MAX_WORDS {
            return Err(Error::TooMany("the request is longer than 256 KiB"));
        }
        let (to, from) = unbounded_channel();
        let credit = Arc::new(Semaphore::new(usize::try_from(WINDOW).unwrap_or(0)));
        let unread = Arc::new(AtomicUsize::new(0));
        let mut table = locked(&self.inner.table);
        if table.gone {
            return Err(Error::Lost);
        }
        if table.open.len() >= MAX_STREAMS {
            return Err(Error::TooMany("1,024 requests are open on this connection"));
        }
        let number = table.free();
        table.open.insert(number, Open { to, credit: Arc::clone(&credit), unread: Arc::clone(&unread) });
        drop(table);
        let sender = Sender { client: self.clone(), number, credit };
        sender.put(wire::encode(Kind::Open, number, &words))?;
        Ok(Stream { sender, from, unread, waiting: None, replied: false, ended: false, owed: 0 })
    }

    /// Asks for what is answered by its result alone.
    ///
    /// # Errors
    /// [`Error`]; what the supervisor says is [`Error::Failed`].
    pub async fn call<T: DeserializeOwned>(&self, ask: &impl Serialize) -> Result<T, Error> {
        self.open(ask)?.result().await
    }
}

impl Table {
    /// A number that no open stream has.
    fn free(&mut self) -> u32 {
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.open.contains_key(&self.last) {
                return self.last;
            }
        }
    }
}

/// One request, until its end. Dropped before, it is cancelled.
#[derive(Debug)]
pub struct Stream {
    sender: Sender,
    from: UnboundedReceiver<Got>,
    unread: Arc<AtomicUsize>,
    /// What came before anybody asked for it.
    waiting: Option<Incoming>,
    replied: bool,
    ended: bool,
    /// Bytes that were taken and not acknowledged.
    owed: u32,
}

impl Stream {
    /// What is known at once, for requests that have a `Reply`. Ask for it once, and first.
    ///
    /// # Errors
    /// [`Error::Failed`] if it ended instead.
    pub async fn reply(&mut self) -> Result<Value, Error> {
        match self.from.recv().await {
            Some(Got::Reply(value)) => {
                self.replied = true;
                Ok(value)
            }
            Some(Got::Other(Incoming::End(ended), _)) => {
                self.ended = true;
                ended.map_err(Error::Failed)?;
                Err(Error::Protocol("an end without a reply".to_owned()))
            }
            Some(Got::Other(other, size)) => {
                self.taken(&other, size);
                self.waiting = Some(other);
                Err(Error::Protocol("no reply before the first event".to_owned()))
            }
            Some(Got::Eof) => Err(Error::Protocol("the end of its data without a reply".to_owned())),
            None => Err(Error::Lost),
        }
    }

    /// What comes next; none after the end. A reply that nobody asked for is left out.
    pub async fn next(&mut self) -> Option<Incoming> {
        loop {
            match self.next_before_eof().await {
                None if !self.ended => {}
                next => return next,
            }
        }
    }

    /// As [`Stream::next`]; none also when all data of this direction has come, while the other may go on. Told once.
    pub async fn next_before_eof(&mut self) -> Option<Incoming> {
        if let Some(waiting) = self.waiting.take() {
            return Some(waiting);
        }
        while !self.ended {
            match self.from.recv().await {
                Some(Got::Reply(_)) => {}
                Some(Got::Eof) => return None,
                Some(Got::Other(incoming, size)) => {
                    self.taken(&incoming, size);
                    return Some(incoming);
                }
                None => {
                    self.ended = true;
                    return Some(Incoming::End(Err(Error::Lost.failure())));
                }
            }
        }
        None
    }

    /// Its result; events and data before it are left out.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn result<T: DeserializeOwned>(&mut self) -> Result<T, Error> {
        while let Some(incoming) = self.next().await {
            if let Incoming::End(ended) = incoming {
                return serde_json::from_value(ended?).map_err(|error| Error::Protocol(error.to_string()));
            }
        }
        Err(Error::Lost)
    }

    fn taken(&mut self, incoming: &Incoming, size: usize) {
        match incoming {
            Incoming::Event(_) => {
                self.unread.fetch_sub(size, Ordering::Relaxed);
            }
            Incoming::Out(_) | Incoming::Err(_) => {
                self.owed = self.owed.saturating_add(u32::try_from(size).unwrap_or(u32::MAX));
                if self.owed >= ACKNOWLEDGE {
                    let credit = wire::credit(self.sender.number, std::mem::take(&mut self.owed));
                    // A connection that is gone says so by its end.
                    drop(self.sender.put(credit));
                }
            }
            Incoming::End(_) => self.ended = true,
        }
    }

    /// What sends on this stream, for another task.
    #[must_use]
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// As [`Sender::send`].
    ///
    /// # Errors
    /// As [`Sender::send`].
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        self.sender.send(bytes).await
    }

    /// As [`Sender::eof`].
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn eof(&self) -> Result<(), Error> {
        self.sender.eof()
    }

    /// As [`Sender::control`].
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::TooMany`].
    pub fn control(&self, control: &impl Serialize) -> Result<(), Error> {
        self.sender.control(control)
    }

    /// As [`Sender::cancel`]; its end comes all the same.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn cancel(&self) -> Result<(), Error> {
        self.sender.cancel()
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.ended && self.sender.cancel().is_err() {
            // The connection is gone, and with it the request.
        }
    }
}

/// What sends on a stream. It keeps the connection, and not the request.
#[derive(Clone, Debug)]
pub struct Sender {
    client: Client,
    number: u32,
    credit: Arc<Semaphore>,
}

impl Sender {
    /// Sends data; waits while the other side takes none.
    ///
    /// # Errors
    /// [`Error::Lost`]: the request has ended, or the connection.
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        for chunk in bytes.chunks(MAX_DATA - 1) {
            let size = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
            self.credit.acquire_many(size).await.map_err(|_closed| Error::Lost)?.forget();
            self.put(wire::data(self.number, Lane::In, chunk))?;
        }
        Ok(())
    }

    /// No more data comes.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn eof(&self) -> Result<(), Error> {
        self.put(wire::encode(Kind::Eof, self.number, b""))
    }

    /// Asks something of the request, e.g. [`agent::words::ProgramControl`].
    ///
    /// # Errors
    /// [`Error::Lost`], [`Error::TooMany`].
    pub fn control(&self, control: &impl Serialize) -> Result<(), Error> {
        let words = serde_json::to_vec(control).map_err(|error| Error::Protocol(error.to_string()))?;
        self.put(wire::encode(Kind::Control, self.number, &words))
    }

    /// Gives the request up.
    ///
    /// # Errors
    /// [`Error::Lost`].
    pub fn cancel(&self) -> Result<(), Error> {
        self.put(wire::encode(Kind::Cancel, self.number, b""))
    }

    fn put(&self, frame: Option<Vec<u8>>) -> Result<(), Error> {
        let frame = frame.ok_or(Error::TooMany("what is asked is longer than 256 KiB"))?;
        // The lock orders this with the reader: a number that was freed may belong to another request by now.
        let table = locked(&self.client.inner.table);
        let ours = table.open.get(&self.number).is_some_and(|open| Arc::ptr_eq(&open.credit, &self.credit));
        if !ours || self.client.inner.out.send(frame).is_err() {
            return Err(Error::Lost);
        }
        Ok(())
    }
}

/// Reads to the end of the connection and tells everybody of it.
async fn read(mut frames: Frames<tokio::net::unix::OwnedReadHalf>, table: Arc<Mutex<Table>>) {
    // Whatever ended it, nothing more comes.
    while let Ok(Some(frame)) = frames.next().await {
        if !take(&mut locked(&table), frame) {
            break;
        }
    }
    let mut table = locked(&table);
    table.gone = true;
    for open in std::mem::take(&mut table.open).into_values() {
        open.credit.close();
    }
}

/// Hands a frame to its stream; false where none such can come.
fn take(table: &mut Table, frame: Owned) -> bool {
    let Owned { kind, stream, payload } = frame;
    let Some(open) = table.open.get(&stream) else { return false };
    let value = || serde_json::from_slice::<Value>(&payload).ok();
    let (got, last) = match kind {
        Kind::Reply => (value().map(Got::Reply), false),
        Kind::Event => {
            let size = payload.len().saturating_add(EVENT);
            let before = open.unread.fetch_add(size, Ordering::Relaxed);
            if before.saturating_add(size) > MAX_UNREAD {
                let message = "64 MiB of events wait to be read".to_owned();
                let end = Incoming::End(Err(Failure::new(Code::TooMany, message)));
                // Told once; what comes after it is not kept.
                if before <= MAX_UNREAD {
                    drop(open.to.send(Got::Other(end, 0)));
                }
                return true;
            }
            (value().map(|value| Got::Other(Incoming::Event(value), size)), false)
        }
        Kind::Data => {
            let got = Lane::split(&payload).and_then(|(lane, bytes)| match lane {
                Lane::Out => Some(Got::Other(Incoming::Out(bytes.to_vec()), bytes.len())),
                Lane::Err => Some(Got::Other(Incoming::Err(bytes.to_vec()), bytes.len())),
                Lane::In => None,
            });
            (got, false)
        }
        Kind::End => {
            let ended = serde_json::from_slice::<Ended<Value>>(&payload).ok().map(|ended| match ended {
                Ended::Ok(value) => Got::Other(Incoming::End(Ok(value)), 0),
                Ended::Error(failure) => Got::Other(Incoming::End(Err(failure)), 0),
            });
            (ended, true)
        }
        Kind::Credit => {
            let more = usize::try_from(wire::credit_of(&payload)).unwrap_or(0);
            let fits = open.credit.available_permits().saturating_add(more) <= Semaphore::MAX_PERMITS;
            if fits {
                open.credit.add_permits(more);
            }
            return fits;
        }
        Kind::Eof => (Some(Got::Eof), false),
        Kind::Open | Kind::Control | Kind::Cancel => return false,
    };
    let Some(got) = got else { return false };
    // A stream that was given up takes nothing any more.
    drop(open.to.send(got));
    if last && let Some(open) = table.open.remove(&stream) {
        open.credit.close();
    }
    true
}
