//! What is measured of a sandbox, and its limits, in the numbers that E2B's clients read.

use live::words::Info;
use serde_json::{Value as Json, json};

use crate::clock::rfc3339;

const MIB: u64 = 1 << 20;

/// A limit in MiB; 0 = none.
pub(crate) fn mib(bytes: Option<u64>) -> u64 {
    bytes.unwrap_or(0).div_euclid(MIB)
}

/// Whole cores, at least one; without a limit those of the host.
pub(crate) fn cores(limit: Option<f64>) -> u64 {
    let there = || std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    match limit {
        Some(cpus) => format!("{:.0}", cpus.ceil().max(1.0)).parse().unwrap_or(1),
        None => u64::try_from(there()).unwrap_or(1),
    }
}

/// One measurement of a sandbox, as E2B writes it; none where nobody measured it.
///
/// Its numbers cannot be left out there: `memCache` is 0, since it is not told apart, and so is `diskUsed` where it is not counted.
pub(crate) fn metric(info: &Info, now_ms: i64) -> Option<Json> {
    let number = |name: &str| info.usage.get(name).and_then(Json::as_u64);
    let percent = info.usage.get("cpu_percent").and_then(Json::as_f64)?;
    Some(json!({
        "timestamp": rfc3339(now_ms), "timestampUnix": now_ms.div_euclid(1000),
        "cpuCount": cores(info.cpus), "cpuUsedPct": (percent * 100.0).round() / 100.0,
        "memUsed": number("memory")?, "memTotal": info.memory_limit.unwrap_or(0), "memCache": 0,
        "diskUsed": number("disk").unwrap_or(0), "diskTotal": info.disk_limit.unwrap_or(0),
    }))
}
