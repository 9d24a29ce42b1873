//! Control groups of both versions, and of hosts that have both at once.
//!
//! *Promises*: groups are made below the caller's own group, so that every limit of the caller keeps holding; every
//! write goes through a descriptor of a folder whose file system was checked; what the host lacks is a fact in
//! [`Available`] or an error, and never skipped.
//!
//! *Does not promise*: to hold anything for processes that are not in the group. They must be born in it
//! ([`Group::v2_dir`]) or write themselves into it first thing ([`Group::tasks`]).
//!
//! *Kernel facts*: a foreign pid, or `cgroup.procs` on v1, waits for an RCU grace period (6 to 14 ms after a rest);
//! `0` into v1 `tasks` does not. `cgroup.kill` 5.14, `memory.peak` 5.19. v1 memory counts kernel memory into
//! `memory.limit_in_bytes` itself, and `memory.kmem.limit_in_bytes` is refused since 5.16: it is not used.

#[cfg(feature = "systemd")]
mod bus;
mod detect;
mod enter;
mod group;
mod limits;
#[cfg(feature = "systemd")]
pub mod systemd;
#[cfg(test)]
mod tests;
mod usage;

use std::path::PathBuf;

use crate::error::Error;

pub use detect::Hierarchies;
pub use enter::{enter, remove};
pub use group::{Group, OomWatch};
pub use usage::Usage;

/// Which version holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// The hierarchy per controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// What the host has mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Neither.
    None,
    /// v1 alone.
    V1,
    /// v2 alone.
    V2,
    /// v1 controllers beside a v2 mount.
    Hybrid,
}

/// Controllers by their v1 names, except where v2's is clearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// memory.
    Memory,
    /// pids.
    Pids,
    /// cpu.
    Cpu,
    /// cpuset.
    CpuSet,
    /// v1 blkio, v2 io.
    Io,
    /// v1 cpuacct; part of v2 itself.
    CpuAccounting,
    /// v1 freezer; part of v2 itself.
    Freezer,
}

impl Controller {
    const LIMITING: [Self; 5] = [Self::Memory, Self::Pids, Self::Cpu, Self::CpuSet, Self::Io];

    /// The name in v1's mount options and `/proc/PID/cgroup`.
    #[must_use]
    pub const fn v1(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::CpuSet => "cpuset",
            Self::Io => "blkio",
            Self::CpuAccounting => "cpuacct",
            Self::Freezer => "freezer",
        }
    }

    /// The name in v2's `cgroup.controllers`; `None` where v2 has it without a controller.
    #[must_use]
    pub const fn v2(self) -> Option<&'static str> {
        match self {
            Self::Memory => Some("memory"),
            Self::Pids => Some("pids"),
            Self::Cpu => Some("cpu"),
            Self::CpuSet => Some("cpuset"),
            Self::Io => Some("io"),
            Self::CpuAccounting | Self::Freezer => None,
        }
    }
}

/// Why a controller cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// No hierarchy has it.
    #[error("no control group hierarchy with `{}` is mounted", .0.v1())]
    NotMounted(Controller),
    /// The mount shows another part of the hierarchy than the own group.
    #[error("the own group `{own}` is not below what is mounted (`{root}`)")]
    OutsideMount {
        /// Own group.
        own: String,
        /// Root of the mount.
        root: String,
    },
    /// Not writable by this user, or mounted read-only.
    #[error("`{}` cannot be written: {errno}", .path.display())]
    NotWritable {
        /// Folder.
        path: PathBuf,
        /// Answer of access(2).
        errno: rustix::io::Errno,
    },
    /// v2: the group has processes of others and limits of its own, so that neither it nor a group above it serves.
    #[error("`{}` holds other processes and limits of its own: a group below it is not allowed, one above it would escape them", .path.display())]
    Occupied {
        /// Folder.
        path: PathBuf,
    },
    /// v2: the group above does not hand the controller down.
    #[error("`{}` does not offer `{}`", .path.display(), .controller.v1())]
    NotOffered {
        /// Folder.
        path: PathBuf,
        /// Controller.
        controller: Controller,
    },
    /// v1 memory without hierarchical accounting: the caller's limit would not hold for groups below.
    #[error("`{}` has `memory.use_hierarchy` off", .path.display())]
    NotHierarchical {
        /// Folder.
        path: PathBuf,
    },
    /// The kernel interface could not be read.
    #[error("{0}")]
    Unreadable(Error),
}

/// How all processes of a group can be killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kill {
    /// One write to `cgroup.kill`.
    Atomic,
    /// Freeze, kill each, thaw.
    Frozen,
}

/// What the host can hold, and why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// What is mounted.
    pub layout: Layout,
    /// Memory of a tree.
    pub memory: Result<Version, Missing>,
    /// Whether swap is bounded too: by `memory.memsw` or `memory.swap.max`, or since the host has none.
    pub swap_bounded: bool,
    /// Number of processes and threads.
    pub pids: Result<Version, Missing>,
    /// Share of processor time.
    pub cpu: Result<Version, Missing>,
    /// Named processors.
    pub cpuset: Result<Version, Missing>,
    /// Bytes per second of a block device.
    pub io: Result<Version, Missing>,
    /// Killing all at once.
    pub kill: Result<Kill, Missing>,
}

/// Share of processor time: `quota_us` in each `period_us`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuShare {
    /// Microseconds of all processors together; the kernel's least is 1000.
    pub quota_us: u64,
    /// Microseconds, 1000 to 1000000.
    pub period_us: u64,
}

/// Bytes per second on one device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimit {
    /// (major, minor) of a whole disk.
    pub device: (u32, u32),
    /// Reads.
    pub read: Option<u64>,
    /// Writes.
    pub write: Option<u64>,
}

/// Limits of a group. `None` and empty: not limited, and no group is made for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes; swap is nothing on top.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Share.
    pub cpu: Option<CpuShare>,
    /// E.g. `0-1,4`.
    pub cpuset: Option<String>,
    /// Per device.
    pub io: Vec<IoLimit>,
}

impl Limits {
    /// The controllers that these need.
    #[must_use]
    pub fn controllers(&self) -> Vec<Controller> {
        let asked = |controller| match controller {
            Controller::Memory => self.memory.is_some(),
            Controller::Pids => self.pids.is_some(),
            Controller::Cpu => self.cpu.is_some(),
            Controller::CpuSet => self.cpuset.is_some(),
            Controller::Io => !self.io.is_empty(),
            Controller::CpuAccounting | Controller::Freezer => false,
        };
        Controller::LIMITING.into_iter().filter(|controller| asked(*controller)).collect()
    }
}

/// A group could not be made, limited, read or removed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CgroupError {
    /// The host cannot hold a limit that was asked.
    #[error("{0}")]
    Missing(#[from] Missing),
    /// The kernel refused a limit.
    #[error("`{}` does not take `{value}`: {errno}", .path.display())]
    Limit {
        /// File.
        path: PathBuf,
        /// What was written.
        value: String,
        /// Answer.
        errno: rustix::io::Errno,
    },
    /// Another call failed.
    #[error("{0}")]
    Call(#[from] Error),
}
