//! Templates that begin as images: those that a key's ceiling names, from the store or from a registry where it says so.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::Fixture;
use crate::built::{Wished, run, says};
use crate::image_runs::{Member, layer, saved};
use crate::mcp_images::{REPOSITORY, Registry};
use crate::served::Served;

/// Imports an image of busybox with a marker that says this; its digest.
fn imported(fixture: &Fixture, name: &str, marker: &str) -> String {
    let tool = Member::File("opt/own/greet", b"#!/bin/sh\necho greetings\n", 0o755);
    let layer = layer(vec![Member::File("marker", marker.as_bytes(), 0o644), tool]);
    let at = fixture.path("image.tar");
    saved(&at, name, &layer, &json!({ "Env": ["PATH=/opt/own:/bin", "COLOUR=blue"] }));
    assert_eq!(fixture.run(&["image", "import", at.to_str().unwrap()]).code, 0);
    fixture.run(&["image", "inspect", name, "--json"]).json()["image"]["digest"].as_str().unwrap().to_owned()
}

/// Asks for a build as an image; the status, and what was said.
fn begun(served: &Served<'_>, key: &str, name: &str, image: &str) -> (Wished, u16, Json) {
    let wished = Wished::new(served, key, &json!({ "name": name }));
    let steps = json!([run("cat /marker > ~/made; greet >> ~/made; echo $COLOUR >> ~/made")]);
    let line = format!("POST /v2/templates/{}/builds/{}", wished.id, wished.build);
    let (status, told) = served.ask(key, &line, &json!({ "fromImage": image, "steps": steps }));
    (wished, status, told)
}

fn refused(served: &Served<'_>, key: &str, image: &str) -> String {
    let (_, status, told) = begun(served, key, "app", image);
    assert_eq!(status, 400, "{image}: {told}");
    told["fumehood"]["clause"].as_str().unwrap().to_owned()
}

#[test]
fn a_template_begins_as_an_image_that_the_ceiling_names_and_as_no_other() {
    let fixture = &Fixture::new();
    let app = imported(fixture, "app:1", "of app\n");
    let secret = imported(fixture, "secret:1", "of secret\n");
    let served = &Served::new(fixture);
    let (plain, lists) = (&served.key("plain", &[]), &served.key("lists", &["--images", "app:*,ghcr.io/team/*"]));
    // Without a word of the ceiling there is none, whatever the store has; and what it has is not told.
    for image in ["app:1", "secret:1", "absent:1", &app] {
        assert_eq!(refused(served, plain, image), "images", "{image}");
    }
    for image in ["secret:1", "absent:1", &secret, &format!("ghcr.io/team@{secret}")] {
        assert_eq!(refused(served, lists, image), "images", "{image}");
    }
    // A name of the list with the digest of another image means no image of the list.
    assert_eq!(refused(served, lists, &format!("ghcr.io/team/app@{secret}")), "pull");
    assert_eq!(refused(served, lists, "app:2"), "pull");
    let (wished, status, told) = begun(served, lists, "app", "app:1");
    assert_eq!(status, 202, "{told}");
    let told = wished.ended(served, lists);
    assert_eq!(told["status"], "ready", "{told}");
    let read = || says(served, lists, "app", "cat /marker ~/made; greet; test -e /usr/bin/env || echo alone");
    let found = read();
    assert_eq!(found, "of app\nof app\ngreetings\nblue\ngreetings\nalone\n");
    // A sandbox of it is kept and begun again as it was, and so is a template of the template.
    let (_, made) = served.ask(lists, "POST /v2/sandboxes", &json!({ "templateID": "app", "timeout": 60 }));
    let id = made["sandboxID"].as_str().unwrap();
    let (status, taken) = served.ask(lists, &format!("POST /sandboxes/{id}/snapshots"), &json!({}));
    assert_eq!(status, 201, "{taken}");
    assert_eq!(says(served, lists, taken["snapshotID"].as_str().unwrap(), "cat /marker"), "of app\n");
    let child = Wished::new(served, lists, &json!({ "name": "child" }));
    child.begin(served, lists, &json!({ "fromTemplate": "app", "steps": [run("cat /marker > ~/child")] }));
    assert_eq!(child.ended(served, lists)["status"], "ready");
    // What its name means now is the next build's; a template stays what it was built as.
    imported(fixture, "app:1", "of another\n");
    assert_eq!(read(), found);
    let (wished, _, _) = begun(served, lists, "anew", "app:1");
    let told = wished.ended(served, lists);
    assert!(told["status"] == "ready" && !told["logEntries"].to_string().contains("cached"), "{told}");
    assert!(says(served, lists, "anew", "cat ~/made").starts_with("of another\n"));
    // Below a ceiling whose own root is the host's, too: the list is a part of it.
    let top = fixture.path("top.toml");
    std::fs::write(&top, crate::templates::TOP).unwrap();
    let below = &served.key("below", &["-p", top.to_str().unwrap(), "--images", "app"]);
    let (wished, status, told) = begun(served, below, "app", "docker.io/library/app:1");
    assert_eq!(status, 202, "{told}");
    assert_eq!(wished.ended(served, below)["status"], "ready");
    assert!(says(served, below, "app", "cat ~/made").starts_with("of another\n"));
    assert_eq!(refused(served, below, "secret:1"), "images");
    // A policy of its own may not have it as its root: the list is of templates.
    let root = json!({ "policy": { "extends": "strict", "fs": { "root": "image:app:1" } } });
    let (status, told) = served.ask(lists, "POST /v1/sandboxes", &root);
    assert_eq!((status, told["clause"].as_str()), (403, Some("fs.root")), "{told}");
}

