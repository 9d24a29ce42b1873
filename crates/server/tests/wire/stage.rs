//! A server over supervisors and agents in this process: all of it is real but the confinement.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::words::{Code, Failure};
use live::Home;
use live::supervisor::{Carrier, Finish, Run, Setup, Supervisor};
use live::words::{EndReason, Info, Replaced, State};
use sandbox::state::{Places, State as Folder};
use sandbox::{Environment, PolicyLayer};
use serde_json::{Value, json};
use server::app::AppState;
use server::backend::{Images, SandboxRequest, Sandboxes};
use server::http::{Listen, Server, Settings, bind, serve};
use server::keys::Keys;
use tempfile::TempDir;
use tokio::sync::{oneshot, watch};

/// A run that has nothing to confine: the agent is a thread of ours.
struct Bare {
    end: watch::Sender<Option<Finish>>,
    frozen: AtomicBool,
    /// It was made with a broker.
    broker: bool,
    /// Its network goes by a proxy of the server's owner.
    proxied: bool,
    /// Where the rules are written down that it was given last.
    told: PathBuf,
}

impl Run for Bare {
    fn usage(&self) -> Value {
        json!({
            "cpu_user": 0.5, "cpu_system": 0.25, "cpu_percent": 12.345, "memory": 1024, "memory_peak": 4096, "pids": 3, "pids_peak": 9,
            "disk": 10,
        })
    }

    fn oom_kills(&self) -> u64 {
        0
    }

    fn kill(&self) {
        let finish = Finish { reason: EndReason::Killed, message: "killed".to_owned(), report: None };
        self.end.send_if_modified(|end| end.replace(finish).is_none());
    }

    fn set_wall(&self, _from_now: Option<Duration>) {}

    fn freeze(&self, frozen: bool) -> Result<(), Failure> {
        self.frozen.store(frozen, Ordering::Relaxed);
        Ok(())
    }

    fn network(&self, net: &Value, _secrets: Option<&Value>) -> Result<Replaced, Failure> {
        let none = || Failure::new(Code::Unsupported, "it has no broker".to_owned());
        std::fs::write(&self.told, net.to_string()).unwrap();
        self.broker.then(|| Replaced::Done { digest: net.to_string() }).ok_or_else(none)
    }

    fn hosts(&self, net: &Value) -> Result<Replaced, Failure> {
        self.network(net, None)
    }

    fn rules(&self) -> Result<Value, Failure> {
        let mut present = policy::value::Net::closed().document();
        let kept = json!({ "deny": ["denied.test"], "bytes": "1048576B", "bandwidth": "4096B/s", "connections": 7 });
        present.as_object_mut().unwrap().extend(kept.as_object().unwrap().clone());
        if self.proxied {
            present["proxy"] = json!("http://proxy.example:3128");
        }
        Ok(present)
    }
}

fn ended(mut end: watch::Receiver<Option<Finish>>) -> Pin<Box<dyn Future<Output = Finish> + Send>> {
    Box::pin(async move {
        let found = end.wait_for(Option::is_some).await.map(|finish| finish.clone());
        let lost = || Finish { reason: EndReason::Lost, message: String::new(), report: None };
        found.ok().flatten().unwrap_or_else(lost)
    })
}

/// A server of a test.
pub(crate) struct Stage {
    pub(crate) base: String,
    pub(crate) keys: Keys,
    pub(crate) home: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    _folder: TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _nobody = stop.send(());
        }
    }
}

