//! What can become of a sandbox that is ready before somebody takes it, of who it is for, and of the server that holds it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use live::create::Request;
use live::pool::{Pool, Settings};
use rustix::process::{Pid, Signal, kill_process};

use crate::Fixture;
use crate::pool::{Live, OWNER, Serve, asked, pool_of, ready, supervisors, until};

fn pool(fixture: &Fixture, count: usize) -> Pool {
    pool_of(fixture, Settings { count, ..Settings::default() }, |_| true)
}

/// A pool with one that is ready, and its supervisor.
fn with_one<'a>(fixture: &'a Fixture, pool: &Pool, request: &Request) -> ([Live<'a>; 2], i32) {
    let cold = [Live::of(fixture, pool, OWNER, request), Live::of(fixture, pool, OWNER, request)];
    let spare = the_spare(fixture, pool, &cold);
    (cold, spare)
}

/// The supervisor of the one that is ready.
fn the_spare(fixture: &Fixture, pool: &Pool, others: &[Live<'_>]) -> i32 {
    ready(pool, 1);
    let used = others.iter().map(|one| i64::from(one.info().pid)).collect::<Vec<_>>();
    i32::try_from(supervisors(fixture).into_iter().find(|pid| !used.contains(pid)).unwrap()).unwrap()
}

/// One that works is given out, and not this one.
fn another(fixture: &Fixture, pool: &Pool, request: &Request, spare: i32) {
    let next = Live::of(fixture, pool, OWNER, request);
    assert_ne!(i32::try_from(next.info().pid).unwrap(), spare);
    assert_eq!(next.exec(&["true"]).0, 0);
}

fn signal(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

fn is_there(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

fn rest(time: Duration) {
    drop(sys::channel::wait(&[], Some(time)));
}

#[test]
fn one_whose_broker_has_ended_is_not_given_out_and_another_is_made_ready() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let request = asked(&["net.mode=\"allow\"", "net.allow=[\"example.test:443\"]"]);
    let (cold, spare) = with_one(fixture, pool, &request);
    let broker = |supervisor: i32| {
        let is_broker = |pid: &i32| {
            std::fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|words| words.split(|b| *b == 0).any(|w| w == b"__broker"))
        };
        sys::proc::tree(supervisor).unwrap().into_iter().find(is_broker).expect("a broker")
    };
    let ended = broker(spare);
    signal(ended, Signal::KILL);
    assert!(until(|| !is_there(ended)));
    // Its supervisor hears it from a pipe.
    rest(Duration::from_millis(100));
    another(fixture, pool, &request, spare);
    // One that nobody takes ends by itself.
    let spare = the_spare(fixture, pool, &cold);
    signal(broker(spare), Signal::KILL);
    assert!(until(|| !is_there(spare)), "it waits on");
}

#[test]
fn one_that_is_stopped_is_waited_for_no_longer_than_it_may_take() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let request = asked(&["limits.pids=17"]);
    let (_cold, spare) = with_one(fixture, pool, &request);
    signal(spare, Signal::STOP);
    let begun = Instant::now();
    // More than a pipe takes: a supervisor that does not read holds up who tells it, too.
    let labels = (0..40).map(|number| (format!("l{number}"), "x".repeat(4000))).collect();
    another(fixture, pool, &Request { labels, ..request }, spare);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
    assert!(until(|| !is_there(spare)));
}

#[test]
fn one_whose_folder_or_socket_is_gone_is_not_given_out() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let request = asked(&["limits.pids=17"]);
    let (cold, _) = with_one(fixture, pool, &request);
    for only_the_socket in [false, true] {
        let pid = the_spare(fixture, pool, &cold);
        let folders = std::fs::read_dir(fixture.state().join("live")).unwrap().map(|entry| entry.unwrap().path());
        let spare = folders.filter(|path| path.is_dir()).find(|path| !path.join("record.json").exists()).unwrap();
        let gone =
            if only_the_socket { std::fs::remove_file(spare.join("socket")) } else { std::fs::remove_dir_all(&spare) };
        gone.unwrap();
        another(fixture, pool, &Request { name: Some("named".to_owned()), ..request.clone() }, pid);
    }
}

#[test]
fn what_is_ready_is_told_apart_by_gc() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 1);
    let (_cold, _) = with_one(fixture, pool, &asked(&["limits.pids=17"]));
    let told = fixture.run(&["gc"]).out;
    assert!(told.contains("3 runs live, 1 of them ready in a pool, or being begun\n"), "{told}");
    assert_eq!(fixture.run(&["gc", "--json"]).json()["begun"], 1);
}

