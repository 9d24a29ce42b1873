//! Keys with a ceiling: what of the host their sandboxes may be made of.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::stage::{Caller, Stage, stage, stage_with};

/// A key whose ceiling is this document.
fn below(stage: &Stage, name: &str, document: &str) -> Caller {
    let file = stage.home.join(format!("{name}.toml"));
    std::fs::write(&file, format!("version = 1\nextends = \"strict\"\nlimits.wall = \"20m\"\n{document}\n")).unwrap();
    let key = stage.keys.add(name, Some(file.to_str().unwrap().to_owned()), None).unwrap();
    Caller { base: stage.base.clone(), headers: vec![("x-api-key".to_owned(), key)] }
}

/// The status, and the id and clause of a refusal, of a sandbox of this policy and of its plan.
async fn asked(caller: &Caller, mut policy: Value) -> (u16, String, String) {
    policy["extends"] = json!("strict");
    let body = json!({ "policy": policy, "timeout": "1m" });
    let made = caller.json("POST", "/v1/sandboxes", body.clone()).await;
    let told = made.json();
    if made.status == 403 {
        assert_eq!(caller.json("POST", "/v1/plan", body).await.status, 403, "{policy}");
    }
    let text = |name: &str| told[name].as_str().unwrap_or_default().to_owned();
    (made.status, text("id"), text("clause"))
}

#[tokio::test(flavor = "multi_thread")]
async fn no_link_below_a_ceiling_leads_a_sandbox_out_of_it() {
    let stage = stage().await;
    let root = stage.home.canonicalize().unwrap();
    let (work, other) = (root.join("work"), root.join("other"));
    std::fs::create_dir_all(work.join("sub")).unwrap();
    std::fs::create_dir(&other).unwrap();
    symlink(&other, work.join("out")).unwrap();
    symlink("sub", work.join("within")).unwrap();
    let at = |name: &str| work.join(name).to_str().unwrap().to_owned();
    let grant = |clause: &str| format!("fs.{clause} = [{:?}]", work.to_str().unwrap());
    let workspace = format!("workspace = {{ path = {:?}, mode = \"rw\" }}", work.to_str().unwrap());
    let callers =
        [below(&stage, "w", &workspace), below(&stage, "r", &grant("read")), below(&stage, "g", &grant("write"))];
    for (caller, clause) in callers.iter().zip(["workspace", "fs.read", "fs.write"]) {
        let policy = |path: &str| match clause {
            "workspace" => json!({ "workspace": { "path": path, "mode": "copy" } }),
            "fs.read" => json!({ "fs": { "read": [path] } }),
            _ => json!({ "fs": { "write": [path] } }),
        };
        for name in ["out", "none"] {
            let refused = asked(caller, policy(&at(name))).await;
            assert_eq!(refused, (403, "serve/beyond-ceiling".to_owned(), clause.to_owned()), "{name}");
        }
        for name in ["sub", "within"] {
            assert_eq!(asked(caller, policy(&at(name))).await.0, 201, "{clause} {name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_ceiling_hides_is_not_to_be_had_by_itself() {
    let stage = stage().await;
    let root = stage.home.canonicalize().unwrap();
    std::fs::create_dir_all(root.join("work/secrets")).unwrap();
    let work = root.join("work").to_str().unwrap().to_owned();
    let caller = below(&stage, "h", &format!("fs.read = [{work:?}]\nfs.hide = [\"secrets\"]"));
    let policy = |grant: Value| json!({ "fs": { "hide": ["secrets"], "read": [grant] } });
    assert_eq!(asked(&caller, policy(json!(work))).await.0, 201);
    for grant in [json!(format!("{work}/secrets")), json!({ "from": work, "to": "/data" })] {
        let refused = asked(&caller, policy(grant.clone())).await;
        assert_eq!((refused.0, &*refused.2), (403, "fs.read"), "{grant}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_without_a_ceiling_has_no_device_of_the_host() {
    let stage = stage().await;
    let refused = asked(&Caller::new(&stage, "one"), json!({ "process": { "devices": ["kvm"] } })).await;
    assert_eq!(refused, (403, "serve/beyond-ceiling".to_owned(), "process.devices".to_owned()));
}

/// Waits until a sandbox of E2B's is so; all about it.
async fn until(caller: &Caller, id: &str, state: &str) -> Value {
    for _ in 0..100 {
        let told = caller.json("GET", &format!("/sandboxes/{id}"), Value::Null).await.json();
        if told["state"] == state {
            return told;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("{id} is not {state} within 10 s");
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_ceiling_a_life_that_is_over_pauses_and_one_that_is_woken_lives_as_long_as_it_asked_for() {
    let stage = stage().await;
    // Twenty minutes, and so never a day.
    let caller = below(&stage, "p", "");
    let body = json!({ "templateID": "strict", "timeout": 1, "autoPause": true, "autoResume": { "enabled": true } });
    let made = caller.json("POST", "/v2/sandboxes", body.clone()).await;
    assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
    let made = made.json();
    let id = made["sandboxID"].as_str().unwrap();
    until(&caller, id, "paused").await;
    let woken = caller.json("POST", &format!("/sandboxes/{id}/connect"), json!({ "timeout": 3 })).await;
    assert_eq!(woken.status, 201, "{}", String::from_utf8_lossy(&woken.body));
    // The server looks each second: it would be paused again at once by an end that lies a day before the ceiling's.
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    assert_eq!(caller.json("GET", &format!("/sandboxes/{id}"), Value::Null).await.json()["state"], "running");
    until(&caller, id, "paused").await;
    assert_eq!(caller.inside(&made).rpc("/filesystem.Filesystem/Stat", json!({ "path": "/" })).await.status, 200);
    assert_eq!(until(&caller, id, "running").await["sandboxID"], json!(id), "traffic wakes it as well");
    let long = json!({ "templateID": "strict", "timeout": 21 * 60, "autoPause": true });
    let refused = caller.json("POST", "/v2/sandboxes", long).await;
    assert_eq!((refused.status, &refused.json()["fumehood"]["clause"]), (403, &json!("limits.wall")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_room_is_told_with_when_to_come_again() {
    let full = stage_with(|| live::headroom::Headroom { memory: Some(1 << 20), processes: None }).await;
    let caller = Caller::new(&full, "one");
    for path in ["/v2/sandboxes", "/v1/sandboxes", "/v1/runs"] {
        let body = if path.ends_with("runs") { json!({ "cmd": ["true"] }) } else { json!({}) };
        let busy = caller.json("POST", path, body).await;
        assert_eq!(busy.status, 503, "{path}: {}", String::from_utf8_lossy(&busy.body));
        assert_eq!((busy.header("should-retry"), busy.header("retry-after")), ("true", "2"), "{path}");
    }
    let good = stage().await;
    assert_eq!(Caller::new(&good, "one").json("POST", "/v1/sandboxes", json!({})).await.status, 201);
}
