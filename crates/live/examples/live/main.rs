//! `cargo run --release -p fumehood-live --example live -- PROGRAM STATE FILE [--quick]` (`scripts/bench --only live`): what a live
//! sandbox costs beside a plain start and beside bubblewrap. Prints a table beside the bars, and writes it to FILE.
//!
//! Contestants alternate within a round and ratios are taken within a round; figures are medians of rounds. Loads are bounded.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::excessive_nesting,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "an example prints, starts the contestants itself, and ends if it cannot be set up"
)]

mod http;
mod python;
mod records;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use agent::words::{Program, Request as Inside};
use live::Home;
use live::client::{Client, Incoming};
use live::create::{Created, Layer, Request, create};
use live::pool::{Pool, Settings};
use live::words::{Ask, Exec, Report};
use sandbox::Environment;
use sandbox::state::State;
use tokio::runtime::Runtime;

/// One of a policy that anybody has.
const POLICY: &str = "strict";
const MIB: usize = 1 << 20;

pub(crate) struct Scene {
    pub(crate) program: PathBuf,
    pub(crate) state: PathBuf,
    pub(crate) home: Home,
    pub(crate) environment: Environment,
    pub(crate) runtime: Runtime,
    quick: bool,
}

/// The rows of the table.
#[derive(Default)]
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn row(&mut self, what: &str, found: &str, bar: &str) {
        println!("{what}: {found} (bar {bar})");
        writeln!(self.0, "| {what} | {found} | {bar} |").unwrap();
    }
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, state, file, rest @ ..] = words.as_slice() else { return println!("PROGRAM STATE FILE [--quick]") };
    let state = PathBuf::from(state);
    let variables =
        BTreeMap::from([("FUMEHOOD_STATE".into(), state.clone().into()), ("HOME".into(), state.clone().into())]);
    let environment = Environment::new(Some("/".into()), variables, rustix::process::geteuid().as_raw());
    let home = Home::new(&State::open(&environment.state).unwrap()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let quick = rest.iter().any(|word| word == "--quick");
    let scene = &Scene { program: program.into(), state, home, environment, runtime, quick };
    let load = || std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (mut table, before) = (Table::default(), load());
    starts(scene, &mut table);
    python::rows(scene, &mut table);
    http::rows(scene, &mut table);
    creates(scene, &mut table);
    idle(scene, &mut table);
    records::rows(scene, &mut table);
    let head = "# Live sandboxes: measured\n\nWritten by `scripts/bench --only live`. Ratios are taken within a round and are medians; \
                other work of the machine falls on all alike.\n";
    let cpus = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let text = format!(
        "{head}\n{cpus} processors; load before {}, after {}{}.\n\n| what | found | bar |\n| --- | --- | --- |\n{}",
        before.split(' ').next().unwrap_or_default(),
        load().split(' ').next().unwrap_or_default(),
        if quick { "; few rounds" } else { "" },
        table.0
    );
    std::fs::write(file, text).unwrap();
}

impl Scene {
    pub(crate) fn rounds(&self, many: usize) -> usize {
        if self.quick { (many / 5).max(5) } else { many }
    }

    fn request() -> Request {
        let layers = vec![Layer::Document(POLICY.to_owned()), Layer::Set("limits.wall=\"10m\"".to_owned())];
        Request { layers, ..Request::default() }
    }

    fn pool(&self, count: usize) -> Pool {
        let settings = Settings { count, memory: 4 << 30, ..Settings::default() };
        let pool = Pool::new(
            &self.program,
            &self.environment,
            settings,
            (Box::new(|words| println!("{words}")), Box::new(|_| true)),
        )
        .unwrap();
        for _ in 0..count.max(2) {
            self.end(pool.create("bench", &Self::request()).unwrap().unwrap());
        }
        self.filled(&pool, count);
        pool
    }

    /// Waits until all are ready.
    fn filled(&self, pool: &Pool, count: usize) {
        let end = Instant::now() + Duration::from_secs(60);
        while pool.status().ready < count && Instant::now() < end {
            rest(Duration::from_millis(5));
        }
    }

    pub(crate) fn cold(&self) -> Created {
        create(&Self::request(), &self.program, &self.environment).unwrap().unwrap()
    }

