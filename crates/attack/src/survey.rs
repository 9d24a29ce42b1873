//! The host's processes, as `/proc` shows them: which of them belong to a probe, and what the kernel says of them.

use std::path::{Path, PathBuf};

/// One process of a probe, as seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its number here.
    pub pid: i32,
    /// Its `status`, whole.
    pub status: String,
    /// How many threads it has.
    pub threads: u64,
    /// Resident bytes.
    pub resident: u64,
    /// Time used, in clock ticks.
    pub ticks: u64,
}

impl Task {
    /// One field of `status`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.status, name)
    }

    /// A file of its folder in `/proc`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.pid))
    }

    /// The text of a file of its folder in `/proc`.
    #[must_use]
    pub fn read(&self, name: &str) -> Option<String> {
        std::fs::read(self.path(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// One field of a text of lines `name: value`.
#[must_use]
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// The processes whose arguments are `__probe` first and `marker` second: the probe itself and its forks, not the sandbox
/// program around it, whose arguments hold both further behind.
#[must_use]
pub fn tasks(marker: &str) -> Vec<Task> {
    let wanted = format!("__probe\0{marker}\0");
    let mut found = Vec::new();
    for pid in pids() {
        let Ok(arguments) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
        let after = arguments.iter().position(|byte| *byte == 0).map_or(0, |at| at + 1);
        if arguments.get(after..).is_some_and(|rest| rest.starts_with(wanted.as_bytes())) {
            found.extend(task(pid));
        }
    }
    found
}

/// Every process that this `/proc` shows.
#[must_use]
pub fn pids() -> Vec<i32> {
    let Ok(folder) = std::fs::read_dir(Path::new("/proc")) else { return Vec::new() };
    folder.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// One process; `None` if it ended meanwhile.
#[must_use]
pub fn task(pid: i32) -> Option<Task> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    if field(&status, "State")?.starts_with(['Z', 'X']) {
        return None;
    }
    let threads = field(&status, "Threads")?.parse().ok()?;
    let kib: u64 = field(&status, "VmRSS").and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0);
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything; the fields behind it are numbers.
    let (_, numbers) = stat.rsplit_once(')')?;
    let ticks = numbers.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Some(Task { pid, status, threads, resident: kib.saturating_mul(1024), ticks })
}
