//! Limits into kernel files and back.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::detect::{Base, exists, read, record};
use super::group::{Part, open_folder};
use super::{CgroupError, Controller, CpuShare, IoLimit, Limits, Missing, Version};
use crate::error::{Error, ErrorContext as _};

/// What a new folder needs before limits and processes: v2 hands controllers down, v1 cpuset starts empty.
pub(super) fn prepare(base: &Base, folder: &str, part: &Part) -> Result<(), CgroupError> {
    let middle = || {
        open_folder(&base.folder, folder)
            .named("openat2", || base.path.join(folder).display().to_string())
            .map_err(CgroupError::from)
    };
    if base.version == Version::V2 && !part.controllers.is_empty() {
        hand_down(&base.folder, &part.controllers, &base.path.display().to_string())?;
        hand_down(&middle()?, &part.controllers, &base.path.join(folder).display().to_string())?;
    }
    if base.version == Version::V1 && part.controllers.contains(&Controller::CpuSet) {
        let middle = middle()?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if read(&middle, file)?.is_empty() {
                let value = read(&base.folder, file)?;
                put(&middle, file, &value).map_err(|errno| taken(base.path.join(folder).join(file), (value, errno)))?;
            }
            let value = read(&middle, file)?;
            write(part, file, &value)?;
        }
    }
    Ok(())
}

