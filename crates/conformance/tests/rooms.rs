//! No circles between the rooms of a crate: its modules of the top level, by what each takes from another.
//!
//! A name that the root of the crate hands on is taken from the room that has it; what the root has itself is taken from the
//! root, which is then a room like the others.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of a crate, among its rooms.
const ROOT: &str = "lib";

/// What each room takes from others.
type Needs = BTreeMap<String, BTreeSet<String>>;

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The word that a text begins with; `*` where it takes everything.
fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    if text.starts_with('*') {
        return "*";
    }
    text.find(|c| !is_word(c)).and_then(|end| text.get(..end)).unwrap_or(text)
}

/// The first names of a path, of a list in braces the first of each element.
fn first_names(path: &str) -> Vec<&str> {
    let Some(list) = path.strip_prefix('{') else { return vec![first_word(path)] };
    let (mut names, mut depth, mut begins) = (Vec::new(), 0_usize, true);
    for (at, c) in list.char_indices() {
        if begins && (is_word(c) || c == '*') {
            names.push(list.get(at..).map_or("", first_word));
            begins = false;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' => begins = depth == 0,
            _ => {}
        }
    }
    names
}

/// Without comments of whole lines, and without the tests, which may look at whatever they need.
fn code_of(source: &str) -> String {
    let product = source.split("\nmod tests {").next().unwrap_or_default();
    product.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// What code takes by way of the root of its crate, which is so many steps above.
fn taken(code: &str, above: usize) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut add = |path: &str| names.extend(first_names(path).into_iter().map(str::to_owned));
    code.split("crate::").skip(1).for_each(&mut add);
    for (at, _) in code.match_indices("super::") {
        let begins = !code.get(..at).is_some_and(|before| before.ends_with("::"));
        let (mut path, mut steps) = (code.get(at..).unwrap_or_default(), 0);
        while let Some(rest) = path.strip_prefix("super::").filter(|_| begins) {
            (path, steps) = (rest, steps + 1);
        }
        if begins && steps >= above {
            add(path);
        }
    }
    names
}

/// Whether code gives its crate or what is above it another name, or takes all that is there: nobody sees then what it needs.
fn hides(code: &str, above: usize) -> bool {
    ["crate as ", "super as ", "extern crate self"].iter().any(|words| code.contains(words))
        || taken(code, above).contains("*")
}

/// The names that the root takes from a room, with that room: others can take them from the root.
fn handed_on(root: &str) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for statement in root.split(';') {
        let Some((_, path)) = statement.rsplit_once("use ") else { continue };
        let path = path.trim_start_matches("crate::").trim_start_matches("self::");
        let Some((room, rest)) = path.split_once("::") else { continue };
        let words = rest.split(|c| !is_word(c)).filter(|word| !word.is_empty());
        names.extend(words.map(|word| (word.to_owned(), room.trim().to_owned())));
    }
    names
}

/// The rooms that the root itself needs, beside what it hands on.
fn needs_of_root(root: &str, rooms: &BTreeSet<String>) -> BTreeSet<String> {
    let own: String = root.split_inclusive(';').filter(|statement| !statement.contains("pub use ")).collect();
    let takes = |room: &&String| {
        own.match_indices(&format!("{room}::")).any(|(at, _)| {
            let before = own.get(..at).unwrap_or_default();
            !before.ends_with(is_word) && (!before.ends_with("::") || before.ends_with("crate::"))
        })
    };
    rooms.iter().filter(takes).cloned().collect()
}

/// A file: its room, how many steps the root is above it, and where it lies.
type RoomFile = (String, usize, PathBuf);

/// The files of a crate.
fn files(folder: &Path, room: Option<&str>, above: usize) -> Result<Vec<RoomFile>, Box<dyn Error>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if stem == "tests" || (room.is_none() && matches!(stem.as_str(), "lib" | "main")) {
            continue;
        }
        let room = room.unwrap_or(&stem).to_owned();
        if path.is_dir() {
            all.extend(files(&path, Some(&room), above + 1)?);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            all.push((room, if stem == "mod" { above - 1 } else { above }, path));
        }
    }
    Ok(all)
}

