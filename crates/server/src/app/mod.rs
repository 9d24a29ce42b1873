//! What every front door does with sandboxes: whose they are, creating, ending, pausing.

mod life;
mod making;
mod rules;
#[cfg(test)]
mod tests;
pub(crate) use life::{LIFE_MS, life_said, may_live};
pub(crate) use rules::Part;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::StatusCode;
use live::headroom::Headroom;
use live::template::Store;
use live::words::{Info, State};
use policy::Loaded;
use policy::value::Policy;
use sandbox::audit::{Log, Options};
use sandbox::state::State as Folder;
use sandbox::{Environment, Error, Hidden, Inputs, PolicyLayer};
use tokio_util::sync::CancellationToken;

use crate::answer::Problem;
use crate::backend::{Approvals, Images, Sandboxes};
use crate::built::{TemplateStore, Works};
use crate::ceiling;
use crate::keys::{Key, Keys, KeysError};
use crate::meters::Meters;
use crate::nets::Nets;
use crate::sessions::Sessions;
use crate::templates::Templates;
use crate::tokens::Tokens;
use crate::traces::{self, Exporter, Tracer, Traces};
use crate::watchers::Watchers;

/// The longest life that can be asked for.
pub(crate) const MAX_LIFE_MS: u64 = 24 * 60 * 60 * 1000;

/// So many requests look through the audit log at once: each reads all of it.
const LOOKS: usize = 2;
/// So many requests wait at once for other rules of their sandboxes: a supervisor has places for twice as many.
const RULE_CHANGES: usize = 8;

/// What a server is told at its start.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// A name of which every `PORT-ID.NAME` leads here, if there is one.
    pub domain: Option<String>,
}

/// A sandbox that a caller wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Order {
    pub(crate) template: String,
    pub(crate) imports: Option<Vec<String>>,
    pub(crate) layers: Vec<PolicyLayer>,
    /// What its template shows of the state folder.
    pub(crate) shown: Vec<PathBuf>,
    /// The image that its template has as its root, `NAME@sha256:HEX`.
    pub(crate) root: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    /// Milliseconds; without: the usual, or as long as the ceiling of its key allows.
    pub(crate) life_ms: Option<u64>,
    /// How much longer the server itself wants it, as far as the ceiling allows; milliseconds.
    pub(crate) beyond_ms: u64,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) pauses_at_end: bool,
    pub(crate) wakes: bool,
    pub(crate) private_ports: bool,
    /// What it begins with, in the place of what its template says.
    pub(crate) begin: Option<live::Begin>,
    /// Labels of ours beside those that say whose it is.
    pub(crate) ours: BTreeMap<String, String>,
    /// What the server itself adds to the policy, once that was judged: how builds reach registries.
    pub(crate) added: Vec<PolicyLayer>,
    /// The id of the snapshot that it begins as.
    pub(crate) from: Option<String>,
    /// Headers that are put into its requests outside; `layers` say where.
    pub(crate) headers: Option<Headers>,
}

/// Headers that a caller gave for the requests of one sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Headers {
    /// Their values, by the variable that each is found by.
    pub(crate) given: BTreeMap<String, Hidden>,
    /// By what the same headers are known again; of a secret of the server, so that nothing can be guessed from it.
    pub(crate) mark: String,
}

/// The header that makes a request safe to repeat, and the request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Once<'a> {
    pub(crate) key: &'a str,
    pub(crate) body: &'a [u8],
}

/// Says how the pool is doing.
pub type PoolStatus = Arc<dyn Fn() -> live::pool::Status + Send + Sync>;

