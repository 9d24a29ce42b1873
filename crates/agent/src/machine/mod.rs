//! A machine of the vm tier: what its supervisor writes into the initial file system and says first, and the init that takes it.

mod begin;
mod groups;
mod init;
mod network;
mod relay;
mod root;
mod workspace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use init::main;

/// The agent's program in the initial file system, which the kernel starts as its first process.
pub const PROGRAM: &str = "init";
/// The folder of kernel modules in the initial file system, loaded in the order of their names.
pub const MODULES: &str = "modules";
/// The module that finds disks. It is loaded when the machine has become this run's: what waits before knows no disk.
pub const DISKS: &str = "virtio_blk";
/// The modules that find a network device, loaded in this order where the machine is to have one.
pub const NETWORK: &[&str] = &[NEWER, "failover", "net_failover", "virtio_net"];
/// One of them that only newer kernels have.
pub const NEWER: &str = "dimlib";
/// Where the files of [`Begin`] are shown, read-only.
pub const OURS: &str = "/run/fumehood";
/// Which of these files is what the run trusts.
pub const CERTIFICATES: &str = "ca.pem";
/// Names at the top of the tree that programs see which are the machine's own: what the image has of these names is not shown.
pub const OWN: &[&str] = &["proc", "sys", "dev", "tmp", "run", "home", "lost+found"];
/// The port of the virtual serial device, or of the machine's own address, that leads to the supervisor.
pub const PORT: u32 = 1;
/// What the first process is told by the kernel's command line where that is a port of the machine's own address (`AF_VSOCK`).
pub const BY_VSOCK: &str = "vsock";
/// The modules of that address, loaded in this order where it is told so: elsewhere no program finds such an address.
pub const VSOCK: &[&str] = &["virtio_mmio", "vsock", "vmw_vsock_virtio_transport_common", "vmw_vsock_virtio_transport"];

/// The label of the root's image.
pub const ROOT_LABEL: &str = "root";
/// The label of the workspace's image.
pub const WORKSPACE_LABEL: &str = "workspace";

/// The stream of the supervisor's first request, [`Begin`].
pub const FIRST: u32 = 1;
/// The stream of the first request to the agent; a fault of the first process that comes later answers it.
pub const SECOND: u32 = 2;
/// The stream of orders to the first process once there is an agent ([`Order`]); neither the agent nor who asks it has it.
pub const ORDERS: u32 = u32::MAX;

/// Bytes and inodes of one place that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsSize {
    /// Bytes.
    pub bytes: u64,
    /// Inodes.
    pub inodes: u64,
}

/// A copy of a folder of the host, which comes as an image of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    /// Where it is.
    pub at: String,
    /// Its size.
    pub size: FsSize,
    /// It can be written to.
    pub write: bool,
}

/// A network device whose other side takes all addresses for its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// IPv6 as well.
    pub ipv6: bool,
    /// `/etc/resolv.conf`.
    pub resolver: String,
}

/// What the first process says on [`FIRST`] when it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// The kernel has found disks already: what waits is not as any other would be.
    pub disks: bool,
}

/// The only request that a machine takes before it is a run's. Behind it come the filter of system calls, as the kernel takes it,
/// and the content of the files as data, then `Eof`. End: [`SeedReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Begin {
    /// Random bytes that no other machine is given.
    pub seed: [u8; 32],
    /// The time: seconds since 1970, and nanoseconds.
    pub clock: (i64, u32),
    /// What it is to become.
    pub machine: Machine,
    /// Bytes of the filter.
    pub filter: u64,
    /// Files that are shown read-only in [`OURS`]: names and bytes.
    pub files: Vec<(String, u64)>,
}

/// The seed was taken, and the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedReply {
    /// What the kernel's random generator gave before: the same in all machines that began with the same memory.
    pub before: [u8; 16],
    /// What it gave afterwards.
    pub after: [u8; 16],
}

/// What the first process is told once there is an agent, whose programs are the caller's: an `Open` on [`ORDERS`]. End: [`SeedReply`] of
/// `Renew`, else empty.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Order {
    /// Agent and programs stop; they stand still when it is answered, and nothing is said before the next order.
    Stop {},
    /// They go on.
    GoOn {
        /// The time: seconds since 1970, and nanoseconds.
        clock: (i64, u32),
    },
    /// This is a copy of the machine in which they were stopped. The agent alone goes on, and has forgotten whoever asked it there.
    Renew {
        /// Random bytes that no other machine is given.
        seed: [u8; 32],
        /// The time.
        clock: (i64, u32),
    },
}

/// A system call that is only tried, when the filter is on: nothing is started where it is answered otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Attempt {
    /// Number.
    pub number: u32,
    /// Arguments that do nothing (`sys::bare::can_attempt`).
    pub args: [u64; 6],
    /// Errno of the filter; 0 = the call reaches the kernel.
    pub errno: i32,
}

/// What the init makes of the machine before the agent is started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// [`crate::frame::VERSION`].
    pub version: u32,
    /// The user's name; its home is `/home/USER`.
    pub user: String,
    /// uid and gid of everything but the init.
    pub id: u32,
    /// The host name.
    pub hostname: String,
    /// The file mode creation mask.
    pub umask: u32,
    /// Nothing that can be written can be executed.
    pub noexec: bool,
    /// `lo` is up.
    pub loopback: bool,
    /// Its one network device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `/tmp`, with the home folder in it.
    pub tmp: FsSize,
    /// `/dev/shm`.
    pub shm: FsSize,
    /// `/run`.
    pub run: FsSize,
    /// The copy of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Files of the image, by their paths without links, in whose place [`CERTIFICATES`] is shown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<String>,
    /// The file of the image that is its `/etc/machine-id`, by its path from the top: an empty one is shown in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_id: Option<String>,
    /// Resource limits by their number.
    pub rlimits: BTreeMap<u32, u64>,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
    /// Where programs start.
    pub cwd: String,
    /// The proof of the filter.
    pub attempts: Vec<Attempt>,
}
