//! What must be seen of each control before *go*.

use std::fmt;

use super::{Control, Filter, Machine};

/// Where the proof of a control comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Read from the kernel by the supervisor.
    Outside(&'static str),
    /// Read from the kernel by the guest.
    Guest(&'static str),
    /// An attempt that the kernel answered as planned.
    Behaviour(&'static str),
    /// The supervisor's own part was made from the control and is armed.
    Armed(&'static str),
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, what) = match self {
            Self::Outside(what) => ("kernel", what),
            Self::Guest(what) => ("guest", what),
            Self::Behaviour(what) => ("behaviour", what),
            Self::Armed(what) => ("supervisor", what),
        };
        write!(f, "{from}: {what}")
    }
}

impl Control {
    /// The one piece of evidence that must be there before *go*.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a table: one arm per control")]
    pub const fn evidence(&self) -> Evidence {
        match self {
            Self::Namespace(_) => Evidence::Outside("/proc/PID/ns differs from ours"),
            Self::Root(_) => Evidence::Outside("mountinfo: one read-only root, no mount that was not planned"),
            Self::ImageTree(_) => Evidence::Armed("every file of the tree was read; its digest is the image's"),
            Self::User { .. } => Evidence::Guest("getresuid, getresgid; /proc/PID/status outside"),
            Self::Device { .. } => Evidence::Outside("the node's numbers at its place; mountinfo; it was opened"),
            Self::Hostname(_) => Evidence::Guest("uname"),
            Self::NoInnerNamespaces => Evidence::Guest("/proc/sys/user/max_*_namespaces read back"),
            Self::NoNewPrivs => Evidence::Outside("/proc/PID/status NoNewPrivs"),
            Self::NoCapabilities => Evidence::Outside("/proc/PID/status Cap*"),
            Self::NoGroups => Evidence::Guest("getgroups"),
            Self::KeptGroups(_) => Evidence::Outside("/proc/PID/status Groups"),
            Self::RunMark => Evidence::Guest("prlimit"),
            Self::NoDescriptors => Evidence::Guest("every open descriptor counted"),
            Self::Undumpable => Evidence::Guest("PR_GET_DUMPABLE"),
            Self::Session => Evidence::Guest("getsid"),
            Self::Keyring => Evidence::Guest("KEYCTL_GET_KEYRING_ID before and after"),
            Self::SignalScope => Evidence::Behaviour("a signal to a witness outside got through before and not after"),
            Self::PayloadScope => Evidence::Behaviour("a child under the payload's layer could not signal the guest"),
            Self::Umask(_) => Evidence::Outside("/proc/PID/status Umask"),
            Self::Terminal { .. } => Evidence::Guest("the master's descriptor came out"),
            Self::Label(_) => Evidence::Guest("attr/exec read back"),
            Self::Mount { .. } => Evidence::Outside(
                "mountinfo: options of the uppermost mount; what is bound is the file that was judged",
            ),
            Self::ReadOnlyOverlay => Evidence::Outside("mountinfo: kind of the uppermost mounts"),
            Self::Overlay { .. } => Evidence::Outside("mountinfo: kind of the uppermost mount; its layer came out"),
            Self::Copy { size: Some(_), .. } | Self::Tmpfs { .. } => Evidence::Outside("statfs: size and inodes"),
            Self::Copy { size: None, .. } => Evidence::Armed("the copy was made"),
            Self::Certificates { .. } => {
                Evidence::Outside("mountinfo; what is read at each place is what was laid there")
            }
            Self::Hide(_) => Evidence::Armed("covered in the layer"),
            Self::Covered(_) => Evidence::Outside("mountinfo: a mount on each path that was found"),
            Self::ProtectedMounts => Evidence::Outside("mountinfo: each protected path"),
            Self::ProtectedAtApply => Evidence::Armed("changes are kept aside"),
            Self::NoexecMounts => Evidence::Outside("mountinfo: noexec on each writable mount"),
            Self::NoexecRules(_) | Self::Executables { .. } | Self::WriteFolders { .. } => {
                Evidence::Behaviour("an open that the layer must refuse; its rules against the list")
            }
            Self::ReadFolders { .. } => Evidence::Behaviour(
                "an open of what is shown and not listed that the layer must refuse; its rules against the list",
            ),
            Self::Landlock(_) => Evidence::Behaviour("an open that must fail and one that must work"),
            Self::Rule { .. } => Evidence::Guest("number of rules that it put on; each against the plan outside"),
            Self::Filter(Filter::Allow(_) | Filter::Deny(_)) => Evidence::Behaviour(
                "each named call tried that does nothing with the arguments it is given; of the others the filter that is on says it",
            ),
            Self::Filter(Filter::Links) => {
                Evidence::Behaviour("a link that was refused before its folder was granted, and told afterwards")
            }
            Self::Filter(_) => Evidence::Behaviour("an allowed and a denied call of each group of rules"),
            Self::Cgroup { .. } => Evidence::Outside("the group's file read back, the guest in it"),
            Self::Rlimit { .. } => Evidence::Guest("prlimit"),
            Self::EachFile(_) => Evidence::Guest("prlimit"),
            Self::Watch(_) => Evidence::Armed("the watch is set"),
            Self::OwnKernel { .. } => Evidence::Outside(
                "/proc/PID of gVisor's processes: seccomp, namespaces, ids, group, words; inside, the guest is process 1 on a served root",
            ),
            Self::Environment(_) => {
                Evidence::Guest("number of variables that it was handed; each against the plan outside")
            }
            Self::Veth => Evidence::Outside(
                "/proc/PID/ns/net of gVisor's kernel is the namespace that was made; RTM_GETLINK: of both, what is up",
            ),
            Self::LocalRoutes { .. } => Evidence::Guest(
                "RTM_GETROUTE: a foreign address of each family is local; from gVisor's kernel, a connection to one",
            ),
            Self::Inlets(_) => Evidence::Outside(
                "SIOCGSKNS, getsockname: each socket is of the sandbox's namespace and waits as planned",
            ),
            Self::Broker => Evidence::Armed("it said the digest of the rules, and holds the sockets"),
            Self::Proxy => Evidence::Armed("it said the digest of the rules, of which the proxy is one"),
            Self::Secrets => Evidence::Armed("it said the digest of which secrets it holds for which requests"),
            Self::Machine(Machine::Emulator { .. }) => Evidence::Outside(
                "/proc/PID/cmdline, fd (its machine and processors of KVM, or none) and task/*/status (a filter of its own on each thread) of the emulator; every control of the sandbox around it left its own evidence",
            ),
            Self::Machine(Machine::Kernel { .. }) => Evidence::Guest("uname; what it was started from had the digest"),
            Self::Machine(Machine::Memory(_)) => Evidence::Guest("/proc/meminfo inside; the emulator's words outside"),
            Self::Machine(Machine::NoNetwork) => Evidence::Guest("/proc/net/dev inside; the emulator's words outside"),
            Self::Machine(Machine::Network { .. }) => Evidence::Outside(
                "SIOCGSKNS, getsockname: its frames are of the emulator's namespace alone; /proc/net/dev inside",
            ),
            Self::InMachine(_) => Evidence::Guest("/proc of the machine, read by our agent before anything else ran"),
            Self::HostNetwork => Evidence::Behaviour("no probe of closed sockets is planned"),
            Self::Interpreter(_) => {
                Evidence::Armed("it tried its limits and said which it has, before it was given the program")
            }
            Self::Audit => Evidence::Armed("run.planned is written"),
            Self::CommandGate => Evidence::Armed("the command was judged"),
            Self::ToolGate => Evidence::Armed("no channel to a tool but the gate's"),
        }
    }
}
