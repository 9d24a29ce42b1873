//! Where names really lead: judged at each connection, in every form in which an address can be written.

use std::net::{SocketAddr, TcpStream};

use egress::dns;
use egress::wire::{FromBroker, Scope, ToBroker};
use serde_json::json;

use crate::stage::{PRIVATE, Stage, WORLD, address, connect, echo, exchange, look_up, look_up_at, staged, wait};

const PIN: &str = "pinned.example";
/// After what time a name is long unused, where a test waits for it.
const UNUSED: std::time::Duration = std::time::Duration::from_millis(100);

/// Whether a program gets the server's first word by this name.
fn reached(stage: &Stage, name: &str) -> bool {
    stage.program(|| exchange(connect(name, 22), b"x", true)).is_ok_and(|said| said.starts_with("banner"))
}

fn rules() -> serde_json::Value {
    json!({ "allow": [
        { "host": "**.forms.example", "ports": [22] }, { "host": PIN, "ports": [22], "address": "10.9.9.9:22" },
    ] })
}

/// A program is told by an error of its own; who reads the report is told why.
#[test]
fn an_allowed_host_that_is_not_reached_outside_is_told_once() {
    staged("addresses::an_allowed_host_that_is_not_reached_outside_is_told_once", |stage| {
        let mut engine = stage.broker(&rules());
        engine.ready();
        let (mute, refusing) = ("mute.forms.example", "x.at-93-184-216-34.forms.example");
        for _ in 0..2 {
            assert!(matches!(stage.program(|| look_up(mute, dns::A)), dns::LookupResult::Failed(_)));
            assert!(!reached(stage, refusing), "nobody serves there");
        }
        let told: Vec<_> = engine
            .end()
            .into_iter()
            .filter_map(|frame| match frame {
                FromBroker::Unreached { host, port, why } => Some((host, port, why)),
                FromBroker::Denied(denied) => panic!("{denied:?}"),
                _ => None,
            })
            .collect();
        let hosts: Vec<_> = told.iter().map(|(host, port, _)| (host.as_str(), *port)).collect();
        assert_eq!(hosts, [(mute, 0), (refusing, 22)]);
        assert!(told.iter().all(|(host, _, why)| !why.is_empty() && !why.contains(host.as_str())), "{told:?}");
    });
}

/// More of a kind is said now and then; whoever asks hears all of it first.
#[test]
fn what_was_counted_is_said_when_it_is_asked_for() {
    staged("addresses::what_was_counted_is_said_when_it_is_asked_for", |stage| {
        let mut engine = stage.broker(&rules());
        engine.ready();
        for _ in 0..5 {
            assert_eq!(stage.program(|| look_up("no.rule.example", dns::A)), dns::LookupResult::NoName);
        }
        engine.send(&ToBroker::Tell {});
        let mut counted = 0;
        loop {
            match engine.next().unwrap() {
                FromBroker::Denied(denied) if denied.host == "no.rule.example" => counted = denied.count,
                FromBroker::Told {} => break,
                _ => {}
            }
        }
        assert_eq!(counted, 5);
        engine.end();
    });
}

#[test]
fn a_name_that_leads_inside_in_another_form_is_refused() {
    staged("addresses::a_name_that_leads_inside_in_another_form_is_refused", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((PRIVATE, 22), echo);
        let mut engine = stage.broker(&rules());
        engine.ready();
        assert!(reached(stage, "x.at-93-184-216-34.forms.example"));
        assert!(reached(stage, PIN), "whom a rule pins is there, so it is the broker that refuses the others");
        for (form, what) in [
            ("00000000000000000000ffff0a090909", "mapped"),
            ("0000000000000000ffff00000a090909", "translated"),
            ("0000000000000000000000000a090909", "disguise"),
            ("0064ff9b00000000000000000a090909", "NAT64"),
            ("0064ff9b00000000000000007f000001", "NAT64"),
            ("0064ff9b0000000000000000a9fea9fe", "NAT64"),
            ("0064ff9b0001000000000000a9fea9fe", "local NAT64"),
            ("20020a09090900000000000000000001", "6to4"),
            ("2002a9fea9fe00000000000000000000", "6to4"),
            ("20010000000000000000000000000001", "Teredo"),
            ("00000000000000000000000000000001", "this machine"),
            ("fd000ec2000000000000000000000254", "private"),
            ("fe800000000000000000000000000001", "link-local"),
            ("ff020000000000000000000000000001", "multicast"),
        ] {
            let name = format!("x.six-{form}.forms.example");
            assert_eq!(stage.program(|| look_up(&name, dns::AAAA)), dns::LookupResult::NoName, "{form}");
            let denied = engine.denied("net.allow/inside");
            assert!(denied.why.contains(what) && denied.host.contains(form), "{form}: {denied:?}");
        }
        for form in ["10-9-9-9", "127-0-0-1", "169-254-169-254", "100-64-0-1", "0-0-0-0", "198-18-0-9", "224-0-0-1"] {
            let name = format!("x.at-{form}.forms.example");
            assert_eq!(stage.program(|| look_up(&name, dns::A)), dns::LookupResult::NoName, "{form}");
            assert!(engine.denied("net.allow/inside").host.contains(form));
        }
        // Of several addresses those that may be are taken.
        assert!(reached(stage, "x.at-10-9-9-9.at-93-184-216-34.at-127-0-0-1.forms.example"));
        engine.end();
    });
}

