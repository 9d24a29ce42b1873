//! Further programs in a container: made, started once, asked about.

use std::sync::{Arc, Mutex};

use agent::words::{Code, Failure, Program, Size};
use axum::extract::{Path, Request, State};
use axum::http::{StatusCode, Uri};
use live::client::{Incoming, Sender, Stream};
use live::words::{Ask, Exec as Asked, Report, Running};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::body::{Fields, Reader, inside, says_nothing};
use super::container::{Finished, Phase};
use super::create::{nothing, random};
use super::host::console;
use super::log::Lane;
use super::output::{Wire, can_be_taken_over, put, size, taken_over};
use super::{Docker, DockerError, HttpResult, Refused, fields, locked, told};
use crate::answer::json_response;
use crate::backend;

/// Most that are known at once: those that ended first are forgotten.
const MAX_EXECS: usize = 4096;
const SIZE: Size = Size { rows: 24, cols: 80 };

/// A program that was made.
#[derive(Debug)]
pub(super) struct Exec {
    pub(super) id: String,
    /// Its container's id.
    pub(super) container: String,
    program: Program,
    /// Whether its output and its errors are wanted.
    lanes: (bool, bool),
    doing: Mutex<Doing>,
}

#[derive(Debug, Default)]
struct Doing {
    started: bool,
    running: bool,
    pid: u32,
    code: Option<i32>,
    sender: Option<Sender>,
}

pub(super) async fn create(
    State(docker): State<Arc<Docker>>,
    Path(word): Path<String>,
    request: Request,
) -> HttpResult {
    let container = docker.find(&word)?;
    let record = container.record();
    if container.phase() != Phase::Running {
        return Err(told(StatusCode::CONFLICT, format!("container {} is not running", record.id)));
    }
    let body = fields(request).await?;
    let user = record.config.get("User").and_then(Json::as_str).unwrap_or_default();
    let (program, lanes) = program(&body, &record.program, user)?;
    let exec = Exec { id: random(32)?, container: record.id, program, lanes, doing: Mutex::default() };
    let id = exec.id.clone();
    let mut execs = locked(&docker.execs);
    if execs.len() >= MAX_EXECS {
        execs.retain(|_, exec| locked(&exec.doing).running || !locked(&exec.doing).started);
    }
    if execs.len() >= MAX_EXECS {
        return Err(told(StatusCode::TOO_MANY_REQUESTS, format!("{MAX_EXECS} programs are made or running")));
    }
    execs.insert(id.clone(), Arc::new(exec));
    Ok(json_response(StatusCode::CREATED, &json!({ "Id": id })))
}

/// What a body asks for, in a container whose main program and user are these.
fn program(body: &Fields, main: &Program, user: &str) -> Result<(Program, (bool, bool)), Refused> {
    let read = Reader { fields: body, table: "" };
    read.others_say_nothing(&[
        "AttachStdin",
        "AttachStdout",
        "AttachStderr",
        "Cmd",
        "ConsoleSize",
        "DetachKeys",
        "Env",
        "Tty",
        "User",
        "WorkingDir",
        "Detach",
        "Container",
    ])?;
    if read.text("User")?.is_some_and(|asked| asked != user) {
        let why = "all programs of a container are of the container's one user; leave it out";
        return Err(Refused::new("User", why));
    }
    let argv = read.list("Cmd")?;
    if argv.is_empty() {
        return Err(Refused::new("Cmd", "no exec command specified"));
    }
    let cwd = match read.text("WorkingDir")? {
        None => main.cwd.clone(),
        Some(path) => match inside(path) {
            Some(path) => Some(path),
            None => return Err(Refused::new("WorkingDir", format!("`{path}` is no absolute path without `..`"))),
        },
    };
    let pair = |line: String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
    let tty = read.flag("Tty")?.then(|| console(&read).unwrap_or(SIZE));
    let program = Program {
        argv,
        env: read.list("Env")?.into_iter().filter_map(pair).collect(),
        cwd,
        tty,
        stdin: read.flag("AttachStdin")?,
    };
    Ok((program, (read.flag("AttachStdout")?, read.flag("AttachStderr")?)))
}

impl Docker {
    fn exec(&self, id: &str) -> Result<Arc<Exec>, DockerError> {
        let known = locked(&self.execs).get(id).cloned();
        known.ok_or_else(|| told(StatusCode::NOT_FOUND, format!("No such exec instance: {id}")))
    }
}

