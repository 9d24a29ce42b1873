//! The mechanisms that hold clauses, as values.
//!
//! A backend's `support` answers with controls, a start applies exactly those, and before *go* each of them must have left
//! the evidence that [`Control::evidence`] names. Enforcer, strength, overshoot and adversary of a plan's entry are all
//! derived from its controls: there is no second list that could say something else.

mod evidence;
mod interpreter;
mod name;
mod set;
mod strength;
mod watch;

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::units::{Bytes, Millis};
use crate::value::{Over, Root, Threat, Threshold};

pub use evidence::Evidence;
pub use interpreter::{Interpreter, Source};
pub use set::Controls;
pub use strength::Strength;

/// A kind of namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Namespace {
    /// Users and capabilities.
    User,
    /// Mounts.
    Mount,
    /// Processes.
    Pid,
    /// Network.
    Net,
    /// System V and POSIX message queues, shared memory.
    Ipc,
    /// Host name.
    Uts,
    /// Control groups.
    Cgroup,
    /// Clocks since boot.
    Time,
}

impl Namespace {
    /// Every kind.
    pub const ALL: [Self; 8] =
        [Self::User, Self::Mount, Self::Pid, Self::Net, Self::Ipc, Self::Uts, Self::Cgroup, Self::Time];

    /// The name in plans, e.g. `netns`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::User => "userns",
            Self::Mount => "mountns",
            Self::Pid => "pidns",
            Self::Net => "netns",
            Self::Ipc => "ipcns",
            Self::Uts => "utsns",
            Self::Cgroup => "cgroupns",
            Self::Time => "timens",
        }
    }
}

/// A resource of setrlimit(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Processor seconds of one process.
    Cpu,
    /// Bytes of one file.
    FileSize,
    /// Bytes of a core dump.
    Core,
    /// Processes of the user in its user namespace.
    Processes,
    /// Open descriptors of one process.
    OpenFiles,
    /// Locked memory, bytes.
    LockedMemory,
    /// Queued signals.
    PendingSignals,
    /// Bytes of POSIX message queues.
    MessageQueues,
    /// How far the nice value may be raised.
    Nice,
    /// Real-time priority.
    RealTimePriority,
}

impl Resource {
    /// `RLIMIT_*` of Linux.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Cpu => 0,
            Self::FileSize => 1,
            Self::Core => 4,
            Self::Processes => 6,
            Self::OpenFiles => 7,
            Self::LockedMemory => 8,
            Self::PendingSignals => 11,
            Self::MessageQueues => 12,
            Self::Nice => 13,
            Self::RealTimePriority => 14,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "rlimit:cpu",
            Self::FileSize => "rlimit:fsize",
            Self::Core => "rlimit:core",
            // In a fresh user namespace the kernel counts the sandbox alone.
            Self::Processes => "userns:nproc",
            Self::OpenFiles => "rlimit:nofile",
            Self::LockedMemory => "rlimit:memlock",
            Self::PendingSignals => "rlimit:sigpending",
            Self::MessageQueues => "rlimit:msgqueue",
            Self::Nice => "rlimit:nice",
            Self::RealTimePriority => "rlimit:rtprio",
        }
    }
}

/// A limit of a control group: the value that its file gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CgroupLimit {
    /// Bytes; swap is 0.
    Memory(u64),
    /// Processes and threads, the guest itself included.
    Pids(u64),
    /// Microseconds of processor time in each period of so many microseconds.
    Cpu {
        /// Quota.
        quota_us: u64,
        /// Period.
        period_us: u64,
    },
    /// Cores by number.
    Cpuset(Vec<u32>),
    /// Bytes a second read from a block device (major, minor).
    IoRead {
        /// Device.
        device: (u32, u32),
        /// Rate.
        rate: u64,
    },
    /// Bytes a second written to a block device (major, minor).
    IoWrite {
        /// Device.
        device: (u32, u32),
        /// Rate.
        rate: u64,
    },
}

