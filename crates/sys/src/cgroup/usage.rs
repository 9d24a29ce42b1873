//! What a group uses and used.

use super::detect::record;
use super::group::{Group, Part};
use super::{CgroupError, Controller, Version, limits};
use crate::error::Error;
use rustix::io::Errno;

/// Counters of a group. `None`: this group has no part that counts it, or the kernel is too old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes now, page cache and kernel memory included.
    pub memory: Option<u64>,
    /// The most bytes so far.
    pub memory_peak: Option<u64>,
    /// Processes killed for want of memory.
    pub oom_kills: Option<u64>,
    /// Buffers of TCP and UDP have what they may have (v1, which counts them apart): more is thrown away.
    pub sockets_full: bool,
    /// Processes and threads now.
    pub pids: Option<u64>,
    /// The most so far.
    pub pids_peak: Option<u64>,
    /// How often a fork was refused.
    pub pids_refused: Option<u64>,
    /// Processor time in user mode, microseconds.
    pub cpu_user_us: Option<u64>,
    /// Processor time in the kernel, microseconds.
    pub cpu_system_us: Option<u64>,
    /// Processor time of both, microseconds: of all that ran, up to the last tick of who runs now.
    pub cpu_us: Option<u64>,
    /// How long the group had to wait for its share, microseconds.
    pub cpu_throttled_us: Option<u64>,
    /// Bytes read from block devices.
    pub io_read: Option<u64>,
    /// Bytes written to block devices.
    pub io_written: Option<u64>,
}

impl Group {
    /// Reads all counters that this group has.
    ///
    /// # Errors
    /// A file that must exist is missing or does not parse.
    pub fn usage(&self) -> Result<Usage, CgroupError> {
        self.counters(false)
    }

    /// As [`Group::usage`], when everything in it has ended: what is in use now is left out where there is a peak.
    ///
    /// # Errors
    /// As [`Group::usage`].
    pub fn used(&self) -> Result<Usage, CgroupError> {
        self.counters(true)
    }

    /// Processor time of all that ran in it, exact, microseconds: one file. `None` where nothing counts it.
    ///
    /// # Errors
    /// As [`Group::usage`].
    pub fn ran_us(&self) -> Result<Option<u64>, CgroupError> {
        if let Some(part) = self.parts.iter().find(|part| part.version == Version::V2) {
            return Ok(keyed(&record(&part.folder, "cpu.stat")?, "usage_usec"));
        }
        let counts = |part: &&Part| part.controllers.contains(&Controller::CpuAccounting);
        let Some(part) = self.parts.iter().find(counts) else { return Ok(None) };
        Ok(limits::number(part, "cpuacct.usage")?.map(|nanos| nanos / 1000))
    }

    fn counters(&self, ended: bool) -> Result<Usage, CgroupError> {
        let mut usage = Usage::default();
        for part in &self.parts {
            if part.version == Version::V2 {
                processor_v2(part, &mut usage)?;
            }
            for controller in &part.controllers {
                match controller {
                    Controller::Memory => memory(part, ended, &mut usage)?,
                    Controller::Pids => pids(part, ended, &mut usage)?,
                    Controller::Cpu if part.version == Version::V1 => {
                        let text = record(&part.folder, "cpu.stat")?;
                        usage.cpu_throttled_us = keyed(&text, "throttled_time").map(|nanos| nanos / 1000);
                    }
                    Controller::CpuAccounting => {
                        let [all, user, system] = ["cpuacct.usage", "cpuacct.usage_user", "cpuacct.usage_sys"]
                            .map(|file| limits::number(part, file).map(|nanos| nanos.map(|nanos| nanos / 1000)));
                        usage.cpu_us = all?;
                        let parts = shared_out(usage.cpu_us, user?, system?);
                        (usage.cpu_user_us, usage.cpu_system_us) = parts;
                    }
                    Controller::Io => io(part, &mut usage)?,
                    Controller::Cpu | Controller::CpuSet | Controller::Freezer => {}
                }
            }
        }
        Ok(usage)
    }
}

fn memory(part: &Part, ended: bool, usage: &mut Usage) -> Result<(), CgroupError> {
    let (now, peak, events) = match part.version {
        Version::V1 => ("memory.usage_in_bytes", "memory.max_usage_in_bytes", "memory.oom_control"),
        Version::V2 => ("memory.current", "memory.peak", "memory.events"),
    };
    usage.memory_peak = since(limits::number(part, peak))?;
    if !ended || usage.memory_peak.is_none() {
        usage.memory = limits::number(part, now)?;
    }
    usage.oom_kills = keyed(&record(&part.folder, events)?, "oom_kill");
    usage.sockets_full = part.version == Version::V1 && !ended && sockets_full(part);
    Ok(())
}

/// A kernel without IPv4 has no such counter.
fn sockets_full(part: &Part) -> bool {
    let read = |file| limits::number(part, file).ok().flatten();
    let both = read("memory.kmem.tcp.usage_in_bytes").zip(read(limits::SOCKETS));
    // What would pass the limit is not let in, so that a little always stays free.
    both.is_some_and(|(used, most)| used >= most.saturating_sub((most / 16).min(1 << 17)))
}

