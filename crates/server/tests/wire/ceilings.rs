//! Keys with a ceiling: what of the host their sandboxes may be made of.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use live::Home;
use sandbox::Environment;
use sandbox::state::State;
use serde_json::{Value, json};
use server::app::AppState;
use server::folder::Folder;
use server::http::{Server, Settings};
use server::keys::Keys;

use crate::builds::OneImage;
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

/// What is said of a ceiling that its own sandboxes could write.
const WRITTEN: &str = "the ceiling lies where it lets programs write";

/// Ceilings below which programs may write in `work`: three that they could change there, by a document, one that it extends and a
/// link on the way, and one that they could not.
fn ceilings(root: &Path) -> ([String; 3], String) {
    let work = root.join("work");
    let text = |extends: &str| {
        format!(
            "version = 1\nextends = \"{extends}\"\nlimits.wall = \"20m\"\nworkspace = {{ path = {:?}, mode = \"rw\" }}\n",
            work.to_str().unwrap()
        )
    };
    std::fs::create_dir_all(&work).unwrap();
    let write = |name: &str, text: &str| {
        std::fs::write(root.join(name), text).unwrap();
        root.join(name).to_str().unwrap().to_owned()
    };
    write("work/below.toml", "version = 1\nextends = \"strict\"\n");
    let within = [write("work/top.toml", &text("strict")), write("extends.toml", &text("./work/below.toml"))];
    let beside = write("beside.toml", &text("strict"));
    symlink(&beside, work.join("led.toml")).unwrap();
    symlink("work/led.toml", root.join("link.toml")).unwrap();
    let [top, extends] = within;
    ([top, extends, root.join("link.toml").to_str().unwrap().to_owned()], beside)
}

/// Of `fumehood`'s own interface and E2B's: nothing is made, planned or changed below such a ceiling.
#[tokio::test(flavor = "multi_thread")]
async fn a_ceiling_that_its_sandboxes_could_write_is_refused_at_every_door() {
    let stage = stage().await;
    let (written, beside) = ceilings(&stage.home.canonicalize().unwrap());
    let key = |name: &str, top: &str| {
        let key = stage.keys.add(name, Some(top.to_owned()), None).unwrap();
        Caller { base: stage.base.clone(), headers: vec![("x-api-key".to_owned(), key)] }
    };
    let doors = [
        ("/v1/sandboxes", json!({ "policy": { "extends": "strict" }, "timeout": "1m" })),
        ("/v1/plan", json!({ "policy": { "extends": "strict" }, "timeout": "1m" })),
        ("/v1/runs", json!({ "cmd": ["true"], "policy": { "extends": "strict" } })),
        ("/v2/sandboxes", json!({ "templateID": "strict", "timeout": 60 })),
    ];
    let good = key("good", &beside);
    for (number, top) in written.iter().enumerate() {
        let caller = key(&format!("k{number}"), top);
        for (path, body) in &doors {
            let refused = caller.json("POST", path, body.clone()).await;
            let said = String::from_utf8_lossy(&refused.body).into_owned();
            assert!(refused.status == 500 && said.contains(WRITTEN) && !said.contains("work"), "{path} {top}: {said}");
        }
        assert_eq!(caller.json("GET", "/v1/sandboxes", Value::Null).await.json()["sandboxes"], json!([]), "{top}");
    }
    for (path, body) in &doors {
        let taken = good.json("POST", path, body.clone()).await;
        let said = String::from_utf8_lossy(&taken.body).into_owned();
        assert!(matches!(taken.status, 200 | 201) && !said.contains(WRITTEN), "{path}: {said}");
    }
}

/// Docker's door has one ceiling, which is read when the server starts.
#[tokio::test]
async fn a_ceiling_that_its_containers_could_write_opens_no_door_of_docker() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().canonicalize().unwrap();
    let (written, beside) = ceilings(&root);
    let opened = |name: &str, ceiling: &str| {
        let state = root.join(name).into();
        let euid = std::fs::metadata(&root).unwrap().uid();
        let environment =
            Environment::new(Some(root.clone()), BTreeMap::from([("FUMEHOOD_STATE".into(), state)]), euid);
        let state = State::open(&environment.state).unwrap();
        let keys = Keys::open(state.path()).unwrap();
        let folder = Folder::new(Home::new(&state).unwrap(), Arc::new(|_| panic!("nothing is asked for")));
        let app = AppState::new(Arc::new(folder), keys, &environment, Settings::default()).unwrap();
        let server = Server::new(app).with_docker(Arc::new(OneImage::default()), Some(ceiling.to_owned()));
        server.map(drop).map_err(|problems| problems[0].line())
    };
    for (number, top) in written.iter().enumerate() {
        let said = opened(&format!("s{number}"), top).unwrap_err();
        assert!(said.contains(WRITTEN), "{top}: {said}");
    }
    assert_eq!(opened("good", &beside), Ok(()));
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
