//! Containers as Docker's clients read them.

use live::words::State as Doing;
use serde_json::{Value as Json, json};

use super::Docker;
use super::container::{Container, Phase, Record};
use crate::clock;

/// The status of a container that can only be removed.
pub(super) const DEAD: &str = "dead";
/// Why it is.
const LOST: &str = "its sandbox has ended, and it can only be removed";
/// What Docker writes for a time that never was.
const NEVER: &str = "0001-01-01T00:00:00Z";

fn time(ms: Option<i64>) -> String {
    ms.map_or_else(|| NEVER.to_owned(), clock::rfc3339)
}

impl Docker {
    /// `created`, `running`, `paused`, `exited`, `removing`, or `dead`: its sandbox ended before its program was started.
    pub(super) async fn status(&self, container: &Container, record: &Record) -> &'static str {
        let phase = container.phase();
        if !matches!(phase, Phase::Created | Phase::Running) {
            return phase.as_str();
        }
        // Where that cannot be read now it is as it was.
        let Ok(found) = self.app.sandboxes.find(&record.sandbox).await else { return phase.as_str() };
        let doing = found.map_or(Doing::Ended, |info| info.state);
        if phase == Phase::Running && doing == Doing::Paused {
            return "paused";
        }
        if phase == Phase::Created && doing == Doing::Ended { DEAD } else { phase.as_str() }
    }

    /// `GET /containers/{id}/json`
    pub(super) async fn inspected(&self, container: &Container) -> Json {
        let record = container.record();
        let status = self.status(container, &record).await;
        let mut finished = record.finished.clone().unwrap_or_default();
        if status == DEAD {
            finished.error = LOST.to_owned();
        }
        let running = matches!(status, "running" | "paused");
        let mut host = record.host.clone();
        if let Some(host) = host.as_object_mut() {
            host.entry("LogConfig").or_insert_with(|| json!({ "Type": "json-file", "Config": {} }));
        }
        let path = record.program.argv.first().cloned().unwrap_or_default();
        json!({
            "Id": record.id, "Name": format!("/{}", record.name), "Created": clock::rfc3339(record.created_ms),
            "Path": path, "Args": record.program.argv.get(1..).unwrap_or_default(),
            "State": {
                "Status": status, "Running": running, "Paused": status == "paused", "Restarting": false, "Dead": status == DEAD,
                "OOMKilled": finished.oom, "Pid": 0, "ExitCode": finished.code, "Error": finished.error,
                "StartedAt": time(record.started_ms), "FinishedAt": time(record.finished.as_ref().map(|ended| ended.at_ms)),
            },
            "Image": record.image_id, "RestartCount": 0, "Driver": "fumehood", "Platform": "linux", "MountLabel": "",
            "ProcessLabel": "", "AppArmorProfile": "", "ExecIDs": null, "ResolvConfPath": "", "HostnamePath": "",
            "HostsPath": "", "LogPath": "", "HostConfig": host, "Config": record.config, "Mounts": mounts(&record.host),
            "GraphDriver": { "Name": "fumehood", "Data": null },
            "NetworkSettings": { "Ports": {}, "Networks": {}, "IPAddress": "", "Gateway": "", "MacAddress": "" },
            "Fumehood": { "Sandbox": record.sandbox },
        })
    }

    /// One of `GET /containers/json`.
    pub(super) async fn listed(&self, container: &Container) -> Json {
        let record = container.record();
        let status = self.status(container, &record).await;
        let now = clock::now_ms();
        let ago = |ms: i64| duration(now.saturating_sub(ms));
        let words = match (&record.finished, record.started_ms) {
            (Some(finished), Some(_)) => format!("Exited ({}) {} ago", finished.code, ago(finished.at_ms)),
            (None, Some(started)) if status == "paused" => format!("Up {} (Paused)", ago(started)),
            (None, Some(started)) => format!("Up {}", ago(started)),
            (_, None) if status == DEAD => "Dead".to_owned(),
            (_, None) => "Created".to_owned(),
        };
        json!({
            "Id": record.id, "Names": [format!("/{}", record.name)], "Image": record.image, "ImageID": record.image_id,
            "Command": record.program.argv.join(" "), "Created": record.created_ms / 1000, "State": status, "Status": words,
            "Ports": [], "Labels": record.labels, "HostConfig": { "NetworkMode": "none" },
            "NetworkSettings": { "Networks": {} }, "Mounts": mounts(&record.host),
        })
    }
}

/// As Docker's clients print it.
fn duration(ms: i64) -> String {
    let seconds = (ms / 1000).max(0);
    match seconds {
        0 => "Less than a second".to_owned(),
        1..=119 => format!("{seconds} seconds"),
        120..=7199 => format!("{} minutes", seconds / 60),
        _ => format!("{} hours", seconds / 3600),
    }
}

/// Binds, as they were asked for.
fn mounts(host: &Json) -> Vec<Json> {
    let mount = |from: &str, to: &str, writable: bool| json!({ "Type": "bind", "Source": from, "Destination": to, "Mode": "", "RW": writable, "Propagation": "rprivate" });
    let binds = host.get("Binds").and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str);
    let binds = binds.filter_map(|bind| {
        let mut parts = bind.split(':');
        let (from, to) = (parts.next()?, parts.next()?);
        Some(mount(from, to, !parts.next().is_some_and(|options| options.split(',').any(|option| option == "ro"))))
    });
    let others = host.get("Mounts").and_then(Json::as_array).into_iter().flatten().filter_map(|asked| {
        let writable = !asked.get("ReadOnly").and_then(Json::as_bool).unwrap_or(false);
        Some(mount(asked.get("Source")?.as_str()?, asked.get("Target")?.as_str()?, writable))
    });
    binds.chain(others).collect()
}
