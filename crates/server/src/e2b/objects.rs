//! E2B's objects, of what a supervisor says of its sandbox.

use std::time::Duration;

use live::words::{Info, State};
use serde_json::{Map, Value as Json, json};

use crate::clock::rfc3339;
use crate::desk::Desk;
use crate::labels;
use crate::tokens::Purpose;

/// The version of E2B's own server inside, of whose features clients make use.
pub(super) const ENVD: &str = "0.6.13";
const MIB: u64 = 1 << 20;

/// What clients want in order to reach a sandbox.
pub(super) fn sandbox(desk: &Desk, info: &Info) -> Json {
    let mut object = Map::new();
    base(desk, info, &mut object);
    object.insert("envdAccessToken".to_owned(), json!(desk.tokens.of(Purpose::Data, &info.id)));
    if labels::has_private_ports(info) {
        object.insert("trafficAccessToken".to_owned(), json!(desk.tokens.of(Purpose::Ports, &info.id)));
    }
    Json::Object(object)
}

/// What a list shows of a sandbox.
pub(super) fn listed(desk: &Desk, info: &Info) -> Json {
    let mut object = Map::new();
    base(desk, info, &mut object);
    state(info, &mut object);
    Json::Object(object)
}

/// All about a sandbox.
pub(super) fn detail(desk: &Desk, info: &Info) -> Json {
    let Json::Object(mut object) = sandbox(desk, info) else { return Json::Null };
    state(info, &mut object);
    let at_end = if labels::pauses_at_end(info) { "pause" } else { "kill" };
    let lifecycle = json!({ "autoResume": info.labels.contains_key(labels::WAKE), "onTimeout": at_end });
    object.insert("lifecycle".to_owned(), lifecycle);
    // Frozen processes keep their memory for as long as the host runs.
    object.insert("pauseMode".to_owned(), json!("full"));
    object.insert("allowInternetAccess".to_owned(), json!(false));
    object.insert("network".to_owned(), json!({ "allowPublicTraffic": !labels::has_private_ports(info) }));
    Json::Object(object)
}

fn base(desk: &Desk, info: &Info, object: &mut Map<String, Json>) {
    let template = if info.template.is_empty() { info.policy.as_str() } else { info.template.as_str() };
    object.insert("templateID".to_owned(), json!(template));
    object.insert("sandboxID".to_owned(), json!(info.id));
    object.insert("clientID".to_owned(), json!("fumehood"));
    object.insert("envdVersion".to_owned(), json!(ENVD));
    if let Some(name) = &info.name {
        object.insert("alias".to_owned(), json!(name));
    }
    if let Some(domain) = &desk.settings.domain {
        object.insert("domain".to_owned(), json!(domain));
    }
    let ours = json!({
        "tier": info.tier, "policy": info.policy, "planDigest": info.plan, "run": info.run,
        "internet": "none: what the policy gives, whatever `allow_internet_access` says by default",
        "pause": "processes are frozen and kept while the host runs",
    });
    object.insert("fumehood".to_owned(), ours);
}

fn state(info: &Info, object: &mut Map<String, Json>) {
    let never = info.created_ms.saturating_add(i64::try_from(crate::desk::MAX_LIFE_MS).unwrap_or(0));
    let word = match info.state {
        State::Running => "running",
        State::Paused | State::Ended => "paused",
    };
    object.insert("startedAt".to_owned(), json!(rfc3339(info.created_ms)));
    object.insert("endAt".to_owned(), json!(rfc3339(labels::ends_ms(info).unwrap_or(never))));
    object.insert("state".to_owned(), json!(word));
    object.insert("cpuCount".to_owned(), json!(cpus(info)));
    object.insert("memoryMB".to_owned(), json!(info.memory_limit.unwrap_or(0).div_euclid(MIB)));
    object.insert("diskSizeMB".to_owned(), json!(info.disk_limit.unwrap_or(0).div_euclid(MIB)));
    object.insert("metadata".to_owned(), json!(labels::metadata(info)));
}

/// Whole cores, at least one.
fn cpus(info: &Info) -> u64 {
    let there = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match info.cpus {
        Some(cpus) => format!("{:.0}", cpus.ceil().max(1.0)).parse().unwrap_or(1),
        None => u64::try_from(there()).unwrap_or(1),
    }
}

/// One measurement of a sandbox, as E2B writes it.
pub(crate) fn metric(info: &Info, now_ms: i64) -> Json {
    let usage =
        |names: &[&str]| names.iter().find_map(|name| info.usage.get(name).and_then(Json::as_f64)).unwrap_or(0.0);
    let alive = Duration::from_millis(u64::try_from(now_ms.saturating_sub(info.created_ms)).unwrap_or(0)).as_secs_f64();
    let cpu = (usage(&["cpu_user"]) + usage(&["cpu_system"])) / alive.max(0.001) * 100.0;
    let whole = |number: f64| format!("{:.0}", number.max(0.0)).parse::<u64>().unwrap_or(0);
    json!({
        "timestamp": rfc3339(now_ms), "timestampUnix": now_ms.div_euclid(1000),
        "cpuCount": cpus(info), "cpuUsedPct": (cpu * 100.0).round() / 100.0,
        "memUsed": whole(usage(&["memory", "memory_now", "memory_peak"])), "memTotal": info.memory_limit.unwrap_or(0), "memCache": 0,
        "diskUsed": whole(usage(&["disk"])), "diskTotal": info.disk_limit.unwrap_or(0),
    })
}
