//! One upstream server: started when it is needed, started again with back-off when it ended, and never waited for by
//! those that do not need it.

mod header_mask;
mod hello;
mod http;
pub mod process;
mod unanswered;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use serde_json::{Map, Value as Json, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use hello::Introduced;
use hello::{Begin, Unmet, hello};
pub use process::{Ended, Launched, Program, StderrTail};
pub(in crate::mcp) use unanswered::OnItsWay;

use super::peer::{Failure, Handler, Incoming, Peer, Progress};
use super::protocol::{self, Protocol};
use super::servers::{Server, Transport};
use super::wire::{self, RpcError};
use crate::engine::BoxFuture;
use crate::mcp::lock;

/// The first pause before a server is started again; doubled each time.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest.
const MAX_PAUSE: Duration = Duration::from_secs(60);
/// A server that lived so long has had a good start: its pauses begin anew.
const HEALTHY: Duration = Duration::from_secs(60);
/// How often a server is started again by itself; then it waits for somebody to need it.
const MAX_RESTARTS: u32 = 10;
/// Most pages of one list.
const MAX_PAGES: usize = 100;
/// Most entries of one list.
const MAX_ENTRIES: usize = 2000;
/// The one request whose work is counted: others are short, and have no places.
const CALL: &str = "tools/call";
/// How long a whole list may take.
const LIST: Duration = Duration::from_secs(60);
/// How long a server may take to answer what is no call of a tool: calls have limits of their own, by the policy.
const ANSWER: Duration = Duration::from_secs(60);

/// Starts programs on behalf of the gateway, each in a sandbox of its own.
pub trait ServerLauncher: Send + Sync + 'static {
    /// Starts a server; called where waiting hinders nobody, within the runtime.
    ///
    /// # Errors
    /// Why it cannot be started, in words.
    fn launch(&self, server: &Server) -> Result<Launched, String>;
}

/// Whose upstream it is: one session.
pub trait Owner: Send + Sync + 'static {
    /// What we say that we can do, as the client of this server.
    fn capabilities(&self, server: &str) -> Json;
    /// The server asks something: sampling, elicitation, roots.
    fn asked(&self, server: &str, incoming: Incoming);
    /// The server tells something.
    fn told(&self, server: &str, method: &str, params: Json);
    /// It came up, or ended; why.
    fn changed(&self, server: &str, end: Option<&str>);
}

/// A conversation with a server that introduced itself.
#[derive(Debug)]
pub struct Link {
    /// The conversation.
    pub peer: Peer,
    /// Who it is.
    pub who: Introduced,
    capabilities: Json,
    born: Instant,
}

/// Why a server is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Down {
    /// Why, in words.
    pub why: String,
    /// When it is tried again, in milliseconds from now.
    pub again_ms: u64,
}

impl Down {
    /// For whoever needed it.
    #[must_use]
    pub fn describe(&self, server: &str) -> String {
        let again = Duration::from_millis(self.again_ms).as_secs_f64();
        format!("the server `{server}` is not there: {}; it is tried again in {again:.1} s", self.why)
    }
}

enum State {
    Idle,
    Up(Arc<Link>),
    Down { why: String, until: Instant },
}

/// One upstream server of one session.
pub struct Upstream {
    /// What was asked for.
    pub server: Server,
    launch: Arc<dyn ServerLauncher>,
    owner: OnceLock<Weak<dyn Owner>>,
    state: Mutex<State>,
    failures: Mutex<u32>,
    starting: tokio::sync::Mutex<()>,
    skip_probe: AtomicBool,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("server", &self.server.name).finish_non_exhaustive()
    }
}

impl Upstream {
    /// A server that is not started yet. It ends with `stop`; `tasks` are done when nothing of it runs any more.
    #[must_use]
    pub fn new(
        server: Server,
        launch: Arc<dyn ServerLauncher>,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) -> Arc<Self> {
        Arc::new(Self {
            server,
            launch,
            owner: OnceLock::new(),
            state: Mutex::new(State::Idle),
            failures: Mutex::new(0),
            starting: tokio::sync::Mutex::new(()),
            skip_probe: AtomicBool::new(false),
            stop: stop.child_token(),
            tasks: tasks.clone(),
        })
    }

    /// Whose it is; once.
    pub fn belong_to(&self, owner: Weak<dyn Owner>) {
        if self.owner.set(owner).is_err() {
            // It belongs to somebody already, and stays there.
        }
    }

    fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.get().and_then(Weak::upgrade)
    }

    /// The conversation, if it is there now.
    #[must_use]
    pub fn link_now(&self) -> Option<Arc<Link>> {
        match &*lock(&self.state) {
            State::Up(link) if !link.peer.is_closed() => Some(link.clone()),
            State::Up(_) | State::Idle | State::Down { .. } => None,
        }
    }

    /// Why it is not there, if it was tried.
    #[must_use]
    pub fn down(&self) -> Option<Down> {
        match &*lock(&self.state) {
            State::Down { why, until } => {
                let left = until.saturating_duration_since(Instant::now()).as_millis();
                Some(Down { why: why.clone(), again_ms: u64::try_from(left).unwrap_or(u64::MAX) })
            }
            State::Idle | State::Up(_) => None,
        }
    }

    /// The conversation; the server is started if it is not there and its pause is over.
    ///
    /// # Errors
    /// [`Down`], at once while its pause lasts.
    pub fn link(self: &Arc<Self>) -> BoxFuture<'_, Result<Arc<Link>, Down>> {
        match self.link_now() {
            Some(link) => Box::pin(std::future::ready(Ok(link))),
            None => Box::pin(self.wait_for_link()),
        }
    }

    async fn wait_for_link(self: &Arc<Self>) -> Result<Arc<Link>, Down> {
        if let Some(down) = self.down().filter(|down| down.again_ms > 0) {
            return Err(down);
        }
        let _one_at_a_time = self.starting.lock().await;
        if let Some(link) = self.link_now() {
            return Ok(link);
        }
        if let Some(down) = self.down().filter(|down| down.again_ms > 0) {
            return Err(down);
        }
        match self.meet().await {
            Ok(link) => Ok(link),
            Err(why) => Err(self.fell(why)),
        }
    }

    async fn meet(self: &Arc<Self>) -> Result<Arc<Link>, String> {
        let begin = if self.skip_probe.load(Ordering::Relaxed) { Begin::Handshake } else { Begin::Probe };
        match self.try_once(begin).await {
            Err(Unmet::EndedAtProbe(why)) => {
                let again = self.try_once(Begin::Handshake).await;
                if again.is_ok() {
                    self.skip_probe.store(true, Ordering::Relaxed);
                }
                again.map_err(|unmet| match unmet {
                    Unmet::Failed(second) | Unmet::EndedAtProbe(second) if second.is_empty() => why,
                    Unmet::Failed(second) | Unmet::EndedAtProbe(second) => second,
                })
            }
            other => other.map_err(|unmet| match unmet {
                Unmet::Failed(why) | Unmet::EndedAtProbe(why) => why,
            }),
        }
    }

    async fn try_once(self: &Arc<Self>, begin: Begin) -> Result<Arc<Link>, Unmet> {
        let capabilities = self.owner().map_or_else(|| json!({}), |owner| owner.capabilities(&self.server.name));
        let ear = Arc::new(NotificationSink { server: self.server.name.clone(), owner: self.owner.get().cloned() });
        let stop = self.stop.child_token();
        let peer = match &self.server.transport {
            Transport::Command { .. } => {
                let (launch, server) = (Arc::clone(&self.launch), self.server.clone());
                let launched = tokio::task::spawn_blocking(move || launch.launch(&server)).await;
                let launched = launched.unwrap_or_else(|lost| Err(lost.to_string()));
                launched.map(|launched| process::converse(launched, ear, &stop, &self.tasks).0)
            }
            Transport::Url { url, headers } => http::start(url, headers, ear, &stop, &self.tasks),
        };
        let peer = peer.map_err(Unmet::Failed)?;
        let guard = stop.clone().drop_guard();
        let who = hello(&peer, &capabilities, begin).await?;
        let link = Arc::new(Link { peer: peer.clone(), who, capabilities, born: Instant::now() });
        *lock(&self.state) = State::Up(link.clone());
        guard.disarm();
        self.tasks.spawn(self.clone().watch(link.clone(), stop));
        if let Some(owner) = self.owner() {
            owner.changed(&self.server.name, None);
        }
        Ok(link)
    }

    /// Notes a failure; how long nobody tries again.
    fn fell(&self, why: String) -> Down {
        let pause = {
            let mut failures = lock(&self.failures);
            let pause = FIRST_PAUSE.saturating_mul(2_u32.saturating_pow((*failures).min(16))).min(MAX_PAUSE);
            *failures = failures.saturating_add(1);
            pause
        };
        let until = Instant::now().checked_add(pause).unwrap_or_else(Instant::now);
        *lock(&self.state) = State::Down { why: why.clone(), until };
        Down { why, again_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX) }
    }

    /// Waits for the end of a conversation, says so, and begins the next one when the pause is over.
    async fn watch(self: Arc<Self>, link: Arc<Link>, stop: CancellationToken) {
        link.peer.closed().await;
        stop.cancel();
        if self.stop.is_cancelled() {
            return;
        }
        if link.born.elapsed() >= HEALTHY {
            *lock(&self.failures) = 0;
        }
        let why = link.peer.why_closed();
        let mut down = self.fell(why.clone());
        if let Some(owner) = self.owner() {
            owner.changed(&self.server.name, Some(&why));
        }
        drop(link);
        loop {
            if *lock(&self.failures) > MAX_RESTARTS || self.owner().is_none() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(down.again_ms)) => {}
                () = self.stop.cancelled() => return,
            }
            // The next conversation has a watch of its own.
            match self.link().await {
                Ok(_) => return,
                Err(still) => down = still,
            }
        }
    }

    /// Ends the server.
    pub fn stop(&self) {
        self.stop.cancel();
        if let State::Up(link) = &*lock(&self.state) {
            link.peer.close("the gateway ended it");
        }
    }
}

