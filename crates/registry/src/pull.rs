//! From a name to an image of the store: manifest, configuration and layers, then the import of them all.

use std::path::PathBuf;
use std::sync::Arc;

use images::{Downloads, ImageError, Listed, MAX_UNPACKED, Reference, Store, architecture};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sandbox::state::{Cross, Dir, errno_of};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::task::JoinSet;

use crate::blob;
use crate::client::{Client, Endpoint};
use crate::credentials;
use crate::descriptor::{BLOBS, Descriptor, hex_of};
use crate::error::PullError;

/// No document is larger.
const MAX_DOCUMENT: usize = 4 << 20;
/// Most blobs of one image.
const MAX_BLOBS: usize = 600;
/// Indexes in indexes.
const MAX_DEPTH: usize = 4;
/// Blobs that come at once.
const AT_ONCE: usize = 4;
const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];

/// What is wanted of a registry.
#[derive(Clone, Debug, Default)]
pub struct PullOptions {
    /// The image, as Docker names it.
    pub reference: String,
    /// What it is called in the store; by its whole name otherwise.
    pub name: Option<String>,
    /// `linux/ARCH`; only that of this machine can be kept.
    pub platform: Option<String>,
    /// `HOST[:PORT][/PREFIX]` that is asked instead of the registry.
    pub mirror: Option<String>,
    /// Speak without TLS to a registry of this machine.
    pub plain_http: bool,
    /// Docker's `config.json`.
    pub credentials: Option<PathBuf>,
    /// The most bytes that it may unpack to, and that are taken.
    pub limit: Option<u64>,
}

/// An index or a manifest.
#[derive(Debug, Deserialize)]
struct Document {
    #[serde(rename = "mediaType")]
    media_type: Option<String>,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// A document as it came.
struct FetchedDocument {
    text: Vec<u8>,
    digest: String,
    media_type: String,
    document: Document,
}

/// A registry that is to be asked for one image.
struct PullSession {
    reference: Reference,
    client: Arc<Client>,
    runtime: tokio::runtime::Runtime,
}

impl PullSession {
    fn new(wanted: &PullOptions) -> Result<Self, PullError> {
        let no = |why: &str| PullError::Reference { reference: wanted.reference.clone(), why: why.to_owned() };
        let reference = Reference::parse(&wanted.reference).ok_or_else(|| no("it is none by Docker's rules"))?;
        let own = format!("linux/{}", architecture());
        if wanted.platform.as_ref().is_some_and(|platform| *platform != own) {
            return Err(no(&format!("only images for {own} can be kept on this machine")));
        }
        let (registry, repository) = (reference.registry.as_str(), reference.repository.as_str());
        let endpoint = Endpoint { registry, repository, mirror: wanted.mirror.as_deref(), plain: wanted.plain_http };
        let credentials = credentials::of(endpoint.asked(), wanted.credentials.as_deref())?;
        let client = Arc::new(Client::new(&endpoint, credentials)?);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(AT_ONCE).enable_all().build();
        let runtime = runtime.map_err(|error| client.failed(error.to_string()))?;
        Ok(Self { reference, client, runtime })
    }

