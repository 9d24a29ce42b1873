//! Templates that are built again: what of an earlier build is gone on from and by whom, what uploads mean meanwhile, and what is left
//! of builds when their template or their key goes.
#![expect(clippy::disallowed_methods, reason = "a server is asked until a build is over")]

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::built::{Wished, archive, copy, run, says};
use crate::served::Served;

/// Builds a template as these steps; what came of it.
fn build(served: &Served<'_>, key: &str, name: &str, upload: Option<&[u8]>, body: &Json) -> Json {
    let wished = Wished::new(served, key, &json!({ "name": name }));
    upload.into_iter().for_each(|bytes| wished.upload(served, key, bytes));
    wished.begin(served, key, body);
    wished.ended(served, key)
}

/// The steps of which a build says that an earlier one did them.
fn cached(told: &Json) -> Vec<String> {
    assert_eq!(told["status"], "ready", "{told}");
    let entries = told["logEntries"].as_array().unwrap().iter();
    let cached = entries.filter(|entry| entry["message"].as_str().unwrap().starts_with("cached: "));
    cached.map(|entry| entry["step"].as_str().unwrap().to_owned()).collect()
}

/// Names in a folder that is there.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn snapshots(fixture: &Fixture) -> usize {
    names(&fixture.state().join("snapshots")).iter().filter(|name| name.len() == 20).count()
}

fn templates(fixture: &Fixture) -> BTreeSet<String> {
    names(&fixture.state().join("server/templates")).into_iter().filter(|name| name.starts_with('t')).collect()
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_build_goes_on_from_the_first_steps_of_an_earlier_one_of_its_key_and_of_no_other() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let (one, other) = (&served.key("one", &[]), &served.key("other", &[]));
    let files: &[u8] = &archive(&[("src/app.sh", "first\n")]);
    let now = |path: &str| run(&format!("date +%s%N > ~/{path}"));
    let env = json!({ "type": "ENV", "args": ["WORD", "said"] });
    let body = |last: &Json| {
        json!({ "fromTemplate": "base", "force": false, "steps": [
            copy("src", "/srv/app"), now("early"), env, { "type": "WORKDIR", "args": ["/srv/app"] }, last,
        ] })
    };
    let last = run("date +%s%N > ~/late; cat app.sh > ~/app; echo $WORD $PWD > ~/said");
    let read = |key: &str, name: &str| says(served, key, name, "cat ~/early ~/late ~/app ~/said; echo $WORD");
    assert_eq!(cached(&build(served, one, "app", Some(files), &body(&last))), Vec::<String>::new());
    let first = read(one, "app");
    assert!(first.ends_with("first\nsaid /srv/app\nsaid\n"), "{first}");
    // All of it again: nothing is done, and what it says of variables and folders counts as before.
    assert_eq!(cached(&build(served, one, "app", None, &body(&last))), ["1", "2", "3", "4", "5"]);
    assert_eq!(read(one, "app"), first);
    // Another last step goes on from those before it, with their variables and folder.
    let changed = run("date +%s%N > ~/late; echo other > ~/app; echo $WORD $PWD > ~/said");
    let told = build(served, one, "app", None, &body(&changed));
    assert_eq!(cached(&told), ["1", "2"], "what WORKDIR and ENV do costs nothing");
    let second = read(one, "app");
    let line = |text: &str, at: usize| text.lines().nth(at).unwrap().to_owned();
    assert_eq!(line(&first, 0), line(&second, 0));
    assert_ne!(line(&first, 1), line(&second, 1));
    assert!(second.ends_with("other\nsaid /srv/app\nsaid\n"), "{second}");
    // Another key that does the same does all of it.
    assert_eq!(cached(&build(served, other, "app", Some(files), &body(&last))), Vec::<String>::new());
    assert_ne!(line(&read(other, "app"), 0), line(&first, 0));
    // Another template of the key, with files of its own.
    assert_eq!(cached(&build(served, one, "more", Some(files), &body(&last))).len(), 5);
    let changed: &[u8] = &archive(&[("src/app.sh", "second\n")]);
    assert_eq!(cached(&build(served, one, "more", Some(changed), &body(&last))), Vec::<String>::new());
    let found = read(one, "more");
    assert!(found.contains("\nsecond\n") && line(&found, 0) != line(&first, 0), "{found}");
}