#[test]
fn an_image_is_brought_only_where_the_ceiling_says_so() {
    let fixture = &Fixture::new();
    let registry = Registry::new();
    let digest = registry.push("one");
    let served = &Served::with(fixture, &["--image-plain-http"]);
    let list = format!("{}/{}/*", registry.host, Path::new(REPOSITORY).parent().unwrap().display());
    let (keeps, brings) =
        (&served.key("keeps", &["--images", &list]), &served.key("brings", &["--images", &list, "--pull"]));
    let image = registry.image();
    let there = || fixture.run(&["image", "ls", "--json"]).json()["images"].as_array().unwrap().len();
    assert_eq!(refused(served, keeps, &image), "pull");
    let elsewhere = image.replace("mcp/", "other/");
    assert_eq!((refused(served, brings, &elsewhere).as_str(), there()), ("images", 0), "nothing was brought");
    let ready = |key: &str, name: &str, image: &str| {
        let wished = Wished::new(served, key, &json!({ "name": name }));
        wished.begin(served, key, &json!({ "fromImage": image, "steps": [run("cat /server > ~/made")] }));
        wished.ended(served, key)
    };
    let told = ready(brings, "app", &image);
    assert_eq!(told["status"], "ready", "{told}");
    assert!(told["logEntries"].to_string().contains(&format!("is {digest}")), "{told}");
    assert_eq!(there(), 1);
    assert!(says(served, brings, "app", "cat ~/made").contains("one $WORD"));
    // It is in the store from then on, for all whose ceiling names it.
    assert_eq!(ready(keeps, "app", &image)["status"], "ready");
    // By its digest, too; and one that the registry has not fails the build, which says why.
    let pinned = format!("{}/{REPOSITORY}@{digest}", registry.host);
    assert_eq!(ready(brings, "pinned", &pinned)["status"], "ready");
    let told = ready(brings, "absent", &image.replace(":1", ":none"));
    assert_eq!((told["status"].as_str(), told["reason"]["step"].as_str()), (Some("error"), Some("base")), "{told}");
    assert_eq!(served.ask(brings, "POST /v2/sandboxes", &json!({ "templateID": "absent" })).0, 400);
}

#[test]
fn a_pattern_that_can_mean_no_image_and_flags_that_do_nothing_are_refused() {
    let fixture = Fixture::new();
    let add = |more: &[&str]| fixture.run(&[&["keys", "add", "--name", "a"], more].concat());
    for (more, said) in [
        (&["--images", "Python:3"][..], "no image can be called so"),
        (&["--images", "python:3,"], "no image can be called so"),
        (&["--pull"], "`--pull` stands alone"),
        (&["--images", "python", "--templates", "base"], "builds no templates"),
        (&["--images", "python", "--builds", "0"], "builds no templates"),
    ] {
        let found = add(more);
        assert!(found.code == 125 && found.err.contains(said), "{more:?}: {found:?}");
    }
    assert_eq!(add(&["--images", "python:3.*, ghcr.io/team/*", "--pull"]).code, 0);
    let listed = fixture.run(&["keys", "ls", "--json"]).json();
    assert_eq!(listed["keys"][0]["images"], json!(["python:3.*", "ghcr.io/team/*"]));
    assert_eq!(listed["keys"][0]["pull"], true);
}
