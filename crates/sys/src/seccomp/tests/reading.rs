//! The files of rules, as the build reads them.

use super::*;

/// (name, text) of every file in `resources/seccomp`.
fn files() -> Vec<(String, String)> {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/seccomp");
    let mut files = Vec::new();
    for folder in ["", "net"] {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                files.push((path.display().to_string(), std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    assert!(files.len() >= 11);
    files
}

#[test]
fn the_small_reader_and_a_real_toml_parser_agree() {
    for (name, text) in files() {
        let ours = syntax::parse(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let theirs: toml::Table = text.parse().unwrap();
        let list = |value: Option<&toml::Value>| -> Vec<String> {
            value.map_or_else(Vec::new, |list| {
                list.as_array().unwrap().iter().map(|item| item.as_str().unwrap().to_owned()).collect()
            })
        };
        let text = |value: Option<&toml::Value>| value.map_or("", |text| text.as_str().unwrap()).to_owned();
        assert_eq!(ours.about, text(theirs.get("about")), "{name}");
        assert!(!ours.about.is_empty(), "{name}");
        for rule in &ours.rules {
            assert!(
                [&rule.action, &rule.otherwise].iter().all(|text| text.is_empty() || syntax::action(text).is_some())
            );
        }
        assert_eq!(ours.include, list(theirs.get("include")), "{name}");
        let rules = theirs["rule"].as_array().unwrap();
        assert_eq!(ours.rules.len(), rules.len(), "{name}");
        for (ours, theirs) in ours.rules.iter().zip(rules) {
            let theirs = theirs.as_table().unwrap();
            assert_eq!((&ours.calls, &ours.why), (&list(theirs.get("calls")), &text(theirs.get("why"))), "{name}");
            assert_eq!((&ours.allow, &ours.deny), (&list(theirs.get("allow")), &list(theirs.get("deny"))), "{name}");
            assert_eq!((&ours.also, &ours.action), (&list(theirs.get("also")), &text(theirs.get("action"))), "{name}");
            assert_eq!(ours.otherwise, text(theirs.get("otherwise")), "{name}");
            assert_eq!(
                theirs.len(),
                ["calls", "why", "allow", "deny", "also", "action", "otherwise"]
                    .iter()
                    .filter(|key| theirs.contains_key(**key))
                    .count(),
                "{name}"
            );
        }
    }
}
