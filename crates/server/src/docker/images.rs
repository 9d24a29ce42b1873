//! Images of the caller's store: listed, looked at, brought, built, removed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use serde_json::{Value as Json, json};
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use url::form_urlencoded;

use super::create::random;
use super::{Docker, DockerError, HttpResult, filters, told, yes};
use crate::answer::{Problem, json_response};
use crate::backend::{Image, Recipe};
use crate::clock;
use crate::envd::pieces;
use crate::request::Query;

/// The largest archive that is built of.
const MAX_CONTEXT: u64 = 4 << 30;
/// How long a pull may take before the answer begins without its end.
const PULL_TIMEOUT: Duration = Duration::from_secs(10);
/// Lines that wait to be sent.
const QUEUE: usize = 64;

pub(super) async fn list(State(docker): State<Arc<Docker>>, uri: Uri) -> HttpResult {
    let filters = filters(&Query::of(&uri), &["reference", "dangling"])?;
    let mut images = docker.with_images(|images| images.list()).await?;
    if let Some(wanted) = filters.get("reference") {
        images.retain(|image| image.names.iter().any(|name| wanted.iter().any(|wanted| is_named(name, wanted))));
    }
    if filters.get("dangling").is_some_and(|values| values.iter().any(|value| matches!(value.as_str(), "true" | "1"))) {
        images.retain(|image| image.names.is_empty());
    }
    let listed: Vec<Json> = images.iter().map(listed).collect();
    Ok(json_response(StatusCode::OK, &Json::Array(listed)))
}

/// `python` means all of its tags, and a name may be Docker's whole one.
fn is_named(name: &str, wanted: &str) -> bool {
    let short = name.strip_prefix("docker.io/library/").or_else(|| name.strip_prefix("docker.io/")).unwrap_or(name);
    let family = |name: &str| name.rsplit_once(':').is_some_and(|(family, tag)| family == wanted && !tag.contains('/'));
    name == wanted || short == wanted || family(name) || family(short)
}

fn listed(image: &Image) -> Json {
    json!({
        "Id": image.digest, "ParentId": "", "RepoTags": image.names, "RepoDigests": [], "Created": 0, "Size": image.bytes,
        "VirtualSize": image.bytes, "SharedSize": -1, "Containers": -1, "Labels": image.labels,
    })
}

/// `NAME/json`, where NAME may have slashes.
pub(super) async fn inspect(State(docker): State<Arc<Docker>>, Path(rest): Path<String>) -> HttpResult {
    let Some(name) = rest.strip_suffix("/json") else {
        return Err(told(
            StatusCode::NOT_IMPLEMENTED,
            format!("fumehood's Docker socket does not serve GET /images/{rest}"),
        ));
    };
    let image = docker.image(name).await?;
    let body = json!({
        "Id": image.digest, "RepoTags": image.names, "RepoDigests": [], "Parent": "", "Comment": "", "Author": "",
        "Created": clock::rfc3339(0), "DockerVersion": "", "Architecture": sys::arch::PACKAGED_NAME, "Os": "linux", "Size": image.bytes,
        "VirtualSize": image.bytes, "GraphDriver": { "Name": "fumehood", "Data": null },
        "RootFS": { "Type": "layers", "Layers": image.layers }, "Metadata": {},
        "Config": {
            "User": image.user.clone().unwrap_or_default(), "Env": image.env, "WorkingDir": image.workdir.clone().unwrap_or_default(),
            "Entrypoint": some(&image.entrypoint), "Cmd": some(&image.cmd), "Labels": image.labels, "Image": "", "Volumes": null,
            "ExposedPorts": null, "OnBuild": null,
        },
    });
    Ok(json_response(StatusCode::OK, &body))
}

fn some(words: &[String]) -> Option<&[String]> {
    (!words.is_empty()).then_some(words)
}

