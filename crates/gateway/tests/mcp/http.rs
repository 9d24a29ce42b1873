//! The front door over HTTP: who is let in, sessions, streams, both revisions.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gateway::http::{Keys, Listen};
use gateway::mcp::Gateway;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value as Json, json};
use tokio_util::sync::CancellationToken;

use crate::stage::{ALL, Client, PATIENCE, Stage, is_error, text};

/// A gateway that listens, and one that speaks to it.
pub(crate) struct Front {
    pub(crate) base: String,
    token: String,
    pub(crate) http: reqwest::Client,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

impl Front {
    pub(crate) async fn open(stage: &Stage) -> Self {
        Self::of(stage.gateway(), stage.dir.path()).await
    }

    async fn of(gateway: Arc<Gateway>, dir: &Path) -> Self {
        Self::at("127.0.0.1:0", gateway, dir).await
    }

    async fn at(address: &str, gateway: Arc<Gateway>, dir: &Path) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).unwrap();
        let mut keys = Keys::open(dir).unwrap();
        std::fs::write(dir.join("other.token"), "another-agents-own-token-long-enough\n").unwrap();
        std::fs::set_permissions(dir.join("other.token"), std::fs::Permissions::from_mode(0o600)).unwrap();
        keys.agent("other", &dir.join("other.token")).unwrap();
        let token = std::fs::read_to_string(dir.join("tools.token")).unwrap().trim().to_owned();
        let front = gateway::http::bind(&Listen::parse(address).unwrap()).await.unwrap();
        let base = front.address();
        let (stop, ends) = (CancellationToken::new(), CancellationToken::new());
        let until = stop.clone();
        drop(ends);
        let serving = tokio::spawn(async move {
            gateway::mcp::front::http::serve(front, gateway, keys, Vec::new(), until).await.unwrap();
        });
        if rustls::crypto::ring::default_provider().install_default().is_err() {
            // Another test has named it.
        }
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { base, token, http, stop, serving }
    }

    pub(crate) fn headers(&self, more: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        let mut put = |name: &str, value: &str| {
            map.insert(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
        };
        put("authorization", &format!("Bearer {}", self.token));
        put("content-type", "application/json");
        put("accept", "application/json, text/event-stream");
        for (name, value) in more {
            put(name, value);
        }
        map
    }

    async fn post(&self, body: &Json, more: &[(&str, &str)]) -> reqwest::Response {
        let request = self.http.post(format!("{}/mcp", self.base)).headers(self.headers(more)).body(body.to_string());
        tokio::time::timeout(PATIENCE, request.send()).await.unwrap().unwrap()
    }

    /// A handshake; the id of the session.
    pub(crate) async fn begin(&self, capabilities: Json) -> String {
        let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": {"name": "h", "version": "1"}});
        let answer =
            self.post(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}), &[]).await;
        assert_eq!(answer.status(), 200);
        let session = answer.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        assert_eq!(answer.json::<Json>().await.unwrap()["result"]["protocolVersion"], "2025-11-25");
        let told = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(self.post(&told, &[("mcp-session-id", &session)]).await.status(), 202);
        session
    }

    async fn call(&self, session: &str, id: i64, tool: &str, arguments: Json) -> reqwest::Response {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": arguments}});
        self.post(&body, &[("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")]).await
    }

    /// A request without state, with the headers that go with it.
    async fn alone(&self, method: &str, params: Json, name: Option<&str>) -> reqwest::Response {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": Client::described(params, &json!({"elicitation": {"form": {}}}))});
        let mut more = vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", method)];
        more.extend(name.map(|name| ("mcp-name", name)));
        self.post(&body, &more).await
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.serving).await.unwrap().unwrap();
    }
}

/// The messages of a stream, until it ends or nothing comes any more.
async fn events(mut response: reqwest::Response, time: Duration) -> Vec<Json> {
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut bytes = Vec::new();
    while let Ok(Ok(Some(chunk))) = tokio::time::timeout(time, response.chunk()).await {
        bytes.extend_from_slice(&chunk);
    }
    let text = String::from_utf8(bytes).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect()
}