/// What each room needs of the others, the root among them.
fn needs(sources: &[(&str, usize, &str)], root: &str) -> Needs {
    let root = code_of(root);
    let rooms: BTreeSet<String> = sources.iter().map(|(room, ..)| (*room).to_owned()).collect();
    let handed = handed_on(&root);
    let mut needs = Needs::from([(ROOT.to_owned(), needs_of_root(&root, &rooms))]);
    for (room, above, source) in sources {
        let code = code_of(source);
        assert!(!hides(&code, *above), "a file of `{room}` hides what it takes");
        let of = taken(&code, *above).into_iter().filter(|name| !matches!(name.as_str(), "" | "self"));
        let of = of.map(|name| match handed.get(&name) {
            _ if rooms.contains(&name) => name,
            Some(room) => room.clone(),
            None => ROOT.to_owned(),
        });
        needs.entry((*room).to_owned()).or_default().extend(of);
    }
    needs
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

fn circles_of(crate_name: &str) -> Result<Vec<String>, Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(crate_name).join("src");
    let mut sources = Vec::new();
    for (room, above, path) in files(&folder, None, 1)? {
        sources.push((room, above, fs::read_to_string(path)?));
    }
    let sources: Vec<_> = sources.iter().map(|(room, above, text)| (room.as_str(), *above, text.as_str())).collect();
    Ok(circles(needs(&sources, &fs::read_to_string(folder.join("lib.rs"))?)))
}

#[test]
fn rooms_of_a_crate_are_no_circle() -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let left = circles_of(&name)?;
        assert!(left.is_empty(), "rooms of `{name}` need one another, or stand on such: {left:?}");
    }
    Ok(())
}

/// The circles of rooms that are a file each.
fn left(root: &str, rooms: &[(&str, &str)]) -> Vec<String> {
    let sources: Vec<_> = rooms.iter().map(|(room, source)| (*room, 1, *source)).collect();
    circles(needs(&sources, root))
}

#[test]
fn a_circle_is_seen_and_a_chain_is_none() {
    let chain = [("a", "use crate::b::X;"), ("b", "use crate::{c::{self, D, a}, d::E};"), ("c", ""), ("d", "")];
    assert!(left("pub mod a;", &chain).is_empty());
    let circle = [("a", "use crate::b::X;"), ("b", "// crate::x\nlet y = crate::c::f();"), ("c", "use crate::{d, a};")];
    assert_eq!(left("", &circle), ["a", "b", "c"]);
    // The second of a list, behind a list of its own.
    assert_eq!(left("", &[("a", "use crate::{x::{Y, Z}, b};"), ("b", "use crate::a;")]), ["a", "b"]);
}

#[test]
fn no_other_way_to_a_room_is_hidden() {
    let back = "use crate::a::A;";
    assert_eq!(left("", &[("a", "use super::b::X;"), ("b", back)]), ["a", "b"]);
    assert_eq!(left("pub use b::{Other, X};", &[("a", "use crate::X;"), ("b", back)]), ["a", "b"]);
    // The root itself stands on them, too.
    let by_the_root = left("use crate::b::X;", &[("a", "let x = crate::X::new();"), ("b", back)]);
    assert_eq!(by_the_root, ["a", "b", "lib"]);
    let of_the_root = left("fn f() { a::g() }", &[("a", "pub(crate) fn g() { crate::f() }"), ("b", "")]);
    assert_eq!(of_the_root, ["a", "lib"]);
    let deep = [("a", 2, "use super::super::b;"), ("a", 2, "use super::c;"), ("b", 1, back)];
    assert_eq!(circles(needs(&deep, "")), ["a", "b"]);
    for hidden in
        ["use crate as own;", "use crate::*;", "use super::*;", "extern crate self as own;", "use super as up;"]
    {
        assert!(hides(hidden, 1), "{hidden}");
    }
    assert!(!hides("use super::*;", 2) && !hides("use crate::b::*;", 1));
}
