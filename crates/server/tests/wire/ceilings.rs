//! Keys with a ceiling: what of the host their sandboxes may be made of.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::stage::{Caller, Stage, stage};

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
