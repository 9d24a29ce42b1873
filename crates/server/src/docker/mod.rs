//! Docker's Engine API, as much of it as its clients need to run programs: on a unix socket of whoever serves.
//!
//! A container is a live sandbox on an image of the caller's store. What Docker would grant and nothing here holds is refused
//! with the field named (`body`, `host`); what is stricter here than with Docker is told in the container's warnings.

mod archive;
mod body;
mod container;
mod containers;
mod create;
mod exec;
mod held;
mod host;
mod images;
mod keep;
mod log;
mod output;
mod refusal;
mod shown;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use agent::words::Failure;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, Response, StatusCode, Uri};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use policy::value::Policy;
use rustix::fs::FlockOperation;
use sandbox::PolicyLayer;
use serde_json::{Value as Json, json};
use tower::ServiceExt as _;

use crate::answer::{Problem, json_response, status_of};
use crate::app::{self, AppState};
use crate::backend::Images;
use crate::request::Query;
use crate::{record, request as read};
pub use body::{CAPABILITIES, signal as signal_number};
use body::{Fields, Refused};
use container::Container;
use exec::Exec;

/// The version that is spoken, and the oldest that is understood: it says nothing else in what is served here.
const API: (u32, u32) = (1, 44);
const OLDEST: (u32, u32) = (1, 24);
const API_TEXT: &str = "1.44";
const OLDEST_TEXT: &str = "1.24";
/// As whom requests of the socket stand in the audit log.
const CALLER: &str = crate::keys::DOCKER_CALLER;

/// The ceiling where no policy is named: what its caller could grant with flags of `run`. Dangerous places are not among it,
/// since no bind is spelled as one.
const CEILING: &[&str] = &[
    "prefer=[\"limits.disk\", \"limits.files\"]",
    "net.mode=loopback",
    "fs.sockets=own",
    "fs.noexec=false",
    "fs.tmp=16G",
    "fs.shm=16G",
    "fs.run=1G",
    "limits.wall=24h",
    "limits.memory=none",
    "limits.pids=none",
    "limits.open_files=none",
    "limits.file_size=none",
    "limits.disk=none",
    "limits.files=none",
    "limits.output=none",
    "syscalls.profile=python",
];

/// Why something was not done: a status, and the `message` that clients show.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DockerError(StatusCode, String);

type HttpResult = Result<Response<Body>, DockerError>;

impl IntoResponse for DockerError {
    fn into_response(self) -> Response<Body> {
        json_response(self.0, &json!({ "message": self.1 }))
    }
}

impl From<Problem> for DockerError {
    fn from(problem: Problem) -> Self {
        Self(problem.status, problem.line())
    }
}

impl From<Failure> for DockerError {
    fn from(failure: Failure) -> Self {
        let status = match failure.code.is_away() {
            true => StatusCode::CONFLICT,
            false => status_of(failure.code),
        };
        Self(status, failure.message)
    }
}

impl From<Refused> for DockerError {
    fn from(refused: Refused) -> Self {
        let Refused { field, why } = refused;
        Self(StatusCode::BAD_REQUEST, format!("fumehood refuses {field}: {why}"))
    }
}

impl From<Vec<Problem>> for DockerError {
    fn from(problems: Vec<Problem>) -> Self {
        let status = problems.first().map_or(StatusCode::INTERNAL_SERVER_ERROR, |problem| problem.status);
        // A refusal is the caller's to change, whoever says it.
        let status = if status == StatusCode::FORBIDDEN { StatusCode::BAD_REQUEST } else { status };
        let lines: Vec<String> = problems.iter().map(refusal::line).collect();
        Self(status, format!("fumehood refuses {}", lines.join("; also ")))
    }
}

fn told(status: StatusCode, message: impl Into<String>) -> DockerError {
    DockerError(status, message.into())
}

/// The request came to the socket of Docker's clients, over this connection.
#[derive(Clone, Debug)]
pub(crate) struct OfDocker(pub(crate) Arc<OwnedFd>);

