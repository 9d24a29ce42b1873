//! What the judge says, row by row: the rules as a policy has them, what a program tries, and what it comes to.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a surprise in a test is a failed test")]

use std::net::IpAddr;

use egress::denial::{Reason, To};
use egress::hello::Hello;
use egress::host;
use egress::judge::{Connect, Granted, LookUp, Reading, Request, Rules};
use policy::value::Net;
use serde_json::{Value, json};

/// Rules of policies are read by the policy's own reader;
fn rules(net: &Value) -> Rules {
    let mut all = json!({"mode": "allow"});
    all.as_object_mut().unwrap().extend(net.as_object().unwrap().clone());
    match Net::from_document(&all) {
        Ok(net) => Rules::of(net),
        Err(mistakes) => panic!("{all}: {:?}", mistakes.list.first().map(|m| (&m.what, &m.why))),
    }
}

/// The id of a denial, from the record that everybody is shown.
fn id(reason: &Reason) -> String {
    reason.record(&To::Name("x".to_owned()), 1).id
}

/// As the broker asks: the text of a name has one form before it is judged, or none.
fn looked_up(rules: &Rules, name: &str) -> String {
    let Some(name) = host::plain(name) else { return id(&Reason::UnknownName) };
    match rules.look_up(&name) {
        LookUp::Known { pinned: true } => "pinned".to_owned(),
        LookUp::Known { pinned: false } => "known".to_owned(),
        LookUp::Ask => "ask".to_owned(),
        LookUp::Denied(reason) => id(&reason),
    }
}

fn to(text: &str) -> To {
    text.parse::<IpAddr>().map_or_else(|_| To::Name(host::plain(text).unwrap()), To::Address)
}

fn connected(rules: &Rules, target: &str, port: u16) -> String {
    match rules.connect(&to(target), port) {
        Connect::Way(way) => {
            let pin = way.pin.map_or_else(String::new, |pin| format!(" at {pin}"));
            let reading = match way.reading {
                Reading::Nothing => "raw",
                Reading::Names => "names",
                Reading::Requests => "requests",
            };
            format!("{reading}{pin}")
        }
        Connect::Ask => "ask".to_owned(),
        Connect::Denied(reason) => id(&reason),
    }
}

fn says(result: Result<(), Reason>) -> String {
    result.map_or_else(|reason| id(&reason), |()| "yes".to_owned())
}

fn grants(result: Result<Granted, Reason>) -> String {
    match result {
        Ok(Granted::Allowed) => "yes".to_owned(),
        Ok(Granted::Ask) => "ask".to_owned(),
        Err(reason) => id(&reason),
    }
}

