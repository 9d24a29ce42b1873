//! How much the host has left, as the kernel tells it.

/// What the host has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Headroom {
    /// `MemAvailable`, bytes; `None` = it cannot be told.
    pub memory: Option<u64>,
    /// Processes and threads that exist, and that may.
    pub processes: Option<(u64, u64)>,
}

impl Headroom {
    /// Now.
    #[must_use]
    pub fn read() -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let most = |path: &str| file(path).trim().parse::<u64>().ok();
        let most = [most("/proc/sys/kernel/pid_max"), most("/proc/sys/kernel/threads-max")].into_iter().flatten().min();
        Self {
            memory: sys::proc::parse_meminfo(&file("/proc/meminfo"), "MemAvailable"),
            processes: existing(&file("/proc/loadavg")).zip(most),
        }
    }
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
        assert_eq!(
            sys::proc::parse_meminfo("MemTotal: 9 kB\nMemAvailable:    1000 kB\n", "MemAvailable"),
            Some(1_024_000)
        );
        assert_eq!(existing("0.00 0.01 0.05 2/345 6789\n"), Some(345));
        assert!(Headroom::read().memory.is_some_and(|free| free > 0) && Headroom::read().processes.is_some());
    }
}
