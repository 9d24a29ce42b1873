//! The broker over real sockets: a sandbox's network namespace, a world outside, and a program between them.
#![expect(clippy::wildcard_enum_match_arm, reason = "what was not expected fails the test, whatever it is")]
#![expect(clippy::needless_pass_by_value, reason = "what a test has tried is used up by its check")]
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what it saw by failing"
)]

mod addresses;
mod flows;
mod hellos;
mod idle;
mod killed;
mod load;
mod proxy;
mod requests;
mod secrets;
mod stage;
mod streams;
mod tls;

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

use egress::dns::{self, LookupResult};
use egress::wire::{FromBroker, Scope, ToBroker};
use serde_json::json;
use stage::{OWN, PRIVATE, WORLD, address, connect, echo, exchange, full, look_up, look_up_at, staged, web};

const HOST: &str = "a.at-93-184-216-34.example";

fn reset(result: std::io::Result<String>) -> bool {
    matches!(&result, Err(error) if error.kind() == ErrorKind::ConnectionReset)
}

#[test]
fn look_ups_are_answered_for_allowed_names_alone() {
    staged("look_ups_are_answered_for_allowed_names_alone", |stage| {
        let arpa = json!({"host": "nas.home.arpa", "ports": [80], "address": "93.184.216.34:80"});
        let net = json!({"allow": [{"host": "*.at-93-184-216-34.example"}, {"host": "in.at-10-9-9-9.example"}, arpa]});
        let mut engine = stage.broker(&net);
        engine.ready();
        stage.program(|| {
            assert_eq!(address(HOST).to_string(), "198.18.1.0");
            let LookupResult::Addresses(v6, _) = look_up(HOST, dns::AAAA) else { panic!() };
            assert_eq!(v6[0].to_string(), "fd66:756d:6568:6f6f::1:0");
            assert_eq!(address("b.at-93-184-216-34.example").to_string(), "198.18.1.1");
            assert_eq!(address("A.at-93-184-216-34.EXAMPLE").to_string(), "198.18.1.0");
            // HTTPS, TXT: nothing, and nobody outside is asked; PTR of our own addresses alone.
            for kind in [65, 16, 255] {
                assert_eq!(look_up(HOST, kind), LookupResult::Addresses(Vec::new(), 0), "{kind}");
            }
            assert_eq!(look_up("0.1.18.198.in-addr.arpa", 16), LookupResult::Addresses(Vec::new(), 0));
            assert_eq!(look_up("8.8.8.8.in-addr.arpa", dns::PTR), LookupResult::NoName);
            // What is below `arpa` and no address is a name as any other.
            assert_eq!(address("nas.home.arpa").to_string(), "198.18.1.2");
            // A name that is not there, one that is denied, and one that leads inside.
            assert_eq!(look_up("gone.at-93-184-216-34.example", dns::A), LookupResult::NoName);
            assert_eq!(look_up("denied.example", dns::A), LookupResult::NoName);
            assert_eq!(look_up("x.denied.example", 16), LookupResult::NoName);
            assert_eq!(look_up("in.at-10-9-9-9.example", dns::A), LookupResult::NoName);
            // Whoever a program asks, it is the broker that answers; over IPv6 and TCP, too.
            for server in ["8.8.8.8:53", "[2001:4860:4860::8888]:53"] {
                assert!(
                    matches!(look_up_at(server.parse().unwrap(), HOST, dns::A), LookupResult::Addresses(..)),
                    "{server}"
                );
            }
            // On the loopback, which is the sandbox's own, no resolver is: that is said at once.
            for server in ["127.0.0.1:53", "127.0.0.53:53", "[::1]:53"] {
                assert_eq!(look_up_at(server.parse().unwrap(), HOST, dns::A), LookupResult::Failed(5), "{server}");
            }
            let question = dns::ask(5, HOST, dns::A);
            let framed = [&u16::try_from(question.len()).unwrap().to_be_bytes(), question.as_slice()].concat();
            let mut stream = TcpStream::connect("198.18.0.1:53").unwrap();
            stream.write_all(&framed.repeat(2)).unwrap();
            for _ in 0..2 {
                let mut length = [0; 2];
                stream.read_exact(&mut length).unwrap();
                let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
                stream.read_exact(&mut answer).unwrap();
                assert!(matches!(dns::found(&question, &answer), Some(LookupResult::Addresses(..))));
            }
        });
        let denied = engine.denied("net.allow/unknown-name");
        assert_eq!((denied.host.as_str(), denied.port, denied.count), ("denied.example", 0, 1));
        let inside = engine.denied("net.allow/inside");
        assert!(inside.why.contains("a private network"), "{}", inside.why);
        let usage = engine.used();
        assert!(usage.lookups > 8 && usage.connections == 0, "{usage:?}");
    });
}