#[test]
fn look_ups() {
    let some = rules(&json!({
        "allow": [
            {"host": "api.example"}, {"host": "*.wild.example"}, {"host": "**.deep.example"},
            {"host": "db.corp.example", "ports": [5432], "address": "10.1.2.3:6432"},
            {"host": "xn--bcher-kva.example"}, {"host": "UPPER.Example."},
            {"host": "two.example", "ports": [80]}, {"host": "two.example", "ports": [443], "address": "192.0.2.1:443"},
        ],
        "deny": [
            {"host": "bad.wild.example"}, {"host": "**.bad.deep.example"}, {"host": "half.wild.example", "ports": [80]},
            {"host": "ports.wild.example", "ports": [80, 443]}, {"host": "gone.example", "ports": [80]},
        ],
    }));
    for (name, expected) in [
        ("api.example", "known"),
        ("API.EXAMPLE", "known"),
        ("api.example.", "known"),
        ("api.example..", "net.allow/unknown-name"),
        ("api.example.evil.example", "net.allow/unknown-name"),
        ("evilapi.example", "net.allow/unknown-name"),
        ("x.api.example", "net.allow/unknown-name"),
        ("example", "net.allow/unknown-name"),
        ("", "net.allow/unknown-name"),
        ("a.wild.example", "known"),
        ("wild.example", "net.allow/unknown-name"),
        ("b.a.wild.example", "net.allow/unknown-name"),
        ("c.b.a.deep.example", "known"),
        ("deep.example", "net.allow/unknown-name"),
        ("bad.wild.example", "net.deny/denied"),
        ("BAD.wild.example.", "net.deny/denied"),
        ("x.bad.deep.example", "net.deny/denied"),
        ("bad.deep.example", "known"),
        ("half.wild.example", "known"),
        ("ports.wild.example", "net.deny/denied"),
        ("gone.example", "net.allow/unknown-name"),
        ("db.corp.example", "pinned"),
        ("two.example", "known"),
        ("upper.example", "known"),
        ("xn--bcher-kva.example", "known"),
        ("b\u{fc}cher.example", "net.allow/unknown-name"),
        ("api.ex\u{430}mple", "net.allow/unknown-name"),
        ("api.example\0.evil.example", "net.allow/unknown-name"),
        ("api.example:443", "net.allow/unknown-name"),
        ("api%2eexample", "net.allow/unknown-name"),
        ("user@api.example", "net.allow/unknown-name"),
        ("169.254.169.254", "net.allow/unknown-name"),
        ("0xa9fea9fe", "net.allow/unknown-name"),
        ("localhost", "net.allow/unknown-name"),
        ("metadata.google.internal", "net.allow/unknown-name"),
    ] {
        assert_eq!(looked_up(&some, name), expected, "{name:?}");
    }
    let asking = rules(&json!({"allow": [{"host": "a.example"}], "deny": [{"host": "b.example"}], "unknown": "ask"}));
    for (name, expected) in [
        ("a.example", "known"),
        ("b.example", "net.deny/denied"),
        ("c.example", "ask"),
        ("localhost", "net.allow/unknown-name"),
        ("x.LOCALHOST.", "net.allow/unknown-name"),
        ("localhost.example", "ask"),
    ] {
        assert_eq!(looked_up(&asking, name), expected, "{name}");
    }
    for (name, asks) in [("c.example", true), ("localhost", false), ("x.localhost", false)] {
        let connects = asking.connect(&To::Name(name.to_owned()), 80);
        assert_eq!(connects == Connect::Ask, asks, "{name}: {connects:?}");
    }
}

#[test]
fn connections() {
    let some = rules(&json!({
        "allow": [
            {"host": "api.example"}, {"host": "db.corp.example", "ports": [5432], "address": "10.1.2.3:6432"},
            {"host": "git.example", "ports": [22, 443]}, {"host": "*.wild.example", "ports": [443]},
            {"host": "read.example", "methods": ["GET"]}, {"host": "both.example", "ports": [443]},
            {"host": "both.example", "ports": [443, 8443], "methods": ["GET"]},
            {"host": "pinned.wild.example", "ports": [443], "address": "[2001:db8::5]:8443"},
            {"cidr": "192.0.2.0/24", "ports": [22, 80]}, {"cidr": "2001:db8:1::/48", "ports": [443]},
            {"cidr": "10.0.0.0/8", "ports": [22]},
        ],
        "deny": [{"host": "no.wild.example"}, {"host": "git.example", "ports": [22]}, {"cidr": "192.0.2.128/25"}],
    }));
    for (target, port, expected) in [
        ("api.example", 443, "names"),
        ("api.example", 80, "names"),
        ("api.example", 22, "net.allow/port"),
        ("api.example", 8443, "net.allow/port"),
        ("other.example", 443, "net.allow/unknown-name"),
        ("db.corp.example", 5432, "raw at 10.1.2.3:6432"),
        ("db.corp.example", 6432, "net.allow/port"),
        ("git.example", 443, "names"),
        ("git.example", 22, "net.deny/denied"),
        ("a.wild.example", 443, "names"),
        ("a.wild.example", 80, "net.allow/port"),
        ("no.wild.example", 443, "net.deny/denied"),
        ("pinned.wild.example", 443, "names at [2001:db8::5]:8443"),
        ("read.example", 443, "requests"),
        ("both.example", 443, "names"),
        ("both.example", 8443, "requests"),
        ("192.0.2.1", 22, "raw"),
        ("192.0.2.1", 80, "raw"),
        ("192.0.2.1", 443, "net.allow/port"),
        ("192.0.2.129", 22, "net.deny/denied"),
        ("192.0.3.1", 22, "net.allow/unknown-address"),
        ("8.8.8.8", 53, "net.allow/unknown-address"),
        ("169.254.169.254", 80, "net.allow/unknown-address"),
        ("198.18.77.77", 443, "net.allow/unknown-address"),
        ("2001:db8:1::9", 443, "raw"),
        ("2001:db8:2::9", 443, "net.allow/unknown-address"),
        ("::ffff:192.0.2.1", 22, "net.allow/unknown-address"),
        ("64:ff9b::c000:201", 22, "net.allow/unknown-address"),
        ("2002:c000:201::1", 22, "net.allow/unknown-address"),
        ("10.9.9.9", 22, "raw"),
    ] {
        assert_eq!(connected(&some, target, port), expected, "{target} {port}");
    }
    let asking = rules(&json!({"allow": [{"host": "a.example"}], "unknown": "ask"}));
    for (target, port, expected) in
        [("b.example", 443, "ask"), ("a.example", 22, "net.allow/port"), ("8.8.8.8", 443, "net.allow/unknown-address")]
    {
        assert_eq!(connected(&asking, target, port), expected, "{target} {port}");
    }
}