pub(super) async fn remove(State(docker): State<Arc<Docker>>, Path(name): Path<String>) -> HttpResult {
    let image = docker.image(&name).await?;
    let known = image.names.iter().find(|known| is_named(known, &name)).cloned();
    let word = known.unwrap_or_else(|| image.digest.clone());
    let (removed, digest) = (word.clone(), image.digest.clone());
    docker.with_images(move |images| images.remove(&removed)).await?;
    let mut told = vec![json!({ "Untagged": word })];
    if docker.with_images(move |images| images.find(&digest)).await?.is_none() {
        told.push(json!({ "Deleted": image.digest }));
    }
    Ok(json_response(StatusCode::OK, &Json::Array(told)))
}

/// Lines of JSON as they come.
fn lines(from: tokio::sync::mpsc::Receiver<Json>) -> Response<Body> {
    let stream = ReceiverStream::new(from).map(|line| Ok::<_, std::io::Error>(Bytes::from(format!("{line}\r\n"))));
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn failed(problem: &Problem) -> Json {
    json!({ "errorDetail": { "message": problem.line() }, "error": problem.line() })
}

/// `POST /images/create`: from a registry, as `fumehood image pull` does it. Logins are those of whoever serves.
pub(super) async fn pull(State(docker): State<Arc<Docker>>, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    if let Some(field) =
        ["fromSrc", "changes"].iter().find(|field| query.get(field).is_some_and(|text| !text.is_empty()))
    {
        return Err(told(
            StatusCode::BAD_REQUEST,
            format!("fumehood refuses {field}: `fumehood image import` takes archives"),
        ));
    }
    let platform = query.get("platform").unwrap_or_default();
    if !platform.is_empty() && platform.trim_start_matches("linux/") != sys::arch::PACKAGED_NAME {
        return Err(told(
            StatusCode::BAD_REQUEST,
            format!("fumehood refuses platform: `{platform}` is not this machine's"),
        ));
    }
    let name = query.get("fromImage").filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| told(StatusCode::BAD_REQUEST, "`fromImage` is missing"))?;
    let tag = query.get("tag").unwrap_or_default();
    let reference = match tag {
        "" => name.to_owned(),
        digest if digest.starts_with("sha256:") => format!("{name}@{digest}"),
        tag => format!("{name}:{tag}"),
    };
    let wanted = reference.clone();
    let images = Arc::clone(&docker.images);
    let mut pulling = tokio::task::spawn_blocking(move || images.pull(&wanted));
    let lost = || Problem::from(crate::backend::failed("the pull broke off"));
    // What fails at once is told by the status: clients do not look for errors among the lines.
    if let Ok(done) = tokio::time::timeout(PULL_TIMEOUT, &mut pulling).await {
        let image = done.unwrap_or_else(|_lost| Err(lost()))?;
        let (to, from) = tokio::sync::mpsc::channel(QUEUE);
        let status = json!({ "status": format!("Digest: {}", image.digest) });
        let sent = (to.try_send(status), to.try_send(json!({ "status": format!("Status: {reference} is here") })));
        drop((sent, to));
        return Ok(lines(from));
    }
    let (to, from) = tokio::sync::mpsc::channel(QUEUE);
    tokio::spawn(async move {
        loop {
            let line = match tokio::time::timeout(PULL_TIMEOUT, &mut pulling).await {
                Err(_late) => json!({ "status": format!("Pulling {reference}") }),
                Ok(Ok(Ok(image))) => {
                    drop(to.send(json!({ "status": format!("Digest: {}", image.digest) })).await);
                    return;
                }
                Ok(Ok(Err(problem))) => {
                    drop(to.send(failed(&problem)).await);
                    return;
                }
                Ok(Err(_lost)) => {
                    drop(to.send(failed(&lost())).await);
                    return;
                }
            };
            if to.send(line).await.is_err() {
                return;
            }
        }
    });
    Ok(lines(from))
}

/// Parts of a build's query that change nothing here.
const NO_MATTER: &[&str] = &["rm", "forcerm", "q", "pull", "labels", "cachefrom", "version"];
const READ: &[&str] = &["t", "dockerfile", "buildargs", "nocache", "target", "networkmode"];