#[test]
fn a_resolver_that_is_mute_is_told_in_time() {
    staged("a_resolver_that_is_mute_is_told_in_time", |stage| {
        let mut engine = stage.broker(&json!({"allow": [{"host": "mute.at-93-184-216-34.example"}]}));
        engine.ready();
        let said = stage.program(|| look_up("mute.at-93-184-216-34.example", dns::A));
        assert_eq!(said, LookupResult::Failed(2), "SERVFAIL, which is no denial");
        // Why is told, and not which resolvers the machine has.
        let told = stage.program(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect("198.18.0.1:53").unwrap();
            socket.send(&dns::ask(78, "mute.at-93-184-216-34.example", dns::A)).unwrap();
            let mut buffer = [0; 2048];
            let count = socket.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..count]).into_owned()
        });
        assert!(told.contains("a resolver of the machine did not answer"), "{told:?}");
        assert!(!told.contains(&stage.resolver.ip().to_string()), "{told:?}");
        assert!(!engine.end().iter().any(|frame| matches!(frame, FromBroker::Denied(_))));
    });
}

#[test]
fn an_unreachable_server_is_no_denial() {
    staged("an_unreachable_server_is_no_denial", |stage| {
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22, 80]}]}));
        engine.ready();
        let asked = format!("GET / HTTP/1.1\r\nHost: {HOST}\r\nConnection: close\r\n\r\n");
        let said = stage.program(|| exchange(connect(HOST, 80), asked.as_bytes(), false).unwrap());
        assert!(said.contains("502 Bad Gateway") && said.contains("no denial"), "{said}");
        assert!(reset(stage.program(|| exchange(connect(HOST, 22), b"", false))));
        assert!(!engine.end().iter().any(|frame| matches!(frame, FromBroker::Denied(_))));
    });
}

/// A client hello with these extensions.
fn hello(extensions: &[u8]) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    let body = [&[3; 34][..], &[0, 0, 2, 0x13, 1, 1, 0], &sized(extensions)].concat();
    [&[22, 3, 1][..], &sized(&[&[1, 0][..], &sized(&body)].concat())].concat()
}

fn named(name: &str) -> Vec<u8> {
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
    [&[0, 0][..], &sized(&sized(&[&[0][..], &sized(name.as_bytes())].concat()))].concat()
}

#[test]
fn tls_is_passed_for_the_name_that_was_looked_up() {
    staged("tls_is_passed_for_the_name_that_was_looked_up", |stage| {
        stage.server((WORLD, 443), |mut stream| {
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
        });
        let mut engine = stage.broker(&json!({"allow": [{"host": "*.at-93-184-216-34.example"}]}));
        engine.ready();
        let right = [hello(&named(HOST)), b"and more".to_vec()].concat();
        let back = stage.program(|| exchange(connect(HOST, 443), &right, true).unwrap());
        assert_eq!(back, String::from_utf8_lossy(&right), "byte for byte");
        let encrypted = [named(HOST), vec![0xFE, 0x0D, 0, 0]].concat();
        for (extensions, id) in [
            (named("b.at-93-184-216-34.example"), "net.allow/server-name"),
            (Vec::new(), "net.allow/server-name"),
            (encrypted, "net.allow/encrypted-hello"),
            ([named(HOST), named(HOST)].concat(), "net.allow/malformed"),
        ] {
            assert!(reset(stage.program(|| exchange(connect(HOST, 443), &hello(&extensions), false))), "{id}");
            if id != "net.allow/server-name" || !extensions.is_empty() {
                assert_eq!(engine.denied(id).port, 443);
            }
        }
        engine.end();
    });
}

