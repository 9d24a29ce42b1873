//! GW-20's rows of the local port: pages, requests without a token, sessions, tokens and where it listens.

use super::*;

/// DNS rebinding: a page at `evil.example` that resolves to 127.0.0.1 reaches the port with its own name.
#[tokio::test]
async fn gw_20_a_page_reaches_nothing_whatever_it_sends() {
    let street = on_loopback().await;
    let (bearer, port) = (format!("Bearer {}", street.agent), street.address.rsplit(':').next().unwrap().to_owned());
    let json = ("Content-Type", "application/json");
    let hosts = [
        format!("evil.example:{port}"),
        "evil.example".into(),
        "127.0.0.1".into(),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.:{port}"),
        format!("127.0.0.1:{port}@evil.example"),
        "127.0.0.1:1".into(),
        String::new(),
    ];
    for host in &hosts {
        let headers = [("Host", host.as_str()), ("Authorization", &bearer), json];
        let (status, body) = street.send("POST /v1/tools/open:call", &headers, CALL).await;
        assert!(matches!(status, 400 | 421), "{host}: {status} {body}");
    }
    let twice = [("Host", street.address.as_str()), ("Host", "evil.example"), ("Authorization", &bearer), json];
    assert!(matches!(street.send("POST /v1/tools/open:call", &twice, CALL).await.0, 400 | 421));
    let none = format!("POST /v1/tools/open:call HTTP/1.1\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n");
    assert!(matches!(street.raw(&none).await.0, 400 | 421));
    let own = format!("Host: {}\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n", street.address);
    let first_line = |name: &str| format!("GET http://{name}/v1/tools HTTP/1.1\r\n{own}");
    assert!(matches!(street.raw(&first_line("evil.example")).await.0, 400 | 421));
    assert_eq!(street.raw(&first_line(&street.address)).await.0, 200);
    for page in [
        ("Origin", "http://evil.example"),
        ("Origin", "null"),
        ("Origin", ""),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Site", "same-site"),
    ] {
        let (status, body) =
            street.send("POST /v1/tools/open:call", &[page, ("Authorization", &bearer), json], CALL).await;
        assert_eq!((status, &body["id"]), (403, &json!("tools.http/origin")), "{page:?}");
        // Even what needs no preflight tells a page nothing: not whether the token was good.
        let (status, _) = street.send("GET /v1/tools", &[page], "").await;
        assert_eq!(status, 403, "{page:?}");
    }
    assert_eq!(street.ran(), 0);
    let (status, _) = street.send("POST /v1/tools/open:call", &[("Authorization", &bearer), json], CALL).await;
    assert_eq!((status, street.ran()), (200, 1), "the control");
}

#[tokio::test]
async fn a_page_that_was_named_may_come_in_with_the_token() {
    let street = street(|_| Listen::parse("127.0.0.1:0").unwrap(), &["http://localhost:3000"]).await;
    let bearer = format!("Bearer {}", street.agent);
    let ask = async |origin: &str| {
        let headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site"), ("Authorization", &bearer)];
        street.send("GET /v1/tools", &headers, "").await.0
    };
    assert_eq!((ask("http://localhost:3000").await, ask("http://localhost:3001").await), (200, 403));
}

#[tokio::test]
async fn without_a_good_token_nothing_is_answered_and_an_agents_token_answers_no_call() {
    let street = on_loopback().await;
    let long = "x".repeat(5000);
    for token in ["", "wrong", &street.agent.to_uppercase(), &format!("{}0", street.agent), &long] {
        let (status, body) = street.post(token, "/v1/tools/open:call", CALL).await;
        assert_eq!((status, &body["id"]), (401, &json!("tools.http/token")), "{token}");
    }
    let two = [("Authorization", &*format!("Bearer {}", street.agent)), ("Authorization", "Bearer x")];
    assert_eq!(street.send("GET /v1/tools", &two, "").await.0, 401);
    assert_eq!(street.send("GET /v1/tools", &[("Authorization", &format!("Basic {}", street.agent))], "").await.0, 401);
    let (status, body) = street.get(&street.agent, "/v1/approvals").await;
    assert_eq!((status, &body["id"]), (403, &json!("tools.http/not-yours")));
    assert_eq!(street.get(&street.person, "/v1/tools").await.0, 404, "and people call nothing with theirs");
    let mode = |name: &str| std::fs::metadata(street.dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("tools.token"), mode("approvals.token")), (0o600, 0o600));
    assert_eq!(street.ran(), 0);
}

#[tokio::test]
async fn gw_18_sessions_cannot_be_made_up_or_borrowed() {
    let street = on_loopback().await;
    let session = |body: Json| body["session"].as_str().unwrap().to_owned();
    let mine = session(street.post(&street.agent, "/v1/sessions", "").await.1);
    let other = read(street.dir.path(), "other.token");
    let theirs = session(street.post(&other, "/v1/sessions", "").await.1);
    let ask = async |token: &str, session: &str| {
        let headers = [
            ("Authorization", &*format!("Bearer {token}")),
            ("Fumehood-Session", session),
            ("Content-Type", "application/json"),
        ];
        street.send("POST /v1/tools/open:call", &headers, CALL).await.0
    };
    assert_eq!((ask(&street.agent, &mine).await, ask(&other, &theirs).await), (200, 200));
    let forged = mine.replace("s-", "s-0");
    for name in [theirs.as_str(), "", "http local", "s-", "s--", "s-00-00", &forged, &mine.to_uppercase()] {
        assert_eq!(ask(&street.agent, name).await, 403, "{name}");
    }
    assert_eq!(street.ran(), 2);
}

#[tokio::test]
async fn only_the_loopback_and_our_own_sockets_are_listened_on() {
    for text in [
        "0.0.0.0:80",
        "[::]:80",
        "192.168.0.1:80",
        "8.8.8.8:80",
        "localhost:80",
        "80",
        "unix:door",
        "[::ffff:127.0.0.1]:80",
    ] {
        assert!(Listen::parse(text).is_err(), "{text}");
    }
    let dir = folder();
    let path = dir.path().join("door");
    std::fs::write(&path, "a file of somebody's").unwrap();
    assert!(bind(&Listen::Unix(path.clone())).await.is_err());
    std::fs::remove_file(&path).unwrap();
    let first = bind(&Listen::Unix(path.clone())).await.unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(bind(&Listen::Unix(path.clone())).await.is_err(), "somebody listens");
    drop(first);
    assert!(!path.exists());
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(bind(&Listen::Unix(path)).await.is_ok(), "a dead socket is in nobody's way");
}

#[test]
fn a_token_that_others_could_read_or_guess_is_refused() {
    let dir = folder();
    let file = dir.path().join("tools.token");
    let try_it = |text: &str, mode: u32| {
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        Keys::open(dir.path()).is_ok()
    };
    assert!(try_it("0123456789abcdef\n", 0o600));
    assert!(!try_it("0123456789abcdef\n", 0o640));
    assert!(!try_it("short\n", 0o600));
    assert!(!try_it("", 0o600));
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", &file).unwrap();
    assert!(Keys::open(dir.path()).is_err());
}
