//! The policy: the validated, normalised value. Every clause is set, every unit resolved, every path absolute.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

pub use crate::cidr::Cidr;
use crate::clause::ClauseId;
use crate::commands::Commands;
pub use crate::net::{
    FRAMING, Login, NO_CREDENTIALS, Net, NetDenial, NetMode, NetRule, Protocol, Proxy, Secret, SecretSource, SecretUse,
    Signing, Target, TlsUse, Unknown, host_matches, is_framing, is_loopback_name, is_spelling, secrets_document,
};
use crate::units::{Bytes, BytesPerSecond, MilliCpus, Millis};
use crate::words::words;

/// Strength class of isolation, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Tier {
    /// An interpreter without ambient authority.
    Language,
    /// Landlock, seccomp and rlimits without namespaces.
    Process,
    /// Namespaces, pivot_root, seccomp, Landlock and cgroups.
    Container,
    /// A user-space kernel.
    Gvisor,
    /// A virtual machine.
    Vm,
}

impl Tier {
    /// Whether a program has no tree of its own: it stands in one folder of the run in the host's tree.
    #[must_use]
    pub const fn on_host_tree(self) -> bool {
        matches!(self, Self::Language | Self::Process)
    }
}

/// The `tier` clause: one tier by name, or the weakest that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TierChoice {
    /// This tier or a refusal.
    Fixed(Tier),
    /// The weakest tier that meets `threat` and every clause.
    Auto,
}

/// What implements a tier, by name. Which of them this version has, and for which tier, the backends say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackendName {
    /// Fumehood itself.
    Native,
    /// The OCI runtime `crun`.
    Crun,
    /// The OCI runtime `runc`.
    Runc,
    /// gVisor's OCI runtime.
    Runsc,
    /// Docker Engine.
    Docker,
    /// Podman.
    Podman,
    /// A virtual machine of QEMU.
    Qemu,
    /// A virtual machine of Firecracker.
    Firecracker,
    /// A subset of Python.
    Monty,
    /// JavaScript.
    Quickjs,
    /// WebAssembly.
    Wasm,
}

/// Against whom the run is to be isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Threat {
    /// Honest code that may be wrong.
    Mistakes,
    /// Code written to escape.
    Hostile,
    /// Hostile code of several parties on one machine.
    MultiTenant,
}

/// The `enforcer` clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcerDemand {
    /// The kernel or the supervisor may hold a limit.
    Any,
    /// Clauses that only sampling could hold are refused.
    Kernel,
}

words! {
    Tier { Language = "language", Process = "process", Container = "container", Gvisor = "gvisor", Vm = "vm" }
    BackendName {
        Native = "native", Crun = "crun", Runc = "runc", Runsc = "runsc", Docker = "docker", Podman = "podman",
        Qemu = "qemu", Firecracker = "firecracker", Monty = "monty", Quickjs = "quickjs", Wasm = "wasm",
    }
    Threat { Mistakes = "mistakes", Hostile = "hostile", MultiTenant = "multi-tenant" }
    EnforcerDemand { Any = "any", Kernel = "kernel" } Over { Cut = "cut", Kill = "kill" }
    Sockets { Pairs = "false", Own = "own", Host = "true" }
    WorkspaceMode { None = "none", Ro = "ro", Rw = "rw", Overlay = "overlay", Copy = "copy" }
    InputType { String = "string", Integer = "integer", Number = "number", Boolean = "boolean" }
    Content { Hash = "hash", Full = "full", None = "none" } Sync { None = "none", Batch = "batch", Each = "each" }
}

impl std::fmt::Display for TierChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fixed(tier) => f.write_str(tier.as_str()),
            Self::Auto => f.write_str("auto"),
        }
    }
}

impl Threat {
    /// The weakest tier that is meant against it.
    #[must_use]
    pub const fn least_tier(self) -> Tier {
        match self {
            Self::Mistakes => Tier::Language,
            Self::Hostile => Tier::Container,
            Self::MultiTenant => Tier::Gvisor,
        }
    }
}

