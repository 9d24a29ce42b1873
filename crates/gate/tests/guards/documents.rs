//! The guards of the reference page, compiled and tried.

use std::path::Path;

use gate::guard::Compiled;
use policy::{Caller, Format, Layers};
use serde_json::json;

#[test]
fn the_guards_of_the_reference_page_compile_and_judge_as_it_says() {
    let page =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/guards.md")).unwrap();
    let policy = page.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let mut layers = Layers::new(Caller { dir: "/".into(), home: None, profiles: Vec::new() });
    let no_file = |_: &Path| Err::<String, String>("no such file".to_owned());
    layers.document("policy.toml", policy, Format::Toml, Path::new("/"), &no_file);
    let loaded = layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}"));
    let entries = &loaded.policy.tools.as_ref().unwrap().entries;
    let compiled = |name: &str| {
        let mut guards = entries.iter().flat_map(|entry| &entry.guards);
        let (_, guard) = guards.find(|(argument, _)| argument.value == name).unwrap();
        Compiled::new(&guard.value, &loaded.documents).unwrap_or_else(|mistakes| panic!("{mistakes}"))
    };
    for (argument, good, bad) in [
        (
            "sql",
            json!("SELECT o.id, c.name FROM orders o JOIN customers c ON c.id = o.customer_id"),
            json!("SELECT * FROM orders"),
        ),
        ("to", json!("a@mail.company.com"), json!("a@mail.company.com.evil.example")),
        ("callback", json!("https://x.partner.example/hook"), json!("https://partner.example/hook")),
        ("copies", json!(10), json!(10.5)),
        ("subject", json!("hello"), json!("x".repeat(121))),
        ("ticket", json!("ABC-12"), json!("ABC-12\n")),
        ("format", json!("short"), json!("Short")),
    ] {
        let guard = compiled(argument);
        assert!(guard.pass(&good).is_ok(), "{argument}: {:?}", guard.pass(&good));
        assert!(guard.pass(&bad).is_err(), "{argument}: {bad}");
    }
    assert!(compiled("file").pass(&json!("/etc/passwd")).is_err());
}
