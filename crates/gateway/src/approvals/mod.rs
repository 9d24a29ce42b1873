//! A person is asked: calls are parked with their exact arguments until somebody answers, and nothing but that call is answered.
//!
//! Promises: an answer is for one hash of one tool of one server, for one agent and session, and is used once; of an
//! answer and a time-out that race exactly one wins, among threads and processes, and the loser is told; a time-out, a
//! full queue and a store that cannot be read deny; parked calls and remembered approvals survive a restart.
//! Does not promise: anything against somebody who may write to the state folder, which is the caller's own.
//!
//! Whoever may answer (command line, HTTP, a client that can elicit) calls [`Approvals::approve`] or [`Approvals::deny`];
//! whoever wants to be told of new calls (webhook, elicitation) is an [`Asker`]. Both only ever see a [`ParkedCall`].

mod call;
mod change_notify;
mod error;
mod memory;
mod sanitize;
mod store;
#[cfg(test)]
mod tests;
mod wait;

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use change_notify::ChangeNotifier;
use policy::tools::ApprovalBy;
use store::Store;

pub use call::{ApprovalAnswer, Ask, DESTINATION, ParkedCall, REQUEST, State};
pub use error::{AnswerError, ApprovalError, StoreError};
pub use memory::{Holder, MAX_MEMORY_MS, Memory, Pattern, Remember, Wide};
pub use sanitize::{Sanitized, sanitize, sanitize_json, sanitize_text};
pub use wait::Parked;

/// How many may wait, and for how long.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Waiting calls of one session; the next is denied.
    pub most_per_session: u32,
    /// Waiting calls of one agent, over all its sessions.
    pub most_per_agent: u32,
    /// Waiting calls in all.
    pub most_in_total: u32,
    /// Bytes of arguments that a person can be expected to read.
    pub most_bytes: usize,
    /// How long a call waits unless its asker says otherwise.
    pub patience: Duration,
    /// How long a denial answers the same call again, so that asking on and on wins nothing.
    pub denial_stands: Duration,
    /// How long answered calls are kept to be looked at.
    pub keep: Duration,
    /// What remembered approvals are bound to: digest of the policy, and the workspace.
    pub bound_to: String,
    /// Milliseconds since the epoch.
    pub clock: fn() -> u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            most_per_session: 8,
            most_per_agent: 32,
            most_in_total: 128,
            most_bytes: 256 << 10,
            patience: Duration::from_secs(300),
            denial_stands: Duration::from_secs(300),
            keep: Duration::from_secs(14 * 24 * 3600),
            bound_to: String::new(),
            clock: crate::clock::now_ms,
        }
    }
}

/// Something that is told of each parked call and may get it answered: a webhook, a client that can elicit.
pub trait Asker: Send + Sync + std::fmt::Debug {
    /// Tells of a call. The future is dropped when the call is no longer waiting.
    fn asked<'a>(
        &'a self,
        call: &'a ParkedCall,
        approvals: &'a Approvals,
    ) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

    /// Whether it is the client that makes the call, which may be the agent's own program: it is not asked where a person
    /// must answer.
    fn is_the_callers(&self) -> bool {
        false
    }
}

/// The parked calls of a state folder. Cheap to clone; several processes may open the same folder.
#[derive(Clone, Debug)]
pub struct Approvals {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    store: Store,
    changed: ChangeNotifier,
    settings: Settings,
    askers: Mutex<Vec<Listener>>,
    next: AtomicU64,
}

/// An asker, its number, and the session that it is told of, if it is one's.
#[derive(Debug)]
struct Listener {
    number: u64,
    session: Option<String>,
    asker: Arc<dyn Asker>,
}

/// An [`Asker`] is told until this is dropped.
#[derive(Debug)]
pub struct Listening {
    approvals: Approvals,
    number: u64,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut askers = self.approvals.inner.askers.lock().unwrap_or_else(PoisonError::into_inner);
        askers.retain(|listener| listener.number != self.number);
    }
}

