//! Arms that take whatever is left: a new variant passes them in silence, so they are few.
//!
//! Over variants of enums alone clippy refuses them (`wildcard_enum_match_arm`); what it lets pass are tuples, slices, `Option` and
//! `Result` with something in them. Over texts and numbers there is no other form, and no variant that could be new.

use std::fs;

use super::Found;
use super::source::{code_only, files, is_test, product, shown};

/// In so many lines of code there may be one.
const LINES_OF_AN_ARM: usize = 2000;

/// Lines that are code, and those of them with an arm that takes whatever variant is left.
fn counted(code: &str) -> (usize, usize) {
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim().is_empty()).collect();
    let arms =
        (0..lines.len()).filter(|at| takes_the_rest(lines.get(*at).unwrap_or(&"")) && beside_variants(&lines, *at));
    (lines.len(), arms.count())
}

/// Whether an arm of the same match names a variant: as they are written, one below the other.
fn beside_variants(lines: &[&str], at: usize) -> bool {
    let indent = |line: &&str| line.len() - line.trim_start().len();
    let Some(own) = lines.get(at).map(indent) else { return false };
    let above = lines.iter().take(at).rev().take_while(|line| indent(line) >= own);
    above.filter(|line| indent(line) == own).chain(lines.get(at)).any(|line| names_a_variant(line))
}

/// A name with a capital and a small letter before an arrow, or in a pattern that goes on.
fn names_a_variant(line: &str) -> bool {
    let line = line.trim_start();
    let pattern = line.split("=>").next().unwrap_or_default();
    let is_pattern = line.contains("=>") || line.starts_with('|') || line.starts_with('(') || line.starts_with('[');
    is_pattern
        && super::source::words(pattern).any(|word| {
            let mut letters = word.chars();
            letters.next().is_some_and(char::is_uppercase) && letters.any(char::is_lowercase)
        })
}

fn takes_the_rest(line: &str) -> bool {
    let line = line.trim_start();
    let arm = line.strip_prefix("_ ").or_else(|| line.split_once(" _ ").map(|(_, rest)| rest));
    arm.is_some_and(|rest| rest.starts_with("=>") || (rest.starts_with("if ") && rest.contains("=>")))
}

/// Of all crates together, and where most of them are.
fn too_many_arms() -> Found {
    let (mut lines, mut arms, mut by_file) = (0, 0, Vec::new());
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if is_test(&name) {
            continue;
        }
        let (of_code, of_rest) = counted(product(&code_only(&fs::read_to_string(&path)?)));
        (lines, arms) = (lines + of_code, arms + of_rest);
        by_file.push((of_rest, name));
    }
    if arms * LINES_OF_AN_ARM <= lines {
        return Ok(Vec::new());
    }
    by_file.sort();
    let most = by_file.iter().rev().take(20).map(|(arms, name)| format!("{name}: {arms}"));
    let all = format!("{arms} arms `_ =>` in {lines} lines of code, and one in {LINES_OF_AN_ARM} is allowed");
    Ok(std::iter::once(all).chain(most).collect())
}

#[test]
fn few_arms_take_whatever_is_left() {
    super::none(&too_many_arms().expect("the tree can be read"));
}

#[test]
fn an_arm_that_takes_the_rest_is_known_from_one_that_does_not() {
    for arm in ["        _ => {}", "let x = match y { 1 => 2, _ => 3 };", "_ if late => 1,"] {
        assert!(takes_the_rest(arm), "{arm}");
    }
    for other in ["(_, 2) => 1,", "let _ = 1;", "Some(_) => 2,", "|_| 3", "_other => 4,"] {
        assert!(!takes_the_rest(other), "{other}");
    }
    let over_text =
        "match b {\n    // _ => 1\n\n    \"Some\" | A_NUMBER => {\n        Some(1)\n    }\n    _ => \"_ => 2\",\n}";
    assert_eq!(counted(&code_only(over_text)), (6, 0));
    let over_variants = "match b {\n    (Some(b), 1) => {\n        2\n    }\n    _ => 3,\n}";
    assert_eq!(counted(&code_only(over_variants)), (6, 1));
}
