//! Commands of the documents that no session of `commands` runs: which stage does, and that it still does.

use std::fs;

use crate::Read;
use crate::blocks::root;

/// Commands by their exact text, the stage of `scripts/test` or `.ci/run` that runs each, and how that stage, a function of
/// its list or a script that it calls writes it.
pub(crate) const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("scripts/setup build", "setup", "scripts/setup build "),
    (BUILD, "build the product and the tests", BUILD),
    ("scripts/demo", "example", "scripts/demo --check"),
    ("scripts/test", "scripts/test", " scripts/test"),
    (
        "fumehood template build code-interpreter-v1",
        "E2B's clients",
        "\"$program\" template build code-interpreter-v1 ",
    ),
    ("fumehood attack", "attack, container tier", "\"$FUMEHOOD_BIN\" attack --tier \"$1\""),
];

const BUILD: &str = "cargo build --release --locked -p fumehood";

/// Commands that need an engine of containers with a store of its own: its stage runs the pages of these once more, below
/// `scripts/with-ENGINE`.
pub(crate) const BY_ENGINE: &[(&str, &str)] = &[
    ("sudo fumehood run --set backend=podman -- id -u", "podman"),
    ("sudo fumehood run --set backend=docker -- id -u", "docker"),
    (
        "sudo podman --cgroup-manager cgroupfs --runtime /usr/local/bin/fumehood-oci run --rm --network none --read-only IMAGE CMD",
        "podman",
    ),
    ("sudo ctr run --rm --read-only --runc-binary /usr/local/bin/fumehood-oci IMAGE NAME CMD", "containerd"),
];

/// Of these is the engine that this test runs beside, if there is one.
pub(crate) fn engine() -> Option<&'static str> {
    BY_ENGINE.iter().map(|(_, engine)| *engine).find(|engine| std::env::var_os(own(engine)).is_some())
}

/// What `scripts/with-ENGINE` sets.
pub(crate) fn own(engine: &str) -> String {
    format!("FUMEHOOD_OWN_{}", engine.to_ascii_uppercase())
}

/// The lines from the one that begins so to the last before one that `ends`.
fn part<'a>(text: &'a str, begin: &str, ends: impl Fn(&str) -> bool) -> Option<&'a str> {
    let mut at = 0;
    let mut from = None;
    for line in text.split_inclusive('\n') {
        match from {
            None if line.trim_start().starts_with(begin) => from = Some(at),
            Some(_) if ends(line) => break,
            None | Some(_) => {}
        }
        at += line.len();
    }
    text.get(from?..at)
}

/// A stage of a list, with what it calls: functions of the list, and scripts.
fn stage(list: &str, name: &str, script: impl Fn(&str) -> Option<String>) -> Option<String> {
    let next = |line: &str| ["stage ", "lane ", "totals", "}"].iter().any(|word| line.trim_start().starts_with(word));
    let mut text = part(list, &format!("stage \"{name}\" "), next)?.to_owned();
    let words: Vec<String> = text.split(|c: char| c.is_whitespace() || "'\"".contains(c)).map(str::to_owned).collect();
    for word in words.iter().filter(|word| !word.is_empty()) {
        text.extend(part(list, &format!("{word}() {{"), |line| line.starts_with('}')));
        text.extend(script(word));
    }
    Some(text)
}

/// Whether this stage of the lists writes that.
pub(crate) fn says(lists: &str, name: &str, words: &str) -> Result<(), String> {
    let script = |word: &str| {
        let path = word.starts_with("scripts/").then(|| root().join(word)).filter(|path| path.is_file())?;
        fs::read_to_string(path).ok()
    };
    match stage(lists, name, script) {
        None => Err(format!("there is no stage `{name}`")),
        Some(text) if text.contains(words) => Ok(()),
        Some(_) => Err(format!("the stage `{name}` has no `{words}`")),
    }
}

pub(crate) fn lists() -> Read<String> {
    let read = |name: &str| fs::read_to_string(root().join(name));
    Ok(read(".ci/run")? + "\n" + &read("scripts/test")?)
}

#[test]
fn what_is_run_elsewhere_is_run_there() {
    let lists = lists().expect("the lists of stages can be read");
    let rows = ELSEWHERE.iter().map(|(_, stage, words)| (*stage, (*words).to_owned()));
    let engines = BY_ENGINE.iter().flat_map(|(_, engine)| {
        // The one starts the engine, the other runs this test beside it.
        let own = "cargo test --locked --workspace --test docs -- --show-output every_command_of".to_owned();
        [(*engine, format!("scripts/with-{engine} ")), (*engine, own)]
    });
    let found: Vec<String> =
        rows.chain(engines).filter_map(|(stage, words)| says(&lists, stage, &words).err()).collect();
    crate::none(&found);
    for (_, engine) in BY_ENGINE {
        let script = fs::read_to_string(root().join(format!("scripts/with-{engine}"))).expect("the script can be read");
        assert!(script.contains(&own(engine)), "scripts/with-{engine} does not set {}", own(engine));
    }
}

#[test]
fn a_stage_that_does_not_run_it_is_found() {
    let list = "made() {\n  build all\n}\nother() {\n  build none\n}\nstage \"one\" 9 bash -c '\n  made this'\nstage \"two\" 9 scripts/x y\n";
    let script = |word: &str| (word == "scripts/x").then(|| "run it\n".to_owned());
    let one = stage(list, "one", script).expect("it is there");
    assert!(one.contains("made this") && one.contains("build all"), "{one}");
    assert!(!one.contains("build none") && !one.contains("scripts/x") && !one.contains("run it"), "{one}");
    assert!(stage(list, "two", script).expect("it is there").contains("run it"));
    assert!(stage(list, "three", script).is_none());
    let lists = lists().expect("the lists of stages can be read");
    assert!(says(&lists, "example", "scripts/demo --check").is_ok());
    for (name, words) in [("example", "scripts/test"), ("no stage", "scripts/demo")] {
        assert!(says(&lists, name, words).is_err(), "{name}: {words} was taken");
    }
}
