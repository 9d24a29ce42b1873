//! Requests about containers: looking, starting, waiting, ending.

use std::sync::Arc;
use std::time::Duration;

use agent::words::{Processes, Request as Inside};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use live::words::{Ask, Info, Which};
use serde_json::{Value as Json, json};
use tokio_stream::wrappers::ReceiverStream;

use super::body::signal;
use super::container::{Container, MAIN, Phase};
use super::create::nothing;
use super::{Docker, DockerError, HttpResult, filters, locked, told, yes};
use crate::answer::json_response;
use crate::backend;
use crate::request::Query;

const KILL: u8 = 9;
/// How long the end of a killed program is waited for.
const KILLED: Duration = Duration::from_secs(10);

type DockerState = State<Arc<Docker>>;

pub(super) async fn list(State(docker): DockerState, uri: Uri) -> HttpResult {
    let query = Query::of(&uri);
    let filters = filters(&query, &["id", "name", "label", "status", "ancestor", "exited"])?;
    let all = yes(&query, "all")? || filters.contains_key("status") || filters.contains_key("exited");
    let limit = query.get("limit").and_then(|limit| limit.parse::<usize>().ok()).unwrap_or(0);
    let mut containers: Vec<Arc<Container>> = locked(&docker.containers).values().cloned().collect();
    containers.sort_by_key(|container| std::cmp::Reverse(container.record().created_ms));
    let mut listed = Vec::new();
    for container in containers {
        let record = container.record();
        let status = docker.status(&container, &record).await;
        if !all && limit == 0 && !matches!(status, "running" | "paused") {
            continue;
        }
        let has_label = |wanted: &String| match wanted.split_once('=') {
            Some((name, value)) => record.labels.get(name).is_some_and(|known| known == value),
            None => record.labels.contains_key(wanted),
        };
        let code = container.exit_code().to_string();
        let fits = filters.iter().all(|(name, values)| match name.as_str() {
            "id" => values.iter().any(|value| record.id.starts_with(value)),
            "name" => values.iter().any(|value| record.name.contains(value.trim_start_matches('/'))),
            "label" => values.iter().all(has_label),
            "status" => values.iter().any(|value| value == status),
            "ancestor" => values.iter().any(|value| *value == record.image || *value == record.image_id),
            _ => status == "exited" && values.contains(&code),
        });
        if fits {
            listed.push(docker.listed(&container).await);
        }
        if limit > 0 && listed.len() >= limit {
            break;
        }
    }
    Ok(json_response(StatusCode::OK, &Json::Array(listed)))
}

pub(super) async fn inspect(State(docker): DockerState, Path(word): Path<String>) -> HttpResult {
    let container = docker.find(&word)?;
    Ok(json_response(StatusCode::OK, &docker.inspected(&container).await))
}

pub(super) async fn start(State(docker): DockerState, Path(word): Path<String>) -> HttpResult {
    let container = docker.find(&word)?;
    let began = docker.start(&container).await?;
    Ok(nothing(if began { StatusCode::NO_CONTENT } else { StatusCode::NOT_MODIFIED }))
}

