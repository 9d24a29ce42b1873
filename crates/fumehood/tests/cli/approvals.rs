//! `fumehood approvals`: a gateway of ours parks calls in the state folder, a person answers with the product.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use gateway::approvals::{ApprovalAnswer, Approvals, Ask, Parked};
use policy::tools::Approval;
use sandbox::state::{Places, State};
use serde_json::{Value as Json, json};

use crate::{Fixture, Terminal};

/// The store of a fixture, as a gateway opens it.
fn store(fixture: &Fixture) -> Approvals {
    let places = Places {
        fumehood_state: Some(fixture.state()),
        euid: rustix::process::geteuid().as_raw(),
        ..Places::default()
    };
    Approvals::open(State::open(&places).unwrap().path()).unwrap()
}

fn park(store: &Approvals, args: Json) -> Parked {
    let ask = Ask {
        tool: "mail.send".into(),
        server: Some("mail".into()),
        hash: args.to_string(),
        args,
        rule: "tools.tool[0]".into(),
        reason: "a mail leaves the house".into(),
        agent: "local".into(),
        session: "s1".into(),
        approval: Approval::Never,
        by: policy::tools::ApprovalBy::Person,
    };
    store.ask(&ask).unwrap()
}

fn answer(parked: Parked) -> ApprovalAnswer {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(parked.wait(Duration::from_secs(60)))
}