/// What the requests of a server share.
pub struct AppState {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    pub(crate) keys: Keys,
    pub(crate) tokens: Tokens,
    pub(crate) settings: Settings,
    pub(crate) watchers: Watchers,
    /// Who signed in on the page.
    pub(crate) sessions: Sessions,
    environment: Arc<Environment>,
    pub(crate) templates: Templates,
    /// Templates that clients build.
    pub(crate) shelf: TemplateStore,
    /// Those that are built now.
    pub(crate) works: Works,
    /// The images that they may begin as; none where the server has no store.
    pub(crate) images: Option<Arc<dyn Images>>,
    /// An empty folder, which `/workspace` is a copy of.
    empty: PathBuf,
    /// Streams of a sandbox end when its token is cancelled.
    cuts: Mutex<BTreeMap<String, CancellationToken>>,
    /// The sandboxes that are being ended, each as often as it is.
    going: Mutex<Vec<String>>,
    /// Creations on their way, by the digest of their `Idempotency-Key`.
    creating: Mutex<BTreeSet<String>>,
    /// The numbers of the creations that are on their way, by key.
    coming: Mutex<BTreeMap<String, BTreeSet<u64>>>,
    /// The number of the next one.
    last: AtomicU64,
    /// What the host has left.
    room: fn() -> Headroom,
    /// Calls of tools that wait for a person, where this server has them.
    pub(crate) approvals: Option<Arc<dyn Approvals>>,
    /// So many look through the audit log at once.
    pub(crate) looks: tokio::sync::Semaphore,
    /// So many wait at once for other rules of their sandboxes.
    rule_changes: tokio::sync::Semaphore,
    /// Whether all requests that changed something are in the audit log.
    pub(crate) is_recorded: std::sync::atomic::AtomicBool,
    /// What is counted for `/metrics`.
    pub(crate) meters: Arc<Meters>,
    pub(crate) nets: Nets,
    /// Where spans go, where traces are asked for, and what sends them until it is running.
    pub(crate) tracer: Option<Tracer>,
    exporter: Mutex<Option<Exporter>>,
    /// How the pool is doing, where there is one.
    pub(crate) pool: Option<PoolStatus>,
    /// When it began: milliseconds since 1970.
    pub(crate) since_ms: i64,
    /// The audit log, once it was opened.
    log: Mutex<Option<Arc<Log>>>,
}