/// The whole validated policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// For people and audit.
    pub name: String,
    /// Requested tier.
    pub tier: TierChoice,
    /// The one backend that may implement it; else the first that can.
    pub backend: Option<BackendName>,
    /// Adversary.
    pub threat: Threat,
    /// Who may hold the limits.
    pub enforcer: EnforcerDemand,
    /// Clauses that may be weakened when the host cannot hold them.
    pub prefer: BTreeSet<ClauseId>,
    /// Files.
    pub fs: Fs,
    /// The one tree that the work is about.
    pub workspace: Workspace,
    /// Resources.
    pub limits: Limits,
    /// Network.
    pub net: Net,
    /// Environment.
    pub env: Env,
    /// Typed scalar inputs by name.
    pub inputs: BTreeMap<String, Input>,
    /// Brokered secrets by name.
    pub secrets: BTreeMap<String, Secret>,
    /// The program's own circumstances.
    pub process: Process,
    /// System call filter.
    pub syscalls: Syscalls,
    /// What a program of the language tier may do.
    pub language: Language,
    /// Which command lines may be run; the broker judges them.
    pub commands: Option<Box<Commands>>,
    /// `[tools]` and `[mcp]`, for the gate before the tools of an agent.
    pub tools: Option<Box<crate::tools::Tools>>,
    /// Audit record.
    pub audit: Audit,
    /// What it was read from.
    pub documents: ReadFrom,
}

/// The files that a policy was read from, absolute, as they were named, and those that decide with it who is trusted: nothing that it
/// confines may write them. Two policies are equal wherever they were read.
#[derive(Clone, Debug, Default)]
pub struct ReadFrom(pub BTreeSet<PathBuf>);

impl PartialEq for ReadFrom {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for ReadFrom {}

/// `[language]`: what an interpreter of the language tier holds by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Language {
    /// Modules that may be imported, sorted; `None` = those of the tier.
    pub modules: Option<Vec<String>>,
    /// Most steps.
    pub steps: Option<u64>,
    /// Deepest call; `None` = that of the tier.
    pub recursion: Option<u32>,
}

/// A host path shown inside, at a path of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grant {
    /// Absolute host path.
    pub from: PathBuf,
    /// Absolute path inside; equal to `from` unless said.
    pub to: PathBuf,
    /// Spelled `dangerous-read` or `dangerous-write`.
    pub dangerous: bool,
}

/// The host's trees of tools: what [`Root::Host`] shows read-only where it is, beside parts of `/etc`. Some are links into others.
pub const TOOLS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Where the root tree comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Root {
    /// [`TOOLS`] of the host read-only, synthetic `/etc`.
    Host,
    /// Nothing but what is granted.
    Empty,
    /// A directory, read-only.
    Dir(PathBuf),
    /// An image of the caller's store.
    Image(Image),
}

impl Root {
    /// Whether it is an image that is being built.
    #[must_use]
    pub fn is_built(&self) -> bool {
        matches!(self, Self::Image(Image { name: _, found: Ok(found) }) if found.built)
    }

    /// Whether it is an image that the store keeps by its digest, by which it can be demanded.
    #[must_use]
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Image(Image { name: _, found: Ok(found) }) if found.is_kept())
    }

    /// Whether it is a tree that somebody else keeps, and may change: it is shown as it is, with whatever lies in it.
    #[must_use]
    pub fn is_foreign(&self) -> bool {
        match self {
            Self::Dir(_) => true,
            Self::Image(image) => image.found.as_ref().is_ok_and(|found| found.lent),
            Self::Host | Self::Empty => false,
        }
    }

    /// Where the tree lies on the host, if there is one.
    #[must_use]
    pub fn tree(&self) -> Option<&Path> {
        match self {
            Self::Host => Some(Path::new("/")),
            Self::Dir(path) => Some(path),
            Self::Image(image) => image.found.as_ref().ok().map(|found| found.tree.as_path()),
            Self::Empty => None,
        }
    }
}

/// An image, and what its name means here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// As the policy names it.
    pub name: String,
    /// What it means. It was looked up, and is demanded by its digest when something starts.
    pub found: Result<StoredImage, ImageNotFound>,
}

