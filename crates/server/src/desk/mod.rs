//! What every front door does with sandboxes: whose they are, creating, ending, pausing.

mod life;
mod rules;
pub(crate) use life::{LIFE_MS, life_said, may_live};
pub(crate) use rules::Part;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use axum::http::StatusCode;
use live::moment::boot_ms;
use live::room::Room;
use live::template::Store;
use live::words::{Info, State};
use policy::Loaded;
use policy::json::sha256_hex;
use policy::value::Policy;
use sandbox::audit::{Log, Options};
use sandbox::state::State as Folder;
use sandbox::{Capabilities, Environment, Error, Hidden, Inputs, Planned, PolicyLayer, Workload};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::admission::admit;
use crate::answer::Problem;
use crate::backend::{Approvals, Sandboxes, Wanted};
use crate::ceiling;
use crate::keys::{Key, Keys, KeysError};
use crate::labels::{AT_END, BODY, HEADERS, KEPT_MS, KEY, LATEST, ONCE, PORTS, PREFIX, WAKE};
use crate::meters::Meters;
use crate::nets::Nets;
use crate::sessions::Sessions;
use crate::templates::Templates;
use crate::tokens::Tokens;
use crate::traces::{self, Exporter, Tracer, Traces};
use crate::watchers::Watchers;

/// The longest life that can be asked for.
pub(crate) const MAX_LIFE_MS: u64 = 24 * 60 * 60 * 1000;
/// Most labels of a sandbox, and most bytes of one.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 4096;

/// So many requests look through the audit log at once: each reads all of it.
const LOOKS: usize = 2;

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
    pub(crate) name: Option<String>,
    pub(crate) metadata: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) life_ms: Option<u64>,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) pauses_at_end: bool,
    pub(crate) wakes: bool,
    pub(crate) private_ports: bool,
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
pub struct Desk {
    pub(crate) sandboxes: Arc<dyn Sandboxes>,
    pub(crate) keys: Keys,
    pub(crate) tokens: Tokens,
    pub(crate) settings: Settings,
    pub(crate) watchers: Watchers,
    /// Who signed in on the page.
    pub(crate) sessions: Sessions,
    environment: Arc<Environment>,
    pub(crate) templates: Templates,
    /// An empty folder, which `/workspace` is a copy of.
    empty: PathBuf,
    /// Streams of a sandbox end when its token is cancelled.
    cuts: Mutex<BTreeMap<String, CancellationToken>>,
    /// Creations on their way, by the digest of their `Idempotency-Key`.
    creating: Mutex<BTreeSet<String>>,
    /// How many sandboxes are being made, by key.
    coming: Mutex<BTreeMap<String, usize>>,
    /// Calls of tools that wait for a person, where this server has them.
    pub(crate) approvals: Option<Arc<dyn Approvals>>,
    /// So many look through the audit log at once.
    pub(crate) looks: tokio::sync::Semaphore,
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

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an entry when it is dropped.
struct Creating<'a> {
    desk: &'a Desk,
    once: Option<String>,
    key: String,
}

impl Drop for Creating<'_> {
    fn drop(&mut self) {
        if let Some(once) = &self.once {
            locked(&self.desk.creating).remove(once);
        }
        let mut coming = locked(&self.desk.coming);
        if let Some(count) = coming.get_mut(&self.key) {
            *count = count.saturating_sub(1);
        }
        coming.retain(|_, count| *count > 0);
    }
}