/// The head of the answer goes out at once: clients take it for the sign that they are heard. Its body is the end.
pub(super) async fn wait(State(docker): DockerState, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let condition = Query::of(&uri).get("condition").unwrap_or("not-running").to_owned();
    let mut phase = container.phase.subscribe();
    let now = *phase.borrow_and_update();
    let goal = match condition.as_str() {
        "" | "not-running" => None,
        "next-exit" => Some(Phase::Exited),
        "removed" => Some(Phase::Removed),
        other => return Err(told(StatusCode::BAD_REQUEST, format!("invalid condition: `{other}`"))),
    };
    let (to, from) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let is_over = |phase: &Phase| match goal {
            None => *phase != Phase::Running,
            Some(Phase::Removed) => *phase == Phase::Removed,
            Some(_) => *phase == Phase::Removed || (*phase == Phase::Exited && now != Phase::Exited),
        };
        tokio::select! {
            () = to.closed() => return,
            _ = phase.wait_for(is_over) => {}
        }
        let body = json!({ "StatusCode": container.exit_code(), "Error": null });
        if to.send(Ok(Bytes::from(format!("{body}\n")))).await.is_err() {
            // Who waited has gone.
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(from)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

impl Docker {
    /// Signals the main program; with KILL all that descends from it.
    async fn signal(&self, container: &Container, number: u8) -> Result<(), DockerError> {
        let record = container.record();
        if container.phase() != Phase::Running {
            let message = format!("cannot kill container: {}: container {} is not running", record.name, record.id);
            return Err(told(StatusCode::CONFLICT, message));
        }
        // A program that is frozen hears nothing: Docker wakes it too.
        if self.status(container, &record).await == "paused" {
            backend::call::<Info>(&*self.app.sandboxes, &record.sandbox, &Ask::Resume {}).await?;
        }
        let ask = Ask::Signal { which: Which::Tag(MAIN.to_owned()), number, tree: number == KILL };
        match backend::call::<Json>(&*self.app.sandboxes, &record.sandbox, &ask).await {
            Ok(_) => Ok(()),
            // It ended meanwhile; whoever keeps it hears of that.
            Err(failure) if failure.code == agent::words::Code::NotFound => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }

    /// Whether it ended within this time.
    async fn ends_within(container: &Container, time: Duration) -> bool {
        let mut phase = container.phase.subscribe();
        let over = phase.wait_for(|phase| *phase != Phase::Running);
        tokio::time::timeout(time, over).await.is_ok()
    }
}

pub(super) async fn kill(State(docker): DockerState, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let query = Query::of(&uri);
    let word = query.get("signal").filter(|word| !word.is_empty()).unwrap_or("KILL");
    let number = signal(word).ok_or_else(|| told(StatusCode::BAD_REQUEST, format!("invalid signal: {word}")))?;
    docker.signal(&container, number).await?;
    if number == KILL {
        Docker::ends_within(&container, KILLED).await;
    }
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn stop(State(docker): DockerState, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    if container.phase() != Phase::Running {
        return Ok(nothing(StatusCode::NOT_MODIFIED));
    }
    let record = container.record();
    let query = Query::of(&uri);
    let asked = query.get("t").and_then(|text| text.parse::<i64>().ok());
    let seconds = asked.map_or(record.stop_seconds, |seconds| u64::try_from(seconds).unwrap_or(u64::from(u32::MAX)));
    docker.signal(&container, record.stop_signal).await?;
    if !Docker::ends_within(&container, Duration::from_secs(seconds)).await && container.phase() == Phase::Running {
        docker.signal(&container, KILL).await?;
        Docker::ends_within(&container, KILLED).await;
    }
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn remove(State(docker): DockerState, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let query = Query::of(&uri);
    if yes(&query, "link")? {
        return Err(told(StatusCode::BAD_REQUEST, "fumehood refuses link: there are no links between containers"));
    }
    if container.phase() == Phase::Running && !yes(&query, "force")? {
        let record = container.record();
        let message = format!(
            "cannot remove container \"/{}\": container is running: stop the container before removing or force remove",
            record.name
        );
        return Err(told(StatusCode::CONFLICT, message));
    }
    docker.remove(&container).await?;
    Ok(nothing(StatusCode::NO_CONTENT))
}

pub(super) async fn pause(State(docker): DockerState, Path(word): Path<String>) -> HttpResult {
    docker.frozen(&word, &Ask::Pause {}, "running").await
}

pub(super) async fn unpause(State(docker): DockerState, Path(word): Path<String>) -> HttpResult {
    docker.frozen(&word, &Ask::Resume {}, "paused").await
}

impl Docker {
    async fn frozen(&self, word: &str, ask: &Ask, must_be: &str) -> HttpResult {
        let container = self.find(word)?;
        let _turn = container.turn.lock().await;
        let record = container.record();
        if self.status(&container, &record).await != must_be {
            return Err(told(StatusCode::CONFLICT, format!("Container {} is not {must_be}", record.id)));
        }
        backend::call::<Info>(&*self.app.sandboxes, &record.sandbox, ask).await?;
        Ok(nothing(StatusCode::NO_CONTENT))
    }
}

pub(super) async fn top(State(docker): DockerState, Path(word): Path<String>) -> HttpResult {
    let container = docker.find(&word)?;
    let record = container.record();
    if container.phase() != Phase::Running {
        return Err(told(StatusCode::CONFLICT, format!("Container {} is not running", record.id)));
    }
    let all = backend::call::<Processes>(&*docker.app.sandboxes, &record.sandbox, &Inside::Processes {}).await?;
    let row = |process: agent::words::Process| {
        json!([process.pid.to_string(), process.parent.to_string(), process.state, process.argv.join(" ")])
    };
    let rows: Vec<Json> = all.processes.into_iter().map(row).collect();
    Ok(json_response(StatusCode::OK, &json!({ "Titles": ["PID", "PPID", "STAT", "CMD"], "Processes": rows })))
}