/// The answer changes between the look-up and the connection, and again between two connections: nobody is led inside.
#[test]
fn a_name_that_moves_inside_is_refused_when_it_did() {
    staged("addresses::a_name_that_moves_inside_is_refused_when_it_did", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((PRIVATE, 22), echo);
        let mut engine = stage.broker(&rules());
        engine.ready();
        let name = "turns.at-93-184-216-34.then-10-9-9-9.forms.example";
        let dns::LookupResult::Addresses(given, _) = stage.program(|| look_up(name, dns::A)) else {
            panic!("no address")
        };
        let at = SocketAddr::new(given[0], 22);
        let again = || stage.program(move || exchange(TcpStream::connect(at).unwrap(), b"x", true));
        assert!(again().is_ok_and(|said| said.starts_with("banner")), "what was found is kept for five seconds");
        let begun = std::time::Instant::now();
        while again().is_ok_and(|said| said.starts_with("banner")) {
            assert!(begun.elapsed().as_secs() < 9, "the address inside stays, and where it leads is judged anew");
            std::thread::park_timeout(std::time::Duration::from_millis(200));
        }
        let denied = engine.denied("net.allow/inside");
        assert!(denied.host == name && denied.why.contains("private"), "{denied:?}");
        assert!(reached(stage, PIN));
        engine.end();
    });
}

/// A program that looks up names without end uses up its own places alone: what it had goes on, and the broker stays small.
#[test]
fn names_without_end_are_refused_and_those_before_go_on() {
    staged("addresses::names_without_end_are_refused_and_those_before_go_on", |stage| {
        stage.server((WORLD, 22), echo);
        let many = json!({ "host": "**.many.example", "ports": [22], "address": "93.184.216.34:22" });
        let mut engine = stage.broker(&json!({ "allow": [many] }));
        engine.ready();
        let first = "n0.many.example";
        assert!(reached(stage, first));
        let found = stage.program(|| {
            let name = |number: usize| format!("n{number}.many.example");
            (0..4100).filter(|number| look_up(&name(*number), dns::A) != dns::LookupResult::NoName).count()
        });
        assert_eq!(found, egress::names::MAX_NAMES);
        engine.denied("net.allow/names");
        assert!(reached(stage, first));
        engine.end();
    });
}

/// Sockets for high ports are a stock. A name of a wildcard takes none that a rule without one needs.
#[test]
fn names_of_a_wildcard_leave_the_sockets_of_other_rules() {
    staged("addresses::names_of_a_wildcard_leave_the_sockets_of_other_rules", |stage| {
        stage.server((WORLD, 22), echo);
        let rule = |host: &str, port: u16| json!({ "host": host, "ports": [port], "address": "93.184.216.34:22" });
        // Five sockets: two are those of rules without a wildcard, and by one others are taken back.
        let rules = [rule("*.many.example", 8080), rule("one.many.example", 8080), rule("exact.example", 8443)];
        let mut engine = stage.broker(&json!({ "allow": rules }));
        engine.ready();
        let found = |name: &str| stage.program(|| look_up(name, dns::A)) != dns::LookupResult::NoName;
        assert!(["a", "b"].iter().all(|name| found(&format!("{name}.many.example"))));
        assert!(!found("c.many.example"), "two are left, for two rules");
        let denied = engine.denied("net.allow/listener");
        assert!(denied.host == "c.many.example" && denied.why.contains("no spare sockets"), "{denied:?}");
        for (name, port) in [("exact.example", 8443), ("one.many.example", 8080), ("a.many.example", 8080)] {
            let said = stage.program(|| exchange(connect(name, port), b"x", true));
            assert!(said.is_ok_and(|said| said.starts_with("banner")), "{name}");
        }
        assert!(!found("d.many.example"));
        engine.end();
    });
}