impl Image {
    /// Its name, and the digest that was found for it: a policy may say both.
    #[must_use]
    pub fn written(&self) -> String {
        match &self.found {
            Ok(found) if found.built => format!("{} (built in {})", self.name, found.tree.display()),
            Ok(found) if found.lent => format!("{} (shown from {})", self.name, found.tree.display()),
            Ok(found) if !self.name.ends_with(&found.digest) => format!("{}@{}", self.name, found.digest),
            Ok(_) | Err(_) => self.name.clone(),
        }
    }
}

/// An image as its store has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredImage {
    /// `sha256:HEX`: which image.
    pub digest: String,
    /// Where its tree lies.
    pub tree: PathBuf,
    /// The number that its `passwd` gives to whom the program runs as; otherwise 1000.
    pub user: Option<u32>,
    /// Where a program begins that has no workspace.
    pub workdir: Option<PathBuf>,
    /// What runs where nobody says what.
    pub command: Vec<String>,
    /// It is being built: what programs write stays in the tree, which nobody has read yet. No document can say so.
    pub built: bool,
    /// It is the tree of another engine's container: shown read-only as it is, and nobody here has read it. No document can say so.
    pub lent: bool,
}

impl StoredImage {
    /// Whether the store keeps it by its digest.
    #[must_use]
    pub const fn is_kept(&self) -> bool {
        !self.built && !self.lent
    }
}

/// Why a name means no image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageNotFound {
    /// Stable id; `fumehood explain` knows it.
    pub id: &'static str,
    /// In words.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl ImageNotFound {
    /// Of a name that nobody has looked up.
    #[must_use]
    pub fn unasked() -> Self {
        Self {
            id: "fs.root/no-images",
            why: "whoever reads this policy has no store of images".to_owned(),
            fix: "use `fs.root = \"host\"`, or start it by `fumehood run`".to_owned(),
        }
    }
}

/// `[fs]`
#[derive(Clone, Debug, PartialEq)]
pub struct Fs {
    /// Root tree.
    pub root: Root,
    /// Read-only grants (`read` and `dangerous-read`).
    pub read: Vec<Grant>,
    /// Read-write grants (`write` and `dangerous-write`).
    pub write: Vec<Grant>,
    /// Globs that are not visible inside grants.
    pub hide: Vec<String>,
    /// Which unix sockets work.
    pub sockets: Sockets,
    /// Least Landlock ABI; `None` = the tier's own least.
    pub landlock: Option<u32>,
    /// If set, the only executables.
    pub exec: Option<Vec<PathBuf>>,
    /// No execution from anything writable.
    pub noexec: bool,
    /// Size of `/tmp`.
    pub tmp: Bytes,
    /// Size of `/dev/shm`.
    pub shm: Bytes,
    /// Size of `/run`.
    pub run: Bytes,
    /// Protect control files of version control, editors and agents.
    pub protect: bool,
}

impl Fs {
    /// Whether there is a write grant whose control files are protected: one that is not spelled `dangerous-write`.
    #[must_use]
    pub fn write_protected(&self) -> bool {
        self.protect && self.write.iter().any(|grant| !grant.dangerous)
    }
}

/// `fs.sockets`: which unix sockets work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// Connected pairs alone.
    Pairs,
    /// Those that programs inside make, and none of the host.
    Own,
    /// Also sockets of the host, where they are granted.
    Host,
}

/// How the workspace is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkspaceMode {
    /// Not at all.
    None,
    /// Read-only.
    Ro,
    /// Changes reach the host at once.
    Rw,
    /// Changes are kept aside in a layer above.
    Overlay,
    /// The run works on a copy.
    Copy,
}

/// `[workspace]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// Absolute host path; `None` only with mode `none`.
    pub path: Option<PathBuf>,
    /// Where it is seen inside; `None` = `same`.
    pub at: Option<PathBuf>,
    /// Mode.
    pub mode: WorkspaceMode,
}

/// What happens when output passes its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The rest is dropped and counted.
    Cut,
    /// The run is ended.
    Kill,
}

/// A usage threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threshold {
    /// Percent of one core, of which a tree on several can use more than 100; `None` = not watched.
    pub cpu_percent: Option<u32>,
    /// Memory of the tree.
    pub memory: Option<Bytes>,
    /// How long it must last.
    pub lasting: Millis,
}

