//! What is in the JSON of a frame: requests, what answers them, and errors.
//!
//! Paths and names of files are texts as [`crate::path_text`] writes them.
//!
//! Unknown fields and values are errors between a supervisor and its agent, which are of one build; a caller may be older or
//! newer than a supervisor, so that additions are optional fields.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub cols: u16,
}

/// A program to start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// The program, by path or by name, and its arguments; never empty.
    pub argv: Vec<String>,
    /// Added to what the sandbox's own environment has; wins over it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Working directory: absolute, or relative to that of the sandbox, which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// A terminal of this size; `stdin` counts for nothing then, and all output comes on lane `Out`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tty: Option<Size>,
    /// Whether something is going to be written to it; else it reads an empty file.
    #[serde(default)]
    pub stdin: bool,
}

/// What the agent can be asked for; a caller may ask a supervisor for each of them but `hello` and `start` too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Who is there. End: [`Hello`].
    Hello {
        /// [`crate::frame::VERSION`] of the asking side.
        version: u32,
    },
    /// Starts a program. Reply: [`Started`]; data both ways; controls: [`ProgramControl`]; End: [`Exited`], after all output
    /// that was there when the program ended. `Cancel` kills its whole tree.
    Start(Program),
    /// What is at a path; a link itself, unless it is to be followed. End: [`Entry`].
    Stat {
        /// Path inside.
        path: String,
        /// Follow a link at the end.
        #[serde(default)]
        follow: bool,
    },
    /// What is in a folder, by name. Events: [`Entries`]; End: empty.
    List {
        /// Path inside.
        path: String,
        /// How deep; 1 = the folder itself.
        depth: u32,
    },
    /// The bytes of a file. Reply: [`Entry`]; data; End: empty.
    Read {
        /// Path inside.
        path: String,
        /// First byte.
        #[serde(default)]
        offset: u64,
        /// Most bytes; all without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        length: Option<u64>,
    },
    /// Makes or replaces a file of what is sent, up to `Eof`. A file is seen with its old or its new content, never with a part.
    /// End: [`Entry`].
    Write {
        /// Path inside; missing folders are made.
        path: String,
        /// Permission bits of a new file; 0o644 without.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mode: Option<u32>,
        /// Metadata, in place of all that was there: extended attributes `user.e2b.KEY`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        metadata: Option<BTreeMap<String, String>>,
    },
    /// Makes a folder, and those above it. End: [`Entry`]; `exists` if it is there already.
    Mkdir {
        /// Path inside.
        path: String,
    },
    /// Renames; replaces a file, makes missing folders above the target. End: [`Entry`].
    Move {
        /// From.
        from: String,
        /// To.
        to: String,
    },
    /// Removes a file, a link, or a folder with all that is in it. End: empty.
    Remove {
        /// Path inside.
        path: String,
    },
    /// Tells what changes in a folder. Reply: empty, when it is watched; events: [`Change`]; until `Cancel`.
    Watch {
        /// Path inside.
        path: String,
        /// With all folders below, also new ones.
        #[serde(default)]
        recursive: bool,
    },
    /// A file or folder as a tar stream, its names beginning with the last part of the path. No link is followed but one that the
    /// path ends at with a slash, and the home folder. Data; End: [`Skipped`].
    Archive {
        /// Path inside.
        path: String,
    },
    /// Unpacks a tar stream into a folder, which is made where it is missing; nothing is made outside it. End: [`Skipped`].
    Extract {
        /// Path inside.
        path: String,
    },
    /// A connection to a port inside (loopback). Reply: empty, when it stands; data and `Eof` both ways; End: empty.
    Port {
        /// TCP port.
        port: u16,
    },
    /// The processes that run inside. End: [`Processes`].
    Processes {},
}

/// What is asked of a program that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ProgramControl {
    /// Sends a signal: to the terminal's foreground group if it has a terminal, else to the program's process group; with `tree` to
    /// everything that descends from it.
    Signal {
        /// Its number.
        number: u8,
        /// To all that descend from the program.
        #[serde(default)]
        tree: bool,
    },
    /// Gives the terminal another size.
    Resize(Size),
}

/// Who is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// [`crate::frame::VERSION`].
    pub version: u32,
    /// The agent's own process.
    pub pid: u32,
    /// User id inside.
    pub uid: u32,
    /// Group id inside.
    pub gid: u32,
    /// `HOME`.
    pub home: String,
    /// Where programs start.
    pub cwd: String,
    /// `USER`, where the environment has it.
    pub user: String,
    /// Whether the kernel keeps programs from signalling the agent.
    pub guarded: bool,
}