/// A sandbox that runs.
pub(crate) fn info(id: &str, wanted: &SandboxRequest) -> Info {
    serde_json::from_value(json!({
        "id": id, "name": wanted.name, "labels": wanted.labels, "state": "running", "run": "r-20261123-000000-000000",
        "tier": "container", "policy": "base", "plan": "digest", "template": wanted.template, "created_ms": now_ms(),
        "ends_ms": wanted.timeout_ms.map(|life| now_ms() + i64::try_from(life).unwrap()),
        "ends_boot_ms": wanted.timeout_ms.map(|life| live::moment::boot_ms() + i64::try_from(life).unwrap()),
        "pid": std::process::id(), "memory_limit": 1_u64 << 30, "cpus": 2.0, "disk_limit": 1_u64 << 30, "usage": {},
    }))
    .unwrap()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

async fn create(state: Folder, home: PathBuf, wanted: SandboxRequest) -> Info {
    let sandboxes = Home::new(&state).unwrap();
    let claim = sandboxes.claim(wanted.name.as_deref()).unwrap();
    let info = info(claim.id(), &wanted);
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    let broker = wanted.layers.contains(&PolicyLayer::Set("net.mode=\"allow\"".to_owned()));
    let told = home.with_extension("rules");
    let secrets = wanted.layers.iter().filter_map(|layer| match layer {
        PolicyLayer::Set(clause) => clause.strip_prefix("secrets="),
        PolicyLayer::Document(_) | PolicyLayer::Flag { .. } => None,
    });
    std::fs::write(home.with_extension("secrets"), secrets.collect::<String>()).unwrap();
    let proxied = format!("{:?}", wanted.layers).contains("proxied.test");
    let run = Arc::new(Bare { end: watch::channel(None).0, frozen: AtomicBool::new(false), broker, proxied, told });
    let end = ended(run.end.subscribe());
    std::thread::spawn(move || agent::serve(theirs.into(), &home));
    let setup = Setup {
        claim,
        info,
        log: None,
        policy: None,
        output: None,
        kill_over: false,
        life: wanted.timeout_ms.map(Duration::from_millis),
        idle: wanted.idle_ms.map(Duration::from_millis),
    };
    let supervisor = Supervisor::begin(setup, Carrier { socket: ours, run, ended: end }).await.unwrap();
    let info = supervisor.info();
    assert_eq!(info.state, State::Running);
    tokio::spawn(supervisor.serve());
    info
}

/// Starts a server, which ends with its stage.
pub(crate) async fn stage() -> Stage {
    stage_over(|make| Arc::new(make)).await
}

/// The same over other sandboxes than those of the stage.
pub(crate) async fn stage_over(sandboxes: impl FnOnce(server::folder::Folder) -> Arc<dyn Sandboxes>) -> Stage {
    stage_at(Listen { address: Some("127.0.0.1:0".parse().unwrap()), ..Listen::default() }, sandboxes).await
}

/// The same with a host that has this room left.
pub(crate) async fn stage_with(room: fn() -> live::headroom::Headroom) -> Stage {
    let listen = Listen { address: Some("127.0.0.1:0".parse().unwrap()), ..Listen::default() };
    stage_of(listen, |make| Arc::new(make), |app| app.with_room(room)).await
}

/// The same with these images.
pub(crate) async fn stage_with_images(images: Arc<dyn Images>) -> Stage {
    let listen = Listen { address: Some("127.0.0.1:0".parse().unwrap()), ..Listen::default() };
    stage_of(listen, |make| Arc::new(make), |app| app.with_images(images)).await
}

/// The same where it is told to listen.
pub(crate) async fn stage_at(
    listen: Listen,
    sandboxes: impl FnOnce(server::folder::Folder) -> Arc<dyn Sandboxes>,
) -> Stage {
    stage_of(listen, sandboxes, |app| app).await
}

async fn stage_of(
    listen: Listen,
    sandboxes: impl FnOnce(server::folder::Folder) -> Arc<dyn Sandboxes>,
    with: impl FnOnce(AppState) -> AppState,
) -> Stage {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().join("home");
    std::fs::create_dir(&home).unwrap();
    let environment = Environment::new(
        Some(folder.path().to_owned()),
        BTreeMap::from([("FUMEHOOD_STATE".into(), folder.path().join("state").into())]),
        rustix_euid(),
    );
    let places: &Places = &environment.state;
    let state = Folder::open(places).unwrap();
    let keys = Keys::open(state.path()).unwrap();
    let (handle, inside, places) = (tokio::runtime::Handle::current(), home.clone(), places.clone());
    let make: server::folder::Create = Arc::new(move |wanted| {
        let state = Folder::open(&places).unwrap();
        Ok(handle.block_on(create(state, inside.clone(), wanted)))
    });
    let sandboxes = sandboxes(server::folder::Folder::new(Home::new(&state).unwrap(), make));
    let app = with(AppState::new(sandboxes, keys.clone(), &environment, Settings::default()).unwrap());
    let listeners = bind(listen).await.unwrap();
    let base = listeners.addresses().remove(0);
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(serve(listeners, Server::new(app), async move { drop(stopped.await) }));
    Stage { base, keys, home, stop: Some(stop), _folder: folder }
}

fn rustix_euid() -> u32 {
    std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").unwrap())
}

/// One answer.
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl HttpReply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
}

