//! `fumehood learn`: what a program needs is proposed as the smallest rules, and where its needs could not be seen it is refused.

use super::Fixture;
use super::net::{BODY, served};

/// A program's needs are learned: what a rule allowed and what none did, in the smallest rules, and nothing is obeyed by itself.
#[test]
fn what_a_program_needs_is_learned_and_proposed() {
    let fixture = Fixture::new();
    let port = served();
    let policy = format!(
        "version = 1\nextends = \"python\"\n\n[net]\nmode = \"allow\"\nallow = [{{ host = \"served.test\", ports = [80], address = \"127.0.0.1:{port}\" }}, \"unused.test\"] # ours\ndeny = [\"bad.invalid\"]\n"
    );
    std::fs::write(fixture.path("work/p.toml"), &policy).unwrap();
    let code = "
import socket, urllib.request as u
print(u.urlopen('http://served.test/x', timeout=9).read().decode())
for to in [('new.invalid', 443), ('db.invalid', 5432), ('ssh.invalid', 22), ('192.0.2.1', 443), ('169.254.169.254', 80), ('bad.invalid', 443)]:
    try:
        s = socket.create_connection(to, 9); s.settimeout(9)
        s.sendall(f'GET / HTTP/1.1\\r\\nHost: {to[0]}:{to[1]}\\r\\n\\r\\n'.encode()); s.recv(1)
    except OSError: pass";
    let learn = |more: &[&str]| {
        let flags =
            ["learn", "-p", "p.toml", "--set", "syscalls.profile=default", "--memory", "512M", "--timeout", "60s"];
        fixture.run(&[&flags, more, &["--", "python3", "-c", code]].concat())
    };
    let said = learn(&["--json"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("not limited by name"), "{said:?}");
    let report = said.json();
    assert!(report["stdout"].as_str().unwrap().contains(BODY), "{report}");
    assert!(report["warnings"].as_array().unwrap().iter().any(|one| one["clause"] == "net.unknown"), "{report}");
    let proposed: Vec<(String, String)> = report["proposal"]["allow"]
        .as_array()
        .unwrap()
        .iter()
        .map(|rule| (rule["host"].as_str().unwrap().to_owned(), rule["ports"].to_string()))
        .collect();
    let expected = [("db.invalid", "[5432]"), ("new.invalid", "[443]"), ("ssh.invalid", "[22]")];
    let expected = expected.map(|(host, ports)| (host.to_owned(), ports.to_owned()));
    assert_eq!(proposed, expected, "addresses and denied names are not proposed: {report}");
    let remarks = report["proposal"]["remarks"].to_string();
    assert!(remarks.contains("unused.test") && !remarks.contains("served.test"), "{remarks}");
    let ids = report["violations"].to_string();
    assert!(ids.contains("net.allow/unknown-address") && ids.contains("net.deny/denied"), "{report}");
    assert_eq!(
        std::fs::read_to_string(fixture.path("work/p.toml")).unwrap(),
        policy,
        "nothing was asked to be written"
    );

    let said = learn(&["--save", "p.toml"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.err.contains("+    { host = \"new.invalid\", ports = [443] },"), "{said:?}");
    let check = |to: &str| fixture.run(&["net", "check", "-p", "p.toml", to]).code;
    assert_eq!(["new.invalid:443", "db.invalid:5432", "served.test:80"].map(check), [0, 0, 0]);
    assert_eq!(["new.invalid:80", "other.invalid:443", "bad.invalid:443"].map(check), [1, 1, 1]);
    let again = learn(&[]);
    assert!(again.err.contains("no rule is missing"), "{again:?}");
    assert!(fixture.run(&["audit", "show", "--net"]).out.contains("egress.learned"));
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
    let over = fixture.run(&[
        "learn",
        "--save",
        "p.toml",
        "--",
        "python3",
        "-c",
        "import socket\ntry: socket.create_connection(('n.invalid', 443), 9).recv(1)\nexcept OSError: pass",
    ]);
    assert!(over.code == 125 && over.err.contains("file exists"), "another file is not overwritten: {over:?}");
}

/// What a rule lets through is not proposed, and the query of a request is told nowhere.
#[test]
fn what_a_rule_has_is_not_learned_again() {
    let fixture = Fixture::new();
    let rule = format!("net.allow=[{{ host = \"*.a.test\", ports = [80], address = \"127.0.0.1:{}\" }}]", served());
    let code = "import urllib.request as u; u.urlopen('http://x.a.test/x/y?token=1', timeout=9).read()";
    let flags = ["learn", "--json", "--set", "net.mode=allow", "--set", &rule, "--set", "syscalls.profile=default"];
    let said = fixture.run(&[&flags[..], &["--memory", "512M", "--", "python3", "-c", code]].concat());
    assert_eq!(said.code, 0, "{said:?}");
    // A rule was there: nothing is missing, and what was asked for with it is not told with its query.
    assert_eq!(said.json()["proposal"]["allow"], serde_json::json!([]), "{said:?}");
    assert!(!fixture.run(&["audit", "show", "--net", "--json"]).out.contains("token=1"));
}

#[test]
fn a_policy_with_secrets_is_not_learned_under() {
    let fixture = Fixture::new();
    let policy = "version = 1\n[net]\nmode = \"allow\"\nallow = [\"a.test\"]\n[secrets.k]\nfrom = \"env:K\"\nhosts = [\"a.test\"]\nas = { header = \"X-K\" }\n";
    std::fs::write(fixture.path("work/p.toml"), policy).unwrap();
    let said = fixture.run(&["learn", "-p", "p.toml", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("not limited by name"), "{said:?}");
}

/// A proxy resolves names itself: whether one leads to a private address could not be seen.
#[test]
fn a_policy_with_a_proxy_is_not_learned_under() {
    let said = Fixture::new().run(&["learn", "--set", "net.proxy=http://127.0.0.1:3128", "--", "true"]);
    assert!(said.code == 126 && said.err.contains("it resolves names itself"), "{said:?}");
}