    pub(crate) fn end(&self, created: Created) {
        self.runtime.block_on(live::create::kill(&self.home, &created.info.id)).unwrap();
        created.reap();
    }

    pub(crate) fn connect(&self, created: &Created) -> Client {
        self.runtime.block_on(Client::connect(&self.home.socket_of(&created.info.id))).unwrap()
    }

    /// Runs `true` inside.
    fn exec(&self, client: &Client) {
        let program = Program { argv: vec!["/bin/true".to_owned()], ..Program::default() };
        let asked = Ask::Exec(Exec { program, ..Exec::default() });
        let report: Report = self.runtime.block_on(client.call(&asked)).unwrap();
        assert_eq!(report.code, Some(0));
    }
}

pub(crate) fn rest(time: Duration) {
    drop(sys::channel::wait(&[], Some(time)));
}

pub(crate) fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_secs_f64() * 1000.0
}

pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}

fn plain() {
    let ended = Command::new("/bin/true").stdin(Stdio::null()).status().unwrap();
    assert!(ended.success());
}

/// A start in a live sandbox, and one in a sandbox of its own from the pool.
fn starts(scene: &Scene, table: &mut Table) {
    let created = scene.cold();
    let client = scene.connect(&created);
    let (mut exec, mut plain_ms, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scene.rounds(100) {
        rest(Duration::from_millis(5));
        let (outside, inside) = (timed(plain), timed(|| scene.exec(&client)));
        ratios.push(inside / outside);
        exec.push(inside);
        plain_ms.push(outside);
    }
    let found = format!("{:.2}x ({:.2} ms; plain {:.2} ms)", median(ratios), median(exec), median(plain_ms));
    table.row("exec of `true` in a live sandbox, library caller", &found, "<= 2x plain `true`");
    drop(client);
    scene.end(created);
    let pool = scene.pool(4);
    let (mut taken, mut whole, mut outside, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scene.rounds(60) {
        scene.filled(&pool, 4);
        rest(Duration::from_millis(20));
        let plain = timed(plain);
        let (began, mut at) = (Instant::now(), 0.0);
        let mut created = None;
        at += timed(|| created = Some(pool.create("bench", &Scene::request()).unwrap().unwrap()));
        let created = created.unwrap();
        let client = scene.connect(&created);
        scene.exec(&client);
        let all = began.elapsed().as_secs_f64() * 1000.0;
        ratios.push(all / plain);
        taken.push(at);
        whole.push(all);
        outside.push(plain);
        drop(client);
        scene.end(created);
    }
    let cold = pool.status().cold;
    let found = format!(
        "{:.1}x ({:.2} ms, of which the taking {:.2}; plain {:.2} ms; {cold} cold)",
        median(ratios),
        median(whole),
        median(taken),
        median(outside)
    );
    table.row("`true` in a sandbox from the pool, library caller", &found, "<= 2.5x plain `true`");
    let colds = (0..scene.rounds(20)).map(|_| {
        let mut created = None;
        let took = timed(|| created = Some(scene.cold()));
        created.into_iter().for_each(|created| scene.end(created));
        took
    });
    table.row("the same creation without a pool", &format!("{:.1} ms", median(colds.collect())), "");
}

/// Sandboxes a second beside bubblewrap.
fn creates(scene: &Scene, table: &mut Table) {
    let burst = 32;
    let time = Duration::from_secs(if scene.quick { 2 } else { 5 });
    let bubblewrap = || {
        per_second(time, &|| {
            let words =
                ["--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/lib", "/lib"];
            let more = [
                "--symlink",
                "usr/lib64",
                "/lib64",
                "--symlink",
                "usr/bin",
                "/bin",
                "--proc",
                "/proc",
                "--dev",
                "/dev",
                "/bin/true",
            ];
            assert!(Command::new("bwrap").args(words).args(more).status().unwrap().success());
        })
    };
    let (mut bursts, mut steady, mut peers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scene.rounds(15).min(3) {
        let pool = scene.pool(burst);
        let left = std::sync::Mutex::new(Vec::new());
        let took = timed(|| {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..burst / 2 {
                            let one = pool.create("bench", &Scene::request()).unwrap().unwrap();
                            left.lock().unwrap().push(one);
                        }
                    });
                }
            });
        });
        bursts.push(1000.0 * 32.0 / took);
        left.into_inner().unwrap().into_iter().for_each(|one| scene.end(one));
        steady.push(per_second(time, &|| scene.end(pool.create("bench", &Scene::request()).unwrap().unwrap())));
        drop(pool);
        peers.push(bubblewrap());
    }
    let (burst, steady, peer) = (median(bursts), median(steady), median(peers));
    table.row(
        "creates a second, burst of 32 from a full pool, 2 callers",
        &format!("{burst:.0} = {:.1}x bubblewrap's {peer:.0}", burst / peer),
        ">= 4x",
    );
    table.row(
        "creates a second, steady, refill and end included, 2 callers",
        &format!("{steady:.0} = {:.2}x bubblewrap's {peer:.0}", steady / peer),
        ">= 1.0x",
    );
}