    fn manifest(&self) -> Result<FetchedDocument, PullError> {
        self.runtime.block_on(manifest(&self.client, &self.reference))
    }
}

/// The digest of this machine's image that a name means at its registry now; nothing is brought.
///
/// # Errors
/// Why it is not known.
pub fn digest(wanted: &PullOptions) -> Result<String, PullError> {
    Ok(PullSession::new(wanted)?.manifest()?.digest)
}

/// Brings an image and imports it. What has come when it fails stays for the next try, and is checked again then.
///
/// # Errors
/// Why nothing was kept.
pub fn pull(store: &Store, wanted: &PullOptions) -> Result<Listed, PullError> {
    if wanted.name.as_ref().is_some_and(|name| !images::is_name(name)) {
        return Err(ImageError::Name { name: wanted.name.clone().unwrap_or_default() }.into());
    }
    let asked = PullSession::new(wanted)?;
    let downloads = store.downloads()?;
    let name = wanted.name.clone().unwrap_or_else(|| asked.reference.to_string());
    let came = asked.manifest()?;
    // What is there is as it was, and only called so.
    if let Some(there) = store.call(&came.digest, &name)? {
        return Ok(there);
    }
    asked.runtime.block_on(bring(&asked.client, &downloads, came, wanted.limit))?;
    let done = store.import_as(downloads.path(), &name, wanted.limit);
    // What was refused would be refused again; what was kept is not needed any more.
    downloads.clear()?;
    Ok(done?)
}

async fn bring(
    client: &Arc<Client>,
    downloads: &Downloads,
    came: FetchedDocument,
    limit: Option<u64>,
) -> Result<(), PullError> {
    let dir = downloads.dir();
    let io = |errno| ImageError::Io { path: downloads.path().to_owned(), errno };
    dir.make("blobs", Mode::RWXU).map_err(io)?;
    dir.enter("blobs", Cross::No).and_then(|blobs| blobs.make("sha256", Mode::RWXU)).map_err(io)?;
    let (Some(config), Some(layers)) = (came.document.config, came.document.layers) else {
        return Err(client.failed("its manifest has no configuration or no layers"));
    };
    let mut blobs = vec![config];
    for layer in layers {
        if !blobs.iter().any(|known: &Descriptor| known.digest == layer.digest) {
            blobs.push(layer);
        }
    }
    let total = blobs.iter().fold(0_u64, |sum, blob| sum.saturating_add(blob.size));
    let most = limit.unwrap_or(MAX_UNPACKED);
    if total > most {
        return Err(ImageError::TooLarge { limit: most }.into());
    }
    if blobs.len() > MAX_BLOBS {
        return Err(client.failed(format!("its manifest has more than {MAX_BLOBS} blobs")));
    }
    replace(dir, &format!("{BLOBS}/{}", hex_of(client, &came.digest)?), &came.text).map_err(io)?;
    all(client, dir, blobs).await?;
    let index = json!({ "schemaVersion": 2, "manifests": [{
        "mediaType": came.media_type, "digest": came.digest, "size": came.text.len(),
    }] });
    replace(dir, "index.json", index.to_string().as_bytes()).map_err(io)?;
    replace(dir, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#).map_err(io)?;
    Ok(())
}

/// All blobs, several at once; the first failure ends it.
async fn all(client: &Arc<Client>, dir: &Dir, blobs: Vec<Descriptor>) -> Result<(), PullError> {
    let mut running = JoinSet::new();
    let mut waiting = blobs.into_iter();
    loop {
        while running.len() < AT_ONCE {
            let Some(blob) = waiting.next() else { break };
            let own = dir.enter(".", Cross::No).map_err(|errno| ImageError::Io { path: PathBuf::new(), errno })?;
            let client = Arc::clone(client);
            running.spawn(async move { blob::fetch(&client, &own, &blob).await });
        }
        match running.join_next().await {
            None => return Ok(()),
            Some(Ok(done)) => done?,
            Some(Err(error)) => return Err(client.failed(error.to_string())),
        }
    }
}

/// The manifest of this machine's image, through as many indexes as there are.
async fn manifest(client: &Client, reference: &Reference) -> Result<FetchedDocument, PullError> {
    let named = reference.digest.as_ref().or(reference.tag.as_ref());
    let mut named = named.ok_or_else(|| client.failed("neither a tag nor a digest is asked for"))?.clone();
    let mut stated = reference.digest.clone();
    for _ in 0..MAX_DEPTH {
        let came = document(client, &named, stated.as_deref()).await?;
        let Some(all) = &came.document.manifests else { return Ok(came) };
        let ours = all.iter().find(|each| {
            let platform = each.platform.as_ref();
            platform.is_some_and(|platform| platform.os == "linux" && platform.architecture == architecture())
        });
        let ours = ours.ok_or_else(|| client.failed(format!("it has no image for linux on {}", architecture())))?;
        named.clone_from(&ours.digest);
        stated = Some(named.clone());
    }
    Err(client.failed("its indexes are nested too deep"))
}

async fn document(client: &Client, named: &str, stated: Option<&str>) -> Result<FetchedDocument, PullError> {
    if let Some(stated) = stated {
        hex_of(client, stated)?;
    }
    let accept = [&MANIFESTS[..], &INDEXES[..]].concat().join(", ");
    let answer = client.get(&format!("manifests/{named}"), &accept, 0).await?;
    let of_header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (kind, said) = (of_header("content-type"), of_header("docker-content-digest"));
    let text = client.text(answer, MAX_DOCUMENT).await?;
    let hex = Sha256::digest(&text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let digest = format!("sha256:{hex}");
    // Where the registry names a digest by another algorithm, it is not compared; what was asked for always is.
    let said = said.filter(|said| said.starts_with("sha256:"));
    for other in [stated, said.as_deref()].into_iter().flatten() {
        if other != digest {
            let why = format!("it should be {other}, and it is {digest}");
            return Err(ImageError::Digest { what: "its manifest".to_owned(), why }.into());
        }
    }
    let document: Document = serde_json::from_slice(&text)
        .map_err(|error| client.failed(format!("its manifest cannot be read: {error}")))?;
    let media_type = document.media_type.clone().or(kind).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default().trim().to_owned();
    let is_index = document.manifests.is_some();
    if is_index && (document.config.is_some() || document.layers.is_some()) {
        return Err(client.failed("its manifest is an index at the same time: a digest would name two images"));
    }
    let known = if is_index { &INDEXES } else { &MANIFESTS };
    if !known.contains(&media_type.as_str()) {
        return Err(client.failed(format!("its manifest is of the kind `{media_type}`, which is not read")));
    }
    Ok(FetchedDocument { text, digest, media_type, document })
}

/// Writes a file of the layout, in place of one that was there.
fn replace(dir: &Dir, name: &str, bytes: &[u8]) -> Result<(), Errno> {
    use std::io::Write as _;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = dir.open_file(name, flags, Mode::from_raw_mode(0o600))?;
    file.write_all(bytes).map_err(|error| errno_of(&error))
}
