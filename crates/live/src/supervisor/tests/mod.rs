//! A supervisor with an agent of our own behind it, honest or not.
#![expect(clippy::cast_possible_truncation, reason = "sizes of tests")]

mod fake;
mod frames;
mod hostile;
mod life;
mod programs;
mod recorded;
mod spares;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use agent::words::Program;
use sandbox::audit::{Log, Options};
use sandbox::state::{Places, State as Folder};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Carrier, Setup, Supervisor};
use crate::client::{Client, Incoming, Stream};
use crate::record::Home;
use crate::words::{Ask, Exec, Info, Report, State};
use fake::{FakeRun, Hostile};

/// Nothing here takes so long.
const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct With {
    output: Option<u64>,
    kill_over: bool,
    life: Option<Duration>,
    idle: Option<Duration>,
    hostile: Option<Hostile>,
    name: Option<&'static str>,
    tier: Option<&'static str>,
    policy: Option<Box<policy::Policy>>,
    /// What happens is recorded in the log of the state folder.
    log: bool,
    /// No agent is there at all.
    mute: bool,
}

/// A sandbox of a test.
struct Live {
    home: Home,
    id: String,
    run: Arc<FakeRun>,
    serving: JoinHandle<Info>,
    _folder: Arc<TempDir>,
}

fn folder() -> (Arc<TempDir>, Folder) {
    let folder = tempfile::tempdir().unwrap();
    let places = Places {
        fumehood_state: Some(folder.path().join("state")),
        euid: rustix::process::geteuid().as_raw(),
        ..Places::default()
    };
    let state = Folder::open(&places).unwrap();
    (Arc::new(folder), state)
}

fn info(id: &str) -> Info {
    Info {
        id: id.to_owned(),
        name: None,
        labels: BTreeMap::new(),
        state: State::Running,
        run: "r-20261123-000000-000000".to_owned(),
        tier: "container".to_owned(),
        policy: "strict".to_owned(),
        plan: String::new(),
        template: String::new(),
        created_ms: super::program::now_ms(),
        ends_ms: None,
        ends_boot_ms: None,
        idle_ms: None,
        ended_ms: None,
        reason: None,
        message: None,
        pid: std::process::id(),
        agent: None,
        memory_limit: None,
        cpus: None,
        disk_limit: None,
        usage: Value::Null,
        violations: Vec::new(),
        report: None,
    }
}

async fn begin(folder: &Arc<TempDir>, state: &Folder, with: With) -> Result<Live, crate::LiveError> {
    let home = Home::new(state).unwrap();
    let (setup, carrier, run) = made(&home, state, with)?;
    let id = setup.info.id.clone();
    let supervisor = Supervisor::begin(setup, carrier).await?;
    let serving = tokio::spawn(supervisor.serve());
    Ok(Live { home, id, run, serving, _folder: Arc::clone(folder) })
}

/// What a supervisor is made of.
fn made(home: &Home, state: &Folder, with: With) -> Result<(Setup, Carrier, Arc<FakeRun>), crate::LiveError> {
    let claim = home.claim(with.name)?;
    let id = claim.id().to_owned();
    let run = Arc::new(FakeRun::new());
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    let theirs = tokio::net::UnixStream::from_std(theirs).unwrap();
    let ended = fake::ended(run.end.subscribe());
    if with.mute {
        let end = fake::ended(run.end.subscribe());
        tokio::spawn(async move {
            end.await;
            drop(theirs);
        });
    } else {
        tokio::spawn(fake::serve(theirs, with.hostile, run.end.subscribe()));
    }
    let mut info = info(&id);
    info.name = with.name.map(str::to_owned);
    if let Some(tier) = with.tier {
        tier.clone_into(&mut info.tier);
    }
    let setup = Setup {
        claim,
        info,
        log: with.log.then(|| Log::open(state, None, Options::default()).unwrap()),
        policy: with.policy,
        output: with.output,
        kill_over: with.kill_over,
        life: with.life,
        idle: with.idle,
    };
    let engine: Arc<dyn super::Run> = Arc::<FakeRun>::clone(&run);
    let carrier = Carrier { socket: ours, run: engine, ended: Box::pin(ended) };
    Ok((setup, carrier, run))
}

async fn live(with: With) -> Live {
    let (folder, state) = folder();
    begin(&folder, &state, with).await.unwrap()
}

impl Live {
    async fn client(&self) -> Client {
        Client::connect(&self.home.socket_of(&self.id)).await.unwrap()
    }

    async fn over(self) -> Info {
        tokio::time::timeout(LONG, self.serving).await.expect("it does not end").unwrap()
    }
}

fn exec(words: &[&str]) -> Exec {
    let argv = words.iter().map(|word| (*word).to_owned()).collect();
    Exec {
        program: Program { argv, stdin: words[0] == "cat" || words[0] == "deaf", ..Program::default() },
        ..Exec::default()
    }
}

/// Its whole output and its report.
async fn to_end(stream: &mut Stream) -> (Vec<u8>, u64, Report) {
    let (mut out, mut lost) = (Vec::new(), 0);
    let reading = async {
        loop {
            match stream.next().await.expect("an end") {
                Incoming::Out(bytes) | Incoming::Err(bytes) => out.extend(bytes),
                Incoming::Event(event) => lost += event["lost"].as_u64().unwrap(),
                Incoming::End(ended) => return serde_json::from_value(ended.unwrap()).unwrap(),
            }
        }
    };
    let report = tokio::time::timeout(LONG, reading).await.expect("it does not end");
    (out, lost, report)
}

async fn kill(client: &Client) -> Info {
    client.call(&Ask::Kill {}).await.unwrap()
}
