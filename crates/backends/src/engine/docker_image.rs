//! The image of Docker's containers: an empty folder, given to the daemon once and known by its digest.

use serde_json::{Value, json};

use crate::host::engine::{Api, Body, Failure, Method};

/// Its name there. It has no tag of a release: it never changes.
const NAME: &str = "fumehood/nothing:1";
/// The one folder of the one layer, for a layer without anything is none.
const FOLDER: &str = "proc/";
/// Archives are made of blocks of this many bytes, and end with two of zeroes.
const BLOCK: usize = 512;

/// The daemon's own name of the image, which it is given where it lacks it.
///
/// # Errors
/// The daemon refuses it, or has another image of that name; in words.
pub(super) fn give(api: &Api) -> Result<String, String> {
    let told = |failure: Failure| failure.to_string();
    let path = format!("/images/{NAME}/json");
    let layer = layer();
    let said = match api.ask(Method::Get, &path, Body::None) {
        Err(Failure::Unknown) => {
            api.tell(Method::Post, "/images/load?quiet=1", Body::Archive(&archive(&layer))).map_err(told)?;
            api.ask(Method::Get, &path, Body::None).map_err(told)?
        }
        said => said.map_err(told)?,
    };
    judged(&said, &layer)
        .ok_or_else(|| format!("{} has another image of the name {NAME}: `docker rmi {NAME}`", api.engine))
}

/// Its id, where it is the empty one.
fn judged(said: &Value, layer: &[u8]) -> Option<String> {
    let id = said.get("Id")?.as_str()?;
    (said.pointer("/RootFS/Layers")? == &json!([digest(layer)])).then(|| id.to_owned())
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", policy::json::sha256_hex(bytes))
}

fn layer() -> Vec<u8> {
    packed(&[(FOLDER, b"")])
}

/// As `docker save` writes it.
fn archive(layer: &[u8]) -> Vec<u8> {
    let config = json!({
        "architecture": sys::arch::PACKAGED_NAME,
        "os": "linux",
        "config": {},
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"] }]);
    packed(&[
        ("config.json", config.to_string().as_bytes()),
        ("layer.tar", layer),
        ("manifest.json", manifest.to_string().as_bytes()),
    ])
}

/// An archive of these (ustar): a name that ends in `/` is a folder.
fn packed(all: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, bytes) in all {
        let (mode, kind) = if name.ends_with('/') { ("0000755", b'5') } else { ("0000644", b'0') };
        let header = header(name, mode, kind, bytes.len());
        out.extend_from_slice(&header);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len().saturating_add(2 * BLOCK), 0);
    out
}

/// Root's, of no time. The sum of its bytes is counted with spaces in its own place.
fn header(name: &str, mode: &str, kind: u8, size: usize) -> Vec<u8> {
    let field = |text: &str, length: usize| {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(length, 0);
        bytes
    };
    let before = [field(name, 100), field(mode, 8), field("0000000", 8), field("0000000", 8)].concat();
    let before = [before, field(&format!("{size:011o}"), 12), field("00000000000", 12)].concat();
    let after = [vec![kind], field("", 100), field("ustar", 6), field("00", 2), field("", 247)].concat();
    let sum = before.iter().chain(&after).fold(8 * 32_u64, |sum, byte| sum.saturating_add(u64::from(*byte)));
    [before, field(&format!("{sum:06o}\0 "), 8), after].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_by_the_program_that_reads_archives() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image.tar");
        std::fs::write(&path, archive(&layer())).unwrap();
        #[expect(clippy::disallowed_methods, reason = "nothing of this process is kept from tar")]
        let listed = std::process::Command::new("tar").arg("tvf").arg(&path).output().unwrap();
        let said = String::from_utf8(listed.stdout).unwrap();
        assert!(listed.status.success() && said.lines().count() == 3, "{said} {:?}", listed.stderr);
        assert!(said.contains("layer.tar") && archive(&layer()).len().is_multiple_of(BLOCK), "{said}");
    }

    #[test]
    fn another_image_of_that_name_is_not_used() {
        let layer = layer();
        let said = |layers: Value| json!({ "Id": "sha256:7", "RootFS": { "Layers": layers } });
        assert_eq!(judged(&said(json!([digest(&layer)])), &layer), Some("sha256:7".to_owned()));
        assert_eq!(judged(&said(json!([digest(&layer), "sha256:8"])), &layer), None);
        assert_eq!(judged(&said(json!([])), &layer), None);
        assert_eq!(judged(&json!({}), &layer), None);
    }
}
