//! The webhook: signed, tried again, and no answer.

use super::super::webhook::{Webhook, verify};
use super::*;

/// Each failure was told, without what is behind the host: that may be a secret.
fn assert_told(said: &[String]) {
    assert_eq!(said.len(), 3, "{said:?}");
    assert!(said.first().unwrap().contains("500") && said.last().unwrap().contains("redirects are not followed"));
    assert!(said.iter().all(|why| !why.contains("x=1")), "{said:?}");
}

/// A receiver that fails twice, hangs up once, and then takes it.
#[tokio::test]
async fn a_webhook_is_signed_tried_again_and_neither_blocks_nor_approves() {
    let dir = folder();
    let approvals = Approvals::open(dir.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook?x=1", listener.local_addr().unwrap());
    let secret = b"0123456789abcdef".to_vec();
    let said = Arc::new(std::sync::Mutex::new(Vec::new()));
    let complaints = Arc::clone(&said);
    let complain = Box::new(move |why: &str| complaints.lock().unwrap().push(why.to_owned()));
    let hook = Webhook::with(&url, secret.clone(), [0, 20, 40, 60, 80].map(Duration::from_millis), complain).unwrap();
    let receiver = tokio::spawn(async move {
        let mut seen = Vec::new();
        for answer in ["500 No", "", "302 Found\r\nLocation: http://127.0.0.1:1/", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut text = Vec::new();
            let mut part = [0; 4096];
            while !String::from_utf8_lossy(&text).contains("}}") {
                let count = stream.read(&mut part).await.unwrap();
                text.extend_from_slice(part.get(..count).unwrap());
            }
            seen.push(String::from_utf8(text).unwrap());
            if !answer.is_empty() {
                // Whatever the body says, it is no answer.
                let body = r#"{"approve": true, "state": "approved"}"#;
                let response =
                    format!("HTTP/1.1 {answer}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
                stream.write_all(response.as_bytes()).await.unwrap();
            }
        }
        seen
    });
    let _listening = approvals.listen(None, Arc::new(hook));
    let ask = Ask {
        tool: "ask".into(),
        server: None,
        args: json!({"n": 1}),
        hash: gate::json::hash("ask", &json!({"n": 1})),
        rule: "r".into(),
        reason: "asked".into(),
        agent: "local".into(),
        session: "s".into(),
        approval: Approval::Never,
        by: policy::tools::ApprovalBy::Person,
    };
    let parked = approvals.ask(&ask).unwrap();
    let (id, waiting) = (parked.id().to_owned(), tokio::spawn(parked.wait(Duration::from_secs(60))));
    let seen = receiver.await.unwrap();
    // Time for the last word of the receiver to do what it must not.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(approvals.get(&id).unwrap().unwrap().state, State::Waiting, "telling is not answering");
    approvals.deny(&id, "alice", "").unwrap();
    assert!(matches!(waiting.await.unwrap(), ApprovalAnswer::Denied { by, .. } if by == "alice"));
    for text in &seen {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let header = |name: &str| {
            let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: "))).unwrap();
            line.split_once(": ").unwrap().1.to_owned()
        };
        let (then, signature) = (header("fumehood-timestamp"), header("fumehood-signature"));
        let now: u64 = then.parse().unwrap();
        assert!(verify(&secret, &then, &signature, body, now));
        assert!(!verify(&secret, &then, &signature, body, now + 301), "too old");
        assert!(!verify(&secret, &(now + 1).to_string(), &signature, body, now), "another time");
        assert!(!verify(&secret, &then, &signature, &body.replace("\"n\":1", "\"n\":2"), now), "another body");
        assert!(!verify(b"another secret!!", &then, &signature, body, now));
        assert!(!verify(&secret, &format!("0{then}"), &signature, body, now));
        assert!(!verify(&secret, &then, "v1=", body, now) && !verify(&secret, &then, "v1=zz", body, now));
        assert_eq!(header("fumehood-delivery"), id, "the same for each try");
        let json: Json = serde_json::from_str(body).unwrap();
        assert_eq!((&json["call"]["id"], &json["call"]["args"]), (&json!(id), &json!({"n": 1})));
    }
    assert_eq!(seen.len(), 4);
    assert_told(&said.lock().unwrap());
}

#[test]
fn a_webhook_in_the_clear_or_with_a_password_is_refused() {
    let secret = || b"0123456789abcdef".to_vec();
    for url in [
        "http://example.org/",
        "http://user:pw@127.0.0.1/",
        "https://user@example.org/",
        "ftp://127.0.0.1/",
        "x",
        "http://127.0.0.1.evil.example/",
    ] {
        assert!(Webhook::with(url, secret(), [Duration::ZERO; 5], Box::new(|_| ())).is_err(), "{url}");
    }
    assert!(Webhook::with("http://[::1]:9/", secret(), [Duration::ZERO; 5], Box::new(|_| ())).is_ok());
}
