//! Clients that hang up: what they had begun is finished and recorded all the same, but for what is done for them alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agent::words::Failure;
use live::client::Client;
use live::words::Info;
use serde_json::{Value, json};
use server::answer::Problem;
use server::backend::{BoxFuture, SandboxRequest, Sandboxes};
use server::folder::Folder;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Notify;

use crate::stage::{Caller, Stage, stage_over};

/// Sandboxes that are created and asked only when the test says so.
pub(crate) struct BlockingSandboxes {
    folder: Folder,
    waits: AtomicBool,
    begun: Notify,
    go: Notify,
}

impl BlockingSandboxes {
    pub(crate) fn over(folder: Folder) -> Arc<Self> {
        Arc::new(Self { folder, waits: AtomicBool::new(false), begun: Notify::new(), go: Notify::new() })
    }

    /// From now on they are asked when they are let go.
    pub(crate) fn hold(&self) {
        self.waits.store(true, Ordering::Relaxed);
    }

    pub(crate) fn let_go(&self) {
        self.waits.store(false, Ordering::Relaxed);
        self.go.notify_one();
    }

    async fn wait(&self) {
        if self.waits.load(Ordering::Relaxed) {
            self.begun.notify_one();
            self.go.notified().await;
        }
    }
}

impl Sandboxes for BlockingSandboxes {
    fn list(&self, ended: bool) -> BoxFuture<'_, Result<Vec<Info>, Failure>> {
        self.folder.list(ended)
    }

    fn find<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Info>, Failure>> {
        self.folder.find(id)
    }

    fn create(&self, wanted: SandboxRequest) -> BoxFuture<'_, Result<Info, Vec<Problem>>> {
        Box::pin(async move {
            self.wait().await;
            self.folder.create(wanted).await
        })
    }

    fn connect<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Client, Failure>> {
        Box::pin(async move {
            self.wait().await;
            self.folder.connect(id).await
        })
    }
}

/// Sends a request, hangs up once it has begun, and lets it go on when the server has seen that.
async fn hang_up(stage: &Stage, held: &BlockingSandboxes, caller: &Caller, path: &str, body: &Value) {
    held.hold();
    let host = stage.base.strip_prefix("http://").unwrap();
    let body = body.to_string();
    let headers: String = caller.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{headers}");
    let mut io = TcpStream::connect(host).await.unwrap();
    io.write_all(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    held.begun.notified().await;
    io.shutdown().await.unwrap();
    let mut answer = Vec::new();
    assert_eq!(io.read_to_end(&mut answer).await.unwrap_or(0), 0, "{}", String::from_utf8_lossy(&answer));
    held.let_go();
}

/// The status that the audit log has of a route, once there is one.
async fn recorded(caller: &Caller, route: &str) -> Value {
    for _ in 0..600 {
        let told = caller.send("GET", "/v1/audit", "").await.json();
        if let Some(event) = told["events"].as_array().unwrap().iter().find(|event| event["body"]["route"] == route) {
            return event["body"]["status"].clone();
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no event of {route}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_began_is_finished_and_recorded_when_it_hangs_up() {
    let mut kept = None;
    let stage = stage_over(|folder| {
        kept = Some(BlockingSandboxes::over(folder));
        kept.clone().unwrap()
    })
    .await;
    let (held, caller) = (kept.unwrap(), Caller::new(&stage, "one"));
    let count =
        async || caller.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"].as_array().unwrap().len();
    for (at, path, body) in [(1, "/v1/sandboxes", json!({})), (2, "/v2/sandboxes", json!({ "templateID": "base" }))] {
        hang_up(&stage, &held, &caller, path, &body).await;
        assert_eq!((recorded(&caller, path).await, count().await), (json!(201), at), "{path}");
    }
    let made = caller.json("POST", "/sandboxes", json!({ "templateID": "base" })).await.json();
    let (inside, path) = (caller.inside(&made), "/filesystem.Filesystem/MakeDir");
    hang_up(&stage, &held, &inside, path, &json!({ "path": "begun" })).await;
    assert_eq!(recorded(&caller, path).await, 200);
    assert_eq!(inside.rpc("/filesystem.Filesystem/Stat", json!({ "path": "begun" })).await.status, 200);
    // A program is run for who waits for it, and for nobody else.
    let exec = format!("/v1/sandboxes/{}/exec", made["sandboxID"].as_str().unwrap());
    hang_up(&stage, &held, &caller, &exec, &json!({ "cmd": ["true"] })).await;
    assert_eq!(recorded(&caller, "/v1/sandboxes/{id}/exec").await, 499);
}