/// Everything behind the socket.
pub(crate) struct Docker {
    app: Arc<AppState>,
    images: Arc<dyn Images>,
    ceiling: Policy,
    /// `docker/` of the state folder: a folder for each container.
    folder: PathBuf,
    /// Held for as long as this lives.
    _lock: File,
    containers: Mutex<BTreeMap<String, Arc<Container>>>,
    /// Names of containers that are being made.
    coming: Mutex<Vec<String>>,
    execs: Mutex<BTreeMap<String, Arc<Exec>>>,
}

impl std::fmt::Debug for Docker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Docker").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Docker {
    /// What is there of earlier servers is found by [`Docker::adopt`].
    ///
    /// # Errors
    /// The ceiling cannot be read, or the folder not be made.
    pub(crate) fn new(
        app: Arc<AppState>,
        images: Arc<dyn Images>,
        ceiling: Option<String>,
    ) -> Result<Self, Vec<Problem>> {
        let set = |text: &&str| PolicyLayer::Set((*text).to_owned());
        // Where it would be shown does not matter: a bind may be shown anywhere.
        let dangerous =
            |flag: &str| PolicyLayer::Flag { name: flag.to_owned(), value: format!("/:/host/{}", flag.len()) };
        let layers = match ceiling {
            Some(document) => vec![PolicyLayer::Document(document)],
            None => {
                let binds = ["--dangerous-read", "--dangerous-write"].map(dangerous);
                CEILING.iter().map(set).chain(binds).collect()
            }
        };
        let ceiling = app::read_ceiling(&layers, app.environment())?;
        let folder = app.state().join("docker");
        let lock = own(&folder).map_err(|problem| vec![problem])?;
        remove_builds(&folder);
        Ok(Self {
            app,
            images,
            ceiling,
            folder,
            _lock: lock,
            containers: Mutex::default(),
            coming: Mutex::default(),
            execs: Mutex::default(),
        })
    }

    /// The answer to a request.
    pub(crate) async fn answer(router: Router, request: Request) -> Response<Body> {
        match unversioned(request) {
            Ok(request) => match router.oneshot(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            },
            Err(told) => told.into_response(),
        }
    }

    /// A container by its id, the beginning of it, or its name.
    fn find(&self, word: &str) -> Result<Arc<Container>, DockerError> {
        let containers = locked(&self.containers);
        if let Some(container) = containers.get(word) {
            return Ok(Arc::clone(container));
        }
        let name = word.strip_prefix('/').unwrap_or(word);
        if let Some(named) = containers.values().find(|container| container.record().name == name) {
            return Ok(Arc::clone(named));
        }
        let mut begins = containers.iter().filter(|(id, _)| !word.is_empty() && id.starts_with(word));
        match (begins.next(), begins.next()) {
            (Some((_, container)), None) => Ok(Arc::clone(container)),
            (Some(_), Some(_)) => Err(told(StatusCode::BAD_REQUEST, format!("several containers begin with {word}"))),
            (None, _) => Err(told(StatusCode::NOT_FOUND, format!("No such container: {word}"))),
        }
    }

    /// Does what blocks with the images of the store.
    async fn with_images<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn Images) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, DockerError> {
        let images = Arc::clone(&self.images);
        match tokio::task::spawn_blocking(move || work(&*images)).await {
            Ok(worked) => Ok(worked?),
            Err(_lost) => Err(told(StatusCode::INTERNAL_SERVER_ERROR, "it could not be done")),
        }
    }
}

/// Whether a request goes on for as long as its client listens, and does nothing by itself.
pub(crate) fn ends_with_client(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    matches!(
        (parts.next(), parts.nth(1)),
        (Some("wait" | "attach" | "logs" | "stats"), Some("containers")) | (Some("start"), Some("exec"))
    )
}

/// What a server that was killed left of a build: nobody else makes one while the lock is held.
fn remove_builds(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if !entry.file_name().to_string_lossy().starts_with("build-") {
            continue;
        }
        let path = entry.path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        if removed.is_err() {
            // The next start tries again.
        }
    }
}

/// Makes the folder of containers, or takes it over. Two servers would both go on with one container.
fn own(folder: &Path) -> Result<File, Problem> {
    let unfit = |error: std::io::Error| {
        let what = format!("{} cannot be used", folder.display());
        Problem::of(500, "serve/docker", what, &error.to_string(), "repair the state folder")
    };
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(unfit(error)),
        Ok(()) | Err(_) => {}
    }
    let lock = File::options()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(folder.join("lock"))
        .map_err(unfit)?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_held) => {
            let what = "Docker's clients of this state folder are served already";
            let why = "another `fumehood serve --docker-socket` holds its containers";
            Err(Problem::of(500, "serve/docker", what, why, "use that one's socket, or end it first"))
        }
    }
}

