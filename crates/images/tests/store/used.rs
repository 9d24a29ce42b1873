//! What honest images become, and how the store keeps them.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

use images::{ImageError, Store};

use super::packed::*;

fn imported(bench: &Bench, layers: &[Layer]) -> images::Listed {
    let layout = Layout::new(&bench.path("layout"), layers);
    let mut done = bench.store.import(&layout.0, None).unwrap();
    assert_eq!(done.len(), 1);
    done.remove(0)
}

fn tree(store: &Store, reference: &str) -> PathBuf {
    store.lease(reference).unwrap().path().to_owned()
}

fn names(at: &std::path::Path) -> Vec<String> {
    let mut all: Vec<_> =
        fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    all.sort();
    all
}

#[test]
fn files_links_modes_and_times_are_as_they_were_packed() {
    let bench = Bench::new();
    let tool = Entry { mode: 0o4755, ..file("bin/tool", "run") };
    let secret = Entry { mode: 0, ..file("etc/shadow", "none") };
    let holes = Entry { body: [vec![b'a'; 1 << 16], vec![0; 1 << 20], vec![b'z']].concat(), ..file("holes", "") };
    let entries = [
        folder("./"),
        folder("bin/"),
        tool,
        secret,
        holes,
        link(b'2', "sh", "bin/tool"),
        link(b'2', "out", "/etc/../../x"),
        link(b'1', "bin/again", "bin/tool"),
        extended("SCHILY.xattr.user.a", "b"),
        file(&"long/".repeat(40), ""),
    ];
    let listed = imported(&bench, &[plain(&entries)]);
    assert_eq!(listed.names, ["app:1"]);
    assert_eq!((listed.about.told.set_id, listed.about.told.attributes), (1, 1));
    assert_eq!(listed.about.config.cmd, Some(vec!["/bin/x".to_owned()]));
    let root = tree(&bench.store, "app:1");
    let meta = |name: &str| fs::symlink_metadata(root.join(name)).unwrap();
    assert_eq!(meta("bin/tool").permissions().mode() & 0o7777, 0o755, "set-user-id is gone");
    assert_eq!(meta("bin/tool").mtime(), 1_000_000_000);
    assert_eq!(meta("bin").mtime(), 1_000_000_000);
    assert_eq!(meta("bin/tool").ino(), meta("bin/again").ino());
    assert_eq!(meta("bin/tool").uid(), rustix::process::geteuid().as_raw(), "owners are the importer");
    assert_eq!(meta("etc/shadow").permissions().mode() & 0o7777, 0o400, "the owner can check it");
    assert_eq!(fs::read_link(root.join("out")).unwrap(), PathBuf::from("/etc/../../x"), "a link is only text");
    let holes = meta("holes");
    assert_eq!(holes.len(), (1 << 16) + (1 << 20) + 1);
    assert!(holes.blocks() * 512 < 1 << 20, "zeros take no room: {}", holes.blocks());
    assert!(root.join("long/".repeat(40)).is_dir());
}

#[test]
fn what_is_taken_away_is_counted_of_folders_and_for_every_writer() {
    let bench = Bench::new();
    let entries = [
        Entry { mode: 0o1777, ..folder("tmp") },
        Entry { mode: 0o2755, ..folder("mail") },
        Entry { mode: 0o2755, ..file("mail/tool", "") },
        Entry { mode: 0o7777, ..link(b'2', "link", "tmp") },
        extended("SCHILY.acl.access", "user::rw-"),
        file("acl", ""),
        extended("RHT.security.selinux", "label"),
        file("label", ""),
        extended("LIBARCHIVE.creationtime", "1"),
        file("dated", ""),
    ];
    let told = imported(&bench, &[plain(&entries)]).about.told;
    assert_eq!((told.set_id, told.attributes), (3, 2));
    let mode = |name: &str| fs::metadata(tree(&bench.store, "app:1").join(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("tmp"), mode("mail"), mode("mail/tool")), (0o777, 0o755, 0o755));
}

