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

/// The entries for E2B's headers take names that are free: a template's own secret would give way without a word.
#[tokio::test(flavor = "multi_thread")]
async fn a_secret_of_the_template_stays_beside_the_headers_of_rules() {
    let stage = stage().await;
    let folder = stage.home.parent().unwrap();
    let own = "[secrets.header_0]\nfrom = \"env:OWN\"\nhosts = [\"a.test\"]\nas = { header = \"x-own\" }\n";
    let limits = "memory = \"2G\"\npids = 512\nopen_files = 8192\nfile_size = \"1G\"\ndisk = \"2G\"\nfiles = 200000\noutput = \"64M\"\nwall = \"1h\"";
    let places = "[fs]\ntmp = \"512M\"\nshm = \"64M\"\nrun = \"16M\"\n[syscalls]\nprofile = \"default\"";
    let net = "[net]\nmode = \"allow\"\nallow = [\"a.test\"]";
    let ceiling = format!("version = 1\nextends = [\"python\"]\n[limits]\n{limits}\n{places}\n{net}\n{own}");
    std::fs::write(folder.join("own.toml"), format!("version = 1\n{own}")).unwrap();
    std::fs::write(folder.join("ceiling.toml"), ceiling).unwrap();
    std::fs::write(folder.join("recipe.toml"), format!("policy = [\"{}\"]\n", folder.join("own.toml").display()))
        .unwrap();
    let source = live::template::Source::file(&folder.join("recipe.toml")).unwrap();
    let tools = live::template::Tools::new(&sandbox::Environment::default());
    live::template::Store::new(&folder.join("state")).build("own", &source, &tools).unwrap();
    let ceiling = folder.join("ceiling.toml").to_str().unwrap().to_owned();
    let key = stage.keys.add("small", Some(ceiling), None).unwrap();
    let caller = Caller::new(&stage, "one").with("x-api-key", &key);
    let rules = json!({ "a.test": [{ "transform": { "headers": { "Accept": "a/b", "X-Key": "long-enough" } } }] });
    let network = json!({ "allowOut": ["a.test"], "denyOut": ["0.0.0.0/0"], "rules": rules });
    for (template, names) in [("own", ["header_1", "header_2"]), ("base", ["header_0", "header_1"])] {
        let asked = json!({ "templateID": template, "network": network });
        let answer = caller.json("POST", "/v2/sandboxes", asked).await;
        assert_eq!(answer.status, 201, "{template}: {}", answer.json());
        let given = std::fs::read_to_string(stage.home.with_extension("secrets")).unwrap();
        let entry = |name: &str, header: &str| given.contains(&format!("{name}={{from=")) && given.contains(header);
        assert!(entry(names[0], "header=\"accept\",format=\"{}\",public=true}"), "{template}: {given}");
        assert!(entry(names[1], "header=\"x-key\",format=\"{}\"}"), "{template}: {given}");
        assert_eq!(given.contains("header_0={"), template == "base", "{given}");
        // Of two in one header of a request one would be gone.
        let mut same = network.clone();
        same["rules"]["a.test"][0]["transform"]["headers"]["X-Own"] = json!("long-enough");
        let answer = caller.json("POST", "/v2/sandboxes", json!({ "templateID": template, "network": same })).await;
        assert_eq!(answer.status, if template == "own" { 400 } else { 201 }, "{template}: {}", answer.json());
    }
}
