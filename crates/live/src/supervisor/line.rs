//! The agent's side: its streams, their windows, and what may come on them. It is believed in nothing: what it may not say is
//! a [`Breach`], which ends the sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::frame::{Kind, Lane, MAX_STREAMS, WINDOW};
use agent::words::{Change, Ended, Entries, Entry, Exited, Hello, Processes, Request, Skipped, Started};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;

use super::client::ClientId;
use crate::wire::{self, Owned};

/// Most bytes of requests that an agent leaves unread before no more are taken.
const MAX_WAITING: usize = 16 << 20;
/// With all windows full, no agent that keeps to the protocol leaves so much unread.
const MAX_QUEUED: usize = 384 << 20;

/// The agent said what it may not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Breach(pub(super) String);

/// Who is at the other end of one of the agent's streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum To {
    /// We ourselves.
    Hello,
    /// A client, one to one.
    Client(ClientId, u32),
    /// A program.
    Program(u64),
    /// Nobody any more: it was cancelled, and is read to its end.
    Nobody,
}

/// What may come on a stream, by what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Hello,
    Start,
    Entry,
    List,
    Read,
    Empty,
    Watch,
    Archive,
    Skipped,
    Port,
    Processes,
}

impl Shape {
    /// Of a request.
    pub(super) const fn of(request: &Request) -> Self {
        match request {
            Request::Hello { .. } => Self::Hello,
            Request::Start(_) => Self::Start,
            Request::Stat { .. } | Request::Write { .. } | Request::Mkdir { .. } | Request::Move { .. } => Self::Entry,
            Request::List { .. } => Self::List,
            Request::Read { .. } => Self::Read,
            Request::Remove { .. } => Self::Empty,
            Request::Watch { .. } => Self::Watch,
            Request::Archive { .. } => Self::Archive,
            Request::Extract { .. } => Self::Skipped,
            Request::Port { .. } => Self::Port,
            Request::Processes {} => Self::Processes,
        }
    }

    fn reply(self, payload: &[u8]) -> bool {
        match self {
            Self::Start => is::<Started>(payload),
            Self::Read => is::<Entry>(payload),
            Self::Watch | Self::Port => is_empty(payload),
            Self::Hello | Self::Entry | Self::List | Self::Empty | Self::Archive | Self::Skipped | Self::Processes => {
                false
            }
        }
    }

    fn event(self, payload: &[u8]) -> bool {
        match self {
            Self::List => is::<Entries>(payload),
            Self::Watch => is::<Change>(payload),
            Self::Hello
            | Self::Start
            | Self::Entry
            | Self::Read
            | Self::Empty
            | Self::Archive
            | Self::Skipped
            | Self::Port
            | Self::Processes => false,
        }
    }

    const fn data(self, lane: Lane) -> bool {
        match self {
            Self::Start => matches!(lane, Lane::Out | Lane::Err),
            Self::Read | Self::Archive | Self::Port => matches!(lane, Lane::Out),
            Self::Hello | Self::Entry | Self::List | Self::Empty | Self::Watch | Self::Skipped | Self::Processes => {
                false
            }
        }
    }

    fn end(self, payload: &[u8]) -> bool {
        match self {
            Self::Hello => is::<Ended<Hello>>(payload),
            Self::Start => is::<Ended<Exited>>(payload),
            Self::Entry => is::<Ended<Entry>>(payload),
            Self::Archive | Self::Skipped => is::<Ended<Skipped>>(payload),
            Self::Processes => is::<Ended<Processes>>(payload),
            Self::List | Self::Read | Self::Empty | Self::Watch | Self::Port => {
                serde_json::from_slice::<Ended<Value>>(payload).is_ok_and(|ended| match ended {
                    Ended::Ok(value) => nothing(&value),
                    Ended::Error(_) => true,
                })
            }
        }
    }
}

fn is<T: DeserializeOwned>(payload: &[u8]) -> bool {
    serde_json::from_slice::<T>(payload).is_ok()
}

fn nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_empty(payload: &[u8]) -> bool {
    serde_json::from_slice(payload).is_ok_and(|value| nothing(&value))
}

/// One of the agent's streams.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) to: To,
    shape: Shape,
    /// Bytes that the agent may send.
    out_left: u32,
    /// Bytes that we may send.
    pub(super) in_left: u32,
    replied: bool,
    spoke: bool,
    no_more: bool,
}

/// The agent.
#[derive(Debug)]
pub(super) struct Agent {
    out: UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    lines: BTreeMap<u32, Line>,
    last: u32,
}

impl Agent {
    pub(super) const fn new(out: UnboundedSender<Vec<u8>>, queued: Arc<AtomicUsize>) -> Self {
        Self { out, queued, lines: BTreeMap::new(), last: 0 }
    }

