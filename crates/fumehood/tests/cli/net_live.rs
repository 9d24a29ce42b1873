//! What a live sandbox tells of its network, and what it cannot be given.

use super::Fixture;
use super::net::{flags, question, served, words};

/// Who runs a program in a live sandbox hears there what was stopped: what is new of it, each time, and with its count.
#[test]
fn what_is_stopped_in_a_live_sandbox_is_told_by_exec_and_info() {
    let fixture = Fixture::new();
    let created = fixture.run(&words(&["create"], &flags(served()), &[]));
    assert_eq!(created.code, 0, "{created:?}");
    let id = created.out.trim_end();
    let looks = "import socket\nfor _ in range(3):\n  try: socket.gethostbyname('other.test')\n  except OSError: pass";
    let exec = |more: &[&str], words: &[&str]| fixture.run(&[&["exec"], more, &[id, "--"], words].concat());
    for _ in 0..2 {
        let said = exec(&[], &["python3", "-c", looks]);
        let told = said.err.lines().find(|line| line.starts_with("fumehood: stopped: looking up other.test"));
        assert!(said.code == 0 && told.is_some_and(|line| line.contains(" times): ")), "{said:?}");
        assert!(said.err.contains("fumehood: instead: "), "{said:?}");
    }
    assert_eq!(exec(&[], &["true"]).err, "", "what was told is not told again");
    assert_eq!(exec(&["-q"], &["python3", "-c", looks]).err, "");
    let report = exec(&["--json"], &["python3", "-c", looks]).json();
    let [found] = report["violations"].as_array().unwrap().as_slice() else { panic!("{report}") };
    assert_eq!((&found["seen"], &found["clause"]), (&"broker".into(), &"net.allow".into()), "{report}");
    assert!(found["count"].as_u64().unwrap() >= 3 && found["id"] == "net.allow/unknown-name", "{report}");
    let info = fixture.run(&["info", id]).out;
    assert!(info.contains("of the network so far") && info.contains("looking up other.test"), "{info}");
    let info = fixture.run(&["info", "--json", id]).json();
    assert!(info["violations"][0]["count"].as_u64() >= Some(12), "{info}");
    assert_eq!(info["usage"]["net"]["denied"], info["violations"][0]["count"], "{info}");
    assert_eq!(fixture.run(&["kill", id]).code, 0);
}

/// What is remembered of an answer is bound to the rules under which it was given: under others a person is asked anew.
#[test]
fn an_answer_under_other_rules_is_not_remembered() {
    let fixture = Fixture::new();
    let asking = ["--set", "net.mode=allow", "--set", "net.unknown=ask"].map(str::to_owned);
    let shown = ["--set".to_owned(), "syscalls.profile=default".to_owned()];
    let created = fixture.run(&words(&["create"], &[asking.as_slice(), &shown].concat(), &[]));
    assert_eq!(created.code, 0, "{created:?}");
    let id = created.out.trim_end();
    let reach = "import socket\ntry: socket.create_connection(('yes.invalid', 443), 40).recv(1)\nexcept OSError: pass";
    let started = || fixture.command(&["exec", id, "--", "python3", "-c", reach].map(str::to_owned)).spawn().unwrap();
    let answer = |words: &[&str]| {
        let mut child = started();
        let call = question(&fixture, "yes.invalid");
        let said = fixture.run(&[&["approvals", words[0], call["id"].as_str().unwrap()], &words[1..]].concat());
        assert_eq!(said.code, 0, "{said:?}");
        child.wait().unwrap();
    };
    answer(&["approve", "--remember", "args", "--for", "8h"]);
    started().wait().unwrap();
    let calls = || fixture.run(&["approvals", "ls", "--all", "--json"]).json()["calls"].as_array().unwrap().len();
    assert_eq!(calls(), 1, "it is remembered under the same rules");
    let set = fixture.run(&words(&["net", "set", "--allow-host", "other.example"], &asking, &[id]));
    assert_eq!(set.code, 0, "{set:?}");
    answer(&["deny"]);
    assert_eq!(calls(), 2);
    assert_eq!(fixture.run(&["kill", id]).code, 0);
}

/// The value of a secret comes inside by no variable of a program that is started later.
#[test]
fn no_variable_of_exec_is_the_value_of_a_secret() {
    let fixture = Fixture::new().with("API_TOKEN", "t0ken-of-this-test");
    let secret =
        "secrets={ api = { from = \"env:API_TOKEN\", hosts = [\"served.test\"], ports = [80], env = \"TOKEN\" } }";
    let created = fixture.run(&words(&["create", "--set", secret], &flags(served()), &[]));
    assert_eq!(created.code, 0, "{created:?}");
    let id = created.out.trim_end();
    for value in ["t0ken-of-this-test", "Bearer t0ken-of-this-test, x"] {
        let said = fixture.run(&["exec", "--env", &format!("MINE={value}"), id, "--", "env"]);
        assert!(said.code == 125 && said.err.contains("`MINE`") && said.err.contains("`api`"), "{said:?}");
        assert!(!format!("{said:?}").contains("t0ken-of-this-test"), "{said:?}");
    }
    let typed = fixture.run(&["exec", "--json", "--env", "MINE=t0ken-of-this-test", id, "--", "env"]).json();
    assert_eq!(typed["errors"][0]["id"], "secrets/brought", "{typed}");
    let said =
        fixture.run(&["exec", "--env", "MINE=t0ken-of-another", id, "--", "sh", "-c", "echo $MINE ${TOKEN%%-*}"]);
    assert_eq!((said.code, said.out.as_str()), (0, "t0ken-of-another fumehood\n"), "{said:?}");
    assert_eq!(fixture.run(&["kill", id]).code, 0);
}

/// Other rules that are not taken are told by their clause, with what to do.
pub(super) fn is_refused_by_its_clause(fixture: &Fixture, rules: &[String], id: &str) {
    let typed = fixture.run(&words(&["net", "set", "--json", "--set", "net.mode=allow"], rules, &[id])).json();
    let told = &typed["errors"][0];
    assert!(told["id"] == "net/rules-refused" && told["where"].as_str().unwrap().contains("`net."), "{typed}");
    assert!(!told["fix"].as_str().unwrap().is_empty(), "{typed}");
}

/// What a sandbox that lives cannot be given is refused by its name, and a call without a rule closes nothing.
pub(super) fn nothing_but_rules_is_taken(fixture: &Fixture, id: &str) {
    let secret = "secrets={ api = { from = \"env:PATH\", hosts = [\"served.test\"], ports = [80] } }";
    let document = fixture.path("limits.toml");
    std::fs::write(&document, "version = 1\n[limits]\nmemory = \"64M\"\n").unwrap();
    let with_secrets = fixture.path("secrets.toml");
    let text = "version = 1\n[net]\nmode = \"allow\"\nallow = [\"example.org\"]\n[secrets.api]\nfrom = \"env:PATH\"\nhosts = [\"example.org\"]\n";
    std::fs::write(&with_secrets, text).unwrap();
    for (args, told) in [
        (vec!["--memory", "1G", "--net", "none"], "--memory"),
        (vec!["--set", "limits.memory=1G", "--net", "none"], "limits.memory"),
        (vec!["--set", secret, "--net", "none"], "secrets"),
        (vec![], "--net none"),
        (vec!["-p", document.to_str().unwrap()], "--net none"),
        (vec!["-p", with_secrets.to_str().unwrap()], "`secrets` of sandbox"),
    ] {
        let said = fixture.run(&[&["net", "set"], args.as_slice(), &[id]].concat());
        assert!(said.code == 125 && said.err.contains(told), "{args:?}: {said:?}");
    }
}