/// Hears what a server says.
struct NotificationSink {
    server: String,
    owner: Option<Weak<dyn Owner>>,
}

impl NotificationSink {
    fn owner(&self) -> Option<Arc<dyn Owner>> {
        self.owner.as_ref().and_then(Weak::upgrade)
    }
}

impl Handler for NotificationSink {
    fn request(&self, incoming: Incoming) {
        let unknown = RpcError::no_method(&incoming.method);
        match (incoming.method.as_str(), self.owner()) {
            ("ping", _) => {
                tokio::spawn(incoming.answer(Ok(json!({}))));
            }
            ("sampling/createMessage" | "elicitation/create" | "roots/list", Some(owner)) => {
                owner.asked(&self.server, incoming);
            }
            _ => {
                tokio::spawn(incoming.answer(Err(unknown)));
            }
        }
    }

    fn notification(&self, _: &Peer, method: &str, params: Json) {
        if let Some(owner) = self.owner() {
            owner.told(&self.server, method, params);
        }
    }
}

impl Link {
    /// Asks the server, in its own revision.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn request(&self, method: &str, mut params: Json, progress: Option<Progress>) -> Result<Json, Failure> {
        if self.who.protocol == Protocol::Stateless {
            protocol::describe(&mut params, &self.capabilities);
        }
        let unfinished = crate::given_up::here().filter(|_| method == CALL);
        self.peer.request_with_progress(method, params, None, progress).telling(unfinished).answer().await
    }

    /// Whether the server said that it has something: `tools`, `resources`, `prompts`, `completions`, `logging`.
    #[must_use]
    pub fn has(&self, what: &str) -> bool {
        self.who.capabilities.get(what).is_some_and(Json::is_object)
    }

    /// The same for what is no call of a tool: an answer that does not come in time is an error.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn ask(&self, method: &str, params: Json) -> Result<Json, Failure> {
        within(ANSWER, method, self.request(method, params, None)).await
    }

    /// A whole list, page by page, within bounds; the words say what was left out.
    ///
    /// # Errors
    /// [`Failure`]
    pub async fn list(&self, method: &str, key: &str) -> Result<(Vec<Json>, Option<String>), Failure> {
        within(LIST, method, self.pages(method, key)).await
    }

    async fn pages(&self, method: &str, key: &str) -> Result<(Vec<Json>, Option<String>), Failure> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let mut params = Map::new();
            if let Some(cursor) = &cursor {
                params.insert("cursor".to_owned(), cursor.as_str().into());
            }
            let mut page = self.request(method, Json::Object(params), None).await?;
            if let Some(Json::Array(found)) = page.get_mut(key).map(Json::take) {
                entries.extend(found);
            }
            if entries.len() > MAX_ENTRIES {
                entries.truncate(MAX_ENTRIES);
                return Ok((entries, Some(format!("only the first {MAX_ENTRIES} entries are taken"))));
            }
            let next = page.get("nextCursor").and_then(Json::as_str).filter(|next| !next.is_empty());
            match next {
                None => return Ok((entries, None)),
                Some(next) if cursor.as_deref() == Some(next) => {
                    return Ok((entries, Some("its list goes round in circles".to_owned())));
                }
                Some(next) => cursor = Some(next.to_owned()),
            }
        }
        Ok((entries, Some(format!("only the first {MAX_PAGES} pages are taken"))))
    }
}

/// What comes in time; its request is cancelled otherwise.
async fn within<T>(
    time: Duration,
    method: &str,
    answer: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    tokio::time::timeout(time, answer).await.unwrap_or_else(|_| {
        let why = format!("no answer to {method} within {} s", time.as_secs_f64());
        Err(Failure::Rpc(RpcError::new(wire::UNAVAILABLE, why)))
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_server_that_does_not_answer_is_not_waited_for_and_is_told_so() {
        struct Deaf;
        impl Handler for Deaf {
            fn request(&self, incoming: Incoming) {
                drop(incoming);
            }
            fn notification(&self, _: &Peer, _: &str, _: Json) {}
        }
        let (sender, mut frames) = mpsc::channel(8);
        let peer = Peer::new(Arc::new(process::Queue(sender)), Arc::new(Deaf));
        let asking = peer.request("resources/read", json!({}), None).answer();
        let late = within(Duration::from_millis(20), "resources/read", asking).await.unwrap_err();
        assert!(late.into_rpc().message.contains("no answer to resources/read within 0.02 s"));
        let (asked, told) = (frames.recv().await.unwrap(), frames.recv().await.unwrap());
        assert_eq!(told["method"], "notifications/cancelled");
        assert_eq!(told["params"]["requestId"], asked["id"]);
    }
}
