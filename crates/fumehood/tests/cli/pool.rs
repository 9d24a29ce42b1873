//! Sandboxes that are ready before anybody asks: taken as what was asked for and as nothing else, and gone with who holds them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use live::client::{Client, Incoming};
use live::create::{Created, Layer, Request};
use live::pool::{Pool, Settings};
use live::words::{Ask, Report};
use sandbox::Environment;
use serde_json::Value;

use crate::{Fixture, files_below};

pub(crate) const OWNER: &str = "a";

fn pool(fixture: &Fixture, count: usize) -> Pool {
    pool_of(fixture, Settings { count, ..Settings::default() }, |_| true)
}

/// A pool of these settings, for those of whom is said that they are somebody.
pub(crate) fn pool_of(
    fixture: &Fixture,
    settings: Settings,
    is_owner: impl Fn(&str) -> bool + Send + Sync + 'static,
) -> Pool {
    let variables = [("HOME", fixture.dir.path().to_owned()), ("FUMEHOOD_STATE", fixture.state())];
    let env: BTreeMap<_, _> = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let environment = Environment::new(Some(fixture.path("work")), env, rustix::process::geteuid().as_raw());
    let program = Path::new(env!("CARGO_BIN_EXE_fumehood"));
    Pool::new(program, &environment, settings, (Box::new(|_| ()), Box::new(is_owner))).unwrap()
}

pub(crate) fn asked(layers: &[&str]) -> Request {
    Request { layers: layers.iter().map(|set| Layer::Set((*set).to_owned())).collect(), ..Request::default() }
}

pub(crate) fn until(mut so: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while Instant::now() < end {
        if so() {
            return true;
        }
        drop(sys::channel::wait(&[], Some(Duration::from_millis(20))));
    }
    false
}

pub(crate) fn ready(pool: &Pool, count: usize) {
    assert!(until(|| pool.status().ready == count), "{:?}", pool.status());
}

/// A sandbox that is ended with its test.
pub(crate) struct Live<'a>(&'a Fixture, Option<Created>);

impl<'a> Live<'a> {
    pub(crate) fn of(fixture: &'a Fixture, pool: &Pool, owner: &str, request: &Request) -> Self {
        Self(fixture, Some(pool.create(owner, request).unwrap().unwrap()))
    }

    pub(crate) fn info(&self) -> &live::words::Info {
        &self.1.as_ref().unwrap().info
    }

    pub(crate) fn exec(&self, command: &[&str]) -> (i32, String) {
        let args: Vec<&str> = ["exec", &self.info().id, "--"].into_iter().chain(command.iter().copied()).collect();
        let said = self.0.run(&args);
        (said.code, said.out)
    }
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        let id = self.info().id.clone();
        self.0.run(&["kill", &id]);
        self.1.take().unwrap().reap();
    }
}

/// The events of a run, by kind.
pub(crate) fn kinds(fixture: &Fixture, run: &str) -> Vec<String> {
    let text = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
    let events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["run"] == run).map(|event| event["kind"].as_str().unwrap().to_owned()).collect()
}

/// Who owns a journal.
pub(crate) fn supervisors(fixture: &Fixture) -> Vec<i64> {
    let text = |path: &std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let journals = files_below(&fixture.state().join("runs"));
    let first = journals.iter().filter_map(|path| serde_json::from_str::<Value>(text(path).lines().next()?).ok());
    first.filter_map(|journal| journal["pid"].as_i64()).collect()
}

/// What live sandboxes and runs have in the state folder.
fn left(fixture: &Fixture) -> Vec<std::path::PathBuf> {
    let runs = files_below(&fixture.state().join("runs"));
    let live = files_below(&fixture.state().join("live"));
    runs.into_iter()
        .chain(live.into_iter().filter(|path| path.parent() != Some(&fixture.state().join("live"))))
        .collect()
}