#[tokio::test]
async fn gw_20_a_page_a_stranger_and_another_host_are_not_let_in() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let wrong = [
        (vec![("host", "evil.example")], 403),
        (vec![("host", "evil.example:80")], 403),
        (vec![("origin", "http://evil.example")], 403),
        (vec![("origin", "null")], 403),
        (vec![("origin", "http://127.0.0.1")], 403),
        (vec![("authorization", "Bearer wrong")], 401),
        (vec![("authorization", "Basic x")], 401),
        (vec![("authorization", "")], 401),
        (vec![("content-type", "text/plain")], 415),
        (vec![("accept", "application/json")], 406),
        (vec![("mcp-protocol-version", "1999-01-01")], 400),
        (vec![("mcp-session-id", "x"), ("authorization", "Bearer another-agents-own-token-long-enough")], 200),
    ];
    for (more, status) in wrong {
        let answer = front.post(&body, &more).await;
        assert_eq!(answer.status(), status, "{more:?}");
        if status != 200 {
            assert!(answer.headers().get("mcp-session-id").is_none());
        }
    }
    let people = std::fs::read_to_string(stage.path("approvals.token")).unwrap();
    let bearer = format!("Bearer {}", people.trim());
    assert_eq!(front.post(&body, &[("authorization", &bearer)]).await.status(), 403, "who agrees does not call");
    for method in [reqwest::Method::OPTIONS, reqwest::Method::PUT, reqwest::Method::PATCH] {
        let answer =
            front.http.request(method, format!("{}/mcp", front.base)).headers(front.headers(&[])).send().await.unwrap();
        assert_eq!(answer.status(), 405);
        assert!(answer.headers().get("access-control-allow-origin").is_none());
    }
    assert!(stage.log("a").is_empty());
    front.end().await;
}

#[tokio::test]
async fn gw_20_a_session_belongs_to_its_token_and_cannot_be_guessed() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let session = front.begin(json!({})).await;
    assert_eq!(session.len(), 32);
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    assert_eq!(front.post(&list, &[]).await.status(), 400, "a session must be named");
    for forged in ["0", "00000000000000000000000000000000", &session.to_uppercase(), &format!("{session}x"), "../x"] {
        if *forged != session {
            assert_eq!(front.post(&list, &[("mcp-session-id", forged)]).await.status(), 404, "{forged}");
        }
    }
    let other =
        [("mcp-session-id", session.as_str()), ("authorization", "Bearer another-agents-own-token-long-enough")];
    assert_eq!(front.post(&list, &other).await.status(), 404);
    assert_eq!(front.post(&list, &[("mcp-session-id", &session)]).await.status(), 200, "the control");
    let url = format!("{}/mcp", front.base);
    let gone = front.http.delete(&url).headers(front.headers(&other)).send().await.unwrap();
    assert_eq!(gone.status(), 404, "nor can another end it");
    let gone = front.http.delete(&url).headers(front.headers(&[("mcp-session-id", &session)])).send().await.unwrap();
    assert_eq!(gone.status(), 204);
    assert_eq!(front.post(&list, &[("mcp-session-id", &session)]).await.status(), 404, "an ended session begins anew");
    front.end().await;
}

#[tokio::test]
async fn an_answer_alone_is_json_and_with_progress_a_stream() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let session = front.begin(json!({})).await;
    let answer = front.call(&session, 1, "a__echo", json!({"x": 1})).await;
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(answer.json::<Json>().await.unwrap()["result"]["structuredContent"]["got"]["x"], 1);
    let params = json!({"name": "a__progress", "arguments": {}, "_meta": {"progressToken": "p"}});
    let body = json!({"jsonrpc": "2.0", "id": "two", "method": "tools/call", "params": params});
    let told = events(front.post(&body, &[("mcp-session-id", &session)]).await, PATIENCE).await;
    assert_eq!(told.len(), 6, "{told:?}");
    assert!(told[..5].iter().all(|m| m["method"] == "notifications/progress" && m["params"]["progressToken"] == "p"));
    assert_eq!(told[5]["id"], "two");
    front.end().await;
}

