//! What a program does, as the events of `Start` and `Connect`.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use live::client::{Incoming, Stream};
use live::words::{Ask, Info, Report, Running};
use serde_json::{Map, Value as Json, json};

use super::Context;
use super::connect::Events;
use crate::app::AppState;
use crate::backend;
use crate::rpc::{RpcCode, RpcError};

/// Bytes of output in one event.
const CHUNK: usize = 32 * 1024;

/// How a program is followed.
#[derive(Clone, Copy, Debug)]
pub(super) struct FollowOptions {
    /// Its output is that of a terminal.
    pub(super) is_terminal: bool,
    /// This call started it.
    pub(super) is_start: bool,
    /// After so long a silence it is said that all is well.
    pub(super) interval: Duration,
}

/// Where a program is.
pub(super) struct Place {
    app: Arc<AppState>,
    id: String,
}

impl Place {
    pub(super) fn of(context: &Context) -> Self {
        Self { app: Arc::clone(&context.app), id: context.id().to_owned() }
    }

    /// Whether the sandbox is there. A supervisor whose sandbox is over tells of the programs first, and answers nothing more; when
    /// that is seen, its end is written down.
    async fn is_there(&self) -> bool {
        backend::call::<Info>(&*self.app.sandboxes, &self.id, &Ask::Info {}).await.is_ok()
    }
}

/// Sends what a program does until it ends, or nobody reads any more. It lives on then.
pub(super) async fn follow(mut stream: Stream, events: Events, place: Place, options: FollowOptions) {
    let running = match backend::reply::<Running>(&mut stream).await {
        Ok(running) => running,
        Err(failure) => return events.end(Err(not_started(failure, options))).await,
    };
    let is_terminal = options.is_terminal || running.program.tty.is_some();
    if !events.send(&json!({ "event": { "start": { "pid": running.pid } } })).await {
        return;
    }
    loop {
        let incoming = tokio::select! {
            () = events.closed() => return,
            incoming = tokio::time::timeout(options.interval, stream.next()) => incoming,
        };
        let sent = match incoming {
            Err(_silence) => events.send(&json!({ "event": { "keepalive": {} } })).await,
            Ok(Some(Incoming::Out(bytes))) => data(&events, if is_terminal { "pty" } else { "stdout" }, &bytes).await,
            Ok(Some(Incoming::Err(bytes))) => data(&events, "stderr", &bytes).await,
            Ok(Some(Incoming::Event(_))) => true,
            Ok(Some(Incoming::End(end))) => return finish(events, end, &place).await,
            Ok(None) => return events.end(Err(backend::gone().into())).await,
        };
        if !sent {
            return;
        }
    }
}

fn not_started(failure: agent::words::Failure, options: FollowOptions) -> RpcError {
    let no_cwd = failure.code == agent::words::Code::NoCwd;
    let missing = options.is_start && failure.code == agent::words::Code::NotFound;
    let error = RpcError::from(failure);
    // What is missing is the program, and no process of ours.
    if missing || no_cwd { RpcError { code: RpcCode::InvalidArgument, ..error } } else { error }
}

async fn data(events: &Events, lane: &str, bytes: &[u8]) -> bool {
    for chunk in bytes.chunks(CHUNK) {
        let mut table = Map::new();
        table.insert(lane.to_owned(), json!(STANDARD.encode(chunk)));
        if !events.send(&json!({ "event": { "data": table } })).await {
            return false;
        }
    }
    true
}

async fn finish(events: Events, end: Result<Json, agent::words::Failure>, place: &Place) {
    let report = match end.and_then(backend::read::<Report>) {
        Ok(report) => report,
        Err(failure) => return events.end(Err(failure.into())).await,
    };
    // What ended with its sandbox has no end of its own to tell of. 137 is what a shell says of a child that was killed.
    if matches!(report.code, None | Some(137)) && !place.is_there().await {
        return events.end(Err(backend::gone().into())).await;
    }
    if report.limit.as_deref() == Some("wall") {
        return events.end(Err(RpcError::new(RpcCode::DeadlineExceeded, report.message))).await;
    }
    if events.send(&json!({ "event": { "end": ended(&report) } })).await {
        events.end(Ok(())).await;
    }
}

/// `exitCode` of what a signal ended is -1; a limit says itself in `error`, and what to do instead.
fn ended(report: &Report) -> Json {
    let own =
        report.violations.iter().find(|one| Some(one.clause.trim_start_matches("limits.")) == report.limit.as_deref());
    let instead = own.map(|one| format!(": {}", one.instead)).unwrap_or_default();
    let limit = report.limit.as_ref().map(|_| format!("killed: {}{instead}", report.message));
    match (report.code, report.signal) {
        (Some(0), _) if limit.is_none() => json!({ "exited": true, "status": "exit status 0" }),
        (Some(code), _) => {
            let status = format!("exit status {code}");
            json!({ "exitCode": code, "exited": true, "status": status, "error": limit.unwrap_or_else(|| status.clone()) })
        }
        (None, signal) => {
            let status = format!("signal: {}", signal.map_or_else(|| "killed".to_owned(), signal_name));
            json!({ "exitCode": -1, "status": status, "error": limit.unwrap_or_else(|| status.clone()) })
        }
    }
}

/// As Go names them.
fn signal_name(number: i32) -> String {
    let names = [
        (1, "hangup"),
        (2, "interrupt"),
        (3, "quit"),
        (4, "illegal instruction"),
        (6, "aborted"),
        (7, "bus error"),
        (8, "floating point exception"),
        (9, "killed"),
        (11, "segmentation fault"),
        (13, "broken pipe"),
        (14, "alarm clock"),
        (15, "terminated"),
    ];
    let known = names.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("signal {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(code: Option<i32>, signal: Option<i32>, limit: Option<&str>) -> Report {
        serde_json::from_value(json!({
            "outcome": "exited", "code": code, "signal": signal, "limit": limit, "message": "memory limit 512 MiB", "wall": 0.0,
            "cpu_user": 0.0, "cpu_system": 0.0, "memory_peak": 0, "output": 0, "dropped": 0,
        }))
        .unwrap()
    }

    #[test]
    fn an_end_is_written_as_clients_read_it() {
        assert_eq!(ended(&report(Some(0), None, None)), json!({ "exited": true, "status": "exit status 0" }));
        let three = json!({ "exitCode": 3, "exited": true, "status": "exit status 3", "error": "exit status 3" });
        assert_eq!(ended(&report(Some(3), None, None)), three);
        let killed = json!({ "exitCode": -1, "status": "signal: killed", "error": "signal: killed" });
        assert_eq!(ended(&report(None, Some(9), None)), killed);
        let mut full = report(None, Some(9), Some("memory"));
        assert_eq!(ended(&full)["error"], "killed: memory limit 512 MiB");
        let said = json!([{
            "id": "limits.memory/oom", "clause": "limits.memory", "what": "more", "why": "512M", "instead": "use less", "count": 1,
            "seen": "kernel",
        }]);
        full.violations = serde_json::from_value(said).unwrap();
        assert_eq!(ended(&full)["error"], "killed: memory limit 512 MiB: use less");
    }
}