/// What one family of addresses is asked for in vain costs the other nothing: neither with one resolver nor with several, each of
/// which is mute.
#[test]
fn a_family_that_nobody_answers_for_holds_the_other_up_for_a_moment_alone() {
    staged("addresses::a_family_that_nobody_answers_for_holds_the_other_up_for_a_moment_alone", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server_at("[2606:2800:220::34]:22".parse().unwrap(), echo);
        let mut engine = stage.broker(&rules());
        engine.ready();
        let six = "six-26062800022000000000000000000034";
        let soon = |name: &str| {
            let begun = std::time::Instant::now();
            assert!(reached(stage, name), "{name}");
            begun.elapsed().as_millis()
        };
        // Neither family is mute: as long as any name takes here.
        assert!(soon("x.at-93-184-216-34.forms.example") < 400);
        for servers in [1, 2] {
            for name in ["mute-aaaa.at-93-184-216-34", &format!("mute-a.{six}")] {
                let took = soon(&format!("{name}.with-{servers}.forms.example"));
                assert!((40..400).contains(&took), "{name}, {servers} resolvers: {took} ms");
            }
            // Where the machine has no way to what was answered, the other family is waited for: it may be late.
            let lost = "mute-a.six-26064700000000000000000000001111";
            let begun = std::time::Instant::now();
            let name = format!("{lost}.with-{servers}.forms.example");
            assert!(matches!(stage.program(|| look_up(&name, dns::A)), dns::LookupResult::Addresses(..)));
            assert!(begun.elapsed().as_millis() > 1000, "{:?}", begun.elapsed());
            // A name for which neither is answered is told so in time.
            let begun = std::time::Instant::now();
            let name = format!("mute.with-{servers}.forms.example");
            assert_eq!(stage.program(|| look_up(&name, dns::A)), dns::LookupResult::Failed(2));
            assert!(begun.elapsed().as_millis() < 2900, "{:?}", begun.elapsed());
            stage.another_resolver();
        }
        engine.end();
    });
}

/// Sockets of names that were used long ago are taken back: the next names have them, what is open goes on, and a name that comes
/// again has one again.
#[test]
fn names_that_are_long_unused_give_their_sockets_back() {
    staged("addresses::names_that_are_long_unused_give_their_sockets_back", |stage| {
        stage.server((WORLD, 22), echo);
        let rule = |host: &str| json!({ "host": host, "ports": [8080], "address": "93.184.216.34:22" });
        // Five sockets: one is the last rule's, and by one others are taken back.
        let rules = json!({ "allow": [rule("*.many.example"), rule("exact.example")] });
        let mut engine = stage.broker_forgetting(&rules, UNUSED);
        engine.ready();
        let name = |number: usize| format!("n{number}.many.example");
        let found = |name: &str| stage.program(|| look_up(name, dns::A)) != dns::LookupResult::NoName;
        let said = |name: &str| stage.program(|| exchange(connect(name, 8080), b"x", true));
        assert!((0..3).all(|number| found(&name(number))));
        assert!(!found(&name(3)), "none of them is long unused");
        assert_eq!(engine.denied("net.allow/listener").host, name(3));
        // One stays open, without a byte, and is not looked up again.
        let mut open = stage.program(|| connect(&name(0), 8080));
        std::io::Read::read_exact(&mut open, &mut [0; 7]).unwrap();
        for number in 4..40 {
            wait(UNUSED.mul_f32(1.1));
            let name = name(number);
            assert!(said(&name).is_ok_and(|said| said.starts_with("banner")), "{name}");
        }
        assert!(said("exact.example").is_ok_and(|said| said.starts_with("banner")), "its own is nobody else's");
        assert_eq!(exchange(open, b"still", true).unwrap(), "still");
        // Where one was taken back nobody listens, until the name is looked up again.
        let given = stage.program(|| address(&name(39)));
        for number in 40..42 {
            wait(UNUSED.mul_f32(1.1));
            assert!(said(&name(number)).is_ok());
        }
        wait(UNUSED.mul_f32(1.1));
        assert!(said(&name(50)).is_ok());
        let refused = stage.program(|| TcpStream::connect((given, 8080)));
        assert!(refused.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused));
        wait(UNUSED.mul_f32(1.1));
        assert!(said(&name(39)).is_ok_and(|said| said.starts_with("banner")));
        assert_eq!(stage.program(|| address(&name(39))), given, "an address is one name's for the whole run");
        engine.end();
    });
}

