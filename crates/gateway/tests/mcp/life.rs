//! Servers that end, start late or are not there; cancellation; sessions beside each other.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::ends::running;
use crate::stage::{ALL, PATIENCE, QUIET, Stage, is_error, text};

#[tokio::test]
async fn the_end_of_a_server_is_answered_at_once_and_it_comes_back() {
    let stage = Stage::new(ALL).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    client.tools().await;
    let begun = Instant::now();
    let waiting = client.ask("tools/call", json!({"name": "a__slow", "arguments": {}})).await;
    stage.reached("a", 1).await;
    let answer = client.call("a__crash", json!({})).await;
    assert!(is_error(&answer) && text(&answer).contains("exit code 3"), "{answer}");
    assert!(text(&answer).contains("a word on stderr \\u{1b}"), "{answer}");
    assert!(is_error(&client.answer(waiting).await));
    assert!(begun.elapsed() < PATIENCE);
    // Its tools are gone and come back; the other server's never go.
    let both = loop {
        let tools = client.tools().await;
        assert!(tools.contains(&"b__echo".to_owned()));
        if tools.contains(&"a__echo".to_owned()) {
            break tools;
        }
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(both.len() > 40);
    assert!(!is_error(&client.call("a__echo", json!({})).await));
    assert!(client.heard.iter().any(|message| message["method"] == "notifications/tools/list_changed"));
    client.end().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_hides_its_own_tools_with_a_note() {
    let stage = Stage::new(ALL).server("b", &["--no-such-option"]);
    let mut client = stage.met(json!({})).await;
    let answer = client.request("tools/list", json!({})).await;
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert!(!tools.is_empty() && tools.iter().all(|tool| tool["name"].as_str().unwrap().starts_with("a__")));
    let notes = answer["result"]["_meta"]["fumehood/notes"].to_string();
    assert!(notes.contains("`b` is not there") && notes.contains("unrecognized arguments"), "{notes}");
    let answer = client.call("b__echo", json!({})).await;
    assert!(answer["error"]["message"].as_str().unwrap().contains("`b` is not there"), "{answer}");
    client.end().await;
}

#[tokio::test]
async fn pauses_between_starts_grow() {
    let stage = Stage::new(ALL).server("a", &["--no-such-option"]);
    let mut client = stage.met(json!({})).await;
    let begun = Instant::now();
    // What is left of a pause only shrinks; when it is longer than before, there was another start.
    let (mut starts, mut left) = (0, 0.0);
    while begun.elapsed() < Duration::from_secs(4) || starts < 2 && begun.elapsed() < PATIENCE {
        let answer = client.request("tools/list", json!({})).await;
        let note = answer["result"]["_meta"]["fumehood/notes"][0].as_str().unwrap().to_owned();
        let said = note.split_once("again in ").and_then(|(_, rest)| rest.split_once(' ')?.0.parse::<f64>().ok());
        starts += usize::from(said.is_some_and(|said| said > left));
        left = said.unwrap_or(left);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!((2..=8).contains(&starts), "pauses do not hold: {starts}");
    client.end().await;
}

#[tokio::test]
async fn a_call_to_one_server_does_not_wait_for_another_that_starts_slowly() {
    let stage = Stage::new(ALL).server("b", &["--slow-start", "60"]);
    let mut client = stage.met(json!({})).await;
    let begun = Instant::now();
    assert!(!is_error(&client.call("a__echo", json!({})).await));
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    client.end().await;
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_its_server_and_gets_no_answer() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    client.tools().await;
    let slow = client.ask("tools/call", json!({"name": "a__slow", "arguments": {}})).await;
    let other = client.ask("tools/call", json!({"name": "a__slow", "arguments": {"other": 1}})).await;
    stage.reached("a", 2).await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": slow}})).await;
    assert_eq!(text(&client.answer(other).await), "slow", "the call beside it goes on");
    assert!(client.heard.iter().all(|message| message["id"] != slow));
    let calls = stage.calls("a");
    let its = calls.iter().find(|call| call["params"]["arguments"] == json!({})).unwrap();
    let cancelled: Vec<_> = stage.log("a").into_iter().filter(|m| m["method"] == "notifications/cancelled").collect();
    assert_eq!(cancelled.len(), 1);
    assert_eq!(cancelled[0]["params"]["requestId"], its["id"], "with the id of that hop");
    assert_ne!(its["id"], json!(slow), "ids of one hop are not used on the next");
    assert!(stage.log("a").iter().any(|m| m["stopped"] == its["id"]));
    client.end().await;
}

#[tokio::test]
async fn a_call_that_was_given_up_keeps_its_place_until_its_server_ended_which_waits_for_other_calls() {
    let one = "[[tools.tool]]\nname = \"a.stuck\"\ndecision = \"allow\"\neffect = \"read\"\nconcurrency = 1\n";
    let stage = Stage::new(&format!("{ALL}{one}"));
    let mut client = stage.met(json!({})).await;
    client.tools().await;
    let stuck = client.ask("tools/call", json!({"name": "a__stuck", "arguments": {}})).await;
    stage.reached("a", 1).await;
    client.send(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": stuck}})).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // It takes five seconds: longer than its server is given to say that it stopped.
    let slow = client.ask("tools/call", json!({"name": "a__slow", "arguments": {}})).await;
    tokio::time::sleep(Duration::from_millis(3500)).await;
    let early = client.call("a__stuck", json!({})).await;
    assert!(text(&early).contains("tools.concurrency/exceeded"), "its server works on, and answers nothing: {early}");
    assert_eq!(text(&client.answer(slow).await), "slow", "it is not ended under another call");
    let begun = Instant::now();
    while stage.calls("a").len() < 3 {
        assert!(begun.elapsed() < PATIENCE, "it is ended, and another one takes calls");
        client.ask("tools/call", json!({"name": "a__stuck", "arguments": {}})).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // It ignores the end of its input and signals: its place was not free before it was killed.
    assert_eq!(running(&stage), 1);
    client.end().await;
}

#[tokio::test]
async fn progress_comes_back_under_the_clients_own_token() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    let params = json!({"name": "a__progress", "arguments": {}, "_meta": {"progressToken": "tok-7", "traceparent": "00-a-b-01"}});
    client.request("tools/call", params).await;
    let told: Vec<_> = client.heard.iter().filter(|m| m["method"] == "notifications/progress").collect();
    assert_eq!(told.len(), 5);
    for (step, message) in told.iter().enumerate() {
        assert_eq!(message["params"]["progressToken"], "tok-7");
        assert_eq!(message["params"]["progress"], step);
        assert_eq!(message["params"]["message"], format!("at \\u{{1b}}[31m{step}"));
    }
    let call = &stage.calls("a")[0];
    assert_ne!(call["params"]["_meta"]["progressToken"], "tok-7");
    assert_eq!(call["params"]["_meta"]["traceparent"], "00-a-b-01", "what is nobody's own travels on");
    client.end().await;
}

#[tokio::test]
async fn sessions_have_servers_of_their_own() {
    let stage = Stage::new(ALL);
    let gateway = stage.gateway();
    let (mut one, mut two) = (crate::stage::Client::of(gateway.clone()), crate::stage::Client::of(gateway));
    one.handshake(json!({})).await;
    two.handshake(json!({})).await;
    one.tools().await;
    two.tools().await;
    one.call("a__crash", json!({})).await;
    assert!(!is_error(&two.call("a__echo", json!({})).await));
    one.call("a__storm", json!({})).await;
    assert!(two.next_within(QUIET).await.is_none(), "nothing of one session reaches the other");
    one.end().await;
    assert!(!is_error(&two.call("a__echo", json!({})).await));
    two.end().await;
}

#[tokio::test]
async fn nothing_of_a_session_is_left_after_its_end() {
    let stage = Stage::new(ALL);
    let mut client = stage.met(json!({})).await;
    client.tools().await;
    let log = stage.path("a.log").display().to_string();
    let running = || {
        let of = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(of).filter(|line| line.contains(&log)).count()
    };
    assert_eq!(running(), 1);
    client.end().await;
    assert_eq!(running(), 0);
}

#[tokio::test]
async fn two_hundred_calls_at_once_each_get_their_own_answer() {
    let stage = Stage::new(ALL).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    client.tools().await;
    let mut ids = Vec::new();
    for number in 0..200 {
        let server = if number % 2 == 0 { "a" } else { "b" };
        ids.push((
            client.ask("tools/call", json!({"name": format!("{server}__echo"), "arguments": {"n": number}})).await,
            number,
        ));
    }
    for _ in 0..200 {
        let answer = client.until(|message| message.get("result").is_some()).await;
        let (_, number) = ids.iter().find(|(id, _)| answer["id"] == *id).unwrap();
        assert_eq!(answer["result"]["structuredContent"]["got"]["n"], *number);
    }
    client.end().await;
}

/// `server-everything` says that its list changed as soon as it is greeted: the list that is being taken is then already old.
#[tokio::test]
async fn a_server_whose_list_changes_while_it_is_taken_is_called_and_makes_no_other_servers_list_old() {
    let stage = Stage::new(ALL).server("a", &["--restless"]).server("b", &[]);
    let mut client = stage.met(json!({})).await;
    assert!(!is_error(&client.call("b__echo", json!({"n": 0})).await));
    let lists = |server: &str| stage.log(server).iter().filter(|message| message["method"] == "tools/list").count();
    let before = lists("b");
    for n in 1..4 {
        let answer = client.call("a__echo", json!({ "n": n })).await;
        assert_eq!(answer["result"]["structuredContent"], json!({"got": {"n": n}}), "{answer}");
        assert!(!is_error(&client.call("b__echo", json!({ "n": n })).await));
    }
    assert_eq!(lists("b"), before);
    assert!(client.tools().await.contains(&"a__echo".to_owned()));
    client.end().await;
}

#[tokio::test]
async fn a_server_that_hangs_delays_nobodys_list_and_is_told_of() {
    let policy = format!("{ALL}\n[mcp]\nresources = [\"a:file:///work/**\", \"b:memo://*\"]\n");
    let stage = Stage::new(&policy).server("b", &["--slow-start", "60"]);
    let mut client = stage.met(json!({})).await;
    // The other is up: what the list takes now is what is waited for the one that hangs.
    assert!(!is_error(&client.call("a__echo", json!({})).await));
    let begun = Instant::now();
    assert!(client.tools().await.contains(&"a__echo".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    let told = client.heard.iter().find(|m| m["method"] == "notifications/message").unwrap().clone();
    assert!(told["params"]["data"].as_str().unwrap().contains("`b` is still starting"), "{told}");
    let begun = Instant::now();
    assert!(client.tools().await.contains(&"a__echo".to_owned()));
    assert!(
        begun.elapsed() < Duration::from_secs(3),
        "who was late once is not waited for again: {:?}",
        begun.elapsed()
    );
    let begun = Instant::now();
    let resources = client.request("resources/list", json!({})).await;
    assert_eq!(resources["result"]["resources"].as_array().unwrap().len(), 1, "{resources}");
    assert!(begun.elapsed() < Duration::from_secs(3), "nor for what else it has: {:?}", begun.elapsed());
    client.end().await;
}

#[tokio::test]
async fn a_server_that_starts_slowly_follows() {
    let policy = format!("{ALL}\n[mcp]\nresources = [\"a:file:///work/**\", \"b:memo://*\"]\n");
    let stage = Stage::new(&policy).server("b", &["--slow-start", "6"]);
    let mut client = stage.met(json!({})).await;
    assert!(!is_error(&client.call("a__echo", json!({})).await));
    let begun = Instant::now();
    let resources = client.request("resources/list", json!({})).await;
    assert!(
        resources["result"]["_meta"]["fumehood/notes"].to_string().contains("`b` is still starting"),
        "{resources}"
    );
    assert!(!client.tools().await.contains(&"b__echo".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    client.until(|message| message["method"] == "notifications/tools/list_changed").await;
    while !client.tools().await.contains(&"b__echo".to_owned()) {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    client.end().await;
}

/// `npx` asks a registry for a minute before it gives up.
#[tokio::test]
async fn a_server_whose_command_says_that_it_cannot_come_up_is_not_waited_for() {
    let stage = Stage::new(ALL).npx("b");
    let mut client = stage.met(json!({})).await;
    assert!(!is_error(&client.call("a__echo", json!({})).await));
    let begun = Instant::now();
    let answer = client.request("tools/list", json!({})).await;
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
    assert!(answer["result"]["_meta"]["fumehood/notes"].to_string().contains("fumehood mcp fetch b"), "{answer}");
    client.end().await;
}