#[test]
fn one_that_is_ready_is_taken_as_what_is_asked_for_and_its_time_begins_then() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 2);
    let request = asked(&["limits.wall=\"1h\"", "limits.pids=17"]);
    let cold = [Live::of(fixture, pool, OWNER, &request), Live::of(fixture, pool, OWNER, &request)];
    assert_eq!((pool.status().taken, pool.status().cold), (0, 2));
    ready(pool, 2);
    assert!(fixture.run(&["ps", "--json"]).out.matches("\"id\"").count() <= 2, "what is ready is nobody's sandbox yet");
    drop(sys::channel::wait(&[], Some(Duration::from_secs(1))));
    let before = jiff::Timestamp::now().as_millisecond();
    let labels = BTreeMap::from([("team".to_owned(), "red".to_owned())]);
    let named = Request { name: Some("warm".to_owned()), labels, idle_ms: Some(600_000), ..request.clone() };
    let warm = Live::of(fixture, pool, OWNER, &named);
    assert_eq!((pool.status().taken, pool.status().cold), (1, 2));
    let info = warm.info();
    assert_eq!((info.name.as_deref(), info.idle_ms, info.labels.len()), (Some("warm"), Some(600_000), 1));
    assert!(info.created_ms >= before && info.ends_ms == Some(info.created_ms + 3_600_000), "{info:?}");
    assert!(info.usage["wall"].as_f64().is_some_and(|wall| wall < 0.9), "it was ready for a second: {}", info.usage);
    assert_eq!((&info.policy, &info.plan), (&cold[0].info().policy, &cold[0].info().plan));
    assert_eq!(warm.exec(&["sh", "-c", "echo $((6 * 7))"]), (0, "42\n".to_owned()));
    assert_eq!(fixture.run(&["exec", "warm", "--", "true"]).code, 0);
    let again = pool.create(OWNER, &named).unwrap().unwrap_err();
    assert!(
        again.code == 126 && again.text.contains("a name stands for one sandbox"),
        "a name is taken once: {again:?}"
    );
    ready(pool, 2);
    let brief = pool.create(OWNER, &Request { idle_ms: Some(200), ..request.clone() }).unwrap().unwrap();
    assert_eq!((pool.status().taken, pool.status().cold), (2, 2), "what was refused was given to nobody");
    // Whoever asks keeps it busy.
    let ended = sys::channel::Interest { fd: brief.process.as_fd(), write: false };
    assert_eq!(sys::channel::wait(&[ended], Some(Duration::from_secs(20))).unwrap(), [true]);
    let told = fixture.run(&["info", "--json", &brief.info.id]).out;
    assert!(told.contains("nothing was asked of it and nothing ran for 0.2 s"), "{told}");
    brief.reap();
    assert_eq!(kinds(fixture, &info.run)[..2], ["run.planned", "run.started"]);
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn nobody_is_given_what_was_made_ready_for_another_or_for_something_else() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 4);
    let request = asked(&["limits.pids=17"]);
    let cold = [Live::of(fixture, pool, OWNER, &request), Live::of(fixture, pool, OWNER, &request)];
    ready(pool, 2);
    let others = [
        Live::of(fixture, pool, "b", &request),
        Live::of(fixture, pool, OWNER, &asked(&["limits.pids=18"])),
        Live::of(fixture, pool, OWNER, &Request { template: "t".to_owned(), ..request.clone() }),
    ];
    assert_eq!((pool.status().taken, pool.status().cold), (0, 5));
    let pids = |one: &Live<'_>| one.exec(&["cat", "/sys/fs/cgroup/pids/pids.max", "/sys/fs/cgroup/pids.max"]).1;
    // Without a view of its group this says nothing, and the policy says it all.
    assert!(pids(&others[1]).is_empty() || pids(&others[1]) == "18\n");
    assert_ne!(others[1].info().policy, others[0].info().policy);
    assert_eq!(others[0].info().policy, cold[0].info().policy);
}

#[test]
fn a_policy_that_changed_in_its_file_since_is_started_cold() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 2);
    let file = fixture.path("work/p.toml");
    std::fs::write(&file, "version = 1\nextends = \"strict\"\nlimits.pids = 17\n").unwrap();
    let request = Request { layers: vec![Layer::Document("./p.toml".to_owned())], ..Request::default() };
    let old = [Live::of(fixture, pool, OWNER, &request), Live::of(fixture, pool, OWNER, &request)];
    ready(pool, 2);
    std::fs::write(&file, "version = 1\nextends = \"strict\"\nlimits.pids = 9\n").unwrap();
    let new = Live::of(fixture, pool, OWNER, &request);
    assert_eq!(pool.status().taken, 0, "the file says something else now");
    assert_ne!(new.info().policy, old[0].info().policy);
    std::fs::write(&file, "version = 1\nlimits.pids = \"none of it\"\n").unwrap();
    let refused = pool.create(OWNER, &request).unwrap().unwrap_err();
    assert_eq!(refused.code, 126, "{refused:?}");
}