impl std::fmt::Debug for AppState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AppState").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AppState {
    /// An app state over these sandboxes.
    ///
    /// # Errors
    /// The folder of the server cannot be used.
    pub fn new(
        sandboxes: Arc<dyn Sandboxes>,
        keys: Keys,
        environment: &Environment,
        settings: Settings,
    ) -> Result<Self, KeysError> {
        let empty = keys.folder().join("empty");
        match std::fs::create_dir(&empty) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(KeysError::File { path: empty, why: error.to_string() });
            }
            Ok(()) | Err(_) => {}
        }
        let tokens = Tokens::new(keys.secret()?);
        // Keys and templates lie in one state folder.
        let shelf = TemplateStore::new(keys.folder());
        let store = Store::new(keys.folder().parent().unwrap_or_else(|| keys.folder()));
        Ok(Self {
            sandboxes,
            keys,
            tokens,
            settings,
            watchers: Watchers::default(),
            sessions: Sessions::default(),
            environment: Arc::new(environment.clone()),
            templates: Templates::new(store, empty.clone()),
            shelf,
            works: Works::default(),
            images: None,
            empty,
            cuts: Mutex::default(),
            going: Mutex::default(),
            creating: Mutex::default(),
            coming: Mutex::default(),
            last: AtomicU64::default(),
            room: Headroom::read,
            approvals: None,
            looks: tokio::sync::Semaphore::new(LOOKS),
            rule_changes: tokio::sync::Semaphore::new(RULE_CHANGES),
            is_recorded: std::sync::atomic::AtomicBool::new(true),
            meters: Arc::default(),
            nets: Nets::default(),
            tracer: None,
            exporter: Mutex::default(),
            pool: None,
            since_ms: crate::clock::now_ms(),
            log: Mutex::default(),
        })
    }

    /// The same, with calls of tools that people answer here.
    #[must_use]
    pub fn with_approvals(self, approvals: Arc<dyn Approvals>) -> Self {
        Self { approvals: Some(approvals), ..self }
    }

    /// The same, with images that templates of clients may begin as.
    #[must_use]
    pub fn with_images(self, images: Arc<dyn Images>) -> Self {
        Self { images: Some(images), ..self }
    }

    /// The same, with traces of its requests.
    #[must_use]
    pub fn with_traces(self, traces: Traces) -> Self {
        let (tracer, exporter) = traces::pair(traces);
        Self { tracer: Some(tracer), exporter: Mutex::new(Some(exporter)), ..self }
    }

    /// What sends spans, for whoever runs it.
    pub(crate) fn exporter(&self) -> Option<Exporter> {
        locked(&self.exporter).take()
    }

    /// The same, which asks this of what the host has left.
    #[must_use]
    pub fn with_room(self, room: fn() -> Headroom) -> Self {
        Self { room, ..self }
    }

    /// The same, with a pool whose state `/metrics` tells.
    #[must_use]
    pub fn with_pool(self, status: PoolStatus) -> Self {
        Self { pool: Some(status), ..self }
    }

    /// For whom it works.
    pub(crate) const fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    /// The empty folder that a workspace is a copy of where no other was given.
    pub(crate) fn empty(&self) -> &Path {
        &self.empty
    }

    /// The state folder.
    pub(crate) fn state(&self) -> &Path {
        self.keys.folder().parent().unwrap_or_else(|| self.keys.folder())
    }

    /// Does what blocks, in the state folder.
    pub(crate) async fn in_state<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let places = self.environment.state.clone();
        let worked = tokio::task::spawn_blocking(move || {
            let state = Folder::open(&places)
                .map_err(|error| Problem::of_fault(StatusCode::INTERNAL_SERVER_ERROR, &error.fault()))?;
            work(&state)
        });
        worked.await.unwrap_or_else(|_lost| Err(crate::backend::failed("it could not be done").into()))
    }

    /// The audit log.
    pub(crate) fn log(&self) -> Result<Arc<Log>, Problem> {
        let mut log = locked(&self.log);
        if let Some(log) = &*log {
            return Ok(Arc::clone(log));
        }
        let state = Folder::open(&self.environment.state)
            .map_err(|error| Problem::of_fault(StatusCode::INTERNAL_SERVER_ERROR, &error.fault()))?;
        let opened = Log::open(&state, None, Options::default()).map_err(|error| Problem::of_audit(&error))?;
        Ok(Arc::clone(log.insert(Arc::new(opened))))
    }

    /// Whether this is the empty folder that a sandbox's workspace is a copy of where no other was given.
    pub(crate) fn is_empty_one(&self, path: &Path) -> bool {
        let plain = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_gone| path.to_owned());
        plain(path) == plain(&self.empty)
    }

    /// The policy that a key's sandboxes may not exceed.
    pub(crate) async fn ceiling_of(&self, key: &Key) -> Result<Option<Policy>, Problem> {
        let Some(top) = key.ceiling.clone() else { return Ok(None) };
        let environment = Arc::clone(&self.environment);
        let layers = [PolicyLayer::Document(top)];
        let read = move || read_ceiling(&layers, &environment).map(ceiling::led).map(Some).map_err(Problem::all);
        match tokio::task::spawn_blocking(read).await {
            Ok(read) => read,
            Err(_lost) => Err(crate::backend::failed("the ceiling of the key could not be read").into()),
        }
    }

    /// Whose key this is.
    pub(crate) fn who(&self, token: &str) -> Result<Key, Problem> {
        let unreadable = |error: KeysError| {
            let why = "the file of keys cannot be read";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "serve/keys", error.to_string(), why, "see the server")
        };
        self.keys.who(token).map_err(unreadable)?.ok_or_else(no_key)
    }

    /// Whether the key that created a sandbox is still there; what it handed out ends with it.
    pub(crate) fn is_served(&self, info: &Info) -> bool {
        self.keys.owner(&info.labels).is_ok_and(|owner| owner.is_some())
    }

    /// The sandboxes of a key.
    pub(crate) async fn list(&self, key: &Key, ended: bool) -> Result<Vec<Info>, Problem> {
        Ok(self.list_and_count(key, ended).await?.0)
    }

    /// The same, and how many there are that may be this key's too, as nobody can read whose they are.
    pub(crate) async fn list_and_count(&self, key: &Key, ended: bool) -> Result<(Vec<Info>, usize), Problem> {
        let (mut all, unread) = self.sandboxes.list_and_count(ended).await?;
        all.retain(|info| key.created(&info.labels));
        Ok((all, unread))
    }

    /// A sandbox of a key that lives.
    pub(crate) async fn own(&self, key: &Key, id: &str) -> Result<Info, Problem> {
        let info = self.own_or_ended(key, id).await?;
        if info.state == State::Ended { Err(Problem::no_such(id)) } else { Ok(info) }
    }

    /// A sandbox of a key: it created it. Those of the command line are nobody's here: folders of the host may be open to them.
    pub(crate) async fn own_or_ended(&self, key: &Key, id: &str) -> Result<Info, Problem> {
        let found = if is_id(id) { self.sandboxes.find(id).await? } else { None };
        found.filter(|info| info.id == id && key.created(&info.labels)).ok_or_else(|| Problem::no_such(id))
    }

    /// The id that a word stands for: it is one, or the name of a sandbox of this key, of those of one name the one that lives,
    /// else the newest.
    pub(crate) async fn id_of(&self, key: &Key, word: &str) -> Result<String, Problem> {
        if live::record::is_id(word) {
            return Ok(word.to_owned());
        }
        let mut named = self.list(key, true).await?;
        named.retain(|info| info.name.as_deref() == Some(word));
        named.sort_by_key(|info| (info.state != State::Ended, info.created_ms));
        named.pop().map(|info| info.id).ok_or_else(|| Problem::no_such(word))
    }

    /// Cancelled when the streams of a sandbox are to end.
    pub(crate) fn cut_of(&self, id: &str) -> CancellationToken {
        locked(&self.cuts).entry(id.to_owned()).or_default().clone()
    }

    /// Ends the streams of a sandbox.
    pub(crate) fn cut(&self, id: &str) {
        if let Some(token) = locked(&self.cuts).remove(id) {
            token.cancel();
        }
        self.watchers.forget(id);
    }
}

