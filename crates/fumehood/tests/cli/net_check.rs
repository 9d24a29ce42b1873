//! `fumehood net check`: what a policy says of a place, without a connection.

use super::House;

#[test]
fn a_destination_is_judged_without_a_connection() {
    let house = House::new();
    let check = |words: &[&str]| house.run(&[&["net", "check"], words].concat());
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
    let house = House::new();
    let rule = "net.allow=[{ host = \"a.test\", ports = [443], address = \"10.1.2.3:443\" }]";
    let check = |denied: &str| {
        house.run(&["net", "check", "--set", "net.mode=allow", "--set", rule, "--set", denied, "a.test"])
    };
    assert_eq!(check("net.deny=[\"10.2.0.0/16\"]").code, 0);
    let denied = check("net.deny=[\"10.1.0.0/16\"]");
    assert!(denied.code == 1 && denied.out.contains("net.deny/denied"), "{denied:?}");
}

#[test]
fn datagrams_are_judged_by_rules_of_theirs() {
    let house = House::new();
    let rules = "net.allow=[{ host = \"time.test\", ports = [123], protocol = \"udp\" }, \"web.test\"]";
    let check = |more: &[&str]| {
        house.run(
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
    let house = House::new();
    let check = |method: &str, path: &str| {
        let url = format!("https://registry.npmjs.org{path}");
        let preset = ["net", "check", "--set", "net.mode=allow", "--set", "net.presets=[\"npm\"]"];
        house.run(&[&preset[..], &["--method", method, &url]].concat()).code
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
