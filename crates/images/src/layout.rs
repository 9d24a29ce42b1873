//! Which images a source holds: an OCI layout, or what `docker save` writes.

use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::config::{Config, Descriptor, Index, Kind, Manifest, Saved, is_hex, sha256_of};
use crate::decode::hex;
use crate::error::ImageError;
use crate::record::{Record, digest_of};
use crate::resolve::is_name;
use crate::source::Source;

/// Most images of one source.
const MAX_IMAGES: usize = 64;
/// Most layers of one image.
const MAX_LAYERS: usize = 512;
/// Most names of one image.
const MAX_NAMES: usize = 64;
/// Indexes in indexes.
const MAX_DEPTH: usize = 4;
/// The annotation that names an image.
pub(crate) const NAME: &str = "org.opencontainers.image.ref.name";

/// Where BuildKit and containerd say the whole name; their other annotation has the tag alone.
const WHOLE_NAME: &str = "io.containerd.image.name";

/// Each could name an image here, and each another one.
const TWO_THINGS: &str = "one of its documents is two of index, manifest and configuration at the same time";

/// One image, its documents read and checked; its layers not yet.
#[derive(Debug)]
pub(crate) struct Image {
    /// `sha256:HEX` of its manifest; of its configuration in a docker-archive, which has no manifest.
    pub(crate) digest: String,
    pub(crate) names: Vec<String>,
    pub(crate) record: Record,
    pub(crate) layers: Vec<Layer>,
}

#[derive(Debug)]
pub(crate) struct Layer {
    /// Where in the source.
    pub(crate) part: String,
    /// Digest and size as packed, where the image says them.
    pub(crate) packed: Option<(String, u64)>,
    /// Digest when unpacked.
    pub(crate) unpacked: String,
}

/// All images of a source.
pub(crate) fn images(source: &Source) -> Result<Vec<Image>, ImageError> {
    // What newer versions of `docker save` write is both; only this half has the names whole.
    let found = if let Some(text) = source.document("manifest.json")? {
        if text.trim_ascii_start().starts_with(b"{") {
            return Err(source
                .wrong("it is a folder of skopeo's kind `dir:`, and its kinds `oci:` and `docker-archive:` are read"));
        }
        let saved: Vec<Saved> = parse(source, "manifest.json", &text)?;
        enough(source, saved.len())?;
        saved.into_iter().map(|image| of_saved(source, image)).collect::<Result<Vec<_>, _>>()?
    } else if let Some(text) = source.document("index.json")? {
        if source.document("oci-layout")?.is_none() {
            return Err(source.wrong("it has no `oci-layout`"));
        }
        let index: Index = parse(source, "index.json", &text)?;
        enough(source, index.manifests.len())?;
        let chosen: Vec<&Descriptor> = index.manifests.iter().filter(|each| is_ours(each)).collect();
        chosen.into_iter().map(|each| of_descriptor(source, each)).collect::<Result<Vec<_>, _>>()?
    } else {
        return Err(source.wrong("it has neither an `index.json` nor a `manifest.json`"));
    };
    if found.is_empty() {
        return Err(source.wrong(format!("it has no image for linux on {}", architecture())));
    }
    Ok(found)
}

fn enough(source: &Source, count: usize) -> Result<(), ImageError> {
    if count > MAX_IMAGES { Err(source.wrong(format!("it has more than {MAX_IMAGES} images"))) } else { Ok(()) }
}

/// What images call this processor.
#[must_use]
pub const fn architecture() -> &'static str {
    sys::arch::PACKAGED_NAME
}

fn is_ours(descriptor: &Descriptor) -> bool {
    let platform = descriptor.platform.as_ref();
    platform.is_none_or(|platform| platform.os == "linux" && platform.architecture == architecture())
}

fn parse<T: DeserializeOwned>(source: &Source, name: &str, text: &[u8]) -> Result<T, ImageError> {
    serde_json::from_slice(text).map_err(|error| source.wrong(format!("`{name}` cannot be read: {error}")))
}

fn of_descriptor(source: &Source, top: &Descriptor) -> Result<Image, ImageError> {
    let names = top.annotations.iter().flat_map(|all| [all.get(NAME), all.get(WHOLE_NAME)]);
    let mut names: Vec<String> = names.flatten().cloned().collect();
    names.dedup();
    let mut chosen = top.clone();
    for _ in 0..MAX_DEPTH {
        let text = blob(source, &chosen)?;
        // Who names it may say what it is, and changes nothing: what a digest means is in the document alone.
        let kind: Kind = parse(source, &chosen.digest, &text)?;
        let is_one = kind.manifests.is_some();
        if [&chosen.media_type, &kind.media_type].iter().any(|said| !said.is_empty() && is_index(said) != is_one) {
            return Err(source.wrong(format!("`{}` is called what it is not: an index, or none", chosen.digest)));
        }
        if !is_one {
            return of_manifest(source, &chosen.digest, names, &text);
        }
        let index: Index = parse(source, &chosen.digest, &text)?;
        if index.config.is_some() || index.layers.is_some() || index.rootfs.is_some() {
            return Err(source.wrong(TWO_THINGS));
        }
        let ours = index.manifests.into_iter().find(is_ours);
        chosen = ours.ok_or_else(|| source.wrong(format!("it has no image for linux on {}", architecture())))?;
    }
    Err(source.wrong("its indexes are nested too deep"))
}

