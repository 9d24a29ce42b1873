//! Very many events at once: whoever watches hears of them or that some were lost, and nobody else has to wait.
//!
//! Some here; `FUMEHOOD_EVENTS` says how many renames in `scripts/load`, each of which is two events.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::pool::{counts, supervisors};
use crate::served::Served;

/// What an answer may take while the events come.
const ANSWER: Duration = Duration::from_secs(20);
/// KiB that a process of ours may have more, at its highest, than before the events: what waits for each of two readers, 64 MiB.
const MORE: u64 = 128 << 10;

/// The most memory that a process ever had, KiB.
fn peak(pid: i64) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

/// A stream of what changes in `/tmp/w`, which has begun.
fn watching(served: &Served<'_>, key: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(&served.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let line = "GET /v1/sandboxes/box/files/watch?path=/tmp/w HTTP/1.1";
    write!(stream, "{line}\r\nHost: {}\r\nX-API-KEY: {key}\r\n\r\n", served.address).unwrap();
    let mut stream = BufReader::new(stream);
    let mut text = String::new();
    while !text.contains("event: watching") {
        assert!(stream.read_line(&mut text).is_ok_and(|count| count > 0), "{text}");
    }
    stream
}

/// How many changes a stream tells until the last one, or until it says that some were lost.
fn read(stream: BufReader<TcpStream>) -> (usize, bool) {
    let mut told = 0;
    for line in stream.lines() {
        let line = line.unwrap();
        if line.contains("overflow") || line.contains("event: failed") {
            return (told, true);
        }
        told += usize::from(line.starts_with("data:"));
        if line.contains(r#""last""#) {
            return (told, false);
        }
    }
    (told, true)
}

#[test]
fn events_without_end_are_told_or_said_to_be_lost_and_hold_nobody_up() {
    let fixture = &Fixture::new();
    let [renames] = counts("FUMEHOOD_EVENTS", [50_000]);
    let served = Served::new(fixture);
    let key = served.key("events", &[]);
    let (status, made) = served.ask(&key, "POST /v1/sandboxes", &json!({ "name": "box", "timeout": "30m" }));
    assert_eq!(status, 201, "{made}");
    let exec = |line: &str, seconds: u32| {
        let body = json!({ "cmd": ["sh", "-c", line], "timeout": seconds });
        served.ask(&key, "POST /v1/sandboxes/box/exec", &body)
    };
    assert_eq!(exec("mkdir /tmp/w; echo > /tmp/w/a", 20).1["report"]["code"], 0);
    let pids = [i64::from(served.pid()), supervisors(fixture)[0]];
    let before = pids.map(peak);

    let (reads, never_reads) = (watching(&served, &key), watching(&served, &key));
    let (told, lost) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(reads));
        let writer = scope.spawn(|| {
            let rename = "import os; os.chdir('/tmp/w')\nfor _ in range(N): os.rename('a', 'b'); os.rename('b', 'a')\nopen('last', 'w')";
            exec(&format!("python3 -c \"{}\"", rename.replace("(N)", &format!("({})", renames / 2))), 600)
        });
        let mut asked = 0;
        while !writer.is_finished() || asked == 0 {
            let begun = Instant::now();
            let (status, ran) = exec("echo there", 60);
            assert_eq!((status, &ran["stdout"]), (200, &json!("there\n")), "{ran}");
            assert!(begun.elapsed() < ANSWER, "an answer took {:?}", begun.elapsed());
            asked += 1;
        }
        let (status, ran) = writer.join().unwrap();
        assert_eq!((status, &ran["report"]["code"]), (200, &json!(0)), "{ran}");
        reader.join().unwrap()
    });
    assert!(lost || told > 2 * renames, "{told} of {} changes were told, and none is said to be lost", 2 * renames);
    for (pid, before) in pids.into_iter().zip(before) {
        let more = peak(pid).saturating_sub(before);
        println!("process {pid}: {more} KiB more");
        assert!(more <= MORE, "process {pid} took {more} KiB more");
    }
    drop(never_reads);
    let (status, listed) = served.ask(&key, "GET /v1/sandboxes/box/files/list?path=/tmp/w", &Json::Null);
    assert_eq!((status, listed["entries"].as_array().map(Vec::len)), (200, Some(2)), "{listed}");
}