/// The routes.
pub(crate) fn router(docker: Arc<Docker>) -> Router {
    Router::new()
        .route("/_ping", get(ping))
        .route("/version", get(version))
        .route("/info", get(info))
        .route("/containers/json", get(containers::list))
        .route("/containers/create", post(create::create))
        .route("/containers/{id}", axum::routing::delete(containers::remove))
        .route("/containers/{id}/json", get(containers::inspect))
        .route("/containers/{id}/start", post(containers::start))
        .route("/containers/{id}/wait", post(containers::wait))
        .route("/containers/{id}/kill", post(containers::kill))
        .route("/containers/{id}/stop", post(containers::stop))
        .route("/containers/{id}/pause", post(containers::pause))
        .route("/containers/{id}/unpause", post(containers::unpause))
        .route("/containers/{id}/resize", post(output::resize))
        .route("/containers/{id}/top", get(containers::top))
        .route("/containers/{id}/stats", get(stats::stats))
        .route("/containers/{id}/logs", get(output::logs))
        .route("/containers/{id}/attach", post(output::attach))
        .route("/containers/{id}/archive", get(archive::read).put(archive::write).head(archive::stat))
        .route("/containers/{id}/exec", post(exec::create))
        .route("/exec/{id}/start", post(exec::start))
        .route("/exec/{id}/resize", post(exec::resize))
        .route("/exec/{id}/json", get(exec::inspect))
        .route("/images/json", get(images::list))
        .route("/images/create", post(images::pull))
        .route("/images/{*name}", get(images::inspect).delete(images::remove))
        .route("/build", post(images::build))
        .method_not_allowed_fallback(unserved)
        .fallback(unserved)
        .layer(from_fn_with_state(Arc::clone(&docker), recorded))
        .with_state(docker)
}

/// One event for each request that changes something, as of any front door.
async fn recorded(State(docker): State<Arc<Docker>>, request: Request, next: Next) -> Response<Body> {
    let asked = record::AuditedRequest::inside(CALLER.to_owned(), request.method(), request.uri().path(), "");
    let asked = match record::before(&docker.app, asked) {
        Ok(asked) => asked,
        Err(problem) => return DockerError::from(problem).into_response(),
    };
    let response = next.run(request).await;
    record::after(asked, response.status());
    response
}

/// What Docker has and is not served here is told by name.
async fn unserved(method: Method, uri: Uri) -> DockerError {
    let path = policy::diagnostic::quote(uri.path());
    told(StatusCode::NOT_IMPLEMENTED, format!("fumehood's Docker socket does not serve {method} {path}"))
}

/// Takes `/v1.NN` from the path.
fn unversioned(request: Request) -> Result<Request, DockerError> {
    let (mut parts, body) = request.into_parts();
    let whole = parts.uri.path_and_query().map_or("/", |whole| whole.as_str());
    let Some((version, rest)) = whole.strip_prefix("/v").and_then(|rest| rest.split_once('/')) else {
        return Ok(Request::from_parts(parts, body));
    };
    let number = version.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    let Some(asked) = number else { return Ok(Request::from_parts(parts, body)) };
    if asked > API {
        let message = format!("client version {version} is too new. Maximum supported API version is {API_TEXT}");
        return Err(told(StatusCode::BAD_REQUEST, message));
    }
    if asked < OLDEST {
        let message = format!("client version {version} is too old. Minimum supported API version is {OLDEST_TEXT}");
        return Err(told(StatusCode::BAD_REQUEST, message));
    }
    let rest = format!("/{rest}").parse().map_err(|_unfit| told(StatusCode::BAD_REQUEST, "the path cannot be read"))?;
    parts.uri = rest;
    Ok(Request::from_parts(parts, body))
}

