//! The clients' side: who is connected, and what each asked for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use agent::frame::Kind;
use agent::words::{Code, Ended, Failure};
use serde::Serialize;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::{AbortHandle, JoinHandle};

use super::kernel::PendingRequest;
use super::pump::Pump;
use crate::wire;

/// Which connection.
pub(super) type ClientId = u64;

/// Most bytes that wait for a client that does not read; beyond it the connection is cut.
const MAX_QUEUED: usize = 64 << 20;
/// Most bytes that wait when another event of the agent is for him; beyond it the request is ended.
const MAX_EVENTS: usize = 8 << 20;

/// What a stream of a client is.
#[derive(Debug)]
pub(super) enum StreamKind {
    /// One to one with a stream of the agent; how much the client may send.
    Relay { line: u32, in_left: u32 },
    /// A reader of a program.
    Reader { program: u64, role: Role, pump: Pump, in_left: u32 },
    /// It waits for the end of the sandbox.
    End,
    /// It waits for the freezer.
    Freezer,
    /// It waits for something with the files, or for other rules.
    Files,
    /// A context answers it.
    Kernel(PendingRequest),
    /// It waits until its bytes went to a program.
    Input,
}

/// How somebody listens to a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It is his `exec`.
    Owner,
    /// He joined later.
    Attached,
    /// He only looks.
    Logs,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) streams: BTreeMap<u32, StreamKind>,
    out: UnboundedSender<Vec<u8>>,
    pub(super) queued: Arc<AtomicUsize>,
    reader: AbortHandle,
    writer: JoinHandle<()>,
    /// The host takes nothing more from us for him.
    pub(super) stuck: bool,
}

impl Client {
    pub(super) const fn new(
        out: UnboundedSender<Vec<u8>>,
        queued: Arc<AtomicUsize>,
        reader: AbortHandle,
        writer: JoinHandle<()>,
    ) -> Self {
        Self { streams: BTreeMap::new(), out, queued, reader, writer, stuck: false }
    }

    /// Sends a frame.
    pub(super) fn send(&mut self, frame: Option<Vec<u8>>) {
        let Some(frame) = frame else { return };
        let queued = self.queued.fetch_add(frame.len(), Ordering::Relaxed);
        self.stuck |= queued > MAX_QUEUED;
        // One that is gone is told by its reader.
        if self.out.send(frame).is_err() {}
    }

    /// Whether he is too far behind for another event.
    pub(super) fn is_behind(&self) -> bool {
        self.queued.load(Ordering::Relaxed) > MAX_EVENTS
    }

    /// The first answer.
    pub(super) fn reply(&mut self, stream: u32, value: &impl Serialize) {
        let words = serde_json::to_vec(value).unwrap_or_default();
        self.send(wire::encode(Kind::Reply, stream, &words));
    }

    /// The last answer; the stream is over.
    pub(super) fn end(&mut self, stream: u32, result: Result<impl Serialize, Failure>) {
        self.streams.remove(&stream);
        self.send(end_frame(stream, result));
    }

    /// Lets what waits for a reader flow; true if that was all.
    pub(super) fn flow(&mut self, stream: u32) -> bool {
        let Some(StreamKind::Reader { pump, .. }) = self.streams.get_mut(&stream) else { return false };
        let (frames, ended) = pump.flow();
        for frame in frames {
            self.send(Some(frame));
        }
        if ended {
            self.streams.remove(&stream);
        }
        ended
    }

    /// Cuts the connection.
    pub(super) fn cut(&self) {
        self.reader.abort();
        self.writer.abort();
    }

    /// Reads nothing more from him, and writes what waits.
    pub(super) async fn close(self) {
        let Self { out, reader, writer, .. } = self;
        reader.abort();
        drop(out);
        if writer.await.is_err() {}
    }
}

/// The last answer of a stream. One that is too long for a frame is an error that says so.
pub(super) fn end_frame(stream: u32, result: Result<impl Serialize, Failure>) -> Option<Vec<u8>> {
    let ended = match result {
        Ok(value) => Ended::Ok(value),
        Err(failure) => Ended::Error(failure),
    };
    let words = serde_json::to_vec(&ended).unwrap_or_default();
    wire::encode(Kind::End, stream, &words).or_else(|| {
        let failure = failure(Code::TooMany, "the answer is longer than 256 KiB");
        wire::encode(Kind::End, stream, &serde_json::to_vec(&Ended::<()>::Error(failure)).unwrap_or_default())
    })
}

/// An error, in one line.
pub(super) fn failure(code: Code, message: impl Into<String>) -> Failure {
    Failure::new(code, message.into())
}
