//! What each request is answered.

use super::*;

#[tokio::test]
async fn a_call_is_judged_run_and_answered_the_same_over_both_kinds_of_socket() {
    let unix = street(|dir| Listen::Unix(dir.join("door")), &[]).await;
    for street in [on_loopback().await, unix] {
        let (status, body) = street.post(&street.agent, "/v1/tools/open:call", CALL).await;
        assert_eq!((status, &body["result"]["content"][0]["text"]), (200, &json!(r#"open {"n":1}"#)), "{body}");
        assert_eq!(body["decision"], "allow");
        let (status, body) = street.post(&street.agent, "/v1/tools/open:check", CALL).await;
        assert_eq!((status, &body["decision"], &body["args"]), (200, &json!("allow"), &json!({"n": 1})));
        let (status, body) = street.post(&street.agent, "/v1/tools/shut:call", CALL).await;
        assert_eq!(
            (status, &body["id"], &body["reasons"][0]["instead"]),
            (403, &json!("tools.entry/none"), &json!("open"))
        );
        let (status, body) = street.post(&street.agent, "/v1/tools/bare:call", CALL).await;
        assert_eq!((status, &body["id"]), (404, &json!("tools.http/no-implementation")));
        let (status, body) = street.get(&street.agent, "/v1/tools").await;
        assert_eq!((status, &body["tools"][0]["name"]), (200, &json!("open")));
        assert_eq!(street.ran(), 1);
    }
}

#[tokio::test]
async fn what_could_be_read_in_two_ways_is_refused() {
    let street = on_loopback().await;
    let bodies = [
        (r#"{"args": {"a": 1, "a": 2}}"#, 400),
        (r#"{"args": {"a": 1e999}}"#, 400),
        (r#"{"args": {"a": NaN}}"#, 400),
        (r#"{"args": {"a": 9007199254740993}}"#, 400),
        (r#"{"args": {}} {}"#, 400),
        ("\u{feff}{\"args\": {}}", 400),
        (r#"{"args": {}, "session": "other"}"#, 400),
        (r#"["args"]"#, 400),
        ("{", 400),
    ];
    for (body, wanted) in bodies {
        let (status, answer) = street.post(&street.agent, "/v1/tools/open:call", body).await;
        assert_eq!(status, wanted, "{body}: {answer}");
    }
    let bearer = format!("Bearer {}", street.agent);
    let form = [("Authorization", bearer.as_str()), ("Content-Type", "text/plain")];
    assert_eq!(street.send("POST /v1/tools/open:call", &form, CALL).await.0, 415);
    assert_eq!(street.send("PUT /v1/tools/open:call", &[("Authorization", &bearer)], "").await.0, 404);
    let huge =
        [("Authorization", bearer.as_str()), ("Content-Type", "application/json"), ("Content-Length", "999999999")];
    assert_eq!(street.send("POST /v1/tools/open:call", &huge, "").await.0, 413);
    for path in ["/v1/tools/open", "/v1/tools/open:run", "/v1/tools", "/v1/tools/", "/", "/v1/approvalsx", "/v2/tools"]
    {
        assert_eq!(street.post(&street.agent, path, CALL).await.0 / 100, 4, "{path}");
    }
    // Spelled otherwise, a tool is another one, and an unknown one at that.
    for path in ["/v1/tools/%6fpen:call", "/v1/tools/OPEN:call", "/v1/tools/./open:call", "/v1/tools//open:call"] {
        assert_eq!(street.post(&street.agent, path, CALL).await.0, 403, "{path}");
    }
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn a_parked_call_is_answered_by_people_and_then_made_with_exactly_its_arguments() {
    let street = on_loopback().await;
    let wait = async |n: usize| loop {
        let (_, body) = street.get(&street.person, "/v1/approvals").await;
        let calls = body["calls"].as_array().unwrap().clone();
        if calls.len() == n {
            break calls;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let answer = async {
        let id = wait(1).await[0]["id"].as_str().unwrap().to_owned();
        assert_eq!(street.ran(), 0, "nothing runs before somebody agrees");
        let (status, body) = street.post(&street.agent, &format!("/v1/approvals/{id}:approve"), "{}").await;
        assert_eq!(status, 403, "the agent does not agree with itself: {body}");
        for path in [format!("/v1/approvals/{}:approve", &id.to_uppercase()), "/v1/approvals/a-:approve".into()] {
            assert_eq!(street.post(&street.person, &path, "{}").await.0, 404, "{path}");
        }
        let swap = r#"{"args": {"n": 2}}"#;
        assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), swap).await.0, 400);
        let (status, body) = street.post(&street.person, &format!("/v1/approvals/{id}:approve"), "").await;
        assert_eq!((status, &body["call"]["state"]), (200, &json!("approved")));
        let (status, body) = street.post(&street.person, &format!("/v1/approvals/{id}:deny"), "").await;
        assert_eq!((status, &body["id"]), (409, &json!("tools.http/too-late")));
    };
    let ((status, body), ()) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), answer);
    assert_eq!((status, &body["result"]["content"][0]["text"]), (200, &json!(r#"ask {"n":1}"#)), "{body}");
    let denial = async {
        let id = wait(1).await[0]["id"].as_str().unwrap().to_owned();
        street.post(&street.person, &format!("/v1/approvals/{id}:deny"), r#"{"why": "no"}"#).await
    };
    let ((status, body), (said, _)) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), denial);
    assert_eq!((status, said, &body["id"], &body["detail"]), (403, 200, &json!("tools.approval/denied"), &json!("no")));
    assert_eq!(street.ran(), 1);
    let log = street.log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    assert_eq!(log, ["approval.approved", "approval.denied", "approval.lost", "approval.denied"]);
}

#[tokio::test]
async fn what_is_remembered_over_http_is_listed_and_revoked() {
    let street = on_loopback().await;
    let agree = async {
        let id = loop {
            if let Some(call) = street.approvals.list(false).unwrap().pop() {
                break call.id;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        for bad in [
            r#"{"remember": {}}"#,
            r#"{"remember": {"args": "n*", "for": "agent", "seconds": 60}}"#,
            r#"{"remember": {"args": {"any": ["x"]}, "for": "agent", "seconds": 60}}"#,
        ] {
            assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), bad).await.0, 400, "{bad}");
        }
        let body = r#"{"remember": {"args": {"any": ["n"]}, "for": "agent", "seconds": 3600}}"#;
        assert_eq!(street.post(&street.person, &format!("/v1/approvals/{id}:approve"), body).await.0, 200);
    };
    let ((status, _), ()) = tokio::join!(street.post(&street.agent, "/v1/tools/ask:call", CALL), agree);
    assert_eq!(status, 200);
    assert_eq!(street.post(&street.agent, "/v1/tools/ask:call", r#"{"args": {"n": 7}}"#).await.0, 200);
    let (_, body) = street.get(&street.person, "/v1/approvals/remembered").await;
    assert_eq!((&body["remembered"][0]["args"], &body["remembered"][0]["uses"]), (&json!({"n": "any"}), &json!(1)));
    let id = body["remembered"][0]["id"].as_str().unwrap();
    assert_eq!(street.post(&street.person, &format!("/v1/approvals/remembered/{id}:revoke"), "").await.0, 200);
    assert_eq!(street.post(&street.person, &format!("/v1/approvals/remembered/{id}:revoke"), "").await.0, 404);
    assert_eq!(street.ran(), 2);
}

#[tokio::test]
async fn a_caller_that_hangs_up_takes_its_question_back() {
    let street = on_loopback().await;
    let mut stream = TcpStream::connect(&street.address).await.unwrap();
    let head = format!(
        "POST /v1/tools/ask:call HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{CALL}",
        street.address,
        street.agent,
        CALL.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let waiting = async |n: usize| {
        for _ in 0..4000 {
            if street.approvals.list(false).unwrap().len() == n {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    assert!(waiting(1).await);
    drop(stream);
    assert!(waiting(0).await, "nobody is asked about a call that nobody waits for");
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn what_is_not_of_the_contract_is_answered_before_its_body_is_read() {
    let street = on_loopback().await;
    let (agent, person) = (street.agent.clone(), street.person.clone());
    for path in
        ["/v1/tools/", "/v1/tools/open", "/v1/tools/open:do", "/v1/sessions/s:stop", "/v2/tools", "/v1/toolsopen:call"]
    {
        let (status, body) = street.post(&agent, path, "{}").await;
        assert_eq!((status, &body["id"]), (404, &json!("tools.http/no-such")), "{path}");
    }
    let (status, body) = street.post(&agent, "/v1/nowhere", "no JSON").await;
    assert_eq!((status, &body["id"]), (404, &json!("tools.http/no-such")));
    // Nothing is decoded: this is another tool, which is unknown.
    assert_eq!(street.post(&agent, "/v1/tools/%6Fpen:call", CALL).await.0, 403);
    for path in ["/v1/approvals", "/v1/approvals/remembered", "/v1/approvals/x:approve", "/v1/approvals/a/b/c"] {
        assert_eq!((street.get(&agent, path).await.0, street.post(&agent, path, "{}").await.0), (403, 403), "{path}");
    }
    assert_eq!(street.post(&person, "/v1/approvals", "{}").await.0, 404);
    assert_eq!(street.post(&person, "/v1/sessions", "{}").await.0, 404, "people have no sessions");
    let bearer = format!("Bearer {agent}");
    assert_eq!(street.send("HEAD /v1/tools", &[("Authorization", &bearer)], "").await.0, 404, "HEAD is no GET here");
    assert_eq!(street.ran(), 0);
}
