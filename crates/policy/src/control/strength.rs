//! Who stops what may not be, against whom, and how far it may be passed.

use serde::Serialize;

use super::{Accelerator, CgroupLimit, Control, Filter, Machine};
use crate::value::Threat;

/// Who holds a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// Our supervisor, by watching.
    Supervisor,
    /// Our broker, by doing it on the sandbox's behalf.
    Broker,
    /// The kernel.
    Kernel,
}

impl Strength {
    /// The word in plans and reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Supervisor => "supervisor",
            Self::Broker => "broker",
            Self::Kernel => "kernel",
        }
    }
}

impl Control {
    /// Who holds it.
    #[must_use]
    pub const fn strength(&self) -> Strength {
        self.hold().0
    }

    /// Against whom it holds. What a hostile program can hide from holds against mistakes.
    #[must_use]
    pub const fn against(&self) -> Threat {
        self.hold().1
    }

    /// How far what it holds may be passed before it acts; `None` = not at all.
    #[must_use]
    pub fn overshoot(&self) -> Option<&str> {
        if let Self::OwnKernel { platform: _, faults: Some(faults) } = self {
            return Some(faults);
        }
        let inner = if let Self::InMachine(inner) = self { inner } else { self };
        if let Self::Certificates { at } = inner
            && at.is_empty()
        {
            return Some(
                "no file of certificates of the root is replaced: of the hosts whose requests are read, only programs that read a variable trust any",
            );
        }
        self.hold().2
    }

    /// Who holds it, against whom, and how far it may be passed: one table, so that a new control says all three.
    #[expect(clippy::too_many_lines, reason = "a table: one arm per control")]
    const fn hold(&self) -> (Strength, Threat, Option<&'static str>) {
        use Strength::{Broker, Kernel, Supervisor};
        use Threat::{Hostile, Mistakes};
        match self {
            Self::Watch(watch) => (Supervisor, watch.against(), watch.overshoot()),
            // What it takes for granted is a program of many parts; the process tier stands behind it.
            Self::Interpreter(_) => {
                (Supervisor, Mistakes, Some("what a mistake of the interpreter lets through meets the process tier"))
            }
            Self::Environment(_) | Self::Audit | Self::ProtectedAtApply | Self::ImageTree(_) => {
                (Supervisor, Hostile, None)
            }
            Self::EachFile(_) => (Supervisor, Mistakes, Some("any number of files, each up to `limits.file_size`")),
            Self::CommandGate => (Broker, Hostile, Some("what an allowed program does is the sandbox's to judge")),
            Self::ToolGate | Self::Broker | Self::Secrets => (Broker, Hostile, None),
            Self::Proxy => (Broker, Hostile, Some("a name leads where the proxy resolves it to, private or not")),
            // SQLite locks ranges of its own files; a filter sees no file.
            Self::Filter(Filter::SharedFiles { locks: true, .. }) => {
                (Kernel, Hostile, Some("locks of byte ranges (fcntl) on files of the host that can only be read"))
            }
            Self::Filter(Filter::SharedFiles { locks: false, .. }) => (
                Kernel,
                Hostile,
                Some(
                    "locks of whole files (flock) and of byte ranges (fcntl) on files of the host that can only be read",
                ),
            ),
            // Measured: chdir(2) and getcwd(2), or an O_PATH descriptor and /proc/self/fd, say where it leads.
            Self::Filter(Filter::Links) => (
                Kernel,
                Hostile,
                Some(
                    "a link of a folder that was not granted and that leads to something which is there: it can be followed, and asked where that is; what everybody on the host can list is told",
                ),
            ),
            Self::KeptGroups(_) => (
                Kernel,
                Hostile,
                Some("supplementary groups of the caller stay: what they may read or write is open where it is shown"),
            ),
            Self::Covered(_) => (Kernel, Hostile, Some("what a program of the host makes there while the run lasts")),
            // The supervisor fills it, whose own group is charged for the pages; written over in place they stay so.
            Self::Copy { from: _, at: _, size: Some(_) } => (
                Kernel,
                Hostile,
                Some("memory: a control group does not count what the copy held when it began, up to `limits.disk`"),
            ),
            // Measured: 604 MiB of such lists under a limit of 128. An open folder that has more than one layer keeps the names as
            // they were when it was read; `--on` is filled by the supervisor, as a copy is.
            Self::Overlay { .. } => (
                Kernel,
                Hostile,
                Some(
                    "memory that no limit counts: names of the tree that folders which are held open keep, half a KiB each, `limits.open_files` times `limits.pids` times all of them; of control groups, with `--on`, what was changed before",
                ),
            ),
            // Landlock judges `execve`, not `mmap`: a loader among the executables maps whatever it can read (measured).
            Self::NoexecRules(_) => (
                Kernel,
                Mistakes,
                Some(
                    "a written file that is given to the dynamic loader runs, as a script does that is given to its interpreter",
                ),
            ),
            // Landlock and `noexec` judge who executes, not what a loader maps.
            Self::Executables { .. } => (
                Kernel,
                Hostile,
                Some(
                    "a program in a grant or below the folders of libraries (some packages keep helpers there) runs when it is given to the dynamic loader",
                ),
            ),
            Self::ReadFolders { .. } => (
                Kernel,
                Hostile,
                Some(
                    "libraries, data and settings of the system, the listed executables and the run's own places are read; that a file elsewhere is there, its attributes and where a link leads are seen; a file that was hard-linked into a listed folder before",
                ),
            ),
            Self::WriteFolders { .. } => (
                Kernel,
                Hostile,
                Some("modes and times of files elsewhere, and a file that was hard-linked into a listed folder before"),
            ),
            Self::Machine(Machine::Emulator { accelerator: Accelerator::Tcg, .. }) => (
                Kernel,
                Hostile,
                Some(
                    "the emulator itself, for which its makers promise no boundary without KVM: what gets out of it meets the container tier",
                ),
            ),
            Self::Machine(Machine::Emulator { accelerator: Accelerator::Kvm, .. }) => (
                Kernel,
                Hostile,
                Some(
                    "a fault of the host's KVM, which is a part of its kernel; what gets out of the emulator meets the container tier, with `/dev/kvm` in it",
                ),
            ),
            // Measured: two buffers of 8 MiB, whatever `net.core.*mem_max` says.
            Self::Veth => (
                Kernel,
                Hostile,
                Some(
                    "16 MiB of the host's memory in packets on their way to and from gVisor's kernel, which no limit counts",
                ),
            ),
            Self::Device { .. } => (
                Kernel,
                Hostile,
                Some(
                    "what the device's driver in the kernel does for who opens it: the filter does not judge its calls, and no limit counts what the device holds",
                ),
            ),
            Self::Cgroup { version, limit } => {
                let (against, overshoot) = limit.hold(*version);
                (Kernel, against, overshoot)
            }
            Self::Namespace(_)
            | Self::Root(_)
            | Self::User { .. }
            | Self::Hostname(_)
            | Self::NoInnerNamespaces
            | Self::NoNewPrivs
            | Self::NoCapabilities
            | Self::NoGroups
            | Self::RunMark
            | Self::NoDescriptors
            | Self::Undumpable
            | Self::Session
            | Self::Keyring
            | Self::SignalScope
            | Self::PayloadScope
            | Self::Umask(_)
            | Self::Terminal { .. }
            | Self::Label(_)
            | Self::Mount { .. }
            | Self::ReadOnlyOverlay
            | Self::Copy { size: None, .. }
            | Self::Tmpfs { .. }
            | Self::Certificates { .. }
            | Self::Hide(_)
            | Self::ProtectedMounts
            | Self::NoexecMounts
            | Self::Landlock(_)
            | Self::LocalRoutes { .. }
            | Self::Inlets(_)
            | Self::HostNetwork
            | Self::OwnKernel { .. }
            | Self::Machine(_)
            | Self::InMachine(_)
            | Self::Rule { .. }
            | Self::Filter(_)
            | Self::Rlimit { .. } => (Kernel, Hostile, None),
        }
    }
}