/// As GNU tar writes them, in each of its forms: in the middle, at the end, in many pieces, and nothing but a hole.
#[test]
fn files_whose_holes_were_left_out_have_them_again() {
    let bench = Bench::new();
    let packed = bench.path("packed");
    fs::create_dir(&packed).unwrap();
    let content = |pieces: &[(u64, &[u8])], size: u64| {
        let mut all = vec![0; usize::try_from(size).unwrap()];
        for (at, piece) in pieces {
            let at = usize::try_from(*at).unwrap();
            all[at..at + piece.len()].copy_from_slice(piece);
        }
        all
    };
    let many: Vec<(u64, &[u8])> = (0..40).map(|number| (number * (64 << 10) + 4096, &b"piece"[..])).collect();
    let files = [
        ("middle", content(&[(0, b"begin"), (1 << 20, b"end")], (1 << 20) + 3)),
        ("tail", content(&[(0, b"begin")], 1 << 20)),
        ("nothing", content(&[], 1 << 20)),
        ("many", content(&many, 3 << 20)),
    ];
    for (name, bytes) in &files {
        let file = fs::File::create(packed.join(name)).unwrap();
        for (at, chunk) in (0_u64..).step_by(4096).zip(bytes.chunks(4096)) {
            if chunk.iter().any(|byte| *byte != 0) {
                std::os::unix::fs::FileExt::write_all_at(&file, chunk, at).unwrap();
            }
        }
        file.set_len(bytes.len() as u64).unwrap();
    }
    for form in [
        &["--format=gnu"][..],
        &["--format=posix", "--sparse-version=0.0"],
        &["--format=posix", "--sparse-version=0.1"],
        &["--format=posix", "--sparse-version=1.0"],
    ] {
        let at = bench.path("layer.tar");
        let command = sys::command::Command::new("/bin/tar")
            .args(form)
            .arg("-S")
            .arg("-C")
            .arg(packed.as_os_str())
            .arg("-cf")
            .arg(at.as_os_str());
        let said = command
            .args(files.each_ref().map(|(name, _)| *name))
            .output(&[], 4096, std::time::Duration::from_secs(60))
            .unwrap();
        let bytes = fs::read(&at).unwrap();
        assert!(bytes.len() < 1 << 20, "{form:?} leaves holes out: {} {said:?}", bytes.len());
        let layout = Layout::new(&bench.path(&form.join("")), &[Layer(bytes.clone(), bytes)]);
        let done = bench.store.import(&layout.0, Some(64 << 20));
        assert!(done.is_ok(), "{form:?}: {done:?}");
        let root = tree(&bench.store, "app:1");
        for (name, bytes) in &files {
            assert!(fs::read(root.join(name)).unwrap() == *bytes, "{form:?} {name}");
            let meta = fs::metadata(root.join(name)).unwrap();
            assert!(meta.blocks() * 512 < meta.len(), "{form:?} {name} takes {} blocks", meta.blocks());
        }
    }
}

/// Zeros that no stream has count as much as those that one has.
#[test]
fn what_holes_unpack_to_is_bounded_together() {
    let bench = Bench::new();
    let holed = |name: &str| {
        let records = record("GNU.sparse.size", "3000000") + &record("GNU.sparse.map", "0,1");
        [Entry { kind: b'x', ..file("extended", &records) }, file(name, "x")]
    };
    let entries: Vec<_> = ["a", "b", "c"].into_iter().flat_map(holed).collect();
    let layout = Layout::new(&bench.path("layout"), &[plain(&entries)]);
    let refused = bench.store.import(&layout.0, Some(8 << 20)).unwrap_err();
    assert!(matches!(refused, ImageError::TooLarge { .. }), "{refused:?}");
    assert!(bench.store.import(&layout.0, Some(10 << 20)).is_ok());
}

