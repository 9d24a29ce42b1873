//! `fumehood net check`: what a policy says of a place, without a connection.

use super::Fixture;
use super::net::{flags, words};

#[test]
fn a_destination_is_judged_without_a_connection() {
    let fixture = Fixture::new();
    let check = |words: &[&str]| fixture.run(&[&["net", "check"], words].concat());
    assert_eq!(check(&["--allow-host", "example.org", "https://example.org/a?b"]).code, 0);
    assert_eq!(check(&["--allow-host", "example.org", "example.org:22"]).code, 1);
    let said = check(&["--allow-host", "*.example.org", "--json", "https://example.org"]);
    assert_eq!((said.code, said.json()["reason"]["id"].as_str()), (1, Some("net.allow/unknown-name")), "{said:?}");
    let closed = check(&["example.org"]);
    assert!(closed.code == 1 && closed.out.contains("net.mode/closed"), "{closed:?}");
    let rule = "net.allow=[{ host = \"a.test\", ports = [80], methods = [\"GET\"], paths = [\"/x/**\"] }]";
    let opened = |more: &[&str]| check(&[&["--set", "net.mode=allow", "--set", rule], more].concat()).code;
    assert_eq!(opened(&["http://a.test/x/y"]), 0);
    assert_eq!(opened(&["http://a.test/y"]), 1);
    assert_eq!(opened(&["--method", "POST", "http://a.test/x/y"]), 1);
    let asking = rule.replace(" }]", ", decision = \"ask\" }]");
    let asked = |url: &str| check(&["--set", "net.mode=allow", "--set", &asking, url]).code;
    assert_eq!((asked("http://a.test/x/y"), asked("http://a.test/y")), (3, 1));
    assert_eq!(check(&["--set", "net.mode=allow", "--set", "net.unknown=ask", "a.test:443"]).code, 3);
    // Where nobody listens nobody can ask: the kernel refuses. Common ports are heard, and those that rules of others have.
    let unnamed = |at: &str| {
        let rule = "net.allow=[\"b.test:26\", \"b.test:9000\", { cidr = \"192.0.2.0/24\", ports = [7000] }]";
        check(&["--set", "net.mode=allow", "--set", "net.unknown=ask", "--set", rule, at]).code
    };
    let asked = ["a.test:80", "a.test:22", "a.test:5432", "a.test:26", "a.test:9000", "a.test:7000"].map(unnamed);
    assert_eq!((asked, ["a.test:27", "a.test:8080"].map(unnamed)), ([3; 6], [1; 2]));
    assert_eq!(check(&["ftp://a.test"]).code, 125);
    let pasted = check(&["--allow-host", "example.org", "https://user:hunter22@example.org/"]);
    assert!(
        pasted.code == 125 && pasted.err.contains("***@example.org") && !pasted.err.contains("hunter22"),
        "{pasted:?}"
    );
    // What is inside itself no rule can name.
    for own in ["localhost:8080", "127.0.0.1:8080", "[::1]:80"] {
        let said = check(&["--allow-host", "example.org", own]);
        assert!(said.code == 1 && said.out.contains("own loopback") && said.out.contains("`address`"), "{said:?}");
    }
    // An address in its other form is the same to the kernel.
    for at in ["192.0.2.7:22", "[::ffff:192.0.2.7]:22"] {
        let ranged = ["--set", "net.mode=allow", "--set", "net.allow=[{ cidr = \"192.0.2.0/24\", ports = [22] }]", at];
        assert_eq!(check(&ranged).code, 0, "{at}");
    }
}

/// The real address is judged as it is by the broker: what a rule pins may be denied.
#[test]
fn an_address_of_a_rule_may_be_denied() {
    let fixture = Fixture::new();
    let rule = "net.allow=[{ host = \"a.test\", ports = [443], address = \"10.1.2.3:443\" }]";
    let check = |denied: &str| {
        fixture.run(&["net", "check", "--set", "net.mode=allow", "--set", rule, "--set", denied, "a.test"])
    };
    assert_eq!(check("net.deny=[\"10.2.0.0/16\"]").code, 0);
    let denied = check("net.deny=[\"10.1.0.0/16\"]");
    assert!(denied.code == 1 && denied.out.contains("net.deny/denied"), "{denied:?}");
}

#[test]
fn datagrams_are_judged_by_rules_of_theirs() {
    let fixture = Fixture::new();
    let rules = "net.allow=[{ host = \"time.test\", ports = [123], protocol = \"udp\" }, \"web.test\"]";
    let check = |more: &[&str]| {
        fixture.run(
            &[&["net", "check", "--set", "net.mode=allow", "--set", "net.unknown=ask", "--set", rules], more].concat(),
        )
    };
    let udp = |at: &str| check(&["--udp", at]).code;
    assert_eq!(["time.test:123", "time.test:124", "web.test:443", "other.test:443"].map(udp), [0, 1, 1, 1]);
    let tcp = check(&["time.test:123"]);
    assert!(tcp.code == 1 && tcp.out.contains("net.allow/unknown-name"), "no rule of connections names it: {tcp:?}");
    let said = check(&["--udp", "web.test:443"]);
    assert!(said.out.contains("protocol = \"udp\""), "{said:?}");
    assert_eq!(check(&["--udp", "https://web.test/"]).code, 125);
}