fn is_index(media_type: &str) -> bool {
    matches!(
        media_type,
        "application/vnd.oci.image.index.v1+json" | "application/vnd.docker.distribution.manifest.list.v2+json"
    )
}

fn of_manifest(source: &Source, digest: &str, names: Vec<String>, text: &[u8]) -> Result<Image, ImageError> {
    let manifest: Manifest = parse(source, digest, text)?;
    if manifest.rootfs.is_some() {
        return Err(source.wrong(TWO_THINGS));
    }
    let config = blob(source, &manifest.config)?;
    let packed: Vec<_> = manifest
        .layers
        .iter()
        .map(|layer| Ok((path_of(source, &layer.digest)?, Some((layer.digest.clone(), layer.size)))))
        .collect::<Result<_, ImageError>>()?;
    finish(source, digest.to_owned(), names, Record { manifest: Some(text.to_owned()), config }, packed)
}

fn of_saved(source: &Source, saved: Saved) -> Result<Image, ImageError> {
    let text = source.document(&saved.config)?;
    let text = text.ok_or_else(|| source.wrong(format!("`{}` is missing", saved.config)))?;
    let found = hex(&Sha256::digest(&text));
    let last = saved.config.rsplit('/').next().unwrap_or_default();
    let stated = last.strip_suffix(".json").unwrap_or(last);
    if is_hex(stated) && stated != found {
        return Err(differs(&saved.config, stated, &found));
    }
    let layers = saved.layers.into_iter().map(|part| (part, None)).collect();
    let record = Record { manifest: None, config: text };
    finish(source, format!("sha256:{found}"), saved.repo_tags.unwrap_or_default(), record, layers)
}

/// Where a layer lies, and what it is as packed.
type Part = (String, Option<(String, u64)>);

fn finish(
    source: &Source,
    digest: String,
    names: Vec<String>,
    record: Record,
    parts: Vec<Part>,
) -> Result<Image, ImageError> {
    let config: Config = parse(source, "the configuration", &record.config)?;
    if config.layers.is_some() || config.manifests.is_some() {
        return Err(source.wrong(TWO_THINGS));
    }
    if config.os != "linux" || config.architecture != architecture() {
        let (os, of) = (config.os, config.architecture);
        return Err(source.wrong(format!("it is for {os} on {of}, and this is linux on {}", architecture())));
    }
    let ids = config.rootfs.diff_ids;
    if ids.len() != parts.len() || parts.len() > MAX_LAYERS {
        let (one, other) = (parts.len(), ids.len());
        return Err(source.wrong(format!("it has {one} layers and {other} digests of them, or more than {MAX_LAYERS}")));
    }
    if names.len() > MAX_NAMES {
        return Err(source.wrong(format!("it has {} names, and at most {MAX_NAMES} are kept", names.len())));
    }
    if let Some(name) = names.iter().find(|name| !is_name(name)) {
        return Err(source.wrong(format!("`{name}` cannot be the name of an image")));
    }
    if let Some(id) = ids.iter().find(|id| sha256_of(id).is_none()) {
        return Err(source.wrong(format!("`{id}` is no digest of SHA-256")));
    }
    let layers = parts.into_iter().zip(ids);
    let layers = layers.map(|((part, packed), unpacked)| Layer { part, packed, unpacked }).collect();
    Ok(Image { digest, names, record, layers })
}

fn path_of(source: &Source, digest: &str) -> Result<String, ImageError> {
    let hex = sha256_of(digest).ok_or_else(|| source.wrong(format!("`{digest}` is no digest of SHA-256")))?;
    Ok(format!("blobs/sha256/{hex}"))
}

/// A document that is what its descriptor says.
fn blob(source: &Source, descriptor: &Descriptor) -> Result<Vec<u8>, ImageError> {
    let part = path_of(source, &descriptor.digest)?;
    let text = source.document(&part)?.ok_or_else(|| source.wrong(format!("`{part}` is missing")))?;
    let found = digest_of(&text);
    if found != descriptor.digest {
        return Err(differs(&part, &descriptor.digest, &found));
    }
    if u64::try_from(text.len()).ok() != Some(descriptor.size) {
        return Err(differs(&part, &format!("{} bytes", descriptor.size), &format!("{} bytes", text.len())));
    }
    Ok(text)
}

pub(crate) fn differs(what: &str, stated: &str, found: &str) -> ImageError {
    ImageError::Digest { what: what.to_owned(), why: format!("it should be {stated}, and it is {found}") }
}
