//! The real agent under the real confinement, in both tiers: what it may is what a payload may, and it works in an empty root.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use agent::words::{Code, Entry, Exited, Failure, Hello, Processes, Program, Request, Started};
use live::client::{Client, Incoming};
use sandbox::{Capabilities, Environment, Inputs, Options, PolicyLayer, Sandbox, Stdio, Workload};
use serde_json::Value;

struct Live {
    _folder: tempfile::TempDir,
    _sandbox: Sandbox,
    client: Client,
}

const TIERS: [&str; 2] = ["tier=container", "tier=process"];

impl Live {
    async fn new(set: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let variables = [("PATH", "/usr/bin:/bin".into()), ("FUMEHOOD_STATE", folder.path().join("state"))];
        let env: BTreeMap<OsString, OsString> =
            variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
        let environment = Environment::new(Some(folder.path().to_owned()), env, sys::caller::euid());
        let host = Capabilities::probe();
        let mut layers =
            vec![PolicyLayer::Document("strict".to_owned()), PolicyLayer::Set("limits.wall=60s".to_owned())];
        layers.extend(set.iter().map(|set| PolicyLayer::Set((*set).to_owned())));
        let loaded = sandbox::load(&layers, &environment, Inputs::Now).unwrap();
        let planned = sandbox::plan(loaded, Workload::Agent(agent::ELF), &host).unwrap();
        let mut sandbox = sandbox::start(planned, &environment, &host, Options::new(Stdio::Socket)).unwrap();
        let socket = UnixStream::from(sandbox.take_socket().unwrap());
        socket.set_nonblocking(true).unwrap();
        let client = Client::over(tokio::net::UnixStream::from_std(socket).unwrap());
        Self { _folder: folder, _sandbox: sandbox, client }
    }

    async fn hello(&self) -> Hello {
        self.client.call(&Request::Hello { version: agent::frame::VERSION }).await.unwrap()
    }

    /// What a line of shell prints, and how it ends.
    async fn shell(&self, line: &str) -> (String, Result<Exited, Failure>) {
        let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
        self.run(Program { argv, ..Program::default() }).await
    }

    async fn run(&self, program: Program) -> (String, Result<Exited, Failure>) {
        let mut stream = self.client.open(&Request::Start(program)).unwrap();
        let mut output = Vec::new();
        let end = async {
            loop {
                match stream.next().await.unwrap() {
                    Incoming::Out(bytes) | Incoming::Err(bytes) => output.extend(bytes),
                    Incoming::Event(_) => {}
                    Incoming::End(end) => return end.map(|value: Value| serde_json::from_value(value).unwrap()),
                }
            }
        };
        let end = tokio::time::timeout(Duration::from_secs(20), end).await.unwrap();
        (String::from_utf8_lossy(&output).into_owned(), end)
    }
}

fn code(end: &Result<Exited, Failure>) -> Option<u8> {
    end.as_ref().unwrap().code
}

#[tokio::test]
async fn programs_run_confined_and_tell_how_they_end() {
    for tier in TIERS {
        let live = Live::new(&[tier]).await;
        let hello = live.hello().await;
        assert_eq!((hello.version, hello.guarded), (agent::frame::VERSION, true), "{tier}");
        let (out, end) = live.shell("echo out; echo err >&2; exit 3").await;
        assert_eq!((out.lines().count(), code(&end)), (2, Some(3)), "{tier}");
        let (out, end) = live.shell("cat /etc/shadow || cat /root/.bashrc").await;
        assert_eq!(code(&end), Some(1), "{tier}: {out}");
        let (_, end) = live.shell("kill -9 $$").await;
        assert_eq!(end.unwrap().signal, Some(9), "{tier}");
        let missing = Program { argv: vec!["no-such-program".to_owned()], ..Program::default() };
        assert_eq!(live.run(missing).await.1.unwrap_err().code, Code::NotFound, "{tier}");
    }
}

#[tokio::test]
async fn programs_signal_one_another_and_not_the_agent() {
    for tier in TIERS {
        let live = Live::new(&[tier]).await;
        let pid = live.hello().await.pid;
        let (out, _) = live.shell(&format!("kill -9 {pid} 2>/dev/null; kill -0 {pid} 2>/dev/null; echo $?")).await;
        assert_eq!(out, "1\n", "{tier}");
        let mut sleeper = live
            .client
            .open(&Request::Start(Program { argv: vec!["sleep".to_owned(), "60".to_owned()], ..Program::default() }))
            .unwrap();
        let started: Started = serde_json::from_value(sleeper.reply().await.unwrap()).unwrap();
        let (out, end) = live.shell(&format!("kill -15 {}", started.pid)).await;
        assert_eq!(code(&end), Some(0), "{tier}: {out}");
        let end: Exited = sleeper.result().await.unwrap();
        assert_eq!(end.signal, Some(15), "{tier}");
        assert_eq!(live.hello().await.pid, pid, "{tier}");
    }
}

