//! The page: what it may load, who signs in, and who cannot act as one who did.

use serde_json::{Value, json};

use crate::stage::{Caller, HttpReply, Stage, stage};

/// Somebody who signed in on the page.
pub(crate) struct Visitor {
    /// As the page asks.
    pub(crate) page: Caller,
    /// The cookie alone.
    pub(crate) cookie: String,
    /// The page's half alone.
    pub(crate) half: String,
}

/// A browser without a session, on our own page.
fn browser(stage: &Stage) -> Caller {
    Caller { base: stage.base.clone(), headers: Vec::new() }.with("origin", &stage.base)
}

async fn sign_in(stage: &Stage, key: &str) -> HttpReply {
    browser(stage).json("POST", "/page/session", json!({ "key": key })).await
}

pub(crate) async fn visitor(stage: &Stage, name: &str) -> Visitor {
    let key = stage.keys.add(name, None, None).unwrap();
    let answer = sign_in(stage, &key).await;
    assert_eq!(answer.status, 200);
    let cookie = answer.header("set-cookie").split(';').next().unwrap().to_owned();
    let half = answer.json()["page"].as_str().unwrap().to_owned();
    let page = browser(stage).with("cookie", &cookie).with("x-fumehood-page", &half);
    Visitor { page, cookie, half }
}

