//! `process.Process`: programs.

use agent::words::{Program, Size};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::words::{Ask, Exec, Programs, Running, Which};
use serde_json::{Map, Value as Json, json};

use super::connect::{Messages, deadline_ms, keepalive, message, streaming, unary};
use super::convert::{Message, field, flag, invalid, number, table, text, which};
use super::{Context, program};
use crate::rpc::{RpcCode, RpcError};
use crate::{backend, labels};

/// Answers a method.
pub(super) async fn answer(context: &Context, method: &str, request: Request) -> Response<Body> {
    if request.method() != axum::http::Method::POST {
        return super::plain(axum::http::StatusCode::METHOD_NOT_ALLOWED, "calls are POST requests");
    }
    let called = match method {
        "Start" | "Connect" => return watched(context, method == "Start", request).await,
        "List" => list(context, request).await,
        "SendInput" => send_input(context, request).await,
        "StreamInput" => stream_input(context, request).await,
        "CloseStdin" => close_input(context, request).await,
        "SendSignal" => signal(context, request).await,
        "Update" => resize(context, request).await,
        _ => Err(RpcError::new(RpcCode::Unimplemented, "there is no such method")),
    };
    // The only client stream is answered in envelopes.
    match (method, called) {
        ("StreamInput", called) => {
            let (events, response) = streaming(context.app.cut_of(context.id()));
            tokio::spawn(async move {
                match called {
                    Ok(answer) => {
                        if events.send(&answer).await {
                            events.end(Ok(())).await;
                        }
                    }
                    Err(error) => events.end(Err(error)).await,
                }
            });
            response
        }
        (_, called) => unary(context.id(), called),
    }
}

/// `Start` and `Connect`: a stream of what a program does.
async fn watched(context: &Context, is_start: bool, request: Request) -> Response<Body> {
    let interval = keepalive(request.headers());
    let headers = request.headers().clone();
    let (events, response) = streaming(context.app.cut_of(context.id()));
    let ask = async {
        context.check_user(&headers, None).map_err(|why| RpcError::new(RpcCode::Unauthenticated, why))?;
        let message = Messages::of(request)?.next().await?.ok_or_else(|| invalid("there is no message"))?;
        if is_start {
            Ok((Ask::Exec(exec(context, &message, &headers)?), table(&message, "pty")?.is_some()))
        } else {
            Ok((Ask::Attach { which: which(&message)? }, false))
        }
    };
    let (ask, is_terminal) = match ask.await {
        Ok(asked) => asked,
        Err(error) => {
            tokio::spawn(events.end(Err(error)));
            return response;
        }
    };
    if is_start {
        context.app.meters.exec();
    }
    let opened = backend::open(&*context.app.sandboxes, context.id(), &ask).await;
    match opened {
        Ok(stream) => {
            let options = program::FollowOptions { is_terminal, is_start, interval };
            tokio::spawn(program::follow(stream, events, program::Place::of(context), options))
        }
        Err(failure) => tokio::spawn(events.end(Err(failure.into()))),
    };
    response
}

fn exec(context: &Context, message: &Message, headers: &HeaderMap) -> Result<Exec, RpcError> {
    let process = table(message, "process")?.ok_or_else(|| invalid("`process` is missing"))?;
    let command = text(process, "cmd")?;
    if command.is_empty() {
        return Err(invalid("`process.cmd` is missing"));
    }
    let mut argv = vec![command.to_owned()];
    for argument in list_of(process, "args")? {
        argv.push(argument);
    }
    let mut env = std::collections::BTreeMap::new();
    for (name, value) in table(process, "envs")?.into_iter().flatten() {
        let value = value.as_str().ok_or_else(|| invalid(format!("`envs.{name}` is no text")))?;
        env.insert(name.clone(), value.to_owned());
    }
    let tty = match table(message, "pty")? {
        Some(pty) => Some(size(pty)?),
        None => None,
    };
    let cwd = Some(match (text(process, "cwd")?, context.info.labels.get(labels::WORKDIR)) {
        ("", Some(workdir)) => workdir.clone(),
        (cwd, _) => folder(&context.hello().home, cwd),
    });
    // Clients that do not say it write to programs.
    let stdin = flag(message, "stdin")?.unwrap_or(true);
    let tag = text(message, "tag")?;
    Ok(Exec {
        program: Program { argv, env, cwd, tty, stdin },
        timeout_ms: deadline_ms(headers),
        detach: true,
        tag: (!tag.is_empty()).then(|| tag.to_owned()),
    })
}

/// A working directory: absolute, or below the home folder, which is also the default.
pub(super) fn folder(home: &str, cwd: &str) -> String {
    match cwd.strip_prefix('~').map_or((false, cwd), |rest| (true, rest)) {
        (true, rest) => format!("{home}{rest}"),
        (false, "") => home.to_owned(),
        (false, absolute) if absolute.starts_with('/') => absolute.to_owned(),
        (false, relative) => format!("{home}/{relative}"),
    }
}

fn list_of(message: &Message, name: &str) -> Result<Vec<String>, RpcError> {
    match field(message, name) {
        None => Ok(Vec::new()),
        Some(Json::Array(items)) => {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect::<Option<_>>().ok_or_else(|| invalid(format!("`{name}` is no list of texts")))
        }
        Some(_) => Err(invalid(format!("`{name}` is no list of texts"))),
    }
}