/// Whatever the order: a name's own rule, then the longer pattern.
#[test]
fn where_a_name_is_says_the_nearest_rule() {
    let mut allow = vec![
        json!({"host": "**.corp.example", "ports": [443], "address": "10.0.0.1:443"}),
        json!({"host": "*.corp.example", "ports": [443], "address": "10.0.0.2:443"}),
        json!({"host": "*.in.corp.example", "ports": [443], "address": "10.0.0.3:443"}),
        json!({"host": "a.in.corp.example", "ports": [443], "methods": ["GET"], "address": "10.0.0.4:443"}),
        json!({"host": "a.in.corp.example", "ports": [443], "methods": ["POST"]}),
    ];
    for _ in 0..2 {
        let some = rules(&json!({ "allow": allow }));
        for (name, at) in [
            ("x.y.z.corp.example", "names at 10.0.0.1:443"),
            ("x.corp.example", "names at 10.0.0.2:443"),
            ("b.in.corp.example", "names at 10.0.0.3:443"),
            ("a.in.corp.example", "names at 10.0.0.4:443"),
        ] {
            assert_eq!(connected(&some, name, 443), at, "{name}");
        }
        allow.reverse();
    }
}

/// A range that a policy names reaches private addresses no more than a name does: only `address` says where something inside is.
#[test]
fn where_names_lead() {
    let some = rules(&json!({
        "allow": [{"host": "a.example"}],
        "deny": [{"cidr": "192.0.2.0/24"}, {"cidr": "203.0.113.9", "ports": [25]}],
    }));
    for (real, port, expected) in [
        ("93.184.216.34", 443, "yes"),
        ("2606:4700::1111", 443, "yes"),
        ("192.0.2.1", 443, "net.deny/denied"),
        ("203.0.113.9", 25, "net.deny/denied"),
        ("203.0.113.9", 443, "yes"),
        ("10.0.0.1", 443, "net.allow/inside"),
        ("127.0.0.1", 443, "net.allow/inside"),
        ("0.0.0.0", 443, "net.allow/inside"),
        ("169.254.169.254", 80, "net.allow/inside"),
        ("100.100.100.200", 80, "net.allow/inside"),
        ("168.63.129.16", 80, "net.allow/inside"),
        ("192.168.1.1", 443, "net.allow/inside"),
        ("172.31.0.1", 443, "net.allow/inside"),
        ("198.18.1.0", 443, "net.allow/inside"),
        ("224.0.0.251", 443, "net.allow/inside"),
        ("::1", 443, "net.allow/inside"),
        ("::ffff:10.0.0.1", 443, "net.allow/inside"),
        ("::ffff:93.184.216.34", 443, "net.allow/inside"),
        ("64:ff9b::a00:1", 443, "net.allow/inside"),
        ("2002:a00:1::", 443, "net.allow/inside"),
        ("fd00:ec2::254", 80, "net.allow/inside"),
        ("fe80::1", 443, "net.allow/inside"),
        ("ff02::1", 443, "net.allow/inside"),
    ] {
        assert_eq!(says(some.outside(real.parse().unwrap(), port)), expected, "{real} {port}");
    }
    // What a rule pins is still denied where `net.deny` has it, also in disguise.
    for (real, expected) in
        [("10.0.0.1", "yes"), ("192.0.2.1", "net.deny/denied"), ("::ffff:192.0.2.1", "net.deny/denied")]
    {
        assert_eq!(says(some.not_denied(real.parse().unwrap(), 443)), expected, "{real}");
    }
}

