//! `fumehood image`: what a person meets. What layers may hold is tried where they are unpacked.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::House;

/// A docker-archive with these layers, each of one empty file; their digests are not right, and come last.
fn saved(house: &House, names: &[&str], layers: &[&str]) -> PathBuf {
    let at = house.path("saved.tar");
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

fn names(house: &House) -> Vec<Value> {
    let json = house.run(&["image", "ls", "--json"]).json();
    json["images"].as_array().unwrap().iter().map(|image| image["names"].clone()).collect()
}

#[test]
fn an_image_is_imported_listed_inspected_and_removed() {
    let house = House::new();
    let at = saved(&house, &["app:1", "app:latest"], &[]);
    let said = house.run(&["image", "import", at.to_str().unwrap()]);
    assert!(
        said.code == 0 && said.out.contains("app:latest") && said.out.contains("sha256:"),
        "{} {}",
        said.out,
        said.err
    );
    assert_eq!(names(&house), [json!(["app:1", "app:latest"])]);
    let said = house.run(&["image", "inspect", "app:1"]);
    assert!(said.code == 0 && said.out.contains("/bin/x") && said.out.contains("A=b"), "{} {}", said.out, said.err);
    let image = house.run(&["image", "inspect", "app:1", "--json"]).json()["image"].clone();
    assert_eq!(image["config"]["Cmd"], json!(["/bin/x"]));
    assert_eq!(house.run(&["image", "rm", "app:1"]).code, 0);
    assert_eq!(names(&house), [json!(["app:latest"])]);
    assert_eq!(house.run(&["image", "rm", image["digest"].as_str().unwrap()]).code, 0);
    assert_eq!(names(&house), Vec::<Value>::new());
    let said = house.run(&["image", "inspect", "app:1"]);
    assert!(said.code == 125 && said.err.contains("there is no image `app:1`"), "{}", said.err);
}

#[test]
fn a_refused_image_says_its_entry_and_leaves_nothing() {
    let house = House::new();
    let at = saved(&house, &["app:1"], &["../escape"]);
    let said = house.run(&["image", "import", at.to_str().unwrap()]);
    assert_eq!(said.code, 126, "{}", said.err);
    assert!(said.err.contains("`../escape`") && said.err.contains("why: its name has `..`"), "{}", said.err);
    let at = saved(&house, &["app:1"], &["fine"]);
    let said = house.run(&["image", "import", at.to_str().unwrap(), "--json"]);
    assert_eq!((said.code, said.json()["refused"][0]["id"].as_str()), (126, Some("image/digest")));
    assert_eq!(names(&house), Vec::<Value>::new());
}

#[test]
fn what_is_missing_or_no_size_is_said() {
    let house = House::new();
    for args in [&["image", "import"][..], &["image", "rm"], &["image", "inspect"]] {
        let said = house.run(args);
        assert!(said.code == 125 && said.err.contains("there is no image to work on"), "{}", said.err);
    }
    let at = saved(&house, &[], &[]);
    let said = house.run(&["image", "import", at.to_str().unwrap(), "--max-size", "30"]);
    assert!(said.code == 125 && said.err.contains("a size as `30G`"), "{}", said.err);
}

#[test]
fn an_image_of_the_host_is_made_exported_and_imported_again() {
    let house = House::new();
    let said = house.run(&["image", "from-host", "-t", "tools:1", "--paths", "/usr/bin/env,/usr/bin/id", "--json"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let made = said.json()["images"][0].clone();
    assert_eq!(made["names"], json!(["tools:1"]));
    let at = house.path("tools.tar");
    let said = house.run(&["image", "export", "tools:1", at.to_str().unwrap()]);
    assert_eq!((said.code, said.out.trim()), (0, made["digest"].as_str().unwrap()), "its digest is its manifest's");
    house.run(&["image", "rm", "tools:1"]);
    let again = house.run(&["image", "import", at.to_str().unwrap(), "--json"]).json()["images"][0].clone();
    assert_eq!((&again["tree"], &again["digest"]), (&made["tree"], &made["digest"]));

    for (words, code, id) in [
        (&["image", "export", "tools:1", at.to_str().unwrap()][..], 125, "image/exists"),
        (&["image", "from-host", "-t", "x", "--paths", "/etc/shadow"][..], 126, "image/not-an-image"),
        (&["image", "from-host", "-t", "x", "--paths", "/usr/bin/env", "--max-size", "10"][..], 126, "image/too-large"),
        (&["image", "from-host", "-t", "..", "--paths", "/usr/bin/env"][..], 125, "image/name"),
        (&["image", "from-host"][..], 125, "usage/no-image"),
    ] {
        let said = house.run(&[words, &["--json"]].concat());
        assert_eq!(said.code, code, "{words:?}: {}", said.err);
        assert!(said.out.contains(id) || said.err.contains(id), "{words:?}: {} {}", said.out, said.err);
    }
    assert_eq!(names(&house), [json!(["tools:1"])]);
}