fn size(pty: &Message) -> Result<Size, RpcError> {
    let none = Map::new();
    let size = table(pty, "size")?.unwrap_or(&none);
    let side = |name: &str, default: u16| {
        let number = number(size, name)?.map_or(Ok(default), u16::try_from);
        number.ok().filter(|number| *number > 0).ok_or_else(|| invalid(format!("`size.{name}` is no size")))
    };
    Ok(Size { rows: side("rows", 24)?, cols: side("cols", 80)? })
}

async fn ask(context: &Context, ask: &Ask) -> Result<Json, RpcError> {
    backend::call::<Json>(&*context.app.sandboxes, context.id(), ask).await?;
    Ok(json!({}))
}

async fn list(context: &Context, request: Request) -> Result<Json, RpcError> {
    message(request).await?;
    let all = backend::call::<Programs>(&*context.app.sandboxes, context.id(), &Ask::Programs {}).await?;
    let running = all.programs.iter().filter(|program| program.report.is_none());
    Ok(json!({ "processes": running.map(shown).collect::<Vec<_>>() }))
}

fn shown(running: &Running) -> Json {
    let Program { argv, env, cwd, .. } = &running.program;
    let (command, arguments) = argv.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let mut shown = json!({ "config": { "cmd": command, "args": arguments, "envs": env }, "pid": running.pid });
    if let (Some(cwd), Some(config)) = (cwd, shown.get_mut("config").and_then(Json::as_object_mut)) {
        config.insert("cwd".to_owned(), json!(cwd));
    }
    if let (Some(tag), Some(shown)) = (&running.tag, shown.as_object_mut()) {
        shown.insert("tag".to_owned(), json!(tag));
    }
    shown
}

/// What is to be written to a program, checked, as the supervisor wants it.
fn input(which: Which, message: &Message) -> Result<Ask, RpcError> {
    let input = table(message, "input")?.ok_or_else(|| invalid("`input` is missing"))?;
    let (bytes, tty) = match (text(input, "stdin")?, text(input, "pty")?) {
        ("", "") => ("", false),
        ("", pty) => (pty, true),
        (stdin, _) => (stdin, false),
    };
    STANDARD.decode(bytes).map_err(|error| invalid(format!("`input` is no base64: {error}")))?;
    Ok(Ask::Input { which, bytes: bytes.to_owned(), tty })
}

async fn send_input(context: &Context, request: Request) -> Result<Json, RpcError> {
    let message = message(request).await?;
    write(context, &input(which(&message)?, &message)?).await
}

/// Writing to a program that takes no input is a failure of the call, as upstream has it.
async fn write(context: &Context, what: &Ask) -> Result<Json, RpcError> {
    ask(context, what).await.map_err(|error| match error.code {
        RpcCode::InvalidArgument => RpcError { code: RpcCode::Internal, ..error },
        RpcCode::Unauthenticated
        | RpcCode::PermissionDenied
        | RpcCode::NotFound
        | RpcCode::AlreadyExists
        | RpcCode::ResourceExhausted
        | RpcCode::Unimplemented
        | RpcCode::Internal
        | RpcCode::DeadlineExceeded
        | RpcCode::Canceled
        | RpcCode::Gone => error,
    })
}

/// The first message says of which program, the others what to write, in order.
async fn stream_input(context: &Context, request: Request) -> Result<Json, RpcError> {
    let mut messages = Messages::of(request)?;
    let mut chosen = None;
    while let Some(message) = messages.next().await? {
        if let Some(start) = table(&message, "start")? {
            chosen = Some(which(start)?);
        } else if let Some(data) = table(&message, "data")? {
            let which = chosen.clone().ok_or_else(|| invalid("the first message is not `start`"))?;
            write(context, &input(which, data)?).await?;
        }
    }
    Ok(json!({}))
}

async fn close_input(context: &Context, request: Request) -> Result<Json, RpcError> {
    let which = which(&message(request).await?)?;
    write(context, &Ask::CloseInput { which }).await
}

async fn signal(context: &Context, request: Request) -> Result<Json, RpcError> {
    let message = message(request).await?;
    let number = match field(&message, "signal") {
        Some(Json::String(name)) if name == "SIGNAL_SIGKILL" => 9,
        Some(Json::String(name)) if name == "SIGNAL_SIGTERM" => 15,
        Some(Json::Number(number)) if matches!(number.as_u64(), Some(9 | 15)) => {
            u8::try_from(number.as_u64().unwrap_or(15)).unwrap_or(15)
        }
        Some(_) | None => return Err(invalid("`signal` is SIGNAL_SIGKILL or SIGNAL_SIGTERM")),
    };
    // Nothing that a killed program started is left behind.
    ask(context, &Ask::Signal { which: which(&message)?, number, tree: number == 9 }).await
}

async fn resize(context: &Context, request: Request) -> Result<Json, RpcError> {
    let message = message(request).await?;
    let which = which(&message)?;
    match table(&message, "pty")? {
        Some(pty) => ask(context, &Ask::Resize { which, size: size(pty)? }).await,
        None => Ok(json!({})),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_working_directory_belongs_to_the_home_folder() {
        for (cwd, expected) in
            [("", "/home/u"), ("~", "/home/u"), ("~/a", "/home/u/a"), ("a/b", "/home/u/a/b"), ("/x", "/x")]
        {
            assert_eq!(folder("/home/u", cwd), expected);
        }
    }
}
