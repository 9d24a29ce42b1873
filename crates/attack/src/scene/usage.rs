//! Scenes whose judge is a measurement: how much was really had.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use serde_json::Value;

use super::{Layout, Scene, SceneVerdict};
use crate::confined::{Moment, Observed, ProbeCall};
use crate::probe::Try;
use crate::survey::{Task, field};

type SceneResult = io::Result<Box<dyn Scene>>;
/// What `Layout::sampled` says.
type Sampled = BTreeMap<String, String>;

const MIB: u64 = 1 << 20;

/// The largest number that the tries name with `key=`.
fn most(tries: &[Try], key: &str) -> Option<u64> {
    tries.iter().filter_map(|t| t.text.strip_prefix(key)?.strip_prefix('=')?.parse().ok()).max()
}

fn verdict(what: &str, had: u64, limit: u64) -> SceneVerdict {
    let said = format!("{what}: {had}, limit {limit}");
    if had > limit { SceneVerdict::Possible(said) } else { SceneVerdict::Stopped(said) }
}

/// A limit that the supervisor holds by watching is held when itself ended the run, at the overshoot that the plan names.
fn watched(sight: SceneVerdict, ended: Option<&str>, sampled: &Sampled) -> SceneVerdict {
    match (sight, ended.and_then(|limit| sampled.get_key_value(limit))) {
        (SceneVerdict::Possible(said), Some((limit, overshoot))) => {
            SceneVerdict::Stopped(format!("{said}; ended by `{limit}`, the plan names the overshoot: {overshoot}"))
        }
        (sight, _) => sight,
    }
}

/// Whether a limit ended the run, by the report.
fn ended_by(observed: &Observed) -> Option<&str> {
    observed.report.pointer("/outcome/limit").and_then(Value::as_str)
}

/// A number that the probe itself counted.
struct Number {
    key: String,
    limit: u64,
    sampled: Sampled,
}

/// `KEY:LIMIT`.
pub(super) fn number(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let (key, limit) = detail.split_once(':').unwrap_or((detail, "0"));
    Ok(Box::new(Number { key: key.to_owned(), limit: limit.parse().unwrap_or(0), sampled: layout.sampled.clone() }))
}

impl Scene for Number {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let sum: u64 =
            tries.iter().filter_map(|t| t.text.strip_prefix(&self.key)?.strip_prefix('=')?.parse::<u64>().ok()).sum();
        match (most(tries, &self.key), ended_by(observed)) {
            (None, Some(limit)) => SceneVerdict::Stopped(format!("the run was ended by `{limit}`")),
            (None, None) => SceneVerdict::Unclear(format!("no count came out ({})", super::answers(tries))),
            // Several places are one limit together.
            (Some(_), ended) => {
                watched(verdict(&format!("{} in all", self.key), sum, self.limit), ended, &self.sampled)
            }
        }
    }
}

/// Memory of all processes of the probe, shared pages by share.
struct Memory {
    limit: u64,
    peak: u64,
    sampled: Sampled,
}

/// `MIB`.
pub(super) fn memory(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let sampled = layout.sampled.clone();
    Ok(Box::new(Memory { limit: detail.parse().unwrap_or(0) * MIB, peak: 0, sampled }))
}

fn share(task: &Task) -> u64 {
    // Pages of files are the host's own; what a process makes is anonymous or shared memory.
    let sum = |text: &str, names: [&str; 2]| {
        let [anonymous, shared] = names.map(|name| kib(text, name));
        Some((anonymous? + shared.unwrap_or(0)) * 1024)
    };
    let rollup = task.read("smaps_rollup").unwrap_or_default();
    if let Some(all) = sum(&rollup, ["Pss_Anon", "Pss_Shmem"]) {
        // The program's own pages are among them where it lies on a file system in memory.
        let files = kib(&rollup, "Pss_File").unwrap_or(0) * 1024;
        return all.saturating_sub(task.read("smaps").map_or(0, |maps| program(&maps).saturating_sub(files)));
    }
    // Who may not read the first (or asks for a dead one) reads the second; a dead one has none.
    task.read("status").and_then(|text| sum(&text, ["RssAnon", "RssShmem"])).unwrap_or(0)
}

fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split(' ').next()?.parse().ok()
}

