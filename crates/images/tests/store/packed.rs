//! Images made by hand, so that they can be what no tool would write.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use images::Store;
use sandbox::state::{Places, State};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One member of a layer, any bytes allowed.
#[derive(Clone, Default)]
pub(crate) struct Entry {
    pub(crate) kind: u8,
    pub(crate) name: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) mode: u32,
    /// Stated instead of the body's.
    pub(crate) size: Option<u64>,
}

pub(crate) fn file(name: &str, body: &str) -> Entry {
    Entry { kind: b'0', name: name.into(), body: body.into(), mode: 0o644, ..Entry::default() }
}

pub(crate) fn folder(name: &str) -> Entry {
    Entry { kind: b'5', name: name.into(), mode: 0o755, ..Entry::default() }
}

pub(crate) fn link(kind: u8, name: &str, to: &str) -> Entry {
    Entry { kind, name: name.into(), link: to.into(), mode: 0o777, ..Entry::default() }
}

/// Of a kind without content: `3` and `4` are devices, `6` is a pipe.
pub(crate) fn special(kind: u8, name: &str) -> Entry {
    Entry { kind, name: name.into(), mode: 0o666, ..Entry::default() }
}

pub(crate) fn record(key: &str, value: &str) -> String {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + length.to_string().len() {
        length += 1;
    }
    format!("{length} {key}={value}\n")
}

/// An extended header for the entry behind it.
pub(crate) fn extended(key: &str, value: &str) -> Entry {
    Entry { kind: b'x', ..file("extended", &record(key, value)) }
}

fn put(field: &mut [u8], value: &[u8]) {
    field[..value.len()].copy_from_slice(value);
}

pub(crate) fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        if entry.name.len() > 100 {
            out.extend(tar(&[Entry { kind: b'L', ..file("././@LongLink", &String::from_utf8_lossy(&entry.name)) }]));
            out.truncate(out.len() - 1024);
        }
        let old = header.as_old_mut();
        put(&mut old.name, &entry.name[..entry.name.len().min(100)]);
        put(&mut old.linkname, &entry.link);
        old.linkflag = [entry.kind];
        header.set_mode(entry.mode);
        header.set_uid(1000);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(entry.size.unwrap_or(entry.body.len() as u64));
        header.set_cksum();
        out.extend(header.as_bytes());
        out.extend(&entry.body);
        out.extend(vec![0; entry.body.len().wrapping_neg() % 512]);
    }
    out.extend([0; 1024]);
    out
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    ruzstd::encoding::compress_to_vec(bytes, ruzstd::encoding::CompressionLevel::Fastest)
}

/// A layer: what is unpacked (for its digest), and as it is packed.
pub(crate) struct Layer(pub(crate) Vec<u8>, pub(crate) Vec<u8>);

pub(crate) fn plain(entries: &[Entry]) -> Layer {
    let bytes = tar(entries);
    Layer(bytes.clone(), bytes)
}

pub(crate) fn arch() -> &'static str {
    if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" }
}

pub(crate) fn config(layers: &[Layer]) -> Value {
    let ids: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", sha(&layer.0))).collect();
    json!({
        "architecture": arch(), "os": "linux", "rootfs": { "type": "layers", "diff_ids": ids },
        "config": { "Env": ["A=b"], "Cmd": ["/bin/x"], "Entrypoint": null, "User": "0" },
    })
}

/// An OCI layout in a folder.
pub(crate) struct Layout(pub(crate) PathBuf);

impl Layout {
    pub(crate) fn new(at: &Path, layers: &[Layer]) -> Self {
        Self::with(at, layers, &config(layers), "app:1")
    }

    pub(crate) fn with(at: &Path, layers: &[Layer], config: &Value, name: &str) -> Self {
        let layout = Self(at.to_owned());
        fs::create_dir_all(at.join("blobs/sha256")).unwrap();
        fs::write(at.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let layers: Vec<_> = layers.iter().map(|layer| layout.blob("layer", &layer.1)).collect();
        let config = layout.blob("config", config.to_string().as_bytes());
        let manifest = json!({ "schemaVersion": 2, "config": config, "layers": layers });
        let mut manifest = layout.blob("manifest", manifest.to_string().as_bytes());
        manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
        layout.index(&json!({ "schemaVersion": 2, "manifests": [manifest] }));
        layout
    }

    pub(crate) fn index(&self, index: &Value) {
        fs::write(self.0.join("index.json"), index.to_string()).unwrap();
    }

    pub(crate) fn blob(&self, kind: &str, bytes: &[u8]) -> Value {
        let hex = sha(bytes);
        fs::write(self.0.join("blobs/sha256").join(&hex), bytes).unwrap();
        json!({ "mediaType": kind, "digest": format!("sha256:{hex}"), "size": bytes.len() })
    }
}

/// What `docker save` wrote until it wrote both.
pub(crate) fn saved(layers: &[Layer], names: &[&str]) -> Vec<u8> {
    let config = config(layers).to_string();
    let of = |name: &str, body: &[u8]| Entry { body: body.to_vec(), ..file(name, "") };
    let mut members = vec![of(&format!("{}.json", sha(config.as_bytes())), config.as_bytes())];
    let parts: Vec<_> = (0..layers.len()).map(|number| format!("{number}/layer.tar")).collect();
    members.extend(parts.iter().zip(layers).map(|(part, layer)| of(part, &layer.1)));
    let manifest =
        json!([{ "Config": String::from_utf8(members[0].name.clone()).unwrap(), "RepoTags": names, "Layers": parts }]);
    members.push(of("manifest.json", manifest.to_string().as_bytes()));
    tar(&members)
}

/// A store of its own, and a folder beside it.
pub(crate) struct Bench {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Where a store may lie, no part of the path is a link.
        let real = folder.path().canonicalize().unwrap();
        let euid = rustix::process::geteuid().as_raw();
        let places = Places { fumehood_state: Some(real.join("state")), euid, ..Places::default() };
        let store = Store::open(&State::open(&places).unwrap()).unwrap();
        Self { folder, store }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// What lies in the store beside its locks.
    pub(crate) fn left(&self) -> Vec<String> {
        let images = self.path("state/images");
        let names = |at: &Path| -> Vec<String> {
            fs::read_dir(at).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let mut all = names(&images);
        all.retain(|name| !name.ends_with("lock") && name != "trees" && name != "names.json" && name != "downloads");
        all.extend(names(&images.join("trees")));
        all
    }
}
