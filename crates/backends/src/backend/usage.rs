//! What a run uses, as its backend counts it, and what it has used up.

/// Usage at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// User time of the tree, microseconds.
    pub user_us: u64,
    /// System time of the tree, microseconds.
    pub system_us: u64,
    /// Both together, where a control group counts all that ran: not samples, from which a program could hide.
    pub ran_us: Option<u64>,
    /// Memory of the tree now, bytes.
    pub memory: u64,
    /// Highest memory of the tree known, bytes: of a control group that counts it, else of the looks so far, and 0 before the first.
    pub memory_peak: u64,
    /// Processes and threads now, the guest left out.
    pub pids: u64,
    /// Most processes and threads known.
    pub pids_peak: u64,
    /// Bytes read from block devices, where a control group counts them.
    pub io_read: Option<u64>,
    /// Bytes written to block devices; as the other.
    pub io_written: Option<u64>,
    /// Kernel out-of-memory kills in the tree.
    pub oom_kills: u64,
    /// Buffers of TCP and UDP have what they may have; more is thrown away.
    pub sockets_full: bool,
    /// Bytes that wait in sockets and are charged to no control group, where they are looked at: none of [`Self::memory`].
    pub waiting: u64,
    /// Another kernel counts the program's processes, and does not tell: [`Self::pids`] is 0 then. Times are those of that kernel's
    /// own process outside.
    pub uncounted_pids: bool,
    /// Forks refused by the process limit.
    pub pids_refused: u64,
    /// Bytes of files on disk that the tree holds open and that no name leads to: they are in no folder to be counted.
    pub unlinked: u64,
    /// What a look at the processes could not see.
    pub unseen: Unseen,
    /// Processor time that the look took in other threads than the caller's.
    pub aside: std::time::Duration,
}

/// What a look could not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unseen {
    /// Files in memory, each as large as a file may be: mapped and not open any more, or on their way in a socket.
    pub memory_files: u64,
    /// The same on disk.
    pub disk_files: u64,
    /// Of both those that wait in sockets: a moment later they may be received, and seen.
    pub waiting: u64,
    /// Processes that may not be looked into.
    pub processes: u64,
    /// There is memory whose size nobody can tell.
    pub memory: bool,
    /// Processes came and went faster than they could be looked at.
    pub partly: bool,
}

/// A place without room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exhausted {
    /// Where it is inside.
    pub place: String,
    /// What there is none left of.
    pub of: ExhaustedResource,
}

/// What a full place has none left of, and how many it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExhaustedResource {
    /// Bytes.
    Bytes(u64),
    /// Files and folders.
    Files(u64),
}