#[test]
fn server_names() {
    let some = rules(&json!({"allow": [{"host": "a.example"}, {"host": "b.example"}]}));
    for (name, encrypted, expected) in [
        (Some("a.example"), false, "yes"),
        (Some("b.example"), false, "net.allow/server-name"),
        (Some("evil.example"), false, "net.allow/server-name"),
        (Some("x.a.example"), false, "net.allow/server-name"),
        (None, false, "net.allow/server-name"),
        (Some("a.example"), true, "net.allow/encrypted-hello"),
    ] {
        let hello = Hello { name: name.map(str::to_owned), encrypted, protocols: Vec::new() };
        assert_eq!(says(some.hello("a.example", &hello)), expected, "{name:?} {encrypted}");
    }
}

#[test]
fn requests_are_for_the_host_of_their_connection() {
    let some = rules(&json!({"allow": [{"host": "a.example", "ports": [80, 8080]}, {"host": "b.example"}]}));
    let asked = |method, authority, hosts: &[&'static str], port| {
        let request = Request { method, authority, hosts: hosts.to_vec(), path: "/x", opens_websocket: false };
        grants(some.request(&to("a.example"), port, &request))
    };
    for (hosts, expected) in [
        (&["a.example"][..], "yes"),
        (&["A.Example"], "yes"),
        (&["a.example."], "yes"),
        (&["a.example:80"], "yes"),
        (&["a.example:443"], "net.allow/host-header"),
        (&["b.example"], "net.allow/host-header"),
        (&["a.example.evil.example"], "net.allow/host-header"),
        (&["a.example", "a.example"], "net.allow/host-header"),
        (&["a.example", "b.example"], "net.allow/host-header"),
        (&["a.example, b.example"], "net.allow/host-header"),
        (&["b.example@a.example"], "net.allow/host-header"),
        (&["a.example/b"], "net.allow/host-header"),
        (&["a.example#b"], "net.allow/host-header"),
        (&["a.example b"], "net.allow/host-header"),
        (&[""], "net.allow/host-header"),
        (&["192.0.2.1"], "net.allow/host-header"),
        (&[], "net.allow/host-header"),
    ] {
        assert_eq!(asked("GET", None, hosts, 80), expected, "{hosts:?}");
    }
    for (method, authority, hosts, port, expected) in [
        ("GET", Some("a.example"), &["a.example"][..], 80, "yes"),
        ("GET", Some("a.example"), &[], 80, "yes"),
        ("GET", Some("b.example"), &["a.example"], 80, "net.allow/host-header"),
        ("GET", Some("a.example"), &["b.example"], 80, "net.allow/host-header"),
        ("GET", Some("u@a.example"), &["a.example"], 80, "net.allow/host-header"),
        ("CONNECT", Some("a.example:80"), &["a.example"], 80, "net.allow/host-header"),
        ("connect", Some("a.example:80"), &["a.example"], 80, "net.allow/host-header"),
        ("GET", None, &["a.example:8080"], 8080, "yes"),
        ("GET", None, &["a.example:80"], 8080, "net.allow/host-header"),
        ("BREW", None, &["a.example"], 80, "yes"),
    ] {
        assert_eq!(asked(method, authority, hosts, port), expected, "{method} {authority:?} {hosts:?} {port}");
    }
}

#[test]
fn datagrams() {
    let all = rules(&json!({
        "allow": [
            {"host": "*.a.example", "ports": [123], "protocol": "udp"},
            {"host": "b.example", "ports": [443]},
            {"host": "b.example", "ports": [5000], "protocol": "udp", "address": "10.0.0.1:5001"},
            {"cidr": "192.0.2.0/24", "ports": [123], "protocol": "udp"},
        ],
        "deny": [{"host": "no.a.example"}, {"cidr": "192.0.2.9/32"}],
        "unknown": "ask",
    }));
    for (target, port, said) in [
        ("x.a.example", 123, "yes"),
        ("x.a.example", 124, "net.allow/port"),
        ("no.a.example", 123, "net.deny/denied"),
        ("b.example", 443, "net.allow/port"),
        ("b.example", 5000, "at 10.0.0.1:5001"),
        ("192.0.2.1", 123, "yes"),
        ("192.0.2.9", 123, "net.deny/denied"),
        ("198.51.100.1", 123, "net.allow/unknown-address"),
        // Nobody is asked about datagrams.
        ("c.example", 123, "net.allow/unknown-name"),
    ] {
        let found = match all.datagrams(&to(target), port) {
            Ok(None) => "yes".to_owned(),
            Ok(Some(pin)) => format!("at {pin}"),
            Err(reason) => id(&reason),
        };
        assert_eq!(found, said, "{target} {port}");
    }
    // A name of UDP alone is looked up, and no connection to it is made.
    assert_eq!(looked_up(&all, "x.a.example"), "known");
    assert_eq!(connected(&all, "x.a.example", 123), "ask");
    assert_eq!(connected(&all, "b.example", 5000), "net.allow/port");
    assert_eq!(all.ports(&to("b.example")), [443]);
}

