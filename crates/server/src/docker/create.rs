//! `POST /containers/create`: a body, read, judged against the ceiling, and made a live sandbox that waits for its program.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
use policy::json::hex;
use policy::value::{Policy, Root};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use sandbox::PolicyLayer;
use serde_json::{Map, Value as Json, json};

use super::body::{BodyContext, ContainerSpec, Fields, map};
use super::container::{Container, Phase, Record};
use super::{Docker, DockerError, HttpResult, Refused, fields, locked, told};
use crate::answer::{Problem, json_response};
use crate::app::{self, MAX_LIFE_MS};
use crate::backend::{Image, SandboxRequest};
use crate::ceiling::{self, CeilingResult};
use crate::clock;
use crate::request::Query;

/// The label of a container's sandbox: its id.
pub(super) const LABEL: &str = "fumehood.docker";

/// A name that nobody else takes meanwhile.
struct Name<'a> {
    docker: &'a Docker,
    name: String,
}

impl Drop for Name<'_> {
    fn drop(&mut self) {
        locked(&self.docker.coming).retain(|name| *name != self.name);
    }
}

pub(super) async fn create(State(docker): State<Arc<Docker>>, request: Request) -> HttpResult {
    let query = Query::of(request.uri());
    let name = query.get("name").filter(|name| !name.is_empty()).map(str::to_owned);
    let platform = query.get("platform").unwrap_or_default();
    if !platform.is_empty() && platform.trim_start_matches("linux/") != sys::arch::PACKAGED_NAME {
        return Err(told(
            StatusCode::BAD_REQUEST,
            format!("fumehood refuses platform: `{platform}` is not this machine's"),
        ));
    }
    let body = fields(request).await?;
    let (id, warnings) = docker.create(name, body).await?;
    Ok(json_response(StatusCode::CREATED, &json!({ "Id": id, "Warnings": warnings })))
}

impl Docker {
    async fn create(&self, name: Option<String>, body: Fields) -> Result<(String, Vec<String>), DockerError> {
        let image_name = body.get("Image").and_then(Json::as_str).unwrap_or_default().to_owned();
        let image = self.image(&image_name).await?;
        let id = random(32)?;
        let short = id.get(..12).unwrap_or_default();
        let name = self.reserved(name.unwrap_or_else(|| format!("box_{short}")))?;
        let mapped = self.mapped(&body, &image, short)?;
        let life_ms = self.ceiling.limits.wall.map_or(MAX_LIFE_MS, |wall| wall.0.min(MAX_LIFE_MS));
        let led = self.permitted(mapped.layers.clone(), life_ms).await?;
        let coming = locked(&self.coming).len();
        self.app.has_room(coming)?;
        let wanted = SandboxRequest {
            owner: super::CALLER.to_owned(),
            layers: mapped.layers.iter().cloned().chain(led).collect(),
            no_links: true,
            name: Some(name.name.clone()),
            labels: BTreeMap::from([(LABEL.to_owned(), id.clone())]),
            timeout_ms: Some(life_ms),
            ..SandboxRequest::default()
        };
        let info = self.app.sandboxes.create(wanted).await?;
        let (record, warnings) = record(&id, &name.name, (&image_name, &image), &body, mapped, &info.id);
        match Container::new(&self.folder, record) {
            Ok(container) => {
                locked(&self.containers).insert(id.clone(), Arc::new(container));
                Ok((id, warnings))
            }
            Err(error) => {
                self.app.kill(&info.id).await?;
                Err(told(StatusCode::INTERNAL_SERVER_ERROR, format!("the container cannot be written down: {error}")))
            }
        }
    }

    fn mapped(&self, body: &Fields, image: &Image, hostname: &str) -> Result<ContainerSpec, Refused> {
        // The image's own links lead within it, and never to the host's files.
        let tree = File::open(&image.tree).ok();
        let has = |path: &str| {
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            tree.as_ref().is_some_and(|tree| openat2(tree, path, flags, Mode::empty(), ResolveFlags::IN_ROOT).is_ok())
        };
        map(body, &BodyContext { image, ceiling: &self.ceiling, empty: self.app.empty(), has: &has, hostname })
    }

    /// An image of the store by its name, its digest, or the digits of it that clients show.
    pub(super) async fn image(&self, name: &str) -> Result<Image, DockerError> {
        let word = name.to_owned();
        let found = self.with_images(move |images| images.find(&word)).await?;
        found.ok_or_else(|| told(StatusCode::NOT_FOUND, format!("No such image: {name}")))
    }

