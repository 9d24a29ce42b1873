//! Datagrams: which flows there are, and what ends them.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use egress::wire::{FromBroker, ToBroker};
use serde_json::json;

use crate::stage::{WORLD, address, full, look_up, staged};

const HOST: &str = "a.at-93-184-216-34.example";
const SOON: Duration = Duration::from_millis(700);

fn socket(v6: bool) -> UdpSocket {
    let socket = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" }).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
    socket
}

/// Sends, and takes what comes back from there.
fn exchange(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    socket.send_to(bytes, to).unwrap();
    let mut buffer = vec![0; 1 << 16];
    match socket.recv_from(&mut buffer) {
        Ok((count, from)) => {
            assert_eq!(from, to, "the answer is from where it was asked");
            Some(buffer[..count].to_vec())
        }
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
            None
        }
    }
}

fn rules() -> serde_json::Value {
    json!({"allow": [
        {"host": HOST, "ports": [123], "protocol": "udp"},
        {"host": "pinned.example", "ports": [9999], "protocol": "udp", "address": "93.184.216.34:123"},
        {"cidr": "93.184.216.34/32", "ports": [123], "protocol": "udp"},
        {"host": "tcp.at-93-184-216-34.example", "ports": [80]},
        {"host": "in.at-10-9-9-9.example", "ports": [123], "protocol": "udp"},
        {"host": "*.at-10-9-9-9.example", "ports": [80], "address": "93.184.216.34:80"},
    ]})
}

#[test]
fn datagrams_pass_where_a_rule_says_udp_and_nowhere_else() {
    staged("flows::datagrams_pass_where_a_rule_says_udp_and_nowhere_else", |stage| {
        stage.datagrams((WORLD, 123));
        let mut engine = stage.broker(&rules());
        engine.ready();
        stage.program(|| {
            let (one, two) = (socket(false), socket(false));
            let at = SocketAddr::new(address(HOST), 123);
            assert_eq!(exchange(&one, at, b"one").as_deref(), Some(&b"one"[..]));
            assert_eq!(exchange(&two, at, b"two").as_deref(), Some(&b"two"[..]));
            assert_eq!(exchange(&one, at, &vec![7; 9000]), Some(vec![7; 9000]), "whole, however long");
            assert_eq!(exchange(&one, at, b"").as_deref(), Some(&b""[..]), "an empty one is one");
            let egress::dns::LookupResult::Addresses(v6, _) = look_up(HOST, egress::dns::AAAA) else { panic!() };
            assert_eq!(exchange(&socket(true), SocketAddr::new(v6[0], 123), b"six").as_deref(), Some(&b"six"[..]));
            let pinned = SocketAddr::new(address("pinned.example"), 9999);
            assert_eq!(exchange(&one, pinned, b"pinned").as_deref(), Some(&b"pinned"[..]));
            let direct = SocketAddr::new(IpAddr::from(WORLD), 123);
            assert_eq!(exchange(&one, direct, b"direct").as_deref(), Some(&b"direct"[..]));
            // Another port of the same name, a name of TCP alone, an address of no rule, a name that leads inside.
            one.set_read_timeout(Some(SOON)).unwrap();
            for to in [
                SocketAddr::new(address(HOST), 9999),
                SocketAddr::new(address("tcp.at-93-184-216-34.example"), 123),
                "9.9.9.9:123".parse().unwrap(),
                SocketAddr::new(address("in.at-10-9-9-9.example"), 123),
            ] {
                assert_eq!(exchange(&one, to, b"no"), None, "{to}");
            }
            // Where no socket is the kernel says so at once.
            one.connect(SocketAddr::new(address(HOST), 443)).unwrap();
            one.send(b"quic").unwrap();
            assert_eq!(one.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        });
        for (id, host) in [
            ("net.allow/port", HOST),
            ("net.allow/unknown-name", "tcp.at-93-184-216-34.example"),
            ("net.allow/unknown-address", "9.9.9.9"),
            ("net.allow/inside", "in.at-10-9-9-9.example"),
        ] {
            let denied = engine.denied(id);
            assert_eq!(denied.host, host);
            assert!(denied.what.starts_with("sending a datagram to "), "{denied:?}");
        }
        let usage = engine.used();
        assert!(usage.connections >= 5 && usage.sent > 9000 && usage.received > 9000, "{usage:?}");
    });
}

/// Nobody can tell the program; who reads the report is told.
#[test]
fn a_datagram_that_does_not_arrive_is_told() {
    staged("flows::a_datagram_that_does_not_arrive_is_told", |stage| {
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [123], "protocol": "udp"}]}));
        engine.ready();
        stage.program(|| {
            let one = socket(false);
            one.set_read_timeout(Some(SOON)).unwrap();
            let at = SocketAddr::new(address(HOST), 123);
            (0..2).for_each(|_| assert_eq!(exchange(&one, at, b"anybody?"), None));
        });
        let told = engine.wait(|frame| match frame {
            FromBroker::Unreached { host, port, why } => Some((host.clone(), *port, why.clone())),
            _ => None,
        });
        assert_eq!((told.0.as_str(), told.1), (HOST, 123));
        assert!(told.2.contains("did not arrive") && told.2.to_lowercase().contains("refused"), "{told:?}");
        engine.end();
    });
}

