//! The form of pages: a decision is one page with the same parts, and a block says what it is written in.

use std::fs;

use crate::blocks::{documents, root, shown};

/// What each decision has, in this order; other parts may stand between.
const PARTS: [&str; 4] = ["## Context", "## Decision", "## Measurement", "## Consequences"];

/// Words of a decision, without tables: about a page.
const MAX_WORDS: usize = 800;

/// What is wrong with the form of a decision.
fn wrong_form(name: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let number = name.split('-').next().unwrap_or_default();
    if !text.starts_with(&format!("# {number}: ")) {
        found.push(format!("{name}: its title does not begin with `# {number}: `"));
    }
    let headings: Vec<&str> = text.lines().filter(|line| PARTS.contains(line)).collect();
    if headings != PARTS {
        found
            .push(format!("{name}: it has {headings:?}, not {PARTS:?}: what was not measured is said with its reason"));
    }
    let words: usize =
        text.lines().filter(|line| !line.starts_with('|')).map(|line| line.split_whitespace().count()).sum();
    if words > MAX_WORDS {
        found.push(format!("{name}: {words} words beside its tables, and a page has {MAX_WORDS}"));
    }
    found
}

#[test]
fn every_decision_is_a_page_with_what_was_measured() {
    let folder = root().join("docs/decisions");
    let list = fs::read_to_string(folder.join("README.md")).expect("the list can be read");
    let (mut found, mut read) = (Vec::new(), 0);
    for entry in fs::read_dir(&folder).expect("the decisions can be listed") {
        let name = entry.expect("an entry can be read").file_name().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        read += 1;
        found.extend(wrong_form(&name, &fs::read_to_string(folder.join(&name)).expect("a decision can be read")));
        if !list.contains(&format!("]({name})")) {
            found.push(format!("{name}: docs/decisions/README.md does not list it"));
        }
    }
    assert!(read > 70, "only {read} decisions found: the search is broken");
    crate::none(&found);
}

#[test]
fn a_decision_in_another_form_is_found() {
    let page = |parts: &[&str]| format!("# 0001: A page\n\n{}\n", parts.join("\n\nWords.\n\n"));
    assert!(wrong_form("0001-a.md", &page(&PARTS)).is_empty());
    let without = ["## Context", "## Decision", "## Consequences"];
    let turned = ["## Context", "## Measurement", "## Decision", "## Consequences"];
    for wrong in
        [page(&without), page(&turned), page(&PARTS).replace("0001", "0002"), page(&PARTS) + &"word ".repeat(MAX_WORDS)]
    {
        assert_eq!(wrong_form("0001-a.md", &wrong).len(), 1, "{wrong}");
    }
}

/// A block without a language is one that no test looks into.
#[test]
fn every_block_says_what_it_is_written_in() {
    let mut found = Vec::new();
    for path in documents().expect("the documents can be listed") {
        let text = fs::read_to_string(&path).expect("a document can be read");
        let fences = text.lines().enumerate().filter(|(_, line)| line.starts_with("```"));
        let begins = fences.step_by(2).filter(|(_, line)| *line == "```");
        found.extend(begins.map(|(number, _)| format!("{}:{}: it names no language", shown(&path), number + 1)));
    }
    crate::none(&found);
}
