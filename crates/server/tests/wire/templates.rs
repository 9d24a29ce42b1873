//! What sandboxes are made from that name a policy, a template or neither.

use serde_json::{Value, json};

use crate::stage::{Caller, stage};

#[tokio::test(flavor = "multi_thread")]
async fn the_preset_of_code_interpreters_has_their_template_where_it_was_built() {
    let stage = stage().await;
    let caller = Caller::new(&stage, "one");
    let template_of = async |asked: Value| {
        let made = caller.json("POST", "/v1/sandboxes", asked).await;
        assert_eq!(made.status, 201, "{}", String::from_utf8_lossy(&made.body));
        made.json()["template"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(template_of(json!({ "policy": "data-analysis" })).await, "");
    let folder = stage.home.parent().unwrap();
    let recipe = folder.join("recipe.toml");
    std::fs::write(&recipe, "policy = [\"data-analysis\"]\nenv.MARK = \"built\"\n").unwrap();
    let source = live::template::Source::file(&recipe).unwrap();
    let tools = live::template::Tools::new(&sandbox::Environment::default());
    live::template::Store::new(&folder.join("state")).build("code-interpreter-v1", &source, &tools).unwrap();
    for (asked, template) in [
        (json!({ "policy": "data-analysis" }), "code-interpreter-v1"),
        (json!({ "policy": "data-analysis", "template": "base" }), "base"),
        (json!({ "policy": { "extends": "data-analysis" } }), ""),
        (json!({ "policy": "strict" }), ""),
        (json!({}), "base"),
    ] {
        assert_eq!(template_of(asked.clone()).await, template, "{asked}");
    }
    // The limits are those of the policy, and not those that E2B's clients get. Whether this host holds them is another question.
    let plan = async |asked: Value| caller.json("POST", "/v1/plan", asked).await.json();
    let planned = plan(json!({ "policy": "data-analysis" })).await;
    let limit = |plan: &Value, clause: &str| {
        let clauses = plan["clauses"].as_array().cloned().unwrap_or_default();
        clauses.iter().find(|one| one["clause"] == clause).map(|one| one["value"].clone())
    };
    let preset = plan(json!({ "policy": { "extends": "data-analysis" } })).await;
    for clause in ["limits.memory", "limits.pids", "fs.tmp"] {
        assert_eq!(limit(&planned, clause), limit(&preset, clause), "{clause}");
    }
}
