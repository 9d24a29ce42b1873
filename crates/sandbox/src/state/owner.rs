//! Who owns a run: a process, known by pid, start time and boot, since pids are used again.

use std::fs::File;
use std::io::Read as _;

use serde::{Deserialize, Serialize};

/// One process of one boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Process id, in its own pid namespace.
    pub pid: u32,
    /// Its start, in clock ticks since boot.
    pub start_time: u64,
    /// The boot it was started in.
    pub boot_id: String,
}

impl Owner {
    /// This process. What /proc does not tell is left empty; the lock on the journal still tells whether we live.
    #[must_use]
    pub fn this() -> Self {
        Self {
            pid: std::process::id(),
            start_time: start_time("/proc/self/stat").unwrap_or(0),
            boot_id: boot_id().unwrap_or_default(),
        }
    }

    /// Whether a process with this pid and start time runs in this boot and pid namespace.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.start_time != 0
            && boot_id().is_some_and(|boot| boot == self.boot_id)
            && start_time(&format!("/proc/{}/stat", self.pid)) == Some(self.start_time)
    }
}

fn boot_id() -> Option<String> {
    small("/proc/sys/kernel/random/boot_id").map(|text| text.trim().to_owned())
}

/// Field 22 of `/proc/PID/stat` (proc_pid_stat(5)). The second field is the program's name and may hold anything: count
/// from the last `)`. A zombie has ended.
fn start_time(path: &str) -> Option<u64> {
    let text = small(path)?;
    let (_, rest) = text.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn small(path: &str) -> Option<String> {
    let mut text = Vec::with_capacity(1024);
    File::open(path).ok()?.take(4096).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_runs_and_its_pid_with_another_start_or_boot_does_not() {
        let this = Owner::this();
        assert!(this.is_running() && this.start_time > 0);
        assert!(!Owner { start_time: this.start_time + 1, ..this.clone() }.is_running());
        assert!(!Owner { boot_id: "another".into(), ..this }.is_running());
    }
}