fn without(caller: &Caller, name: &str) -> Caller {
    let headers = caller.headers.iter().filter(|(known, _)| known != name).cloned().collect();
    Caller { base: caller.base.clone(), headers }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_loads_nothing_from_elsewhere_and_nothing_inline() {
    let stage = stage().await;
    let nobody = Caller { base: stage.base.clone(), headers: Vec::new() };
    for path in ["/", "/page/app.js", "/page/page.css", "/page/none", "/page/session"] {
        let answer = nobody.send("GET", path, "").await;
        let policy = answer.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self';"), "{path}: {policy}");
        assert!(policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"), "{path}: {policy}");
        assert!(!policy.contains("http") && !policy.contains('*'), "{path}: {policy}");
        for (name, value) in [
            ("x-frame-options", "DENY"),
            ("x-content-type-options", "nosniff"),
            ("referrer-policy", "no-referrer"),
            ("cross-origin-resource-policy", "same-origin"),
            ("cache-control", "no-store"),
        ] {
            assert_eq!(answer.header(name), value, "{path}");
        }
    }
    assert_eq!(nobody.send("GET", "/page/none", "").await.status, 404);
    assert_eq!(nobody.send("GET", "/page/../keys", "").await.status, 401, "a path is one of the table or none");
    assert_eq!(nobody.send("GET", "/", "").await.header("content-type"), "text/html; charset=utf-8");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_given_once_and_a_cookie_stands_for_it_that_no_script_reads() {
    let stage = stage().await;
    let key = stage.keys.add("one", None, None).unwrap();
    let wrong = sign_in(&stage, "e2b_0000000000000000000000000000000000000000").await;
    assert_eq!((wrong.status, wrong.header("set-cookie")), (401, ""));
    let answer = sign_in(&stage, &key).await;
    let cookie = answer.header("set-cookie");
    let port = stage.base.rsplit(':').next().unwrap();
    assert!(cookie.starts_with(&format!("fumehood-{port}=")), "{cookie}");
    for flag in ["HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"] {
        assert!(cookie.split("; ").any(|part| part == flag), "{cookie}");
    }
    assert!(!cookie.contains(&key) && !String::from_utf8(answer.body).unwrap().contains(&key));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_cookie_acts_on_our_own_page_and_nowhere_else() {
    let stage = stage().await;
    let visitor = visitor(&stage, "one").await;
    let create = |caller: Caller| async move { caller.json("POST", "/v1/sandboxes", json!({})).await.status };
    let page = &visitor.page;
    assert_eq!(create(page.clone()).await, 201);
    assert_eq!(
        without(page, "origin").send("GET", "/v1/sandboxes", "").await.status,
        200,
        "browsers leave it out there"
    );
    let own = without(page, "origin").with("sec-fetch-site", "same-origin");
    assert_eq!(create(own).await, 201);
    // What a form or a picture of another site can send: the cookie, and nothing else.
    let forged = without(page, "x-fumehood-page");
    for (origin, status) in [(stage.base.as_str(), 401), ("http://evil.example", 403), ("null", 403)] {
        assert_eq!(create(forged.with("origin", origin)).await, status, "{origin}");
    }
    // Even with both halves.
    for origin in ["http://127.0.0.1:1", "http://evil.example", "null", "https://127.0.0.1"] {
        assert_eq!(create(page.with("origin", origin)).await, 403, "{origin}");
        assert_eq!(page.with("origin", origin).send("GET", "/v1/sandboxes", "").await.status, 403, "{origin}");
    }
    assert_eq!(create(without(page, "origin")).await, 403);
    for site in ["same-site", "cross-site", "none"] {
        assert_eq!(create(page.with("sec-fetch-site", site)).await, 403, "{site}");
    }
    // One half alone, or two that do not belong together.
    assert_eq!(create(without(page, "cookie")).await, 401);
    assert_eq!(create(page.with("x-fumehood-page", &"0".repeat(64))).await, 401);
    // The cookie opens `/v1` alone.
    assert_eq!(page.send("GET", "/v2/sandboxes", "").await.status, 401);
    assert_eq!(page.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_signs_in_or_out_for_another_site() {
    let stage = stage().await;
    let key = stage.keys.add("one", None, None).unwrap();
    let body = json!({ "key": key });
    let page = browser(&stage);
    for bad in [
        page.with("origin", "http://evil.example"),
        page.with("sec-fetch-site", "cross-site"),
        without(&page, "origin"),
    ] {
        assert_eq!(bad.json("POST", "/page/session", body.clone()).await.status, 403);
    }
    assert_eq!(page.json("POST", "/page/session", body).await.status, 200);
    let visitor = visitor(&stage, "two").await;
    assert_eq!(
        visitor.page.with("origin", "http://evil.example").send("DELETE", "/page/session", "").await.status,
        403
    );
    let seen = visitor.page.send("GET", "/page/session", "").await;
    assert_eq!((seen.status, &seen.json()["key"]), (200, &json!("two")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_made_to_lead_here_gets_nothing() {
    let stage = stage().await;
    let key = stage.keys.add("one", None, None).unwrap();
    let port = stage.base.rsplit(':').next().unwrap().to_owned();
    let at = |host: &str| {
        let host = format!("{host}:{port}");
        Caller { base: stage.base.clone(), headers: Vec::new() }
            .with("host", &host)
            .with("origin", &format!("http://{host}"))
    };
    for (host, status) in
        [("127.0.0.1", 200), ("localhost", 200), ("evil.example", 403), ("127.0.0.1.evil.example", 403)]
    {
        assert_eq!(at(host).send("GET", "/", "").await.status, status, "{host}");
        let signed = at(host).json("POST", "/page/session", json!({ "key": key })).await;
        assert_eq!(signed.status, status, "{host}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_by_its_owner_and_with_its_key() {
    let stage = stage().await;
    let one = visitor(&stage, "one").await;
    let two = visitor(&stage, "two").await;
    let sees = |caller: Caller| async move { caller.send("GET", "/v1/sandboxes", "").await.status };
    assert_eq!((sees(one.page.clone()).await, sees(two.page.clone()).await), (200, 200));
    let out = one.page.send("DELETE", "/page/session", "").await;
    assert!(out.status == 200 && out.header("set-cookie").contains("Max-Age=0"));
    assert_eq!((sees(one.page.clone()).await, sees(two.page.clone()).await), (401, 200));
    stage.keys.remove("two").unwrap();
    let answer = two.page.send("GET", "/v1/sandboxes", "").await;
    assert_eq!((answer.status, &answer.json()["id"]), (401, &json!("serve/session")));
}
