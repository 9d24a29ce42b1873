//! Templates as a person meets them: commands that a sandbox begins with, and templates that are in use.

use crate::House;
use crate::live::{Live, call};

fn build(house: &House, name: &str, recipe: &str) {
    let file = house.path(&format!("{name}.toml"));
    std::fs::write(&file, recipe).unwrap();
    let (code, _, err) = call(house, &["template", "build", name, "-f", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
}

#[test]
fn a_sandbox_is_there_when_its_template_says_that_it_is_ready() {
    let house = &House::new();
    let recipe = "policy = [\"python\"]\nstart = \"sleep 1; echo $WORD > /tmp/served; echo begun; exec sleep 600\"\n\
                  ready = \"grep served-word /tmp/served\"\nenv.WORD = \"served-word\"\n";
    build(house, "served", recipe);
    let live = Live::new(house, &["--template", "served"]);
    assert_eq!(live.exec(&[], &["cat", "/tmp/served"]).1, "served-word\n");
    // What it began with goes on, and is found like any other program.
    assert_eq!(live.exec(&[], &["pgrep", "-x", "sleep"]).0, 0);
    assert!(call(house, &["logs", &live.id, "p1"]).1.contains("begun"));
    let (code, _, err) = call(house, &["template", "rm", "served"]);
    assert!(code == 125 && err.contains(&live.id), "{code} {err}");
    drop(live);
    assert_eq!(call(house, &["template", "rm", "served"]).0, 0);
}

#[test]
fn one_that_does_not_begin_as_its_template_says_is_ended_and_both_commands_are_heard() {
    let house = &House::new();
    build(house, "broken", "policy = [\"python\"]\nstart = \"echo no such thing; exit 3\"\nready = \"false\"\n");
    let (code, out, err) = call(house, &["create", "--template", "broken"]);
    assert!(code == 126 && out.is_empty(), "{code} {out}");
    assert!(err.contains("exited with 3") && err.contains("no such thing"), "{err}");
    assert_eq!(call(house, &["ps", "--json"]).1.matches("\"id\"").count(), 0, "nothing is left");
    // Without anything to wait for, it is there at once.
    build(house, "plain", "policy = [\"python\"]\nready = \"true\"\n");
    assert_eq!(Live::new(house, &["--template", "plain"]).exec(&[], &["true"]).0, 0);
}
