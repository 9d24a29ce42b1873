//! The code interpreter's place in a supervisor: kernels are programs of a client of our own, and what callers ask of them is
//! answered by a task each, as fast as they give credit.

use std::sync::Arc;

use agent::frame::{Kind, Lane, MAX_DATA, WINDOW};
use agent::words::{Code, Failure};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::client::{ClientId, StreamKind, failure};
use super::hub::{Hub, Note};
use crate::client::Client;
use crate::kernel::words::KernelAsk;
use crate::kernel::{KernelReply, MAX_OUTPUT, Manager, Settings, Supervised};
use crate::wire::{self, Owned};

/// Nobody is owed more than that, however often he says so.
const MAX_CREDIT: usize = 1 << 40;

/// The contexts of a sandbox.
#[derive(Debug)]
pub(super) struct Kernels {
    manager: Manager,
    /// The client whose programs the kernels are.
    pub(super) client: ClientId,
    /// Tells the answers of one request from those of another under the same number.
    last: u64,
}

/// A request of a client that is being answered.
#[derive(Debug)]
pub(super) struct PendingRequest {
    number: u64,
    credit: Arc<Semaphore>,
    /// What he says, and how much of it he may say.
    said: UnboundedSender<Vec<u8>>,
    in_left: u32,
    task: AbortHandle,
}

impl Drop for PendingRequest {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Who asked, under which stream, and which request of ours that is.
pub(super) type RequestOrigin = (ClientId, u32, u64);

impl Hub {
    /// Kernels can be asked for from now on, by way of this connection to ourselves.
    pub(super) fn has_kernels(&mut self, client: ClientId, connection: Client) {
        let cwd = self.setup.info.agent.as_ref().map_or_else(|| "/".to_owned(), |agent| agent.cwd.clone());
        let settings = Settings { output: self.setup.output.unwrap_or(MAX_OUTPUT), cwd, ..Settings::default() };
        let manager = Manager::new(Arc::new(Supervised::new(connection)), settings);
        self.kernels = Some(Kernels { manager, client, last: 0 });
    }

    /// Whether a client is the one to whom the kernels belong.
    pub(super) fn is_ours(&self, id: ClientId) -> bool {
        self.kernels.as_ref().is_some_and(|kernels| kernels.client == id)
    }

    /// Whether anybody waits for a kernel.
    pub(super) fn kernels_work(&self) -> bool {
        let asked = |what: &StreamKind| matches!(what, StreamKind::Kernel(_));
        self.clients.values().any(|client| client.streams.values().any(asked))
    }

    /// Something is asked of the contexts.
    pub(super) fn ask_kernels(&mut self, (id, stream): (ClientId, u32), ask: KernelAsk) -> Result<(), Failure> {
        match &ask {
            KernelAsk::Execute(asked) => {
                self.brings_no_secret(&asked.env)?;
                self.note_code(asked)?;
            }
            KernelAsk::ContextCreate(asked) => self.brings_no_secret(&asked.env)?,
            KernelAsk::Contexts(_)
            | KernelAsk::ContextRestart { .. }
            | KernelAsk::ContextRemove { .. }
            | KernelAsk::ContextInterrupt { .. }
            | KernelAsk::ContextChannels { .. }
            | KernelAsk::Languages {} => {}
        }
        let none = || failure(Code::Failed, "this supervisor could not make room for kernels");
        let kernels = self.kernels.as_mut().ok_or_else(none)?;
        kernels.last = kernels.last.saturating_add(1);
        let number = kernels.last;
        let credit = Arc::new(Semaphore::new(usize::try_from(WINDOW).unwrap_or(0)));
        let (said, heard) = unbounded_channel();
        let asker = (id, stream, number);
        let answer = answer(kernels.manager.clone(), (ask, heard), asker, Arc::clone(&credit), self.notes.clone());
        let task = tokio::spawn(answer).abort_handle();
        let what = StreamKind::Kernel(PendingRequest { number, credit, said, in_left: WINDOW, task });
        self.client(id, |client| drop(client.streams.insert(stream, what)));
        Ok(())
    }

    /// A client's frame for a request to the contexts.
    pub(super) fn for_kernels(&mut self, id: ClientId, frame: &Owned) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(StreamKind::Kernel(asked)) = client.streams.get_mut(&frame.stream) else { return };
        match frame.kind {
            Kind::Data => {
                let bytes = frame.payload.get(1..).unwrap_or_default();
                let left = u32::try_from(bytes.len()).ok().and_then(|length| asked.in_left.checked_sub(length));
                let Some(left) = left.filter(|_| frame.payload.first() == Some(&0)) else { return self.left(id) };
                asked.in_left = left;
                // A request that takes nothing, or has ended: nobody hears it.
                drop(asked.said.send(bytes.to_vec()));
            }
            Kind::Credit => {
                let more = usize::try_from(wire::credit_of(&frame.payload)).unwrap_or(0);
                if asked.credit.available_permits() < MAX_CREDIT {
                    asked.credit.add_permits(more);
                }
            }
            // Dropping it ends its task, which interrupts what it executes.
            Kind::Cancel => client.end(frame.stream, Err::<(), _>(failure(Code::Cancelled, "it was given up"))),
            Kind::Eof | Kind::Control => {}
            Kind::Open | Kind::Reply | Kind::Event | Kind::End => self.left(id),
        }
    }

    /// What a context answers.
    pub(super) fn kernel_said(&mut self, (id, stream, number): RequestOrigin, said: KernelReply) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        let Some(StreamKind::Kernel(asked)) = client.streams.get_mut(&stream) else { return };
        if asked.number != number {
            return;
        }
        match said {
            KernelReply::Taken(bytes) => {
                let more = u32::try_from(bytes).unwrap_or(0);
                asked.in_left = asked.in_left.saturating_add(more);
                client.send(wire::credit(stream, more));
            }
            KernelReply::Data(bytes) => client.send(wire::data(stream, Lane::Out, &bytes)),
            KernelReply::End(result) => {
                client.end(stream, result);
                self.busy = Instant::now();
            }
        }
    }
}

/// Answers one request. Data goes out in parts, each when there is credit for it.
async fn answer(
    manager: Manager,
    (ask, said): (KernelAsk, UnboundedReceiver<Vec<u8>>),
    asker: RequestOrigin,
    credit: Arc<Semaphore>,
    notes: Sender<Note>,
) {
    let (to, mut from) = channel(1);
    let give = async {
        while let Some(said) = from.recv().await {
            let parts: Vec<KernelReply> = match said {
                KernelReply::Data(bytes) => {
                    bytes.chunks(MAX_DATA / 2).map(|part| KernelReply::Data(part.to_vec())).collect()
                }
                other @ (KernelReply::Taken(_) | KernelReply::End(_)) => vec![other],
            };
            for part in parts {
                if !owed(&credit, &part).await || notes.send(Note::Kernel(asker, part)).await.is_err() {
                    return;
                }
            }
        }
    };
    tokio::join!(manager.answer(ask, said, to), give);
}

/// Waits until so much may be sent.
async fn owed(credit: &Semaphore, part: &KernelReply) -> bool {
    let length = match part {
        KernelReply::Data(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX),
        KernelReply::Taken(_) | KernelReply::End(_) => 0,
    };
    match credit.acquire_many(length).await {
        Ok(permits) => {
            permits.forget();
            true
        }
        Err(_closed) => false,
    }
}
