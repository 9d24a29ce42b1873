//! A machine of the vm tier: what its supervisor writes into the initial file system, and the init that reads it.

mod init;
mod root;
mod workspace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use init::main;

/// The agent's program in the initial file system, which the kernel starts as its first process.
pub const PROGRAM: &str = "init";
/// The [`Machine`] in the initial file system, as JSON.
pub const CONFIG: &str = "machine.json";
/// The filter of system calls in the initial file system, as the kernel takes it.
pub const FILTER: &str = "filter";
/// The folder of kernel modules in the initial file system, loaded in the order of their names.
pub const MODULES: &str = "modules";
/// The folder of files that are shown read-only in [`OURS`].
pub const FILES: &str = "files";
/// Where those are shown.
pub const OURS: &str = "/run/fumehood";
/// The port of the virtual serial device that leads to the supervisor.
pub const PORT: u32 = 1;

/// The label of the root's image.
pub const ROOT_LABEL: &str = "root";
/// The label of the workspace's image.
pub const WORKSPACE_LABEL: &str = "workspace";

/// The stream of the supervisor's first request.
pub const FIRST: u32 = 1;

/// Bytes and inodes of one place that can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Place {
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
    pub size: Place,
    /// It can be written to.
    pub write: bool,
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
    /// `/tmp`, with the home folder in it.
    pub tmp: Place,
    /// `/dev/shm`.
    pub shm: Place,
    /// `/run`.
    pub run: Place,
    /// The copy of the workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Workspace>,
    /// Resource limits by their number.
    pub rlimits: BTreeMap<u32, u64>,
    /// `NAME=VALUE`.
    pub environment: Vec<String>,
    /// Where programs start.
    pub cwd: String,
}
