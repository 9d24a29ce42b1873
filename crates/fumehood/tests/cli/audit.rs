//! `fumehood audit show | tail | verify`

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use sandbox::audit::{Kind, Log, Options};
use sandbox::state::{Places, State};
use serde_json::json;

use crate::Fixture;

/// A log of `n` events in the state folder of `fixture`.
fn log(fixture: &Fixture, n: usize) -> Log {
    let places = Places {
        fumehood_state: Some(fixture.state()),
        euid: rustix::process::geteuid().as_raw(),
        ..Places::default()
    };
    let state = State::open(&places).unwrap();
    let log = Log::open(&state, None, Options::default()).unwrap();
    for i in 0..n {
        log.append("r-20261122-013045-7f3a9c", &Kind::run_planned(), &json!({ "n": i })).unwrap();
    }
    log
}

#[test]
fn an_intact_log_is_verified() {
    let fixture = Fixture::new();
    drop(log(&fixture, 3));
    let said = fixture.run(&["audit", "verify"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(said.out.starts_with("intact: 3 events, chained to "), "{}", said.out);
    assert_eq!(fixture.run(&["audit", "verify", "--json"]).json()["verdict"]["events"], 3);
}

#[test]
fn an_edited_log_is_broken_and_the_event_is_named() {
    let fixture = Fixture::new();
    drop(log(&fixture, 3));
    let file = fixture.state().join("audit/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace(r#"{"n":1}"#, r#"{"n":7}"#)).unwrap();
    let said = fixture.run(&["audit", "verify"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert!(said.out.starts_with("broken: event 2 in `$DIR/state/audit/audit.jsonl`, line 2: "), "{}", said.out);
}

/// A mistyped folder would be an intact log of no events, and was made.
#[test]
fn a_folder_that_is_not_there_and_a_key_that_is_none_are_bad_usage() {
    let fixture = Fixture::new();
    drop(log(&fixture, 3));
    for command in ["verify", "show", "tail"] {
        let said = fixture.run(&["audit", command, "--dir", "nowhere"]);
        assert_eq!((said.code, said.out.as_str()), (125, ""), "{said:?}");
        assert!(said.err.contains("why: there is no such folder"), "{said:?}");
        assert!(!fixture.path("work/nowhere").exists());
    }
    let said = fixture.run(&["audit", "verify", "--key", "abc"]);
    assert!(said.code == 125 && said.err.contains("64 hexadecimal digits"), "{said:?}");
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0, "its end signs");
    let key = fixture.run(&["audit", "verify", "--json"]).json()["verdict"]["key"].as_str().unwrap().to_uppercase();
    assert_eq!(fixture.run(&["audit", "verify", "--key", &key]).code, 0);
}

#[test]
fn a_log_that_is_gone_is_cut_off_and_nothing_says_that_it_was_never_signed() {
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    std::fs::remove_file(fixture.state().join("audit/audit.jsonl")).unwrap();
    let said = fixture.run(&["audit", "verify"]);
    assert!(said.code == 1 && said.out.contains("was signed: it was cut off"), "{said:?}");
    assert!(!said.out.contains("no checkpoint") && !said.out.contains("line 0"), "{said:?}");
}

/// Checkpoints lie under the identity of the log, not under its path: a copy that was cut short was intact.
#[test]
fn a_copied_state_folder_takes_its_checkpoints_along() {
    let fixture = Fixture::new();
    for _ in 0..3 {
        assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    }
    let copied =
        crate::script("cp -a \"$FUMEHOOD_STATE\" ../copy && mv \"$FUMEHOOD_STATE\" ../gone", &fixture).status();
    assert!(copied.unwrap().success());
    let copy = fixture.path("copy").to_str().unwrap().to_owned();
    let fixture = fixture.with("FUMEHOOD_STATE", &copy);
    let whole = fixture.run(&["audit", "verify"]);
    assert!(whole.code == 0 && whole.out.contains("intact") && !whole.out.contains("no checkpoint"), "{whole:?}");
    let log = fixture.path("copy/audit/audit.jsonl");
    let text = std::fs::read_to_string(&log).unwrap();
    let first = text.lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    std::fs::write(&log, first).unwrap();
    let cut = fixture.run(&["audit", "verify"]);
    assert!(cut.code == 1 && cut.out.contains("it was cut off"), "{cut:?}");
}

#[test]
fn an_end_that_cannot_be_signed_is_our_failure_and_no_refusal() {
    use std::os::unix::fs::PermissionsExt as _;
    let fixture = Fixture::new();
    assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
    let key = fixture.state().join("keys/audit.key");
    std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = fixture.run(&["run", "-q", "--", "echo", "ran"]);
    assert!(said.out == "ran\n" && said.err.contains("the signing key of the audit log is not usable"), "{said:?}");
    assert_eq!(said.code, 125, "126 would say that nothing was run");
}

#[test]
fn what_stands_in_the_place_of_the_log_is_named_and_refuses_the_run() {
    for (make, why) in [
        ("mkfifo", "it is a pipe, a socket or a device, and no file"),
        ("mkdir", "it is a directory"),
        ("ln -s /nowhere", "it is a symbolic link, and none is followed"),
    ] {
        let fixture = Fixture::new();
        assert_eq!(fixture.run(&["run", "-q", "--", "true"]).code, 0);
        let file = fixture.state().join("audit/audit.jsonl");
        std::fs::remove_file(&file).unwrap();
        let made = crate::script(&format!("{make} {}", file.display()), &fixture).status().unwrap();
        assert!(made.success(), "{make}");
        let said = fixture.run(&["run", "--", "echo", "ran"]);
        assert!(said.code == 126 && said.err.contains(why) && said.err.contains("move it away"), "{make}: {said:?}");
        assert_eq!(said.out, "", "{make}");
        let said = fixture.run(&["audit", "verify"]);
        assert!(said.code == 125 && said.err.contains(why), "{make}: {said:?}");
    }
}

/// A refusal stood in the log of the state folder, whatever the policy named, and with what it was given.
#[test]
fn a_refusal_is_in_the_log_that_the_policy_names_and_has_no_value() {
    let fixture = Fixture::new();
    let events = |folder: &str| std::fs::read_to_string(fixture.path(folder).join("audit.jsonl")).unwrap_or_default();
    let said =
        fixture.run(&["run", "--tier", "language", "--env", "TOKEN=hunter2", "--lang", "python", "--code", "print(1)"]);
    assert_eq!((said.code, said.out.as_str()), (126, ""), "{said:?}");
    let ours = events("state/audit");
    assert!(ours.contains("run.refused") && ours.contains("env.set") && !ours.contains("hunter2"), "{ours}");
    let own = fixture.path("own").to_str().unwrap().to_owned();
    let policy = |content: &str| {
        let text = format!(
            "version = 1\ncommands.programs = [{{ name = \"grep\", args = \"read-only\" }}]\n[audit]\n\
             content = \"{content}\"\npath = \"{own}\"\nredact = [\"hunter3[a-z]*\"]\n"
        );
        std::fs::write(fixture.path("work/p.toml"), text).unwrap();
    };
    policy("hash");
    let said = fixture.run(&["run", "-p", "p.toml", "--", "curl", "-H", "Authorization: hunter4"]);
    assert_eq!(said.code, 126, "{said:?}");
    assert!(events("own").contains("run.refused") && !events("own").contains("hunter4"), "{}", events("own"));
    policy("full");
    assert_eq!(fixture.run(&["run", "-p", "p.toml", "--", "hunter3tool", "hunter3argument"]).code, 126);
    assert!(!events("own").contains("hunter3"), "{}", events("own"));
    assert_eq!(events("state/audit"), ours, "the state folder's own log is not the one that was named");
}

/// The plan and the flags are kept, not what they hand in.
#[test]
fn a_login_of_a_proxy_and_the_words_of_a_secrets_command_are_in_no_record() {
    let fixture = Fixture::new();
    std::fs::write(
        fixture.path("work/p.toml"),
        "version = 1\nextends = \"python\"\nnet.mode = \"allow\"\n\
         net.allow = [{ host = \"a.example\", ports = [443] }]\n[secrets.key]\n\
         from = \"command:/bin/echo hunter5secret\"\nhosts = [\"a.example\"]\n\
         as = { header = \"Authorization\" }\nenv = \"KEY\"\n",
    )
    .unwrap();
    let proxy = "net.proxy=http://me:hunter6@proxy.example:3128";
    let said = fixture.run(&["run", "-p", "p.toml", "--set", proxy, "--", "true"]);
    let log = std::fs::read_to_string(fixture.state().join("audit/audit.jsonl")).unwrap();
    assert!(log.contains("a.example") || said.code != 0, "{said:?}");
    assert!(log.contains("run.") && !log.contains("hunter5") && !log.contains("hunter6"), "{said:?} {log}");
}

#[test]
fn show_filters_and_limits() {
    let fixture = Fixture::new();
    drop(log(&fixture, 5));
    let numbers = |args: &[&str]| -> Vec<u64> {
        let json = fixture.run(&[&["audit", "show", "--json"], args].concat()).json();
        json["events"].as_array().unwrap().iter().map(|e| e["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers(&[]), [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&["-n", "2"]), [4, 5]);
    assert_eq!(numbers(&["--run", "r-other"]), [0; 0]);
    assert_eq!(numbers(&["--kind", "run"]), [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&["--kind=run.ended"]), [0; 0]);
    assert_eq!(numbers(&["--since", "10m"]), [1, 2, 3, 4, 5]);
    assert_eq!(numbers(&["--since", "2999-01-01T00:00:00Z"]), [0; 0]);
    for (kind, count) in [("approval.", 0), ("tool.denied", 0), ("gc", 0), ("workspace", 0)] {
        assert_eq!(numbers(&["--kind", kind]).len(), count, "{kind} is one");
    }
    let none = fixture.run(&["audit", "show", "--run", "r-other"]);
    none.is(0, "", "no events, or none that was asked for\n");
    let text = fixture.run(&["audit", "show", "-n1"]).out;
    assert!(text.starts_with("     5  ") && text.trim_end().ends_with(r#"{"n":4}"#), "{text}");
}

#[test]
fn bad_filters_are_bad_usage() {
    let fixture = Fixture::new();
    for (args, fix) in [
        (["--since", "tomorrow"], "10m"),
        (["-n", "-1"], "why: it is no whole number"),
        (["--kind", "run.endd"], "run.ended, run.aborted"),
    ] {
        let said = fixture.run(&[&["audit", "show"][..], &args].concat());
        assert_eq!((said.code, said.out.as_str()), (125, ""));
        assert!(said.err.contains(fix), "{}", said.err);
    }
}

#[test]
fn tail_shows_what_is_there_and_what_comes() {
    let fixture = Fixture::new();
    let log = log(&fixture, 3);
    let mut child = fixture.command(&["audit", "tail", "--json", "-n", "1"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<serde_json::Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["seq"], 3);
    log.append("", &Kind::gc(), &json!({})).unwrap();
    let event = next();
    assert_eq!((event["seq"].as_u64(), event["kind"].as_str()), (Some(4), Some("gc")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_state_folder_that_cannot_be_had_is_named_with_its_variable() {
    let fixture = Fixture::new().with("FUMEHOOD_STATE", "relative/state");
    let said = fixture.run(&["audit", "show"]);
    assert_eq!((said.code, said.out.as_str()), (125, ""));
    assert!(said.err.contains("FUMEHOOD_STATE"), "{}", said.err);
}