/// What one caller is known by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caller {
    pub(crate) base: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Caller {
    pub(crate) fn new(stage: &Stage, name: &str) -> Self {
        let key = stage.keys.add(name, None, None).unwrap();
        Self { base: stage.base.clone(), headers: vec![("x-api-key".to_owned(), key)] }
    }

    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let mut headers: Vec<_> = self.headers.iter().filter(|(known, _)| known != name).cloned().collect();
        headers.push((name.to_owned(), value.to_owned()));
        Self { base: self.base.clone(), headers }
    }

    pub(crate) fn request(&self, method: &str, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        // Only the first call names one; there is no TLS here anyway.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build().unwrap();
        let mut request = client.request(method.parse().unwrap(), format!("{}{path}", self.base)).body(body);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
    }

    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<reqwest::Body>) -> HttpReply {
        let response = self.request(method, path, body).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = response.bytes().await.unwrap().to_vec();
        if headers.get("content-type").is_some_and(|kind| kind == "application/json") {
            crate::schema::hold(method, path, status, &body);
        }
        HttpReply { status, headers, body }
    }

    pub(crate) async fn json(&self, method: &str, path: &str, body: Value) -> HttpReply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.with("content-type", "application/json").send(method, path, body).await
    }

    /// The address of a sandbox that was created.
    pub(crate) fn inside(&self, created: &Value) -> Self {
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        Self {
            base: self.base.clone(),
            headers: vec![
                ("e2b-sandbox-id".to_owned(), text("sandboxID")),
                ("e2b-sandbox-port".to_owned(), "49983".to_owned()),
                ("x-access-token".to_owned(), text("envdAccessToken")),
            ],
        }
    }

    /// A unary call.
    pub(crate) async fn rpc(&self, method: &str, message: Value) -> HttpReply {
        self.json("POST", method, message).await
    }

    /// The messages of a stream, and whether it ended as it should.
    pub(crate) async fn events(&self, method: &str, message: Value) -> (Vec<Value>, Result<Value, String>) {
        let text = message.to_string();
        let mut body = vec![0];
        body.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        body.extend(text.as_bytes());
        let caller = self.with("content-type", "application/connect+json");
        let mut response = caller.request("POST", method, body).send().await.unwrap();
        assert_eq!(response.status(), 200);
        let mut bytes = Vec::new();
        let broken = loop {
            match response.chunk().await {
                Ok(Some(chunk)) => bytes.extend(chunk),
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        let (mut events, mut rest) = (Vec::new(), &bytes[..]);
        while rest.len() >= 5 {
            let length = usize::try_from(u32::from_be_bytes([rest[1], rest[2], rest[3], rest[4]])).unwrap();
            if rest.len() < 5 + length {
                break;
            }
            let message: Value = serde_json::from_slice(&rest[5..5 + length]).unwrap();
            if rest[0] == 2 {
                return (events, Ok(message));
            }
            events.push(message);
            rest = &rest[5 + length..];
        }
        (events, Err(broken.unwrap_or_else(|| "ended without an end".to_owned())))
    }
}