/// What everybody has by the preset reads and asks about faults, and publishes nothing.
#[test]
fn npm_is_for_reading() {
    let fixture = Fixture::new();
    let check = |method: &str, path: &str| {
        let url = format!("https://registry.npmjs.org{path}");
        let preset = ["net", "check", "--set", "net.mode=allow", "--set", "net.presets=[\"npm\"]"];
        fixture.run(&[&preset[..], &["--method", method, &url]].concat()).code
    };
    for (method, path, code) in [
        ("GET", "/left-pad", 0),
        ("GET", "/@scope%2fname", 0),
        ("HEAD", "/@scope/name/-/name-1.0.0.tgz", 0),
        ("GET", "/-/npm/v1/keys", 0),
        ("POST", "/-/npm/v1/security/advisories/bulk", 0),
        ("POST", "/-/npm/v1/security/audits/quick", 0),
        ("PUT", "/left-pad", 1),
        ("PUT", "/@scope%2fname", 1),
        ("POST", "/left-pad", 1),
        ("POST", "/-/npm/v1/security/../tokens", 1),
        ("POST", "/-/npm/v1/tokens", 1),
        ("DELETE", "/left-pad/-rev/1", 1),
    ] {
        assert_eq!(check(method, path), code, "{method} {path}");
    }
}

/// Of rules that every run refuses nothing can be said; a run's own refusal names the rule.
#[test]
fn rules_that_no_run_takes_are_refused_by_a_check_and_by_a_plan_alike() {
    let fixture = Fixture::new();
    let inside = "[\"a.example\", { cidr = \"10.0.0.0/8\", ports = [22] }]";
    for (rules, more, clause, what) in [
        (
            "[\"a.example\"]",
            "net.programs={ \"/usr/bin/git\" = [\"a.example\"] }",
            "net.programs",
            "run the program in a sandbox of its own",
        ),
        ("[\"a.example\"]", "net.connections=5000", "net.connections", "1500"),
        ("[{ host = \"a.example\", ports = [53] }]", "net.dns=broker", "net.allow", "leave 53 out"),
        (inside, "net.dns=broker", "net.allow", "10.0.0.0/8"),
    ] {
        let rules = format!("net.allow={rules}");
        let flags = ["--set", "net.mode=allow", "--set", &rules, "--set", more].map(str::to_owned);
        let checked = fixture.run(&words(&["net", "check"], &flags, &["https://a.example/"]));
        assert!(checked.code == 126 && checked.err.contains(what), "{checked:?}");
        let planned = fixture.run(&words(&["plan", "--json"], &flags, &["--", "true"]));
        let refused = planned.json()["refused"].clone();
        assert!(planned.code == 126 && refused.as_array().is_some_and(|all| all.len() == 1), "{planned:?}");
        assert!(refused[0]["clause"] == clause && refused.to_string().contains(what), "{refused}");
    }
}

/// A flag that is obeyed allows what was refused, and no other host.
#[test]
fn what_to_ask_for_is_an_ipv6_address_in_brackets() {
    let fixture = Fixture::new();
    let flags = ["--set", "net.mode=allow", "--set", "net.allow=[{ cidr = \"2606:4700::/32\", ports = [22] }]"];
    let flags = flags.map(str::to_owned);
    let refused = fixture.run(&words(&["net", "check"], &flags, &["http://[2606:4700::1]/"]));
    assert!(refused.code == 1 && refused.out.contains("`--allow-host [2606:4700::1]:80`"), "{refused:?}");
    for (word, code) in [("http://[2606:4700::1]/", 0), ("https://[2606:4700::1:80]/", 1)] {
        let asked = ["--allow-host", "[2606:4700::1]:80", word];
        assert_eq!(fixture.run(&words(&["net", "check"], &[], &asked)).code, code, "{word}");
    }
}

/// A client says that there is no way; the report says that it was not the policy.
#[test]
fn an_allowed_host_that_is_not_reached_stands_in_the_report() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let flags = flags(gone.local_addr().unwrap().port());
    drop(gone);
    let python = "import socket as s; c = s.create_connection(('served.test', 80), 9); c.sendall(b'GET / HTTP/1.1\\r\\nHost: served.test\\r\\n\\r\\n'); c.recv(1)";
    let ran = Fixture::new().run(&words(&["run", "--json"], &flags, &["--", "python3", "-c", python]));
    let (report, said) = (ran.json(), "`served.test` is allowed, and could not be reached outside: ");
    let warnings = report["warnings"].as_array().unwrap();
    let told = |one: &&serde_json::Value| one["what"].as_str().is_some_and(|what| what.starts_with(said));
    assert_eq!(warnings.iter().filter(told).count(), 1, "{report}");
    assert!(report["violations"].as_array().unwrap().is_empty(), "{report}");
}
