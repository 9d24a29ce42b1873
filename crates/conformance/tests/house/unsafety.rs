//! Where `unsafe` may stand, and with which argument.

use std::fs;

use super::imports::{Metadata, Target, metadata};
use super::source::{code_only, files, identifiers, shown};
use super::{Findings, none};

/// Where `unsafe` may stand, and why.
const UNSAFE_ROOMS: [(&str, &str); 2] = [
    ("crates/sys/", "the kernel's calls, made safe for all others"),
    ("crates/probe/", "attack payloads; nothing of the product but `attack` may import it"),
];

/// Whether a file lies in a room for `unsafe`.
fn may_be_unsafe(name: &str) -> bool {
    UNSAFE_ROOMS.iter().any(|(room, _)| name.starts_with(room))
}

fn unsafe_outside_its_rooms() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if may_be_unsafe(&name) {
            continue;
        }
        let code = code_only(&fs::read_to_string(&path)?);
        for (number, line) in code.lines().enumerate() {
            if identifiers(line).any(|word| word == "unsafe") {
                found.push(format!("{name}:{}: `unsafe` stands outside its rooms {UNSAFE_ROOMS:?}", number + 1));
            }
        }
    }
    Ok(found)
}

fn roots_that_do_not_forbid_unsafe(metadata: &Metadata) -> Findings {
    let mut found = Vec::new();
    for package in &metadata.packages {
        let product = |target: &&Target| target.kind.iter().any(|kind| matches!(kind.as_str(), "lib" | "bin"));
        for target in package.targets.iter().filter(product) {
            let path = target.src_path.strip_prefix(&metadata.workspace_root);
            if path.is_ok_and(|path| may_be_unsafe(&path.to_string_lossy())) {
                continue;
            }
            let source = fs::read_to_string(&target.src_path)?;
            if !source.contains("#![forbid(unsafe_code)]") {
                found.push(format!("{} has no `#![forbid(unsafe_code)]`", shown(&target.src_path)));
            }
        }
    }
    Ok(found)
}

/// Arguments that argue nothing: they fit any call.
const EMPTY_ARGUMENTS: [&str; 5] = ["parameters are valid", "this is safe", "is safe here", "safe because", "trust me"];

/// Each unsafe block or impl stands below a `SAFETY:` comment that says more than that it is safe.
fn unsafe_without_an_argument() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])?.into_iter().filter(|path| may_be_unsafe(&shown(path))) {
        let source = fs::read_to_string(&path)?;
        let lines: Vec<&str> = source.lines().collect();
        let code = code_only(&source);
        for (number, line) in code.lines().enumerate() {
            if !line.contains("unsafe {") && !line.contains("unsafe impl") {
                continue;
            }
            let argument = argument_above(&lines, number).to_lowercase();
            let says = identifiers(&argument).filter(|word| *word != "safety").count();
            if says < 2 || EMPTY_ARGUMENTS.iter().any(|phrase| argument.contains(phrase)) {
                let place = format!("{}:{}", shown(&path), number + 1);
                found.push(format!(
                    "{place}: no `// SAFETY:` comment above it that says what is required and why it holds"
                ));
            }
        }
    }
    Ok(found)
}

/// The `SAFETY:` comment above (or at the end of) a line; empty where there is none. The comment may stand above the
/// statement whose later line opens the block.
fn argument_above(lines: &[&str], number: usize) -> String {
    let near = lines.get(number.saturating_sub(12)..=number).unwrap_or_default();
    let Some(at) = near.iter().rposition(|line| line.contains("SAFETY:")) else { return String::new() };
    let comments = near.iter().skip(at).take_while(|line| line.contains("//"));
    comments.filter_map(|line| line.split_once("//").map(|(_, text)| text)).collect::<Vec<_>>().join(" ")
}

#[test]
fn unsafe_code_stands_in_its_rooms() {
    none(&unsafe_outside_its_rooms().expect("the tree can be read"));
    let metadata = metadata().expect("cargo metadata reads the workspace");
    none(&roots_that_do_not_forbid_unsafe(&metadata).expect("the roots can be read"));
}

#[test]
fn every_unsafe_block_has_its_argument() {
    none(&unsafe_without_an_argument().expect("the tree can be read"));
}
