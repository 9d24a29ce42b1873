//! The way to programs inside a sandbox, as far as kernels need it.

use std::future::Future;
use std::pin::Pin;

use agent::words::Failure;
use tokio::sync::mpsc;

use crate::client::{Client, Error, Incoming, Sender, Stream};
use crate::words::{Ask, Exec, Report};

/// Pieces of output that wait to be taken; then the program waits.
const WAITING: usize = 8;

/// Starts programs in one sandbox.
pub trait Programs: Send + Sync + std::fmt::Debug {
    /// Starts a program whose input is open.
    fn start(&self, exec: Exec) -> Starting<'_>;
}

/// A start that is under way.
pub type Starting<'a> = Pin<Box<dyn Future<Output = Result<Process, Failure>> + Send + 'a>>;

/// A program that runs. Dropped, its whole tree is ended.
#[derive(Debug)]
pub struct Process {
    /// What it is to read.
    pub input: mpsc::Sender<Vec<u8>>,
    /// What it says.
    pub output: mpsc::Receiver<ProgramOutput>,
}

/// What comes from a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramOutput {
    /// Some of its standard output.
    Out(Vec<u8>),
    /// It has ended; one sentence that says how. Nothing comes after it.
    Ended(String),
}

/// Programs of a supervisor, asked for over a connection of its own.
#[derive(Clone, Debug)]
pub struct Supervised {
    client: Client,
}

impl Supervised {
    /// Over this connection.
    #[must_use]
    pub const fn new(client: Client) -> Self {
        Self { client }
    }
}

impl Programs for Supervised {
    fn start(&self, exec: Exec) -> Starting<'_> {
        Box::pin(async move {
            let mut stream = self.client.open(&Ask::Exec(exec)).map_err(Error::failure)?;
            stream.reply().await.map_err(Error::failure)?;
            let (input, to_program) = mpsc::channel(WAITING);
            let (said, output) = mpsc::channel(WAITING);
            tokio::spawn(carry(stream, to_program, said));
            Ok(Process { input, output })
        })
    }
}

/// Both ways between a program and whoever started it, until one of them is gone. Dropping the stream ends the program.
async fn carry(mut stream: Stream, to_program: mpsc::Receiver<Vec<u8>>, said: mpsc::Sender<ProgramOutput>) {
    let writer = tokio::spawn(write(stream.sender(), to_program)).abort_handle();
    loop {
        let incoming = tokio::select! {
            () = said.closed() => break,
            incoming = stream.next() => incoming,
        };
        let word = match incoming {
            Some(Incoming::Out(bytes)) => ProgramOutput::Out(bytes),
            Some(Incoming::Err(_) | Incoming::Event(_)) => continue,
            Some(Incoming::End(Ok(report))) => ProgramOutput::Ended(sentence(&report)),
            Some(Incoming::End(Err(failure))) => ProgramOutput::Ended(failure.message),
            None => ProgramOutput::Ended("its supervisor is gone".to_owned()),
        };
        let ended = matches!(word, ProgramOutput::Ended(_));
        if said.send(word).await.is_err() || ended {
            break;
        }
    }
    writer.abort();
}

async fn write(to: Sender, mut from: mpsc::Receiver<Vec<u8>>) {
    while let Some(bytes) = from.recv().await {
        if to.send(&bytes).await.is_err() {
            return;
        }
    }
}

fn sentence(report: &serde_json::Value) -> String {
    serde_json::from_value::<Report>(report.clone())
        .map_or_else(|_| "it ended, and nobody said how".to_owned(), |report| report.message)
}