impl CgroupLimit {
    /// The controller.
    #[must_use]
    pub const fn controller(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Pids(_) => "pids",
            Self::Cpu { .. } => "cpu",
            Self::Cpuset(_) => "cpuset",
            Self::IoRead { .. } | Self::IoWrite { .. } => "io",
        }
    }
}

/// A part of the system call filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// The named profile.
    Profile(String),
    /// Calls added by name.
    Allow(Vec<String>),
    /// Calls closed by name.
    Deny(Vec<String>),
    /// No IPv4 or IPv6 socket can be made.
    NoInet,
    /// Of unix sockets only pairs of streams or of packets can be made.
    NoUnix,
    /// Calls that reach processes outside by number are narrowed to the caller itself.
    SharedPids,
    /// Nothing acts on a file of the host through a descriptor that only reads.
    SharedFiles {
        /// Locks of whole files are closed too: the program has no file of the host to write.
        locks: bool,
        /// Nor is anybody told of names that come and go: folders that were not granted can be passed through.
        watches: bool,
    },
    /// Where links of folders lead that were not granted is told to nobody: what the supervisor itself reads and judges.
    Links,
    /// No process becomes undumpable, and none keeps a file by a rule: the supervisor can look into each.
    Visible,
    /// No memory that shows neither in a process nor in a file.
    CountedMemory,
}

/// What the supervisor watches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Watch {
    /// The wall clock.
    Wall(Millis),
    /// Processor time of the tree; `counted`: by a control group, which misses no child.
    CpuTime {
        /// Limit.
        limit: Millis,
        /// By a control group.
        counted: bool,
    },
    /// Memory of the tree.
    Memory(Bytes),
    /// Byte-range locks of the tree, which are memory of the kernel that no control group counts.
    Locks(u64),
    /// Bytes that wait in sockets of the tree's own network namespace and that the kernel charges to no control group.
    Waiting(Bytes),
    /// Processes of the tree.
    Pids(u32),
    /// Bytes in the folders of the run.
    Disk(Bytes),
    /// Files in the folders of the run.
    Files(u64),
    /// Bytes in the run's own temporary folder.
    Tmp(Bytes),
    /// Bytes of stdout and stderr.
    Output {
        /// Limit.
        limit: Bytes,
        /// What happens to more.
        over: Over,
    },
    /// Usage that is reported.
    Warn(Threshold),
    /// Usage that ends the run.
    Kill(Threshold),
    /// Protected files of a workspace that others can write to as well.
    Protected,
}

/// What is covered in trees of the host that are shown as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cover {
    /// Unix sockets.
    Sockets,
    /// Paths that match these globs.
    Hidden(Vec<String>),
}

/// A socket that is made inside, in the sandbox's own network namespace, and that the broker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inlet {
    /// Of IPv6, else of IPv4.
    pub ipv6: bool,
    /// Of UDP, else of TCP.
    pub udp: bool,
    /// The port to which it is bound on all addresses; 0 = the broker binds it to the address of one name.
    pub port: u16,
}

/// Variables of the payload's environment, by where they come from. Of one name the last kind here counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variables {
    /// The inputs of the policy, by their own names: `INPUT_NAME` inside.
    Inputs(BTreeMap<String, String>),
    /// As the caller has them, by name; what the caller does not have is not there.
    Passed(Vec<String>),
    /// As the policy says.
    Set(BTreeMap<String, String>),
}

/// What runs the instructions of a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// The emulator's software processor.
    Tcg,
    /// The host's own processors, which its kernel lends (KVM).
    Kvm,
}

/// The program that is a virtual machine's devices, and its processors where the host lends none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulator {
    /// QEMU.
    Qemu,
    /// Firecracker, which starts on KVM alone.
    Firecracker,
}

impl Emulator {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Qemu, Self::Firecracker];

    /// The backend that starts machines by it.
    #[must_use]
    pub const fn backend(self) -> &'static str {
        match self {
            Self::Qemu => "qemu",
            Self::Firecracker => "firecracker",
        }
    }

    /// For people.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Qemu => "QEMU",
            Self::Firecracker => "Firecracker",
        }
    }
}

