//! `fumehood image`: what a person meets. What layers may hold is tried where they are unpacked.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Fixture;

/// A docker-archive with these layers, each of one empty file; their digests are not right, and come last.
fn saved(fixture: &Fixture, names: &[&str], layers: &[&str]) -> PathBuf {
    let at = fixture.path("saved.tar");
    let mut archive = tar::Builder::new(std::fs::File::create(&at).unwrap());
    let mut add = |name: &str, body: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(u64::try_from(body.len()).unwrap());
        header.set_mode(0o644);
        archive.append_data(&mut header, name, body).unwrap();
    };
    let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    let ids: Vec<_> = layers.iter().map(|_| format!("sha256:{}", "0".repeat(64))).collect();
    let config = json!({
        "architecture": arch, "os": "linux", "rootfs": { "diff_ids": ids }, "config": { "Cmd": ["/bin/x"], "Env": ["A=b"] },
    });
    let parts: Vec<_> = (0..layers.len()).map(|number| format!("{number}.tar")).collect();
    add("config.json", config.to_string().as_bytes());
    let manifest = json!([{ "Config": "config.json", "RepoTags": names, "Layers": parts }]);
    add("manifest.json", manifest.to_string().as_bytes());
    for (part, name) in parts.iter().zip(layers) {
        let mut header = tar::Header::new_gnu();
        header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(0);
        header.set_mode(0o644);
        header.set_cksum();
        let layer = [&header.as_bytes()[..], &[0; 1024]].concat();
        add(part, &layer);
    }
    archive.finish().unwrap();
    at
}

fn names(fixture: &Fixture) -> Vec<Value> {
    let json = fixture.run(&["image", "ls", "--json"]).json();
    json["images"].as_array().unwrap().iter().map(|image| image["names"].clone()).collect()
}

#[test]
fn an_image_is_imported_listed_inspected_and_removed() {
    let fixture = Fixture::new();
    let at = saved(&fixture, &["app:1", "app:latest"], &[]);
    let said = fixture.run(&["image", "import", at.to_str().unwrap()]);
    assert!(
        said.code == 0 && said.out.contains("app:latest") && said.out.contains("sha256:"),
        "{} {}",
        said.out,
        said.err
    );
    assert_eq!(names(&fixture), [json!(["app:1", "app:latest"])]);
    let said = fixture.run(&["image", "inspect", "app:1"]);
    assert!(said.code == 0 && said.out.contains("/bin/x") && said.out.contains("A=b"), "{} {}", said.out, said.err);
    let image = fixture.run(&["image", "inspect", "app:1", "--json"]).json()["image"].clone();
    assert_eq!(image["config"]["Cmd"], json!(["/bin/x"]));
    assert_eq!(fixture.run(&["image", "rm", "app:1"]).code, 0);
    assert_eq!(names(&fixture), [json!(["app:latest"])]);
    assert_eq!(fixture.run(&["image", "rm", image["digest"].as_str().unwrap()]).code, 0);
    assert_eq!(names(&fixture), Vec::<Value>::new());
    let said = fixture.run(&["image", "inspect", "app:1"]);
    assert!(said.code == 125 && said.err.contains("there is no image `app:1`"), "{}", said.err);
}

#[test]
fn a_refused_image_says_its_entry_and_leaves_nothing() {
    let fixture = Fixture::new();
    let at = saved(&fixture, &["app:1"], &["../escape"]);
    let said = fixture.run(&["image", "import", at.to_str().unwrap()]);
    assert_eq!(said.code, 126, "{}", said.err);
    assert!(said.err.contains("`../escape`") && said.err.contains("why: its name has `..`"), "{}", said.err);
    let at = saved(&fixture, &["app:1"], &["fine"]);
    let said = fixture.run(&["image", "import", at.to_str().unwrap(), "--json"]);
    assert_eq!((said.code, said.json()["refused"][0]["id"].as_str()), (126, Some("image/digest")));
    assert_eq!(names(&fixture), Vec::<Value>::new());
}

