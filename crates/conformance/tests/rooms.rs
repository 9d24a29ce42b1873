//! No circles between the rooms of a crate: its modules of the top level, by what each takes from another.
//!
//! The crates without one today stay so; those that still have one are named below.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::Path;

/// Crates whose rooms still need one another; a crate leaves this list and never joins it.
const WITH_CIRCLES: [&str; 11] =
    ["agent", "broker", "gate", "gateway", "guest", "language", "policy", "probe", "registry", "sandbox", "sys"];

/// What each room takes from others.
type Needs = BTreeMap<String, BTreeSet<String>>;

/// The names that directly follow `crate::`, a list in braces included.
fn taken(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let code = source.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for after in code.split("crate::").skip(1) {
        let list = after.strip_prefix('{').and_then(|list| list.split('}').next());
        for one in list.unwrap_or(after).split(',') {
            let name: String = one.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            names.insert(name);
            if list.is_none() {
                break;
            }
        }
    }
    names
}

fn read(folder: &Path, room: Option<&str>, needs: &mut Needs) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        // Tests may look at whatever they need.
        if stem == "tests" || (room.is_none() && matches!(stem.as_str(), "lib" | "main")) {
            continue;
        }
        let room = room.unwrap_or(&stem).to_owned();
        if path.is_dir() {
            read(&path, Some(&room), needs)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path)?;
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            needs.entry(room).or_default().extend(taken(product));
        }
    }
    Ok(())
}

/// The rooms that are left when whoever needs nobody is taken away again and again: the circles and what stands on them.
fn circles(mut needs: Needs) -> Vec<String> {
    loop {
        let rooms: BTreeSet<String> = needs.keys().cloned().collect();
        let before = needs.len();
        needs.retain(|room, of| of.iter().any(|other| other != room && rooms.contains(other)));
        if needs.len() == before {
            return needs.into_keys().collect();
        }
    }
}

fn rooms_of(crate_name: &str) -> Result<Needs, Box<dyn Error>> {
    let mut needs = Needs::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src"), None, &mut needs)?;
    Ok(needs)
}

#[test]
fn rooms_of_a_crate_are_no_circle() -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let left = circles(rooms_of(&name)?);
        let may = WITH_CIRCLES.contains(&name.as_str());
        assert!(may || left.is_empty(), "rooms of `{name}` need one another, or stand on such: {left:?}");
        assert!(!may || !left.is_empty(), "`{name}` has no circle any more: take it off the list");
    }
    Ok(())
}

#[test]
fn a_circle_is_seen_and_a_chain_is_none() {
    let needs = |pairs: &[(&str, &str)]| -> Needs {
        pairs.iter().map(|(room, text)| ((*room).to_owned(), taken(text))).collect()
    };
    assert!(
        circles(needs(&[("a", "use crate::b::X;"), ("b", "use crate::{c, d::E};"), ("c", ""), ("d", "")])).is_empty()
    );
    let left = circles(needs(&[
        ("a", "use crate::b::X;"),
        ("b", "// crate::x\nlet y = crate::c::f();"),
        ("c", "use crate::{d, a};"),
    ]));
    assert_eq!(left, ["a", "b", "c"]);
}
