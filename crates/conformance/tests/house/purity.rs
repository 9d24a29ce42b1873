//! What asks nobody but whom it may: the gate, code of one processor, what a start is prepared from.

use std::fs;

use super::source::{code_only, files, identifiers, is_test, product, shown};
use super::{Findings, none};

/// The gate decides, and asks the machine through this file alone: no clock, no network, no environment.
const GATE: &str = "crates/gate/src/";
const GATE_FILES: &str = "crates/gate/src/files.rs";

/// What reaches out of a pure function, in code that is not a test's.
const REACHES_OUT: [&str; 16] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::io::std",
    "rustix::",
    "SystemTime",
    "Instant",
    "TcpStream",
    "UdpSocket",
    "UnixStream",
    "canonicalize()",
    "metadata()",
    ".exists()",
    ".is_file()",
    ".is_dir()",
    "read_link()",
];

/// Folders of what depends on the processor: assembly, layouts and numbers of one architecture.
const OF_A_PROCESSOR: [&str; 2] = ["crates/sys/src/arch/", "crates/probe/src/arch/"];

/// What a processor is called in paths and in names of packages and images.
const CALLED: [&str; 5] = ["x86_64", "x86-64", "amd64", "aarch64", "arm64"];

/// What a page says as an example.
const EXAMPLES: [&str; 2] = ["crates/policy/src/rows/files.rs", "crates/fumehood/src/cli/image_pull.rs"];

/// Where a start is prepared: of the plan it reads the controls, which say all that the policy says.
const PREPARES: [&str; 12] = [
    "crates/backends/src/identity.rs",
    "crates/backends/src/native/",
    "crates/backends/src/engine/",
    "crates/backends/src/gvisor/",
    "crates/backends/src/oci/",
    "crates/backends/src/machine/",
    "crates/sandbox/src/run/begin.rs",
    "crates/sandbox/src/run/covers.rs",
    "crates/sandbox/src/run/git_layers.rs",
    "crates/sandbox/src/run/guard.rs",
    "crates/sandbox/src/run/trees.rs",
    "crates/sandbox/src/run/workspace.rs",
];

/// What no control says: which files the policy itself was read from.
const SAID_BY_NO_CONTROL: [&str; 1] = ["documents"];

/// Where the gate reaches out of its one file for it.
fn impure_gate() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if !name.starts_with(GATE) || name == GATE_FILES || is_test(&name) {
            continue;
        }
        let source = fs::read_to_string(&path)?;
        let code = code_only(&source);
        for (number, line) in product(&code).lines().enumerate() {
            if let Some(word) = REACHES_OUT.iter().find(|word| line.contains(**word)) {
                found.push(format!("{name}:{}: `{word}`: the gate asks the machine in `{GATE_FILES}`", number + 1));
            }
        }
    }
    Ok(found)
}

/// What only one processor has, in code and in texts, outside of a folder for it.
fn processors_outside_their_folders() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        if OF_A_PROCESSOR.iter().any(|folder| name.starts_with(folder)) {
            continue;
        }
        let source = fs::read_to_string(&path)?;
        let mut say = |number: usize, word: &str| {
            let places = OF_A_PROCESSOR.join(" or ");
            found.push(format!("{name}:{}: `{word}` stands below {places} alone", number + 1));
        };
        for (number, line) in code_only(&source).lines().enumerate() {
            identifiers(line).filter(|word| names_a_processor(word)).for_each(|word| say(number, word));
        }
        let texts = !is_test(&name) && !EXAMPLES.contains(&name.as_str()) && name.starts_with("crates/");
        let lines =
            product(&source).lines().enumerate().filter(|(_, line)| texts && !line.trim_start().starts_with("//"));
        for (number, line) in lines {
            CALLED.iter().filter(|word| line.contains(**word)).for_each(|word| say(number, word));
        }
    }
    Ok(found)
}

fn names_a_processor(word: &str) -> bool {
    matches!(word, "asm" | "naked_asm" | "global_asm" | "target_arch" | "x86_64" | "x86" | "aarch64")
}

/// Where what prepares a start asks the policy. `support` alone reads it: each backend hands it one in its `mod.rs`, and the
/// emulator's own plan is made of a document, whose policy goes the same way.
fn asks_of_the_policy() -> Findings {
    let mut found = Vec::new();
    for path in files(&[".rs"])? {
        let name = shown(&path);
        let prepares = PREPARES.iter().any(|place| name.starts_with(place));
        if !prepares || is_test(&name) {
            continue;
        }
        let code = code_only(&fs::read_to_string(&path)?);
        for (number, line) in product(&code).lines().enumerate().filter(|(_, line)| asks_the_policy(line)) {
            found.push(format!("{name}:{}: `{}`: a start is made of controls", number + 1, line.trim()));
        }
    }
    Ok(found)
}

/// A field of the policy is read.
fn asks_the_policy(line: &str) -> bool {
    let said = |rest: &str| !SAID_BY_NO_CONTROL.iter().any(|word| rest.starts_with(word));
    let field = |rest: &str| rest.starts_with(|c: char| c.is_ascii_lowercase()) && said(rest);
    line.split("policy.").skip(1).any(field)
}

#[test]
fn a_start_is_prepared_from_controls_alone() {
    none(&asks_of_the_policy().expect("the tree can be read"));
    assert!(asks_the_policy("let x = plan.policy.net.mode;") && asks_the_policy("&policy.fs"));
    assert!(asks_the_policy("policy.documents.0.len() > policy.fs.write.len()"));
    assert!(
        !asks_the_policy("&plan.policy.documents.0")
            && !asks_the_policy("use policy::Plan;")
            && !asks_the_policy("let policy = loaded.policy_on(Tier::Vm);")
    );
}

#[test]
fn the_gate_asks_the_machine_in_one_file() {
    none(&impure_gate().expect("the tree can be read"));
}

#[test]
fn what_one_processor_has_stands_in_its_folder() {
    none(&processors_outside_their_folders().unwrap());
    let named = |code: &str| identifiers(&code_only(code)).any(names_a_processor);
    assert!(named("core::arch::asm!(\"nop\")") && named("#[cfg(target_arch = \"riscv64\")]"));
    assert!(!named("let release = \"el9.x86_64\"; // asm!"));
}