#[tokio::test]
async fn a_question_comes_on_the_stream_of_its_call_and_changes_on_the_standing_one() {
    let stage = Stage::new(&format!("{ALL}\n[mcp]\nelicitation = [\"a\"]\n"));
    let front = Front::open(&stage).await;
    let session = front.begin(json!({"elicitation": {}})).await;
    let url = format!("{}/mcp", front.base);
    let standing = front.http.get(&url).headers(front.headers(&[("mcp-session-id", &session)])).send().await.unwrap();
    assert_eq!(standing.status(), 200);
    front.call(&session, 1, "a__echo", json!({})).await;

    let mut call = front.call(&session, 2, "a__ask_user", json!({})).await;
    let chunk = tokio::time::timeout(PATIENCE, call.chunk()).await.unwrap().unwrap().unwrap();
    let asked: Json =
        serde_json::from_str(std::str::from_utf8(&chunk).unwrap().trim().strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(asked["method"], "elicitation/create");
    let reply =
        json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Ada"}}});
    assert_eq!(front.post(&reply, &[("mcp-session-id", &session)]).await.status(), 202);
    let rest = events(call, PATIENCE).await;
    assert!(rest[0].to_string().contains("Ada"), "{rest:?}");

    front.call(&session, 3, "a__storm", json!({})).await;
    // Two thousand changes are told as few, however slowly they come.
    let told = events(standing, Duration::from_secs(10)).await;
    let changes = told.iter().filter(|m| m["method"] == "notifications/tools/list_changed").count();
    assert!((1..=40).contains(&changes), "{told:?}");
    front.end().await;
}

#[tokio::test]
async fn gw_20_an_id_in_use_and_what_is_no_message_are_refused() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let session = front.begin(json!({})).await;
    front.call(&session, 1, "a__echo", json!({})).await;
    let slow = front.call(&session, 5, "a__slow", json!({}));
    let again = async {
        stage.reached("a", 2).await;
        front.call(&session, 5, "a__echo", json!({})).await
    };
    let (slow, again) = tokio::join!(slow, again);
    assert_eq!(again.status(), 400);
    assert_eq!(text(&slow.json::<Json>().await.unwrap()), "slow");
    for body in [
        "[]",
        "{",
        "null",
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"id\":2}",
        "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]",
    ] {
        let request = front
            .http
            .post(format!("{}/mcp", front.base))
            .headers(front.headers(&[("mcp-session-id", &session)]))
            .body(body);
        assert_eq!(request.send().await.unwrap().status(), 400, "{body}");
    }
    let huge = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":\"{}\"}}}}",
        "x".repeat(5 << 20)
    );
    let request = front
        .http
        .post(format!("{}/mcp", front.base))
        .headers(front.headers(&[("mcp-session-id", &session)]))
        .body(huge);
    assert!(request.send().await.map_or(true, |answer| answer.status() == 413));
    assert_eq!(stage.calls("a").len(), 2);
    front.end().await;
}

#[tokio::test]
async fn requests_without_state_need_no_session_and_say_the_same_in_headers_and_body() {
    let stage = Stage::new(&format!("{ALL}\n[mcp]\nelicitation = [\"a\"]\n"));
    let front = Front::open(&stage).await;
    let answer = front.alone("server/discover", json!({}), None).await;
    assert!(answer.headers().get("mcp-session-id").is_none());
    assert!(answer.json::<Json>().await.unwrap()["result"]["supportedVersions"].as_array().unwrap().len() > 1);
    let call = json!({"name": "a__echo", "arguments": {}});
    assert!(!is_error(&front.alone("tools/call", call.clone(), Some("a__echo")).await.json::<Json>().await.unwrap()));
    for name in [None, Some("a__slow"), Some("A__echo")] {
        let answer = front.alone("tools/call", call.clone(), name).await;
        assert_eq!(answer.status(), 400);
        assert_eq!(answer.json::<Json>().await.unwrap()["error"]["code"], -32020, "{name:?}");
    }
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": Client::described(call, &json!({}))});
    let lies = [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/list"), ("mcp-name", "a__echo")];
    assert_eq!(front.post(&body, &lies).await.status(), 400);
    assert_eq!(
        front.post(&body, &[("mcp-method", "tools/call"), ("mcp-name", "a__echo")]).await.status(),
        400,
        "the revision must be in the header"
    );
    assert_eq!(front.alone("no/such", json!({}), None).await.status(), 404);
    let url = format!("{}/mcp", front.base);
    let get =
        front.http.get(&url).headers(front.headers(&[("mcp-protocol-version", "2026-07-28")])).send().await.unwrap();
    assert_eq!(get.status(), 405);
    assert_eq!(stage.calls("a").len(), 1);

    // Asked back, over several requests.
    let first = front
        .alone("tools/call", json!({"name": "a__ask_user", "arguments": {}}), Some("a__ask_user"))
        .await
        .json::<Json>()
        .await
        .unwrap();
    let key = first["result"]["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let next = json!({"name": "a__ask_user", "arguments": {}, "requestState": first["result"]["requestState"],
        "inputResponses": { key: {"action": "accept", "content": {"name": "Ada"}} }});
    let done = front.alone("tools/call", next, Some("a__ask_user")).await.json::<Json>().await.unwrap();
    assert!(text(&done).contains("Ada"), "{done}");
    front.end().await;
}

