//! Flow, and supervisors that do not do as they should.

use agent::frame::{self, Frame, Kind, Lane, WINDOW};
use agent::words::{Code, Request};
use proptest::prelude::*;

use crate::client::{Agent, shell};

#[test]
fn a_reader_that_reads_nothing_holds_nobody_up() {
    let mut agent = Agent::new();
    let slow = agent.open(&Request::Start(shell("yes")));
    agent.slow.push(slow);
    std::fs::write(agent.path("file"), vec![5; 10 << 20]).unwrap();
    let slow_file = agent.open(&Request::Read { path: "file".into(), offset: 0, length: None });
    agent.slow.push(slow_file);
    let window = usize::try_from(WINDOW).unwrap();
    agent.until("full windows", |agent| {
        agent.streams[&slow].out.len() == window && agent.streams[&slow_file].out.len() == window
    });
    assert_eq!(agent.read("file").unwrap().len(), 10 << 20);
    let heard = agent.shell("head -c 10485760 /dev/zero");
    assert_eq!(heard.out.len(), 10 << 20);
    // No byte more, and it goes on when it may.
    assert_eq!(agent.streams[&slow].out.len(), window);
    agent.credit(slow, 1000);
    agent.credit(slow_file, 7);
    agent.until("a little more", |agent| {
        agent.streams[&slow].out.len() >= window + 1000 && agent.streams[&slow_file].out.len() == window + 7
    });
    assert_eq!(agent.streams[&slow].out.len(), window + 1000);
    agent.cancel(slow);
    assert_eq!(agent.end(slow).result::<()>().unwrap_err().code, Code::Cancelled);
    agent.cancel(slow_file);
    agent.end(slow_file);
}

#[test]
fn a_program_that_reads_nothing_holds_nobody_up() {
    let mut agent = Agent::new();
    let mut deaf = shell("sleep 1000");
    deaf.stdin = true;
    let (stream, _) = agent.start(deaf);
    let before = agent.streams[&stream].window;
    agent.send(stream, &vec![1; usize::try_from(before).unwrap()]);
    assert_eq!(agent.shell("echo fine").text(), "fine\n");
    // What lies in the pipe was taken, the rest is not.
    assert!(agent.streams[&stream].window < before);
    agent.cancel(stream);
    agent.end(stream);
    // One that closes its input swallows the rest.
    let mut closed = shell("exec <&-; sleep 0.3; echo end");
    closed.stdin = true;
    let (stream, _) = agent.start(closed);
    agent.send(stream, &vec![1; 2_000_000]);
    assert_eq!(agent.end(stream).text(), "end\n");
}

#[test]
fn an_agent_whose_supervisor_reads_nothing_does_not_grow() {
    let mut agent = Agent::new();
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/statm").unwrap();
        status.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    std::fs::write(agent.path("file"), vec![5; 1 << 20]).unwrap();
    let before = resident();
    for _ in 0..400 {
        agent.open(&Request::Read { path: "file".into(), offset: 0, length: None });
    }
    // Long enough for all of them to be read, were there no bound: 100 MiB.
    let end = std::time::Instant::now() + std::time::Duration::from_millis(500);
    while std::time::Instant::now() < end {
        std::thread::yield_now();
    }
    let grown = resident().saturating_sub(before);
    assert!(grown < 40 << 20, "{grown} bytes");
    // And all come in the end.
    let streams: Vec<u32> = agent.streams.keys().copied().collect();
    for stream in streams {
        assert_eq!(agent.end(stream).out.len(), 1 << 20);
    }
}

fn bytes_of(kind: Kind, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    assert!(frame::put(&mut bytes, Frame { kind, stream, payload }));
    bytes
}