/// A program that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Started {
    /// Its pid inside.
    pub pid: u32,
}

/// How a program ended: one of the two is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exited {
    /// Exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// Signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<u8>,
    /// User and system time of it and the children it waited for, microseconds.
    pub user_us: u64,
    /// See `user_us`.
    pub system_us: u64,
    /// Largest resident set, bytes.
    pub max_rss: u64,
}

/// What kind of file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FileKind {
    /// A regular file.
    File,
    /// A folder.
    Dir,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its name, as [`crate::path_text`] writes it.
    pub name: String,
    /// Absolute path inside.
    pub path: String,
    /// What it is.
    pub kind: FileKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner inside.
    pub uid: u32,
    /// Group inside.
    pub gid: u32,
    /// Last change of its content: seconds since 1970, and nanoseconds.
    pub modified: (i64, u32),
    /// What a link says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What a link leads to in the end; without: nothing is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_kind: Option<FileKind>,
    /// Extended attributes `user.e2b.KEY`, as text.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// Some of what is in a folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entries {
    /// In the order of their names, folder by folder.
    pub entries: Vec<Entry>,
}

/// What happened in a watched folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is there now.
    Create,
    /// Its content changed.
    Write,
    /// It is gone.
    Remove,
    /// It went, or came, by another name.
    Rename,
    /// Its mode, owner or attributes changed.
    Chmod,
    /// Events were lost: look again at everything.
    Overflow,
}

/// A change in a watched folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// What happened.
    pub what: ChangeKind,
    /// Path below the watched folder; empty = the folder itself.
    pub name: String,
}

/// What a tar stream leaves out: special files, and what could not be read or made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Skipped {
    /// Files, folders and links that were taken.
    pub taken: u64,
    /// Each with its reason; the first hundred.
    pub skipped: Vec<String>,
}

/// A process inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// That of its parent.
    pub parent: u32,
    /// `R`, `S`, ... as in proc(5).
    pub state: String,
    /// Its arguments, cut at 4 KiB.
    pub argv: Vec<String>,
    /// Resident set, bytes.
    pub rss: u64,
}

/// The processes inside, cut at 1,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processes {
    /// By pid.
    pub processes: Vec<Process>,
}

/// What kind of failure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Code {
    /// Nothing is there.
    NotFound,
    /// Something is there already.
    Exists,
    /// A folder was needed.
    NotADirectory,
    /// No folder was needed.
    IsADirectory,
    /// The sandbox's user may not.
    Denied,
    /// The request makes no sense.
    Invalid,
    /// No room is left: bytes, inodes, or a limit of the policy.
    NoSpace,
    /// Too many at once, or too large.
    TooMany,
    /// The program is there, but cannot be executed.
    NotExecutable,
    /// The working directory is not there.
    NoCwd,
    /// It would bring the value of a secret inside.
    Secret,
    /// This sandbox cannot do it.
    Unsupported,
    /// Nobody listens at that port.
    Closed,
    /// The asking side gave it up.
    Cancelled,
    /// It is paused.
    Paused,
    /// The sandbox has ended.
    Ended,
    /// Something else, e.g. an error of a disk.
    Failed,
}

impl Code {
    /// Whether nothing in the sandbox answers now: it has ended, or is paused.
    #[must_use]
    pub const fn is_away(self) -> bool {
        matches!(self, Self::Ended | Self::Paused)
    }

    /// Whether there is no such program, or none that can be executed.
    #[must_use]
    pub const fn is_no_program(self) -> bool {
        matches!(self, Self::NotFound | Self::NotExecutable)
    }
}

/// Why something was not done; the payload of an `End` is `{"error": ...}` then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// What kind of failure it is.
    pub code: Code,
    /// One line for people, without a newline.
    pub message: String,
    /// The parts of that line, where they are known apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Box<Reason>>,
    /// The kernel's number of why a program was not executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// What went wrong, for whoever shows it in a form of his own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// What was not done.
    pub what: String,
    /// Why.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Failure {
    /// One of which the line is all that is known.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), reason: None, errno: None }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The payload of an `End`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended<T> {
    /// The result.
    Ok(T),
    /// Why there is none.
    Error(Failure),
}