#[test]
fn what_no_rule_has_is_reset_and_recorded() {
    staged("what_no_rule_has_is_reset_and_recorded", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((PRIVATE, 22), echo);
        let net = json!({
            "allow": [
                {"host": HOST, "ports": [22]}, {"host": "own.at-93-184-216-1.example", "ports": [22]},
                {"cidr": "0.0.0.0/0", "ports": [80]},
            ],
            "deny": [{"host": "c.at-93-184-216-34.example"}],
        });
        let mut engine = stage.broker(&net);
        engine.ready();
        let tried = |to: &str| {
            let to: std::net::SocketAddr = to.parse().unwrap();
            stage.program(move || reset(TcpStream::connect(to).and_then(|stream| exchange(stream, b"", false))))
        };
        assert!(stage.program(|| exchange(connect(HOST, 22), b"x", true)).unwrap().starts_with("banner"));
        assert!(tried("93.184.216.34:22"), "the address of an allowed name is not the name");
        assert_eq!(engine.denied("net.allow/port").host, "93.184.216.34");
        assert!(tried("[2606:4700::1111]:22") && tried("198.18.9.9:22"));
        assert_eq!(engine.denied("net.allow/unknown-address").port, 22);
        assert!(tried("10.9.9.9:80"), "a range does not reach inside");
        assert!(engine.denied("net.allow/inside").why.contains("private"));
        assert!(tried("127.0.0.1:22"), "the sandbox's own loopback");
        // The machine's own address, by a name that may be looked up.
        let own = stage.program(|| reset(exchange(connect("own.at-93-184-216-1.example", 22), b"", false)));
        assert!(own, "{OWN:?}");
        assert!(engine.denied("net.allow/inside").why.contains("own"));
        // One record for each kind, with a count.
        for _ in 0..20 {
            assert!(tried("198.18.9.9:22"));
        }
        let counts: Vec<u64> = engine
            .end()
            .into_iter()
            .filter_map(|frame| match frame {
                FromBroker::Denied(denied) if denied.host == "198.18.9.9" => Some(denied.count),
                _ => None,
            })
            .collect();
        assert!(counts.last() == Some(&21) && counts.len() <= 3, "{counts:?}");
    });
}

#[test]
fn limits_hold_for_all_connections_together() {
    staged("limits_hold_for_all_connections_together", |stage| {
        stage.server((WORLD, 22), echo);
        let net = json!({"allow": [{"host": HOST, "ports": [22]}], "connections": 2, "bytes": "100000B"});
        let mut engine = stage.broker(&net);
        engine.ready();
        stage.program(|| {
            let mut held = [connect(HOST, 22), connect(HOST, 22)];
            for stream in &mut held {
                stream.read_exact(&mut [0; 7]).unwrap();
            }
            assert!(reset(exchange(connect(HOST, 22), b"", false)), "the third is refused, not queued");
        });
        assert_eq!(engine.denied("net.connections/full").count, 1);
        let (first, second) = stage.program(|| {
            let at = address(HOST);
            // Places are free again once the broker saw the ends.
            let stream = loop {
                let mut stream = connect(HOST, 22);
                if stream.read_exact(&mut [0; 7]).is_ok() {
                    break stream;
                }
            };
            let first = exchange(stream, &[0; 200_000], true);
            (first, TcpStream::connect((at, 22)).and_then(|stream| exchange(stream, b"", false)))
        });
        assert!(first.is_err() && reset(second), "nothing goes any more");
        engine.denied("net.bytes/used");
        let used = engine.used();
        assert_eq!(used.sent + used.received, 100_000, "exactly as much");
    });
}

