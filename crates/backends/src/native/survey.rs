//! Usage of a tree by looking at its processes, where no control group counts.

use std::collections::BTreeSet;

/// What the processes of a tree use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Survey {
    pub(super) user_us: u64,
    pub(super) system_us: u64,
    /// Memory of all, bytes.
    pub(super) memory: u64,
    /// Threads of all.
    pub(super) pids: u64,
    /// Bytes of open files on disk that no name leads to.
    pub(super) unlinked: u64,
}

/// Looks at the tree below `root`, itself included. A process that ends meanwhile counts as nothing.
///
/// Memory is what is mapped privately, plus the file systems of ours (`in_memory`: where they are mounted), plus files in
/// memory without a name (memfd and what was removed while open), each once: a page that is in a file and mapped too is
/// counted with the file. What is mapped and has no open file any more (anonymous shared mappings) shows when the shared
/// pages are more than all the files.
pub(super) fn tree(root: i32, in_memory: &[String]) -> Survey {
    let mut sum = Survey::default();
    let (mut files, mut mapped) = (0_u64, 0_u64);
    let (mut unlinked, mut ours) = (BTreeSet::new(), BTreeSet::new());
    for pid in sys::proc::tree(root).unwrap_or_default() {
        let Ok(process) = sys::proc::Process::open(pid) else { continue };
        let (private, shared) = process.resident_bytes().unwrap_or((0, 0));
        sum.memory = sum.memory.saturating_add(private);
        mapped = mapped.saturating_add(shared);
        unlinked.extend(process.unlinked_files().unwrap_or_default());
        if pid == root {
            for (device, used) in in_memory.iter().filter_map(|place| process.used_bytes_at(place).ok()) {
                ours.insert(device);
                files = files.saturating_add(used);
            }
        }
        if let Ok(text) = process.small_text("stat") {
            let (user, system, threads) = times(&text);
            sum.user_us = sum.user_us.saturating_add(user);
            sum.system_us = sum.system_us.saturating_add(system);
            sum.pids = sum.pids.saturating_add(threads);
        }
    }
    for file in unlinked {
        if ours.contains(&file.device) {
            continue;
        }
        if major(file.device) == 0 {
            // No block device: memory.
            files = files.saturating_add(file.bytes);
        } else {
            sum.unlinked = sum.unlinked.saturating_add(file.bytes);
        }
    }
    sum.memory = sum.memory.saturating_add(files.max(mapped));
    sum
}

fn major(device: u64) -> u32 {
    sys::caller::device_numbers(device).0
}

/// User and system time in microseconds, of it and of the children that it waited for, and threads, of a line of
/// `/proc/PID/stat` (proc_pid_stat(5)): fields 14 to 17 and 20; the name in field 2 may hold anything, so counting starts
/// after its last bracket. A tick is 10 ms.
fn times(stat: &str) -> (u64, u64, u64) {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field =
        |number: usize| rest.split_ascii_whitespace().nth(number).and_then(|f| f.parse::<u64>().ok()).unwrap_or(0);
    let micros = |own: usize, children: usize| field(own).saturating_add(field(children)).saturating_mul(10_000);
    (micros(11, 13), micros(12, 14), field(17))
}

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "7 (a) b) c) S 1 7 7 0 -1 4194560 1 2 3 4 15 16 5 6 20 0 3 0 99";
        assert_eq!(times(stat), (200_000, 220_000, 3));
    }
}
