//! Connections as streams of bytes: what goes in comes out, whole and in order, at the pace of whoever reads; and no faster than
//! `net.bandwidth`.

use std::io::{ErrorKind, Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::stage::{Engine, PRIVATE, Stage, WORLD, address, connect, echo, exchange, staged};
use crate::{HOST, hello, named, reset, resident};

/// What a writer that nobody reads from gives up after: it only ends the wait for what the kernel's own buffers take.
const STUCK: Duration = Duration::from_millis(700);
/// More than all buffers of the kernel on the way can hold.
const MORE_THAN_BUFFERS: usize = 256 << 20;
/// What the broker may hold of it.
const MAX_HELD: u64 = 8 << 10;

/// Bytes that are nowhere the same in a row, so that none can be lost, said twice or exchanged unseen.
fn bytes(count: usize) -> Vec<u8> {
    let words = 0..u32::try_from(count.div_ceil(4)).unwrap();
    let mut all: Vec<u8> = words.flat_map(|word| word.wrapping_mul(0x9E37_79B1).to_le_bytes()).collect();
    all.truncate(count);
    all
}

#[test]
fn other_protocols_behave_as_without_a_broker() {
    staged("streams::other_protocols_behave_as_without_a_broker", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((PRIVATE, 6432), echo);
        stage.server((WORLD, 23), |stream| {
            rustix::net::sockopt::set_socket_linger(&stream, Some(std::time::Duration::ZERO)).unwrap();
        });
        let net = json!({"allow": [
            {"host": HOST, "ports": [22, 23]}, {"cidr": "93.184.216.0/24", "ports": [22]},
            {"host": "db.corp.example", "ports": [5432], "address": "10.9.9.9:6432"},
        ]});
        let mut engine = stage.broker_with(&net, &[22, 23]);
        engine.ready();
        stage.program(|| {
            // The server speaks first; then much, with the halves closed one after the other.
            let mut stream = connect(HOST, 22);
            let mut banner = [0; 7];
            stream.read_exact(&mut banner).unwrap();
            assert_eq!(&banner, b"banner\n");
            let much = bytes(4_000_003);
            let mut back = Vec::new();
            std::thread::scope(|scope| {
                let mut writer = stream.try_clone().unwrap();
                let sent = &much;
                scope.spawn(move || {
                    writer.write_all(sent).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                stream.read_to_end(&mut back).unwrap();
            });
            assert!(back == much, "byte for byte: {} of {}", back.len(), much.len());
            // An address that a rule has, and what breaks off.
            assert_eq!(exchange(TcpStream::connect("93.184.216.34:22").unwrap(), b"x", true).unwrap(), "banner\nx");
            assert!(reset(exchange(connect(HOST, 23), b"", false)), "a reset comes through");
            // A high port is the name's own: the program may still have it for itself.
            assert_eq!(exchange(connect("db.corp.example", 5432), b"q", true).unwrap(), "banner\nq");
            TcpListener::bind("127.0.0.1:5432").unwrap();
            // Nobody listens: the kernel refuses at once.
            let refused = TcpStream::connect((address("db.corp.example"), 5433)).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        });
        engine.end();
    });
}

/// Either side may close its half first, and the other half goes on.
#[test]
fn halves_are_closed_one_by_one() {
    staged("streams::halves_are_closed_one_by_one", |stage| {
        let (told, heard) = channel();
        stage.server_in_turn((WORLD, 22), move |mut stream| {
            // The server has said all that it will, and listens on.
            stream.write_all(b"banner").unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            told.send(all).unwrap();
        });
        stage.server_in_turn((WORLD, 80), |mut stream| {
            // The server hears all first, and then says much.
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all.repeat(1000)).unwrap();
        });
        let mut engine =
            stage.broker_with(&json!({"allow": [{"cidr": "93.184.216.0/24", "ports": [22, 80]}]}), &[22, 80]);
        engine.ready();
        let sent = bytes(1_000_003);
        stage.program(|| {
            let mut stream = TcpStream::connect((std::net::Ipv4Addr::from(WORLD), 22)).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            assert_eq!(said, "banner", "and its end");
            stream.write_all(&sent).unwrap();
        });
        assert!(heard.recv().unwrap() == sent, "after the server had closed its half");
        let few = bytes(4001);
        let said = stage.program(|| {
            let mut stream = TcpStream::connect((std::net::Ipv4Addr::from(WORLD), 80)).unwrap();
            stream.write_all(&few).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut said = Vec::new();
            stream.read_to_end(&mut said).unwrap();
            said
        });
        assert!(said == few.repeat(1000), "after the program had closed its half");
        engine.end();
    });
}

/// Writes until nobody takes any more; how much was taken.
fn fill(stream: &mut TcpStream) -> usize {
    stream.set_write_timeout(Some(STUCK)).unwrap();
    let piece = bytes(1 << 20);
    let mut taken = 0;
    while taken < MORE_THAN_BUFFERS {
        let at = taken % piece.len();
        match stream.write(&piece[at..]) {
            Ok(count) => taken += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            Err(error) => panic!("{error}"),
        }
    }
    taken
}

/// Reads to the end what [`fill`] wrote; how much it was.
fn drain(stream: &mut impl Read) -> usize {
    let piece = bytes(1 << 20);
    let (mut count, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let read = stream.read(&mut buffer).unwrap();
        if read == 0 {
            return count;
        }
        let mut rest = &buffer[..read];
        while !rest.is_empty() {
            let expected = &piece[count % piece.len()..];
            let (part, more) = rest.split_at(rest.len().min(expected.len()));
            assert!(part == &expected[..part.len()], "other bytes after {count}");
            (count, rest) = (count + part.len(), more);
        }
    }
}

/// Who is not read from has to wait, and the broker keeps little of what waits; all of it arrives when it is read.
#[test]
fn who_is_not_read_from_waits() {
    staged("streams::who_is_not_read_from_waits", |stage| {
        let (go, read) = channel::<()>();
        let (told, counted) = channel();
        let told_of_fill = told.clone();
        stage.server_in_turn((WORLD, 22), move |mut stream| {
            // It reads when it is told to.
            read.recv().unwrap();
            told.send(drain(&mut stream)).unwrap();
        });
        stage.server_in_turn((WORLD, 80), move |mut stream| {
            let taken = fill(&mut stream);
            told_of_fill.send(taken).unwrap();
        });
        let mut engine =
            stage.broker_with(&json!({"allow": [{"cidr": "93.184.216.0/24", "ports": [22, 80]}]}), &[22, 80]);
        engine.ready();
        let connect = |port| stage.program(|| TcpStream::connect((std::net::Ipv4Addr::from(WORLD), port)).unwrap());
        let before = resident();
        let mut out = connect(22);
        let taken = fill(&mut out);
        let grown = resident().saturating_sub(before);
        assert!(taken < MORE_THAN_BUFFERS && grown < MAX_HELD, "{taken} bytes were taken, {grown} KiB are held");
        out.shutdown(Shutdown::Write).unwrap();
        go.send(()).unwrap();
        assert_eq!(counted.recv().unwrap(), taken);
        // The other way.
        let before = resident();
        let mut back = connect(80);
        let taken = counted.recv().unwrap();
        let grown = resident().saturating_sub(before);
        assert!(taken < MORE_THAN_BUFFERS && grown < MAX_HELD, "{taken} bytes were taken, {grown} KiB are held");
        assert_eq!(drain(&mut back), taken);
        engine.end();
    });
}

/// A second's worth in these tests; all of them together take four seconds.
const RATE: usize = 512 << 10;
/// What goes in each: a second's worth at once, a buffer, and another second's worth.
const COUNT: usize = 2 * RATE + (128 << 10);

/// What a server says to what it was sent.
fn whole(body: &[u8]) -> Vec<u8> {
    if body == bytes(COUNT) { b"whole".to_vec() } else { b"other".to_vec() }
}

/// A server that hears a request and its body, and then answers with a body: `IN` or `OUT` of the path says which is long. When
/// the last byte of each had come is told.
fn transfers(stage: &Stage) -> Receiver<Instant> {
    let (told, heard) = channel();
    let told_of_all = told.clone();
    stage.server((WORLD, 80), move |mut stream| {
        let (mut held, mut byte) = (Vec::new(), [0]);
        while !held.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte).unwrap() == 0 {
                return;
            }
            held.push(byte[0]);
        }
        let head = String::from_utf8(held).unwrap().to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        told.send(Instant::now()).unwrap();
        let answer = if head.contains("/in ") { bytes(COUNT) } else { whole(&body) };
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer.len()).as_bytes()).unwrap();
        stream.write_all(&answer).unwrap();
    });
    stage.server((WORLD, 22), move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        told_of_all.send(Instant::now()).unwrap();
        stream.write_all(&if all.is_empty() { bytes(COUNT) } else { whole(&all) }).unwrap();
    });
    heard
}