#[test]
fn whiteouts_take_away_what_is_lower_and_nothing_else() {
    let bench = Bench::new();
    let lower = [
        file("gone", "x"),
        file("tree/a/b", "x"),
        file("tree/c", "x"),
        file("kept", "x"),
        file("opaque/old", "x"),
        file("opaque/sub/old", "x"),
        file("swap", "x"),
        file("dir/x", "x"),
    ];
    let upper = [
        file(".wh.gone", ""),
        file(".wh.tree", ""),
        file(".wh.never", ""),
        file("none/.wh.x", ""),
        file("opaque/new", "y"),
        file("opaque/sub/new", "y"),
        file("opaque/.wh..wh..opq", ""),
        // In the same layer, whichever comes first.
        file(".wh.swap", ""),
        file("swap", "y"),
        file("both", "y"),
        file(".wh.both", ""),
        link(b'2', "dir", "kept"),
    ];
    imported(&bench, &[plain(&lower), plain(&upper)]);
    let root = tree(&bench.store, "app:1");
    assert_eq!(names(&root), ["both", "dir", "kept", "opaque", "swap"]);
    assert_eq!(names(&root.join("opaque")), ["new", "sub"]);
    assert_eq!(names(&root.join("opaque/sub")), ["new"]);
    assert_eq!(fs::read_to_string(root.join("swap")).unwrap(), "y");
    assert!(fs::symlink_metadata(root.join("dir")).unwrap().is_symlink(), "a link replaces a folder");
}

#[test]
fn a_new_file_does_not_write_into_what_it_was_linked_with() {
    let bench = Bench::new();
    let lower = [file("a", "old"), link(b'1', "b", "a")];
    imported(&bench, &[plain(&lower), plain(&[file("a", "new")])]);
    let root = tree(&bench.store, "app:1");
    assert_eq!((fs::read_to_string(root.join("a")).unwrap().as_str(), "old"), ("new", "old"));
    assert_eq!(fs::read_to_string(root.join("b")).unwrap(), "old");
}

#[test]
fn gzip_zstd_and_plain_layers_give_the_same_tree() {
    let bench = Bench::new();
    let bytes = tar(&[file("a", "hello"), folder("b")]);
    let (one, two) = bytes.split_at(700);
    let skippable = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3][..], &zstd(&bytes)].concat();
    let packed = [
        bytes.clone(),
        gzip(&bytes),
        [gzip(one), gzip(two)].concat(),
        zstd(&bytes),
        [zstd(one), zstd(two)].concat(),
        skippable,
    ];
    let trees: Vec<_> =
        packed.into_iter().map(|packed| imported(&bench, &[Layer(bytes.clone(), packed)]).about.tree).collect();
    assert!(trees.iter().all(|tree| *tree == trees[0]), "{trees:?}");
}

/// As umoci's `insert` ends a layer: with the last byte of its last file. One that ends a byte before is none.
#[test]
fn a_layer_that_leaves_out_what_fills_its_last_block_is_whole() {
    let bench = Bench::new();
    let mut bytes = tar(&[file("first", "one"), file("last", "content")]);
    bytes.truncate(3 * 512 + "content".len());
    imported(&bench, &[Layer(bytes.clone(), gzip(&bytes))]);
    assert_eq!(fs::read_to_string(tree(&bench.store, "app:1").join("last")).unwrap(), "content");
    bytes.pop();
    let cut = Layout::new(&bench.path("cut"), &[Layer(bytes.clone(), gzip(&bytes))]);
    let refused = bench.store.import(&cut.0, None).unwrap_err();
    let cut = |why: &str| why.contains("ends in the middle of a member");
    assert!(matches!(&refused, ImageError::NotAnImage { why, .. } if cut(why)), "{refused:?}");
}