async fn ping() -> Response<Body> {
    let mut response = Response::new(Body::from("OK"));
    let headers = response.headers_mut();
    headers.insert("api-version", HeaderValue::from_static(API_TEXT));
    headers.insert("docker-experimental", HeaderValue::from_static("false"));
    headers.insert("ostype", HeaderValue::from_static("linux"));
    // Clients build by `POST /build` then.
    headers.insert("builder-version", HeaderValue::from_static("1"));
    headers.insert("content-type", HeaderValue::from_static("text/plain"));
    response
}

fn kernel() -> String {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned()
}

async fn version() -> Response<Body> {
    let version = env!("CARGO_PKG_VERSION");
    let body = json!({
        "Platform": { "Name": "fumehood" }, "Version": version, "ApiVersion": API_TEXT, "MinAPIVersion": OLDEST_TEXT,
        "GitCommit": "", "GoVersion": "", "Os": "linux", "Arch": sys::arch::PACKAGED_NAME, "KernelVersion": kernel(),
        "Components": [{ "Name": "fumehood", "Version": version, "Details": { "ApiVersion": API_TEXT } }],
    });
    json_response(StatusCode::OK, &body)
}

async fn info(State(docker): State<Arc<Docker>>) -> HttpResult {
    let all: Vec<Arc<Container>> = locked(&docker.containers).values().cloned().collect();
    let of = |phase| all.iter().filter(|container| container.phase() == phase).count();
    let images = docker.with_images(|images| images.list()).await?.len();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let memory = sys::proc::parse_meminfo(&memory, "MemTotal").unwrap_or(0);
    let body = json!({
        "ID": "fumehood", "Name": "fumehood", "ServerVersion": env!("CARGO_PKG_VERSION"), "Driver": "fumehood",
        "OperatingSystem": "fumehood", "OSType": "linux", "Architecture": std::env::consts::ARCH, "KernelVersion": kernel(),
        "Containers": all.len(), "ContainersRunning": of(container::Phase::Running), "ContainersPaused": 0,
        "ContainersStopped": of(container::Phase::Exited), "Images": images,
        "NCPU": std::thread::available_parallelism().map_or(1, usize::from), "MemTotal": memory,
        "MemoryLimit": true, "SwapLimit": true, "PidsLimit": true, "CPUSet": true, "CpuCfsQuota": true, "CpuCfsPeriod": true,
        "OomKillDisable": false, "IPv4Forwarding": false, "CgroupVersion": "2", "LoggingDriver": "json-file",
        "SecurityOptions": ["name=seccomp,profile=builtin", "name=no-new-privileges"], "Warnings": [],
        "Plugins": { "Volume": [], "Network": [], "Log": ["json-file"] }, "Swarm": { "LocalNodeState": "inactive" },
    });
    Ok(json_response(StatusCode::OK, &body))
}

/// Yes or no in a query: clients of several languages write it in their own way.
fn yes(query: &Query, name: &str) -> Result<bool, DockerError> {
    match query.get(name) {
        None | Some("" | "0" | "false" | "False") => Ok(false),
        Some("1" | "true" | "True") => Ok(true),
        Some(other) => Err(told(StatusCode::BAD_REQUEST, format!("`{name}={other}` is neither true nor false"))),
    }
}

/// The fields of a body; none has none.
async fn fields(request: Request) -> Result<Fields, DockerError> {
    let bytes = read::body(request).await?;
    Ok(crate::json::object(&bytes)?)
}

/// Values by the name of a filter: Docker's clients write lists, older ones tables.
fn filters(query: &Query, known: &[&str]) -> Result<BTreeMap<String, Vec<String>>, DockerError> {
    let text = query.get("filters").filter(|text| !text.is_empty()).unwrap_or("{}");
    let bad = |why: String| told(StatusCode::BAD_REQUEST, format!("filters: {why}"));
    let read: Json = serde_json::from_str(text).map_err(|error| bad(error.to_string()))?;
    let mut found = BTreeMap::new();
    for (name, values) in read.as_object().into_iter().flatten() {
        if !known.contains(&name.as_str()) {
            return Err(bad(format!("`{name}` is not served")));
        }
        let listed = values.as_array().into_iter().flatten().filter_map(|value| value.as_str().map(str::to_owned));
        let keyed = values.as_object().into_iter().flatten().map(|(key, _)| key.clone());
        found.insert(name.clone(), listed.chain(keyed).collect());
    }
    Ok(found)
}