#[test]
fn what_is_missing_or_no_size_is_said() {
    let fixture = Fixture::new();
    for args in [&["image", "import"][..], &["image", "rm"], &["image", "inspect"]] {
        let said = fixture.run(args);
        assert!(said.code == 125 && said.err.contains("there is no image to work on"), "{}", said.err);
    }
    let at = saved(&fixture, &[], &[]);
    let said = fixture.run(&["image", "import", at.to_str().unwrap(), "--max-size", "30"]);
    assert!(said.code == 125 && said.err.contains("a size as `30G`"), "{}", said.err);
}

#[test]
fn an_image_of_the_host_is_made_exported_and_imported_again() {
    let fixture = Fixture::new();
    let said = fixture.run(&["image", "from-host", "-t", "tools:1", "--paths", "/usr/bin/env,/usr/bin/id", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let made = said.json()["images"][0].clone();
    assert_eq!(made["names"], json!(["tools:1"]));
    let at = fixture.path("tools.tar");
    let said = fixture.run(&["image", "export", "tools:1", at.to_str().unwrap()]);
    assert_eq!((said.code, said.out.trim()), (0, made["digest"].as_str().unwrap()), "its digest is its manifest's");
    fixture.run(&["image", "rm", "tools:1"]);
    let again = fixture.run(&["image", "import", at.to_str().unwrap(), "--json"]).json()["images"][0].clone();
    assert_eq!((&again["tree"], &again["digest"]), (&made["tree"], &made["digest"]));

    for (words, code, id) in [
        (&["image", "export", "tools:1", at.to_str().unwrap()][..], 125, "image/exists"),
        (&["image", "from-host", "-t", "x", "--paths", "/etc/shadow"][..], 126, "image/not-an-image"),
        (&["image", "from-host", "-t", "x", "--paths", "/usr/bin/env", "--max-size", "1K"][..], 126, "image/too-large"),
        (&["image", "from-host", "-t", "..", "--paths", "/usr/bin/env"][..], 125, "image/name"),
        (&["image", "from-host"][..], 125, "usage/no-image"),
    ] {
        let said = fixture.run(&[words, &["--json"]].concat());
        assert_eq!(said.code, code, "{words:?}: {}", said.err);
        assert!(said.out.contains(id) || said.err.contains(id), "{words:?}: {} {}", said.out, said.err);
    }
    assert_eq!(names(&fixture), [json!(["tools:1"])]);
}

#[test]
fn what_cannot_be_pulled_or_packed_says_why_and_keeps_nothing() {
    let fixture = Fixture::new();
    // A port that nobody has: it was free a moment ago, and nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let here = format!("127.0.0.1:{port}/app:1");
    let docker = fixture.path(".docker");
    std::fs::create_dir(&docker).unwrap();
    std::fs::write(docker.join("config.json"), r#"{"credHelpers":{"ghcr.io":"desktop"}}"#).unwrap();
    for (words, code, id) in [
        (&["pull", &here, "--plain-http"][..], 125, "image/registry"),
        (&["pull", "192.0.2.1/app", "--plain-http"][..], 126, "image/plain-http"),
        (&["pull", "No/Such Name"][..], 125, "image/reference"),
        (&["pull", &here, "--platform", "linux/s390x"][..], 125, "image/reference"),
        (&["pull", "ghcr.io/me/app"][..], 126, "image/credentials"),
        (&["pull"][..], 125, "usage/no-image"),
        (&["debian", "-t", "x", "--packages=-y"][..], 126, "image/packages"),
        (&["debian", "-t", "x", "--packages", "git", "--suite", "a b"][..], 126, "image/packages"),
        (&["debian", "-t", "x"][..], 125, "usage/no-image"),
    ] {
        let all = [&["image"], words, &["--json"]].concat();
        let said = fixture.run(&all);
        assert_eq!(said.code, code, "{words:?}: {} {}", said.out, said.err);
        assert!(said.out.contains(id) || said.err.contains(id), "{words:?}: {} {}", said.out, said.err);
    }
    assert!(names(&fixture).is_empty());
}
