//! Templates as a person meets them: commands that a sandbox begins with, templates that are in use, and packages from a
//! registry of the caller's.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::image_runs::{Member, layer, saved};
use crate::live::{Live, call};
use crate::served::Served;

fn build(fixture: &Fixture, name: &str, recipe: &str) {
    let (code, _, err) = try_build(fixture, name, recipe);
    assert_eq!(code, 0, "{err}");
}

/// With little time for `ready`; the words of the error in one line.
fn try_build(fixture: &Fixture, name: &str, recipe: &str) -> (i32, String, String) {
    let file = fixture.path(&format!("{name}.toml"));
    std::fs::write(&file, recipe).unwrap();
    let words = ["template", "build", name, "--ready-timeout", "20s", "-f", file.to_str().unwrap()];
    let (code, out, err) = call(fixture, &words);
    (code, out, err.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn a_sandbox_is_there_when_its_template_says_that_it_is_ready() {
    let fixture = &Fixture::new();
    let recipe = "policy = [\"python\"]\nstart = \"sleep 1; echo $WORD > /tmp/served; echo begun; exec sleep 600\"\n\
                  ready = \"grep served-word /tmp/served\"\nenv.WORD = \"served-word\"\n";
    build(fixture, "served", recipe);
    let live = Live::new(fixture, &["--template", "served"]);
    assert_eq!(live.exec(&[], &["cat", "/tmp/served"]).1, "served-word\n");
    // What it began with goes on, and is found like any other program.
    assert_eq!(live.exec(&[], &["pgrep", "-x", "sleep"]).0, 0);
    assert!(call(fixture, &["logs", &live.id, "p1"]).1.contains("begun"));
    let (code, _, err) = call(fixture, &["template", "rm", "served"]);
    assert!(code == 125 && err.contains(&live.id), "{code} {err}");
    drop(live);
    assert_eq!(call(fixture, &["template", "rm", "served"]).0, 0);
}

#[test]
fn one_that_does_not_begin_as_its_template_says_is_ended_and_both_commands_are_heard() {
    let fixture = &Fixture::new();
    // Begins as it should where it is built, and not where a caller's flag stops it.
    let recipe = "policy = [\"python\"]\nstart = \"test -z $STOP || { echo no such thing; exit 3; }; touch /tmp/there\"\n\
                  ready = \"test -e /tmp/there\"\n";
    build(fixture, "broken", recipe);
    let (code, out, err) = call(fixture, &["create", "--template", "broken", "--env", "STOP=1"]);
    assert!(code == 126 && out.is_empty(), "{code} {out}");
    assert!(err.contains("exited with 3") && err.contains("no such thing"), "{err}");
    assert_eq!(call(fixture, &["ps", "--json"]).1.matches("\"id\"").count(), 0, "nothing is left");
    // Without anything to wait for, it is there at once.
    build(fixture, "plain", "policy = [\"python\"]\nready = \"true\"\n");
    assert_eq!(Live::new(fixture, &["--template", "plain"]).exec(&[], &["true"]).0, 0);
}

#[test]
fn a_template_that_is_never_ready_is_not_kept_and_what_had_its_name_stays() {
    let fixture = &Fixture::new();
    build(fixture, "team", "policy = [\"python\"]\nenv.A = \"first\"\n");
    let never = "policy = [\"python\"]\nready = \"echo no route; exit 7\"\n";
    let file = fixture.path("never.toml");
    std::fs::write(&file, never).unwrap();
    for name in ["team", "never"] {
        let words = ["template", "build", name, "--ready-timeout", "2s", "-f", file.to_str().unwrap()];
        let (code, out, err) = call(fixture, &words);
        let err = err.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(code == 126 && out.is_empty(), "{code} {out} {err}");
        for told in ["`ready` (echo no route; exit 7)", "within 2 s", "exited with 7", "said: no route"] {
            assert!(err.contains(told), "{told}: {err}");
        }
    }
    let ended = "policy = [\"python\"]\nstart = \"echo no such thing; exit 3\"\nready = \"false\"\n";
    let (code, _, err) = try_build(fixture, "ended", ended);
    assert!(code == 126 && err.contains("exited with 3") && err.contains("no such thing"), "{code} {err}");
    // One that no sandbox can be made of is told as `create` would tell it.
    let policy = fixture.path("unheld-policy.toml");
    std::fs::write(&policy, "version = 1\ntier = \"process\"\nnet.mode = \"allow\"\n").unwrap();
    assert_eq!(try_build(fixture, "unheld", &format!("policy = [{policy:?}]\nready = \"true\"\n")).0, 126);
    let listed = fixture.run(&["template", "ls", "--json"]).json();
    let names: Vec<&Json> = listed["templates"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["base", "team"]);
    assert_eq!(Live::new(fixture, &["--template", "team"]).exec(&[], &["sh", "-c", "echo $A"]).1, "first\n");
    let kept = std::fs::read_dir(fixture.state().join("templates")).unwrap().count();
    assert_eq!((kept, call(fixture, &["ps", "--json"]).1.matches("\"id\"").count()), (2, 0), "something is left");
}

/// A registry at the machine's loopback, with one package of pip and one of npm.
pub(crate) struct Registry {
    child: Child,
    pub(crate) port: String,
}

impl Registry {
    #[expect(clippy::disallowed_methods, reason = "the registry stands outside, and is none of the product")]
    pub(crate) fn new(fixture: &Fixture) -> Self {
        let file = fixture.path("registry.py");
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
    let fixture = Fixture::new();
    let registry = Registry::new(&fixture);
    let at = format!("http://127.0.0.1:{}", registry.port);
    let fixture = &fixture.with("PIP_INDEX_URL", &format!("{at}/simple")).with("PIP_RETRIES", "0");
    let has_npm = Path::new("/usr/bin/npm").exists();
    let npm = if has_npm { "npm = [\"mirrored\"]\n" } else { "" };
    std::fs::write(fixture.dir.path().join(".npmrc"), format!("registry = {at}/\n")).unwrap();
    build(fixture, "mirrored", &format!("policy = [\"python\"]\n[packages]\npip = [\"mirrored\"]\n{npm}"));
    let live = Live::new(fixture, &["--template", "mirrored"]);
    assert_eq!(live.exec(&[], &["python3", "-c", "import mirrored; print(mirrored.word)"]).1, "mirrored\n");
    let installed = "/opt/fumehood/template/node/node_modules/mirrored";
    if has_npm {
        assert_eq!(live.exec(&[], &["test", "-e", &format!("{installed}/package.json")]).0, 0);
    }
    assert_eq!(live.exec(&[], &["test", "-e", &format!("{installed}/installed")]).0, 1, "an install script ran");
    drop(live);

    let file = fixture.path("elsewhere.toml");
    std::fs::write(&file, "[packages]\npip = [\"elsewhere\"]\n").unwrap();
    let (code, _, err) = call(fixture, &["template", "build", "elsewhere", "-f", file.to_str().unwrap()]);
    assert_eq!(code, 125, "{err}");
    assert!(err.contains("looking up elsewhere.invalid") && err.contains("`net.allow`"), "{err}");
}

/// A ceiling that is as much as `base` wants, and no network.
pub(crate) const TOP: &str = "version = 1\nextends = [\"python\"]\n[limits]\nmemory = \"2G\"\npids = 512\nopen_files = 8192\n\
    file_size = \"1G\"\ndisk = \"2G\"\nfiles = 200000\noutput = \"64M\"\n[fs]\ntmp = \"512M\"\nshm = \"64M\"\nrun = \"16M\"\n\
    [syscalls]\nprofile = \"default\"\n";

/// The image of a list of Debian packages stands in the store under a name of the list; here it is there before, made of busybox.
fn debian(fixture: &Fixture, packages: &str) -> String {
    let name = format!("fumehood-template:{}", policy::json::sha256_hex(packages.as_bytes()).get(..16).unwrap());
    let layer = layer(vec![Member::File("marker", b"of the image\n", 0o644)]);
    saved(&fixture.path("debian.tar"), &name, &layer, &json!({}));
    assert_eq!(fixture.run(&["image", "import", fixture.path("debian.tar").to_str().unwrap()]).code, 0);
    name
}

#[test]
fn packages_of_debian_are_an_image_and_the_root_of_a_templates_sandboxes() {
    let fixture = &Fixture::new();
    let name = debian(fixture, "busybox\nmawk");
    std::fs::write(fixture.path("beside.txt"), "beside\n").unwrap();
    let recipe = "packages.apt = [\"mawk\", \"busybox\"]\nstart = \"touch /tmp/begun\"\nready = \"cat /tmp/begun\"\n\
                  files.\"/opt/beside.txt\" = \"beside.txt\"\nenv.WORD = \"word\"\n";
    build(fixture, "debs", recipe);
    let listed = fixture.run(&["template", "ls", "--json"]).json();
    let shown = listed["templates"].as_array().unwrap().iter().find(|one| one["name"] == "debs").unwrap().clone();
    assert!(shown["image"].as_str().unwrap().starts_with(&format!("{name}@sha256:")), "{shown}");
    let live = Live::new(fixture, &["--template", "debs"]);
    let said =
        live.exec(&[], &["sh", "-c", "cat /marker /opt/beside.txt /tmp/begun; echo $WORD; ls /usr/bin; touch /marker"]);
    assert_eq!(said.1, "of the image\nbeside\nword\n", "{}", said.2);
    drop(live);
    // Without it the same place shows the host's programs.
    build(fixture, "host", "env.WORD = \"word\"\n");
    assert_ne!(Live::new(fixture, &["--template", "host"]).exec(&[], &["ls", "/usr/bin"]).1, "");
    for (recipe, words) in [
        ("packages.apt = [\"jq\"]\npackages.pip = [\"six\"]\n", "has its own"),
        ("packages.apt = [\"jq\"]\npackages.npm = [\"six\"]\n", "has its own"),
        ("packages.apt = [\"-o=Dir::Bin=x\"]\n", "is named by"),
    ] {
        let file = fixture.path("bad.toml");
        std::fs::write(&file, recipe).unwrap();
        let (code, _, err) = call(fixture, &["template", "build", "bad", "-f", file.to_str().unwrap()]);
        assert!(code != 0 && err.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "{code} {err}");
    }
    let root = fixture.path("root.toml");
    std::fs::write(&root, "version = 1\nfs.root = \"empty\"\n").unwrap();
    let file = fixture.path("two.toml");
    std::fs::write(&file, format!("policy = [{root:?}]\npackages.apt = [\"jq\"]\n")).unwrap();
    let (code, _, err) = call(fixture, &["template", "build", "two", "-f", file.to_str().unwrap()]);
    assert!(code != 0 && err.contains("there is one root"), "{code} {err}");
}

#[test]
fn a_key_uses_the_image_of_a_template_and_no_other_of_the_store() {
    let fixture = &Fixture::new();
    let name = debian(fixture, "busybox");
    build(fixture, "debs", "packages.apt = [\"busybox\"]\n");
    let served = Served::new(fixture);
    std::fs::write(fixture.path("top.toml"), TOP).unwrap();
    let top = fixture.path("top.toml");
    for key in [served.key("one", &[]), served.key("two", &["-p", top.to_str().unwrap()])] {
        let (status, made) = served.ask(&key, "POST /v1/sandboxes", &json!({ "template": "debs", "timeout": "1m" }));
        assert_eq!(status, 201, "{made}");
        let id = made["id"].as_str().unwrap();
        let asked = json!({ "cmd": ["cat", "/marker"], "timeout": 20 });
        let (_, ran) = served.ask(&key, &format!("POST /v1/sandboxes/{id}/exec"), &asked);
        assert_eq!(ran["stdout"], "of the image\n", "{ran}");
        // The image itself is the operator's.
        let own = json!({ "policy": { "extends": "python", "fs": { "root": format!("image:{name}") } } });
        let (status, told) = served.ask(&key, "POST /v1/sandboxes", &own);
        assert_eq!((status, &told["clause"]), (403, &json!("fs.root")), "{told}");
        assert_eq!(served.ask(&key, &format!("DELETE /v1/sandboxes/{id}"), &Json::Null).0 / 100, 2);
    }
}