/// What a process has of its program's own pages, bytes, by its `smaps`.
fn program(maps: &str) -> u64 {
    // A mapping begins with `FROM-TO RIGHTS OFFSET DEVICE INODE [NAME]`.
    let file = |line: &str| {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next()?, words.next()?);
        let file = (words.nth(1)?.to_owned(), words.next()?.to_owned());
        (range.contains('-') && file.1 != "0").then_some((rights.contains('x'), file))
    };
    let begins = |line: &str| line.split(' ').next().is_some_and(|word| word.contains('-'));
    let Some(own) = maps.lines().filter_map(file).find_map(|(runs, file)| runs.then_some(file)) else { return 0 };
    let (mut inside, mut sum) = (false, 0_u64);
    for line in maps.lines() {
        if begins(line) {
            inside = file(line).is_some_and(|(_, file)| file == own);
        } else if inside && line.starts_with("Pss:") {
            sum = sum.saturating_add(kib(line, "Pss").unwrap_or(0));
        } else if inside && line.starts_with("Anonymous:") {
            sum = sum.saturating_sub(kib(line, "Anonymous").unwrap_or(0));
        }
    }
    sum * 1024
}

/// What all of them had at one moment, or more. One may be killed for the memory that the next one gets before it is looked
/// at; so each is looked at twice, and the less counts.
fn together(tasks: &[Task]) -> u64 {
    let first: Vec<u64> = tasks.iter().map(share).collect();
    tasks.iter().zip(first).map(|(task, first)| first.min(share(task))).sum()
}

impl Scene for Memory {
    fn watch(&mut self, moment: &Moment<'_>) {
        self.peak = self.peak.max(together(moment.tasks));
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let witnessed = most(tries, "mib").unwrap_or(0) * MIB;
        let had = self.peak.max(witnessed);
        if had == 0 {
            return if ended_by(observed) == Some("memory") {
                SceneVerdict::Stopped("the run was ended by `memory` before the first look".to_owned())
            } else {
                SceneVerdict::Unclear("nothing was measured".to_owned())
            };
        }
        let said =
            format!("MiB at most (seen from outside {}, had by its own count {})", self.peak / MIB, witnessed / MIB);
        // 5 % for what the kernel charges in batches, and the program itself.
        let seen = verdict(&said, had / MIB, self.limit / MIB + self.limit / MIB / 20);
        watched(seen, ended_by(observed), &self.sampled)
    }
}

/// Processes and threads at once.
struct Tasks {
    limit: u64,
    peak: u64,
    sampled: Sampled,
}

/// `COUNT`.
pub(super) fn tasks(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    Ok(Box::new(Tasks { limit: detail.parse().unwrap_or(0), peak: 0, sampled: layout.sampled.clone() }))
}

impl Scene for Tasks {
    fn watch(&mut self, moment: &Moment<'_>) {
        self.peak = self.peak.max(moment.tasks.iter().map(|task| task.threads).sum());
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let had = self.peak.max(most(tries, "made").unwrap_or(0));
        if had == 0 {
            return SceneVerdict::Unclear("no process was seen".to_owned());
        }
        watched(verdict("tasks at once", had, self.limit), ended_by(observed), &self.sampled)
    }
}

/// Processor time, or its share.
struct Processor {
    share: bool,
    limit_ms: u64,
    ticks: u64,
}

/// `time:MS` or `share:PERCENT`.
pub(super) fn processor(_: &mut Layout<'_>, detail: &str) -> SceneResult {
    let (what, limit) = detail.split_once(':').unwrap_or(("time", "0"));
    Ok(Box::new(Processor { share: what == "share", limit_ms: limit.parse().unwrap_or(0), ticks: 0 }))
}

impl Scene for Processor {
    fn watch(&mut self, moment: &Moment<'_>) {
        self.ticks = self.ticks.max(moment.tasks.iter().map(|task| task.ticks).sum());
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let seconds = |name: &str| observed.report.pointer(name).and_then(Value::as_f64).unwrap_or(0.0);
        let reported = Duration::try_from_secs_f64(seconds("/usage/cpu_user") + seconds("/usage/cpu_system"));
        let reported = reported.map_or(0, |time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        // Children that ended between two looks: each burned 40 ms of it.
        let rounds = most(tries, "rounds").unwrap_or(0) * 40;
        let used = (self.ticks * 10).max(reported).max(rounds);
        if used == 0 {
            return SceneVerdict::Unclear("no processor time was measured".to_owned());
        }
        if self.share {
            let wall = u64::try_from(observed.wall.as_millis()).unwrap_or(u64::MAX).max(1);
            return verdict("percent of a core", used * 100 / wall, self.limit_ms);
        }
        verdict("ms of processor time", used, self.limit_ms)
    }
}

/// Processor time of whoever watches a crowd of processes.
struct Watcher {
    bare: bool,
    limit: u64,
    /// Percent of a core that looking at all of them takes, as often as at a few.
    unbounded: u64,
    first: Option<(Duration, u64)>,
    last: (Duration, u64),
}

/// So many processes are a crowd.
const CROWD: usize = 100;
/// How often a tree is looked at that has few.
const LOOK: Duration = Duration::from_millis(20);

/// `PERCENT` of a core.
pub(super) fn watcher(layout: &mut Layout<'_>, detail: &str) -> SceneResult {
    let limit = detail.parse().unwrap_or(0);
    Ok(Box::new(Watcher { bare: layout.bare, limit, unbounded: 0, first: None, last: (Duration::ZERO, 0) }))
}

fn own_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(now).unwrap_or_default()
}