/// `[limits]`. `None` = the clause is not demanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Wall time of the run.
    pub wall: Option<Millis>,
    /// Processor time of the whole tree.
    pub cpu_time: Option<Millis>,
    /// Share of processor time.
    pub cpus: Option<MilliCpus>,
    /// Cores by number.
    pub cpuset: Option<Vec<u32>>,
    /// Memory of the whole tree; swap is 0.
    pub memory: Option<Bytes>,
    /// Processes and threads of the whole tree.
    pub pids: Option<u32>,
    /// RLIMIT_NOFILE.
    pub open_files: Option<u32>,
    /// RLIMIT_FSIZE.
    pub file_size: Option<Bytes>,
    /// Bytes of all that is writable together.
    pub disk: Option<Bytes>,
    /// Inodes of all that is writable together.
    pub files: Option<u64>,
    /// stdout and stderr kept, together.
    pub output: Option<Bytes>,
    /// What to do past `output`.
    pub over: Over,
    /// Read rate of block devices.
    pub io_read: Option<BytesPerSecond>,
    /// Write rate of block devices.
    pub io_write: Option<BytesPerSecond>,
    /// Idle time of a live sandbox.
    pub idle: Option<Millis>,
    /// Usage that is reported.
    pub warn: Option<Threshold>,
    /// Usage that ends the run.
    pub kill: Option<Threshold>,
}

/// `[env]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Env {
    /// Names taken from the caller.
    pub pass: Vec<String>,
    /// Values set.
    pub set: BTreeMap<String, String>,
    /// `git.identity = "host"`: name and mail of the caller's git join what is set, by whoever can ask for them.
    pub git_identity: bool,
}

/// Type of a scalar input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputType {
    /// Any text.
    String,
    /// A whole number.
    Integer,
    /// A finite number.
    Number,
    /// `true` or `false`.
    Boolean,
}

/// `[inputs.NAME]`
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// Type.
    pub kind: InputType,
    /// Longest text, in bytes.
    pub max_length: Option<u64>,
    /// Allowed values.
    pub one_of: Option<Vec<String>>,
    /// Regular expression, matched against the whole value.
    pub pattern: Option<String>,
    /// Must be given.
    pub required: bool,
    /// Value given by `--input`, already checked.
    pub value: Option<String>,
}

/// `[process]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// User name inside (uid and gid 1000).
    pub user: String,
    /// Host name inside.
    pub hostname: String,
    /// umask.
    pub umask: u32,
    /// A terminal of its own.
    pub tty: bool,
    /// `selinux:...` or `apparmor:...`.
    pub label: Option<String>,
    /// Devices of the host, each once.
    pub devices: Vec<Device>,
}

/// A device that a policy can give, with all nodes that its driver's libraries open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// The kernel's virtual machines.
    Kvm,
    /// One GPU, by the driver's number.
    Nvidia(u8),
    /// Every GPU of NVIDIA's.
    AllNvidia,
}

impl Device {
    /// As policies write it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let numbered = text.strip_prefix("nvidia:").and_then(|number| number.parse().ok()).map(Self::Nvidia);
        let mut known = [Self::Kvm, Self::AllNvidia].into_iter().chain(numbered);
        // A device has one name: `nvidia:01` is none.
        known.find(|device| device.to_string() == text)
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Kvm => f.write_str("kvm"),
            Self::Nvidia(number) => write!(f, "nvidia:{number}"),
            Self::AllNvidia => f.write_str("nvidia:all"),
        }
    }
}

/// `[syscalls]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Syscalls {
    /// Profile of `resources/seccomp`.
    pub profile: String,
    /// Names added.
    pub allow: Vec<String>,
    /// Names removed.
    pub deny: Vec<String>,
}

/// How much of code and arguments the audit record keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Only their SHA-256.
    Hash,
    /// All of it.
    Full,
    /// Nothing.
    None,
}

/// Durability of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// Left to the kernel.
    None,
    /// fdatasync when the last one is older than 5 s.
    Batch,
    /// fdatasync at every event.
    Each,
}

/// `[audit]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audit {
    /// Folder of the log; `None` = the state folder's `audit`.
    pub path: Option<PathBuf>,
    /// Regular expressions whose matches are replaced before anything is written.
    pub redact: Vec<String>,
    /// Content kept.
    pub content: Content,
    /// Durability.
    pub sync: Sync,
}
