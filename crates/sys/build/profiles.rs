//! `resources/seccomp` as constants of the library. A profile that does not fit fails the build with its file and line; a
//! call that does not exist fails as an unknown constant.
#![expect(clippy::panic, reason = "a build script has no other way to fail with a message")]

#[expect(unreachable_pub, reason = "tests of the library share it")]
mod conditions;
#[path = "../src/seccomp/rule.rs"]
#[expect(dead_code, unreachable_pub, reason = "the library uses all of it")]
mod rule;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rule::{Action, All, Condition, Test, Width};
use serde::Deserialize;

/// One file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// What it is for, one line.
    about: String,
    /// Other files, taken in first.
    #[serde(default)]
    include: Vec<String>,
    /// Rules; a later one about the same call wins.
    #[serde(default, rename = "rule")]
    rules: Vec<Rule>,
}

/// One `[[rule]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// Names of calls.
    calls: Vec<String>,
    /// Why it is so.
    why: String,
    /// Alternatives in which the call runs; the rest is answered with `otherwise`.
    #[serde(default)]
    allow: Vec<String>,
    /// Alternatives in which it is answered with `otherwise`; the rest runs.
    #[serde(default)]
    deny: Vec<String>,
    /// More alternatives for a call that an earlier rule allows in some.
    #[serde(default)]
    also: Vec<String>,
    /// `allow`, `kill`, `done` or an errno.
    #[serde(default)]
    action: String,
    /// `kill` or an errno.
    #[serde(default)]
    otherwise: String,
}

/// Writes the constants to `OUT_DIR/seccomp.rs`.
pub(super) fn write() {
    println!("cargo::rerun-if-changed=build");
    println!("cargo::rerun-if-changed=src/seccomp/rule.rs");
    let root = Path::new(&required("CARGO_MANIFEST_DIR")).join("../../resources/seccomp");
    println!("cargo::rerun-if-changed={}", root.display());
    let mut files = BTreeMap::new();
    read_folder(&root, "", &mut files);
    let mut text = String::from("#[rustfmt::skip]\npub(super) static FILES: &[Stored] = &[\n");
    for (name, file) in &files {
        let File { about, include, rules } = file;
        assert!(!about.is_empty(), "{name}: it needs `about`");
        for other in include {
            assert!(files.contains_key(other), "{name}: there is no `{other}` to include");
        }
        assert!(depth(name, &files) < 8, "{name}: included in a circle");
        let rules: String = rules.iter().map(|rule| written(name, rule)).collect();
        put(
            &mut text,
            format_args!(
                "Stored {{ name: {name:?}, about: {about:?}, include: &{include:?}, rules: &[\n{rules}] }},\n"
            ),
        );
    }
    text.push_str("];\n");
    let out = PathBuf::from(required("OUT_DIR")).join("seccomp.rs");
    std::fs::write(&out, text).unwrap_or_else(|error| panic!("{}: {error}", out.display()));
}

fn required(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "cargo speaks to build scripts through the environment")]
    std::env::var(name).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).unwrap_or_else(|error| panic!("{error}"));
}

fn read_folder(folder: &Path, prefix: &str, files: &mut BTreeMap<String, File>) {
    let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.unwrap_or_else(|error| panic!("{}: {error}", folder.display())).path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let name = format!("{prefix}{stem}");
        if path.is_dir() {
            read_folder(&path, &format!("{name}/"), files);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let file = toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            files.insert(name, file);
        }
    }
}

fn depth(name: &str, files: &BTreeMap<String, File>) -> usize {
    fn below(name: &str, files: &BTreeMap<String, File>, left: usize) -> usize {
        if left == 0 {
            return 1;
        }
        let included = files.get(name).map_or(&[][..], |file| &file.include);
        included.iter().map(|other| below(other, files, left.saturating_sub(1)).saturating_add(1)).max().unwrap_or(0)
    }
    below(name, files, 8)
}

fn written(file: &str, rule: &Rule) -> String {
    let Rule { calls, why, allow, deny, also, action, otherwise } = rule;
    let here = || format!("{file}: the rule of {calls:?}");
    assert!(!calls.is_empty() && !why.is_empty(), "{} needs `calls` and `why`", here());
    let act = |text: &str| {
        let action = conditions::action(text).unwrap_or_else(|| panic!("{}: `{text}` is no action", here()));
        match action {
            Action::Errno(errno) => format!("Action::Errno({errno})"),
            Action::Allow | Action::Kill => format!("Action::{action:?}"),
        }
    };
    let any = |texts: &[String]| {
        let alternatives: Vec<String> = texts
            .iter()
            .map(|text| all(&conditions::conditions(text).unwrap_or_else(|error| panic!("{}: {error}", here()))))
            .collect();
        format!("Cow::Borrowed(&[{}])", alternatives.join(", "))
    };
    let when = |any: String, then: String, otherwise: String| {
        format!("Form::Is(Verdict::When {{ any: {any}, then: {then}, otherwise: {otherwise} }})")
    };
    let form = match (action.as_str(), allow.is_empty(), deny.is_empty(), also.is_empty()) {
        ("", true, true, true) => "Form::Is(Verdict::Always(Action::Allow))".to_owned(),
        (text, true, true, true) => format!("Form::Is(Verdict::Always({}))", act(text)),
        ("", false, true, true) => when(any(allow), act("allow"), act(otherwise)),
        ("", true, false, true) => when(any(deny), act(otherwise), act("allow")),
        ("", true, true, false) => format!("Form::Also {{ any: {}, otherwise: {} }}", any(also), act(otherwise)),
        (_, _, _, _) => panic!("{} may have one of `action`, `allow`, `deny`, `also`", here()),
    };
    let numbers: Vec<String> = calls.iter().map(|name| format!("numbers::__NR_{name}")).collect();
    format!("  StoredRule {{ calls: &[{}], why: {why:?}, form: {form} }},\n", numbers.join(", "))
}

fn all(conditions: &All) -> String {
    let conditions: Vec<String> = conditions
        .iter()
        .map(|Condition { argument, width, test }| {
            let width = match width {
                Width::Int => "Int",
                Width::Long => "Long",
            };
            let test = match test {
                Test::MaskedIn { mask, values } => {
                    format!("Test::MaskedIn {{ mask: {mask}, values: Cow::Borrowed(&{values:?}) }}")
                }
                Test::Ne(_) | Test::Le(_) => format!("Test::{test:?}"),
            };
            format!("Condition {{ argument: {argument}, width: Width::{width}, test: {test} }}")
        })
        .collect();
    format!("Cow::Borrowed(&[{}])", conditions.join(", "))
}