/// What is looked up is said outside: where no byte may go any more no name does, and what nobody need be asked for goes on.
#[test]
fn when_the_bytes_are_used_up_no_name_is_asked_for() {
    static HEARD: AtomicUsize = AtomicUsize::new(0);
    staged("when_the_bytes_are_used_up_no_name_is_asked_for", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((WORLD, 80), |stream| {
            HEARD.fetch_add(1, Ordering::SeqCst);
            web(stream);
        });
        let said = |word: &str| format!("{word}.at-93-184-216-34.example");
        let rules = json!([
            {"host": "*.at-93-184-216-34.example", "ports": [22, 80]},
            {"host": "pinned.example", "ports": [22], "address": "93.184.216.34:22"},
        ]);
        let mut engine = stage.broker(&json!({"allow": rules, "bytes": "8192B"}));
        engine.ready();
        let found = |name: &str| stage.program(|| look_up(name, dns::A));
        assert!(matches!(found(&said("before")), LookupResult::Addresses(..)));
        assert_eq!(stage.asked(), 1);
        // Accepted before, and silent until then.
        let ask =
            |stream| exchange(stream, format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", said("before")).as_bytes(), true);
        let (heard, waits) = stage.program(|| {
            let waits = connect(&said("before"), 80);
            (ask(connect(&said("before"), 80)), waits)
        });
        assert_eq!((heard.is_ok(), HEARD.load(Ordering::SeqCst)), (true, 1));
        assert!(stage.program(|| exchange(connect("pinned.example", 22), &[0; 20_000], true)).is_err());
        // Refused, by a reset or in the words of HTTP.
        assert!(!ask(waits).is_ok_and(|said| said.starts_with("HTTP/1.1 200")));
        assert_eq!(HEARD.load(Ordering::SeqCst), 1, "nobody outside heard of it");
        // REFUSED: no word about the name.
        assert_eq!(found(&said("after")), LookupResult::Failed(5));
        assert_eq!(stage.asked(), 1, "nobody outside heard it");
        assert!(matches!(found("pinned.example"), LookupResult::Addresses(..)));
        let denied = engine.wait(|frame| match frame {
            FromBroker::Denied(denied) if denied.host.starts_with("after.") => Some(denied.clone()),
            _ => None,
        });
        assert_eq!((denied.id.as_str(), denied.port), ("net.bytes/used", 0));
        // With more of them names are asked for again.
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": rules, "bytes": "1M"})) });
        engine.ready();
        assert!(matches!(found(&said("after")), LookupResult::Addresses(..)));
        assert_eq!(stage.asked(), 2);
        engine.end();
    });
}

#[test]
fn rules_are_replaced_while_it_runs() {
    staged("rules_are_replaced_while_it_runs", |stage| {
        stage.server((WORLD, 22), echo);
        let mut engine = stage.broker(&json!({"allow": [{"host": "*.at-93-184-216-34.example", "ports": [22]}]}));
        engine.ready();
        let (mut cut, mut kept) = stage.program(|| (connect(HOST, 22), connect("b.at-93-184-216-34.example", 22)));
        for stream in [&mut cut, &mut kept] {
            stream.read_exact(&mut [0; 7]).unwrap();
        }
        let net = full(&json!({"allow": [{"host": "b.at-93-184-216-34.example", "ports": [22]}]}));
        engine.send(&ToBroker::Rules { net: net.clone() });
        let digest = engine.wait(|frame| match frame {
            FromBroker::Ready { digest, authority: _ } => Some(digest.clone()),
            _ => None,
        });
        assert_eq!(digest, egress::wire::digest(&net));
        assert_eq!(cut.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(exchange(kept, b"still", true).unwrap(), "still");
        assert_eq!(stage.program(|| look_up(HOST, dns::A)), LookupResult::NoName);
        // A connection whose real address is denied from now on is cut, too.
        let mut third = stage.program(|| connect("b.at-93-184-216-34.example", 22));
        third.read_exact(&mut [0; 7]).unwrap();
        let rule = json!([{"host": "b.at-93-184-216-34.example", "ports": [22]}]);
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": rule, "deny": [{"cidr": "93.184.216.0/24"}]})) });
        assert_eq!(third.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": rule})) });
        // Of more than may be open at once, those that began last are cut.
        let [first, mut last] = stage.program(|| {
            [(); 2].map(|()| {
                let mut stream = connect("b.at-93-184-216-34.example", 22);
                stream.read_exact(&mut [0; 7]).unwrap();
                stream
            })
        });
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": rule, "connections": 1})) });
        assert_eq!(last.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert_eq!(exchange(first, b"still", true).unwrap(), "still");
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": rule})) });
        // Rules that cannot be held are not taken, and those before stay.
        for bad in [json!({"allow": [{"host": HOST, "ports": [25]}]}), json!({"allow": [{"host": "a b"}]})] {
            engine.send(&ToBroker::Rules { net: full(&bad) });
            engine.wait(|frame| matches!(frame, FromBroker::Refused { .. }).then_some(()));
        }
        assert!(stage.program(|| exchange(connect("b.at-93-184-216-34.example", 22), b"", true)).is_ok());
        engine.end();
    });
}

#[test]
fn rules_that_are_refused_half_way_change_nothing() {
    staged("rules_that_are_refused_half_way_change_nothing", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((WORLD, 8442), echo);
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}]}));
        engine.ready();
        let mut open = stage.program(|| connect(HOST, 22));
        open.read_exact(&mut [0; 7]).unwrap();
        // The first port can be had, the second one a program inside has.
        let taken = stage.program(|| TcpListener::bind("0.0.0.0:8443").unwrap());
        let net = full(&json!({"allow": [{"cidr": "93.184.216.0/24", "ports": [8442, 8443]}]}));
        engine.send(&ToBroker::Rules { net: net.clone() });
        engine.wait(|frame| matches!(frame, FromBroker::Refused { .. }).then_some(()));
        assert_eq!(exchange(open, b"still", true).unwrap(), "still");
        assert!(stage.program(|| exchange(connect(HOST, 22), b"", true)).is_ok(), "the rules before hold");
        // The same rules are taken, whole, when the port is free.
        drop(taken);
        engine.send(&ToBroker::Rules { net });
        engine.wait(|frame| matches!(frame, FromBroker::Ready { .. }).then_some(()));
        let mut ranged = stage.program(|| TcpStream::connect("93.184.216.34:8442").unwrap());
        ranged.read_exact(&mut [0; 7]).unwrap();
        engine.end();
    });
}