#[test]
fn layouts_and_archives_keep_their_names() {
    let bench = Bench::new();
    let layers = [plain(&[file("a", "x")]), plain(&[file("b", "y")])];
    let at = bench.path("saved.tar");
    fs::write(&at, saved(&layers, &["host:5000/app:1", "app:latest"])).unwrap();
    let done = bench.store.import(&at, None).unwrap();
    assert_eq!(done[0].names, ["app:latest", "host:5000/app:1"]);
    assert!(tree(&bench.store, "host:5000/app:1").join("b").exists());
    // An index in the index: the image of this machine is chosen.
    let layout = Layout::with(&bench.path("layout"), &layers, &config(&layers), "x");
    let index: serde_json::Value = serde_json::from_slice(&fs::read(layout.0.join("index.json")).unwrap()).unwrap();
    let mut ours = index["manifests"][0].clone();
    ours["platform"] = serde_json::json!({ "os": "linux", "architecture": arch() });
    let other = serde_json::json!({
        "digest": format!("sha256:{}", "0".repeat(64)), "size": 1, "platform": { "os": "linux", "architecture": "s390x" },
    });
    let inner = serde_json::json!({ "manifests": [other, ours] }).to_string();
    let mut top = layout.blob("application/vnd.oci.image.index.v1+json", inner.as_bytes());
    top["annotations"] = serde_json::json!({ "org.opencontainers.image.ref.name": "many" });
    layout.index(&serde_json::json!({ "manifests": [top] }));
    let done = bench.store.import(&layout.0, None).unwrap();
    assert_eq!((done.len(), done[0].names.as_slice()), (1, &["many".to_owned()][..]));
    assert_eq!(done[0].about.digest, ours["digest"].as_str().unwrap());
    assert_eq!(bench.store.list().unwrap().len(), 2);
}

