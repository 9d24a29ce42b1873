//! The code interpreter of a live sandbox: kernels inside, contexts, and executions one after the other.
//!
//! A kernel is a program inside the sandbox like any other, started by `exec` under the tag [`SYSTEM_TAG`]: our driver, around a
//! Jupyter kernel that the sandbox has. The driver passes the kernel's messages on as lines of JSON; what they mean is decided
//! here, and nothing that comes from inside is believed.

mod channels;
mod context;
mod driver;
mod lines;
mod out;
mod programs;
mod shown;
#[cfg(test)]
mod tests;
pub mod words;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use agent::words::{Code, Failure};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use channels::{ChannelCommand, Listener, Listeners};
pub use channels::{Channels, MAX_CHANNELS};
use context::{Actor, Job, Urgent};
use driver::KernelRequest;
pub use driver::SYSTEM_TAG;
pub use programs::{Process, ProgramOutput, Programs, Starting, Supervised};
use shown::State;
use words::{Context, Contexts, Execute, Executed, KernelAsk, Languages, ListContexts, NewContext};

/// Most contexts of one sandbox.
pub const MAX_CONTEXTS: usize = 32;
/// Most executions that wait for one context.
pub const MAX_QUEUED: usize = 64;
/// Most bytes of output of one execution.
pub const MAX_OUTPUT: u64 = 16 << 20;
/// Lines that wait to be taken; then the kernel waits.
const WAITING: usize = 4;

/// How kernels are treated.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of output of one execution, [`MAX_OUTPUT`] at most: the smaller of that and `limits.output`.
    pub output: u64,
    /// Where the sandbox starts programs; contexts tell it.
    pub cwd: String,
    /// How long a kernel may take until it is ready.
    pub start: Duration,
    /// How long a kernel may take to heed an interrupt before it is ended.
    pub grace: Duration,
    /// After so long a silence `keepalive` is said.
    pub keepalive: Duration,
    /// Who speaks with a kernel and takes nothing for so long is given up.
    pub patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            output: MAX_OUTPUT,
            cwd: "/".to_owned(),
            start: seconds(75),
            grace: seconds(10),
            keepalive: seconds(5),
            patience: seconds(30),
        }
    }
}

/// All contexts of one sandbox. Clones share them; with the last clone the kernels end.
#[derive(Clone, Debug)]
pub struct Manager {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    programs: Arc<dyn Programs>,
    settings: Settings,
    table: Mutex<Table>,
    /// Held while the default context of a language is looked for or made: it is made once.
    making: tokio::sync::Mutex<()>,
    /// Numbers those who speak with kernels.
    speakers: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    contexts: Vec<ContextHandle>,
    /// Contexts whose kernels start just now.
    starting: usize,
}

impl Table {
    /// The default ones come first: what a client has just made is the last of the list.
    fn add(&mut self, held: ContextHandle) {
        let at = if held.shown.default {
            self.contexts.iter().take_while(|one| one.shown.default).count()
        } else {
            self.contexts.len()
        };
        self.contexts.insert(at, held);
    }
}

#[derive(Debug)]
struct ContextHandle {
    shown: Context,
    jobs: mpsc::Sender<Job>,
    urgent: mpsc::Sender<Urgent>,
    talk: mpsc::Sender<ChannelCommand>,
    state: Arc<State>,
    /// Its kernel was ready once.
    ready: bool,
    task: AbortHandle,
}

impl Drop for ContextHandle {
    fn drop(&mut self) {
        // One that was ready ends by itself, for nobody can ask it any more, and tells those who still listen.
        if !self.ready {
            self.task.abort();
        }
    }
}

/// A place for a context whose kernel starts.
struct StartingSlot<'a>(&'a Inner);