#[test]
fn what_waits_is_listed_shown_and_approved_and_the_audit_log_knows_it() {
    let fixture = Fixture::new();
    let store = store(&fixture);
    fixture.run(&["approvals", "ls"]).is(0, "", "nothing waits for an answer\n");
    let parked = park(&store, json!({"to": "bob@pаypal.com", "body": "\u{1b}[2Jhello \u{202e}gnp"}));
    let id = parked.id().to_owned();

    let listed = fixture.run(&["approvals", "ls"]);
    assert!(
        listed.out.contains(id.get(..10).unwrap()) && listed.out.contains("a mail leaves the house"),
        "{}",
        listed.out
    );
    let shown = fixture.run(&["approvals", "show", id.get(..8).unwrap()]);
    assert!(shown.out.contains(r#""to": "bob@p\u{430}ypal.com""#), "{}", shown.out);
    assert!(shown.out.contains(r#""body": "\u{1b}[2Jhello \u{202e}gnp""#), "{}", shown.out);
    assert!(shown.out.contains("look: `\\u{430}` looks like `a`") && !shown.out.contains('\u{1b}'), "{}", shown.out);
    let json = fixture.run(&["approvals", "show", &id, "--json"]).json();
    assert_eq!(json["call"]["args"]["to"], "bob@pаypal.com", "programs get it as it is");
    assert_eq!(json["call"]["state"], "waiting");

    let said = fixture.run(&["approvals", "approve", &id]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(answer(parked).is_approved());
    let again = fixture.run(&["approvals", "approve", &id]);
    assert_eq!((again.code, again.err.as_str()), (1, "too late: the call is approved already\n"));
    assert_eq!(fixture.run(&["approvals", "deny", &id]).code, 1);

    let events = fixture.run(&["audit", "show", "--kind", "approval", "--json"]).json();
    let kinds: Vec<_> = events["events"].as_array().unwrap().iter().map(|e| e["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds[..3], ["approval.approved", "approval.approved", "approval.lost"]);
    assert_eq!(events["events"][0]["body"]["id"], id);
    assert_eq!(fixture.run(&["audit", "verify"]).code, 0);
}

#[test]
fn a_denial_carries_its_words_to_the_agent() {
    let fixture = Fixture::new();
    let parked = park(&store(&fixture), json!({"to": "a"}));
    let said = fixture.run(&["approvals", "deny", parked.id(), "--why", "ask legal first"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(matches!(answer(parked), ApprovalAnswer::Denied { why, .. } if why == "ask legal first"));
}

#[test]
fn ids_that_fit_nothing_or_too_much_answer_nothing() {
    let fixture = Fixture::new();
    let store = store(&fixture);
    let parked = park(&store, json!({}));
    for typed in [
        &["approvals", "approve"][..],
        &["approvals", "approve", "a-"],
        &["approvals", "approve", "a-000000"],
        &["approvals", "deny", "*"],
    ] {
        assert_eq!(fixture.run(typed).code, 125, "{typed:?}");
    }
    assert_eq!(store.list(false).unwrap().len(), 1);
    drop(parked);
}

#[test]
fn what_is_remembered_is_listed_and_can_be_taken_back() {
    let fixture = Fixture::new();
    let store = store(&fixture);
    let parked = park(&store, json!({"to": "a", "body": "x"}));
    let id = parked.id().to_owned();
    let bad = [
        &["--any", "body"][..],
        &["--remember", "tool", "--any", "body"],
        &["--remember", "args", "--for", "soon"],
        &["--remember", "args", "--any", "bcc"],
        &["--remember", "args", "--for", "31d"],
        &["--remember", "everything"],
    ];
    for flags in bad {
        let said = fixture.run(&[&["approvals", "approve", id.as_str()], flags].concat());
        assert_eq!(said.code, 125, "{flags:?}: {said:?}");
    }
    let said = fixture.run(&["approvals", "approve", &id, "--remember", "args", "--any", "body", "--for", "2h"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(answer(parked).is_approved());
    assert!(park(&store, json!({"to": "a", "body": "y"})).known().is_some_and(ApprovalAnswer::is_approved));
    assert!(park(&store, json!({"to": "b", "body": "y"})).known().is_none());
    let listed = fixture.run(&["approvals", "remembered"]);
    assert!(listed.out.contains("body = anything, to = \"a\""), "{}", listed.out);
    let memory = fixture.run(&["approvals", "remembered", "--json"]).json()["remembered"][0].clone();
    assert_eq!((memory["uses"].as_u64(), memory["call"].as_str()), (Some(1), Some(id.as_str())));
    let memory = memory["id"].as_str().unwrap();
    assert_eq!(fixture.run(&["approvals", "revoke", memory]).code, 0);
    assert_eq!(fixture.run(&["approvals", "revoke", memory]).code, 1);
    fixture.run(&["approvals", "remembered"]).is(0, "", "nothing is remembered\n");
    assert!(park(&store, json!({"to": "a", "body": "z"})).known().is_none());
}

#[test]
fn a_store_that_others_may_enter_is_refused_with_its_remedy() {
    let fixture = Fixture::new();
    drop(store(&fixture));
    std::fs::write(fixture.state().join("approvals.db"), vec![7_u8; 8192]).unwrap();
    let said = fixture.run(&["approvals", "ls"]);
    assert_eq!(said.code, 125);
    assert!(
        said.err.contains("error: the store of approvals cannot be used\n  --> $DIR/state/approvals.db\n"),
        "{}",
        said.err
    );
}

#[test]
fn watch_is_a_stream_of_lines_where_nobody_sits() {
    let fixture = Fixture::new();
    let store = store(&fixture);
    let before = park(&store, json!({"n": 1}));
    let mut child = fixture.command(&["approvals", "watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut next = || {
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let json: Json = serde_json::from_str(&line).unwrap();
        (json["event"].as_str().unwrap().to_owned(), json["call"]["id"].as_str().unwrap().to_owned())
    };
    assert_eq!(next(), ("waiting".into(), before.id().to_owned()));
    let after = park(&store, json!({"n": 2}));
    assert_eq!(next(), ("waiting".into(), after.id().to_owned()));
    store.deny(after.id(), "test", "").unwrap();
    assert_eq!(next(), ("denied".into(), after.id().to_owned()));
    let id = before.id().to_owned();
    drop(before);
    assert_eq!(next(), ("cancelled".into(), id));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
#[expect(clippy::disallowed_methods, reason = "that nothing happens can only be waited for")]
fn watch_asks_at_a_terminal_and_what_was_typed_too_early_agrees_to_nothing() {
    let fixture = Fixture::new();
    let store = store(&fixture);
    let mut terminal = Terminal::new(&fixture, &["approvals", "watch", "--color", "never"]);
    terminal.until("waiting for calls");
    // Typed before any call is on the screen: thrown away.
    terminal.types("y\ny\ny\n");
    std::thread::sleep(Duration::from_millis(500));
    let first = park(&store, json!({"to": "first\u{1b}[1m"}));
    let seen = terminal.until("agree?");
    assert!(seen.contains(r#""to": "first\u{1b}[1m""#), "{seen}");
    std::thread::sleep(Duration::from_millis(150));
    assert_eq!(store.get(first.id()).unwrap().unwrap().state.as_str(), "waiting");
    // A stray Return agrees to nothing; then a real answer.
    terminal.types("\n");
    terminal.until("agree?");
    terminal.types("y\n");
    terminal.until("approved: mail.send");
    assert!(answer(first).is_approved());
    let second = park(&store, json!({"to": "second"}));
    terminal.until("agree?");
    // Somebody else is faster: the screen says so, and a late key answers nothing.
    store.deny(second.id(), "bob", "").unwrap();
    terminal.until("is denied already");
    terminal.until("waiting for calls");
    terminal.types("q\n");
    assert_eq!(terminal.child.wait().unwrap().code(), Some(0));
}