    /// Opens a stream with a request; none where too many are open, or the agent reads nothing.
    pub(super) fn open(&mut self, request: &Request, to: To) -> Option<u32> {
        if self.lines.len() >= MAX_STREAMS || self.queued.load(Ordering::Relaxed) > MAX_WAITING {
            return None;
        }
        let words = serde_json::to_vec(request).ok()?;
        let number = loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if !self.lines.contains_key(&self.last) {
                break self.last;
            }
        };
        let frame = wire::encode(Kind::Open, number, &words)?;
        let shape = Shape::of(request);
        let line = Line { to, shape, out_left: WINDOW, in_left: WINDOW, replied: false, spoke: false, no_more: false };
        self.lines.insert(number, line);
        self.send(Some(frame));
        Some(number)
    }

    /// A stream that is open.
    pub(super) fn line(&self, number: u32) -> Option<&Line> {
        self.lines.get(&number)
    }

    /// Whether some of them lead to clients: somebody is at work.
    pub(super) fn is_used(&self) -> bool {
        self.lines.values().any(|line| matches!(line.to, To::Client(..)))
    }

    /// Sends data; false where it may not take so much.
    pub(super) fn data(&mut self, number: u32, bytes: &[u8]) -> bool {
        let Some(line) = self.lines.get_mut(&number) else { return true };
        let left = u32::try_from(bytes.len()).ok().and_then(|length| line.in_left.checked_sub(length));
        let Some(left) = left else { return false };
        line.in_left = left;
        self.send(wire::data(number, Lane::In, bytes));
        true
    }

    /// Takes so much more from it.
    pub(super) fn credit(&mut self, number: u32, bytes: u32) {
        if bytes > 0
            && let Some(line) = self.lines.get_mut(&number)
        {
            line.out_left = line.out_left.saturating_add(bytes);
            self.send(wire::credit(number, bytes));
        }
    }

    /// Sends words on a stream, if it is open.
    pub(super) fn send_frame(&mut self, kind: Kind, number: u32, payload: &[u8]) {
        if self.lines.contains_key(&number) {
            self.send(wire::encode(kind, number, payload));
        }
    }

    /// Gives a stream up; with `nobody`, what still comes is for nobody.
    pub(super) fn cancel(&mut self, number: u32, nobody: bool) {
        if let Some(line) = self.lines.get_mut(&number) {
            if nobody {
                line.to = To::Nobody;
            }
            self.send(wire::encode(Kind::Cancel, number, b""));
        }
    }

    /// Bytes that the agent may still send on a stream.
    pub(super) fn out_left(&self, number: u32) -> u32 {
        self.lines.get(&number).map_or(WINDOW, |line| line.out_left)
    }

    fn send(&self, frame: Option<Vec<u8>>) {
        let Some(frame) = frame else { return };
        self.queued.fetch_add(frame.len(), Ordering::Relaxed);
        // An agent that is gone is told by its reader.
        if self.out.send(frame).is_err() {}
    }

    /// Judges a frame of the agent; whose it is.
    ///
    /// # Errors
    /// It may not say that.
    pub(super) fn judge(&mut self, frame: &Owned) -> Result<To, Breach> {
        let breach = |what: &str| Breach(format!("{what} ({:?} on stream {})", frame.kind, frame.stream));
        if self.queued.load(Ordering::Relaxed) > MAX_QUEUED {
            return Err(breach("it reads nothing"));
        }
        let line = self.lines.get_mut(&frame.stream).ok_or_else(|| breach("a stream that is not open"))?;
        match frame.kind {
            Kind::Reply if line.replied || line.spoke => return Err(breach("a second reply, or one that is too late")),
            Kind::Reply if !line.shape.reply(&frame.payload) => return Err(breach("no reply to what was asked")),
            Kind::Reply => line.replied = true,
            Kind::Event if !line.shape.event(&frame.payload) => return Err(breach("no event of what was asked")),
            Kind::Event => line.spoke = true,
            Kind::Data => {
                let (lane, bytes) = Lane::split(&frame.payload).ok_or_else(|| breach("a lane that does not exist"))?;
                if !line.shape.data(lane) || line.no_more {
                    return Err(breach("data that nobody asked for"));
                }
                let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                line.out_left = line.out_left.checked_sub(length).ok_or_else(|| breach("more than its window"))?;
                line.spoke = true;
            }
            Kind::Credit => {
                let more = wire::credit_of(&frame.payload);
                let left = line.in_left.checked_add(more).filter(|left| *left <= WINDOW);
                line.in_left = left.ok_or_else(|| breach("credit for what was never sent"))?;
            }
            Kind::Eof if line.no_more => return Err(breach("a second end of its data")),
            Kind::Eof => line.no_more = true,
            Kind::End if !line.shape.end(&frame.payload) => return Err(breach("no result of what was asked")),
            Kind::End => {
                let needs = matches!(line.shape, Shape::Start) && !line.replied;
                if needs && !is_error(&frame.payload) {
                    return Err(breach("the end of a program that never started"));
                }
                return Ok(self.lines.remove(&frame.stream).map_or(To::Nobody, |line| line.to));
            }
            Kind::Open | Kind::Control | Kind::Cancel => return Err(breach("what only the supervisor may say")),
        }
        Ok(line.to.clone())
    }
}

fn is_error(payload: &[u8]) -> bool {
    matches!(serde_json::from_slice::<Ended<Value>>(payload), Ok(Ended::Error(_)))
}