impl Desk {
    /// A desk over these sandboxes.
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
            empty,
            cuts: Mutex::default(),
            creating: Mutex::default(),
            coming: Mutex::default(),
            approvals: None,
            looks: tokio::sync::Semaphore::new(LOOKS),
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
        let read =
            move || load(&[PolicyLayer::Document(top)], &environment).map(|loaded| Some(ceiling::led(loaded.policy)));
        match tokio::task::spawn_blocking(read).await {
            Ok(read) => read.map_err(Problem::all),
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
        let mut all = self.sandboxes.list(ended).await?;
        all.retain(|info| key.created(&info.labels));
        Ok(all)
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

    /// Creates a sandbox under the ceiling of a key.
    pub(crate) async fn create(&self, key: &Key, order: Order, once: Option<Once<'_>>) -> Result<Info, Vec<Problem>> {
        let began = Instant::now();
        let made = self.make(key, order, once).await;
        self.meters.created(made.is_ok(), began.elapsed());
        made
    }

    async fn make(&self, key: &Key, order: Order, once: Option<Once<'_>>) -> Result<Info, Vec<Problem>> {
        let one = |problem: Problem| vec![problem];
        let digests = once.map(|once| digests(key, &once)).transpose().map_err(one)?;
        let _creating = self.begin(key, digests.as_ref().map(|(once, _)| once.clone())).map_err(one)?;
        // Whether it was asked for before is also in the labels of those that ended.
        let known = self.list(key, digests.is_some()).await.map_err(one)?;
        if let Some((once, body)) = &digests
            && let Some(info) = known.iter().find(|info| info.labels.get(ONCE) == Some(once))
        {
            return if info.labels.get(BODY) == Some(body) { Ok(info.clone()) } else { Err(vec![another_body()]) };
        }
        self.room_for(key, &known).map_err(one)?;
        let ours = std::iter::once(self.empty.clone()).chain(order.shown.clone()).collect();
        let mut wanted = self.wanted(key, order, digests)?;
        if let Some(most) = self.permitted(key, &mut wanted, ours).await? {
            let latest = boot_ms().saturating_add(i64::try_from(most).unwrap_or(i64::MAX));
            wanted.labels.insert(LATEST.to_owned(), latest.to_string());
        }
        self.sandboxes.create(wanted).await
    }

    /// Who would hold each clause of a sandbox that is wanted; nothing is started.
    pub(crate) async fn plan(&self, key: &Key, order: Order) -> Result<Json, Vec<Problem>> {
        let ours = std::iter::once(self.empty.clone()).chain(order.shown.clone()).collect();
        let mut wanted = self.wanted(key, order, None)?;
        self.permitted(key, &mut wanted, ours).await?;
        let environment = Arc::clone(&self.environment);
        let Wanted { mut layers, timeout_ms, .. } = wanted;
        let life = timeout_ms.map(|ms| ("--timeout".to_owned(), format!("{ms}ms")));
        layers.extend(life.map(|(name, value)| PolicyLayer::Flag { name, value }));
        let judge = move || {
            let host = Capabilities::probe_with(environment.user_bus());
            let planned = sandbox::plan(load(&layers, &environment)?, Workload::Nothing, &host);
            let Planned { plan, why, lints, .. } = planned.map_err(|error| problems(&error))?;
            let notes = sandbox::run::foresee(&plan, &host).map_err(|error| problems(&error))?;
            let mut told = plan.to_json();
            if let Some(map) = told.as_object_mut() {
                map.insert("why".to_owned(), json!(why));
                map.insert("lints".to_owned(), lints.iter().map(policy::Lint::to_json).collect());
                map.insert("notes".to_owned(), json!(notes));
            }
            Ok(told)
        };
        let lost = |_| Err(vec![crate::backend::failed("the policy could not be judged").into()]);
        tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)
    }

