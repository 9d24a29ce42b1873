//! The page of support is fresh.
#![forbid(unsafe_code)]

use std::path::Path;

#[test]
fn the_page_of_support_is_fresh() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/support.md");
    let page = conformance::support_page::page().unwrap();
    if std::env::var_os("FUMEHOOD_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/reference/support.md is stale: run FUMEHOOD_WRITE=1 cargo test -p fumehood-conformance --test support"
    );
}

#[test]
fn every_clause_is_held_or_refused_somewhere() {
    let page = conformance::support_page::page().unwrap();
    for section in page.split("\n## ").skip(1) {
        let name = section.lines().next().unwrap_or_default();
        // `backend` says who is asked, `threat` and `enforcer` judge the others; `net.dns` is part of a network that is refused as a whole.
        let by_others = ["backend", "threat", "enforcer", "net.dns", "audit.redact"].contains(&name);
        let held = ["(kernel", "(supervisor", "(broker", "refused `"].iter().any(|word| section.contains(word));
        assert!(held || by_others, "{section}");
    }
}