fn recipe(uri: &Uri) -> Result<Recipe, DockerError> {
    let query = Query::of(uri);
    let bad = |field: &str, why: &str| told(StatusCode::BAD_REQUEST, format!("fumehood refuses {field}: {why}"));
    for (field, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        let silent = matches!(&*value, "" | "0" | "false" | "False" | "null" | "{}" | "[]");
        if !silent && !READ.contains(&&*field) && !NO_MATTER.contains(&&*field) {
            return Err(bad(&field, "nothing here can hold it in a build; leave it out"));
        }
    }
    let silent = |field: &str| query.get(field).is_none_or(|text| matches!(text, "" | "{}" | "[]" | "null"));
    if !silent("labels") {
        return Err(bad("labels", "say LABEL in the Dockerfile"));
    }
    if query.get("version").is_some_and(|version| !matches!(version, "" | "1")) {
        return Err(bad("version", "BuildKit is not served; set DOCKER_BUILDKIT=0"));
    }
    if yes(&query, "pull")? {
        return Err(bad("pull", "a build takes images of the store; pull them before"));
    }
    if query.get("networkmode").is_some_and(|mode| !matches!(mode, "" | "none" | "default")) {
        return Err(bad("networkmode", "RUN has no network but its own loopback"));
    }
    let args = query.get("buildargs").filter(|text| !text.is_empty()).unwrap_or("{}");
    let args: BTreeMap<String, Option<String>> =
        serde_json::from_str(args).map_err(|error| bad("buildargs", &error.to_string()))?;
    let words = |field: &str| query.get(field).filter(|text| !text.is_empty()).map(str::to_owned);
    let names: Vec<String> = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes())
        .filter(|(field, value)| field == "t" && !value.is_empty())
        .map(|(_, value)| value.into_owned())
        .collect();
    let [name] = &names[..] else {
        return Err(bad("t", "an image has one name here: give it one by `tag=`"));
    };
    Ok(Recipe {
        name: name.clone(),
        file: words("dockerfile"),
        args: args.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
        target: words("target"),
        anew: yes(&query, "nocache")?,
        ..Recipe::default()
    })
}

/// `POST /build`: a tar stream with a Dockerfile, as `fumehood image build` does it.
pub(super) async fn build(State(docker): State<Arc<Docker>>, request: Request) -> HttpResult {
    let mut recipe = recipe(request.uri())?;
    let place = docker.folder.join(format!("build-{}", random(8)?));
    recipe.archive = place.with_extension("tar");
    if let Err(told) = stored(&recipe.archive, request).await {
        forget(&recipe.archive);
        return Err(told);
    }
    let (to, from) = tokio::sync::mpsc::channel(QUEUE);
    let images = Arc::clone(&docker.images);
    tokio::task::spawn_blocking(move || {
        let stream = |text: &str| json!({ "stream": text });
        // Who does not listen any more: the build goes on, and is kept.
        let mut tell = |text: &str| drop(to.blocking_send(stream(text)));
        let built = images.build(&recipe, &mut tell);
        forget(&recipe.archive);
        match built {
            Ok(image) => {
                let hex = image.digest.trim_start_matches("sha256:");
                drop(to.blocking_send(json!({ "aux": { "ID": image.digest } })));
                tell(&format!("Successfully built {hex}\n"));
                tell(&format!("Successfully tagged {}\n", recipe.name));
            }
            Err(problem) => drop(to.blocking_send(failed(&problem))),
        }
    });
    Ok(lines(from))
}

fn forget(path: &std::path::Path) {
    if std::fs::remove_file(path).is_err() {
        // It was never made.
    }
}

async fn stored(path: &std::path::Path, request: Request) -> Result<(), DockerError> {
    let io =
        |error: std::io::Error| told(StatusCode::INTERNAL_SERVER_ERROR, format!("the archive cannot be kept: {error}"));
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(path).map_err(io)?;
    let (mut pieces, mut size) = (pieces(request), 0_u64);
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|error| told(StatusCode::BAD_REQUEST, format!("the archive broke off: {error}")))?;
        size = size.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if size > MAX_CONTEXT {
            return Err(told(StatusCode::PAYLOAD_TOO_LARGE, "the archive is larger than 4 GiB"));
        }
        file.write_all(&piece).map_err(io)?;
    }
    Ok(())
}
