//! E2B's control interface.

use serde_json::{Value, json};

use crate::stage::{Caller, Stage, stage};

async fn created(caller: &Caller, body: Value) -> Value {
    let answer = caller.json("POST", "/v2/sandboxes", body).await;
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.body));
    answer.json()
}

async fn two() -> (Stage, Caller, Caller) {
    let stage = stage().await;
    let (one, other) = (Caller::new(&stage, "one"), Caller::new(&stage, "other"));
    (stage, one, other)
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_without_a_key_but_health() {
    let (_stage, caller, _) = two().await;
    let nobody = Caller { headers: Vec::new(), ..caller.clone() };
    assert_eq!(nobody.json("GET", "/health", Value::Null).await.status, 200);
    for (method, path) in [
        ("GET", "/sandboxes"),
        ("POST", "/v2/sandboxes"),
        ("GET", "/v1/sandboxes"),
        ("GET", "/nothing"),
        ("GET", "/v1/openapi.json"),
    ] {
        let answer = nobody.json(method, path, Value::Null).await;
        assert_eq!(answer.status, 401, "{method} {path}");
        let wrong = nobody.with("x-api-key", "e2b_0000000000000000000000000000000000000000");
        assert_eq!(wrong.json(method, path, Value::Null).await.status, 401);
    }
    let answer = nobody.json("GET", "/sandboxes", Value::Null).await.json();
    assert_eq!(answer["code"], 401);
    assert_eq!(caller.json("GET", "/sandboxes", Value::Null).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_removed_lets_nobody_in_any_more() {
    let (stage, caller, _) = two().await;
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.status, 200);
    stage.keys.remove("one").unwrap();
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_removed_key_made_is_neither_served_nor_that_of_a_new_key_of_its_name() {
    let (stage, caller, _) = two().await;
    let made = created(&caller, json!({ "templateID": "base", "timeout": 60 })).await;
    let inside = caller.inside(&made);
    assert_eq!(inside.json("GET", "/envs", Value::Null).await.status, 200);
    stage.keys.remove("one").unwrap();
    assert_eq!(inside.json("GET", "/envs", Value::Null).await.status, 502);
    let new = Caller::new(&stage, "one");
    assert_eq!(new.json("GET", "/v2/sandboxes", Value::Null).await.json(), json!([]));
    let path = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    assert_eq!(new.json("GET", &path, Value::Null).await.status, 404);
    assert_eq!(inside.json("GET", "/envs", Value::Null).await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_end_of_a_sandbox_moves_beyond_the_wall_of_its_keys_ceiling() {
    let (stage, caller, _) = two().await;
    let key = stage.keys.add("small", Some("strict".to_owned()), None).unwrap();
    let small = caller.with("x-api-key", &key);
    let life = |sandbox: &Value| {
        let at = |name: &str| sandbox[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond();
        at("endAt") - at("startedAt")
    };
    let asked = json!({ "templateID": "strict", "timeout": 10 });
    let path = format!("/sandboxes/{}", created(&small, asked.clone()).await["sandboxID"].as_str().unwrap());
    assert_eq!(small.json("POST", &format!("{path}/timeout"), json!({ "timeout": 36000 })).await.status, 204);
    assert!((20_000..31_000).contains(&life(&small.json("GET", &path, Value::Null).await.json())));
    assert!(small.json("POST", &format!("{path}/connect"), json!({ "timeout": 36000 })).await.status < 300);
    assert!(life(&small.json("GET", &path, Value::Null).await.json()) < 31_000);
    // Without a ceiling nothing holds it back.
    let path = format!("/sandboxes/{}", created(&caller, asked).await["sandboxID"].as_str().unwrap());
    assert_eq!(caller.json("POST", &format!("{path}/timeout"), json!({ "timeout": 36000 })).await.status, 204);
    assert!(life(&caller.json("GET", &path, Value::Null).await.json()) > 35_000_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sandbox_lives_from_its_creation_to_its_end() {
    let (_stage, caller, _) = two().await;
    let made = created(&caller, json!({ "templateID": "base", "metadata": { "a": "b" }, "timeout": 60 })).await;
    let id = made["sandboxID"].as_str().unwrap();
    assert_eq!((&made["templateID"], &made["envdVersion"]), (&json!("base"), &json!("0.6.13")));
    let one = caller.json("GET", &format!("/sandboxes/{id}"), Value::Null).await.json();
    assert_eq!((&one["state"], &one["metadata"]), (&json!("running"), &json!({ "a": "b" })));
    assert_eq!(
        (&one["memoryMB"], &one["cpuCount"], &one["lifecycle"]["onTimeout"]),
        (&json!(1024), &json!(2), &json!("kill"))
    );
    let all = caller.json("GET", "/v2/sandboxes?metadata=a%3Db", Value::Null).await.json();
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!(caller.json("POST", &format!("/sandboxes/{id}/timeout"), json!({ "timeout": 600 })).await.status, 204);
    let later = caller.json("GET", &format!("/sandboxes/{id}"), Value::Null).await.json();
    assert!(later["endAt"].as_str() > one["endAt"].as_str());
    let metric = caller.json("GET", &format!("/sandboxes/{id}/metrics"), Value::Null).await.json();
    assert_eq!((&metric[0]["memTotal"], &metric[0]["diskTotal"]), (&json!(1 << 30), &json!(1 << 30)));
    let now = (&metric[0]["memUsed"], &metric[0]["diskUsed"], &metric[0]["cpuUsedPct"]);
    assert_eq!(now, (&json!(1024), &json!(10), &json!(12.35)), "what is used now, and not its peak");
    let inside = caller.inside(&made).json("GET", "/metrics", Value::Null).await.json();
    let now = (&inside["mem_used"], &inside["disk_used"], &inside["cpu_used_pct"], inside.get("mem_cache"));
    assert_eq!(now, (&json!(1024), &json!(10), &json!(12.35), None), "{inside}");
    assert_eq!(caller.json("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 204);
    for path in [format!("/sandboxes/{id}"), format!("/sandboxes/{id}/metrics")] {
        let gone = caller.json("GET", &path, Value::Null).await;
        assert_eq!((gone.status, &gone.json()["code"]), (404, &json!(404)));
    }
    assert_eq!(caller.json("DELETE", &format!("/sandboxes/{id}"), Value::Null).await.status, 404);
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.json(), json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn another_key_neither_sees_nor_touches_it() {
    let (_stage, caller, other) = two().await;
    let made = created(&caller, json!({ "templateID": "base" })).await;
    let id = made["sandboxID"].as_str().unwrap();
    assert_eq!(other.json("GET", "/v2/sandboxes", Value::Null).await.json(), json!([]));
    for (method, path, body) in [
        ("GET", format!("/sandboxes/{id}"), Value::Null),
        ("DELETE", format!("/sandboxes/{id}"), Value::Null),
        ("POST", format!("/sandboxes/{id}/pause"), json!({})),
        ("POST", format!("/v2/sandboxes/{id}/connect"), json!({})),
        ("POST", format!("/sandboxes/{id}/timeout"), json!({ "timeout": 1 })),
        ("GET", format!("/v1/sandboxes/{id}"), Value::Null),
        ("POST", format!("/v1/sandboxes/{id}/exec"), json!({ "cmd": ["true"] })),
    ] {
        assert_eq!(other.json(method, &path, body).await.status, 404, "{method} {path}");
    }
    assert_eq!(caller.json("GET", &format!("/sandboxes/{id}"), Value::Null).await.json()["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_held_is_refused_by_name_and_a_bare_default_is_not() {
    let (_stage, caller, _) = two().await;
    for (body, clause) in [
        (json!({ "templateID": "base", "network": { "allowOut": ["example.com"] } }), "network.allowOut"),
        (json!({ "templateID": "base", "network": { "rules": { "a.test": [1] } } }), "network.rules"),
        (json!({ "templateID": "base", "autoPause": true, "autoPauseMemory": false }), "autoPauseMemory"),
        (json!({ "templateID": "base", "network": { "egressProxy": { "address": "a:1" } } }), "network.egressProxy"),
        (json!({ "templateID": "base", "mcp": { "x": {} } }), "mcp"),
        (json!({ "templateID": "mcp-gateway", "mcp": { "x": {} } }), "mcp"),
        (json!({ "templateID": "base", "volumeMounts": [{ "name": "v", "path": "/v" }] }), "volumeMounts"),
        (json!({ "templateID": "code-interpreter-v1" }), "templateID"),
        (json!({ "templateID": "/etc/passwd" }), "templateID"),
        (json!({ "templateID": "base", "somethingNew": true }), "somethingNew"),
        (json!({ "templateID": "base", "metadata": { "fumehood.key": "other" } }), "metadata"),
        (json!({ "templateID": "base", "timeout": 10_000_000 }), "timeout"),
        (json!({ "templateID": "base", "timeout": "long" }), "timeout"),
    ] {
        let answer = caller.json("POST", "/v2/sandboxes", body.clone()).await;
        assert_eq!((answer.status, answer.header("should-retry")), (400, "false"), "{body}");
        let json = answer.json();
        assert!(json["message"].as_str().unwrap().contains(clause), "{json}");
        assert_eq!(json["fumehood"]["clause"], clause);
    }
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.json(), json!([]), "none was made");
    let old = json!({ "templateID": "base", "secure": true, "allow_internet_access": true, "timeout": 300, "mcp": null, "envVars": {} });
    assert_eq!(caller.json("POST", "/sandboxes", old).await.status, 201);
    let adapters = json!({
        "templateID": "base", "autoPause": true, "autoPauseMemory": true, "autoResume": { "enabled": true }, "secure": true, "timeout": 30,
        "network": { "denyOut": ["0.0.0.0/0"], "allowPublicTraffic": true },
    });
    let made = created(&caller, adapters).await;
    let one =
        caller.json("GET", &format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap()), Value::Null).await.json();
    assert_eq!(one["lifecycle"], json!({ "autoResume": true, "onTimeout": "pause" }));
    for (method, path, status, clause) in [
        ("GET", "/volumes", 400, "volumes"),
        ("POST", "/volumes", 400, "volumes"),
        ("PUT", "/volumecontent/v/file", 400, "volumes"),
        ("GET", "/secrets", 400, "secrets"),
        ("PATCH", "/v2/templates/t", 501, "templates"),
    ] {
        let answer = caller.json(method, path, Value::Null).await;
        assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (status, &json!(clause)), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_twice_makes_one_sandbox() {
    let (_stage, caller, other) = two().await;
    let (once, body) = (caller.with("idempotency-key", "k-1"), json!({ "templateID": "base" }));
    let (one, two) = tokio::join!(
        once.json("POST", "/v2/sandboxes", body.clone()),
        once.json("POST", "/v2/sandboxes", body.clone())
    );
    let statuses = [one.status, two.status];
    assert!(statuses.contains(&201) && statuses.iter().all(|status| [201, 409].contains(status)), "{statuses:?}");
    let again = once.json("POST", "/v2/sandboxes", body.clone()).await;
    let first = if one.status == 201 { one.json() } else { two.json() };
    assert_eq!(again.json()["sandboxID"], first["sandboxID"]);
    assert_eq!(once.json("POST", "/v2/sandboxes", json!({ "templateID": "strict" })).await.status, 422);
    let others = other.with("idempotency-key", "k-1").json("POST", "/v2/sandboxes", body).await;
    assert_ne!(others.json()["sandboxID"], first["sandboxID"]);
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.json().as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_a_pause_until_somebody_connects() {
    let (_stage, caller, _) = two().await;
    let made = created(&caller, json!({ "templateID": "base", "timeout": 60 })).await;
    let id = made["sandboxID"].as_str().unwrap();
    let inside = caller.inside(&made);
    assert_eq!(caller.json("POST", &format!("/v2/sandboxes/{id}/connect"), json!({})).await.status, 200);
    assert_eq!(caller.json("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.status, 204);
    assert_eq!(caller.json("POST", &format!("/sandboxes/{id}/pause"), Value::Null).await.status, 409);
    let gone = inside.json("GET", "/health", Value::Null).await;
    assert_eq!((gone.status, &gone.json()["message"]), (502, &json!("The sandbox was not found")));
    let paused = caller.json("GET", "/v2/sandboxes?state=paused", Value::Null).await.json();
    assert_eq!(paused[0]["sandboxID"], id);
    assert_eq!(
        caller.json("POST", &format!("/v2/sandboxes/{id}/connect"), json!({ "memory": false })).await.status,
        400
    );
    assert_eq!(caller.json("POST", &format!("/v2/sandboxes/{id}/connect"), json!({ "timeout": 30 })).await.status, 201);
    assert_eq!(inside.json("GET", "/health", Value::Null).await.status, 204);
    assert_eq!(caller.json("POST", &format!("/sandboxes/{id}/resume"), json!({})).await.status, 409);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_moves_the_end_by_e2bs_interface_alone() {
    let (_stage, caller, _) = two().await;
    let made = caller.json("POST", "/v1/sandboxes", json!({ "timeout": "60s" })).await.json();
    let (v1, e2b) = (
        format!("/v1/sandboxes/{}", made["id"].as_str().unwrap()),
        format!("/sandboxes/{}", made["id"].as_str().unwrap()),
    );
    let ends = || {
        let (caller, path) = (caller.clone(), v1.clone());
        async move { caller.json("GET", &path, Value::Null).await.json()["ends_ms"].as_i64().unwrap() }
    };
    let before = ends().await;
    for path in ["pause", "resume"] {
        assert_eq!(caller.json("POST", &format!("{v1}/{path}"), json!({})).await.status, 200, "{path}");
        assert_eq!(ends().await, before, "{path}");
    }
    assert_eq!(caller.json("POST", &format!("{e2b}/pause"), Value::Null).await.status, 204);
    assert!(ends().await > before + 23 * 3_600_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_that_is_over_pauses_where_asked_and_traffic_wakes() {
    let (_stage, caller, _) = two().await;
    let body = json!({ "templateID": "base", "timeout": 1, "autoPause": true, "autoResume": { "enabled": true } });
    let made = created(&caller, body).await;
    let plain = created(&caller, json!({ "templateID": "base", "timeout": 1 })).await;
    let state = |made: &Value| {
        let (caller, path) = (caller.clone(), format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap()));
        async move { caller.json("GET", &path, Value::Null).await }
    };
    for _ in 0..100 {
        if state(&made).await.json()["state"] == "paused" && state(&plain).await.status == 404 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(state(&made).await.json()["state"], "paused");
    assert_eq!(state(&plain).await.status, 404, "one that does not pause has ended");
    let inside = caller.inside(&made);
    let stranger = inside.with("x-access-token", "0");
    assert_eq!(
        stranger.rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status,
        502,
        "no stranger wakes it"
    );
    assert_eq!(inside.rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status, 200);
    assert_eq!(state(&made).await.json()["state"], "running");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_its_share_and_its_ceiling() {
    let stage = stage().await;
    let key = stage.keys.add("small", Some("strict".to_owned()), Some(1)).unwrap();
    let small = Caller { base: stage.base.clone(), headers: vec![("x-api-key".to_owned(), key)] };
    let high = small.json("POST", "/v2/sandboxes", json!({ "templateID": "python" })).await;
    assert_eq!(high.status, 403);
    assert!(high.json()["message"].as_str().unwrap().contains("limits.memory"), "{}", high.json());
    let body = json!({ "templateID": "strict", "timeout": 20 });
    assert_eq!(small.json("POST", "/v2/sandboxes", body.clone()).await.status, 201);
    let full = small.json("POST", "/v2/sandboxes", body).await;
    assert_eq!(full.status, 429);
    let free = Caller::new(&stage, "free");
    for (policy, clause) in [
        (json!({ "extends": "python", "fs": { "read": ["/etc/hostname"] } }), "fs.read"),
        (json!({ "extends": "python", "workspace": { "path": "/srv", "mode": "ro" } }), "workspace"),
        (json!({ "extends": "python", "env": { "pass": ["HOME"] } }), "env.pass"),
    ] {
        let answer = free.json("POST", "/v1/sandboxes", json!({ "policy": policy })).await;
        let json = answer.json();
        assert_eq!((answer.status, &json["clause"]), (403, &json!(clause)), "{json}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_page_and_no_other_host_comes_in() {
    let (_stage, caller, _) = two().await;
    for (name, value) in [("origin", "http://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site")] {
        assert_eq!(
            caller.with(name, value).json("GET", "/v2/sandboxes", Value::Null).await.status,
            403,
            "{name} {value}"
        );
    }
    let rebound =
        caller.with("host", "evil.example").with("origin", "http://evil.example").with("sec-fetch-site", "same-origin");
    assert_eq!(rebound.json("GET", "/v2/sandboxes", Value::Null).await.status, 403);
    assert_eq!(caller.json("GET", "/v2/sandboxes", Value::Null).await.status, 200);
    let large = "x".repeat(2 << 20);
    assert_eq!(caller.send("POST", "/v2/sandboxes", large).await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_network_are_replaced_below_the_ceiling_of_the_key() {
    let (stage, caller, other) = two().await;
    let hosts = json!({ "allowOut": ["a.test"], "denyOut": ["0.0.0.0/0"] });
    let open = created(&caller, json!({ "templateID": "base", "network": hosts })).await;
    let closed = created(&caller, json!({ "templateID": "base", "allow_internet_access": false })).await;
    let [open, closed] = [&open, &closed].map(|made| format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap()));
    let set = |path: &str, body: Value| {
        let (caller, path) = (caller.clone(), format!("{path}/network"));
        async move { caller.json("PUT", &path, body).await }
    };
    for body in
        [json!({}), json!({ "denyOut": ["0.0.0.0/0"] }), json!({ "allow_internet_access": false }), hosts.clone()]
    {
        assert_eq!(set(&open, body.clone()).await.status, 204, "{body}");
    }
    // What the request says nothing of stays as it is.
    let told = std::fs::read_to_string(stage.home.with_extension("rules")).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["allow"][0]["host"], "a.test", "{told}");
    assert_eq!((&told["deny"][0]["host"], &told["connections"]), (&json!("denied.test"), &json!(7)), "{told}");
    assert_eq!((&told["bytes"], &told["bandwidth"]), (&json!("1048576B"), &json!("4096B/s")), "{told}");
    assert_eq!(set(&closed, json!({ "denyOut": ["0.0.0.0/0"] })).await.status, 204, "nothing is reached already");
    for (path, body, clause) in [
        (&closed, hosts.clone(), "allowOut"),
        (&open, json!({ "allowOut": ["a.test"] }), "allowOut"),
        (&open, json!({ "allow_internet_access": true }), "allow_internet_access"),
        (&open, json!({ "dnsServers": ["192.0.2.1"], "denyOut": [] }), "dnsServers"),
    ] {
        let answer = set(path, body.clone()).await;
        assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (400, &json!(clause)), "{body}");
    }

    // A proxy that the key could not ask for decides by itself what addresses a name has: it carries no hosts of the key's choice.
    let proxied = json!({ "allowOut": ["proxied.test"], "denyOut": ["0.0.0.0/0"] });
    let made = created(&caller, json!({ "templateID": "base", "network": proxied })).await;
    let proxied = format!("/sandboxes/{}", made["sandboxID"].as_str().unwrap());
    let answer = set(&proxied, hosts.clone()).await;
    assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (403, &json!("net.proxy")));
    assert_eq!(set(&proxied, json!({})).await.status, 204, "it may be closed");

    let policy = |allow: Value| json!({ "policy": { "net": { "mode": "allow", "allow": allow } } });
    let v1 = format!("/v1{open}/network");
    let answer = caller.json("PUT", &v1, policy(json!(["b.test:443"]))).await;
    assert_eq!(answer.status, 200);
    assert!(answer.json()["digest"].as_str().unwrap().contains("b.test"), "the rules that were handed on");
    let pinned = json!([{ "host": "b.test", "ports": [80], "address": "127.0.0.1:1" }]);
    let answer = caller.json("PUT", &v1, policy(pinned.clone())).await;
    assert_eq!((answer.status, &answer.json()["clause"]), (403, &json!("net.allow")), "no key reaches the host itself");
    let inside = json!({ "template": "base", "policy": policy(pinned)["policy"] });
    assert_eq!(caller.json("POST", "/v1/sandboxes", inside).await.status, 403);
    assert_eq!(caller.json("PUT", &v1, json!({ "policy": { "net": { "mode": "wide" } } })).await.status, 400);
    let silent = caller.json("PUT", &v1, json!({ "policy": { "limits": { "pids": 9 } } })).await;
    assert_eq!((silent.status, &silent.json()["clause"]), (400, &json!("policy")), "no word closes the network");
    assert_eq!(other.json("PUT", &v1, policy(json!([]))).await.status, 404, "another key's");
    let key = stage.keys.add("small", Some("strict".to_owned()), None).unwrap();
    let small = caller.with("x-api-key", &key);
    let made = created(&small, json!({ "templateID": "strict", "timeout": 10 })).await;
    let v1 = format!("/v1/sandboxes/{}/network", made["sandboxID"].as_str().unwrap());
    let answer = small.json("PUT", &v1, policy(json!(["b.test"]))).await;
    assert_eq!((answer.status, &answer.json()["clause"]), (403, &json!("net.mode")));
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_of_rules_are_secrets_that_stay_as_they_were_created() {
    let (stage, caller, _) = two().await;
    let value = "Bearer of-this-test-alone";
    let network = |value: &str| {
        let rules = json!({ "a.test": [{ "transform": { "headers": { "Authorization": value } } }] });
        json!({ "allowOut": ["a.test"], "denyOut": ["0.0.0.0/0"], "rules": rules })
    };
    let made = created(&caller, json!({ "templateID": "base", "network": network(value) })).await;
    let id = made["sandboxID"].as_str().unwrap();
    let set = |body: Value| {
        let (caller, path) = (caller.clone(), format!("/sandboxes/{id}/network"));
        async move { caller.json("PUT", &path, body).await }
    };
    assert_eq!(set(network(value)).await.status, 204, "the same ones");
    let mut without = network(value);
    without.as_object_mut().unwrap().remove("rules");
    for other in [without, network("Bearer of-another-test")] {
        let answer = set(other.clone()).await;
        assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (400, &json!("rules")), "{other}");
    }
    assert_eq!(set(json!({})).await.status, 204, "where nothing is reached no header is put on");
    for (path, body) in [("fork", json!({})), ("snapshots", json!({}))] {
        let answer = caller.json("POST", &format!("/sandboxes/{id}/{path}"), body).await;
        assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (501, &json!("network.rules")), "{path}");
    }
    // A key with a ceiling may give headers of its own, and only to hosts that the ceiling allows.
    let ceiling = stage.home.with_extension("toml");
    let clauses = "version = 1\nextends = [\"python\"]\n[limits]\nmemory = \"2G\"\npids = 512\nopen_files = 8192\nfile_size = \"1G\"\ndisk = \"2G\"\nfiles = 200000\noutput = \"64M\"\nwall = \"1h\"\n[fs]\ntmp = \"512M\"\nshm = \"64M\"\nrun = \"16M\"\n[syscalls]\nprofile = \"default\"\n[net]\nmode = \"allow\"\nallow = [\"a.test\"]\n";
    std::fs::write(&ceiling, clauses).unwrap();
    let key = stage.keys.add("small", Some(ceiling.to_str().unwrap().to_owned()), None).unwrap();
    let small = caller.with("x-api-key", &key);
    let answer = small.json("POST", "/v2/sandboxes", json!({ "templateID": "base", "network": network(value) })).await;
    assert_eq!(answer.status, 201, "{}", answer.json());
    let other = json!({ "allowOut": ["b.test"], "denyOut": ["0.0.0.0/0"] });
    let answer = small.json("POST", "/v2/sandboxes", json!({ "templateID": "base", "network": other })).await;
    assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (403, &json!("net.allow")));
    // It is in nothing that was written or is shown.
    for path in [format!("/sandboxes/{id}"), format!("/v1/sandboxes/{id}"), "/v2/sandboxes".to_owned()] {
        let answer = caller.json("GET", &path, Value::Null).await;
        assert!(answer.status == 200 && !String::from_utf8_lossy(&answer.body).contains("of-this-test"), "{path}");
    }
    let files = files_below(stage.home.parent().unwrap());
    assert!(files.len() > 3, "{files:?}");
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(value.len()).any(|part| part == value.as_bytes()), "{}", file.display());
    }
}

fn files_below(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries
        .flat_map(|entry| match entry.file_type().unwrap() {
            kind if kind.is_dir() => files_below(&entry.path()),
            kind if kind.is_file() => vec![entry.path()],
            _socket => Vec::new(),
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_says_is_acted_on_or_refused_by_its_name() {
    let (_stage, caller, _) = two().await;
    let made = created(&caller, json!({ "templateID": "base", "timeout": 60 })).await;
    let id = made["sandboxID"].as_str().unwrap();
    for (method, path, body, clause) in [
        ("POST", "pause", json!({ "require_healthy_guest": true }), "require_healthy_guest"),
        ("POST", "connect", json!({ "timeout": 60, "fresh": true }), "fresh"),
        ("POST", "timeout", json!({ "timeout": 60, "unit": "ms" }), "unit"),
        // No time, which must not be taken for 0: that is an end at once.
        ("POST", "timeout", json!({ "timeout": -1 }), "timeout"),
        ("POST", "timeout", json!({ "timeout": 0.5 }), "timeout"),
        ("POST", "timeout", json!({ "timeout": "NaN" }), "timeout"),
        ("POST", "connect", json!({ "timeout": -1 }), "timeout"),
        ("POST", "refreshes", json!({ "duration": -1 }), "duration"),
        ("POST", "fork", json!({ "name": "x" }), "name"),
        ("POST", "snapshots", json!({ "tags": ["x"] }), "tags"),
        ("GET", "metrics?start=now", Value::Null, "start"),
        ("GET", "metrics?every=5", Value::Null, "every"),
        ("GET", "logs?follow=1", Value::Null, "follow"),
    ] {
        let answer = caller.json(method, &format!("/sandboxes/{id}/{path}"), body).await;
        assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (400, &json!(clause)), "{path}");
    }
    let get = |path: &str| {
        let (caller, path) = (caller.clone(), format!("/{path}"));
        async move { caller.json("GET", &path, Value::Null).await.json() }
    };
    let metrics = format!("sandboxes/{id}/metrics");
    assert_eq!(get(&format!("{metrics}?start=1")).await.as_array().unwrap().len(), 1);
    assert_eq!(get(&format!("{metrics}?end=1")).await, json!([]), "there was none then");
    assert_eq!(get(&format!("{metrics}?start=99999999999")).await, json!([]), "there is none yet");
    let logs = format!("v2/sandboxes/{id}/logs");
    assert_eq!(get(&format!("{logs}?search=created&level=info")).await["logs"].as_array().unwrap().len(), 1);
    assert_eq!(get(&format!("{logs}?level=error")).await["logs"], json!([]));
    let base = get("templates").await;
    let base = base.as_array().unwrap().iter().find(|one| one["templateID"] == "base").unwrap();
    assert_eq!((&base["memoryMB"], &base["diskSizeMB"], &base["spawnCount"]), (&json!(2048), &json!(2048), &json!(1)));
    assert!(base["createdAt"].as_str().unwrap() > "2026", "{base}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_sandboxes_of_its_templates_alone() {
    use server::keys::Rights;
    let (stage, caller, _) = two().await;
    let rights = Rights { templates: Some(vec!["base".to_owned()]), ..Rights::default() };
    let few = caller.with("x-api-key", &stage.keys.add_with("few", rights).unwrap());
    let strict = json!({ "templateID": "strict", "timeout": 10 });
    let answer = few.json("POST", "/v2/sandboxes", strict.clone()).await;
    assert_eq!((answer.status, &answer.json()["fumehood"]["clause"]), (403, &json!("template")), "{}", answer.json());
    assert_eq!(caller.json("POST", "/v2/sandboxes", strict).await.status, 201, "another key may");
    for (body, status) in [
        (json!({ "template": "strict" }), 403),
        (json!({ "policy": "strict" }), 403),
        (json!({ "template": "base", "policy": { "limits": { "pids": 64 } } }), 201),
        (json!({}), 201),
    ] {
        let answer = few.json("POST", "/v1/sandboxes", body.clone()).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.json());
    }
    assert_eq!(few.json("POST", "/v2/sandboxes", json!({ "templateID": "base:latest" })).await.status, 201);
    assert_eq!(few.json("GET", "/v1/templates", Value::Null).await.json()["templates"], json!(["base"]));
    assert_eq!(few.json("GET", "/templates", Value::Null).await.json().as_array().unwrap().len(), 1);
    for (name, status) in [("base", 200), ("strict", 404)] {
        let one = few.json("GET", &format!("/templates/{name}"), Value::Null).await;
        assert_eq!((one.status, one.json()["templateID"] == name), (status, status == 200), "{}", one.json());
        assert_eq!(few.json("GET", &format!("/templates/aliases/{name}"), Value::Null).await.status, status, "{name}");
    }
}
