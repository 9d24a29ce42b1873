//! The house rules that no compiler holds: who may import whom, where `unsafe` may stand, how long a file may
//! grow, which names say nothing. One test is one rule; each names every breach and what to do instead.

mod arms;
mod imports;
mod purity;
mod source;
mod unsafety;

use std::error::Error;
use std::fs;
use std::path::Path;

use source::{files, identifiers, shown};

type Findings = Result<Vec<String>, Box<dyn Error>>;

/// Above this a file is split along what it speaks about.
const MAX_LINES: usize = 600;

/// Names that collect everything because they say nothing.
const EMPTY_NAMES: [&str; 9] = ["common", "core", "helper", "helpers", "misc", "types", "util", "utils", "stuff"];

fn long_files() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs", ".py", ".sh"])? {
        let count = fs::read_to_string(&path)?.lines().count();
        if count > MAX_LINES {
            found.push(format!("{} has {count} lines, at most {MAX_LINES}: split it", shown(&path)));
        }
    }
    Ok(found)
}

fn empty_names() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs", ".py", ".toml"])? {
        let name = shown(&path);
        for part in Path::new(&name).components() {
            let part = Path::new(part.as_os_str());
            let stem = part.file_stem().unwrap_or_default().to_string_lossy();
            if EMPTY_NAMES.contains(&stem.as_ref()) {
                found.push(format!("{name}: `{stem}` says nothing: name what the file holds"));
            }
        }
    }
    Ok(found)
}

/// Where lines of such files breach a rule, and what it says.
fn lines_that(endings: &[&str], breaks: impl Fn(&str) -> bool, rule: &str) -> Findings {
    let mut found = Vec::new();
    for path in files(endings)? {
        for (number, line) in fs::read_to_string(&path)?.lines().enumerate() {
            if breaks(line) {
                found.push(format!("{}:{}: {rule}", shown(&path), number + 1));
            }
        }
    }
    Ok(found)
}

fn promises_without_an_issue() -> Findings {
    // Spelled apart, so that this file does not breach its own rule.
    let marks = [["TO", "DO"].concat(), ["FIX", "ME"].concat()];
    let is_open =
        |line: &str| identifiers(line).any(|word| marks.iter().any(|mark| mark == word)) && !line.contains('#');
    lines_that(&[".rs", ".py", ".toml", ".md"], is_open, "an open end without the number of its issue")
}

fn manifests_without_the_lint_table() -> Findings {
    let mut found = Vec::new();
    for path in files(&["Cargo.toml"])?.into_iter().filter(|path| shown(path).starts_with("crates/")) {
        let manifest = fs::read_to_string(&path)?;
        if !manifest.contains("[lints]\nworkspace = true") {
            found.push(format!("{} does not take the lint table of the workspace", shown(&path)));
        }
    }
    for path in files(&["clippy.toml"])? {
        if shown(&path) != "clippy.toml" {
            found.push(format!("{} would replace the `clippy.toml` of the root without a word", shown(&path)));
        }
    }
    Ok(found)
}

/// Tests that leave something out and say so by another word than the one that is counted.
fn uncounted_skips() -> Findings {
    // Spelled apart, so that this file does not breach its own rule.
    let other = ["ln!(\"skip", "ped"].concat();
    lines_that(&[".rs"], |line| line.contains(&other), "say `skip: REASON`, so that it is counted")
}

/// Limits whose names do not begin as all others do.
fn limits_by_other_names() -> Findings {
    let others = ["MOST", "LARGEST", "LONGEST", "DEEPEST", "HIGHEST"];
    let is_other = |line: &str| {
        let name = line.split_once("const ").and_then(|(_, rest)| rest.split([':', '_']).next());
        name.is_some_and(|name| others.contains(&name))
    };
    lines_that(&[".rs"], is_other, "a limit is `MAX_*`")
}

/// Links of documents to files of this tree that are not there.
fn broken_links() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".md"])? {
        let text = fs::read_to_string(&path)?;
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let target = link.split('#').next().unwrap_or_default();
            if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
                continue;
            }
            let folder = path.parent().unwrap_or(&path);
            if fs::symlink_metadata(folder.join(target)).is_err() {
                found.push(format!("{}: `{target}` is not there", shown(&path)));
            }
        }
    }
    Ok(found)
}

#[track_caller]
fn none(found: &[String]) {
    assert!(found.is_empty(), "{} breach(es):\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    none(&long_files().expect("the tree can be read"));
}

#[test]
fn no_file_has_a_name_that_says_nothing() {
    none(&empty_names().expect("the tree can be read"));
}

#[test]
fn no_open_end_is_without_an_issue() {
    none(&promises_without_an_issue().expect("the tree can be read"));
}

#[test]
fn what_a_test_leaves_out_is_counted() {
    none(&uncounted_skips().expect("the tree can be read"));
}

#[test]
fn limits_are_named_as_the_glossary_says() {
    none(&limits_by_other_names().expect("the tree can be read"));
}

#[test]
fn every_crate_takes_the_one_lint_table() {
    none(&manifests_without_the_lint_table().expect("the tree can be read"));
}

#[test]
fn every_link_between_documents_leads_somewhere() {
    none(&broken_links().expect("the documents can be read"));
}