/// What a request to `a.example` comes to.
fn asked(rules: &Rules, method: &str, path: &str, opens_websocket: bool) -> String {
    let request = Request { method, authority: Some("a.example"), hosts: Vec::new(), path, opens_websocket };
    grants(rules.request(&to("a.example"), 443, &request))
}

#[test]
fn methods_and_paths_of_all_rules_count() {
    let some = rules(&json!({"allow": [
        {"host": "a.example", "ports": [443], "methods": ["GET", "HEAD"], "paths": ["/simple/**"]},
        {"host": "a.example", "ports": [443], "methods": ["POST"], "paths": ["/upload", "/v*/up"]},
        {"host": "a.example", "ports": [443], "methods": ["DELETE"]},
    ]}));
    for (method, path, expected) in [
        ("GET", "/simple/x/y", "yes"),
        ("GET", "/simple/%78", "yes"),
        ("HEAD", "/simple/", "yes"),
        ("GET", "/simplex", "net.allow/path"),
        ("GET", "/upload", "net.allow/path"),
        ("POST", "/upload", "yes"),
        ("POST", "/upload/", "net.allow/path"),
        ("POST", "/v2/up", "yes"),
        ("POST", "/simple/x", "net.allow/path"),
        ("PUT", "/simple/x", "net.allow/method"),
        ("get", "/simple/x", "net.allow/method"),
        ("DELETE", "/any/%2e%2e/thing", "yes"),
        ("GET", "/simple/../upload", "net.allow/path"),
        ("GET", "/simple/%2e%2e/upload", "net.allow/path"),
        ("GET", "/simple/%2fx", "net.allow/path"),
        ("GET", "/simple//x", "net.allow/path"),
        ("GET", "/simple/;x", "net.allow/path"),
        ("GET", "/simple/x%00", "net.allow/path"),
        ("GET", "/simple/..%5cx", "net.allow/path"),
        ("GET", "/simple/%252e%252e/x", "net.allow/path"),
        ("GET", "/%2e/simple/x", "net.allow/path"),
        ("OPTIONS", "*", "net.allow/method"),
        ("GET", "*", "net.allow/path"),
    ] {
        assert_eq!(asked(&some, method, path, false), expected, "{method} {path}");
    }
}

/// An encoded slash is let through by a rule that says so and has the path in both readings; what climbs is not, whatever a rule says.
#[test]
fn encoded_slashes_are_of_rules_that_say_so() {
    let of = |more: &Value| {
        let mut rule = json!({"host": "a.example", "ports": [443], "paths": ["/@*", "/@*/*", "/both/**", "/one/*"]});
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        rules(&json!({"allow": [rule]}))
    };
    let (with, without) = (of(&json!({"encoded_slashes": true})), of(&json!({})));
    for (path, expected) in [
        ("/@scope%2fname", "yes"),
        ("/@scope%2Fname", "yes"),
        ("/%40scope%2fname", "yes"),
        ("/both/a%2fb%2fc", "yes"),
        // A server that decodes takes it for another path than the rule has, and one that does not does.
        ("/one/a%2fb", "net.allow/path"),
        ("/other%2fa", "net.allow/path"),
        ("/both%2fa", "net.allow/path"),
        ("/both/..%2fone%2fa", "net.allow/path"),
        ("/both/%2e%2e%2fa", "net.allow/path"),
        ("/both/%2e%2e/a", "net.allow/path"),
        ("/both/a%2f%2fb", "net.allow/path"),
        ("/both/a%252fb", "net.allow/path"),
        ("/both/a%5cb", "net.allow/path"),
    ] {
        assert_eq!(asked(&with, "GET", path, false), expected, "{path}");
        assert_eq!(asked(&without, "GET", path, false), "net.allow/path", "{path}");
    }
    for rules in [&with, &without] {
        assert_eq!(asked(rules, "GET", "/@scope/name", false), "yes");
        assert_eq!(asked(rules, "GET", "/both/a/b", false), "yes");
        assert_eq!(Rules::read(&rules.net().document()).unwrap().net(), rules.net());
    }
    // Both readings are to be of one rule.
    let halves = rules(&json!({"allow": [
        {"host": "a.example", "ports": [443], "paths": ["/@*"], "encoded_slashes": true},
        {"host": "a.example", "ports": [443], "paths": ["/@*/*"]},
    ]}));
    assert_eq!(asked(&halves, "GET", "/@scope%2fname", false), "net.allow/path");
}

