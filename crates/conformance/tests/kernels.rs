//! The code interpreter end to end: a real sandbox, its supervisor, the real agent, real kernels. Without what
//! `scripts/setup kernels` installs, the tests that need it say `skip`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and one that is skipped says so"
)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use agent::words::{Code, Failure};
use live::Home;
use live::client::{Client, Incoming, Stream};
use live::supervisor::{Carrier, Finish, Run, Setup, Supervisor};
use live::words::{Ask, EndReason, Info, Programs, State, Which};
use sandbox::{Capabilities, Environment, Handle, Inputs, Options, PolicyLayer, Stdio, Workload};
use serde_json::{Value, json};

struct Engine(Handle);

impl Run for Engine {
    fn usage(&self) -> Value {
        Value::Null
    }

    fn oom_kills(&self) -> u64 {
        self.0.out_of_memory()
    }

    fn kill(&self) {
        self.0.kill();
    }

    fn set_wall(&self, _from_now: Option<Duration>) {}

    fn freeze(&self, _frozen: bool) -> Result<(), Failure> {
        Err(Failure::new(Code::Unsupported, "not here".to_owned()))
    }
}

struct Live {
    folder: tempfile::TempDir,
    home: Home,
    id: String,
    client: Client,
    serving: tokio::task::JoinHandle<Info>,
}

fn kernels() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let cache = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let found = variable("FUMEHOOD_CACHE").or_else(|| Some(cache?.join("fumehood")))?.join("kernels");
    if found.join("stamp").exists() {
        return Some(found);
    }
    println!("skip: real kernels in a sandbox: {} is not there; `scripts/setup kernels` installs it", found.display());
    None
}

/// As a template does it.
fn with_kernels(folder: &std::path::Path) -> Vec<PolicyLayer> {
    let inside = live::template::INSIDE;
    let flag = |name: &str, value: String| PolicyLayer::Flag { name: name.to_owned(), value };
    vec![
        PolicyLayer::Document("data-analysis".to_owned()),
        flag("--dangerous-read", format!("{}:{inside}/venv", folder.display())),
        flag("--env", format!("PATH={inside}/venv/bin:/usr/bin:/bin")),
    ]
}

async fn begin(layers: &[PolicyLayer], idle: Option<Duration>) -> Live {
    let folder = tempfile::tempdir().unwrap();
    let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", folder.path().join("state"))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
    let environment = Environment::new(Some(folder.path().to_owned()), env, sys::caller::euid());
    let host = Capabilities::probe();
    let loaded = sandbox::load(layers, &environment, Inputs::Now).unwrap();
    let output = loaded.policy.limits.output.map(|bytes| bytes.0);
    let planned = sandbox::plan(loaded, Workload::Agent(agent::ELF), &host).unwrap();
    let mut sandbox = sandbox::start(planned, &environment, &host, Options::new(Stdio::Socket)).unwrap();
    let socket = sandbox.take_socket().unwrap().into();
    let run = Arc::new(Engine(sandbox.handle()));
    let ended = Box::pin(async move {
        let waited = tokio::task::spawn_blocking(move || sandbox.wait().is_ok()).await;
        Finish { reason: EndReason::Killed, message: format!("{waited:?}"), report: None }
    });
    let home = Home::new(&sandbox::state::State::open(&environment.state).unwrap()).unwrap();
    let claim = home.claim(None).unwrap();
    let id = claim.id().to_owned();
    let setup = Setup { claim, info: info(&id), log: None, policy: None, output, kill_over: false, life: None, idle };
    let supervisor = Supervisor::begin(setup, Carrier { socket, run, ended }).await.unwrap();
    let serving = tokio::spawn(supervisor.serve());
    let client = Client::connect(&home.socket_of(&id)).await.unwrap();
    Live { folder, home, id, client, serving }
}

fn info(id: &str) -> Info {
    let value = json!({
        "id": id, "state": State::Running, "run": "", "tier": "container", "policy": "", "plan": "", "created_ms": 0,
        "pid": std::process::id(), "usage": null,
    });
    serde_json::from_value(value).unwrap()
}

/// The lines of an execution, and its end.
async fn to_end(mut stream: Stream) -> (Vec<Value>, Result<Value, Failure>) {
    let mut bytes = Vec::new();
    let all = async {
        loop {
            match stream.next().await.unwrap() {
                Incoming::Out(part) => bytes.extend(part),
                Incoming::End(end) => return end,
                Incoming::Err(_) | Incoming::Event(_) => panic!("neither is said here"),
            }
        }
    };
    let end = tokio::time::timeout(Duration::from_secs(90), all).await.expect("it does not end");
    let mut lines: Vec<Value> = bytes
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).unwrap())
        .collect();
    if end.is_ok() {
        assert_eq!(lines.pop().unwrap(), json!({"type": "end_of_execution"}));
    }
    lines.retain(|line| line["type"] != "keepalive");
    (lines, end)
}

impl Live {
    async fn run(&self, code: &str) -> Vec<Value> {
        let (lines, end) = to_end(self.client.open(&json!({"op": "execute", "code": code})).unwrap()).await;
        end.unwrap();
        lines
    }

    async fn over(self) -> Info {
        drop(self.client);
        let info = tokio::time::timeout(Duration::from_secs(60), self.serving).await.expect("it does not end").unwrap();
        drop((self.folder, self.home));
        info
    }

    async fn kill(self) {
        self.client.call::<Info>(&Ask::Kill {}).await.unwrap();
        self.over().await;
    }
}

fn of<'a>(lines: &'a [Value], kind: &str) -> &'a Value {
    lines.iter().find(|line| line["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {lines:?}"))
}

