//! Arms that take whatever is left: a new variant passes them in silence, so they are few.
//!
//! Over variants of enums alone clippy refuses them (`wildcard_enum_match_arm`); what it lets pass are tuples, slices, `Option` and
//! `Result` with something in them. Over texts and numbers there is no variant that could be new, but a table or a list of all
//! variants often says the same once: these are counted too, and held to a limit of their own.

use std::error::Error;
use std::fs;

use super::Findings;
use super::source::{code_only, files, is_test, product, shown};

/// In so many lines of code there may be one, over whatever.
const LINES_OF_AN_ARM: usize = 1000;
/// In so many lines of code there may be one beside variants.
const LINES_OF_AN_ARM_BESIDE_VARIANTS: usize = 4000;

/// Lines that are code, those of them with an arm that takes whatever is left, and those of these beside variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    lines: usize,
    arms: usize,
    beside_variants: usize,
}

fn counted(code: &str) -> Counted {
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim().is_empty()).collect();
    let arms: Vec<usize> = (0..lines.len()).filter(|at| takes_the_rest(lines.get(*at).unwrap_or(&""))).collect();
    let beside_variants = arms.iter().filter(|at| beside_variants(&lines, **at)).count();
    Counted { lines: lines.len(), arms: arms.len(), beside_variants }
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
        && super::source::identifiers(pattern).any(|word| {
            let mut letters = word.chars();
            letters.next().is_some_and(char::is_uppercase) && letters.any(char::is_lowercase)
        })
}

fn takes_the_rest(line: &str) -> bool {
    let line = line.trim_start();
    let arm = line.strip_prefix("_ ").or_else(|| line.split_once(" _ ").map(|(_, rest)| rest));
    arm.is_some_and(|rest| rest.starts_with("=>") || (rest.starts_with("if ") && rest.contains("=>")))
}

/// Every file of product code, counted.
fn files_of_code() -> Result<Vec<(String, Counted)>, Box<dyn Error>> {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if !is_test(&name) {
            found.push((name, counted(product(&code_only(&fs::read_to_string(&path)?)))));
        }
    }
    Ok(found)
}

/// All files together, and where most of the arms are.
fn too_many(
    files: &[(String, Counted)],
    arms: fn(&Counted) -> usize,
    lines_of_an_arm: usize,
    which: &str,
) -> Vec<String> {
    let lines: usize = files.iter().map(|(_, counted)| counted.lines).sum();
    let all: usize = files.iter().map(|(_, counted)| arms(counted)).sum();
    if all * lines_of_an_arm <= lines {
        return Vec::new();
    }
    let mut by_file: Vec<_> = files.iter().map(|(name, counted)| (arms(counted), name)).collect();
    by_file.sort();
    let most = by_file.iter().rev().take(20).map(|(arms, name)| format!("{name}: {arms}"));
    let why = format!("{all} arms `_ =>` {which} in {lines} lines of code, and one in {lines_of_an_arm} is allowed");
    std::iter::once(why).chain(most).collect()
}

fn too_many_arms() -> Findings {
    let files = files_of_code()?;
    let mut found = too_many(&files, |counted| counted.arms, LINES_OF_AN_ARM, "over whatever");
    let beside: fn(&Counted) -> usize = |counted| counted.beside_variants;
    found.extend(too_many(&files, beside, LINES_OF_AN_ARM_BESIDE_VARIANTS, "beside variants"));
    Ok(found)
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
    assert_eq!(counted(&code_only(over_text)), Counted { lines: 6, arms: 1, beside_variants: 0 });
    let over_variants = "match b {\n    (Some(b), 1) => {\n        2\n    }\n    _ => 3,\n}";
    assert_eq!(counted(&code_only(over_variants)), Counted { lines: 6, arms: 1, beside_variants: 1 });
}

/// The control of the limits: one arm more than is allowed is told, and no arm less.
#[test]
fn an_arm_too_many_is_told() {
    let file = |arms, beside_variants| vec![("a.rs".to_owned(), Counted { lines: 4000, arms, beside_variants })];
    let all = |files: &[(String, Counted)]| too_many(files, |counted| counted.arms, LINES_OF_AN_ARM, "over whatever");
    assert_eq!(all(&file(4, 0)), Vec::<String>::new());
    let told = all(&file(5, 0));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|line| line == "a.rs: 5"), "{told:?}");
}
