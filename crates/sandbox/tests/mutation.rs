//! A control that the supervisor itself holds and did not set up ends the start: each of them is left out once.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use policy::Control;
use policy::control::Evidence;
use policy::load::Packed;
use policy::value::{ImageNotFound, StoredImage};
use sandbox::fault::Fault;
use sandbox::state::Places;
use sandbox::{
    Capabilities, Code, Environment, Error, Images, Inputs, Interpreter, LeasedTree, Options, PolicyLayer, Sandbox,
    Stdio, Workload,
};

/// A store with one image, whose tree is one static program. An image `lost` is not there any more when it is demanded, and
/// `moved` lies elsewhere.
#[derive(Debug)]
struct OneTree;

static TREE: OnceLock<tempfile::TempDir> = OnceLock::new();

fn tree() -> PathBuf {
    let made = TREE.get_or_init(|| {
        let tree = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(tree.path().join("bin")).unwrap();
        std::fs::copy("/bin/busybox", tree.path().join("bin/ls")).unwrap();
        tree
    });
    made.path().to_owned()
}

impl Images for OneTree {
    fn find(&self, _: &Places, name: &str) -> Result<Packed, ImageNotFound> {
        Ok(Packed {
            found: StoredImage { digest: name.to_owned(), tree: tree(), ..StoredImage::default() },
            ..Packed::default()
        })
    }

    fn lease(&self, _: &Places, digest: &str) -> Result<LeasedTree, Fault> {
        let tree = if digest == "moved" { PathBuf::from("/usr") } else { tree() };
        let held = std::fs::File::open(&tree).unwrap().into();
        let say = |words: &str| words.to_owned();
        let (what, place, why, fix) = (say("the tree was changed"), say("store"), say("somebody wrote"), say("look"));
        let lost = Fault { id: "image/changed", what, place, why, fix };
        if digest == "lost" { Err(lost) } else { Ok(LeasedTree { tree, held }) }
    }
}

fn start(set: &[String], place: &Path, without: Option<Control>) -> (Vec<Control>, Result<Sandbox, Error>) {
    let variables =
        [("PATH", "/usr/bin:/bin".into()), ("KEY", "not-a-secret".into()), ("FUMEHOOD_STATE", place.join("state"))];
    let env: BTreeMap<OsString, OsString> =
        variables.into_iter().map(|(name, value)| (name.into(), value.into_os_string())).collect();
    let environment = Environment::new(Some(place.to_owned()), env, rustix::process::geteuid().as_raw());
    let interpreted = set.iter().any(|set| set == LANGUAGE);
    // In place of an interpreter: it says nothing, and that is asked last.
    let own = if interpreted { PathBuf::from("/bin/true") } else { std::env::current_exe().unwrap() };
    let environment = environment.with_images(Some(&OneTree)).with_broker(Some(own));
    let host = Capabilities::probe();
    let mut layers = vec![PolicyLayer::Document("strict".to_owned())];
    layers.extend(set.iter().cloned().map(PolicyLayer::Set));
    let loaded = sandbox::load(&layers, &environment, Inputs::Now).unwrap();
    let python = Interpreter { name: "python".to_owned(), candidates: vec![vec!["python3".into()]] };
    let code = Code { name: "a.py".to_owned(), text: b"print(1)".to_vec(), interpreter: python, args: Vec::new() };
    let what = if interpreted { Workload::Code(code) } else { Workload::Argv(vec!["ls".into()]) };
    let planned = sandbox::plan(loaded, what, &host).unwrap();
    let controls = planned.plan.controls().cloned().collect();
    let mut options = Options::new(Stdio::kept());
    options.without.extend(without);
    (controls, sandbox::start(planned, &environment, &host, options))
}

const LANGUAGE: &str = "tier=language";

/// This executable as the broker of a run: with that word alone, which is then the name of the one test that it has. Its orders
/// come by the standard input.
#[test]
fn __broker() {
    let word = sandbox::run::BROKER_WORD;
    assert_eq!(word, "__broker");
    if std::env::args_os().skip(1).eq([word]) {
        let socket = std::os::fd::AsFd::as_fd(&std::io::stdin()).try_clone_to_owned().unwrap();
        broker::serve(socket).unwrap();
    }
}