/// How often two callers can do it in a second.
fn per_second(time: Duration, work: &(dyn Fn() + Sync)) -> f64 {
    let (stop, count) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    work();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        rest(time);
        stop.store(true, Ordering::Relaxed);
    });
    count.load(Ordering::Relaxed) as f64 / time.as_secs_f64()
}

/// What idle sandboxes hold and use.
fn idle(scene: &Scene, table: &mut Table) {
    let many = if scene.quick { 50 } else { 200 };
    let all: Vec<Created> = (0..many).map(|_| scene.cold()).collect();
    rest(Duration::from_secs(2));
    let used = || -> u64 { all.iter().flat_map(|one| tree(one.info.pid)).map(ticks).sum() };
    let before = used();
    let time = Duration::from_secs(5);
    rest(time);
    let share = (used() - before) as f64 / 100.0 / time.as_secs_f64() / f64::from(many) * 100.0;
    let memory: u64 = all.iter().flat_map(|one| tree(one.info.pid)).map(proportional).sum();
    let each = memory as f64 / 1024.0 / f64::from(many);
    let own: u64 = all.iter().map(|one| proportional(one.info.pid)).sum();
    let found = format!(
        "{each:.2} MiB each (PSS; supervisor {:.2}), {share:.3} % of a core each",
        own as f64 / 1024.0 / f64::from(many)
    );
    table.row(&format!("{many} idle live sandboxes"), &found, "<= 3 MiB, <= 0.1 %");
    all.into_iter().for_each(|one| scene.end(one));
}

/// A process and all that descend from it.
fn tree(pid: u32) -> Vec<u32> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let text = tasks.map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default());
        text.flat_map(|text| text.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<_>>()).collect()
    };
    let mut found = vec![pid];
    let mut at = 0;
    while let Some(pid) = found.get(at).copied() {
        found.extend(children(pid));
        at += 1;
    }
    found
}

/// Processor time, clock ticks.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace().skip(11).take(2).filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// Memory that it holds, shared pages in part, KiB.
fn proportional(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap_or(0)
}

/// Writes and reads 1 MiB inside by the supervisor's socket; MiB a second.
pub(crate) fn through_socket(scene: &Scene, created: &Created, rounds: usize) -> f64 {
    let client = scene.connect(created);
    let bytes = vec![7; MIB];
    let took = (0..rounds).map(|_| {
        timed(|| {
            scene.runtime.block_on(async {
                let path = "/tmp/file".to_owned();
                let ask = Inside::Write { path: path.clone(), mode: None, metadata: None };
                let mut stream = client.open(&ask).unwrap();
                stream.send(&bytes).await.unwrap();
                stream.eof().unwrap();
                stream.result::<serde_json::Value>().await.unwrap();
                let mut stream = client.open(&Inside::Read { path, offset: 0, length: None }).unwrap();
                let mut read = 0;
                while let Some(incoming) = stream.next().await {
                    if let Incoming::Out(bytes) = incoming {
                        read += bytes.len();
                    }
                }
                assert_eq!(read, MIB);
            });
        })
    });
    2.0 * 1000.0 / median(took.collect()) * (MIB as f64 / 1e6)
}

pub(crate) fn state(scene: &Scene) -> &Path {
    &scene.state
}
