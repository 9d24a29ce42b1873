//! What the server remembers of a sandbox: labels of its own beside those of the caller, written when it is created.
//!
//! A caller neither sets nor sees them. So nothing has to be found again after a crash.

use std::collections::BTreeMap;

use live::moment::boot_ms;
use live::words::Info;

/// What all of ours begin with.
pub(crate) const PREFIX: &str = "fumehood.";
/// The key that created it, by name and digest.
pub(crate) const KEY: &str = "fumehood.key";
/// Digest of the key's name and its `Idempotency-Key`.
pub(crate) const ONCE: &str = "fumehood.once";
/// Digest of the request that came with it.
pub(crate) const BODY: &str = "fumehood.body";
/// `pause`: at the end of its life it is paused, and kept for [`KEPT_MS`].
pub(crate) const AT_END: &str = "fumehood.at-end";
/// Milliseconds: traffic wakes it from a pause, and it lives for so long then.
pub(crate) const WAKE: &str = "fumehood.wake";
/// `private`: its ports want the traffic token.
pub(crate) const PORTS: &str = "fumehood.ports";

/// By what the headers are known that are put into its requests outside.
pub(crate) const HEADERS: &str = "fumehood.headers";

/// Milliseconds since the machine was started: no end of it may lie later, by the `limits.wall` of its key's ceiling. Not of the
/// clock that can be set back.
pub(crate) const LATEST: &str = "fumehood.latest";

/// How long a paused sandbox is kept: a day.
pub(crate) const KEPT_MS: u64 = 24 * 60 * 60 * 1000;

/// The key that created the sandbox of these labels, by its name and a part of its digest.
#[must_use]
pub fn owner(labels: &BTreeMap<String, String>) -> Option<&str> {
    labels.get(KEY).map(String::as_str)
}

/// The caller's own labels.
pub(crate) fn metadata(info: &Info) -> BTreeMap<String, String> {
    let theirs = info.labels.iter().filter(|(key, _)| !key.starts_with(PREFIX));
    theirs.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Whether it is paused, not ended, when its life is over.
pub(crate) fn pauses_at_end(info: &Info) -> bool {
    info.labels.get(AT_END).is_some_and(|what| what == "pause")
}

/// Whether its ports want the traffic token.
pub(crate) fn has_private_ports(info: &Info) -> bool {
    info.labels.get(PORTS).is_some_and(|word| word == "private")
}

/// When its life is over for the caller, milliseconds since 1970. A sandbox that is paused at its end has an end for its
/// supervisor that is later by the time for which it is kept.
pub(crate) fn ends_ms(info: &Info) -> Option<i64> {
    let kept = if pauses_at_end(info) { i64::try_from(KEPT_MS).unwrap_or(0) } else { 0 };
    info.ends_ms.map(|ends| ends.saturating_sub(kept))
}

/// Whether its life is over for the caller, by the clock that nobody sets (`now_ms` is milliseconds since the machine was started).
pub(crate) fn is_over(info: &Info, now_ms: i64) -> bool {
    let kept = if pauses_at_end(info) { i64::try_from(KEPT_MS).unwrap_or(0) } else { 0 };
    info.ends_boot_ms.is_some_and(|ends| ends.saturating_sub(kept) <= now_ms)
}

/// The life that its supervisor is to be told, for a life of so many milliseconds.
pub(crate) fn supervised_ms(info: &Info, ms: u64) -> u64 {
    if pauses_at_end(info) { ms.saturating_add(KEPT_MS) } else { ms }
}

/// No more of so many milliseconds from now than the ceiling of its key leaves.
pub(crate) fn within(info: &Info, ms: u64) -> u64 {
    within_at(info, ms, boot_ms())
}

/// Milliseconds from now that the ceiling of its key leaves; none without one.
pub(crate) fn left_ms(info: &Info) -> Option<u64> {
    left_at(info, boot_ms())
}

fn left_at(info: &Info, now_ms: i64) -> Option<u64> {
    let latest = info.labels.get(LATEST).and_then(|latest| latest.parse::<i64>().ok());
    latest.map(|latest| u64::try_from(latest.saturating_sub(now_ms)).unwrap_or(0))
}

fn within_at(info: &Info, ms: u64, now_ms: i64) -> u64 {
    left_at(info, now_ms).map_or(ms, |left| left.min(ms))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One whose two ends are so far apart as a clock that was set makes them.
    fn info(ends_ms: i64, ends_boot_ms: i64, labels: &[(&str, &str)]) -> Info {
        let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
        serde_json::from_value(json!({
            "id": "a", "labels": labels, "state": "running", "run": "r", "tier": "container", "policy": "base", "plan": "",
            "created_ms": 0, "ends_ms": ends_ms, "ends_boot_ms": ends_boot_ms, "pid": 1, "usage": {},
        }))
        .unwrap()
    }

    #[test]
    fn a_clock_that_is_set_neither_ends_a_life_nor_prolongs_it() {
        let kept = i64::try_from(KEPT_MS).unwrap();
        let pauses = [(AT_END, "pause")];
        for ends_ms in [i64::MIN, 0, i64::MAX] {
            // An hour is left, whatever the calendar says; then none.
            let lives = info(ends_ms, kept + 4_000_000, &pauses);
            assert!(!is_over(&lives, 400_000) && is_over(&lives, 4_000_000), "{ends_ms}");
        }
        let ceiling = info(0, 0, &[(LATEST, "5000")]);
        assert_eq!((within_at(&ceiling, 9000, 1000), within_at(&ceiling, 9000, 6000)), (4000, 0));
        assert_eq!(within_at(&ceiling, 10, 1000), 10);
    }
}