impl Approvals {
    /// Opens `approvals.db` in a folder that is the caller's alone (0700), made if it is missing.
    ///
    /// # Errors
    /// [`StoreError`] if the folder is not the caller's alone, or the file cannot be written or is no database of ours.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_with(dir, Settings::default())
    }

    /// The same with settings.
    ///
    /// # Errors
    /// As [`Approvals::open`].
    pub fn open_with(dir: &Path, settings: Settings) -> Result<Self, StoreError> {
        let store = Store::open(dir)?;
        let changed = ChangeNotifier::open(dir)?;
        let now = (settings.clock)();
        store.sweep(now, settings.keep)?;
        let inner = Inner { store, changed, settings, askers: Mutex::default(), next: AtomicU64::new(0) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Parks a call, or finds what was already said about it. Writes to a file: some milliseconds at most.
    ///
    /// # Errors
    /// [`ApprovalError`]: nobody will be asked, and the call is denied.
    pub fn ask(&self, ask: &Ask) -> Result<Parked, ApprovalError> {
        let found = self.inner.store.park(ask, &self.inner.settings, self.now())?;
        if found.is_new {
            self.inner.changed.notify();
        }
        Ok(Parked::new(self.clone(), found, ask.by))
    }

    /// The remembered approval that covers a call, if there is one.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub fn remembered(&self, ask: &Ask) -> Result<Option<Memory>, StoreError> {
        self.inner.store.covering(ask, &self.inner.settings.bound_to, self.now())
    }

    /// Approves a waiting call, and remembers more than it where asked to. `by` names who, for the record.
    ///
    /// # Errors
    /// [`AnswerError`]: no such call, already answered, timed out, or the memory would not cover what was shown.
    pub fn approve(&self, id: &str, by: &str, remember: Option<&Remember>) -> Result<ParkedCall, AnswerError> {
        let call = self.inner.store.approve(id, by, remember, self.now())?;
        self.inner.changed.notify();
        Ok(call)
    }

    /// Denies a waiting call; `why` reaches the model.
    ///
    /// # Errors
    /// [`AnswerError`]: no such call, already answered, or timed out.
    pub fn deny(&self, id: &str, by: &str, why: &str) -> Result<ParkedCall, AnswerError> {
        let call = self.inner.store.finish(id, State::Denied, by, why, self.now())?;
        self.inner.changed.notify();
        Ok(call)
    }

    /// Takes all questions of a session back that wait, and approvals of it that nothing came of.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be written.
    pub fn withdraw(&self, session: &str) -> Result<(), StoreError> {
        self.inner.store.withdraw_of(session, self.now())?;
        self.inner.changed.notify();
        Ok(())
    }

    /// The calls that wait, oldest first; with `all` also those that were answered, newest last.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub fn list(&self, all: bool) -> Result<Vec<ParkedCall>, StoreError> {
        self.inner.store.list(all, self.now())
    }

    /// One call by its whole id.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub fn get(&self, id: &str) -> Result<Option<ParkedCall>, StoreError> {
        self.inner.store.get(id, self.now())
    }

    /// The remembered approvals; with `all` also those that expired or were revoked.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be read.
    pub fn memories(&self, all: bool) -> Result<Vec<Memory>, StoreError> {
        self.inner.store.memories(all, self.now())
    }

    /// Takes a remembered approval back; `false` if there is none of this id that is in force.
    ///
    /// # Errors
    /// [`StoreError`] if the store cannot be written.
    pub fn revoke(&self, id: &str, by: &str) -> Result<bool, StoreError> {
        self.inner.store.revoke(id, by, self.now())
    }

    /// Tells `asker` of each call that is parked in this process from now on; of one session's only where one is named.
    #[must_use]
    pub fn listen(&self, session: Option<&str>, asker: Arc<dyn Asker>) -> Listening {
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let mut askers = self.inner.askers.lock().unwrap_or_else(PoisonError::into_inner);
        askers.push(Listener { number, session: session.map(str::to_owned), asker });
        drop(askers);
        Listening { approvals: self.clone(), number }
    }

    /// Changes whenever somebody parks, answers or lets go of a call, in any process.
    #[must_use]
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// The settings it was opened with.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    fn now(&self) -> u64 {
        (self.inner.settings.clock)()
    }

    fn askers_of(&self, session: &str, by: ApprovalBy) -> Vec<Arc<dyn Asker>> {
        let askers = self.inner.askers.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |listener: &&Listener| listener.session.as_deref().is_none_or(|wanted| wanted == session);
        let may = |listener: &&Listener| by == ApprovalBy::Anyone || !listener.asker.is_the_callers();
        askers.iter().filter(of).filter(may).map(|listener| Arc::clone(&listener.asker)).collect()
    }
}