fn pids(part: &Part, ended: bool, usage: &mut Usage) -> Result<(), CgroupError> {
    usage.pids_peak = since(limits::number(part, "pids.peak"))?;
    if !ended || usage.pids_peak.is_none() {
        usage.pids = limits::number(part, "pids.current")?;
    }
    // `pids.events` counts in the group whose limit was hit; v2's local file (6.11) counts here where the mount does not.
    let local = match part.version {
        Version::V1 => None,
        Version::V2 => record(&part.folder, "pids.events.local").ok(),
    };
    usage.pids_refused = match local.map_or_else(|| record(&part.folder, "pids.events"), Ok) {
        Ok(text) => keyed(&text, "max"),
        Err(error) if error.errno == Errno::NOENT => None,
        Err(error) => return Err(error.into()),
    };
    Ok(())
}

/// User and system time of v1 are samples, in which nobody is who sleeps at each tick: they only say how the time of all that ran,
/// which is exact, is shared out, as the kernel itself does it for v2.
fn shared_out(all: Option<u64>, user: Option<u64>, system: Option<u64>) -> (Option<u64>, Option<u64>) {
    let Some(all) = all else { return (user, system) };
    let (user, system) = (u128::from(user.unwrap_or(0)), u128::from(system.unwrap_or(0)));
    let share = (u128::from(all) * system).checked_div(user + system).unwrap_or(0);
    let system = u64::try_from(share).unwrap_or(all).min(all);
    (Some(all.saturating_sub(system)), Some(system))
}

fn processor_v2(part: &Part, usage: &mut Usage) -> Result<(), CgroupError> {
    let text = record(&part.folder, "cpu.stat")?;
    usage.cpu_us = keyed(&text, "usage_usec");
    usage.cpu_user_us = keyed(&text, "user_usec");
    usage.cpu_system_us = keyed(&text, "system_usec");
    usage.cpu_throttled_us = keyed(&text, "throttled_usec").or(usage.cpu_throttled_us);
    Ok(())
}

fn io(part: &Part, usage: &mut Usage) -> Result<(), CgroupError> {
    let (read_sum, written) = match part.version {
        Version::V1 => v1_io(&record(&part.folder, "blkio.throttle.io_service_bytes_recursive")?),
        Version::V2 => v2_io(&record(&part.folder, "io.stat")?),
    }
    .ok_or_else(|| Error::new("parse", part.path.display().to_string(), Errno::BADMSG))?;
    usage.io_read = Some(read_sum);
    usage.io_written = Some(written);
    Ok(())
}

/// Lines `8:0 Read 4096`, and a last one `Total 4096`.
fn v1_io(text: &str) -> Option<(u64, u64)> {
    let (mut reads, mut writes) = (0u64, 0u64);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let (_, kind, number) = (words.next()?, words.next()?, words.next());
        match (kind, number) {
            ("Read", Some(number)) => reads = reads.saturating_add(number.parse().ok()?),
            ("Write", Some(number)) => writes = writes.saturating_add(number.parse().ok()?),
            (_, _) => {}
        }
    }
    Some((reads, writes))
}

/// Lines `8:0 rbytes=4096 wbytes=0 ...`.
fn v2_io(text: &str) -> Option<(u64, u64)> {
    let sum = |key: &str| {
        text.split_ascii_whitespace()
            .filter_map(|word| word.strip_prefix(key))
            .try_fold(0u64, |sum, number| Some(sum.saturating_add(number.parse().ok()?)))
    };
    Some((sum("rbytes=")?, sum("wbytes=")?))
}

/// A file that came with a later kernel.
fn since(value: Result<Option<u64>, CgroupError>) -> Result<Option<u64>, CgroupError> {
    match value {
        Err(CgroupError::Call(error)) if error.errno == Errno::NOENT => Ok(None),
        other => other,
    }
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_devices_are_summed() {
        assert_eq!(v1_io("8:0 Read 10\n8:0 Write 5\n8:0 Sync 99\n254:0 Read 1\nTotal 115"), Some((11, 5)));
        assert_eq!(v1_io("Total 0"), Some((0, 0)));
        assert_eq!(v2_io("8:0 rbytes=10 wbytes=5 rios=1\n254:0 rbytes=1 wbytes=0"), Some((11, 5)));
        assert_eq!(v2_io("8:0 rbytes=x wbytes=5"), None);
    }

    /// Who sleeps at each tick is in no sample, and has used what it used.
    #[test]
    fn the_time_of_all_that_ran_is_shared_out_as_the_samples_say() {
        assert_eq!(shared_out(Some(1000), Some(0), Some(0)), (Some(1000), Some(0)));
        assert_eq!(shared_out(Some(1000), Some(30), Some(10)), (Some(750), Some(250)));
        assert_eq!(
            shared_out(Some(u64::MAX), Some(u64::MAX), Some(u64::MAX)),
            (Some(u64::MAX / 2 + 1), Some(u64::MAX / 2))
        );
        assert_eq!(shared_out(None, Some(3), Some(1)), (Some(3), Some(1)));
    }

    #[test]
    fn a_key_is_matched_whole() {
        assert_eq!(keyed("oom_kill_disable 0\nunder_oom 0\noom_kill 3", "oom_kill"), Some(3));
        assert_eq!(keyed("oom 1", "oom_kill"), None);
    }
}