#[test]
fn flows_count_among_connections_and_bytes() {
    staged("flows::flows_count_among_connections_and_bytes", |stage| {
        stage.datagrams((WORLD, 123));
        let mut net = rules();
        net["connections"] = json!(1);
        net["bytes"] = json!("8192B");
        let mut engine = stage.broker(&net);
        engine.ready();
        stage.program(|| {
            let (one, two) = (socket(false), socket(false));
            let at = SocketAddr::new(address(HOST), 123);
            assert!(exchange(&one, at, &[1; 1000]).is_some());
            two.set_read_timeout(Some(SOON)).unwrap();
            assert_eq!(exchange(&two, at, b"second"), None, "one flow is all");
            one.set_read_timeout(Some(SOON)).unwrap();
            let passed = (0..9).filter(|_| exchange(&one, at, &[1; 1000]).is_some()).count();
            assert!((2..=3).contains(&passed), "{passed} more");
        });
        engine.denied("net.connections/full");
        engine.denied("net.bytes/used");
        engine.end();
    });
}

/// Datagrams that go in the test below, of [`LENGTH`] bytes each: two seconds' worth, of which one goes at once.
const COUNT: usize = 40;
const LENGTH: usize = 1000;

/// No more goes in datagrams than the rate, out or in, and without one they go at once.
#[test]
fn bandwidth_holds_for_flows_both_ways() {
    staged("flows::bandwidth_holds_for_flows_both_ways", |stage| {
        let (told, heard) = channel();
        // One that only hears, and one that answers much to little: so each way is held by its own wait alone.
        stage.datagrams_to((WORLD, 123), move |_, bytes, _| told.send((Instant::now(), bytes.len())).unwrap());
        stage.datagrams_to((WORLD, 9999), |socket, _, from| {
            for _ in 0..COUNT {
                socket.send_to(&[2; LENGTH], from).unwrap();
            }
        });
        let mut net = rules();
        net["allow"][1]["address"] = json!("93.184.216.34:9999");
        for bandwidth in [Some("20000B/s"), None] {
            net["bandwidth"] = bandwidth.map_or(json!("none"), |rate| json!(rate));
            let mut engine = stage.broker(&net);
            engine.ready();
            let holds = |took: Duration, way: &str| {
                let fits = if bandwidth.is_some() { took > Duration::from_millis(700) } else { took < SOON };
                assert!(fits, "{} bytes {way} at {bandwidth:?} in {took:?}", COUNT * LENGTH);
            };
            let begun = Instant::now();
            stage.program(|| {
                let (one, at) = (socket(false), SocketAddr::new(address(HOST), 123));
                (0..COUNT).for_each(|_| assert_eq!(one.send_to(&[1; LENGTH], at).unwrap(), LENGTH));
            });
            let came = (0..COUNT).map(|_| heard.recv_timeout(Duration::from_secs(8)).expect("none is lost"));
            let came: Vec<_> = came.collect();
            assert!(came.iter().all(|(_, length)| *length == LENGTH));
            holds(came[COUNT - 1].0.duration_since(begun), "out");
            engine.end();

            let mut engine = stage.broker(&net);
            engine.ready();
            let begun = Instant::now();
            stage.program(|| {
                let (one, at) = (socket(false), SocketAddr::new(address("pinned.example"), 9999));
                assert_eq!(exchange(&one, at, b"much").map(|bytes| bytes.len()), Some(LENGTH));
                let mut buffer = [0; 2 * LENGTH];
                (1..COUNT).for_each(|_| assert_eq!(one.recv(&mut buffer).unwrap(), LENGTH));
            });
            holds(begun.elapsed(), "in");
            engine.end();
        }
    });
}

#[test]
fn a_quiet_flow_is_over_after_a_minute() {
    staged("flows::a_quiet_flow_is_over_after_a_minute", |stage| {
        stage.datagrams((WORLD, 123));
        let mut net = rules();
        net["connections"] = json!(1);
        let mut engine = stage.broker(&net);
        engine.ready();
        stage.program(|| {
            let (one, two) = (socket(false), socket(false));
            let at = SocketAddr::new(address(HOST), 123);
            assert!(exchange(&one, at, b"one").is_some());
            two.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            // It holds the only place, for a minute and no longer.
            let begun = std::time::Instant::now();
            let free = std::iter::repeat_with(|| exchange(&two, at, b"two")).take(80).find_map(|answer| answer);
            assert!(free.is_some());
            assert!((58..75).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
        });
        engine.end();
    });
}

#[test]
fn flows_that_no_longer_fit_are_cut() {
    staged("flows::flows_that_no_longer_fit_are_cut", |stage| {
        stage.datagrams((WORLD, 123));
        let mut engine = stage.broker(&rules());
        engine.ready();
        let (one, at) = stage.program(|| {
            let (one, at) = (socket(false), SocketAddr::new(address(HOST), 123));
            assert!(exchange(&one, at, b"before").is_some());
            (one, at)
        });
        let same = json!({"allow": rules()["allow"], "deny": [{"host": "other.example"}]});
        engine.send(&ToBroker::Rules { net: full(&same) });
        engine.ready();
        assert!(stage.program(|| exchange(&one, at, b"still")).is_some());
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": [{"host": HOST, "ports": [80]}]})) });
        engine.ready();
        one.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(stage.program(|| exchange(&one, at, b"after")), None);
        // A port for which there is no socket cannot be had.
        let more = json!({"allow": [{"host": HOST, "ports": [5000], "protocol": "udp"}]});
        engine.send(&ToBroker::Rules { net: full(&more) });
        let why = engine.wait(|frame| if let FromBroker::Refused { why } = frame { Some(why.clone()) } else { None });
        assert!(why.contains("port 5000 of UDP"), "{why}");
        engine.end();
    });
}