/// Leaves each control of this policy out that is proven by being armed; their names.
fn each(set: &[&str]) -> Vec<String> {
    let place = tempfile::tempdir().unwrap();
    let work = place.path().join("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("secret.pem"), "x").unwrap();
    rustix::fs::chown(&work, Some(rustix::fs::Uid::from_raw(1000)), None).unwrap_or_default();
    let work = format!("workspace.path={}", work.display());
    let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).chain([work]).collect();
    let (controls, whole) = start(&set, place.path(), None);
    match whole {
        Err(Error::Failed(faults)) if set.iter().any(|set| set == LANGUAGE) => {
            assert!(faults[0].why.contains("did not say its limits"), "{faults:?}");
        }
        whole => assert_eq!(whole.unwrap().wait().unwrap().report.outcome.exit_code(), 0),
    }
    let armed = |control: &Control| matches!(control.evidence(), Evidence::Armed(_));
    let mut names = Vec::new();
    let mut tried: Vec<Control> = Vec::new();
    for control in controls.into_iter().filter(armed) {
        if tried.contains(&control) {
            continue;
        }
        let (_, started) = start(&set, place.path(), Some(control.clone()));
        let Err(Error::Failed(faults)) = started else { panic!("{control:?} was not missed") };
        let says = faults[0].id == "run/posture" && faults[0].why.contains("nobody set it up");
        assert!(says || matches!(control, Control::Copy { .. }), "{control:?}: {faults:?}");
        names.push(format!("{control:?}").split([' ', '{']).next().unwrap_or_default().to_owned());
        tried.push(control);
    }
    names
}

const WATCHED: [&str; 3] = [
    "limits.cpu_time=20s",
    "limits.warn={ cpu_percent = 90, for = \"9s\" }",
    "limits.kill={ cpu_percent = 99, for = \"9s\" }",
];

#[test]
fn in_the_container_tier_each_missing_one_is_noticed() {
    let names = each(
        &[
            &WATCHED[..],
            &[
                "workspace.mode=overlay",
                "fs.hide=[\"**/*.pem\"]",
                "commands.presets=[\"inspect\"]",
                "tools={default=\"deny\"}",
            ],
        ]
        .concat(),
    );
    for name in [
        "Watch(Wall(Millis(",
        "Watch(Output",
        "Watch(Kill(Threshold",
        "Audit",
        "Hide([\"**/*.pem\"])",
        "ProtectedAtApply",
        "CommandGate",
        "ToolGate",
    ] {
        assert!(names.iter().any(|found| found.starts_with(name)), "{name} in {names:?}");
    }
}

#[test]
fn in_the_process_tier_each_missing_one_is_noticed() {
    let names = each(&[&WATCHED[..], &["tier=process", "threat=mistakes", "workspace.mode=copy"]].concat());
    for name in ["Watch(Tmp", "Watch(Disk", "Copy", "Audit", "ProtectedAtApply"] {
        assert!(names.iter().any(|found| found.starts_with(name)), "{name} in {names:?}");
    }
}

#[test]
fn what_watches_the_control_files_of_a_writable_workspace_is_noticed() {
    let names = each(&["workspace.mode=rw", "prefer=[\"limits.disk\", \"limits.files\"]"]);
    assert!(names.iter().any(|found| found == "Watch(Protected)"), "{names:?}");
}

#[test]
fn what_the_broker_of_a_run_holds_is_noticed() {
    let names = each(&[
        "net.mode=allow",
        "net.allow=[\"a.test\"]",
        "net.proxy=\"http://127.0.0.1:3128\"",
        "secrets.api={ from = \"env:KEY\", hosts = [\"a.test\"], env = \"TOKEN\" }",
    ]);
    for name in ["Broker", "Proxy", "Secrets"] {
        assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
    }
}

#[test]
fn an_interpreter_that_nobody_set_up_is_noticed() {
    let names = each(&[LANGUAGE, "threat=mistakes", "workspace.mode=none"]);
    assert!(names.iter().any(|found| found.starts_with("Interpreter(")), "{names:?}");
}

#[test]
fn an_image_is_demanded_by_its_digest() {
    let names = each(&["fs.root=image:there"]);
    assert!(names.iter().any(|found| found.starts_with("ImageTree(\"there\")")), "{names:?}");
    let place = tempfile::tempdir().unwrap();
    for (image, words) in [("lost", "the tree was changed"), ("moved", "cannot be had")] {
        let (_, started) = start(&[format!("fs.root=image:{image}")], place.path(), None);
        let Err(Error::Refused(faults)) = started else { panic!("{image} was started") };
        assert!(faults[0].what.contains(words), "{faults:?}");
    }
}