/// Behind a WebSocket nothing is judged: rules that judge requests let one be opened where they say so.
#[test]
fn websockets_are_of_rules_that_say_so_or_judge_nothing() {
    let some = rules(&json!({"allow": [
        {"host": "a.example", "ports": [443], "methods": ["GET"]},
        {"host": "a.example", "ports": [443], "paths": ["/socket/**"], "websocket": true},
    ]}));
    for (path, opens, expected) in [
        ("/x", false, "yes"),
        ("/x", true, "net.allow/websocket"),
        ("/socket/x", true, "yes"),
        ("/socket/x", false, "yes"),
        ("/socket/../x", true, "net.allow/websocket"),
    ] {
        assert_eq!(asked(&some, "GET", path, opens), expected, "{path} {opens}");
    }
    let whole = rules(&json!({"allow": [{"host": "a.example", "ports": [443]}]}));
    assert_eq!(asked(&whole, "GET", "/x", true), "yes");
    let asking = rules(&json!({"allow": [
        {"host": "a.example", "ports": [443], "methods": ["GET"]},
        {"host": "a.example", "ports": [443], "paths": ["/s"], "websocket": true, "decision": "ask"},
    ]}));
    assert_eq!(asked(&asking, "GET", "/s", true), "ask", "the rule that does not ask opens none");
    assert_eq!(Rules::read(&asking.net().document()).unwrap().net(), asking.net());
}

/// A rule that asks adds a question, and takes nothing from other rules.
#[test]
fn requests_of_which_rules_ask() {
    let some = rules(&json!({"allow": [
        {"host": "a.example", "ports": [443], "methods": ["GET"]},
        {"host": "a.example", "ports": [443], "methods": ["POST"], "paths": ["/*/*/git-upload-pack"]},
        {"host": "a.example", "ports": [443], "methods": ["POST"], "paths": ["/*/*/git-receive-pack"], "decision": "ask"},
        {"host": "a.example", "ports": [443], "paths": ["/asked/**"], "decision": "ask"},
        {"host": "a.example", "ports": [443], "methods": ["PATCH"], "decision": "ask"},
        {"host": "a.example", "ports": [443], "methods": ["PUT"], "paths": ["/asked/not"], "decision": "allow"},
    ]}));
    assert_eq!(connected(&some, "a.example", 443), "requests");
    for (method, path, expected) in [
        ("GET", "/o/r/info/refs", "yes"),
        ("GET", "/asked/x", "yes"),
        ("POST", "/o/r/git-upload-pack", "yes"),
        ("POST", "/o/r/git-receive-pack", "ask"),
        ("POST", "/o/r/git%2Dreceive-pack", "ask"),
        ("POST", "/o/r/x/git-receive-pack", "net.allow/path"),
        ("POST", "/o/r%2fgit-receive-pack", "net.allow/path"),
        ("POST", "/o/../o/r/git-receive-pack", "net.allow/path"),
        ("PUT", "/o/r/git-receive-pack", "net.allow/path"),
        ("PUT", "/asked/x", "ask"),
        ("PUT", "/asked/not", "yes"),
        ("PATCH", "/any/%2e%2e/thing", "ask"),
    ] {
        assert_eq!(asked(&some, method, path, false), expected, "{method} {path}");
    }
    assert!(some.net().asks() && !rules(&json!({"allow": [{"host": "a.example"}]})).net().asks());
    assert!(rules(&json!({"unknown": "ask"})).net().asks());
    // The rule is told to the broker as it is.
    assert_eq!(Rules::read(&some.net().document()).unwrap().net(), some.net());
}

