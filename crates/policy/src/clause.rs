//! The closed list of clauses. Adding one breaks every `match` until each backend has answered.

use serde::{Serialize, Serializer};

macro_rules! clauses {
    ($($(#[doc = $doc:literal])+ $variant:ident = $path:literal;)+) => {
        /// A clause of a policy, by name, in the order of the documentation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ClauseId { $($(#[doc = $doc])+ $variant,)+ }

        impl ClauseId {
            /// Every clause, in order.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The path in a document, e.g. `limits.memory`.
            #[must_use]
            pub const fn path(self) -> &'static str {
                match self { $(Self::$variant => $path,)+ }
            }
        }
    };
}

clauses! {
    /// Strength class of isolation.
    Tier = "tier";
    /// What implements the tier.
    Backend = "backend";
    /// Adversary.
    Threat = "threat";
    /// Who may hold the limits.
    Enforcer = "enforcer";
    /// Root tree.
    FsRoot = "fs.root";
    /// Read-only grants.
    FsRead = "fs.read";
    /// Read-write grants.
    FsWrite = "fs.write";
    /// Hidden paths inside grants.
    FsHide = "fs.hide";
    /// Unix sockets of the host.
    FsSockets = "fs.sockets";
    /// Least Landlock ABI.
    FsLandlock = "fs.landlock";
    /// The only executables.
    FsExec = "fs.exec";
    /// No execution from writable places.
    FsNoexec = "fs.noexec";
    /// Size of `/tmp`.
    FsTmp = "fs.tmp";
    /// Size of `/dev/shm`.
    FsShm = "fs.shm";
    /// Size of `/run`.
    FsRun = "fs.run";
    /// Protected control files.
    FsProtect = "fs.protect";
    /// The workspace and how it is shown.
    Workspace = "workspace";
    /// Wall time.
    LimitsWall = "limits.wall";
    /// Processor time of the tree.
    LimitsCpuTime = "limits.cpu_time";
    /// Share of processor time.
    LimitsCpus = "limits.cpus";
    /// Cores by number.
    LimitsCpuset = "limits.cpuset";
    /// Memory of the tree.
    LimitsMemory = "limits.memory";
    /// Processes and threads of the tree.
    LimitsPids = "limits.pids";
    /// Open descriptors per process.
    LimitsOpenFiles = "limits.open_files";
    /// Largest file.
    LimitsFileSize = "limits.file_size";
    /// Bytes written to all that is writable.
    LimitsDisk = "limits.disk";
    /// Inodes of all that is writable.
    LimitsFiles = "limits.files";
    /// Output kept.
    LimitsOutput = "limits.output";
    /// What happens past `limits.output`.
    LimitsOver = "limits.over";
    /// Block device read rate.
    LimitsIoRead = "limits.io_read";
    /// Block device write rate.
    LimitsIoWrite = "limits.io_write";
    /// Idle time of a live sandbox.
    LimitsIdle = "limits.idle";
    /// Usage that is reported.
    LimitsWarn = "limits.warn";
    /// Usage that ends the run.
    LimitsKill = "limits.kill";
    /// Network mode.
    NetMode = "net.mode";
    /// Destinations that many need, by name.
    NetPresets = "net.presets";
    /// Allowed destinations.
    NetAllow = "net.allow";
    /// Denied destinations.
    NetDeny = "net.deny";
    /// What no rule has.
    NetUnknown = "net.unknown";
    /// Destinations by program.
    NetPrograms = "net.programs";
    /// Name resolution.
    NetDns = "net.dns";
    /// More root certificates.
    NetCa = "net.ca";
    /// The broker's way out.
    NetProxy = "net.proxy";
    /// Network rate.
    NetBandwidth = "net.bandwidth";
    /// Network volume.
    NetBytes = "net.bytes";
    /// Connections open at once.
    NetConnections = "net.connections";
    /// Variables taken from the caller.
    EnvPass = "env.pass";
    /// Variables set.
    EnvSet = "env.set";
    /// Typed scalar inputs.
    Inputs = "inputs";
    /// Brokered secrets.
    Secrets = "secrets";
    /// User inside.
    ProcessUser = "process.user";
    /// Host name inside.
    ProcessHostname = "process.hostname";
    /// umask.
    ProcessUmask = "process.umask";
    /// Own terminal.
    ProcessTty = "process.tty";
    /// SELinux or AppArmor label.
    ProcessLabel = "process.label";
    /// Devices of the host.
    ProcessDevices = "process.devices";
    /// System call profile.
    SyscallsProfile = "syscalls.profile";
    /// System calls added.
    SyscallsAllow = "syscalls.allow";
    /// System calls removed.
    SyscallsDeny = "syscalls.deny";
    /// Modules that a program of the language tier may import.
    LanguageModules = "language.modules";
    /// Steps of a program of the language tier.
    LanguageSteps = "language.steps";
    /// Depth of calls in a program of the language tier.
    LanguageRecursion = "language.recursion";
    /// Command policy.
    Commands = "commands";
    /// Tool policy.
    Tools = "tools";
    /// Where the audit log lies.
    AuditPath = "audit.path";
    /// What is redacted.
    AuditRedact = "audit.redact";
    /// How much content is kept.
    AuditContent = "audit.content";
    /// Durability of the log.
    AuditSync = "audit.sync";
}

impl std::fmt::Display for ClauseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.path())
    }
}

impl Serialize for ClauseId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.path())
    }
}