#[test]
fn what_is_ready_ends_with_its_pool_and_says_so_in_the_log() {
    let fixture = &Fixture::new();
    let pool = pool(fixture, 3);
    let request = asked(&["limits.pids=17"]);
    drop([0, 1, 2].map(|_| Live::of(fixture, &pool, OWNER, &request)));
    ready(&pool, 3);
    let held = left(fixture);
    assert!(
        held.iter().any(|path| path.starts_with(fixture.state().join("runs"))),
        "a journal says what is there: {held:?}"
    );
    drop(pool);
    let records = |paths: Vec<std::path::PathBuf>| -> Vec<_> {
        let ours =
            |path: &std::path::PathBuf| path.starts_with(fixture.state().join("runs")) || path.ends_with("socket");
        paths.into_iter().filter(ours).collect()
    };
    assert_eq!(records(left(fixture)), Vec::<std::path::PathBuf>::new());
    let text = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
    assert_eq!(text.matches("run.ended").count(), 6, "three that were had, and three that nobody took: {text}");
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn one_that_was_ended_meanwhile_is_not_given_out() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let request = asked(&["limits.pids=17"]);
    let cold = [Live::of(fixture, pool, OWNER, &request), Live::of(fixture, pool, OWNER, &request)];
    ready(pool, 1);
    let used = cold.iter().map(|one| i64::from(one.info().pid)).collect::<Vec<_>>();
    let spare = supervisors(fixture).into_iter().find(|pid| !used.contains(pid)).unwrap();
    let spare = i32::try_from(spare).unwrap();
    let spare = rustix::process::Pid::from_raw(spare).unwrap();
    rustix::process::kill_process(spare, rustix::process::Signal::KILL).unwrap();
    let next = Live::of(fixture, pool, OWNER, &request);
    assert_eq!(next.exec(&["true"]).0, 0);
}

/// `fumehood serve`, killed with its test.
pub(crate) struct Serve {
    child: std::process::Child,
    address: String,
    /// The name of a key, and the key.
    pub(crate) name: String,
    key: String,
    /// The key of a person who operates it.
    person: String,
}

impl Serve {
    pub(crate) fn new(fixture: &Fixture, pool: &str) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let name = format!("k{}", COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let key = |more: &[&str]| fixture.run(&[&["keys", "add", "--name"], more].concat()).out.trim().to_owned();
        let (key, person) = (key(&[&name]), key(&[&format!("{name}-person"), "--operator"]));
        let mut command = fixture.command(&["serve", "--listen", "127.0.0.1:0", "--pool", pool]);
        let mut child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().rsplit('/').next().unwrap_or_default().rsplit(' ').next().unwrap().to_owned();
        Self { child, address, name, key, person }
    }

    /// Creates one; its id.
    pub(crate) fn create(&self) -> String {
        self.try_create().unwrap()
    }

    /// Creates one; none if the server did not answer.
    fn try_create(&self) -> Option<String> {
        created_at(&self.address, &self.key)
    }

    pub(crate) fn metrics(&self) -> Option<String> {
        answer(&self.address, &self.person, "GET /metrics", "", "200")
    }
}

