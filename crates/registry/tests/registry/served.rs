//! The registry: one image, served as the test wants it.
#![expect(clippy::wildcard_enum_match_arm, reason = "most ways misbehave in one place alone")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Response, StatusCode};
use axum::routing::get;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

/// How it behaves.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    Honest,
    /// Wants a token, and sends blobs from elsewhere.
    Token {
        blobs_at: Option<String>,
    },
    /// Sends the first half of a blob alone, and the rest where it is asked for it.
    Breaks,
    /// Sends the first half, and then all from the beginning.
    BreaksAndForgets,
    NeverEnds,
    WrongBlob,
    LongBlob,
    WrongManifest,
    WrongHeader,
    Huge,
    Missing,
    Loop,
    ToPlain,
    OtherMachine,
    OldKind,
    /// Its manifest is an index, too.
    TwoThings,
    ToFile,
    Packs,
    Endless,
}

pub(crate) struct Registry {
    pub(crate) host: String,
    pub(crate) manifest: String,
    pub(crate) index: String,
    shared: Arc<Shared>,
    _runtime: tokio::runtime::Runtime,
}

struct Shared {
    way: Behaviour,
    host: String,
    blobs: BTreeMap<String, Vec<u8>>,
    /// By tag and by digest: kind and text.
    manifests: BTreeMap<String, (&'static str, Vec<u8>)>,
    asked: Mutex<Vec<String>>,
}

fn image() -> (BTreeMap<String, Vec<u8>>, Value, Vec<u8>) {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |name: &str, body: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(body.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, name, body).unwrap();
    };
    add("hello", b"there");
    // Not to be packed well, so that there is a half of it.
    let noise: Vec<u8> = (0..4000_u32).flat_map(|number| Sha256::digest(number.to_le_bytes())).collect();
    add("noise", &noise);
    let layer = archive.into_inner().unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(&layer).unwrap();
    let packed = packed.finish().unwrap();
    let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
    let config = json!({
        "architecture": arch, "os": "linux", "config": { "Cmd": ["/hello"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(&layer))] },
    });
    let config = config.to_string().into_bytes();
    let of =
        |bytes: &[u8]| json!({ "mediaType": "x", "digest": format!("sha256:{}", hex(bytes)), "size": bytes.len() });
    let manifest = json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": of(&config), "layers": [of(&packed)] });
    let blobs = [(format!("sha256:{}", hex(&config)), config), (format!("sha256:{}", hex(&packed)), packed.clone())];
    (blobs.into_iter().collect(), manifest, packed)
}

impl Registry {
    pub(crate) fn start(way: Behaviour) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (blobs, mut manifest, _) = image();
        if matches!(way, Behaviour::Huge) {
            manifest["layers"][0]["size"] = json!(100_u64 << 30);
        }
        if matches!(way, Behaviour::OldKind) {
            manifest["mediaType"] = json!("application/vnd.docker.distribution.manifest.v1+json");
        }
        if matches!(way, Behaviour::TwoThings) {
            manifest["manifests"] = json!([]);
            manifest["mediaType"] = json!(INDEX);
        }
        let text = manifest.to_string().into_bytes();
        let digest = format!("sha256:{}", hex(&text));
        let arch = if std::env::consts::ARCH == "x86_64" { "amd64" } else { "arm64" };
        let arch = if matches!(way, Behaviour::OtherMachine) { "s390x" } else { arch };
        let other = json!({ "mediaType": MANIFEST, "digest": format!("sha256:{}", "0".repeat(64)), "size": 1,
            "platform": { "os": "windows", "architecture": arch } });
        let ours = json!({ "mediaType": MANIFEST, "digest": digest, "size": text.len(),
            "platform": { "os": "linux", "architecture": arch } });
        let index =
            json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [other, ours] }).to_string().into_bytes();
        let of_index = format!("sha256:{}", hex(&index));
        let mut manifests = BTreeMap::new();
        manifests.insert(digest.clone(), (MANIFEST, text.clone()));
        manifests.insert(of_index.clone(), (INDEX, index.clone()));
        manifests.insert("many".to_owned(), (INDEX, index.clone()));
        let first = if matches!(way, Behaviour::OtherMachine) { (INDEX, index) } else { (MANIFEST, text) };
        manifests.insert("1".to_owned(), first);
        let shared = Arc::new(Shared { way, host: host.clone(), blobs, manifests, asked: Mutex::default() });
        let router = axum::Router::new().fallback(get(answer)).with_state(Arc::clone(&shared));
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { host, manifest: digest, index: of_index, shared, _runtime: runtime }
    }

    /// What was asked: path and query, range, authorization.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap().clone()
    }
}

