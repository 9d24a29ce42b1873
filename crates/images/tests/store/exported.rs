//! What is written is read again, here and by others.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use images::ImageError;
use sys::command::Command;
use sys::pidfd::End;

use super::packed::*;

/// One of everything that a tree may hold.
fn everything() -> Vec<Layer> {
    let long = "n".repeat(120);
    let lower = [
        Entry { mode: 0o711, ..folder("./") },
        file("bin/tool", "run"),
        file("gone", "x"),
        link(b'1', "bin/again", "bin/tool"),
        link(b'2', "sh", "bin//tool/."),
        extended("linkpath", &"../".repeat(50)),
        link(b'2', &format!("{long}/to"), "short"),
        Entry { mode: 0o640, ..file(&format!("{long}/{long}"), "deep") },
        file("empty", ""),
        Entry { body: vec![0; 3000], ..file("holes", "") },
        Entry { name: b"not-\xff-text".to_vec(), ..file("", "x") },
        folder("kept"),
    ];
    vec![plain(&lower), plain(&[file(".wh.gone", ""), file("bin/more", "x")])]
}

#[test]
fn an_exported_image_is_the_same_tree_and_the_same_digest_wherever_it_goes() {
    let bench = Bench::new();
    let layout = Layout::new(&bench.path("layout"), &everything());
    let first = bench.store.import(&layout.0, None).unwrap().remove(0);
    let digest = bench.store.export("app:1", &bench.path("out")).unwrap();
    assert_eq!(bench.store.export("app:1", &bench.path("out.tar")).unwrap(), digest, "folder and archive");

    for at in ["out", "out.tar"] {
        let other = Bench::new();
        let second = other.store.import(&bench.path(at), None).unwrap().remove(0);
        assert_eq!(
            (&second.about.tree, &second.about.digest, &second.names),
            (&first.about.tree, &digest, &first.names)
        );
        assert_eq!(second.about.config, first.about.config);
        assert_eq!(second.about.told, images::UnpackNotes::default(), "nothing is lost a second time");
        let root = other.store.lease("app:1").unwrap().path().to_owned();
        let meta = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
        assert_eq!(meta("bin/tool").ino(), meta("bin/again").ino(), "still one file");
        assert_eq!(meta("bin/tool").mtime(), 1_000_000_000);
        assert_eq!(other.store.export(&digest, &other.path("out.tar")).unwrap(), digest);
        let bytes = |bench: &Bench| fs::read(bench.path("out.tar")).unwrap();
        assert!(bytes(&other) == bytes(&bench), "byte for byte");
    }
}

