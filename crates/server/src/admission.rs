//! Whether the host has room for one more sandbox: asked before it is in trouble, so that those that run stay well.

use axum::http::StatusCode;

use crate::answer::Problem;

/// Memory that stays free, bytes.
const FREE_MEMORY: u64 = 256 << 20;
/// Seconds after which a caller may try again.
const RETRY: u32 = 2;

/// What the host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// `MemAvailable`, bytes; `None` = it cannot be told.
    pub(crate) memory: Option<u64>,
    /// Processes and threads that exist, and that may.
    pub(crate) processes: Option<(u64, u64)>,
}

impl Room {
    /// As the kernel tells it.
    pub(crate) fn read() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let most = |path: &str| file(path).trim().parse::<u64>().ok();
        let most = [most("/proc/sys/kernel/pid_max"), most("/proc/sys/kernel/threads-max")].into_iter().flatten().min();
        Self { memory: available(&file("/proc/meminfo")), processes: existing(&file("/proc/loadavg")).zip(most) }
    }

    /// # Errors
    /// There is no room, and when to try again.
    pub(crate) fn admit(self) -> Result<(), Problem> {
        let busy = |clause: &str, what: &str, why: &str| {
            let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "serve/busy", what, why, "try again soon");
            Err(problem.about(clause).again_in(RETRY))
        };
        if self.memory.is_some_and(|free| free < FREE_MEMORY) {
            let why = "with one more, those that run could be ended for want of memory";
            return busy("limits.memory", "the host has too little memory left", why);
        }
        if self.processes.is_some_and(|(there, most)| there > most.saturating_sub(most / 8)) {
            return busy("limits.pids", "the host has too few processes left", "seven eighths of them exist");
        }
        Ok(())
    }
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `0.1 0.2 0.3 2/345 6789`: the number after the slash.
fn existing(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_writes_is_read() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    1000 kB\n"), Some(1_024_000));
        assert_eq!(existing("0.00 0.01 0.05 2/345 6789\n"), Some(345));
        assert!(Room::read().memory.is_some_and(|free| free > 0) && Room::read().processes.is_some());
    }

    #[test]
    fn a_full_host_is_told_with_when_to_come_again() {
        let good = Room { memory: Some(1 << 30), processes: Some((100, 32768)) };
        assert_eq!(good.admit(), Ok(()));
        assert_eq!(Room::default().admit(), Ok(()));
        for (full, clause) in [
            (Room { memory: Some(1 << 20), ..good }, "limits.memory"),
            (Room { processes: Some((30_000, 32768)), ..good }, "limits.pids"),
        ] {
            let problem = full.admit().unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.clause, problem.retry), (503, clause, Some(RETRY)));
        }
    }
}