#[test]
fn a_person_is_asked_where_the_rules_say_so() {
    staged("a_person_is_asked_where_the_rules_say_so", |stage| {
        stage.server((WORLD, 22), echo);
        let mut engine = stage.broker(&json!({"allow": [{"host": "x.example"}], "unknown": "ask"}));
        engine.ready();
        for (allow, scope) in [(false, Scope::Once), (true, Scope::Once), (true, Scope::Run)] {
            let stream = stage.program(|| connect(HOST, 22));
            let (id, host, port) = engine.wait(|frame| match frame {
                FromBroker::Ask { id, host, port, request: None } => Some((*id, host.clone(), *port)),
                _ => None,
            });
            assert_eq!((host.as_str(), port), (HOST, 22));
            engine.send(&ToBroker::Answer { id, allow, scope });
            let said = exchange(stream, b"x", true);
            assert_eq!(said.is_ok(), allow, "{said:?}");
        }
        assert_eq!(stage.program(|| exchange(connect(HOST, 22), b"x", true)).unwrap(), "banner\nx", "not asked again");
        assert_eq!(engine.denied("net.unknown/answered").host, HOST);
        // Rules that come while a person is asked say where it is.
        stage.server((PRIVATE, 6432), |mut stream| stream.write_all(b"pinned").unwrap());
        let host = "b.at-93-184-216-34.example";
        let stream = stage.program(|| connect(host, 22));
        let id = engine.wait(|frame| if let FromBroker::Ask { id, .. } = frame { Some(*id) } else { None });
        let rule = json!({"host": host, "ports": [22], "address": "10.9.9.9:6432"});
        engine.send(&ToBroker::Rules { net: full(&json!({"allow": [rule], "unknown": "ask"})) });
        engine.send(&ToBroker::Answer { id, allow: true, scope: Scope::Once });
        assert_eq!(exchange(stream, b"", false).unwrap(), "pinned");
        engine.end();
    });
}

