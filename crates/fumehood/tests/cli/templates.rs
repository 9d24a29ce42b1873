//! Templates as a person meets them: commands that a sandbox begins with, templates that are in use, and packages from a
//! registry of the caller's.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

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

/// A registry at the machine's loopback, with one package of pip and one of npm.
struct Registry {
    child: Child,
    port: String,
}

impl Registry {
    #[expect(clippy::disallowed_methods, reason = "the registry stands outside, and is none of the product")]
    fn new(house: &House) -> Self {
        let file = house.path("registry.py");
        std::fs::write(&file, include_str!("registry.py")).unwrap();
        let mut command = Command::new("/usr/bin/python3");
        let mut child = command.arg(file).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut port = String::new();
        said.read_line(&mut port).unwrap();
        // What it is asked for is not looked at, and must not stop it.
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        Self { child, port: port.trim().to_owned() }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn packages_come_from_the_registry_of_the_callers_configuration_and_from_nowhere_else() {
    let house = House::new();
    let registry = Registry::new(&house);
    let at = format!("http://127.0.0.1:{}", registry.port);
    let house = &house.with("PIP_INDEX_URL", &format!("{at}/simple")).with("PIP_RETRIES", "0");
    let has_npm = Path::new("/usr/bin/npm").exists();
    let npm = if has_npm { "npm = [\"mirrored\"]\n" } else { "" };
    std::fs::write(house.dir.path().join(".npmrc"), format!("registry = {at}/\n")).unwrap();
    build(house, "mirrored", &format!("policy = [\"python\"]\n[packages]\npip = [\"mirrored\"]\n{npm}"));
    let live = Live::new(house, &["--template", "mirrored"]);
    assert_eq!(live.exec(&[], &["python3", "-c", "import mirrored; print(mirrored.word)"]).1, "mirrored\n");
    let installed = "/opt/fumehood/template/node/node_modules/mirrored";
    if has_npm {
        assert_eq!(live.exec(&[], &["test", "-e", &format!("{installed}/package.json")]).0, 0);
    }
    assert_eq!(live.exec(&[], &["test", "-e", &format!("{installed}/installed")]).0, 1, "an install script ran");
    drop(live);

    let file = house.path("elsewhere.toml");
    std::fs::write(&file, "[packages]\npip = [\"elsewhere\"]\n").unwrap();
    let (code, _, err) = call(house, &["template", "build", "elsewhere", "-f", file.to_str().unwrap()]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("looking up elsewhere.invalid") && err.contains("`net.allow`"), "{err}");
}