/// Where the machine has no IPv6 there are no sockets of it, and none is missed.
#[test]
fn high_ports_are_reached_without_six() {
    staged("addresses::high_ports_are_reached_without_six", |stage| {
        stage.server((WORLD, 22), echo);
        stage.no_six.set(true);
        let rule = |host: &str| json!({ "host": host, "ports": [8080], "address": "93.184.216.34:22" });
        let mut engine = stage.broker(&json!({ "allow": [rule("*.many.example"), rule("exact.example")] }));
        engine.ready();
        for name in ["a.many.example", "exact.example"] {
            let said = stage.program(|| exchange(connect(name, 8080), b"x", true));
            assert!(said.is_ok_and(|said| said.starts_with("banner")), "{name}");
        }
        engine.end();
    });
}

/// A name that no rule has is heard on common ports too: a person is asked about its database as about its web site.
#[test]
fn a_person_is_asked_about_high_ports_too() {
    staged("addresses::a_person_is_asked_about_high_ports_too", |stage| {
        stage.server((WORLD, 5432), echo);
        let mut engine = stage.broker_forgetting(&json!({ "unknown": "ask" }), UNUSED);
        engine.ready();
        // Few sockets here, of which one name takes all: those of the name before are taken back.
        for (number, allow) in [(0, true), (1, false), (2, true)] {
            let name = format!("db{number}.at-93-184-216-34.example");
            let stream = stage.program(|| connect(&name, 5432));
            let (id, host, port) = engine.wait(|frame| match frame {
                FromBroker::Ask { id, host, port, request: None } => Some((*id, host.clone(), *port)),
                _ => None,
            });
            assert_eq!((&host, port), (&name, 5432));
            engine.send(&ToBroker::Answer { id, allow, scope: Scope::Once });
            let said = exchange(stream, b"x", true);
            assert_eq!(said.is_ok_and(|said| said == "banner\nx"), allow, "{name}");
            wait(UNUSED.mul_f32(1.5));
        }
        let denied = engine.denied("net.unknown/answered");
        assert_eq!((denied.host.as_str(), denied.port), ("db1.at-93-184-216-34.example", 5432));
        // On the sandbox's own loopback the port is a program's own.
        stage.program(|| std::net::TcpListener::bind("127.0.0.1:5432").unwrap());
        assert_eq!(engine.used().connections, 2);
        // Where nobody is to be asked there is no such name.
        let mut engine = stage.broker(&json!({ "unknown": "deny" }));
        engine.ready();
        assert_eq!(stage.program(|| look_up("db9.at-93-184-216-34.example", dns::A)), dns::LookupResult::NoName);
        engine.end();
    });
}

/// A name with several addresses, of which some lead nowhere or say nothing, is reached all the same, and soon.
#[test]
fn the_first_address_that_answers_is_taken() {
    staged("addresses::the_first_address_that_answers_is_taken", |stage| {
        stage.server((WORLD, 22), echo);
        let mut engine = stage.broker(&rules());
        engine.ready();
        let six = "six-26064700000000000000000000001111";
        for name in [
            format!("x.{six}.at-93-184-216-34.forms.example"),
            "x.at-93-184-216-77.at-93-184-216-34.forms.example".to_owned(),
            format!("y.{six}.at-93-184-216-77.at-93-184-216-34.forms.example"),
        ] {
            let begun = std::time::Instant::now();
            assert!(reached(stage, &name), "{name}");
            let took = begun.elapsed();
            assert!(took.as_millis() < 1000, "{name}: {took:?}");
        }
        // Alone the mute one answers nobody, and the program waits longer than that.
        let begun = std::time::Instant::now();
        assert!(!reached(stage, "z.at-93-184-216-77.forms.example") && begun.elapsed().as_millis() > 1000);
        engine.end();
    });
}