#[test]
fn a_person_is_asked_about_a_request_where_a_rule_says_so() {
    staged("a_person_is_asked_about_a_request_where_a_rule_says_so", |stage| {
        stage.server((WORLD, 80), web);
        let mut engine = stage.broker(&json!({"allow": [
            {"host": HOST, "ports": [80], "methods": ["GET"], "paths": ["/push/*"]},
            {"host": HOST, "ports": [80], "methods": ["POST"], "paths": ["/push/*"], "decision": "ask"},
            {"host": HOST, "ports": [80], "methods": ["PUT", "GET"], "paths": ["/ws"], "decision": "ask", "websocket": true},
        ]}));
        engine.ready();
        let line = |line: &str| format!("{line} HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: 0\r\n\r\n");
        let say = |stream: &mut TcpStream, text: &str| stream.write_all(line(text).as_bytes()).unwrap();
        let hear = |stream: &mut TcpStream| {
            let (mut said, mut buffer) = (String::new(), [0; 4096]);
            while !said.ends_with(']') && !said.ends_with('}') {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0, "{said}");
                said.push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
            said
        };
        let asked = |engine: &mut stage::Engine| {
            engine.wait(|frame| match frame {
                FromBroker::Ask { id, host, port: 80, request: Some(head) } if host == HOST => {
                    Some((*id, format!("{} {}", head.method, head.path)))
                }
                _ => None,
            })
        };
        let mut stream = stage.program(|| connect(HOST, 80));
        // What another rule allows is not asked about.
        say(&mut stream, "GET /push/one");
        assert!(hear(&mut stream).contains("200 OK"));
        say(&mut stream, "POST /push/one?token=x");
        let (id, what) = asked(&mut engine);
        assert_eq!(what, "POST /push/one");
        engine.send(&ToBroker::Answer { id, allow: true, scope: Scope::Once });
        assert!(hear(&mut stream).contains("POST /push/one?token=x"));
        // The answer is for this request, and for it once more, on this connection: neither another path, nor another connection.
        say(&mut stream, "POST /push/one");
        assert!(hear(&mut stream).contains("200 OK"));
        say(&mut stream, "POST /push/one");
        let (id, what) = asked(&mut engine);
        assert_eq!(what, "POST /push/one");
        engine.send(&ToBroker::Answer { id, allow: false, scope: Scope::Once });
        assert!(hear(&mut stream).contains("403 Forbidden"));
        // As the rule judges it.
        say(&mut stream, "POST /push/%74wo");
        let (id, what) = asked(&mut engine);
        assert_eq!(what, "POST /push/two");
        engine.send(&ToBroker::Answer { id, allow: false, scope: Scope::Once });
        let said = hear(&mut stream);
        assert!(said.contains("403 Forbidden") && said.contains("net.allow/answered"), "{said}");
        assert_eq!(engine.denied("net.allow/answered").what, format!("a request POST to {HOST}:80"));
        let mut other = stage.program(|| connect(HOST, 80));
        say(&mut other, "POST /push/one");
        let (id, _) = asked(&mut engine);
        engine.send(&ToBroker::Answer { id, allow: false, scope: Scope::Once });
        assert!(hear(&mut other).contains("403 Forbidden"));
        // Who agrees to a request has not agreed to a WebSocket of the same method and path, behind which nothing is judged.
        let websocket = |engine: &mut stage::Engine, allow: bool| {
            let (id, is_one) = engine.wait(|frame| match frame {
                FromBroker::Ask { id, request: Some(head), .. } => Some((*id, head.websocket)),
                _ => None,
            });
            engine.send(&ToBroker::Answer { id, allow, scope: Scope::Once });
            is_one
        };
        say(&mut other, "GET /ws");
        assert!(!websocket(&mut engine, true));
        assert!(hear(&mut other).contains("200 OK"));
        let upgrade = line("GET /ws").replace("Content-Length: 0", "Connection: Upgrade\r\nUpgrade: websocket");
        other.write_all(upgrade.as_bytes()).unwrap();
        assert!(websocket(&mut engine, false));
        assert!(hear(&mut other).contains("403 Forbidden"));
        // Nobody is asked about what could not be shown whole.
        say(&mut other, &format!("POST /push/{}", "x".repeat(600)));
        assert!(hear(&mut other).contains("403 Forbidden"));
        assert!(!engine.end().iter().any(|frame| matches!(frame, FromBroker::Ask { .. })));
    });
}