/// Whether this can be an id.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

pub(crate) fn load(layers: &[PolicyLayer], environment: &Environment) -> Result<Loaded, Vec<Problem>> {
    sandbox::load(layers, environment, Inputs::Now).map_err(|error| problems(&error))
}

/// A policy that others may not exceed, which nothing that it confines may write.
pub(crate) fn read_ceiling(layers: &[PolicyLayer], environment: &Environment) -> Result<Policy, Vec<Problem>> {
    let ceiling = load(layers, environment)?.policy;
    if ceiling::written(&ceiling).is_some() {
        // Where that is on the host is nothing for whoever asks.
        let why = "the ceiling lies where it lets programs write: it is to be kept in another folder";
        return Err(vec![crate::backend::failed(why).into()]);
    }
    Ok(ceiling)
}

/// Everything that is wrong with a policy.
pub(crate) fn problems(error: &Error) -> Vec<Problem> {
    let refused = StatusCode::BAD_REQUEST;
    match error {
        Error::Mistakes(mistakes) => {
            let told = mistakes.list.iter().map(|mistake| {
                let clause = mistake.clause.map_or("", policy::ClauseId::path);
                Problem::new(refused, &mistake.id, mistake.what.clone(), &mistake.why, &mistake.fix).about(clause)
            });
            told.collect()
        }
        Error::Unheld(refusal) => {
            let told = refusal.refused.iter().map(|reason| {
                Problem::new(refused, &reason.id, reason.what.clone(), &reason.why, &reason.fix)
                    .about(reason.clause.path())
            });
            told.collect()
        }
        Error::Refused(faults) => faults.iter().map(|fault| Problem::of_fault(refused, fault)).collect(),
        Error::Failed(faults) => {
            faults.iter().map(|fault| Problem::of_fault(StatusCode::INTERNAL_SERVER_ERROR, fault)).collect()
        }
    }
}

fn no_key() -> Problem {
    Problem::new(
        StatusCode::UNAUTHORIZED,
        "serve/key",
        "no good API key",
        "nothing is served without one",
        "send it as `X-API-KEY`; `fumehood keys add` makes one",
    )
}