#[test]
fn what_older_docker_and_newer_containerd_write_is_read() {
    let bench = Bench::new();
    // A layer that occurs twice is a link the second time.
    let layer = plain(&[file("a", "x")]);
    let twice = [Layer(layer.0.clone(), layer.1.clone()), layer];
    let of = |name: &str, body: &[u8]| Entry { body: body.to_vec(), ..file(name, "") };
    let manifest = r#"[{"Config":"c.json","RepoTags":["app:1"],"Layers":["one/layer.tar","two/layer.tar"]}]"#;
    let members = |target: &str| {
        tar(&[
            of("c.json", config(&twice).to_string().as_bytes()),
            of("one/layer.tar", &twice[0].1),
            link(b'2', "two/layer.tar", target),
            of("manifest.json", manifest.as_bytes()),
        ])
    };
    let at = bench.path("saved.tar");
    fs::write(&at, members("../one/layer.tar")).unwrap();
    assert_eq!(bench.store.import(&at, None).unwrap()[0].about.layers.len(), 2);
    for target in ["two/layer.tar", "/etc/passwd", "../../etc/passwd"] {
        fs::write(&at, members(target)).unwrap();
        let bench = Bench::new();
        assert!(matches!(bench.store.import(&at, None), Err(ImageError::NotAnImage { .. })), "{target}");
    }
    // The tag is in one annotation, the whole name in the other.
    let layout = Layout::new(&bench.path("layout"), &twice);
    let text = fs::read_to_string(layout.0.join("index.json")).unwrap();
    let both = r#"{"io.containerd.image.name":"docker.io/library/app:2","org.opencontainers.image.ref.name":"2"}"#;
    fs::write(layout.0.join("index.json"), text.replace(r#"{"org.opencontainers.image.ref.name":"app:1"}"#, both))
        .unwrap();
    assert_eq!(bench.store.import(&layout.0, None).unwrap()[0].names, ["2", "docker.io/library/app:2"]);
}

/// What an image says of how it is run is as much its own as its tree: its documents have its digest.
#[test]
fn what_is_written_down_of_an_image_is_what_its_documents_say() {
    let layers = [plain(&[file("a", "x")])];
    let saved_at = |bench: &Bench| {
        let at = bench.path("saved.tar");
        fs::write(&at, saved(&layers, &["app:1"])).unwrap();
        at
    };
    for (name, from, to) in [
        ("about.json", "/bin/x", "/bin/y"),
        ("about.json", "\"A=b\"", "\"A=c\""),
        ("about.json", "\"User\":\"0\"", "\"User\":\"1\""),
        ("config", "/bin/x", "/bin/y"),
        ("manifest", "sha256:", "sha512:"),
    ] {
        for archive in [false, true] {
            let bench = Bench::new();
            let at = if archive { saved_at(&bench) } else { Layout::new(&bench.path("layout"), &layers).0 };
            let listed = bench.store.import(&at, None).unwrap().remove(0);
            assert!(bench.store.lease("app:1").is_ok());
            let hex = listed.about.digest.strip_prefix("sha256:").unwrap();
            let place = bench.path("state/images/trees").join(hex).join(name);
            let Ok(text) = fs::read_to_string(&place) else {
                assert!(archive && name == "manifest", "{name}");
                continue;
            };
            assert!(text.contains(from), "{text}");
            fs::write(&place, text.replace(from, to)).unwrap();
            for done in [bench.store.lease("app:1").map(drop), bench.store.find("app:1").map(drop)] {
                assert!(matches!(done, Err(ImageError::Changed { .. })), "{name}: {done:?}");
            }
            fs::write(&place, text).unwrap();
            assert!(bench.store.lease("app:1").is_ok(), "{name}");
            // Without them nothing is believed, and an import makes all of it anew.
            fs::remove_file(&place).unwrap();
            assert!(bench.store.lease("app:1").is_err(), "{name}");
            bench.store.import(&at, None).unwrap();
            assert!(bench.store.lease("app:1").is_ok(), "{name}");
        }
    }
}

/// What somebody does to a tree.
type Change = fn(&std::path::Path);

#[test]
fn a_tree_that_was_changed_is_never_given_out() {
    let bench = Bench::new();
    let entries = [file("a", "hello"), folder("d"), link(b'2', "l", "a")];
    let ways: [(&str, Change); 7] = [
        ("content of the same size and time", |root| {
            let meta = fs::metadata(root.join("a")).unwrap();
            fs::write(root.join("a"), "HELLO").unwrap();
            let file = fs::File::options().write(true).open(root.join("a")).unwrap();
            file.set_times(fs::FileTimes::new().set_modified(meta.modified().unwrap())).unwrap();
        }),
        ("one more file", |root| fs::write(root.join("d/new"), "").unwrap()),
        ("one file less", |root| fs::remove_file(root.join("a")).unwrap()),
        ("a link that leads elsewhere", |root| {
            fs::remove_file(root.join("l")).unwrap();
            std::os::unix::fs::symlink("b", root.join("l")).unwrap();
        }),
        ("a mode", |root| fs::set_permissions(root.join("a"), fs::Permissions::from_mode(0o4755)).unwrap()),
        ("the root's mode", |root| fs::set_permissions(root, fs::Permissions::from_mode(0o777)).unwrap()),
        ("a file that is a link now", |root| {
            fs::rename(root.join("a"), root.join("../a")).unwrap();
            std::os::unix::fs::symlink("../a", root.join("a")).unwrap();
        }),
    ];
    for (what, change) in ways {
        let listed = imported(&bench, &[plain(&entries)]);
        let root = tree(&bench.store, "app:1");
        change(&root);
        assert!(matches!(bench.store.lease("app:1"), Err(ImageError::Changed { .. })), "{what}");
        assert!(matches!(bench.store.lease(&listed.about.digest), Err(ImageError::Changed { .. })), "{what}");
        // Imported again, it is whole again.
        imported(&bench, &[plain(&entries)]);
        tree(&bench.store, "app:1");
    }
}

/// The seal of the only tree of a store.
fn seal(bench: &Bench) -> PathBuf {
    let trees = bench.path("state/images/trees");
    trees.join(names(&trees).remove(0)).join("seal")
}

#[test]
fn a_tree_that_was_read_is_not_read_again_until_something_of_it_changes() {
    let bench = Bench::new();
    imported(&bench, &[plain(&[file("a", "hello"), file("b", "12345678")])]);
    let root = tree(&bench.store, "app:1");
    let sealed = seal(&bench);
    if !sealed.exists() {
        println!("skip: the file system of this folder is not known, or gives no leases: all is read each time");
        return;
    }
    let text = fs::read_to_string(&sealed).unwrap();
    tree(&bench.store, "app:1");
    assert_eq!(fs::read_to_string(&sealed).unwrap(), text);
    // Only to be looked at is no change; a change that leaves the content is one, and a new seal follows.
    fs::read(root.join("a")).unwrap();
    tree(&bench.store, "app:1");
    assert_eq!(fs::read_to_string(&sealed).unwrap(), text);
    fs::write(root.join("a"), "hello").unwrap();
    tree(&bench.store, "app:1");
    assert_ne!(fs::read_to_string(&sealed).unwrap(), text);
    // Of another boot, or of another tree, it says nothing.
    let now = fs::read_to_string(&sealed).unwrap();
    for (at, other) in [(1, "another-boot"), (3, "another-tree")] {
        let mut parts: Vec<&str> = now.split(' ').collect();
        parts[at] = other;
        fs::write(&sealed, parts.join(" ")).unwrap();
        tree(&bench.store, "app:1");
        assert_eq!(fs::read_to_string(&sealed).unwrap(), now);
    }
    // What was sealed and changed without its time would be given out: that nobody can do so is the file system's word.
    fs::write(root.join("a"), "HELLO").unwrap();
    assert!(matches!(bench.store.lease("app:1"), Err(ImageError::Changed { .. })));
}

#[test]
fn who_could_still_write_leaves_a_tree_without_a_seal() {
    let bench = Bench::new();
    imported(&bench, &[plain(&[file("a", "12345678")])]);
    let root = tree(&bench.store, "app:1");
    let writer = fs::File::options().read(true).write(true).open(root.join("a")).unwrap();
    let words = sys::table::SharedCounters::map(writer, 1).unwrap();
    let word = &words.words()[0];
    // The page is written to, so that the next store changes no time.
    word.store(u64::from_ne_bytes(*b"12345678"), std::sync::atomic::Ordering::SeqCst);
    tree(&bench.store, "app:1");
    let changed = || fs::metadata(root.join("a")).unwrap().ctime_nsec();
    let before = changed();
    word.store(7, std::sync::atomic::Ordering::SeqCst);
    assert_eq!(changed(), before, "the control: a store into a mapping that is written to changes no time");
    assert!(matches!(bench.store.lease("app:1"), Err(ImageError::Changed { .. })), "and yet it is seen");
}

#[test]
fn a_name_goes_alone_and_the_last_one_takes_the_tree() {
    let bench = Bench::new();
    let at = bench.path("saved.tar");
    fs::write(&at, saved(&[plain(&[file("a", "x")])], &["one", "two"])).unwrap();
    bench.store.import(&at, None).unwrap();
    bench.store.remove("one").unwrap();
    assert!(matches!(bench.store.find("one"), Err(ImageError::None { .. })));
    assert!(bench.store.find("two").is_ok());
    let lease = bench.store.lease("two").unwrap();
    assert!(matches!(bench.store.remove("two"), Err(ImageError::InUse { .. })));
    assert!(lease.path().join("a").exists() && bench.store.find("two").is_ok(), "nothing was removed");
    drop(lease);
    bench.store.remove("two").unwrap();
    assert_eq!(bench.left(), Vec::<String>::new());
    // By digest, all names go.
    let digest = bench.store.import(&at, None).unwrap()[0].about.digest.clone();
    bench.store.remove(&digest).unwrap();
    assert_eq!((bench.store.list().unwrap().len(), bench.left().len()), (0, 0));
    assert!(matches!(bench.store.remove("one"), Err(ImageError::None { .. })));
}

#[test]
fn what_a_killed_import_left_is_taken_by_the_next() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("state/images/.new-dead/root/a")).unwrap();
    imported(&bench, &[plain(&[file("a", "x")])]);
    assert_eq!(bench.left().len(), 1);
}

