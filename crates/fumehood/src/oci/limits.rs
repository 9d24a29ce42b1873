//! Limits of a document: resources of its control group, and of its program (rlimits).

use std::collections::BTreeSet;

use policy::json::toml_text;
use sandbox::PolicyLayer;

use super::fields::{Refused, Table, set};
use super::mounts::Places;

/// Places in memory together, where nobody limits memory.
const IN_MEMORY: u64 = 256 << 20;
/// The least that a place is given unasked.
const LEAST: u64 = 1 << 20;
/// Most tasks where a document says nothing.
const PIDS: i64 = 4096;
/// Most open files where a document says nothing.
const OPEN_FILES: i64 = 1024;
/// The least that the policy knows.
const LEAST_OPEN_FILES: i64 = 8;
/// The most that the policy knows.
const MAX_OPEN_FILES: i64 = 1 << 20;
const MAX_PIDS: i64 = 4_194_304;
/// Above it engines mean "no limit".
const NO_LIMIT: i64 = 1 << 50;

/// Reads them all.
pub(super) fn read(
    process: &Table<'_>,
    top: &Table<'_>,
    places: &Places,
    layers: &mut Vec<PolicyLayer>,
) -> Result<(), Refused> {
    let resources = top.table("linux")?.table("resources")?;
    // `devices` are an upper bound: six harmless ones are there, and none can be made.
    resources.others_say_nothing(&["devices", "memory", "cpu", "pids"])?;
    let memory = memory(&resources, layers)?;
    cpu(&resources, layers)?;
    in_memory(memory, places, layers);
    let limit = resources.table("pids")?.number("limit")?.filter(|limit| *limit > 0);
    let mut pids = limit.unwrap_or(PIDS);
    let mut open_files = OPEN_FILES;
    let mut known = BTreeSet::new();
    for one in process.tables("rlimits")? {
        one.others_say_nothing(&["type", "hard", "soft"])?;
        let hard = one.number("hard")?.unwrap_or(0);
        let kind = one.text("type")?.unwrap_or_default();
        if !known.insert(kind) {
            return Err(one.refused("type", format!("`{kind}` is there twice")));
        }
        let less =
            |least: i64| one.refused("hard", format!("{hard} is less than {least}, the least that is held here"));
        match kind {
            "RLIMIT_NOFILE" if hard < LEAST_OPEN_FILES => return Err(less(LEAST_OPEN_FILES)),
            "RLIMIT_NOFILE" => open_files = hard.min(MAX_OPEN_FILES),
            "RLIMIT_NPROC" | "RLIMIT_FSIZE" if hard < 1 => return Err(less(1)),
            // Of a user's processes, who has no others.
            "RLIMIT_NPROC" => pids = pids.min(hard),
            "RLIMIT_FSIZE" if hard >= NO_LIMIT => {}
            "RLIMIT_FSIZE" => set(layers, "limits.file_size", &format!("{hard}B")),
            // None is written here.
            "RLIMIT_CORE" => {}
            other => return Err(one.refused("type", format!("`{other}` is not held here"))),
        }
    }
    set(layers, "limits.pids", &pids.clamp(1, MAX_PIDS).to_string());
    set(layers, "limits.open_files", &open_files.to_string());
    Ok(())
}

fn memory(resources: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<Option<u64>, Refused> {
    let table = resources.table("memory")?;
    // `swap` bounds both together; here swap is nothing.
    table.others_say_nothing(&["limit", "swap", "checkBeforeUpdate"])?;
    let limit = table.number("limit")?.filter(|limit| (1..NO_LIMIT).contains(limit));
    if limit.is_none() && table.number("swap")?.is_some_and(|swap| (1..NO_LIMIT).contains(&swap)) {
        return Err(table.refused("swap", "it bounds memory and swap together, and there is no `limit` of memory"));
    }
    match limit.and_then(|limit| u64::try_from(limit).ok()) {
        Some(limit) => {
            set(layers, "limits.memory", &format!("{limit}B"));
            Ok(Some(limit))
        }
        None => {
            set(layers, "limits.memory", "none");
            Ok(None)
        }
    }
}

fn cpu(resources: &Table<'_>, layers: &mut Vec<PolicyLayer>) -> Result<(), Refused> {
    const PERIOD: i64 = 100_000;
    /// What a group has unasked.
    const SHARES: i64 = 1024;
    let table = resources.table("cpu")?;
    table.others_say_nothing(&["quota", "period", "cpus", "shares"])?;
    if table.number("shares")?.is_some_and(|shares| shares != 0 && shares != SHARES) {
        return Err(table.refused("shares", "weights between groups are not held here; use a quota (`--cpus`)"));
    }
    if let Some(quota) = table.number("quota")?.filter(|quota| *quota > 0) {
        let period = table.number("period")?.filter(|period| *period > 0).unwrap_or(PERIOD);
        // Rounded down, to what the policy can say.
        let thousandths = quota.saturating_mul(1000) / period;
        if thousandths < 1 {
            return Err(table.refused("quota", "it is less than a thousandth of a core"));
        }
        set(layers, "limits.cpus", &format!("{}.{:03}", thousandths / 1000, thousandths % 1000));
    }
    if let Some(cores) = table.text("cpus")? {
        set(layers, "limits.cpuset", &toml_text(cores));
    }
    Ok(())
}

/// What is written to places in memory counts against `limits.memory`: unasked they take half of it. Engines ask for 64 MiB of some in
/// every document; places that together are more than the limit could never be full, and are made smaller, each by as much.
fn in_memory(memory: Option<u64>, places: &Places, layers: &mut Vec<PolicyLayer>) {
    let all = memory.map_or(IN_MEMORY, |memory| (memory / 2).min(IN_MEMORY));
    let shm = places.shm.unwrap_or((all / 4).max(LEAST));
    let run = places.run.unwrap_or((all / 16).max(LEAST));
    let tmp = places.tmp.unwrap_or_else(|| all.saturating_sub(shm).saturating_sub(run).max(LEAST));
    let asked = shm.saturating_add(run).saturating_add(tmp);
    let [shm, run, tmp] = [shm, run, tmp].map(|size| match memory.filter(|memory| *memory < asked) {
        Some(memory) => {
            let share = u128::from(size) * u128::from(memory) / u128::from(asked);
            u64::try_from(share).unwrap_or(size).max(1)
        }
        None => size,
    });
    for (clause, size) in [("fs.shm", shm), ("fs.run", run), ("fs.tmp", tmp)] {
        set(layers, clause, &format!("{size}B"));
    }
    set(layers, "limits.disk", &format!("{}B", shm.saturating_add(run).saturating_add(tmp)));
}