#[test]
fn a_supervisor_that_breaks_the_protocol_ends_the_agent() {
    let mut deaf = shell("sleep 1000");
    deaf.stdin = true;
    let open = serde_json::to_vec(&Request::Start(deaf)).unwrap();
    let started = bytes_of(Kind::Open, 1, &open);
    let mut too_much = started.clone();
    for _ in 0..7 {
        assert!(frame::put_data(&mut too_much, 1, Lane::In, &vec![0; frame::MAX_DATA - 1]));
    }
    let mut out = started.clone();
    assert!(frame::put_data(&mut out, 1, Lane::Out, b"x"));
    let mut late = [started.clone(), bytes_of(Kind::Eof, 1, b"")].concat();
    assert!(frame::put_data(&mut late, 1, Lane::In, b"x"));
    // Each waits for the rest of its stream.
    let many: Vec<u8> =
        (1..=1100).flat_map(|stream| bytes_of(Kind::Open, stream, br#"{"op":"extract","path":"to"}"#)).collect();
    for (what, bytes) in [
        ("no frame", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("a stream twice", [started.clone(), started.clone()].concat()),
        ("an answer", bytes_of(Kind::End, 1, b"{}")),
        ("a control that is none", [started, bytes_of(Kind::Control, 1, b"{}")].concat()),
        ("more than the window", too_much),
        ("a lane that leads out", out),
        ("data after the end", late),
        ("too many streams", many),
    ] {
        let mut agent = Agent::new();
        agent.write_loosely(&bytes);
        let error = agent.ended(what).expect_err(what);
        assert!(error.contains("broke the protocol"), "{what}: {error}");
    }
    // The controls: what may cross the end of a stream is no breach, and an unknown request is an answer.
    let mut agent = Agent::new();
    agent.write_raw(&bytes_of(Kind::Cancel, 77, b""));
    agent.write_raw(&bytes_of(Kind::Credit, 77, &[0; 4]));
    let unknown = agent.open_raw(br#"{"op":"reboot"}"#);
    assert_eq!(agent.end(unknown).result::<()>().unwrap_err().code, Code::Invalid);
    agent.close().unwrap();
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let requests = prop_oneof![
        Just(r#"{"op":"hello","version":1}"#),
        Just(r#"{"op":"stat","path":"~"}"#),
        Just(r#"{"op":"list","path":"/usr","depth":2}"#),
        Just(r#"{"op":"read","path":"/etc/passwd"}"#),
        Just(r#"{"op":"write","path":"f"}"#),
        Just(r#"{"op":"extract","path":"to"}"#),
        Just(r#"{"op":"archive","path":"~"}"#),
        Just(r#"{"op":"watch","path":"~","recursive":true}"#),
        Just(r#"{"op":"port","port":1}"#),
        Just(r#"{"op":"start","argv":["cat"],"stdin":true}"#),
        Just(r#"{"op":"start","argv":["echo","x"]}"#),
        Just(r#"{"op":"processes"}"#),
        Just(r#"{"op":"#),
    ];
    let stream = 1_u32..4;
    prop_oneof![
        4 => (stream.clone(), requests).prop_map(|(stream, words)| bytes_of(Kind::Open, stream, words.as_bytes())),
        3 => (stream.clone(), proptest::collection::vec(any::<u8>(), 0..600)).prop_map(|(stream, bytes)| {
            let mut frame = Vec::new();
            assert!(frame::put_data(&mut frame, stream, Lane::In, &bytes));
            frame
        }),
        1 => stream.clone().prop_map(|stream| bytes_of(Kind::Eof, stream, b"")),
        2 => stream.clone().prop_map(|stream| bytes_of(Kind::Cancel, stream, b"")),
        1 => (stream.clone(), any::<u32>()).prop_map(|(stream, more)| bytes_of(Kind::Credit, stream, &more.to_le_bytes())),
        1 => stream.prop_map(|stream| bytes_of(Kind::Control, stream, br#"{"signal":{"number":15}}"#)),
        1 => proptest::collection::vec(any::<u8>(), 0..40),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn no_frames_make_the_agent_panic(frames in proptest::collection::vec(any_frame(), 0..60)) {
        let mut agent = Agent::new();
        agent.write_loosely(&frames.concat());
        // It ends: with an error of ours, or because we hang up. A panic would come out of `join`.
        match agent.close() {
            Ok(()) => {}
            Err(error) => prop_assert!(error.contains("broke the protocol"), "{}", error),
        }
    }
}