#[tokio::test]
async fn closing_the_stream_of_a_request_without_state_cancels_its_call() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    front.alone("tools/call", json!({"name": "a__echo", "arguments": {}}), Some("a__echo")).await;
    let call = front.alone("tools/call", json!({"name": "a__slow", "arguments": {}}), Some("a__slow"));
    tokio::select! {
        answer = call => panic!("it is slow: {answer:?}"),
        () = stage.reached("a", 2) => {}
    }
    let slow = stage.calls("a").into_iter().find(|m| m["params"]["name"] == "slow").unwrap();
    // Its server is told.
    stage.comes(|| stage.log("a").iter().any(|m| m["stopped"] == slow["id"])).await;
    front.end().await;
}

#[tokio::test]
async fn sessions_over_http_have_servers_of_their_own_and_leave_nothing() {
    let stage = Stage::new(ALL);
    let front = Front::open(&stage).await;
    let (one, two) = (front.begin(json!({})).await, front.begin(json!({})).await);
    assert_ne!(one, two);
    front.call(&two, 1, "a__echo", json!({})).await;
    front.call(&one, 1, "a__crash", json!({})).await;
    let answer = front.call(&two, 2, "a__echo", json!({})).await.json::<Json>().await.unwrap();
    assert!(!is_error(&answer));
    let starts = stage.log("a").iter().filter(|m| m["method"] == "initialize").count();
    assert!(starts >= 2);
    let log = stage.path("a.log").display().to_string();
    front.end().await;
    let of = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
    let left =
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).map(of).filter(|line| line.contains(&log)).count();
    assert_eq!(left, 0);
}

/// The other side of HTTP: a gateway as the upstream of a gateway, over `rmcp`'s transport.
#[tokio::test]
async fn a_server_behind_http_is_reached_and_comes_back_after_it_was_gone() {
    let far = Stage::new(ALL);
    let front = Front::open(&far).await;
    let near = Stage::new("[[tools.tool]]\nname = \"far.a__echo\"\ndecision = \"allow\"\neffect = \"read\"\n[[tools.tool]]\nname = \"far.a__progress\"\ndecision = \"allow\"\neffect = \"read\"\n")
        .http("far", &format!("{}/mcp", front.base), &front.token);
    let mut client = near.met(json!({})).await;
    assert_eq!(client.tools().await, ["far__a__echo", "far__a__progress"]);
    let answer = client.call("far__a__echo", json!({"deep": [1, {"x": null}]})).await;
    assert_eq!(answer["result"]["structuredContent"], json!({"got": {"deep": [1, {"x": null}]}}));
    let params = json!({"name": "far__a__progress", "arguments": {}, "_meta": {"progressToken": 9}});
    client.request("tools/call", params).await;
    assert_eq!(
        client
            .heard
            .iter()
            .filter(|m| m["method"] == "notifications/progress" && m["params"]["progressToken"] == 9)
            .count(),
        5
    );
    let address = front.base.trim_start_matches("http://").to_owned();
    front.end().await;
    let gone = client.call("far__a__echo", json!({})).await;
    assert!(is_error(&gone), "nobody listens: {gone}");
    // Another process at the same place, which has never heard of the session.
    let front = Front::at(&address, far.gateway(), far.dir.path()).await;
    let mut answer = client.call("far__a__echo", json!({"n": 7})).await;
    for _ in 0..240 {
        if !is_error(&answer) && answer.get("error").is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
        answer = client.call("far__a__echo", json!({"n": 7})).await;
    }
    assert_eq!(answer["result"]["structuredContent"], json!({"got": {"n": 7}}), "{answer}");
    assert_eq!(client.tools().await, ["far__a__echo", "far__a__progress"]);
    client.end().await;
    front.end().await;
}
