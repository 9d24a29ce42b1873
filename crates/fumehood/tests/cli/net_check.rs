//! `fumehood net check`: what a policy says of a place, without a connection.

use super::Fixture;
use super::net::{flags, served, words};

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

/// Methods and targets as a program may write them: one reader judges both, so that what is said before is what happens.
#[test]
fn what_is_said_of_a_request_is_what_becomes_of_it() {
    let (fixture, port) = (Fixture::new(), served());
    let rules = format!(
        "net.allow=[{{ host = \"any.test\", ports = [80, 9000], address = \"127.0.0.1:{port}\" }}, \
         {{ host = \"some.test\", ports = [80, 9000], address = \"127.0.0.1:{port}\", methods = [\"GET\", \"PURGE\"], paths = [\"/ok/**\"] }}]"
    );
    let net = ["--set", "net.mode=allow", "--set", &rules].map(str::to_owned).to_vec();
    let flags = words(&[], &net, &["--set", "syscalls.profile=default", "--memory", "512M"]);
    let targets = [
        "/ok/1",
        "/ok/`x`",
        "/ok/<x>",
        "/ok/\"x\"",
        "/ok/{x}",
        "/ok/|^[]",
        "/ok/\u{e9}",
        "/ok/%c3%a9",
        "/ok/%ff",
        "/ok/%25",
        "/ok/a%20b",
        "/ok/a%09b",
        "/ok/%2fx",
        "/ok//x",
        "/ok/x;y",
        "/ok/%3fx",
        "/ok/../x",
        "/ok/x%5cy",
        "/ok?q=`<>\"",
        "/no",
        "/no`x`",
    ];
    let methods =
        ["GET", "PURGE", "POST", "get", "CONNECT", "PRI", "M-SEARCH", "A`B", "1GET", "G(T", "G T", "G\u{e9}T"];
    let urls = ["http://any.test", "http://some.test", "http://any.test:9000", "http://some.test:9000"];
    let mut asked: Vec<(&str, String)> = Vec::new();
    for url in urls {
        asked.extend(targets.map(|target| ("GET", format!("{url}{target}"))));
        asked.extend(methods.map(|method| (method, format!("{url}/ok/1"))));
    }
    let code = "
import json, socket, sys
for method, url in json.load(sys.stdin):
    at, path = url[7:].split('/', 1)
    name, _, port = at.partition(':')
    try:
        s = socket.create_connection((name, int(port or 80)), 9); s.settimeout(9)
        s.sendall(f'{method} /{path} HTTP/1.1\\r\\nHost: {at}\\r\\nConnection: close\\r\\n\\r\\n'.encode())
        print(s.recv(12).decode()[-3:] == '200')
    except OSError: print(False)";
    let run = words(&["run", "-q"], &flags, &["--", "python3", "-c", code]);
    let run: Vec<&str> = run.iter().map(String::as_str).collect();
    let said = fixture.run_with_stdin(&run, serde_json::json!(asked).to_string().as_bytes());
    let happened: Vec<bool> = said.out.lines().map(|line| line == "True").collect();
    assert_eq!(happened.len(), asked.len(), "{said:?}");
    let differs = |((method, url), happened): &(&(&str, String), &bool)| {
        let checked = fixture.run(&words(&["net", "check"], &net, &["--method", method, url]));
        (checked.code == 0) != **happened
    };
    let differing: Vec<_> = asked.iter().zip(&happened).filter(differs).collect();
    assert!(differing.is_empty(), "reached, though `net check` says otherwise, or the other way round: {differing:?}");
    assert!(happened.contains(&true) && happened.contains(&false));
}

/// The recipe for S3: one bucket and no other of its region, loads in parts, and nothing that deletes.
#[test]
fn the_recipe_for_a_bucket_has_its_objects_alone() {
    let fixture = Fixture::new();
    let page = include_str!("../../../../docs/cookbook/secrets.md").split("## An AWS access key").nth(1).unwrap();
    let recipe = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    std::fs::write(fixture.path("work/s3.toml"), recipe).unwrap();
    let region = "s3.eu-central-1.amazonaws.com";
    for (method, url, code) in [
        ("GET", format!("https://my-bucket.{region}/any/a.csv"), 0),
        ("GET", format!("https://my-bucket.{region}/?list-type=2&prefix=data%2F"), 0),
        ("PUT", format!("https://my-bucket.{region}/data/a.csv?partNumber=1&uploadId=x"), 0),
        ("POST", format!("https://my-bucket.{region}/data/a.csv?uploads"), 0),
        ("POST", format!("https://my-bucket.{region}/data/a.csv?uploadId=x"), 0),
        ("POST", format!("https://my-bucket.{region}/?delete"), 1),
        ("DELETE", format!("https://my-bucket.{region}/data/a.csv"), 1),
        ("PUT", format!("https://theirs.{region}/a"), 1),
        ("PUT", format!("https://{region}/theirs/a"), 1),
        ("POST", "https://sts.amazonaws.com/".to_owned(), 1),
    ] {
        let checked = fixture.run(&["net", "check", "-p", "s3.toml", "--method", method, &url]);
        assert_eq!(checked.code, code, "{method} {url}: {checked:?}");
    }
}