/// A record says all four things, and its clause is the one of its id.
#[test]
fn records_say_what_why_and_what_instead() {
    let to = To::Name("evil.example".to_owned());
    let denied = Reason::UnknownName.record(&to, 443);
    assert_eq!((denied.id.as_str(), denied.clause.as_str(), denied.port), ("net.allow/unknown-name", "net.allow", 443));
    assert_eq!(denied.what, "connecting to evil.example:443");
    assert_eq!(denied.instead, "reach a host that the policy allows, or ask for `--allow-host evil.example:443`");
    assert_eq!(Reason::UnknownName.record(&to, 0).what, "looking up evil.example");
    let six = To::Address("2001:db8::1".parse().unwrap());
    let denied_six = Reason::Port.record(&six, 80);
    assert_eq!(denied_six.what, "connecting to [2001:db8::1]:80");
    assert_eq!(denied_six.instead, "reach a host that the policy allows, or ask for `--allow-host [2001:db8::1]:80`");
    assert_eq!(Reason::Denied.record_of_datagram(&to, 53).what, "sending a datagram to evil.example:53");
    let told = egress::denial::body(&denied);
    let keys: Vec<_> = told.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["id", "clause", "what", "why", "instead"]);
}

/// The broker takes no rules that it cannot hold.
#[test]
fn what_is_not_built_is_not_taken() {
    for (net, key) in [
        (json!({"allow": [{"host": "a.example"}], "programs": {"/usr/bin/git": ["a.example"]}}), "net.programs"),
        (
            json!({"allow": [{"host": "a.example"}], "proxy": "http://p.example:3128", "deny": [{"cidr": "9.9.9.9/32"}]}),
            "net.deny",
        ),
        (json!({"allow": [{"host": "a.example", "ports": [53]}]}), "net.allow"),
        (
            json!({"allow": [{"host": "a.example", "ports": [123], "protocol": "udp"}], "proxy": "http://p.example:3128"}),
            "net.allow",
        ),
        (json!({"allow": [{"host": "a.example"}], "connections": 1501}), "net.connections"),
        (json!({"allow": [{"cidr": "10.1.0.0/16"}]}), "net.allow"),
        (json!({"allow": [{"cidr": "fd00::7"}]}), "net.allow"),
    ] {
        let all = Rules::of(rules(&net).net().clone());
        let document = all.net().document();
        let refused = Rules::read(&document).unwrap_err();
        assert!(egress::judge::not_built(all.net()).iter().all(|part| !part.fix.is_empty()), "{net}");
        assert!(refused.starts_with(&format!("`{key}`")), "{net}: {refused}");
    }
    let plain = rules(
        &json!({"allow": [{"host": "b.example", "methods": ["GET"]}, {"host": "a.example"}, {"cidr": "0.0.0.0/0"}, {"cidr": "10.1.0.1", "address": "10.1.0.1:80"}], "connections": 1500}),
    );
    let document = plain.net().document();
    assert_eq!(Rules::read(&document).unwrap().digest(), egress::wire::digest(&document));
}

#[test]
fn a_person_is_asked_where_a_connection_is_heard_and_nowhere_else() {
    let rules = rules(&json!({"unknown": "ask", "allow": [
        {"host": "a.test", "ports": [22, 8443]}, {"host": "*.b.test", "ports": [9000]},
        {"host": "c.test", "ports": [123], "protocol": "udp"},
        {"cidr": "192.0.2.0/24", "ports": [7000]}, {"cidr": "192.0.2.9/32", "ports": [7001]},
    ]}));
    let ports = [22, 23, 25, 80, 123, 443, 5432, 7000, 7001, 7002, 8080, 8443, 9000];
    let asked = |rules: &Rules| ports.into_iter().filter(|port| rules.is_asked_at(*port)).collect::<Vec<_>>();
    assert_eq!(asked(&rules), [22, 25, 80, 443, 5432, 7000, 7001, 8443, 9000]);
    let silent = Rules::of(policy::value::Net { unknown: policy::value::Unknown::Deny, ..rules.net().clone() });
    assert_eq!(asked(&silent), [0_u16; 0], "nobody is asked");
    // What has a socket of its own.
    assert_eq!(rules.exact().collect::<Vec<_>>(), [("a.test", 22), ("a.test", 8443)]);
}