#[test]
fn the_store_is_its_owners_alone() {
    let bench = Bench::new();
    let mode = fs::metadata(bench.path("state/images")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn what_a_killed_removal_left_is_in_nobodys_way_and_gc_takes_it() {
    let bench = Bench::new();
    let listed = imported(&bench, &[plain(&[file("a", "x")])]);
    let hex = listed.about.digest.strip_prefix("sha256:").unwrap().to_owned();
    let at = |name: &str| bench.path(&format!("state/images/{name}"));
    // Killed between the tree and the names.
    fs::create_dir_all(at(".new-removed/root/a")).unwrap();
    bench.store.remove("app:1").unwrap();
    assert_eq!(bench.left(), Vec::<String>::new());
    imported(&bench, &[plain(&[file("a", "x")])]);
    fs::rename(at(&format!("trees/{hex}")), at(".new-removed")).unwrap();
    assert_eq!(bench.store.sweep_unfinished().unwrap(), 2, "the tree, and its name");
    assert_eq!((bench.left().len(), bench.store.sweep_unfinished().unwrap()), (0, 0));
    assert_eq!(fs::read_to_string(at("names.json")).unwrap(), "{}");
    // Whole images stay, and so does what somebody works on.
    imported(&bench, &[plain(&[file("a", "x")])]);
    assert_eq!((bench.store.sweep_unfinished().unwrap(), bench.store.list().unwrap().len()), (0, 1));
    let busy = bench.store.downloads().unwrap();
    fs::write(busy.path().join("part-x"), "half").unwrap();
    assert_eq!(bench.store.sweep_unfinished().unwrap(), 0);
    drop(busy);
    assert_eq!(bench.store.sweep_unfinished().unwrap(), 1);
}

#[test]
fn a_name_is_found_as_docker_writes_it_and_has_one_meaning() {
    let bench = Bench::new();
    let first = Layout::with(&bench.path("one"), &[], &config(&[]), "docker.io/library/app:latest");
    bench.store.import(&first.0, None).unwrap();
    for name in ["app", "app:latest", "library/app", "index.docker.io/library/app"] {
        assert!(bench.store.find(name).is_ok(), "{name}");
    }
    for name in ["app:1", "me/app", "localhost/app", "App"] {
        assert!(matches!(bench.store.find(name), Err(ImageError::None { .. })), "{name}");
    }
    // Another image of the same name, written shorter, is what all of them mean.
    let layers = [plain(&[file("a", "x")])];
    let second = Layout::with(&bench.path("two"), &layers, &config(&layers), "app");
    let second = bench.store.import(&second.0, None).unwrap().remove(0);
    for name in ["app", "docker.io/library/app:latest"] {
        assert_eq!(bench.store.find(name).unwrap().about.digest, second.about.digest, "{name}");
    }
    bench.store.remove("docker.io/library/app").unwrap();
    assert!(bench.store.find("app").is_err());
}

#[test]
fn a_layer_that_is_there_many_times_counts_once_as_packed() {
    let bench = Bench::new();
    let zeros = Entry { body: vec![0; 4 << 20], ..file("zeros", "") };
    let layer = |()| {
        let bytes = tar(std::slice::from_ref(&zeros));
        Layer(bytes.clone(), gzip(&bytes))
    };
    // Once it is below 200 times nothing; a hundred times it would allow a hundred times as much.
    let layers: Vec<_> = std::iter::repeat_with(|| layer(())).take(3).collect();
    let layout = Layout::new(&bench.path("layout"), &layers);
    assert!(matches!(bench.store.import(&layout.0, None), Err(ImageError::TooLarge { .. })));
}