    /// Takes a place among those that are being made.
    fn begin(&self, key: &Key, once: Option<String>) -> Result<Creating<'_>, Problem> {
        if let Some(once) = &once
            && !locked(&self.creating).insert(once.clone())
        {
            let what = "a request with this Idempotency-Key is on its way";
            let why = "its answer is not known yet";
            return Err(Problem::new(StatusCode::CONFLICT, "serve/in-progress", what, why, "try again").again_in(1));
        }
        let mut coming = locked(&self.coming);
        let count = coming.entry(key.name.clone()).or_default();
        *count = count.saturating_add(1);
        drop(coming);
        Ok(Creating { desk: self, once, key: key.name.clone() })
    }

    fn room_for(&self, key: &Key, known: &[Info]) -> Result<(), Problem> {
        if let Some(most) = key.sandboxes {
            let living = known.iter().filter(|info| info.state != State::Ended).count();
            let coming = locked(&self.coming).get(&key.name).copied().unwrap_or(0);
            if living.saturating_add(coming) > usize::try_from(most).unwrap_or(usize::MAX) {
                let what = format!("this key has {living} sandboxes, and {most} are the most that it may have at once");
                let why = "each key has its share of the machine";
                let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "serve/too-many", what, why, "kill some");
                return Err(problem.about("sandboxes"));
            }
        }
        admit(Room::read())
    }

    fn wanted(&self, key: &Key, order: Order, digests: Option<(String, String)>) -> Result<Wanted, Vec<Problem>> {
        let Order {
            template,
            imports,
            mut layers,
            shown: _,
            name,
            metadata,
            env,
            life_ms,
            idle_ms,
            pauses_at_end,
            wakes,
            private_ports,
            from,
            headers,
        } = order;
        key.must_use(&template).map_err(|problem| vec![problem])?;
        let mut labels = BTreeMap::new();
        for (label, value) in metadata {
            check_label(&label, &value).map_err(|problem| vec![problem])?;
            labels.insert(label, value);
        }
        if labels.len() > MAX_LABELS {
            return Err(vec![Problem::invalid("metadata", &format!("more than {MAX_LABELS} labels"))]);
        }
        for (variable, value) in env {
            layers.push(PolicyLayer::Flag { name: "--env".to_owned(), value: format!("{variable}={value}") });
        }
        if let Some(life) = life_ms.filter(|life| *life > MAX_LIFE_MS) {
            let what = format!("a life of {life} ms is longer than {MAX_LIFE_MS} ms");
            return Err(vec![Problem::invalid("timeout", &what)]);
        }
        labels.insert(KEY.to_owned(), key.mark());
        if let Some((once, body)) = digests {
            labels.insert(ONCE.to_owned(), once);
            labels.insert(BODY.to_owned(), body);
        }
        if pauses_at_end {
            labels.insert(AT_END.to_owned(), "pause".to_owned());
        }
        if wakes {
            labels.insert(WAKE.to_owned(), life_ms.unwrap_or(0).to_string());
        }
        if private_ports {
            labels.insert(PORTS.to_owned(), "private".to_owned());
        }
        let given = headers.map_or_else(BTreeMap::new, |Headers { given, mark }| {
            labels.insert(HEADERS.to_owned(), mark);
            given
        });
        let kept = if pauses_at_end { KEPT_MS } else { 0 };
        let timeout_ms = life_ms.map(|life| life.saturating_add(kept));
        Ok(Wanted { owner: key.mark(), layers, name, labels, timeout_ms, idle_ms, template, imports, from, given })
    }

    /// Whether the policy is below the ceiling of the key, which then names what was judged; `ours` are folders that the server
    /// itself shows inside, the empty one first. How long the ceiling lets it live, milliseconds.
    async fn permitted(&self, key: &Key, wanted: &mut Wanted, ours: Vec<PathBuf>) -> Result<Option<u64>, Vec<Problem>> {
        let (layers, environment) = (wanted.layers.clone(), Arc::clone(&self.environment));
        let (top, life) = (key.ceiling.clone(), wanted.timeout_ms);
        let given: BTreeSet<String> = wanted.given.keys().cloned().collect();
        let judge = move || {
            let mut asked = load(&layers, &environment)?;
            // What the caller handed over itself is nothing of the host's.
            asked.policy.secrets.retain(|_, secret| !secret.variables().any(|name| given.contains(name)));
            let top = top.map(|top| load(&[PolicyLayer::Document(top)], &environment)).transpose()?;
            let top = top.as_ref().map(|loaded| &loaded.policy);
            let (mut found, led) = ceiling::beyond(top, &asked.policy, &ours);
            let wall = top.and_then(|top| top.limits.wall).map(|wall| wall.0);
            if wall.is_some_and(|most| life.is_none_or(|life| life > most)) {
                found.push(too_long(wall.unwrap_or(0)));
            }
            if found.is_empty() { Ok((wall, led)) } else { Err(found) }
        };
        let lost = |_| Err(vec![crate::backend::failed("the policy could not be judged").into()]);
        let (wall, led) = tokio::task::spawn_blocking(judge).await.unwrap_or_else(lost)?;
        wanted.layers.extend(led);
        Ok(wall)
    }
}

/// Whether this can be an id.
pub(crate) fn is_id(id: &str) -> bool {
    (1..=40).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

pub(crate) fn load(layers: &[PolicyLayer], environment: &Environment) -> Result<Loaded, Vec<Problem>> {
    sandbox::load(layers, environment, Inputs::Now).map_err(|error| problems(&error))
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

fn digests(key: &Key, once: &Once<'_>) -> Result<(String, String), Problem> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
    if !(1..=255).contains(&once.key.len()) || !once.key.bytes().all(plain) {
        return Err(Problem::invalid("Idempotency-Key", "an Idempotency-Key is 1 to 255 of [a-zA-Z0-9_-]"));
    }
    Ok((sha256_hex(format!("{} {}", key.name, once.key).as_bytes()), sha256_hex(once.body)))
}

fn check_label(label: &str, value: &str) -> Result<(), Problem> {
    if label.starts_with(PREFIX) {
        let what = format!("the label {} begins with `{PREFIX}`", policy::diagnostic::quote(label));
        return Err(Problem::invalid("metadata", &what));
    }
    if label.is_empty() || label.len().saturating_add(value.len()) > MAX_LABEL {
        return Err(Problem::invalid("metadata", &format!("a label is empty, or longer than {MAX_LABEL} bytes")));
    }
    Ok(())
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

fn another_body() -> Problem {
    let what = "this Idempotency-Key came with another request before";
    let why = "a key stands for one request";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "serve/another-body", what, why, "take a new key")
}

fn too_long(most_ms: u64) -> Problem {
    let what = format!("it would live longer than {most_ms} ms");
    let why = "the ceiling of this key says so";
    Problem::new(StatusCode::FORBIDDEN, "serve/beyond-ceiling", what, why, "ask for a shorter life")
        .about("limits.wall")
}