fn plain(status: StatusCode, headers: &[(&str, &str)], body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(body.into()).unwrap()
}

async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response<Body> {
    let of = |headers: &HeaderMap, name: &str| {
        headers.get(name).map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    let (range, told) = (of(request.headers(), "range"), of(request.headers(), "authorization"));
    let query = request.uri().path_and_query().unwrap().to_string();
    shared.asked.lock().unwrap().push(format!("{query} {range} {told}"));
    let path = request.uri().path().to_owned();
    if path == "/token" {
        let right = told == "Basic bWU6cGFzcw==";
        let status = if right { StatusCode::OK } else { StatusCode::UNAUTHORIZED };
        return plain(status, &[], r#"{"token":"right","expires_in":60}"#);
    }
    if matches!(shared.way, Behaviour::Token { .. }) && told != "Bearer right" {
        let realm = format!(r#"Bearer realm="http://{}/token",service="test""#, shared.host);
        return plain(StatusCode::UNAUTHORIZED, &[("www-authenticate", &realm)], "");
    }
    match path.split_once("/blobs/") {
        Some((_, digest)) => blob(&shared, digest, &path, &range),
        None => manifest(&shared, path.rsplit('/').next().unwrap()),
    }
}

fn manifest(shared: &Shared, named: &str) -> Response<Body> {
    let missing =
        || plain(StatusCode::NOT_FOUND, &[], r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"no such thing"}]}"#);
    match shared.way {
        Behaviour::Missing => return missing(),
        Behaviour::WrongManifest => {
            return plain(StatusCode::OK, &[("content-type", MANIFEST)], shared.manifests["1"].1.clone());
        }
        Behaviour::WrongHeader => {
            let digest = format!("sha256:{}", hex(b"other"));
            let headers = [("content-type", MANIFEST), ("docker-content-digest", digest.as_str())];
            return plain(StatusCode::OK, &headers, shared.manifests["1"].1.clone());
        }
        Behaviour::Endless => return plain(StatusCode::OK, &[("content-type", MANIFEST)], vec![b' '; 5 << 20]),
        _ => {}
    }
    match shared.manifests.get(named) {
        Some((kind, text)) => plain(StatusCode::OK, &[("content-type", kind)], text.clone()),
        None => missing(),
    }
}

fn blob(shared: &Shared, digest: &str, path: &str, range: &str) -> Response<Body> {
    let bytes = shared.blobs[digest].clone();
    // The configuration is small, and always whole.
    let is_layer = bytes.len() > 10_000;
    let half = bytes.len() / 2;
    let from: Option<usize> = range.strip_prefix("bytes=").map(|range| range.trim_end_matches('-').parse().unwrap());
    let redirect = |to: String| plain(StatusCode::TEMPORARY_REDIRECT, &[("location", to.as_str())], "");
    match &shared.way {
        Behaviour::Token { blobs_at: Some(host) } => redirect(format!("http://{host}{path}")),
        Behaviour::Loop => redirect(path.to_owned()),
        Behaviour::ToFile => redirect("file:///etc/passwd".to_owned()),
        Behaviour::Packs => plain(StatusCode::OK, &[("content-encoding", "gzip")], bytes),
        Behaviour::ToPlain => redirect(format!("http://192.0.2.1{path}")),
        Behaviour::Breaks if is_layer => match from {
            None => plain(StatusCode::OK, &[], bytes[..half].to_vec()),
            Some(from) => {
                let said = format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len());
                plain(StatusCode::PARTIAL_CONTENT, &[("content-range", said.as_str())], bytes[from..].to_vec())
            }
        },
        Behaviour::BreaksAndForgets if is_layer && from.is_none() => plain(StatusCode::OK, &[], bytes[..half].to_vec()),
        Behaviour::NeverEnds if is_layer => plain(StatusCode::OK, &[], bytes[..half].to_vec()),
        Behaviour::WrongBlob if is_layer => {
            let mut wrong = bytes;
            wrong[half] ^= 1;
            plain(StatusCode::OK, &[], wrong)
        }
        Behaviour::LongBlob if is_layer => plain(StatusCode::OK, &[], [bytes, vec![0]].concat()),
        _ => plain(StatusCode::OK, &[], bytes),
    }
}
