//! What a container uses, once or each second.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderValue, Response, StatusCode, Uri, header};
use live::words::{Ask, Info};
use serde_json::{Map, Value as Json, json};
use tokio_stream::wrappers::ReceiverStream;

use super::container::{Container, Phase};
use super::{Docker, HttpResult, yes};
use crate::answer::json_response;
use crate::request::Query;
use crate::{backend, clock};

const EVERY: Duration = Duration::from_secs(1);

pub(super) async fn stats(State(docker): State<Arc<Docker>>, Path(word): Path<String>, uri: Uri) -> HttpResult {
    let container = docker.find(&word)?;
    let query = Query::of(&uri);
    // Docker streams unless it is told not to.
    let streams = query.get("stream").is_none() || yes(&query, "stream")?;
    let first = docker.sample(&container).await;
    if !streams {
        let before = first.clone();
        let now = if yes(&query, "one-shot")? || container.phase() != Phase::Running {
            first
        } else {
            tokio::time::sleep(EVERY).await;
            docker.sample(&container).await
        };
        return Ok(json_response(StatusCode::OK, &shown(&container, &before, &now)));
    }
    let (to, from) = tokio::sync::mpsc::channel::<Result<Bytes, std::io::Error>>(1);
    tokio::spawn(async move {
        let mut before = first.clone();
        let mut now = first;
        loop {
            let line = format!("{}\n", shown(&container, &before, &now));
            if to.send(Ok(Bytes::from(line))).await.is_err() || container.phase() == Phase::Removed {
                return;
            }
            tokio::select! {
                () = to.closed() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            before = now;
            now = docker.sample(&container).await;
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(from)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// What was used up to a moment.
#[derive(Clone, Debug, Default)]
struct Sample {
    at_ms: i64,
    usage: Json,
    memory_limit: u64,
    /// Time of all processors of the host, nanoseconds.
    system: u64,
}

impl Docker {
    /// Nothing, where it does not run any more.
    async fn sample(&self, container: &Container) -> Sample {
        let none = Sample { at_ms: clock::now_ms(), ..Sample::default() };
        if container.phase() != Phase::Running {
            return none;
        }
        let sandbox = container.record().sandbox;
        match backend::call::<Info>(&*self.app.sandboxes, &sandbox, &Ask::Info {}).await {
            Ok(info) => {
                let memory_limit = info.memory_limit.unwrap_or(0);
                Sample { usage: info.usage, memory_limit, system: system(), ..none }
            }
            Err(_ended) => none,
        }
    }
}

/// `cpu` of proc(5), in hundredths of a second: user, nice, system, idle, iowait, irq, softirq, steal.
fn system() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    ticks.filter_map(|number| number.parse::<u64>().ok()).sum::<u64>().saturating_mul(10_000_000)
}

/// Seconds as nanoseconds.
fn nanoseconds(usage: &Json, name: &str) -> u64 {
    let seconds = usage.get(name).and_then(Json::as_f64).filter(|seconds| *seconds >= 0.0).unwrap_or(0.0);
    u64::try_from(Duration::try_from_secs_f64(seconds).unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn cpu(sample: &Sample) -> Json {
    let (user, kernel) = (nanoseconds(&sample.usage, "cpu_user"), nanoseconds(&sample.usage, "cpu_system"));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "cpu_usage": { "total_usage": user.saturating_add(kernel), "usage_in_usermode": user, "usage_in_kernelmode": kernel },
        "system_cpu_usage": sample.system, "online_cpus": cores,
        "throttling_data": { "periods": 0, "throttled_periods": 0, "throttled_time": 0 },
    })
}

/// Memory and processes now. What nobody counts is left out, as Docker does.
fn held(usage: &Json, memory_limit: u64) -> (Json, Json) {
    let peak = usage.get("memory_peak").and_then(Json::as_u64).unwrap_or(0);
    let mut memory = json!({ "max_usage": peak, "limit": memory_limit, "stats": {} });
    let mut pids = json!({});
    for (object, name, known) in [(&mut memory, "usage", "memory"), (&mut pids, "current", "pids")] {
        if let (Some(known), Json::Object(map)) = (usage.get(known), object) {
            map.insert(name.to_owned(), known.clone());
        }
    }
    (memory, pids)
}

/// What was read and written. Nothing where nobody counts it, as Docker does.
fn of_devices(usage: &Json) -> Json {
    let number = |name: &str| usage.get(name).and_then(Json::as_u64);
    let (Some(read), Some(written)) = (number("io_read"), number("io_written")) else { return Json::Null };
    json!([
        { "major": 0, "minor": 0, "op": "read", "value": read },
        { "major": 0, "minor": 0, "op": "write", "value": written },
    ])
}

fn shown(container: &Container, before: &Sample, now: &Sample) -> Json {
    let record = container.record();
    let mut body = Map::new();
    let ran = !now.usage.is_null();
    let (memory, pids) = held(&now.usage, now.memory_limit);
    for (name, value) in [
        ("id", json!(record.id)),
        ("name", json!(format!("/{}", record.name))),
        ("read", json!(clock::rfc3339(now.at_ms))),
        ("preread", json!(clock::rfc3339(before.at_ms))),
        ("num_procs", json!(0)),
        ("pids_stats", pids),
        ("memory_stats", if ran { memory } else { json!({}) }),
        ("cpu_stats", cpu(now)),
        ("precpu_stats", cpu(before)),
        ("blkio_stats", json!({ "io_service_bytes_recursive": of_devices(&now.usage) })),
        ("storage_stats", json!({})),
        ("networks", json!({})),
    ] {
        body.insert(name.to_owned(), value);
    }
    Json::Object(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_now_is_not_its_peak_and_what_is_not_known_is_left_out() {
        let (memory, pids) = held(&json!({ "memory": 1024, "memory_peak": 4096, "pids": 3, "pids_peak": 9 }), 8192);
        assert_eq!(
            (&memory["usage"], &memory["max_usage"], &memory["limit"]),
            (&json!(1024), &json!(4096), &json!(8192))
        );
        assert_eq!(pids, json!({ "current": 3 }));
        let (memory, pids) = held(&json!({ "memory_peak": 4096 }), 0);
        assert_eq!((memory.get("usage"), pids), (None, json!({})));
        assert_eq!(of_devices(&json!({ "io_read": null, "io_written": null })), Json::Null);
        assert_eq!(of_devices(&json!({ "io_read": 7, "io_written": 8 }))[1]["value"], 8);
    }
}