#[test]
fn the_memory_of_what_is_ready_counts_with_all_that_a_python_in_it_has_imported() {
    let fixture = &Fixture::new();
    let most = 64 << 20;
    let pool = &pool_of(fixture, Settings { count: 8, memory: most, ..Settings::default() }, |_| true);
    let names = ["asyncio", "decimal", "email", "http.client", "json", "ssl", "unittest", "xml.dom.minidom"];
    let request = Request { imports: Some(names.map(str::to_owned).to_vec()), ..asked(&[]) };
    drop((0..8).map(|_| Live::of(fixture, pool, OWNER, &request)).collect::<Vec<_>>());
    assert!(until(|| pool.status().trouble.is_some()), "{:?}", pool.status());
    // Whatever was made before it was known, and what grew since, is ended.
    assert!(until(|| pool.status().memory <= most && pool.status().ready > 0), "{:?}", pool.status());
    let status = pool.status();
    let each = status.memory / u64::try_from(status.ready).unwrap();
    assert!(each > 8 << 20 && status.wanted > status.ready, "a Python alone has more: {status:?}");
    let held = supervisors(fixture)
        .into_iter()
        .flat_map(|pid| sys::proc::tree(i32::try_from(pid).unwrap()).unwrap_or_default());
    let held = held.filter_map(|pid| sys::proc::Process::open(pid).ok()?.proportional_bytes().ok()).sum::<u64>();
    assert!(held < 2 * most, "{held} {status:?}");
}

#[test]
fn what_is_ready_ends_with_its_owner() {
    let fixture = &Fixture::new();
    let there = Arc::new(AtomicBool::new(true));
    let asks = Arc::clone(&there);
    let is_owner = move |owner: &str| owner != OWNER || asks.load(Ordering::Relaxed);
    let pool = &pool_of(fixture, Settings { count: 4, ..Settings::default() }, is_owner);
    let request = asked(&["limits.pids=17"]);
    let others = ["b", "b"].map(|owner| Live::of(fixture, pool, owner, &request));
    let cold = [OWNER, OWNER].map(|owner| Live::of(fixture, pool, owner, &request));
    ready(pool, 4);
    there.store(false, Ordering::Relaxed);
    let begun = Instant::now();
    ready(pool, 2);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(cold.iter().chain(&others).all(|one| one.exec(&["true"]).0 == 0), "what somebody has lives on");
}

#[test]
fn what_is_ready_for_a_key_ends_when_it_is_removed() {
    let fixture = &Fixture::new();
    let served = Serve::new(fixture, "2");
    let ids = [served.create(), served.create()];
    let is_ready = |count: &str| {
        let line = format!("fumehood_pool_ready {count}");
        until(|| served.metrics().is_some_and(|page| page.lines().any(|found| found == line)))
    };
    assert!(is_ready("2"));
    assert_eq!(fixture.run(&["keys", "rm", &served.name]).code, 0);
    let begun = Instant::now();
    assert!(is_ready("0") && begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(until(|| supervisors(fixture).len() == 2), "{:?}", supervisors(fixture));
    assert_eq!(fixture.run(&[&["kill"][..], &ids.each_ref().map(String::as_str)].concat()).code, 0);
}

#[test]
fn what_is_refused_hinders_no_pool() {
    let fixture = &Fixture::new();
    let pool = &pool(fixture, 2);
    let bad = asked(&["tier=\"language\""]);
    for _ in 0..3 {
        assert_eq!(pool.create("b", &bad).unwrap().unwrap_err().code, 126);
    }
    rest(Duration::from_millis(1500));
    let status = pool.status();
    assert_eq!((status.wanted, status.trouble, status.taken, status.cold), (0, None, 0, 0));
}

/// `fumehood serve` where a process may have few files open: it has more itself, and nothing that it starts has.
#[test]
fn a_server_has_more_files_open_than_what_it_starts() {
    let fixture = &Fixture::new();
    let key = fixture.run(&["keys", "add", "--name", "k"]).out.trim().to_owned();
    let few = "ulimit -Sn 1000; ulimit -Hn; exec \"$1\" serve --listen 127.0.0.1:0";
    let mut child = crate::script(few, fixture).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let line = |from: &mut dyn std::io::Read| {
        let mut line = String::new();
        BufReader::new(from).read_line(&mut line).unwrap();
        line.trim().to_owned()
    };
    let hard = line(child.stdout.as_mut().unwrap()).parse().unwrap_or(u64::MAX);
    let address =
        line(child.stderr.as_mut().unwrap()).rsplit('/').next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let limit = |pid: u32| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    let own = limit(child.id());
    let id = crate::pool::created_at(&address, &key).unwrap();
    let theirs = limit(fixture.run(&["info", "--json", &id]).json()["pid"].as_u64().unwrap().try_into().unwrap());
    let inside = |id: &str| fixture.run(&["exec", id, "--", "sh", "-c", "ulimit -Sn; ulimit -Hn"]).out;
    let (here, there) = (crate::live::Live::new(fixture, &["-p", "strict"]), inside(&id));
    assert_eq!((own, theirs), (hard.min(65_536), 1000));
    assert_eq!(there, inside(&here.id), "inside it is as without a server");
    fixture.run(&["kill", &id]);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_ceiling_of_memory_without_a_pool_is_no_wish() {
    let fixture = Fixture::new();
    let said = fixture.run(&["serve", "--listen", "127.0.0.1:0", "--pool-memory", "5M"]);
    assert!(said.code == 125 && said.err.contains("`--pool-memory` belongs to `--pool`"), "{said:?}");
}