pub(super) async fn start(State(docker): State<Arc<Docker>>, Path(id): Path<String>, request: Request) -> HttpResult {
    let exec = docker.exec(&id)?;
    let container = docker.find(&exec.container)?;
    let (parts, body) = request.into_parts();
    let headers_only = Request::from_parts(parts.clone(), axum::body::Body::empty());
    let asked = fields(Request::from_parts(parts, body)).await?;
    let is_detached = asked.get("Detach").and_then(Json::as_bool).unwrap_or(false);
    if asked.get("Tty").is_some_and(|tty| !says_nothing(tty)) && exec.program.tty.is_none() {
        return Err(Refused::new("Tty", "the program was made without a terminal").into());
    }
    if !is_detached {
        can_be_taken_over(&headers_only)?;
    }
    if std::mem::replace(&mut locked(&exec.doing).started, true) {
        return Err(told(StatusCode::CONFLICT, format!("exec {id} was started already")));
    }
    if container.phase() != Phase::Running {
        return Err(told(StatusCode::CONFLICT, format!("container {} is not running", exec.container)));
    }
    docker.app.meters.exec();
    // It goes on without whoever asked for it, as Docker's do.
    let program = Asked { program: exec.program.clone(), timeout_ms: None, detach: true, tag: None };
    let mut stream = backend::open(&*docker.app.sandboxes, &container.record().sandbox, &Ask::Exec(program)).await?;
    let raw = exec.program.tty.is_some();
    match backend::reply::<Running>(&mut stream).await {
        Ok(running) => {
            let mut doing = locked(&exec.doing);
            doing.pid = running.pid;
            doing.running = true;
            doing.sender = Some(stream.sender());
        }
        // What is missing is a program that ended at once with 127, for Docker's clients.
        Err(failure) if matches!(failure.code, Code::NotFound | Code::NotExecutable) && !is_detached => {
            locked(&exec.doing).code = Some(Finished::not_begun(&failure).code);
            let message = format!("exec failed: {failure}\r\n");
            return taken_over(headers_only, raw, move |mut wire| async move {
                let sent = put(&mut wire, Lane::Out, raw, message.as_bytes()).await;
                drop((sent, wire.shutdown().await));
            });
        }
        Err(failure) => return Err(failure.into()),
    }
    if is_detached {
        tokio::spawn(follow(exec, stream, None));
        return Ok(nothing(StatusCode::OK));
    }
    taken_over(headers_only, raw, move |wire| follow(exec, stream, Some(wire)))
}

/// Carries both ways until the program ends; its code is known before the connection is closed.
async fn follow(exec: Arc<Exec>, mut stream: Stream, wire: Option<Wire>) {
    let (from, mut to) = match wire.map(tokio::io::split) {
        Some((from, to)) => (Some(from), Some(to)),
        None => (None, None),
    };
    let sender = stream.sender();
    let reads = exec.program.stdin || exec.program.tty.is_some();
    let typing = from.filter(|_| reads).map(|mut from| {
        tokio::spawn(async move {
            let mut buffer = vec![0; 16 * 1024];
            while let Ok(count @ 1..) = from.read(&mut buffer).await {
                if sender.send(buffer.get(..count).unwrap_or_default()).await.is_err() {
                    return;
                }
            }
            if sender.eof().is_err() {
                // It has ended.
            }
        })
    });
    let raw = exec.program.tty.is_some();
    let ended = loop {
        let (lane, wanted, bytes) = match stream.next().await {
            Some(Incoming::Out(bytes)) => (Lane::Out, exec.lanes.0, bytes),
            Some(Incoming::Err(bytes)) => (Lane::Err, exec.lanes.1, bytes),
            Some(Incoming::Event(_)) => continue,
            Some(Incoming::End(ended)) => break ended,
            None => break Err(backend::gone()),
        };
        if let Some(open) = to.as_mut().filter(|_| wanted)
            && put(open, lane, raw, &bytes).await.is_err()
        {
            to = None;
        }
    };
    exec.ended(ended);
    if let Some(typing) = typing {
        typing.abort();
    }
    if let Some(mut to) = to
        && to.shutdown().await.is_err()
    {
        // Nobody reads.
    }
}

impl Exec {
    fn ended(&self, ended: Result<Json, Failure>) {
        let report = ended.and_then(backend::read::<Report>);
        let finished = report.map_or_else(|_gone| Finished::with_sandbox(None, None), |report| Finished::of(&report));
        let mut doing = locked(&self.doing);
        doing.running = false;
        doing.sender = None;
        doing.code = Some(finished.code);
    }
}

pub(super) async fn inspect(State(docker): State<Arc<Docker>>, Path(id): Path<String>) -> HttpResult {
    let exec = docker.exec(&id)?;
    let doing = locked(&exec.doing);
    let program = &exec.program;
    let body = json!({
        "ID": exec.id, "ContainerID": exec.container, "Running": doing.running, "ExitCode": doing.code, "Pid": doing.pid,
        "OpenStdin": program.stdin, "OpenStdout": exec.lanes.0, "OpenStderr": exec.lanes.1, "CanRemove": false, "DetachKeys": "",
        "ProcessConfig": {
            "tty": program.tty.is_some(), "entrypoint": program.argv.first(),
            "arguments": program.argv.get(1..).unwrap_or_default(), "privileged": false,
        },
    });
    drop(doing);
    Ok(json_response(StatusCode::OK, &body))
}

pub(super) async fn resize(State(docker): State<Arc<Docker>>, Path(id): Path<String>, uri: Uri) -> HttpResult {
    let exec = docker.exec(&id)?;
    let size = size(&uri)?;
    let sender = locked(&exec.doing).sender.clone();
    if sender.is_some_and(|sender| sender.control(&size).is_ok()) {
        return Ok(nothing(StatusCode::OK));
    }
    Err(told(StatusCode::CONFLICT, format!("exec {id} has no terminal now")))
}