    fn reserved(&self, name: String) -> Result<Name<'_>, DockerError> {
        if !live::record::is_name(&name) {
            let why = "a name is 1 to 63 of [a-zA-Z0-9_.-], beginning with a letter or digit, and not like an id";
            return Err(told(StatusCode::BAD_REQUEST, format!("Invalid container name ({name}): {why}")));
        }
        let containers = locked(&self.containers);
        let mut coming = locked(&self.coming);
        let taken = containers.values().find(|known| known.phase() != Phase::Removed && known.record().name == name);
        if taken.is_some() || coming.contains(&name) {
            let by = taken.map_or_else(|| "that is being made".to_owned(), |known| known.record().id);
            let message = format!("Conflict. The container name \"/{name}\" is already in use by container {by}");
            return Err(told(StatusCode::CONFLICT, message));
        }
        coming.push(name.clone());
        drop(coming);
        Ok(Name { docker: self, name })
    }

    /// # Errors
    /// What the policy of these layers asks for beyond the ceiling, and mistakes in it. The root is an image of the caller's own
    /// store: a ceiling does not choose among them. Otherwise the layers that say where its binds lead.
    async fn permitted(&self, layers: Vec<PolicyLayer>, life_ms: u64) -> Result<Vec<PolicyLayer>, DockerError> {
        let (environment, ceiling) = (Arc::clone(self.app.environment()), self.ceiling.clone());
        let ours = vec![self.app.empty().to_owned()];
        let judge = move || -> Result<Vec<PolicyLayer>, Vec<Problem>> {
            let life = PolicyLayer::Flag { name: "--timeout".to_owned(), value: format!("{life_ms}ms") };
            let asked = app::load(&layers.into_iter().chain([life]).collect::<Vec<_>>(), &environment)?.policy;
            let shown = asked.fs.read.iter().chain(&asked.fs.write);
            let is_missing =
                |from: &Path| from.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
            if let Some(from) = shown.map(|grant| grant.from.as_path()).find(|from| is_missing(from)) {
                let (why, instead) = ("nobody here makes a folder of the host", "make it first, or bind another");
                let what = format!("bind source path does not exist: {}", from.display());
                return Err(vec![
                    Problem::new(StatusCode::BAD_REQUEST, "serve/invalid", what, why, instead).about("fs.read"),
                ]);
            }
            let CeilingResult { found, layers } = ceiling::beyond(Some(&below(ceiling, &asked)), &asked, &ours);
            if found.is_empty() { Ok(layers) } else { Err(found) }
        };
        match tokio::task::spawn_blocking(judge).await {
            Ok(judged) => Ok(judged?),
            Err(_lost) => Err(told(StatusCode::INTERNAL_SERVER_ERROR, "the policy could not be judged")),
        }
    }
}

fn below(mut ceiling: Policy, asked: &Policy) -> Policy {
    if let Root::Image(_) = asked.fs.root {
        ceiling.fs.root = asked.fs.root.clone();
    }
    ceiling
}

/// So many random bytes, hexadecimal.
pub(super) fn random(bytes: usize) -> Result<String, DockerError> {
    let mut random = vec![0; bytes];
    if sys::random::fill(&mut random) {
        return Ok(hex(&random));
    }
    Err(told(StatusCode::INTERNAL_SERVER_ERROR, "the kernel gave no random bytes"))
}

/// What is written down, with what the image adds to the body; and the warnings.
fn record(
    id: &str,
    name: &str,
    (image_name, image): (&str, &Image),
    body: &Fields,
    mapped: ContainerSpec,
    sandbox: &str,
) -> (Record, Vec<String>) {
    let ContainerSpec {
        layers: _,
        program,
        labels,
        stop_signal,
        stop_seconds,
        auto_remove,
        stdin_once,
        held,
        warnings,
    } = mapped;
    let mut config: Map<String, Json> = body.clone();
    let host = config.remove("HostConfig").and_then(|host| host.as_object().cloned()).unwrap_or_default();
    config.remove("NetworkingConfig");
    config.insert("Labels".to_owned(), json!(labels));
    config.insert("Image".to_owned(), json!(image_name));
    config.insert("WorkingDir".to_owned(), json!(program.cwd));
    config.insert("Tty".to_owned(), json!(program.tty.is_some()));
    config.insert("OpenStdin".to_owned(), json!(program.stdin));
    let theirs = body.get("Env").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    config.insert("Env".to_owned(), json!(environment(image.env.iter().map(String::as_str).chain(theirs))));
    config.entry("Cmd").or_insert_with(|| json!(image.cmd));
    config.insert("User".to_owned(), json!(held.user));
    let record = Record {
        id: id.to_owned(),
        name: name.to_owned(),
        sandbox: sandbox.to_owned(),
        created_ms: clock::now_ms(),
        image: image_name.to_owned(),
        image_id: image.digest.clone(),
        config: Json::Object(config),
        host: Json::Object(held.shown(host)),
        program,
        labels,
        stop_signal,
        stop_seconds,
        auto_remove,
        stdin_once,
        started_ms: None,
        finished: None,
    };
    (record, warnings)
}

/// Of each variable the last value, in the order of their first ones.
fn environment<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut all: Vec<(&str, &str)> = Vec::new();
    for (name, value) in lines.filter_map(|line| line.split_once('=')) {
        match all.iter_mut().find(|(known, _)| *known == name) {
            Some((_, known)) => *known = value,
            None => all.push((name, value)),
        }
    }
    all.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

/// An answer without a body.
pub(super) fn nothing(status: StatusCode) -> Response<Body> {
    crate::answer::empty(status)
}

#[cfg(test)]
mod tests {
    use super::environment;

    #[test]
    fn each_variable_is_listed_once() {
        let lines = ["PATH=/bin", "A=1", "PATH=/usr/bin", "GONE", "A=", "B=x=y"];
        assert_eq!(environment(lines.into_iter()), ["PATH=/usr/bin", "A=", "B=x=y"]);
    }
}
