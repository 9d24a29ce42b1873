//! The processor time of whole runs: the harness enters a control group of the contestant's own before it starts each,
//! so that everything the run starts is counted there, whoever is its parent, kernel time included.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use crate::contestants::{Contestant, Place, Work};
use crate::experiments::{line_of, lines, rotated};
use crate::launch::{self, Line};
use crate::numbers::Rounds;

/// Runs of one contestant in one round: one alone is too short for the group's clock.
const RUNS: usize = 5;
/// What is still at work when a run was reaped (dying processes, above all) belongs to it.
const SETTLE: Duration = Duration::from_millis(15);

/// The kernel's account of processor time, by the version of control groups that has it.
#[derive(Clone, Copy)]
enum Account {
    /// `cpuacct.usage` in nanoseconds.
    V1,
    /// `usage_usec` of `cpu.stat`.
    V2,
}

/// Where groups are made, with the account that they have.
fn account() -> Option<(PathBuf, Account)> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let found = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let ours =
                after.next()? == kind && (option.is_empty() || after.nth(1)?.split(',').any(|own| own == option));
            ours.then(|| PathBuf::from(before.split(' ').nth(4).unwrap_or_default()))
        })
    };
    let v1 = found("cgroup", "cpuacct").map(|folder| (folder, Account::V1));
    v1.or_else(|| found("cgroup2", "").map(|folder| (folder, Account::V2)))
}

/// A group of this harness; dropping it leaves and removes it.
struct Group {
    root: PathBuf,
    folder: PathBuf,
    account: Account,
}

impl Group {
    fn make(id: &str, (root, account): &(PathBuf, Account)) -> std::io::Result<Self> {
        let folder = root.join(format!("fumehood-bench-{id}"));
        // On v2 a contestant makes its groups beside the one in which it was started, and only there are processes.
        fs::create_dir_all(match account {
            Account::V1 => folder.clone(),
            Account::V2 => folder.join("harness"),
        })?;
        Ok(Self { root: root.clone(), folder, account: *account })
    }

    fn enter(&self) -> std::io::Result<()> {
        match self.account {
            // This thread alone; it is the one that starts.
            Account::V1 => fs::write(self.folder.join("tasks"), "0"),
            Account::V2 => fs::write(self.folder.join("harness/cgroup.procs"), "0"),
        }
    }

    /// Milliseconds so far.
    fn used(&self) -> Option<f64> {
        let number = |text: &str| text.trim().parse::<f64>().ok();
        match self.account {
            Account::V1 => Some(number(&fs::read_to_string(self.folder.join("cpuacct.usage")).ok()?)? / 1e6),
            Account::V2 => {
                let text = fs::read_to_string(self.folder.join("cpu.stat")).ok()?;
                Some(number(text.lines().find_map(|line| line.strip_prefix("usage_usec"))?)? / 1e3)
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let out = match self.account {
            Account::V1 => "tasks",
            Account::V2 => "cgroup.procs",
        };
        drop(fs::write(self.root.join(out), "0"));
        drop(remove(&self.folder));
    }
}

/// Folders of control groups have files that cannot be removed one by one.
fn remove(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)?.flatten().filter(|entry| entry.path().is_dir()) {
        remove(&entry.path())?;
    }
    fs::remove_dir(folder)
}

/// Milliseconds of processor time of one run; empty where the kernel keeps no account of groups.
pub fn time(contestants: &[Contestant], place: &Place, rounds: usize) -> Result<Rounds, String> {
    let mut found = Rounds::default();
    let Some(account) = account() else { return Ok(found) };
    let lines = lines(contestants, place, Work::True, 0)?;
    let failed = |error| format!("a control group for the processor time cannot be made: {error}");
    let groups: Vec<_> = contestants
        .iter()
        .map(|contestant| Ok((contestant.id, Group::make(contestant.id, &account)?)))
        .collect::<std::io::Result<_>>()
        .map_err(failed)?;
    for round in 0..rounds + 1 {
        for contestant in rotated(contestants, round) {
            let group = groups.iter().find(|(id, _)| *id == contestant.id).map(|(_, group)| group);
            let took = group.zip(line_of(&lines, contestant.id)).and_then(|(group, line)| batch(group, line));
            // The first round does not count, as in every experiment.
            if round > 0 {
                found.push(contestant.id, took.unwrap_or(f64::NAN));
            }
        }
    }
    Ok(found)
}

fn batch(group: &Group, line: &Line) -> Option<f64> {
    group.enter().ok()?;
    let before = group.used()?;
    for _ in 0..RUNS {
        launch::timed(line)?;
    }
    thread::sleep(SETTLE);
    Some((group.used()? - before) / RUNS as f64)
}