/// Moves [`COUNT`] bytes one way, passed or opened; whether they came whole.
fn transfer(engine: &mut Engine, stage: &Stage, port: u16, out: bool) -> bool {
    engine.ready();
    let sent = if out { bytes(COUNT) } else { Vec::new() };
    let said = stage.program(|| {
        let mut stream = connect(HOST, port);
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        if port == 80 {
            let (method, path) = if out { ("PUT", "/out") } else { ("GET", "/in") };
            let head = format!(
                "{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
                sent.len()
            );
            stream.write_all(head.as_bytes()).unwrap();
        }
        stream.write_all(&sent).unwrap();
        if port == 22 {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        said
    });
    let expected = if out { whole(&sent) } else { bytes(COUNT) };
    said.ends_with(&expected)
}

/// No more goes in a time than the rate, passed or opened, out or in; of each the broker is another one, with a burst of its own.
#[test]
fn bandwidth_holds_for_passed_and_opened_connections_both_ways() {
    staged("streams::bandwidth_holds_for_passed_and_opened_connections_both_ways", |stage| {
        let heard = transfers(stage);
        let opened = json!({"host": HOST, "ports": [80], "methods": ["GET", "PUT"]});
        let rules = |more: Value| {
            let mut rules = json!({"allow": [{"host": HOST, "ports": [22]}, opened]});
            rules.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            rules
        };
        for (port, out) in [(22, true), (22, false), (80, true), (80, false)] {
            let mut engine = stage.broker(&rules(json!({"bandwidth": format!("{RATE}B/s")})));
            let begun = Instant::now();
            assert!(transfer(&mut engine, stage, port, out), "{port} {out}");
            // What goes out is timed where it arrives: its answer waits for what it owes in any case.
            let arrived = heard.recv().unwrap();
            let took = if out { arrived.duration_since(begun) } else { begun.elapsed() };
            assert!(took > Duration::from_millis(800), "{COUNT} bytes at {RATE} a second in {took:?}: {port} {out}");
            engine.end();
            // Without it they come as well.
            let mut engine = stage.broker(&rules(json!({})));
            assert!(transfer(&mut engine, stage, port, out), "{port} {out}");
            heard.recv().unwrap();
            engine.end();
        }
    });
}

/// What is read of a connection before it is judged counts as well, and waits: many short connections are no way around the rate.
#[test]
fn bandwidth_holds_for_the_beginnings_of_many_connections() {
    staged("streams::bandwidth_holds_for_the_beginnings_of_many_connections", |stage| {
        const CONNECTIONS: usize = 20;
        let (told, heard) = channel();
        let told = std::sync::Mutex::new(told);
        stage.server_in_turn((WORLD, 443), move |mut stream| {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            told.lock().unwrap().send(Instant::now()).unwrap();
        });
        // A client hello is read whole, and says the name; a ticket of an earlier session is as long as the client likes.
        let ticket = [&[0, 35, 0x0F, 0xA0][..], &[7; 4000]].concat();
        let head = hello(&[named(HOST), ticket].concat());
        for bandwidth in [Some("40000B/s"), None] {
            let bandwidth = json!(bandwidth.unwrap_or("none"));
            let rules = json!({"allow": [{"host": HOST, "ports": [443]}], "bandwidth": bandwidth});
            let mut engine = stage.broker(&rules);
            engine.ready();
            let begun = Instant::now();
            let held: Vec<TcpStream> = stage.program(|| {
                let at = address(HOST);
                let open = |_| {
                    let mut stream = TcpStream::connect((at, 443)).unwrap();
                    stream.write_all(&head).unwrap();
                    stream
                };
                (0..CONNECTIONS).map(open).collect()
            });
            let wait = Duration::from_secs(8);
            let last = (0..CONNECTIONS).map(|_| heard.recv_timeout(wait).expect("each arrives")).max().unwrap();
            let took = last.duration_since(begun);
            let fits = if bandwidth == "none" { took < STUCK } else { took > STUCK };
            assert!(fits, "{CONNECTIONS} hellos of {} bytes at {bandwidth} in {took:?}", head.len());
            drop(held);
            engine.end();
        }
    });
}
