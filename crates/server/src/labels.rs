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
/// By what the request is known that came with it: a MAC, since headers in it may be secrets.
pub(crate) const BODY: &str = "fumehood.body";
/// `pause`: at the end of its life it is paused, and kept for [`KEPT`].
pub(crate) const AT_END: &str = "fumehood.at-end";
/// Milliseconds: of one that is paused at its end, how much later than for the caller its end is for its supervisor: [`KEPT_MS`], or
/// as much of it as the ceiling of its key left when the end was said.
pub(crate) const KEPT: &str = "fumehood.kept";
/// Milliseconds: of one that is paused at its end, the life that it was created with.
pub(crate) const LIFE: &str = "fumehood.life";
/// By what the creation that made it is known, in this server's time.
pub(crate) const MADE: &str = "fumehood.made";
/// Milliseconds: traffic wakes it from a pause, and it lives for so long then.
pub(crate) const WAKE: &str = "fumehood.wake";
/// `private`: its ports want the traffic token.
pub(crate) const PORTS: &str = "fumehood.ports";

/// Where programs begin whose caller says no other place: the working directory of a template that was built here.
pub(crate) const WORKDIR: &str = "fumehood.workdir";
/// The build that a sandbox is for; its snapshots are that one's.
pub(crate) const BUILD: &str = "fumehood.build";
/// What a template that a client built began as: so much of it is wanted again for a snapshot.
pub(crate) const BASE: &str = "fumehood.base";
/// What it begins with in the place of what a template of the server says, as JSON.
pub(crate) const BEGIN: &str = "fumehood.begin";

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

/// What is remembered of one that is paused at its end: its life when it is created, and for how long it is kept.
pub(crate) fn of_pausing(life_ms: u64, kept_ms: u64) -> [(String, String); 2] {
    [(LIFE.to_owned(), life_ms.to_string()), (KEPT.to_owned(), kept_ms.to_string())]
}

/// By how much the end that its supervisor knows is later than the caller's.
fn kept_ms(info: &Info) -> i64 {
    let said = || info.labels.get(KEPT).and_then(|ms| ms.parse::<u64>().ok()).unwrap_or(KEPT_MS);
    if pauses_at_end(info) { i64::try_from(said()).unwrap_or(i64::MAX) } else { 0 }
}

/// When its life is over for the caller, milliseconds since 1970. A sandbox that is paused at its end has an end for its
/// supervisor that is later by the time for which it is kept.
pub(crate) fn ends_ms(info: &Info) -> Option<i64> {
    info.ends_ms.map(|ends| ends.saturating_sub(kept_ms(info)))
}

/// When its life is over for the caller by the clock that nobody sets: milliseconds since the machine was started.
fn ends_boot_ms(info: &Info) -> Option<i64> {
    info.ends_boot_ms.map(|ends| ends.saturating_sub(kept_ms(info)))
}

/// The same, whether that is so now (`now_ms` by the same clock).
pub(crate) fn is_over(info: &Info, now_ms: i64) -> bool {
    ends_boot_ms(info).is_some_and(|ends| ends <= now_ms)
}

/// What its supervisor is told so that a life ends in so many milliseconds for the caller, or when the ceiling of its key says: the
/// milliseconds until its own end, whether only where that is later, and labels. None where the caller's end is later already and
/// only a later one is wanted: of one that is paused at its end the supervisor does not know the caller's.
pub(crate) fn end_in(info: &Info, life_ms: u64, only_later: bool) -> Option<(u64, bool, BTreeMap<String, String>)> {
    end_in_at(info, life_ms, only_later, boot_ms())
}

fn end_in_at(info: &Info, ms: u64, only_later: bool, now_ms: i64) -> Option<(u64, bool, BTreeMap<String, String>)> {
    let life_ms = within_at(info, ms, now_ms);
    if !pauses_at_end(info) {
        return Some((life_ms, only_later, BTreeMap::new()));
    }
    let ends = now_ms.saturating_add(i64::try_from(life_ms).unwrap_or(i64::MAX));
    if only_later && ends_boot_ms(info).is_none_or(|now| now >= ends) {
        return None;
    }
    let all = within_at(info, life_ms.saturating_add(KEPT_MS), now_ms);
    let kept = (KEPT.to_owned(), all.saturating_sub(life_ms).to_string());
    Some((all, false, BTreeMap::from([kept])))
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
        let short = info(0, 9000, &[(AT_END, "pause"), (KEPT, "4000")]);
        assert_eq!((ends_ms(&short), is_over(&short, 4999), is_over(&short, 5000)), (Some(-4000), false, true));
        let ceiling = info(0, 0, &[(LATEST, "5000")]);
        assert_eq!((within_at(&ceiling, 9000, 1000), within_at(&ceiling, 9000, 6000)), (4000, 0));
        assert_eq!(within_at(&ceiling, 10, 1000), 10);
    }
    #[test]
    fn what_is_kept_after_a_life_is_as_much_as_the_ceiling_leaves() {
        let (hour, day) = (3_600_000, i64::try_from(KEPT_MS).unwrap());
        let latest = (day + hour).to_string();
        let with = |ends: i64, kept: &str| info(0, ends, &[(AT_END, "pause"), (LATEST, &latest), (KEPT, kept)]);
        let told = |info: &Info, ms, later, now| {
            end_in_at(info, ms, later, now).map(|(all, later, labels)| {
                assert!(!later, "the supervisor cannot compare the caller's ends");
                (all, labels[KEPT].clone())
            })
        };
        let lives = with(day + hour, &day.to_string());
        // A day fits at first, then what is left of it, and at last not even the life.
        assert_eq!(told(&lives, 60_000, false, 0), Some((KEPT_MS + 60_000, KEPT_MS.to_string())));
        assert_eq!(told(&lives, 60_000, false, day), Some((3_600_000, "3540000".to_owned())));
        assert_eq!(told(&lives, 60_000, false, day + hour - 1000), Some((1000, "0".to_owned())));
        // Woken with a minute to live it is not over at once, and after that minute it is.
        let woken = with(day + hour, "3540000");
        assert!(!is_over(&woken, day + 59_999) && is_over(&woken, day + 60_000));
        // Only a later end: the caller's own are compared, though both are the ceiling's for the supervisor.
        assert_eq!(told(&woken, 30_000, true, day), None);
        assert_eq!(told(&woken, 90_000, true, day), Some((3_600_000, "3510000".to_owned())));
        let plain = info(0, day, &[(LATEST, &latest)]);
        assert_eq!(end_in_at(&plain, 60_000, true, 0), Some((60_000, true, BTreeMap::new())));
    }
}