#[test]
fn what_is_forced_is_done_again_and_what_is_another_base_is_another_beginning() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let key = &served.key("one", &[]);
    let step = |path: &str, force: bool| json!({ "type": "RUN", "args": [format!("date +%s%N > ~/{path}")], "force": force, "forceUpload": force });
    let body = |force: bool, second: bool| json!({ "fromTemplate": "base", "force": force, "steps": [step("a", false), step("b", second), step("c", false)] });
    let built = |name: &str, body: &Json| cached(&build(served, key, name, None, body));
    assert_eq!(built("app", &body(false, false)), Vec::<String>::new());
    assert_eq!(built("app", &body(false, false)), ["1", "2", "3"]);
    assert_eq!(built("app", &body(false, true)), ["1"], "from a forced step on all is done");
    assert_eq!(built("app", &body(true, false)), Vec::<String>::new(), "skip_cache");
    let forced = says(served, key, "app", "cat ~/a ~/b ~/c");
    assert_eq!(built("app", &body(false, false)), ["1", "2", "3"], "what was forced is what is there now");
    assert_eq!(says(served, key, "app", "cat ~/a ~/b ~/c"), forced);
    // The same steps on another base, or with other limits, are no beginning of it.
    let on = |base: &str| json!({ "fromTemplate": base, "steps": [step("a", false), step("b", false)] });
    assert_eq!(built("child", &on("app")), Vec::<String>::new());
    assert_eq!(built("child", &on("app")), ["1", "2"]);
    assert_eq!(built("app", &body(true, false)), Vec::<String>::new());
    assert_eq!(built("child", &on("app")), Vec::<String>::new(), "its base was built again");
    let wished = Wished::new(served, key, &json!({ "name": "app", "memoryMB": 700 }));
    wished.begin(served, key, &body(false, false));
    assert_eq!(cached(&wished.ended(served, key)), Vec::<String>::new());
    // A state that somebody removed is done again, and so is what follows it.
    for snapshot in names(&fixture.state().join("snapshots")).iter().filter(|name| name.len() == 20) {
        std::fs::remove_dir_all(fixture.state().join("snapshots").join(snapshot)).unwrap();
    }
    assert_eq!(built("app", &body(false, false)), Vec::<String>::new());
    assert_eq!(says(served, key, "app", "cat ~/a ~/b ~/c").lines().count(), 3);
}

#[test]
fn what_is_sent_under_a_hash_later_is_not_what_a_build_has_that_began_before() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let key = &served.key("one", &[]);
    let file = |text: &str| archive(&[("src/app", text)]);
    let steps = |wait: &str| json!({ "fromTemplate": "base", "steps": [run(wait), copy("src", "/home/user/src")] });
    let first = Wished::new(served, key, &json!({ "name": "app" }));
    first.upload(served, key, &file("before"));
    first.begin(served, key, &steps("echo begun; sleep 4"));
    until("it has begun", || first.status(served, key).to_string().contains("\"begun\""));
    first.upload(served, key, &file("after"));
    // Another build of the template, which ends first and forgets what it did not name, takes nothing from it either.
    let plain = build(served, key, "app", None, &json!({ "fromTemplate": "base", "steps": [run("true")] }));
    assert_eq!(
        (plain["status"].as_str(), first.status(served, key)["status"].as_str()),
        (Some("ready"), Some("building"))
    );
    assert_eq!(first.ended(served, key)["status"], "ready");
    assert_eq!(says(served, key, "app", "cat ~/src/app"), "before");
    // It is what the next one has.
    assert_eq!(build(served, key, "app", None, &steps("true"))["status"], "ready");
    assert_eq!(says(served, key, "app", "cat ~/src/app"), "after");
    let folder = fixture.state().join("server/templates").join(&first.id);
    assert!(!names(&folder).iter().any(|name| name.ends_with(".files")), "{:?}", names(&folder));
}