impl Drop for StartingSlot<'_> {
    fn drop(&mut self) {
        let mut table = self.0.table();
        table.starting = table.starting.saturating_sub(1);
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unknown(id: &str) -> Failure {
    Failure::new(Code::NotFound, format!("Context {} not found", driver::one_line(id)))
}

/// 32 characters that nobody guesses.
fn random_word() -> Result<String, Failure> {
    let mut bytes = [0; 16];
    if !sys::random::fill(&mut bytes) {
        return Err(Failure::new(Code::Failed, "the kernel has no random bytes".to_owned()));
    }
    Ok(policy::json::hex(&bytes))
}

/// An execution that was asked for. Dropped before its end, it is interrupted.
#[derive(Debug)]
pub struct Execution {
    lines: mpsc::Receiver<Vec<u8>>,
    done: oneshot::Receiver<Result<Executed, Failure>>,
}

impl Execution {
    /// The next line, with its newline; none at the end, or where it never began.
    pub async fn next(&mut self) -> Option<Vec<u8>> {
        self.lines.recv().await
    }

    /// How it ended; to be asked for after the last line.
    ///
    /// # Errors
    /// Where there was no kernel for it, or its context was removed.
    pub async fn end(self) -> Result<Executed, Failure> {
        let removed = || Failure::new(Code::Cancelled, "the context was removed".to_owned());
        self.done.await.map_err(|_gone| removed())?
    }
}

/// What answers a [`KernelAsk`].
#[derive(Clone, Debug, PartialEq)]
pub enum KernelReply {
    /// Data of lane `Out`; of any length.
    Data(Vec<u8>),
    /// So many bytes of what was said to us were taken.
    Taken(usize),
    /// The end.
    End(Result<Value, Failure>),
}

impl Manager {
    /// Kernels in the sandbox whose programs these are. Needs a tokio runtime to be used in.
    #[must_use]
    pub fn new(programs: Arc<dyn Programs>, settings: Settings) -> Self {
        let settings = Settings { output: settings.output.min(MAX_OUTPUT), ..settings };
        let (table, making) = (Mutex::default(), tokio::sync::Mutex::default());
        Self { inner: Arc::new(Inner { programs, settings, table, making, speakers: AtomicU64::new(0) }) }
    }

    /// All contexts: the default ones, then the others, the oldest first.
    #[must_use]
    pub fn list(&self) -> Contexts {
        let table = self.inner.table();
        Contexts { contexts: table.contexts.iter().map(ContextHandle::shown).collect() }
    }

    /// All contexts, and the default ones of some languages.
    ///
    /// # Errors
    /// As [`Self::languages`].
    pub async fn list_with(&self, wanted: ListContexts) -> Result<Contexts, Failure> {
        let _alone = self.inner.making.lock().await;
        let there = self.list();
        let is_there = |language: &String| there.contexts.iter().any(|one| one.default && one.language == *language);
        let mut missing: Vec<String> = wanted.defaults.into_iter().filter(|language| !is_there(language)).collect();
        if missing.is_empty() {
            return Ok(there);
        }
        let has = self.languages().await?.languages;
        missing.retain(|language| has.contains(language));
        for language in missing {
            let mut held =
                self.spawn(KernelRequest { language, cwd: wanted.cwd.clone(), env: BTreeMap::new() }, true)?;
            // It is in the list, and ends as one that was used.
            held.ready = true;
            held.state.touch();
            let mut table = self.inner.table();
            if table.contexts.len().saturating_add(table.starting) < MAX_CONTEXTS {
                table.add(held);
            }
        }
        Ok(self.list())
    }

    /// Makes a context and starts its kernel.
    ///
    /// # Errors
    /// `unsupported` where the sandbox has no such kernel, `too_many`, `invalid`, and what the start of a program can say.
    pub async fn create(&self, new: NewContext) -> Result<Context, Failure> {
        let language = driver::language(new.language.as_deref())?;
        self.make(KernelRequest { language, cwd: new.cwd, env: new.env }, false).await
    }

    async fn make(&self, wanted: KernelRequest, default: bool) -> Result<Context, Failure> {
        let inner = &*self.inner;
        {
            let mut table = inner.table();
            if table.contexts.len().saturating_add(table.starting) >= MAX_CONTEXTS {
                let message = format!("a sandbox has at most {MAX_CONTEXTS} contexts: remove one");
                return Err(Failure::new(Code::TooMany, message));
            }
            table.starting = table.starting.saturating_add(1);
        }
        let place = StartingSlot(inner);
        let mut held = self.spawn(wanted, default)?;
        held.restart().await?;
        held.ready = true;
        let shown = held.shown();
        drop(place);
        inner.table().add(held);
        Ok(shown)
    }

    /// A context whose kernel is started by whoever uses it first.
    fn spawn(&self, wanted: KernelRequest, default: bool) -> Result<ContextHandle, Failure> {
        let cwd = wanted.cwd.clone().unwrap_or_else(|| self.inner.settings.cwd.clone());
        let shown =
            Context { id: random_word()?, language: wanted.language.clone(), cwd, default, ..Context::default() };
        let (jobs, to_do) = mpsc::channel(MAX_QUEUED);
        let (urgent, at_once) = mpsc::channel(16);
        let (talk, said) = mpsc::channel(4);
        let state = Arc::new(State::default());
        let actor = Actor {
            id: shown.id.clone(),
            programs: Arc::clone(&self.inner.programs),
            wanted,
            settings: self.inner.settings.clone(),
            jobs: to_do,
            urgent: at_once,
            talk: said,
            state: Arc::clone(&state),
            listeners: Listeners::default(),
            driver: None,
            outbox: std::collections::VecDeque::new(),
            died: None,
            told: 0,
        };
        let task = tokio::spawn(actor.run()).abort_handle();
        Ok(ContextHandle { shown, jobs, urgent, talk, state, ready: false, task })
    }

    fn with<T>(&self, id: &str, with: impl FnOnce(&ContextHandle) -> T) -> Result<T, Failure> {
        let table = self.inner.table();
        table.contexts.iter().find(|held| held.shown.id == id).map(with).ok_or_else(|| unknown(id))
    }

    /// Starts the kernel of a context anew.
    ///
    /// # Errors
    /// `not_found`, and as [`Self::create`].
    pub async fn restart(&self, id: &str) -> Result<Context, Failure> {
        let (urgent, shown) = self.with(id, |held| (held.urgent.clone(), held.shown()))?;
        restart(&urgent).await?;
        Ok(shown)
    }

    /// Ends the kernel of a context and forgets it.
    ///
    /// # Errors
    /// `not_found`.
    pub fn remove(&self, id: &str) -> Result<(), Failure> {
        let mut table = self.inner.table();
        let at = table.contexts.iter().position(|held| held.shown.id == id).ok_or_else(|| unknown(id))?;
        table.contexts.remove(at);
        Ok(())
    }

    /// Interrupts what a context executes.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn interrupt(&self, id: &str) -> Result<(), Failure> {
        let urgent = self.with(id, |held| held.urgent.clone())?;
        urgent.send(Urgent::Interrupt).await.map_err(|_gone| unknown(id))
    }

    /// Speaks with the kernel of a context in Jupyter's messages.
    ///
    /// # Errors
    /// `not_found`; `too_many` beyond [`MAX_CHANNELS`].
    pub async fn channels(&self, id: &str) -> Result<Channels, Failure> {
        let (talk, shown) = self.with(id, |held| (held.talk.clone(), held.shown()))?;
        if shown.connections >= MAX_CHANNELS {
            let message = format!("{MAX_CHANNELS} speak with this kernel already");
            return Err(Failure::new(Code::TooMany, message));
        }
        let number = self.inner.speakers.fetch_add(1, Ordering::Relaxed);
        let (listener, from) = Listener::new(number, self.inner.settings.patience);
        talk.send(ChannelCommand::Join(listener)).await.map_err(|_gone| unknown(id))?;
        Ok(Channels { number, talk, from })
    }

    /// Which languages have kernels in the sandbox.
    ///
    /// # Errors
    /// What the start of a program can say; `failed` where the programs that look do not answer.
    pub async fn languages(&self) -> Result<Languages, Failure> {
        let looked = tokio::time::timeout(self.inner.settings.start, driver::languages(&*self.inner.programs)).await;
        let late = || Failure::new(Code::Failed, "nobody said which kernels there are".to_owned());
        Ok(Languages { languages: looked.map_err(|_late| late())?? })
    }

    /// Executes code, after what waits in the same context already.
    ///
    /// # Errors
    /// `not_found`, `invalid`, `too_many` where too much waits, and as [`Self::create`] where a default context is made.
    pub async fn execute(&self, ask: Execute) -> Result<Execution, Failure> {
        let invalid = |message: &str| Failure::new(Code::Invalid, message.to_owned());
        let id = match (ask.context, ask.language) {
            (Some(_), Some(_)) => return Err(invalid("Only one of context_id or language can be provided")),
            (Some(context), None) => context,
            (None, language) => self.default_of(driver::language(language.as_deref())?, ask.cwd).await?,
        };
        let (jobs, language) = self.with(&id, |held| (held.jobs.clone(), held.shown.language.clone()))?;
        let around = driver::environment(&language, &ask.env)?;
        let (sink, lines) = mpsc::channel(WAITING);
        let (done, ended) = oneshot::channel();
        let job = Job { code: ask.code, around, timeout: ask.timeout_ms.map(Duration::from_millis), sink, done };
        jobs.try_send(job).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => {
                let message = format!("{MAX_QUEUED} executions wait for this context already");
                Failure::new(Code::TooMany, message)
            }
            mpsc::error::TrySendError::Closed(_) => unknown(&id),
        })?;
        Ok(Execution { lines, done: ended })
    }

    async fn default_of(&self, language: String, cwd: Option<String>) -> Result<String, Failure> {
        let _alone = self.inner.making.lock().await;
        let found = {
            let table = self.inner.table();
            let is_it = |held: &&ContextHandle| held.shown.default && held.shown.language == language;
            table.contexts.iter().find(is_it).map(|held| held.shown.id.clone())
        };
        match found {
            Some(id) => Ok(id),
            None => Ok(self.make(KernelRequest { language, cwd, env: BTreeMap::new() }, true).await?.id),
        }
    }

    /// Answers a request; the whole of what a supervisor has to call. What the caller says comes by `said`. Whoever drops the
    /// other end of `to` cancels.
    pub async fn answer(&self, ask: KernelAsk, said: mpsc::UnboundedReceiver<Vec<u8>>, to: mpsc::Sender<KernelReply>) {
        let end = tokio::select! {
            () = to.closed() => return,
            end = self.answered(ask, said, &to) => end,
        };
        // Who asked may be gone.
        drop(to.send(KernelReply::End(end)).await);
    }

    async fn answered(
        &self,
        ask: KernelAsk,
        said: mpsc::UnboundedReceiver<Vec<u8>>,
        to: &mpsc::Sender<KernelReply>,
    ) -> Result<Value, Failure> {
        match ask {
            KernelAsk::Languages {} => value(&self.languages().await?),
            KernelAsk::ContextChannels { id } => value(&converse(self.channels(&id).await?, said, to).await?),
            KernelAsk::Contexts(wanted) => value(&self.list_with(wanted).await?),
            KernelAsk::ContextCreate(new) => value(&self.create(new).await?),
            KernelAsk::ContextRestart { id } => value(&self.restart(&id).await?),
            KernelAsk::ContextRemove { id } => value(&self.remove(&id)?),
            KernelAsk::ContextInterrupt { id } => value(&self.interrupt(&id).await?),
            KernelAsk::Execute(ask) => {
                let mut execution = self.execute(ask).await?;
                while let Some(line) = execution.next().await {
                    if to.send(KernelReply::Data(line)).await.is_err() {
                        break;
                    }
                }
                value(&execution.end().await?)
            }
        }
    }
}

