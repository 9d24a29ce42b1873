//! What the supervisor watches: by which name, against whom, and how far it may be passed.

use super::{Filter, Watch};
use crate::value::{Over, Threat};

impl Watch {
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Wall(_) => "supervisor:timer",
            Self::Output { .. } => "supervisor:stream",
            Self::Protected => "supervisor:inotify",
            Self::CpuTime { .. }
            | Self::Memory(_)
            | Self::Locks(_)
            | Self::Waiting(_)
            | Self::Pids(_)
            | Self::Disk(_)
            | Self::Files(_)
            | Self::Tmp(_)
            | Self::Warn(_)
            | Self::Kill(_) => "supervisor:sampling",
        }
    }

    pub(super) const fn against(&self) -> Threat {
        match self {
            Self::CpuTime { counted: false, .. }
            | Self::Memory(_)
            | Self::Pids(_)
            | Self::Disk(_)
            | Self::Files(_)
            | Self::Tmp(_) => Threat::Mistakes,
            Self::Wall(_)
            | Self::CpuTime { counted: true, .. }
            | Self::Locks(_)
            | Self::Waiting(_)
            | Self::Output { .. }
            | Self::Warn(_)
            | Self::Kill(_)
            | Self::Protected => Threat::Hostile,
        }
    }

    /// Whether it is held by looking at the processes of the tree, from which a hostile program could hide: but not where
    /// the filter closes what hides ([`Filter::Visible`], and for memory [`Filter::CountedMemory`]).
    pub(super) const fn hidden_by(&self) -> Option<&'static [Filter]> {
        match self {
            Self::Memory(_) => Some(&[Filter::Visible, Filter::CountedMemory]),
            Self::Pids(_) | Self::Disk(_) | Self::Files(_) | Self::Tmp(_) => Some(&[Filter::Visible]),
            Self::Wall(_)
            | Self::CpuTime { .. }
            | Self::Locks(_)
            | Self::Waiting(_)
            | Self::Output { .. }
            | Self::Warn(_)
            | Self::Kill(_)
            | Self::Protected => None,
        }
    }

    pub(super) const fn overshoot(&self) -> Option<&'static str> {
        match self {
            Self::Wall(_) | Self::Output { over: Over::Cut, .. } => None,
            Self::Output { over: Over::Kill, .. } => {
                Some("what one read of each stream brings, 128 KiB; nobody gets more than the limit")
            }
            Self::CpuTime { counted: true, .. } => Some(
                "what all cores use between two looks, 20 ms apart or ten times what a look takes, 1 s at most, and in a look at the files of the process tier, some 2 s for a million; also what workers of the kernel do for sockets that are sent in sockets, and on the container tier for terminals that the program makes (`/dev/ptmx`)",
            ),
            Self::CpuTime { counted: false, .. } => Some(
                "what all cores use between two looks, 20 ms apart or ten times what a look takes, 1 s at most, and in a look at the files of the process tier, some 2 s for a million; without a control group also children that nobody waited for",
            ),
            Self::Memory(_) => Some(
                "what the tree allocates between two looks, 20 ms apart or ten times what a look takes, 1 s at most, and in a look at the files of the process tier, some 2 s for a million, for 1 s when its processes come and go faster; memory files that a call has while it runs or waits for a disk; the first 64 sockets, 416 KiB each; arguments of programs that are just being started: 6 MiB times `limits.pids`; what the kernel keeps of mappings: 16 MiB times `limits.pids`, more where `vm.max_map_count` was raised; 2 KiB of ACLs for each of `limits.files`; what pipes, timers, epoll and poll(2) hold, and rule sets of Landlock in a live sandbox: 5 MiB times `limits.open_files` times `limits.pids`; where the host gives huge pages unasked (`transparent_hugepage/enabled` is `always`), what is left of them",
            ),
            Self::Locks(_) => {
                Some("16384 byte-range locks, 4 MiB, and what is locked within 110 ms, or ten times what a look takes")
            }
            Self::Waiting(_) => Some(
                "a quarter more, in connections that nobody accepted and in netlink sockets, and what is sent between two looks, 100 ms apart or ten times what a look takes, 1 s at most, 20 ms when something waits",
            ),
            Self::Pids(_) => Some(
                "what is started between two looks, 20 ms apart or ten times what a look takes, 1 s at most, and in a look at the files of the process tier, some 2 s for a million",
            ),
            Self::Disk(_) | Self::Files(_) | Self::Tmp(_) => Some(
                "what is written while a look goes on and until the next one, 20 ms later or ten times what it took, 1 s at most: a look takes longer the more files there are, some 2 s for a million; what is written in 1 s when its processes come and go faster; removed files that a call has while it runs or waits for a disk, or that rules of Landlock keep in a live sandbox",
            ),
            Self::Warn(_) | Self::Kill(_) => Some(
                "what is used between two looks, 100 ms apart or ten times what a look takes, 1 s at most, and in a look at the files of the process tier, some 2 s for a million; without a control group also what children use that nobody waits for; of processor time also what workers of the kernel do for sockets that are sent in sockets, and on the container tier for terminals that the program makes (`/dev/ptmx`)",
            ),
            Self::Protected => Some(
                "names of the list are looked for at the top of the tree, `.git` at any depth; a control file that is made, or one that somebody outside replaces, stands for up to 100 ms each time, longer while folders are made or moved by the thousand: then it is put aside, and the 32nd, or 64 MiB of single files, ends the run",
            ),
        }
    }
}