#[test]
fn a_template_as_which_no_sandbox_begins_is_not_ready() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let key = &served.key("one", &[]);
    let named = |name: &str| {
        let steps = json!([{ "type": "ENV", "args": [name, "x"] }, run("true")]);
        build(served, key, "app", None, &json!({ "fromTemplate": "base", "steps": steps }))
    };
    let told = named("NOT A NAME");
    assert_eq!((told["status"].as_str(), told["reason"]["step"].as_str()), (Some("error"), Some("finalize")), "{told}");
    assert!(told["reason"]["message"].as_str().unwrap().contains("NOT A NAME"), "{told}");
    assert_eq!(served.ask(key, "POST /v2/sandboxes", &json!({ "templateID": "app" })).0, 400);
    until("nothing is left but what steps left", || snapshots(fixture) <= 1);
    // The same with a name that a policy knows is ready, and there is its sandbox.
    assert_eq!(named("A_NAME")["status"], "ready");
    assert_eq!(says(served, key, "app", "echo $A_NAME"), "x\n");
}

#[test]
fn a_build_ends_with_its_key_and_nothing_of_either_is_left() {
    let fixture = &Fixture::new();
    let served = &Served::new(fixture);
    let (gone, stays) = (&served.key("gone", &[]), &served.key("stays", &[]));
    let quick = json!({ "fromTemplate": "base", "steps": [run("date > ~/a"), run("date > ~/b")] });
    for key in [gone, stays] {
        assert_eq!(build(served, key, "done", None, &quick)["status"], "ready");
    }
    let begun = |key: &str, name: &str| {
        let wished = Wished::new(served, key, &json!({ "name": name }));
        wished.upload(served, key, &archive(&[("src/app", "x")]));
        let steps = json!([copy("src", "/home/user/src"), run("echo begun; exec sleep 100000")]);
        wished.begin(served, key, &json!({ "fromTemplate": "base", "steps": steps }));
        until("it has begun", || wished.status(served, key).to_string().contains("\"begun\""));
        wished
    };
    let (endless, other) = (begun(gone, "endless"), begun(stays, "endless"));
    let sandboxes = || fixture.run(&["ps", "--json"]).json()["sandboxes"].as_array().map_or(0, Vec::len);
    assert_eq!((sandboxes(), templates(fixture).len()), (2, 4));
    let before = snapshots(fixture);
    assert_eq!(fixture.run(&["keys", "rm", "gone"]).code, 0);
    until("its sandbox is gone", || sandboxes() == 1);
    until("its templates are gone", || templates(fixture).len() == 2);
    until("its snapshots are gone", || snapshots(fixture) * 2 <= before);
    assert!(!templates(fixture).contains(&endless.id));
    assert_eq!(served.ask(gone, "GET /templates", &Json::Null).0, 401);
    // What is another's goes on, and is as it was.
    assert_eq!(other.status(served, stays)["status"], "building");
    assert_eq!(says(served, stays, "done", "ls ~").split_whitespace().collect::<Vec<_>>(), ["a", "b"]);
    // A key that comes later under the same name has nothing of it.
    let later = &served.key("gone", &[]);
    assert_eq!(cached(&build(served, later, "done", None, &quick)), Vec::<String>::new());
    // With a template goes what its builds left for others.
    assert_eq!(served.ask(stays, &format!("DELETE /templates/{}", other.id), &Json::Null).0, 204);
    let done =
        served.ask(stays, "GET /templates/aliases/done", &Json::Null).1["templateID"].as_str().unwrap().to_owned();
    assert_eq!(served.ask(stays, &format!("DELETE /templates/{done}"), &Json::Null).0, 204);
    let again =
        served.ask(later, "GET /templates/aliases/done", &Json::Null).1["templateID"].as_str().unwrap().to_owned();
    assert_eq!(served.ask(later, &format!("DELETE /templates/{again}"), &Json::Null).0, 204);
    until("no snapshot is left", || snapshots(fixture) == 0);
    until("no template is left", || templates(fixture).is_empty());
}