#[test]
fn an_export_writes_over_nothing_and_leaves_nothing_unfinished() {
    let bench = Bench::new();
    let layout = Layout::new(&bench.path("layout"), &[plain(&[file("a", "x")])]);
    let listed = bench.store.import(&layout.0, None).unwrap().remove(0);
    fs::write(bench.path("there.tar"), "mine").unwrap();
    fs::create_dir(bench.path("there")).unwrap();
    for at in ["there", "there.tar"] {
        let done = bench.store.export("app:1", &bench.path(at));
        assert!(matches!(done, Err(ImageError::Exists { .. })), "{done:?}");
    }
    assert_eq!(fs::read_to_string(bench.path("there.tar")).unwrap(), "mine");
    assert!(matches!(bench.store.export("none", &bench.path("new")), Err(ImageError::None { .. })));
    let hex = listed.about.digest.strip_prefix("sha256:").unwrap().to_owned();
    fs::write(bench.path(&format!("state/images/trees/{hex}/root/a")), "y").unwrap();
    assert!(matches!(bench.store.export("app:1", &bench.path("new")), Err(ImageError::Changed { .. })));
    let all: Vec<_> = fs::read_dir(bench.folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(all.len(), 4, "{all:?}");
}

const SKOPEO: &str = "/usr/bin/skopeo";

fn skopeo(words: &[&str]) {
    let command = Command::new(SKOPEO).env("TMPDIR", "/tmp").arg("--insecure-policy").args(words);
    let done = command.output(b"", 1 << 16, Duration::from_secs(60)).unwrap();
    assert_eq!(done.end, End::Exited(0), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn skopeo_reads_what_is_exported_and_what_it_writes_is_imported() {
    if !Path::new(SKOPEO).exists() {
        return println!("skip: `skopeo` is not installed");
    }
    let bench = Bench::new();
    let layout = Layout::new(&bench.path("layout"), &everything());
    let first = bench.store.import(&layout.0, None).unwrap().remove(0);
    bench.store.export("app:1", &bench.path("out")).unwrap();
    bench.store.export("app:1", &bench.path("out.tar")).unwrap();
    let at = |kind: &str, name: &str| format!("{kind}:{}", bench.path(name).display());
    let from = format!("{}:app:1", at("oci", "out"));
    let packed = |how: &str, to: &str| skopeo(&["copy", "--dest-compress-format", how, &from, to]);
    skopeo(&["copy", &at("oci-archive", "out.tar"), &at("dir", "dir")]);
    skopeo(&["copy", &from, &format!("{}:example.org/app:2", at("docker-archive", "saved.tar"))]);
    packed("zstd", &format!("{}:z", at("oci", "zstd")));
    packed("gzip", &format!("{}:g", at("oci-archive", "gzip.tar")));
    for name in ["saved.tar", "zstd", "gzip.tar"] {
        let listed = bench.store.import(Path::new(&bench.path(name)), None).unwrap().remove(0);
        assert_eq!(listed.about.tree, first.about.tree, "{name}");
        assert_eq!(listed.about.config, first.about.config, "{name}");
    }
}

const UMOCI: &str = "/usr/bin/umoci";

/// What each name below a folder is: mode, and content, size, time and first name of a file, or where a link leads.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let (mut found, mut first) = (BTreeMap::new(), BTreeMap::new());
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut inside: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        inside.sort();
        for path in inside {
            let meta = path.symlink_metadata().unwrap();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let what = if meta.is_dir() {
                folders.push(path);
                "a folder".to_owned()
            } else if meta.is_symlink() {
                format!("a link to {:?}", fs::read_link(&path).unwrap())
            } else {
                let first: &PathBuf = first.entry(meta.ino()).or_insert_with(|| name.clone());
                format!("a file as {first:?} of {} {}: {:?}", meta.len(), meta.mtime(), fs::read(&path).unwrap())
            };
            found.insert(name, format!("{:o} {what}", meta.mode() & 0o7777));
        }
    }
    found
}

#[test]
fn umoci_unpacks_what_is_exported_to_the_same_tree() {
    if !Path::new(UMOCI).exists() {
        return println!("skip: `umoci` is not installed");
    }
    let bench = Bench::new();
    let layout = Layout::new(&bench.path("layout"), &everything());
    bench.store.import(&layout.0, None).unwrap();
    bench.store.export("app:1", &bench.path("out")).unwrap();
    let from = format!("{}:app:1", bench.path("out").display());
    let mut command = Command::new(UMOCI).args(["unpack", "--image", &from]);
    if !rustix::process::geteuid().is_root() {
        command = command.arg("--rootless");
    }
    let done = command.arg(bench.path("bundle")).output(b"", 1 << 16, Duration::from_secs(60)).unwrap();
    assert_eq!(done.end, End::Exited(0), "{}", String::from_utf8_lossy(&done.stderr));

    let lease = bench.store.lease("app:1").unwrap();
    let (ours, theirs) = (tree(lease.path()), tree(&bench.path("bundle").join("rootfs")));
    assert!(ours.len() >= 12, "{ours:?}");
    assert_eq!(ours, theirs);
    // Of which one that is changed would be told.
    fs::write(bench.path("bundle/rootfs/empty"), "x").unwrap();
    assert_ne!(ours, tree(&bench.path("bundle").join("rootfs")));
}