/// A program can say something by the names that it looks up. Outside no more is heard than the rate; what is known goes on, and
/// names are found again.
#[test]
fn names_that_are_asked_for_outside_have_a_rate() {
    staged("addresses::names_that_are_asked_for_outside_have_a_rate", |stage| {
        stage.server((WORLD, 22), echo);
        stage.server((PRIVATE, 22), echo);
        let said = |word: usize| format!("gone.w{word}.forms.example");
        // Without the broker the resolver hears every word.
        let all = (0..300)
            .filter(|word| look_up_at(stage.resolver, &said(*word), dns::A) == dns::LookupResult::NoName)
            .count();
        assert_eq!((all, stage.asked()), (300, 300));

        let mut engine = stage.broker(&rules());
        engine.ready();
        let (before, begun) = (stage.asked(), std::time::Instant::now());
        let (words, refused) = stage.program(|| {
            let (mut words, mut refused) = (0, 0);
            while refused < 50 && words < 20_000 {
                match look_up(&said(words), dns::A) {
                    dns::LookupResult::NoName => {}
                    // REFUSED: no word about the name.
                    dns::LookupResult::Failed(5) => refused += 1,
                    other => panic!("{other:?}"),
                }
                words += 1;
            }
            (words, refused)
        });
        let most = 100 + 50 * (usize::try_from(begun.elapsed().as_secs()).unwrap() + 1);
        let heard = stage.asked() - before;
        assert!(refused == 50 && heard == words - refused && heard <= most, "{heard} of {words}, {refused} refused");
        assert!(reached(stage, PIN), "what nobody need be asked for goes on");

        // Later there is a name again, and who asked once for what is not there is told again without asking.
        let name = "x.at-93-184-216-34.forms.example";
        let found = |name: &str| stage.program(|| look_up(name, dns::A));
        let later = |name: &str| {
            (0..400).any(|_| {
                let is_refused = found(name) == dns::LookupResult::Failed(5);
                std::thread::park_timeout(std::time::Duration::from_millis(if is_refused { 50 } else { 0 }));
                !is_refused
            })
        };
        assert!(later(name) && reached(stage, name) && later(&said(30_000)));
        let before = stage.asked();
        assert!((0..3).all(|_| found(&said(30_000)) == dns::LookupResult::NoName));
        assert_eq!(stage.asked(), before);
        let denied = engine.denied("net.dns/rate");
        assert_eq!((denied.host.as_str(), denied.clause.as_str()), ("others", "net.dns"));
        let told = engine.end();
        let hosts = told.iter().filter_map(|frame| match frame {
            FromBroker::Denied(denied) if denied.id == "net.dns/rate" => Some((denied.host.as_str(), denied.count)),
            _ => None,
        });
        assert!(hosts.into_iter().all(|(host, count)| host == "others" && count >= 50), "one kind: {told:?}");
    });
}

/// What no rule can name is refused as what no rule names: with a record, and counted.
#[test]
fn look_ups_of_what_is_no_name_of_a_host_are_counted_and_told() {
    staged("addresses::look_ups_of_what_is_no_name_of_a_host_are_counted_and_told", |stage| {
        let mut engine = stage.broker(&rules());
        engine.ready();
        stage.program(|| {
            // Bytes as a tunnel sends them, a dot within a label, and another class.
            let odd: [(&[u8], u16); 3] =
                [(b"\x03\xff\xfe\x80\x07example\0", 1), (b"\x03a.b\x07example\0", 1), (b"\x07version\x04bind\0", 3)];
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
            socket.connect("198.18.0.1:53").unwrap();
            for (name, class) in odd {
                let head = [0, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
                let question = [&head, name, &16_u16.to_be_bytes(), &u16::to_be_bytes(class)].concat();
                socket.send(&question).unwrap();
                let mut buffer = [0; 2048];
                let count = socket.recv(&mut buffer).expect("every look-up is answered");
                assert_eq!((count > 12, buffer[3] & 15), (true, 3), "NXDOMAIN for {name:?}");
            }
        });
        let frames = engine.end();
        let mut told =
            frames.iter().filter_map(|frame| if let FromBroker::Denied(one) = frame { Some(one) } else { None });
        let last = told.next_back().expect("it is told");
        assert_eq!(
            (last.id.as_str(), last.host.as_str(), last.count),
            ("net.allow/unknown-name", "a name that no host has", 3)
        );
        let used = frames
            .iter()
            .rev()
            .find_map(|frame| if let FromBroker::Usage(usage) = frame { Some(usage.lookups) } else { None });
        assert_eq!(used, Some(3));
    });
}