/// A part of a virtual machine, as it is seen from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The emulator is the program of a sandbox of the container tier, and was started with these words alone.
    Emulator {
        /// Which one it is.
        program: Emulator,
        /// Its version.
        version: String,
        /// What runs the machine's instructions.
        accelerator: Accelerator,
        /// Against whom the sandbox around it holds.
        against: Threat,
    },
    /// A kernel of its own, whose files have this digest together.
    Kernel {
        /// Its release.
        release: String,
        /// SHA-256 of what was prepared.
        digest: String,
    },
    /// So many bytes of memory, and no way to more.
    Memory(u64),
    /// It has no network device.
    NoNetwork,
    /// It has one network device, whose frames are carried to the network namespace of the sandbox around the emulator, and to
    /// no other place.
    Network {
        /// IPv6 as well.
        ipv6: bool,
    },
}

/// One mechanism with its parameters. Closed: a new one breaks the start and the proof until both know it.
#[derive(Clone, Debug, PartialEq)]
pub enum Control {
    /// A namespace of its own.
    Namespace(Namespace),
    /// The root tree; the host's is detached, and every mount that is left is one that was planned.
    Root(Root),
    /// The image with this digest: all of its tree was read and is what was unpacked, and it stays in the store.
    ImageTree(String),
    /// The user inside, and its id; one user and one group are mapped.
    User {
        /// Name.
        name: String,
        /// uid and gid inside.
        id: u32,
    },
    /// A node of a device of the host, shown in its place; the mounts of all other trees let no device be opened.
    Device {
        /// Its place, outside and inside.
        at: PathBuf,
        /// The driver.
        major: u32,
        /// Which of its devices.
        minor: u32,
    },
    /// The host name.
    Hostname(String),
    /// No further namespaces in the sandbox's user namespace.
    NoInnerNamespaces,
    /// `no_new_privs`.
    NoNewPrivs,
    /// Every capability set is empty, and stays so.
    NoCapabilities,
    /// No supplementary group.
    NoGroups,
    /// These supplementary groups of an ordinary caller, which the kernel lets nobody drop, and no other.
    KeptGroups(Vec<u32>),
    /// Every process of the run carries a limit that means nothing and is the run's alone: by it what a dead guest or
    /// supervisor left is found, whoever its parent is.
    RunMark,
    /// No descriptor of the caller.
    NoDescriptors,
    /// The guest cannot be traced or read.
    Undumpable,
    /// A session of its own.
    Session,
    /// A session keyring of its own.
    Keyring,
    /// Landlock's scope keeps signals inside (process tier).
    SignalScope,
    /// The payload's own Landlock layer keeps it from signalling the guest.
    PayloadScope,
    /// The file mode creation mask.
    Umask(u32),
    /// A terminal of its own: a new instance of devpts, or the session's own pseudo terminal.
    Terminal {
        /// On a devpts of its own.
        instance: bool,
    },
    /// The label of the payload, as the policy spells it.
    Label(String),
    /// A tree or file of the host, shown inside by a mount of its own.
    Mount {
        /// On the host.
        from: PathBuf,
        /// Inside.
        at: PathBuf,
        /// It can be written to.
        write: bool,
    },
    /// Read-only trees are shown through an overlay, which refuses connections to sockets that lie in them.
    ReadOnlyOverlay,
    /// A layer of bounded size over a tree of the host.
    Overlay {
        /// On the host.
        from: PathBuf,
        /// Inside.
        at: PathBuf,
        /// Bytes of the layer.
        bytes: u64,
        /// Inodes of the layer.
        inodes: u64,
    },
    /// A copy of a tree of the host, in a tmpfs of bounded size, or (`None`) in a folder of the run.
    Copy {
        /// On the host.
        from: PathBuf,
        /// Inside.
        at: PathBuf,
        /// Bytes and inodes of the tmpfs.
        size: Option<(u64, u64)>,
    },
    /// A tmpfs of bounded size.
    Tmpfs {
        /// Inside.
        at: &'static str,
        /// Bytes.
        bytes: u64,
        /// Inodes.
        inodes: u64,
    },
    /// The certificates that the run trusts, in the place of the root's own files of such. None: the root has no such file.
    Certificates {
        /// Inside, without links.
        at: Vec<PathBuf>,
    },
    /// Paths that match these globs are covered in the layer.
    Hide(Vec<String>),
    /// What is found in grants at the start is covered by an empty mount.
    Covered(Cover),
    /// Control files of a writable workspace are bound read-only.
    ProtectedMounts,
    /// Control files are only taken over by `apply`, each one by name.
    ProtectedAtApply,
    /// Writable mounts are `noexec`.
    NoexecMounts,
    /// Nothing that can be written can be executed, by Landlock of this ABI.
    NoexecRules(u32),
    /// The only executables, by Landlock of this ABI.
    Executables {
        /// ABI.
        abi: u32,
        /// Files.
        files: Vec<PathBuf>,
    },
    /// Of the workspace and of what is granted only these places can be read, by Landlock of this ABI.
    ReadFolders {
        /// ABI.
        abi: u32,
        /// As the program sees them.
        folders: Vec<PathBuf>,
    },
    /// Of the workspace and of what is granted only these folders can be written to, by Landlock of this ABI.
    WriteFolders {
        /// ABI.
        abi: u32,
        /// As the program sees them.
        folders: Vec<PathBuf>,
    },
    /// A Landlock layer of this ABI: what has no rule is closed.
    Landlock(u32),
    /// A Landlock rule for a path of the host (process tier).
    Rule {
        /// On the host.
        path: PathBuf,
        /// It can be written to.
        write: bool,
    },
    /// The system call filter.
    Filter(Filter),
    /// A limit of a control group.
    Cgroup {
        /// 1 or 2.
        version: u8,
        /// Limit.
        limit: CgroupLimit,
    },
    /// A resource limit; soft and hard are the same.
    Rlimit {
        /// Resource.
        resource: Resource,
        /// Most that it may be.
        value: u64,
    },
    /// Only the size of each file is bounded, not their number.
    EachFile(Bytes),
    /// The supervisor watches.
    Watch(Watch),
    /// Another kernel than the host's answers the program: gVisor's, on this platform.
    OwnKernel {
        /// `systrap` or `ptrace`.
        platform: &'static str,
        /// What its release lets through that a later one does not.
        faults: Option<String>,
    },
    /// Variables of the payload beside those that every payload has; nothing else of the caller's environment goes in.
    Environment(Variables),
    /// The only interface of the other kernel beside its loopback is one end of a pair, whose other end lies in a network namespace
    /// where nobody runs and the broker's sockets wait.
    Veth,
    /// Every address leads to the sandbox itself: IPv4, and IPv6 where the host has it.
    LocalRoutes {
        /// IPv6 as well.
        ipv6: bool,
    },
    /// The only sockets that wait there, in the broker's hands.
    Inlets(Vec<Inlet>),
    /// The broker: it resolves names, judges each connection by the rules, and passes it on.
    Broker,
    /// The broker goes out by a proxy, which resolves the names.
    Proxy,
    /// The broker holds the values of `[secrets]`, which were read outside, and puts them into requests that they are for.
    Secrets,
    /// A part of the virtual machine around the sandbox.
    Machine(Machine),
    /// Held by the kernel of the virtual machine, which is none of the host's.
    InMachine(Box<Self>),
    /// The network of the host. The broker's own plan has it, and no other can: no clause asks for it.
    HostNetwork,
    /// An interpreter runs the program, which the kernel never sees, and holds these limits of the language by itself.
    Interpreter(Interpreter),
    /// The record of the run.
    Audit,
    /// The command gate.
    CommandGate,
    /// The tool gate.
    ToolGate,
}
