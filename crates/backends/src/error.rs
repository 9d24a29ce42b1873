//! Why a start did not come about. The text of each is *what* failed; why is in its fields, and where and what to do is
//! said by whoever tells it.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The longest path that is shown whole, in bytes.
const SHOWN: usize = 200;

/// A failure between plan and *go*.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A path of the policy cannot be used.
    #[error("{} cannot be used", shown(path))]
    Path {
        /// Clause.
        clause: &'static str,
        /// Path.
        path: PathBuf,
        /// The system's words.
        why: String,
        /// Whether it is simply not there.
        missing: bool,
    },
    /// The image has more small files in a folder that is made anew than are handed over.
    #[error("{} of the image cannot be shown", shown(path))]
    Etc {
        /// The folder of the image.
        path: PathBuf,
        /// What there is too much of.
        why: String,
    },
    /// A path is a socket, a pipe or a device.
    #[error("{} cannot be granted", shown(path))]
    Special {
        /// Clause.
        clause: &'static str,
        /// Path.
        path: PathBuf,
    },
    /// A directory is needed.
    #[error("{} is not a directory", shown(path))]
    NotADirectory {
        /// Clause.
        clause: &'static str,
        /// Path.
        path: PathBuf,
    },
    /// What is granted for reading may not be read by who the run is.
    #[error("{} could not be read inside", shown(&.0.path))]
    Unreadable(Box<Shut>),
    /// A device node of the host is not what its name says.
    #[error("{} is not the device that its name says", shown(path))]
    NotTheDevice {
        /// Path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{what} failed")]
    System {
        /// What was being done.
        what: String,
        /// The system's words.
        why: String,
    },
    /// The host refused namespaces although it seemed to allow them.
    #[error("the host does not allow new namespaces")]
    Namespaces {
        /// The system's words.
        why: String,
    },
    /// The machine was planned on KVM, which is there no more.
    #[error("the machine cannot run on KVM")]
    Kvm {
        /// What is missing.
        why: String,
        /// The remedy.
        fix: String,
    },
    /// The network of a run with another kernel cannot be made.
    #[error("the network of the run cannot be made")]
    Network {
        /// The system's words.
        why: String,
    },
    /// The guest could not give up the real-time scheduling policy of whoever starts it.
    #[error("the program would have the real-time scheduling policy of its caller")]
    RealTime {
        /// The system's words.
        why: String,
    },
    /// A step inside failed before the payload ran.
    #[error("the guest stopped at step `{step}`{detail}")]
    Guest {
        /// Name of the step.
        step: &'static str,
        /// The system's words.
        why: String,
        /// What it was doing, if known.
        detail: String,
    },
    /// The kernel layers nothing over a tree.
    #[error("{} cannot be shown through a layer", shown(path))]
    Layer {
        /// Where it was to be shown.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// The posture is not the plan's.
    #[error("what is in force is not what the plan says (posture mismatch)")]
    Posture(Vec<String>),
    /// A workspace or write grant of somebody else cannot be shown to the run's user.
    #[error("{} cannot be shown as the run's own", shown(path))]
    Mapping {
        /// Workspace or grant.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
    /// The label of the payload cannot be given.
    #[error("the label that `process.label` names cannot be given")]
    Label {
        /// Why.
        why: String,
    },
    /// A machine is to go on from what another one was, and is another in what it is told or is made of.
    #[error("the machine cannot go on from what the other one was")]
    OtherMachine,
    /// The system call profile cannot be put together as the policy wants it.
    #[error("the system call profile cannot be made")]
    Profile {
        /// Why.
        why: String,
    },
    /// Nobody can be asked where links lead.
    #[error("the supervisor cannot be asked where links lead")]
    Links {
        /// The system's words.
        why: String,
    },
    /// Data of ours is broken.
    #[error("something of our own is broken")]
    Internal(String),
}

/// A path in backticks; whoever prints it takes care of what a terminal acts on.
fn shown(path: &Path) -> String {
    let mut text = sys::proc::shown(path.as_os_str().as_bytes());
    if text.len() > SHOWN {
        text.truncate(text.floor_char_boundary(SHOWN));
        text.push('…');
    }
    format!("`{text}`")
}

/// A grant for reading, and what shuts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shut {
    /// What was granted.
    pub path: PathBuf,
    /// The grant itself, or a folder above it.
    pub at: PathBuf,
    /// It is a folder.
    pub folder: bool,
    /// Its owner.
    pub owner: u32,
    /// Its permission bits.
    pub mode: u32,
    /// Who the run is, outside.
    pub uid: u32,
    /// That is somebody else than the caller.
    pub others: bool,
}

impl StartError {
    /// Whether the caller can change what stood in the way; else something of ours failed.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        match self {
            Self::Path { .. }
            | Self::Etc { .. }
            | Self::Special { .. }
            | Self::NotADirectory { .. }
            | Self::Unreadable(_)
            | Self::Namespaces { .. }
            | Self::Network { .. }
            | Self::Kvm { .. }
            | Self::RealTime { .. }
            | Self::Profile { .. }
            | Self::Mapping { .. }
            | Self::Label { .. }
            | Self::OtherMachine
            | Self::Links { .. }
            | Self::Layer { .. } => true,
            Self::NotTheDevice { .. }
            | Self::System { .. }
            | Self::Guest { .. }
            | Self::Posture(_)
            | Self::Internal(_) => false,
        }
    }

    pub(crate) fn path(clause: &'static str, path: &Path, error: &std::io::Error) -> Self {
        let missing = error.kind() == std::io::ErrorKind::NotFound;
        Self::Path { clause, path: path.to_owned(), why: error.to_string(), missing }
    }

    pub(crate) fn special(clause: &'static str, path: &Path) -> Self {
        Self::Special { clause, path: path.to_owned() }
    }

    /// A path that was judged without links, and leads through one now. Where to is not told: whoever put the link there asks.
    pub(crate) fn linked(clause: &'static str, path: &Path) -> Self {
        let why = "it leads through a link, and what was judged had none: it is another place meanwhile";
        Self::Path { clause, path: path.to_owned(), why: why.to_owned(), missing: false }
    }

    /// A path of a list that is no folder or file of its own.
    pub(crate) fn behind_link(clause: &'static str, path: &Path) -> Self {
        let why =
            "it lies behind a link, and a rule of Landlock is for what is there itself: name what the link leads to";
        Self::Path { clause, path: path.to_owned(), why: why.to_owned(), missing: false }
    }

    /// A place that a list leaves out, and that is open all the same.
    pub(crate) fn open_anyhow(clause: &'static str, path: &Path) -> Self {
        let why = "the list does not name it, and it lies in a place that is open to every program: rights of Landlock add up along a path";
        Self::Path { clause, path: path.to_owned(), why: why.to_owned(), missing: false }
    }

    /// A writable place among the host's programs: there `fs.noexec` could not hold.
    pub(crate) fn among_tools(path: &Path) -> Self {
        let why = "it holds the host's programs, and a write grant lies in it: what is written there could be executed";
        Self::Path { clause: "fs.write", path: path.to_owned(), why: why.to_owned(), missing: false }
    }

    pub(crate) fn system(what: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::System { what: what.into(), why: error.to_string() }
    }
}