fn hand_down(folder: &OwnedFd, controllers: &[Controller], path: &str) -> Result<(), CgroupError> {
    let now = read(folder, "cgroup.subtree_control")?;
    let missing: Vec<String> = controllers
        .iter()
        .filter_map(|one| one.v2())
        .filter(|name| !now.split(' ').any(|has| has == *name))
        .map(|name| format!("+{name}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let value = missing.join(" ");
    put(folder, "cgroup.subtree_control", &value)
        .map_err(|errno| taken(std::path::Path::new(path).join("cgroup.subtree_control"), (value, errno)))
}

/// Writes all limits that are asked. Memory first: it is the one that must hold before anything is charged.
pub(super) fn apply(parts: &[Part], limits: &Limits) -> Result<(), CgroupError> {
    let find = |controller| {
        parts.iter().find(|part| part.controllers.contains(&controller)).ok_or(Missing::NotMounted(controller))
    };
    if let Some(bytes) = limits.memory {
        memory(find(Controller::Memory)?, bytes)?;
    }
    if let Some(number) = limits.pids {
        write(find(Controller::Pids)?, "pids.max", &number.to_string())?;
    }
    if let Some(share) = limits.cpu {
        let part = find(Controller::Cpu)?;
        match part.version {
            Version::V1 => {
                write(part, "cpu.cfs_period_us", &share.period_us.to_string())?;
                write(part, "cpu.cfs_quota_us", &share.quota_us.to_string())?;
            }
            Version::V2 => write(part, "cpu.max", &format!("{} {}", share.quota_us, share.period_us))?,
        }
    }
    if let Some(list) = &limits.cpuset {
        write(find(Controller::CpuSet)?, "cpuset.cpus", list)?;
    }
    for limit in &limits.io {
        io(find(Controller::Io)?, limit)?;
    }
    Ok(())
}

/// v1: memory of TCP and UDP. A kernel without IPv4 has none.
pub(super) const SOCKETS: &str = "memory.kmem.tcp.limit_in_bytes";

/// What buffers of TCP and UDP may take on v1 besides so much memory.
const fn sockets(memory: u64) -> u64 {
    memory / 4
}

fn memory(part: &Part, bytes: u64) -> Result<(), CgroupError> {
    let value = bytes.to_string();
    match part.version {
        Version::V1 => {
            // Buffers of TCP and UDP are counted apart, and without a limit of their own by nobody.
            if exists(&part.folder, SOCKETS) {
                write(part, SOCKETS, &sockets(bytes).to_string())?;
            }
            // Lowering below the old memory+swap limit must come first, raising above it last.
            let lowered = write(part, "memory.limit_in_bytes", &value);
            match write(part, "memory.memsw.limit_in_bytes", &value) {
                Ok(()) => match lowered {
                    Ok(()) => Ok(()),
                    Err(_) => write(part, "memory.limit_in_bytes", &value),
                },
                Err(CgroupError::Limit { errno: Errno::NOENT, .. }) => {
                    lowered?;
                    // Without swap accounting: as little swap as the kernel lets us ask for.
                    write(part, "memory.swappiness", "0")
                }
                Err(error) => Err(error),
            }
        }
        Version::V2 => {
            write(part, "memory.max", &value)?;
            if exists(&part.folder, "memory.swap.max") {
                write(part, "memory.swap.max", "0")?;
            }
            // The group dies as one: half a tree is no state for a program to go on in.
            write(part, "memory.oom.group", "1")
        }
    }
}

fn io(part: &Part, limit: &IoLimit) -> Result<(), CgroupError> {
    let (major, minor) = limit.device;
    match part.version {
        Version::V1 => {
            for (file, value) in
                [("blkio.throttle.read_bps_device", limit.read), ("blkio.throttle.write_bps_device", limit.write)]
            {
                if let Some(bytes) = value {
                    write(part, file, &format!("{major}:{minor} {bytes}"))?;
                }
            }
            Ok(())
        }
        Version::V2 => {
            let mut line = format!("{major}:{minor}");
            for (key, value) in [("rbps", limit.read), ("wbps", limit.write)] {
                line.extend(value.map(|bytes| format!(" {key}={bytes}")));
            }
            write(part, "io.max", &line)
        }
    }
}

/// The limits as the kernel has them.
pub(super) fn read_back(parts: &[Part]) -> Result<Limits, CgroupError> {
    let mut limits = Limits::default();
    for part in parts {
        for controller in &part.controllers {
            match controller {
                Controller::Memory => limits.memory = memory_and_swap(part)?,
                Controller::Pids => limits.pids = number(part, "pids.max")?,
                Controller::Cpu => limits.cpu = cpu(part)?,
                Controller::CpuSet => {
                    limits.cpuset = Some(record(&part.folder, "cpuset.cpus")?).filter(|text| !text.is_empty());
                }
                Controller::Io => limits.io = devices(part)?,
                Controller::CpuAccounting | Controller::Freezer => {}
            }
        }
    }
    Ok(limits)
}

/// The limit of memory, which is none where swap, or on v1 buffers of sockets, come on top of it without one.
fn memory_and_swap(part: &Part) -> Result<Option<u64>, CgroupError> {
    match part.version {
        Version::V1 => {
            let memory = number(part, "memory.limit_in_bytes")?;
            let both = match exists(&part.folder, "memory.memsw.limit_in_bytes") {
                true => number(part, "memory.memsw.limit_in_bytes")?,
                false => memory,
            };
            // v1 says "no limit" with the largest multiple of a page.
            let limit = memory.max(both).filter(|bytes| *bytes < u64::MAX >> 2);
            let buffers = match exists(&part.folder, SOCKETS) {
                true => number(part, SOCKETS)?,
                false => Some(0),
            };
            Ok(limit.filter(|bytes| buffers.is_some_and(|buffers| buffers <= sockets(*bytes))))
        }
        Version::V2 => {
            let swap = match exists(&part.folder, "memory.swap.max") {
                true => number(part, "memory.swap.max")?,
                false => Some(0),
            };
            Ok(number(part, "memory.max")?.filter(|_| swap == Some(0)))
        }
    }
}

/// The rates of each device that has any. v1 has a file for each direction, `8:0 1048576`; v2 one for all,
/// `8:0 rbps=1048576 wbps=max riops=max wiops=max`.
fn devices(part: &Part) -> Result<Vec<IoLimit>, CgroupError> {
    let mut found: Vec<IoLimit> = Vec::new();
    let mut put = |device: &str, key: &str, rate: &str| {
        let (major, minor) = device.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let at = found.iter().position(|limit| limit.device == device).unwrap_or_else(|| {
            found.push(IoLimit { device, read: None, write: None });
            found.len().saturating_sub(1)
        });
        let limit = found.get_mut(at)?;
        match (key, rate) {
            (_, "max") => {}
            ("rbps", rate) => limit.read = Some(rate.parse().ok()?),
            ("wbps", rate) => limit.write = Some(rate.parse().ok()?),
            (_, _) => {}
        }
        Some(())
    };
    match part.version {
        Version::V1 => {
            for (file, key) in [("blkio.throttle.read_bps_device", "rbps"), ("blkio.throttle.write_bps_device", "wbps")]
            {
                for line in read(&part.folder, file)?.lines() {
                    line.split_once(' ')
                        .and_then(|(device, rate)| put(device, key, rate))
                        .ok_or_else(|| bad(part, file))?;
                }
            }
        }
        Version::V2 => {
            for line in read(&part.folder, "io.max")?.lines() {
                let mut words = line.split(' ');
                let device = words.next().unwrap_or_default();
                for word in words {
                    let read = word.split_once('=').and_then(|(key, rate)| put(device, key, rate));
                    read.ok_or_else(|| bad(part, "io.max"))?;
                }
            }
        }
    }
    Ok(found)
}

fn cpu(part: &Part) -> Result<Option<CpuShare>, CgroupError> {
    let text = match part.version {
        Version::V1 => {
            let (quota, period) =
                (record(&part.folder, "cpu.cfs_quota_us")?, record(&part.folder, "cpu.cfs_period_us")?);
            format!("{quota} {period}")
        }
        Version::V2 => record(&part.folder, "cpu.max")?,
    };
    let Some((quota, period)) = text.split_once(' ') else { return Err(bad(part, "cpu.max")) };
    if quota == "max" || quota == "-1" {
        return Ok(None);
    }
    match (quota.parse(), period.parse()) {
        (Ok(quota_us), Ok(period_us)) => Ok(Some(CpuShare { quota_us, period_us })),
        (_, _) => Err(bad(part, "cpu.max")),
    }
}

/// A number, or `None` for `max`.
pub(super) fn number(part: &Part, file: &str) -> Result<Option<u64>, CgroupError> {
    let text = record(&part.folder, file)?;
    if text == "max" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_not_a_number| bad(part, file))
}

fn bad(part: &Part, file: &str) -> CgroupError {
    Error::new("parse", part.path.join(file).display().to_string(), Errno::BADMSG).into()
}

/// Writes one value into a file of the group.
pub(super) fn write(part: &Part, file: &str, value: &str) -> Result<(), CgroupError> {
    put(&part.folder, file, value).map_err(|errno| taken(part.path.join(file), (value.to_owned(), errno)))
}

fn taken(path: std::path::PathBuf, (value, errno): (String, Errno)) -> CgroupError {
    CgroupError::Limit { path, value, errno }
}

fn put(folder: &OwnedFd, file: &str, value: &str) -> Result<(), Errno> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let fd = rustix::fs::openat(folder, file, flags, Mode::empty())?;
    let written = rustix::io::write(&fd, value.as_bytes())?;
    if written == value.len() { Ok(()) } else { Err(Errno::IO) }
}