impl CgroupLimit {
    /// Against whom it holds, and what the kernel does not count.
    const fn hold(&self, version: u8) -> (Threat, Option<&'static str>) {
        match self {
            // Measured: without a limit of its own 256 MiB waited in sockets of a run that may have 64. What is charged to
            // nobody, `Watch::Waiting` holds.
            Self::Memory(_) if version == 1 => (
                Threat::Hostile,
                Some(
                    "a quarter more, in buffers of TCP and UDP: control groups v1 count those apart; and what the kernel charges to nobody: half a KiB for each timer that is a descriptor, and 71 bytes for each descriptor that a sleeping poll(2) waits for (both times `limits.open_files` times `limits.pids`), 2 KiB of ACLs for each of `limits.files`, half of what filters of the program's own take",
                ),
            ),
            // Measured: 480,000 timers took 259 MiB beside what their group was charged for; 900 threads in poll(2), each with 8192
            // descriptors, 500 MiB.
            Self::Memory(_) => (
                Threat::Hostile,
                Some(
                    "what the kernel charges to nobody: half a KiB for each timer that is a descriptor, and 71 bytes for each descriptor that a sleeping poll(2) waits for (both times `limits.open_files` times `limits.pids`), 2 KiB of ACLs for each of `limits.files`, half of what filters of the program's own take",
                ),
            ),
            Self::IoWrite { .. } if version == 1 => (
                Threat::Mistakes,
                Some(
                    "writes that the kernel carries out later: control groups v1 count none of them; block devices that come while it runs",
                ),
            ),
            // Measured: 1.4 cores under a limit of 0.2.
            Self::Cpu { .. } | Self::Cpuset(_) => (
                Threat::Hostile,
                Some(
                    "what workers of the kernel do for sockets that are sent in sockets, and on the container tier for terminals that the program makes (`/dev/ptmx`)",
                ),
            ),
            // Each device is named by its number, and who writes back for such file systems is the kernel itself.
            Self::IoWrite { .. } => (
                Threat::Hostile,
                Some(
                    "block devices that come while it runs; what a file system without writeback by groups (vfat, exfat) writes later",
                ),
            ),
            Self::IoRead { .. } => (Threat::Hostile, Some("block devices that come while it runs")),
            Self::Pids(_) => (Threat::Hostile, None),
        }
    }
}
