//! What the numbers were measured on, since they mean nothing without it.

use std::fs;

fn first_line(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().next().unwrap_or("?").trim().to_owned()
}

fn field(path: &str, name: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.map_or("?".to_owned(), |value| value.trim_start_matches(['\t', ' ', ':', '=']).trim_matches('"').to_owned())
}

/// The load average of the last minute.
pub fn load() -> String {
    first_line("/proc/loadavg").split_whitespace().next().unwrap_or("?").to_owned()
}

/// Processor, memory, kernel, distribution, control groups, in one paragraph.
pub fn described() -> String {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field("/proc/meminfo", "MemTotal").trim_end_matches(" kB").parse::<u64>().unwrap_or(0) >> 20;
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let v1 = mounts.contains(" - cgroup cgroup ");
    let v2 = mounts.contains(" - cgroup2 ");
    let groups = match (v1, v2) {
        (true, true) => "v1 controllers beside a v2 mount",
        (true, false) => "v1",
        (false, true) => "v2",
        (false, false) => "none",
    };
    format!(
        "{cores} cores of {}, {memory} GiB, Linux {}, {}, control groups: {groups}",
        field("/proc/cpuinfo", "model name"),
        first_line("/proc/sys/kernel/osrelease"),
        field("/etc/os-release", "PRETTY_NAME"),
    )
}
