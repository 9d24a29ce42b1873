//! Layers and layouts made to escape, to lie or to fill the disk: each is refused with its reason, and nothing is left.

use std::fs;
use std::path::Path;

use images::ImageError;
use serde_json::json;

use super::packed::*;

const FILE: u8 = b'0';
const HARD: u8 = b'1';
const SOFT: u8 = b'2';

/// Says what was wrong, which id it has, and part of the reason.
type Row = (&'static str, Vec<Vec<Entry>>, &'static str, &'static str);

fn raw(name: &[u8]) -> Entry {
    Entry { kind: FILE, name: name.to_vec(), body: b"x".to_vec(), mode: 0o644, ..Entry::default() }
}

#[rustfmt::skip]
#[expect(clippy::too_many_lines, reason = "a table")]
fn entries() -> Vec<Row> {
    let deep = |count| vec!["d"; count].join("/");
    let sized = |size| Entry { size: Some(size), ..file("a", "") };
    const ENTRY: &str = "image/entry";
    const TAR: &str = "image/not-an-image";
    let holes = |words: &[(&str, &str)]| {
        let records: String = words.iter().map(|(key, value)| record(&format!("GNU.sparse.{key}"), value)).collect();
        Entry { kind: b'x', ..file("extended", &records) }
    };
    vec![
        ("an absolute name", vec![vec![file("/tmp/x", "x")]], ENTRY, "absolute"),
        ("a file that is called a folder", vec![vec![file("d/", &"x".repeat(1024))]], ENTRY, "the name of a folder"),
        ("a name of all members", vec![vec![Entry { kind: b'g', ..file("g", &record("path", "x")) }, file("a", "x")]], TAR, "says more of them"),
        ("an absolute folder", vec![vec![folder("/x/")]], ENTRY, "absolute"),
        ("..", vec![vec![file("../x", "x")]], ENTRY, "`..`"),
        (".. inside", vec![vec![file("a/../../x", "x")]], ENTRY, "`..`"),
        (".. as a folder", vec![vec![folder("a/..")]], ENTRY, "`..`"),
        (".. in an extended name", vec![vec![extended("path", "../../x"), file("a", "x")]], ENTRY, "`..`"),
        ("an absolute extended name", vec![vec![extended("path", "/x"), file("a", "x")]], ENTRY, "absolute"),
        ("a link out, written through", vec![vec![link(SOFT, "l", "/outside"), file("l/x", "x")]], ENTRY, "stands in its way"),
        ("a relative link out, written through", vec![vec![link(SOFT, "l", "../../../.."), file("l/x", "x")]], ENTRY, "stands in its way"),
        ("a link out, written through by the next layer", vec![vec![link(SOFT, "l", "/outside")], vec![file("l/x", "x")]], ENTRY, "stands in its way"),
        ("a folder through a link", vec![vec![link(SOFT, "l", "/outside"), folder("l/x")]], ENTRY, "stands in its way"),
        ("a link of links", vec![vec![link(SOFT, "a", "b"), link(SOFT, "b", "/outside"), file("a/x", "x")]], ENTRY, "stands in its way"),
        ("a link to itself", vec![vec![link(SOFT, "l", "l"), file("l/x", "x")]], ENTRY, "stands in its way"),
        ("a whiteout through a link", vec![vec![link(SOFT, "l", "/outside")], vec![file("l/.wh.canary", "")]], ENTRY, "stands in its way"),
        ("an opaque folder through a link", vec![vec![link(SOFT, "l", "/outside")], vec![file("l/.wh..wh..opq", "")]], ENTRY, "stands in its way"),
        ("a hard link out", vec![vec![link(HARD, "h", "../../outside/canary")]], ENTRY, "`..`"),
        ("an absolute hard link", vec![vec![link(HARD, "h", "/etc/passwd")]], ENTRY, "absolute"),
        ("a hard link through a link", vec![vec![link(SOFT, "l", "/outside"), link(HARD, "h", "l/canary")]], ENTRY, "stands in its way"),
        ("a hard link to nothing", vec![vec![link(HARD, "h", "none")]], ENTRY, "link to nothing"),
        ("a hard link to a folder", vec![vec![folder("d"), link(HARD, "h", "d")]], ENTRY, "what is no file"),
        ("a hard link to the root", vec![vec![link(HARD, "h", ".")]], ENTRY, "root"),
        ("a hard link to itself", vec![vec![file("h", "x")], vec![link(HARD, "h", "h")]], ENTRY, "itself"),
        ("a hard link in place of what holds it", vec![vec![file("d/x", "x")], vec![link(HARD, "d", "d/x")]], ENTRY, "link to nothing"),
        ("a character device", vec![vec![special(b'3', "dev/null")]], ENTRY, "a device"),
        ("a block device", vec![vec![special(b'4', "dev/sda")]], ENTRY, "a device"),
        ("a pipe", vec![vec![special(b'6', "pipe")]], ENTRY, "pipe"),
        ("an unknown kind", vec![vec![special(b'V', "label")]], ENTRY, "unknown"),
        ("a device as a whiteout", vec![vec![special(b'3', ".wh.a")]], ENTRY, "no file"),
        ("a folder as a whiteout", vec![vec![folder(".wh.a")]], ENTRY, "no file"),
        ("a whiteout of the root", vec![vec![file(".wh..", "")]], ENTRY, "nothing that can be"),
        ("a whiteout of what is above", vec![vec![file("a/.wh...", "")]], ENTRY, "nothing that can be"),
        ("a whiteout of no name", vec![vec![file(".wh.", "")]], ENTRY, "nothing that can be"),
        ("a whiteout of a whiteout", vec![vec![file(".wh..wh.a", "")]], ENTRY, "nothing that can be"),
        ("below a whiteout", vec![vec![file(".wh.a/b", "x")]], ENTRY, "below a whiteout"),
        ("a file as the root", vec![vec![folder("./"), file(".", "x")]], ENTRY, "root"),
        ("a link as the root", vec![vec![link(SOFT, "./.", "/outside")]], ENTRY, "root"),
        ("twice the same file", vec![vec![file("a", "x"), file("a", "y")]], ENTRY, "twice"),
        ("a file, then a link of its name", vec![vec![file("a", "x"), link(SOFT, "a", "/outside")]], ENTRY, "twice"),
        ("a link, then a folder of its name", vec![vec![link(SOFT, "a", "/outside"), folder("a")]], ENTRY, "twice"),
        ("a folder, then a link of its name", vec![vec![file("a/b", "x"), link(SOFT, "a", "/outside")]], ENTRY, "twice"),
        ("a file below a file", vec![vec![file("a", "x"), file("a/b", "x")]], ENTRY, "stands in its way"),
        ("a name too deep", vec![vec![file(&deep(300), "x")]], ENTRY, "too many parts"),
        ("a name too long", vec![vec![file(&"n".repeat(5000), "x")]], ENTRY, "too long"),
        ("a part too long", vec![vec![file(&"n".repeat(300), "x")]], ENTRY, "too long"),
        ("a link to nowhere", vec![vec![extended("linkpath", ""), link(SOFT, "l", "x")]], ENTRY, "impossible target"),
        ("holes without a map", vec![vec![holes(&[("major", "1"), ("realsize", "9")]), file("a", "x")]], TAR, "map"),
        ("holes without a size", vec![vec![holes(&[("map", "0,1")]), file("a", "x")]], TAR, "map"),
        ("holes of a form that is not known", vec![vec![holes(&[("major", "2"), ("realsize", "9")]), file("a", "x")]], TAR, "map"),
        ("a word about holes that is not known", vec![vec![holes(&[("hidden", "1")]), file("a", "x")]], TAR, "map"),
        ("pieces over each other", vec![vec![holes(&[("size", "9"), ("map", "0,1,0,1")]), file("a", "xy")]], TAR, "map"),
        ("a piece behind the end", vec![vec![holes(&[("size", "9"), ("map", "9,1")]), file("a", "x")]], TAR, "map"),
        ("a piece that wraps", vec![vec![holes(&[("size", "9"), ("map", "18446744073709551615,2")]), file("a", "xy")]], TAR, "map"),
        ("a place without a length", vec![vec![holes(&[("size", "9"), ("map", "0,1,2")]), file("a", "x")]], TAR, "map"),
        ("pieces that the content has not", vec![vec![holes(&[("size", "9"), ("map", "0,4")]), file("a", "x")]], TAR, "not that of its content"),
        ("content that no piece has", vec![vec![Entry { kind: b'S', ..file("a", "x") }]], TAR, "map"),
        ("a map with endless pieces", vec![vec![holes(&[("major", "1"), ("realsize", "9")]), file("a", &format!("99999999\n{}", "0\n".repeat(400)))]], TAR, "map"),
        ("holes larger than any disk", vec![vec![holes(&[("size", "4611686018427387904"), ("map", "0,1")]), file("a", "x")]], "image/too-large", "20 GiB"),
        ("a holed name that leads out", vec![vec![holes(&[("size", "9"), ("map", "0,1"), ("name", "../x")]), file("a", "x")]], ENTRY, "`..`"),
        ("a huge size", vec![vec![sized(1 << 40)]], "image/too-large", "20 GiB"),
        ("a size that wraps", vec![vec![sized(u64::MAX - 511)]], "image/not-an-image", "no size"),
        ("a huge extended size", vec![vec![extended("size", "99999999999999999999"), file("a", "x")]], "image/not-an-image", "no size"),
        ("a size that is none", vec![vec![extended("size", "-1"), file("a", "x")]], "image/not-an-image", "no size"),
        ("a long extended header", vec![vec![Entry { size: Some(1 << 30), ..extended("path", "x") }]], "image/not-an-image", "too long"),
        ("content that is missing", vec![vec![sized(4096)]], "image/not-an-image", "ends in the middle"),
        ("an extended header that is no record", vec![vec![Entry { body: b"99 path=x\n".to_vec(), ..extended("a", "b") }, file("a", "x")]], "image/not-an-image", "malformed"),
        ("an extended header alone", vec![vec![extended("path", "x")]], "image/not-an-image", "ends behind"),
    ]
}

/// Imports, and holds that it was refused so, with nothing left in the store and nothing touched beside it.
fn refused(what: &str, bench: &Bench, path: &Path, id: &str, why: &str) {
    let error = bench.store.import(path, None).map(|_| what).unwrap_err();
    let fault = error.fault();
    assert_eq!(fault.id, id, "{what}: {fault}");
    assert!(fault.why.contains(why), "{what}: {fault}");
    assert!(error.is_refusal(), "{what}");
    assert_eq!(bench.left(), Vec::<String>::new(), "{what}");
}

#[test]
fn every_hostile_layer_is_refused_and_nothing_is_left() {
    let bench = Bench::new();
    let outside = bench.path("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("canary"), "sings").unwrap();
    let rows = entries();
    assert!(rows.len() >= 40);
    for (number, (what, layers, id, why)) in rows.into_iter().enumerate() {
        // The links of the rows lead to a folder that is there.
        let lead = |mut entry: Entry| {
            if entry.link == b"/outside" {
                entry.link = outside.to_str().unwrap().into();
            }
            entry
        };
        let layers: Vec<_> =
            layers.into_iter().map(|layer| plain(&layer.into_iter().map(lead).collect::<Vec<_>>())).collect();
        let layout = Layout::new(&bench.path(&format!("layout-{number}")), &layers);
        refused(what, &bench, &layout.0, id, why);
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "{what}");
        assert_eq!(fs::read_to_string(outside.join("canary")).unwrap(), "sings", "{what}");
    }
}

/// The link is real: who joins names to a path writes outside.
#[test]
fn the_same_layer_escapes_from_who_joins_paths() {
    let bench = Bench::new();
    let (outside, naive) = (bench.path("outside"), bench.path("naive"));
    fs::create_dir(&outside).unwrap();
    fs::create_dir(&naive).unwrap();
    for entry in [link(SOFT, "l", outside.to_str().unwrap()), file("l/x", "x")] {
        let at = naive.join(std::str::from_utf8(&entry.name).unwrap());
        match entry.kind {
            SOFT => std::os::unix::fs::symlink(std::str::from_utf8(&entry.link).unwrap(), at).unwrap(),
            _ => fs::write(at, &entry.body).unwrap(),
        }
    }
    assert!(outside.join("x").exists());
}

#[test]
fn names_that_are_no_text_are_judged_alike() {
    let bench = Bench::new();
    let layout = Layout::new(&bench.path("ok"), &[plain(&[raw(b"caf\xe9")])]);
    bench.store.import(&layout.0, None).unwrap();
    bench.store.remove("app:1").unwrap();
    let layout = Layout::new(&bench.path("bad"), &[plain(&[raw(b"\xff/../../x")])]);
    refused("bytes", &bench, &layout.0, "image/entry", "`..`");
}

#[test]
fn bombs_stop_at_the_limit_whatever_they_are_packed_with() {
    let bench = Bench::new();
    // 8 MiB of zeros are a few kilobytes as gzip, and fewer as zstd.
    let bytes = tar(&[Entry { body: vec![0; 8 << 20], ..file("zeros", "") }]);
    for (name, packed) in [("gzip", gzip(&bytes)), ("zstd", zstd(&bytes))] {
        assert!(packed.len() * 200 < bytes.len(), "{name}: {}", packed.len());
        let layout = Layout::new(&bench.path(name), &[Layer(bytes.clone(), packed)]);
        refused(name, &bench, &layout.0, "image/too-large", "200 times");
        // Who knows the image may say so, and it is nothing but large.
        assert_eq!(bench.store.import(&layout.0, Some(4 << 20)).unwrap_err().fault().id, "image/too-large");
        bench.store.import(&layout.0, Some(9 << 20)).unwrap();
        bench.store.remove("app:1").unwrap();
    }
}

/// Bombs that no header announces: many entries, and a tail behind the end.
#[test]
fn what_no_header_announces_is_counted_too() {
    let bench = Bench::new();
    let many: Vec<_> = (0..5000).map(|number| file(&format!("f{number}"), "")).collect();
    let bytes = tar(&many);
    let layout = Layout::new(&bench.path("many"), &[Layer(bytes.clone(), gzip(&bytes))]);
    assert_eq!(bench.store.import(&layout.0, Some(1 << 20)).unwrap_err().fault().id, "image/too-large");
    let mut bytes = tar(&[]);
    bytes.extend(vec![0; 8 << 20]);
    let layout = Layout::new(&bench.path("tail"), &[Layer(bytes.clone(), gzip(&bytes))]);
    refused("tail", &bench, &layout.0, "image/too-large", "200 times");
}

#[test]
fn what_is_not_as_its_digest_says_is_refused() {
    let bench = Bench::new();
    let layers = || [plain(&[file("a", "x")])];
    let layout = || Layout::new(&bench.path("layout"), &layers());
    let blobs = bench.path("layout/blobs/sha256");
    let layer = sha(&layers()[0].1);
    // The layer was changed, at the same size and at another.
    layout();
    fs::write(blobs.join(&layer), tar(&[file("a", "y")])).unwrap();
    refused("another layer", &bench, &layout_path(&bench), "image/digest", "it should be");
    fs::write(blobs.join(&layer), "short").unwrap();
    refused("another size", &bench, &layout_path(&bench), "image/digest", "bytes");
    fs::remove_file(blobs.join(&layer)).unwrap();
    refused("no layer", &bench, &layout_path(&bench), "image/not-an-image", "missing");
    // What lies behind the stream counts: its digest is of all of it.
    let mut packed = gzip(&layers()[0].1);
    packed.extend(b"garbage");
    Layout::new(&bench.path("layout"), &[Layer(tar(&[file("a", "x")]), packed)]);
    refused("garbage behind gzip", &bench, &layout_path(&bench), "image/not-an-image", "cannot be read");
    // Members of which each costs and none holds anything; some of them are nobody's harm.
    let bytes = &layers()[0].0;
    let many = |count: usize| Layer(bytes.clone(), [gzip(b"").repeat(count), gzip(bytes)].concat());
    Layout::new(&bench.path("layout"), &[many(10_000)]);
    refused("members that are empty", &bench, &layout_path(&bench), "image/not-an-image", "members that hold nothing");
    let other = Bench::new();
    other.store.import(&Layout::new(&other.path("layout"), &[many(100)]).0, None).unwrap();
    // Behind a single block of zeros some readers go on, and others do not.
    let mut hidden = tar(&[file("a", "x")]);
    hidden.truncate(hidden.len() - 512);
    let one = Layer(hidden.clone(), hidden.clone());
    hidden.extend(tar(&[file("b", "hidden")]));
    Layout::new(&bench.path("layout"), &[Layer(hidden.clone(), hidden)]);
    refused("a block of zeros", &bench, &layout_path(&bench), "image/not-an-image", "behind a block of zeros");
    let other = Bench::new();
    other.store.import(&Layout::new(&other.path("layout"), &[one]).0, None).unwrap();
    // The layer is as packed what it should be, and unpacked it is not.
    Layout::new(&bench.path("layout"), &[Layer(b"other".to_vec(), tar(&[file("a", "x")]))]);
    refused("another diff id", &bench, &layout_path(&bench), "image/digest", "when unpacked");
    // A manifest and a configuration that were changed.
    for kind in ["manifest", "config"] {
        let made = layout();
        let index: serde_json::Value = serde_json::from_slice(&fs::read(made.0.join("index.json")).unwrap()).unwrap();
        let hex = |value: &serde_json::Value| value["digest"].as_str().unwrap().replace("sha256:", "");
        let manifest = hex(&index["manifests"][0]);
        let text: serde_json::Value = serde_json::from_slice(&fs::read(blobs.join(&manifest)).unwrap()).unwrap();
        let which = if kind == "manifest" { manifest } else { hex(&text["config"]) };
        let mut changed = fs::read(blobs.join(&which)).unwrap();
        changed.push(b' ');
        fs::write(blobs.join(&which), changed).unwrap();
        refused(kind, &bench, &layout_path(&bench), "image/digest", "it should be");
    }
}

fn layout_path(bench: &Bench) -> std::path::PathBuf {
    bench.path("layout")
}

#[test]
fn documents_that_lie_are_refused() {
    let bench = Bench::new();
    let layers = [plain(&[file("a", "x")])];
    let at = bench.path("layout");
    let said = |key: &str, value: serde_json::Value| {
        let mut changed = config(&layers);
        changed[key] = value;
        Layout::with(&at, &layers, &changed, "app:1");
    };
    let not = "image/not-an-image";
    said("os", json!("windows"));
    refused("another system", &bench, &at, not, "it is for windows");
    said("architecture", json!("s390x"));
    refused("another processor", &bench, &at, not, "s390x");
    said("rootfs", json!({ "diff_ids": [] }));
    refused("no digests", &bench, &at, not, "1 layers and 0 digests");
    said("rootfs", json!({ "diff_ids": ["sha512:00"] }));
    refused("another hash", &bench, &at, not, "no digest of SHA-256");
    for name in ["", "-rm", "a b", "a\u{1b}[2J", "../x", "sha256:0", "app@sha256:0", &"n".repeat(300)] {
        Layout::with(&at, &layers, &config(&layers), name);
        refused(name, &bench, &at, not, "cannot be the name");
    }
    // What is a manifest and a configuration could name two trees by one digest.
    said("layers", json!([]));
    refused("a configuration that is a manifest", &bench, &at, not, "at the same time");
    let layout = Layout::new(&at, &layers);
    let both =
        json!({ "config": layout.blob("x", config(&layers).to_string().as_bytes()), "layers": [], "rootfs": {} });
    layout.index(&json!({ "manifests": [layout.blob("x", both.to_string().as_bytes())] }));
    refused("a manifest that is a configuration", &bench, &at, not, "at the same time");
    let manifest = |digest: &str, size: u64| json!({ "manifests": [{ "digest": digest, "size": size }] });
    layout.index(&manifest("sha256:../../../etc/passwd", 1));
    refused("a digest that is a path", &bench, &at, not, "no digest of SHA-256");
    layout.index(&manifest(&format!("sha256:{}", "0".repeat(64)), 1));
    refused("a missing manifest", &bench, &at, not, "is missing");
    layout.index(&json!({ "manifests": [] }));
    refused("no image", &bench, &at, not, "no image for linux");
    fs::write(at.join("index.json"), "[".repeat(100_000)).unwrap();
    refused("nested documents", &bench, &at, not, "cannot be read");
    fs::write(at.join("index.json"), vec![b' '; 5 << 20]).unwrap();
    refused("a large document", &bench, &at, not, "is larger");
    fs::remove_file(at.join("index.json")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", at.join("index.json")).unwrap();
    refused("a document that is a link", &bench, &at, not, "through a link");
}

#[test]
fn what_is_an_index_and_a_manifest_names_no_image() {
    const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    let bench = Bench::new();
    let layers = [plain(&[file("a", "x")])];
    let at = bench.path("layout");
    let layout = Layout::new(&at, &layers);
    let not = "image/not-an-image";
    let of_config = layout.blob("x", config(&layers).to_string().as_bytes());
    let alone = json!({ "config": of_config, "layers": [layout.blob("layer", &layers[0].1)] });
    let of_plain = layout.blob(MANIFEST, alone.to_string().as_bytes());
    let mut both = alone.clone();
    both["manifests"] = json!([of_plain]);
    for (said, why) in [(INDEX, "at the same time"), ("", "at the same time"), (MANIFEST, "called what it is not")] {
        layout.index(&json!({ "manifests": [layout.blob(said, both.to_string().as_bytes())] }));
        refused(said, &bench, &at, not, why);
        let mut own = both.clone();
        own["mediaType"] = json!(said);
        layout.index(&json!({ "manifests": [layout.blob("", own.to_string().as_bytes())] }));
        refused(said, &bench, &at, not, why);
    }
    layout.index(&json!({ "manifests": [layout.blob(INDEX, alone.to_string().as_bytes())] }));
    refused("a manifest that is called an index", &bench, &at, not, "called what it is not");
    let mut indexed = config(&layers);
    indexed["manifests"] = json!([]);
    let manifest = json!({ "config": layout.blob("x", indexed.to_string().as_bytes()), "layers": alone["layers"] });
    layout.index(&json!({ "manifests": [layout.blob("x", manifest.to_string().as_bytes())] }));
    refused("a configuration that is an index", &bench, &at, not, "at the same time");
}

#[test]
fn archives_that_lie_are_refused() {
    let bench = Bench::new();
    let at = bench.path("image.tar");
    let layers = [plain(&[file("a", "x")])];
    let good = saved(&layers, &["app:1"]);
    fs::write(&at, gzip(&good)).unwrap();
    refused("compressed", &bench, &at, "image/not-an-image", "is it compressed?");
    fs::write(&at, &good[..good.len() / 2]).unwrap();
    refused("cut off", &bench, &at, "image/not-an-image", "");
    fs::write(&at, tar(&[file("manifest.json", "[]"), file("manifest.json", "[]")])).unwrap();
    refused("twice", &bench, &at, "image/not-an-image", "twice");
    fs::write(&at, tar(&[link(SOFT, "manifest.json", "/etc/passwd")])).unwrap();
    refused("a link", &bench, &at, "image/not-an-image", "neither");
    let text = String::from_utf8_lossy(&good).into_owned();
    assert!(text.contains("A=b"));
    let changed = good.windows(3).position(|part| part == b"A=b").unwrap();
    let mut bytes = good;
    bytes[changed] = b'B';
    fs::write(&at, &bytes).unwrap();
    refused("another configuration", &bench, &at, "image/digest", "it should be");
    let missing = bench.store.import(&bench.path("none"), None).unwrap_err();
    assert!(matches!(missing, ImageError::Io { .. }) && !missing.is_refusal());
}
