//! The experiments. Every one interleaves: each contestant once a round, the order rotated by one each round, and
//! ratios are taken within a round, so that what else the machine does falls on all alike.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::contestants::{Contestant, Place, Work};
use crate::launch::{self, Line};
use crate::numbers::Rounds;

/// Whether a start comes after a rest, as a person's or an agent's does, or right after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// 100 ms of rest before each.
    Lone,
    /// None.
    BackToBack,
}

/// How long things are measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds of starts.
    pub starts: usize,
    /// Rounds of work inside.
    pub inside: usize,
    /// Passes of throughput, and the length of each.
    pub passes: usize,
    /// How long the workers of one pass run.
    pub burst: Duration,
    /// Looks at the memory.
    pub looks: usize,
}

/// The order of one round.
pub fn rotated(contestants: &[Contestant], round: usize) -> impl Iterator<Item = &Contestant> {
    contestants.iter().cycle().skip(round % contestants.len().max(1)).take(contestants.len())
}

/// Lines are made before anything is timed: bundles are written then.
pub fn lines(
    contestants: &[Contestant],
    place: &Place,
    work: Work,
    worker: usize,
) -> Result<Vec<(&'static str, Line)>, String> {
    let made = contestants.iter().map(|contestant| Ok((contestant.id, contestant.line(place, work, worker)?)));
    made.collect::<std::io::Result<_>>().map_err(|error| format!("a bundle cannot be written: {error}"))
}

/// The line of one of them.
pub fn line_of<'a>(lines: &'a [(&'static str, Line)], id: &str) -> Option<&'a Line> {
    lines.iter().find(|(name, _)| *name == id).map(|(_, line)| line)
}

/// Milliseconds of whole runs.
pub fn starts(
    contestants: &[Contestant],
    place: &Place,
    work: Work,
    gap: Gap,
    rounds: usize,
) -> Result<Rounds, String> {
    let lines = lines(contestants, place, work, 0)?;
    let mut found = Rounds::default();
    // Two rounds that do not count: page caches, and what a contestant makes at its first start.
    for round in 0..rounds + 2 {
        for contestant in rotated(contestants, round) {
            if gap == Gap::Lone {
                thread::sleep(Duration::from_millis(100));
            }
            let took = line_of(&lines, contestant.id).and_then(launch::timed).unwrap_or(f64::NAN);
            if round >= 2 {
                found.push(contestant.id, took);
            }
        }
    }
    Ok(found)
}

/// Runs of `/bin/true` in a second by some workers at once.
pub fn throughput(contestants: &[Contestant], place: &Place, workers: usize, effort: Effort) -> Result<Rounds, String> {
    let mut found = Rounds::default();
    let by_worker: Vec<_> =
        (0..workers).map(|worker| lines(contestants, place, Work::True, worker)).collect::<Result<_, _>>()?;
    for pass in 0..effort.passes {
        for contestant in rotated(contestants, pass) {
            // What the one before left to be cleared (network namespaces above all) is not this one's.
            thread::sleep(Duration::from_secs(1));
            let own: Vec<&Line> = by_worker.iter().filter_map(|lines| line_of(lines, contestant.id)).collect();
            found.push(contestant.id, burst(&own, effort.burst));
        }
    }
    Ok(found)
}

/// Runs in a second while each line is repeated by a thread; `NaN` when one failed.
fn burst(lines: &[&Line], length: Duration) -> f64 {
    let failed = AtomicBool::new(false);
    let begin = Instant::now();
    let runs: u32 = thread::scope(|scope| {
        let workers: Vec<_> = lines
            .iter()
            .map(|line| {
                scope.spawn(|| {
                    let mut runs = 0_u32;
                    while begin.elapsed() < length && !failed.load(Ordering::Relaxed) {
                        failed.fetch_or(launch::timed(line).is_none(), Ordering::Relaxed);
                        runs += 1;
                    }
                    runs
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(0)).sum()
    });
    if failed.load(Ordering::Relaxed) { f64::NAN } else { f64::from(runs) / begin.elapsed().as_secs_f64() }
}

/// Nanoseconds for one operation, timed inside by the probe's own clock.
pub fn inside(contestants: &[Contestant], place: &Place, word: &'static str, rounds: usize) -> Result<Rounds, String> {
    let lines = lines(contestants, place, Work::Probe(word), 0)?;
    let mut found = Rounds::default();
    for round in 0..rounds {
        for contestant in rotated(contestants, round) {
            let said = line_of(&lines, contestant.id).and_then(|line| launch::output(line).ok());
            found.push(contestant.id, said.and_then(|said| said.parse().ok()).unwrap_or(f64::NAN));
        }
    }
    Ok(found)
}

/// KiB of everything beside the program while `sleep` runs inside.
pub fn memory(contestants: &[Contestant], place: &Place, looks: usize) -> Result<[Rounds; 2], String> {
    let lines = lines(contestants, place, Work::Sleep, 0)?;
    let [mut share, mut own] = [Rounds::default(), Rounds::default()];
    for look in 0..looks {
        for contestant in rotated(contestants, look).filter(|contestant| contestant.id != "plain") {
            let Some(mut child) = line_of(&lines, contestant.id).and_then(launch::started) else { continue };
            thread::sleep(Duration::from_millis(if contestant.slow { 1_500 } else { 1_000 }));
            let tree = launch::tree(child.id());
            let beside = tree.iter().filter(|process| process.name != "sleep").filter_map(|p| launch::memory(p.pid));
            let beside = beside.fold(launch::Memory::default(), |all, one| launch::Memory {
                share: all.share + one.share,
                own: all.own + one.own,
            });
            // Where the program replaced the contestant, nothing of it is left beside the program.
            let slept = tree.iter().any(|process| process.name == "sleep");
            share.push(contestant.id, if slept { beside.share } else { f64::NAN });
            own.push(contestant.id, if slept { beside.own } else { f64::NAN });
            child.wait().map_err(|error| format!("`{}` cannot be waited for: {error}", contestant.id))?;
        }
    }
    Ok([share, own])
}

/// What the probe sees inside each contestant; a contestant that does not run is told apart.
pub fn sights(contestants: &[Contestant], place: &Place) -> Vec<(&'static str, Result<String, String>)> {
    let see = |contestant: &Contestant| {
        let line = contestant.line(place, Work::See, 0).map_err(|error| error.to_string())?;
        launch::output(&line)
    };
    contestants.iter().map(|contestant| (contestant.id, see(contestant))).collect()
}