pub(crate) fn created_at(address: &str, key: &str) -> Option<String> {
    let body = answer(address, key, "POST /v1/sandboxes", r#"{"policy": "strict"}"#, "201")?;
    Some(serde_json::from_str::<Value>(&body).ok()?["id"].as_str()?.to_owned())
}

/// The body of an answer; none if there was none, or a part of it.
fn answer(address: &str, key: &str, what: &str, body: &str, status: &str) -> Option<String> {
    let mut to = std::net::TcpStream::connect(address).ok()?;
    let head = format!(
        "{what} HTTP/1.1\r\nHost: {address}\r\nX-API-KEY: {key}\r\nContent-Type: application/json\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    to.write_all(head.as_bytes()).ok()?;
    let mut text = String::new();
    to.read_to_string(&mut text).ok()?;
    assert!(text.is_empty() || text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    Some(text.split_once("\r\n\r\n")?.1.to_owned())
}

impl Drop for Serve {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_server_that_is_killed_takes_what_is_ready_with_it_and_no_sandbox_that_somebody_has() {
    let fixture = &Fixture::new();
    let served = Serve::new(fixture, "3");
    let ids = [served.create(), served.create(), served.create()];
    // What is being made when the server dies may be found by the next start alone.
    let mut page = String::new();
    let three = until(|| {
        page = served.metrics().unwrap_or_default();
        page.lines().any(|line| line == "fumehood_pool_ready 3")
    });
    assert!(three, "three are had and three are ready: {page}");
    drop(served);
    assert!(until(|| supervisors(fixture).len() == 3), "{:?}", supervisors(fixture));
    for id in &ids {
        assert_eq!(fixture.run(&["exec", id, "--", "true"]).code, 0, "{id}");
    }
    assert_eq!(fixture.run(&[&["kill"][..], &ids.each_ref().map(String::as_str)].concat()).code, 0);
    assert_eq!(supervisors(fixture), Vec::<i64>::new());
    let text = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
    assert_eq!(text.matches("run.ended").count(), 6, "{text}");
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

/// Runs code in the Python that waits; its exit code and what it printed.
fn python(fixture: &Fixture, one: &Live<'_>, code: &str) -> (Option<i32>, String) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let socket = fixture.state().join("live").join(&one.info().id).join("socket");
    runtime.block_on(async {
        let client = Client::connect(&socket).await.unwrap();
        let mut stream = client.open(&Ask::Python { code: code.to_owned(), timeout_ms: Some(20_000) }).unwrap();
        let mut out = Vec::new();
        loop {
            match stream.next().await.unwrap() {
                Incoming::Out(bytes) | Incoming::Err(bytes) => out.extend(bytes),
                Incoming::Event(_) => {}
                Incoming::End(end) => {
                    let report: Report = serde_json::from_value(end.unwrap()).unwrap();
                    return (report.code, String::from_utf8(out).unwrap());
                }
            }
        }
    })
}

#[test]
fn a_python_that_waits_has_imported_and_each_piece_of_code_has_one_of_its_own() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let request =
        Request { imports: Some(vec!["json".to_owned(), "os.path".to_owned()]), ..asked(&["limits.wall=\"1h\""]) };
    drop([Live::of(fixture, pool, OWNER, &request), Live::of(fixture, pool, OWNER, &request)]);
    ready(pool, 1);
    assert!(!fixture.run(&["ps", "-a", "--json"]).out.contains("never used"), "what is ready is nobody's sandbox");
    let before = jiff::Timestamp::now().as_millisecond();
    let named = Request { name: Some("warm".to_owned()), ..request.clone() };
    let one = Live::of(fixture, pool, OWNER, &named);
    assert_eq!(pool.status().taken, 1);
    assert!(one.info().created_ms >= before && one.info().ends_ms == Some(one.info().created_ms + 3_600_000));
    let loaded = "import sys; print('json' in sys.modules, sys.argv, __name__, 'x' in globals()); x = 1";
    let said = (Some(0), "True ['-c'] __main__ False\n".to_owned());
    assert_eq!(python(fixture, &one, loaded), said);
    assert_eq!(python(fixture, &one, loaded), said, "no state is kept");
    let (code, told) = python(fixture, &one, "import sys; print(sys.stdin.read()); sys.exit(7)");
    assert_eq!((code, told.as_str()), (Some(7), "\n"));
    assert!(python(fixture, &one, "1 / 0").1.contains("ZeroDivisionError"));
    assert_eq!(one.exec(&["true"]).0, 0);
    let kept = fixture.run(&["exec", "warm", "--", "python3", "-c", "print(6 * 7)"]);
    assert_eq!(kept.out, "42\n");
    let other = Request { imports: Some(vec!["json".to_owned()]), ..request.clone() };
    let _other = Live::of(fixture, pool, OWNER, &other);
    assert_eq!(pool.status().taken, 1, "other modules are another sandbox");
    let code = Request { imports: Some(vec!["os; print(1)".to_owned()]), ..request };
    assert_eq!(pool.create(OWNER, &code).unwrap().unwrap_err().code, 126);
}

#[test]
fn a_module_that_is_not_there_is_told_by_the_code_that_needs_it() {
    let fixture = &Fixture::new();
    let one = fixture.run(&["create", "--name", "a", "--import", "no_such_module"]);
    assert_eq!(one.code, 0, "{one:?}");
    let plain = fixture.run(&["create", "--name", "b"]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let said = |id: &str| {
        let socket = fixture.state().join("live").join(id.trim()).join("socket");
        runtime.block_on(async {
            let client = Client::connect(&socket).await.unwrap();
            client.call::<Report>(&Ask::Python { code: "1".to_owned(), timeout_ms: None }).await
        })
    };
    assert_eq!(said(&one.out).unwrap().code, Some(1));
    assert!(said(&plain.out).unwrap_err().to_string().contains("imports"));
    assert_eq!(fixture.run(&["kill", "a", "b"]).code, 0);
}

/// How often a server and a supervisor are killed: few here, as many as `FUMEHOOD_FAULTS` (`SERVERS,SUPERVISORS`) says in
/// `scripts/live-faults`.
fn kills() -> (usize, usize) {
    let [servers, supervisors] = counts("FUMEHOOD_FAULTS", [4, 6]);
    (servers, supervisors)
}

/// Numbers of a variable, or the usual ones.
pub(crate) fn counts<const N: usize>(variable: &str, usual: [usize; N]) -> [usize; N] {
    let wanted = std::env::var_os(variable).map(std::ffi::OsString::into_string).and_then(Result::ok);
    let mut numbers = wanted.iter().flat_map(|text| text.split(',')).filter_map(|number| number.parse().ok());
    usual.map(|usual| numbers.next().unwrap_or(usual))
}

/// Where this run's random numbers begin: `FUMEHOOD_FUZZ_SEED`, so that a run that failed can be repeated; without, anywhere. Each test
/// prints it.
pub(crate) fn seed() -> u64 {
    let wanted = std::env::var_os("FUMEHOOD_FUZZ_SEED").map(|text| text.to_str().and_then(|text| text.parse().ok()));
    let number = |seed: Option<u64>| seed.unwrap_or_else(|| panic!("FUMEHOOD_FUZZ_SEED is no number"));
    wanted.map_or_else(|| u64::from(std::process::id()), number)
}

/// Milliseconds below `most`, and the next state.
pub(crate) fn random(state: &mut u64, most: u64) -> Duration {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    Duration::from_millis((*state >> 33) % most)
}

#[test]
fn a_server_killed_at_any_moment_loses_no_sandbox_and_leaves_nothing_of_its_pool() {
    let fixture = &Fixture::new();
    let mut state = seed();
    println!("FUMEHOOD_FUZZ_SEED={state}");
    for _ in 0..kills().0 {
        let mut served = Serve::new(fixture, "2");
        let (address, key) = (served.address.clone(), served.key.clone());
        let creating =
            std::thread::spawn(move || std::iter::from_fn(|| created_at(&address, &key)).take(20).collect::<Vec<_>>());
        drop(sys::channel::wait(&[], Some(random(&mut state, 300))));
        served.child.kill().unwrap();
        let ids = creating.join().unwrap();
        drop(served);
        for id in &ids {
            assert_eq!(fixture.run(&["exec", id, "--", "true"]).code, 0, "what was answered lives: {id}");
        }
        let listed: Value = serde_json::from_str(&fixture.run(&["ps", "--json"]).out).unwrap();
        // One whose answer was on its way is found too, and may be about to end: nobody was told of it.
        for one in listed["sandboxes"].as_array().unwrap() {
            let id = one["id"].as_str().unwrap();
            let killed = fixture.run(&["kill", id]);
            assert!(killed.code == 0 || !ids.iter().any(|answered| answered == id), "{killed:?}");
        }
    }
    // What a server was just making, its next start removes.
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    assert!(until(|| supervisors(fixture).is_empty()), "{:?}", supervisors(fixture));
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_supervisor_killed_at_any_moment_ends_its_own_sandbox_alone() {
    let fixture = &Fixture::new();
    let mut state = seed();
    println!("FUMEHOOD_FUZZ_SEED={state}");
    let other = fixture.run(&["create", "--name", "other"]);
    assert_eq!(other.code, 0, "{other:?}");
    for _ in 0..kills().1 {
        let id = fixture.run(&["create"]).out.trim().to_owned();
        let info: Value = serde_json::from_str(&fixture.run(&["info", "--json", &id]).out).unwrap();
        let pid = rustix::process::Pid::from_raw(i32::try_from(info["pid"].as_i64().unwrap()).unwrap()).unwrap();
        assert_eq!(fixture.run(&["exec", "-d", &id, "--", "sh", "-c", "setsid sleep 60 & sleep 60"]).code, 0);
        drop(sys::channel::wait(&[], Some(random(&mut state, 60))));
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        let lost = || fixture.run(&["info", "--json", &id]).out.contains("\"lost\"");
        assert!(until(lost), "{id}");
        assert_eq!(fixture.run(&["exec", "other", "--", "true"]).code, 0);
    }
    assert_eq!(fixture.run(&["kill", "other"]).code, 0);
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    assert!(until(|| supervisors(fixture).is_empty()), "{:?}", supervisors(fixture));
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}