#[tokio::test]
async fn files_are_those_of_the_sandbox() {
    for tier in TIERS {
        let live = Live::new(&[tier]).await;
        let home = live.hello().await.home;
        let path = format!("{home}/a/b.txt");
        let write = Request::Write { path: path.clone(), mode: None, metadata: None };
        let mut stream = live.client.open(&write).unwrap();
        stream.send(b"hello").await.unwrap();
        stream.eof().unwrap();
        let entry: Entry = stream.result().await.unwrap();
        assert_eq!((entry.size, entry.mode & 0o777), (5, 0o644), "{tier}");
        let (out, end) = live.shell(&format!("cat {path}")).await;
        assert_eq!((out.as_str(), code(&end)), ("hello", Some(0)), "{tier}");
        for denied in ["/etc/shadow", "/root/.profile", "/usr/bin/planted"] {
            let write = Request::Write { path: denied.to_owned(), mode: None, metadata: None };
            let mut stream = live.client.open(&write).unwrap();
            stream.eof().unwrap();
            stream.result::<Entry>().await.unwrap_err();
            let read = Request::Read { path: denied.to_owned(), offset: 0, length: None };
            live.client.call::<Value>(&read).await.unwrap_err();
        }
    }
}

/// A program that has one in a session of its own below it, whose parents are gone.
const LOSES: &str = "(setsid sh -c 'echo $$ >$HOME/lost; exec sleep 600' &); while [ ! -s $HOME/lost ]; do sleep 0.05; done; \
                     echo ready; exec sleep 600";

impl Live {
    /// Starts a line of shell, waits until it says that it is ready, and gives it up.
    async fn given_up(&self, line: &str) {
        let argv = ["sh", "-c", line].map(str::to_owned).to_vec();
        let mut stream = self.client.open(&Request::Start(Program { argv, ..Program::default() })).unwrap();
        let ready = async { while !matches!(stream.next().await.unwrap(), Incoming::Out(out) if out == b"ready\n") {} };
        tokio::time::timeout(Duration::from_secs(60), ready).await.unwrap();
        stream.sender().cancel().unwrap();
        let end = tokio::time::timeout(Duration::from_secs(60), stream.result::<Value>()).await.unwrap();
        assert!(matches!(end, Err(live::client::Error::Failed(failure)) if failure.code == Code::Cancelled));
    }

    async fn until(&self, what: &str, mut there: impl AsyncFnMut() -> bool) {
        for _ in 0..600 {
            if there().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("waited in vain for {what}");
    }
}

#[tokio::test]
async fn all_of_a_program_ends_with_it_where_proc_is_seen() {
    let live = Live::new(&["tier=container"]).await;
    // The control: what a program leaves that was not given up lives on.
    let (out, _) = live.shell("setsid sleep 600 >/dev/null 2>&1 & echo $!").await;
    let kept = out.trim().to_owned();
    live.given_up(LOSES).await;
    let gone = async || code(&live.shell("kill -0 $(cat $HOME/lost)").await.1) != Some(0);
    live.until("the end of who lost its parents", gone).await;
    assert_eq!(code(&live.shell(&format!("kill -0 {kept}")).await.1), Some(0));
}

#[tokio::test]
async fn all_of_a_program_ends_with_it_or_the_sandbox_does_where_proc_is_not_seen() {
    let live = Live::new(&["tier=process"]).await;
    // The control: what is in the program's group ends with it, and the sandbox goes on, with the same starter.
    let (starter, _) = live.shell("echo $PPID").await;
    live.given_up("sleep 600 | sleep 600 & echo ready; wait").await;
    live.until("the starter's return", async || live.shell("echo $PPID").await.0 == starter).await;
    live.given_up(LOSES).await;
    let gone = async || live.client.call::<Hello>(&Request::Hello { version: agent::frame::VERSION }).await.is_err();
    live.until("the agent's end", gone).await;
}

#[tokio::test]
async fn it_works_in_an_empty_root() {
    let live = Live::new(&["tier=container", r#"fs.root="empty""#]).await;
    assert!(live.hello().await.guarded);
    let list = Request::Processes {};
    let found: Processes = live.client.call(&list).await.unwrap();
    assert!(found.processes.iter().any(|process| process.pid == 1), "{found:?}");
    let shell = Program { argv: vec!["/bin/sh".to_owned()], ..Program::default() };
    assert_eq!(live.run(shell).await.1.unwrap_err().code, Code::NotFound);
}

#[tokio::test]
async fn a_terminal_is_the_sandboxes_own() {
    let live = Live::new(&["tier=container"]).await;
    let program = Program {
        argv: ["sh", "-c", "tty; stty size"].map(str::to_owned).to_vec(),
        tty: Some(agent::words::Size { rows: 33, cols: 77 }),
        ..Program::default()
    };
    let (out, end) = live.run(program).await;
    assert_eq!((out.as_str(), code(&end)), ("/dev/pts/0\r\n33 77\r\n", Some(0)));
}