#[test]
fn the_engine_looks_whose_a_connection_is_while_it_is_held() {
    staged("the_engine_looks_whose_a_connection_is_while_it_is_held", |stage| {
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}]}));
        engine.ready();
        let at: std::net::SocketAddr = "192.0.2.9:22".parse().unwrap();
        let stream = stage.program(|| TcpStream::connect(at).unwrap());
        let (id, from, to) = engine.wait(|frame| match frame {
            FromBroker::Whose { id, from, to } => Some((*id, *from, *to)),
            _ => None,
        });
        assert_eq!((from, to), (stream.local_addr().unwrap(), at));
        // It is there as long as the engine looks.
        stream.set_nonblocking(true).unwrap();
        assert_eq!((&stream).read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        engine.send(&ToBroker::Looked { id });
        stream.set_nonblocking(false).unwrap();
        assert!(reset(exchange(stream, b"", false)));
        assert_eq!(engine.denied("net.allow/unknown-address").port, 22);
        // Once for a destination; and an engine that does not answer holds nothing up for long.
        assert!(stage.program(|| reset(TcpStream::connect(at).and_then(|stream| exchange(stream, b"", false)))));
        let mute: std::net::SocketAddr = "192.0.2.10:22".parse().unwrap();
        let late = stage.program(|| {
            let stream = TcpStream::connect(mute).unwrap();
            stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).unwrap();
            reset(exchange(stream, b"", false))
        });
        assert!(late, "it is denied all the same");
        let frames = engine.end();
        let asked = frames.iter().filter(|frame| matches!(frame, FromBroker::Whose { .. })).count();
        assert_eq!(asked, 1, "{frames:?}");
    });
}

/// What a thousand quiet connections cost in memory, beside what the kernel holds for them.
#[test]
fn a_thousand_connections_are_cheap() {
    staged("a_thousand_connections_are_cheap", |stage| {
        let kept = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let (server, held) = (std::sync::Arc::clone(&kept), kept);
        stage.server_in_turn((WORLD, 22), move |stream| server.lock().unwrap().push(stream));
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}]}));
        engine.ready();
        let mut first = stage.program(|| connect(HOST, 22));
        first.write_all(b"x").unwrap();
        let before = resident();
        let all = stage.program(|| {
            let at = address(HOST);
            (0..1000).map(|_| TcpStream::connect((at, 22)).unwrap()).collect::<Vec<_>>()
        });
        // Once the server has them all, so has the broker.
        while held.lock().unwrap().len() < 1001 {
            std::thread::yield_now();
        }
        let grown = resident().saturating_sub(before);
        println!("{before} KiB before, {grown} KiB for {} connections", all.len());
        assert!(grown < 16 << 10, "{grown} KiB");
        engine.end();
    });
}

/// KiB of this process in memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn when_it_is_gone_the_network_is() {
    staged("when_it_is_gone_the_network_is", |stage| {
        stage.server((WORLD, 22), echo);
        let mut engine = stage.broker(&json!({"allow": [{"host": HOST, "ports": [22]}]}));
        engine.ready();
        let (at, mut open) = stage.program(|| (address(HOST), connect(HOST, 22)));
        open.read_exact(&mut [0; 7]).unwrap();
        let broker = engine.broker.take().unwrap();
        // The engine's death closes its end, and nothing else.
        drop(engine);
        broker.join().unwrap().unwrap();
        assert!(open.read(&mut [0; 1]).map_or(true, |count| count == 0), "no byte more");
        let refused = stage.program(move || TcpStream::connect((at, 22)).unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn orders_that_do_not_fit_are_refused() {
    staged("orders_that_do_not_fit_are_refused", |stage| {
        for (net, why) in [
            (json!({"allow": [{"host": "a.example", "ports": [25]}]}), "port 25 has no socket"),
            (
                json!({"allow": [{"host": "a.example"}], "proxy": "http://p.example:3128", "deny": [{"cidr": "9.9.9.9/32"}]}),
                "a proxy resolves names",
            ),
            (json!({"allow": [{"host": "a.example"}], "colour": 1}), "the rules"),
        ] {
            let mut engine = stage.broker(&net);
            let Some(FromBroker::Failed { why: said, .. }) = engine.next() else { panic!("{why}") };
            assert!(said.contains(why), "{said}");
            assert!(engine.broker.take().unwrap().join().unwrap().is_err());
        }
    });
}