fn percent(of: Duration, all: Duration) -> u64 {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    micros(of).saturating_mul(100) / micros(all).max(1)
}

impl Scene for Watcher {
    fn arrange(&mut self, call: &mut ProbeCall) {
        // Whoever has a variable of its own is a process of its own, which is measured alone.
        call.env.push(("FUMEHOOD_WATCHED".to_owned(), "1".into()));
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        if moment.tasks.len() < CROWD {
            return;
        }
        if self.bare {
            let before = own_time();
            together(moment.tasks);
            self.unbounded = self.unbounded.max(percent(own_time().saturating_sub(before), LOOK));
        } else if let Some(watcher) = crate::survey::task(moment.child) {
            self.last = (moment.since, watcher.ticks);
            self.first.get_or_insert(self.last);
        }
    }

    fn judge(&mut self, _observed: &Observed, _tries: &[Try]) -> SceneVerdict {
        if self.bare {
            let what = format!("percent of a core to look at them every {} ms", LOOK.as_millis());
            return verdict(&what, self.unbounded, self.limit);
        }
        let Some(first) = self.first else { return SceneVerdict::Unclear("no crowd was seen".to_owned()) };
        let seen = self.last.0.saturating_sub(first.0);
        if seen < Duration::from_millis(300) {
            return SceneVerdict::Unclear(format!("the crowd was seen for {} ms alone", seen.as_millis()));
        }
        let used = Duration::from_millis(self.last.1.saturating_sub(first.1).saturating_mul(10));
        verdict("percent of a core that the supervisor took", percent(used, seen), self.limit)
    }
}

/// Time from start to end.
struct Wall {
    limit: Duration,
}

/// `MS`.
pub(super) fn wall(_: &mut Layout<'_>, detail: &str) -> SceneResult {
    Ok(Box::new(Wall { limit: Duration::from_millis(detail.parse().unwrap_or(0)) }))
}

impl Scene for Wall {
    fn judge(&mut self, observed: &Observed, _tries: &[Try]) -> SceneVerdict {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        verdict("ms from start to end", ms(observed.wall), ms(self.limit))
    }
}

/// Bytes that came out, and memory of whoever keeps them.
struct Output {
    errors: bool,
    limit: u64,
    keeper: u64,
}

/// `BYTES`, or `BYTES:errors` for what is written beside the output.
pub(super) fn output(_: &mut Layout<'_>, detail: &str) -> SceneResult {
    let (limit, errors) = detail.strip_suffix(":errors").map_or((detail, false), |limit| (limit, true));
    Ok(Box::new(Output { errors, limit: limit.parse().unwrap_or(0), keeper: 0 }))
}

impl Scene for Output {
    fn watch(&mut self, moment: &Moment<'_>) {
        let keeper = crate::survey::task(moment.child).map_or(0, |task| task.resident);
        self.keeper = self.keeper.max(keeper);
    }

    fn judge(&mut self, observed: &Observed, _tries: &[Try]) -> SceneVerdict {
        if self.keeper > 64 * MIB {
            return SceneVerdict::Possible(format!("the supervisor grew to {} MiB", self.keeper / MIB));
        }
        let kept = if self.errors { &observed.stderr } else { &observed.stdout };
        let bytes = u64::try_from(kept.len()).unwrap_or(u64::MAX);
        if bytes == 0 {
            return SceneVerdict::Unclear("no output came".to_owned());
        }
        verdict("bytes of output", bytes, self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_known_by_what_runs_and_its_changed_pages_are_memory() {
        let maps = "\
            00400000-00401000 r--p 00000000 00:2f 7    /probe\nPss:      4 kB\nAnonymous:    0 kB\n\
            00401000-00500000 r-xp 00001000 00:2f 7    /probe\nPss:   1000 kB\nAnonymous:    0 kB\n\
            00500000-00501000 rw-p 00100000 00:2f 7    /probe\nPss:      8 kB\nAnonymous:    8 kB\n\
            00600000-00700000 rw-s 00000000 00:2f 9    /dev/shm/x\nPss:   5000 kB\nAnonymous:    0 kB\n\
            7fff0000-7fff1000 r-xp 00000000 00:00 0    [vdso]\nPss:      4 kB\nAnonymous:    0 kB\n";
        assert_eq!(program(maps), 1004 * 1024);
        assert_eq!(program(""), 0);
    }
}