#[tokio::test]
async fn code_is_executed_in_the_sandbox_and_everybody_finds_the_same_contexts() {
    let Some(folder) = kernels() else { return };
    let live = begin(&with_kernels(&folder), None).await;
    let lines = live.run("import os\nx = 6 * 7\nprint(os.getcwd(), os.path.exists('/root'))\nx").await;
    assert_eq!((&lines[0]["execution_count"], &of(&lines, "result")["text"]), (&json!(1), &json!("42")));
    let figure = live.run("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()").await;
    let result = of(&figure, "result");
    assert!(result["png"].as_str().unwrap().starts_with("iVBOR") && result["chart"]["type"] == "line", "{result}");
    let other = Client::connect(&live.home.socket_of(&live.id)).await.unwrap();
    let contexts: Value = other.call(&json!({"op": "contexts"})).await.unwrap();
    assert_eq!(
        (contexts["contexts"].as_array().unwrap().len(), &contexts["contexts"][0]["language"]),
        (1, &json!("python"))
    );
    let id = contexts["contexts"][0]["id"].clone();
    let (lines, _) = to_end(other.open(&json!({"op": "execute", "code": "x", "context": id})).unwrap()).await;
    assert_eq!(of(&lines, "result")["text"], "42", "the same variables");
    // Kernels are no programs of anybody: they cannot be listed, listened to or signalled by their tag.
    assert!(live.client.call::<Programs>(&Ask::Programs {}).await.unwrap().programs.is_empty());
    let which = Which::Tag(live::kernel::SYSTEM_TAG.to_owned());
    assert!(live.client.open(&Ask::Attach { which }).unwrap().reply().await.is_err());
    live.kill().await;
}

#[tokio::test]
async fn who_cancels_or_leaves_interrupts_and_the_context_lives_on() {
    let Some(folder) = kernels() else { return };
    let live = begin(&with_kernels(&folder), None).await;
    live.run("x = 1").await;
    let began = Instant::now();
    let endless = json!({"op": "execute", "code": "import time\nprint('now', flush=True)\ntime.sleep(60)"});
    let mut stream = live.client.open(&endless).unwrap();
    assert!(matches!(stream.next().await, Some(Incoming::Out(_))));
    stream.cancel().unwrap();
    let end = loop {
        if let Some(Incoming::End(end)) = stream.next().await {
            break end;
        }
    };
    assert_eq!(end.unwrap_err().code, Code::Cancelled);
    assert_eq!(of(&live.run("x").await, "result")["text"], "1");
    let other = Client::connect(&live.home.socket_of(&live.id)).await.unwrap();
    let mut stream = other.open(&endless).unwrap();
    assert!(matches!(stream.next().await, Some(Incoming::Out(_))));
    drop((stream, other));
    assert_eq!(of(&live.run("x").await, "result")["text"], "1");
    assert!(began.elapsed() < Duration::from_secs(40), "nothing waited for the sleep");
    live.kill().await;
}

#[tokio::test]
async fn output_and_memory_are_bounded_and_a_kernel_that_was_ended_is_replaced() {
    let Some(folder) = kernels() else { return };
    let mut layers = with_kernels(&folder);
    layers.push(PolicyLayer::Set("limits.output=1M".to_owned()));
    layers.push(PolicyLayer::Set("limits.memory=400M".to_owned()));
    let live = begin(&layers, None).await;
    for _ in 0..3 {
        let much = json!({"op": "execute", "code": "for _ in range(40): print('x' * 2**16)"});
        let (lines, end) = to_end(live.client.open(&much).unwrap()).await;
        let given: usize = lines.iter().map(|line| line.to_string().len()).sum();
        assert!((900_000..1_100_000).contains(&given), "{given}");
        assert!(end.unwrap()["truncated"].as_u64().unwrap() > 1 << 20);
    }
    let lines = live.run("x = 'x' * (2 << 30)").await;
    assert!(
        matches!(of(&lines, "error")["name"].as_str().unwrap(), "UnexpectedEndOfExecution" | "MemoryError"),
        "{lines:?}"
    );
    assert_eq!(of(&live.run("1 + 1").await, "result")["text"], "2");
    live.kill().await;
}

#[tokio::test]
async fn a_sandbox_with_a_kernel_that_does_nothing_is_idle() {
    let Some(folder) = kernels() else { return };
    let live = begin(&with_kernels(&folder), Some(Duration::from_secs(2))).await;
    live.run("import time; time.sleep(3)").await;
    assert_eq!(of(&live.run("1").await, "result")["text"], "1", "it was not idle while it executed");
    let began = Instant::now();
    assert_eq!(live.over().await.reason, Some(EndReason::Idle));
    assert!(began.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn a_sandbox_without_kernels_says_what_it_needs() {
    let live = begin(&[PolicyLayer::Document("strict".to_owned())], None).await;
    let (lines, end) = to_end(live.client.open(&json!({"op": "execute", "code": "1"})).unwrap()).await;
    let failure = end.unwrap_err();
    assert_eq!((failure.code, lines.len()), (Code::Unsupported, 0), "{failure}");
    assert!(failure.message.contains("code-interpreter-v1"), "{failure}");
    let (_, end) = to_end(live.client.open(&json!({"op": "execute", "code": "1", "context": "none"})).unwrap()).await;
    assert_eq!(end.unwrap_err().code, Code::NotFound);
    live.kill().await;
    let Some(folder) = kernels() else { return };
    let mut layers = with_kernels(&folder);
    layers.push(PolicyLayer::Set("net.mode=none".to_owned()));
    let live = begin(&layers, None).await;
    let (_, end) = to_end(live.client.open(&json!({"op": "execute", "code": "1"})).unwrap()).await;
    assert!(end.unwrap_err().message.contains("net.mode = \"loopback\""));
    live.kill().await;
}