/// Carries lines both ways until somebody ends it.
async fn converse(
    mut channels: Channels,
    mut said: mpsc::UnboundedReceiver<Vec<u8>>,
    to: &mpsc::Sender<KernelReply>,
) -> Result<(), Failure> {
    let mut lines = driver::Lines::default();
    let gone = |driver::DriverGone(_)| Failure::new(Code::Invalid, "a message is too long".to_owned());
    let mut open = true;
    loop {
        tokio::select! {
            line = channels.next() => match line {
                Some(line) => drop(to.send(KernelReply::Data(line)).await),
                None => return Ok(()),
            },
            bytes = said.recv(), if open => {
                let Some(bytes) = bytes else {
                    open = false;
                    continue;
                };
                lines.push(&bytes);
                while let Some(line) = lines.take().map_err(gone)? {
                    channels.say(&line).await?;
                }
                drop(to.send(KernelReply::Taken(bytes.len())).await);
            }
        }
    }
}

fn value(of: &impl serde::Serialize) -> Result<Value, Failure> {
    serde_json::to_value(of).map_err(|error| Failure::new(Code::Failed, error.to_string()))
}

async fn restart(urgent: &mpsc::Sender<Urgent>) -> Result<(), Failure> {
    let removed = || Failure::new(Code::NotFound, "the context was removed".to_owned());
    let (reply, answer) = oneshot::channel();
    urgent.send(Urgent::Restart(reply)).await.map_err(|_gone| removed())?;
    answer.await.map_err(|_gone| removed())?
}

impl ContextHandle {
    fn shown(&self) -> Context {
        self.state.of(&self.shown)
    }

    async fn restart(&self) -> Result<(), Failure> {
        restart(&self.urgent).await
    }
}
