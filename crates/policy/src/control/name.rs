//! The names of mechanisms, without their parameters.

use super::{Accelerator, Control, Emulator, Filter, Machine};

impl Control {
    /// The mechanism's name without its parameters: what stands in the plan's `enforcer`.
    #[must_use]
    pub fn name(&self) -> String {
        let name = match self {
            Self::Namespace(kind) => kind.as_str(),
            Self::Root(_) => "pivot_root",
            Self::ImageTree(_) => "supervisor:image",
            Self::User { .. } => "userns:map",
            Self::Device { .. } => "mountns:device",
            Self::Hostname(_) => "utsns",
            Self::NoInnerNamespaces => "userns:limits",
            Self::NoNewPrivs => "no_new_privs",
            Self::NoCapabilities => "capabilities",
            Self::NoGroups => "groups",
            Self::KeptGroups(_) => "groups:kept",
            Self::RunMark => "rlimit:rttime",
            Self::NoDescriptors => "descriptors",
            Self::Undumpable => "dumpable",
            Self::Session => "session",
            Self::Keyring => "keyring",
            Self::SignalScope => "landlock:scope",
            Self::PayloadScope => "landlock:payload",
            Self::Umask(_) => "umask",
            Self::Terminal { instance: true } => "devpts:newinstance",
            Self::Terminal { instance: false } => "pty:session",
            Self::Label(label) => {
                return format!("lsm:{}", label.split(':').next().unwrap_or_default());
            }
            Self::Mount { write: false, .. } => "mountns:ro",
            Self::Mount { write: true, .. } => "mountns:rw",
            Self::ReadOnlyOverlay => "overlay",
            Self::Overlay { .. } => "overlay+tmpfs",
            Self::Copy { size: Some(_), .. } => "tmpfs",
            Self::Copy { size: None, .. } => "copy",
            Self::Tmpfs { .. } => "tmpfs:size,nr_inodes",
            Self::Certificates { .. } => "mountns:certificates",
            Self::Hide(_) => "overlay:whiteout",
            Self::Covered(_) => "mountns:cover",
            Self::ProtectedMounts => "mountns:ro",
            Self::ProtectedAtApply => "supervisor:apply",
            Self::NoexecMounts => "mount:noexec",
            Self::NoexecRules(abi) | Self::Executables { abi, .. } => return format!("landlock:{abi}:execute"),
            Self::ReadFolders { abi, .. } => return format!("landlock:{abi}:read"),
            Self::WriteFolders { abi, .. } => return format!("landlock:{abi}:write"),
            Self::Landlock(abi) => return format!("landlock:{abi}"),
            Self::Rule { .. } => "landlock",
            Self::Filter(filter) => filter.name(),
            Self::Cgroup { version, limit } => return format!("cgroup-v{version}:{}", limit.controller()),
            Self::Rlimit { resource, .. } => resource.name(),
            Self::EachFile(_) => "rlimit:fsize",
            Self::Watch(watch) => watch.name(),
            Self::OwnKernel { platform, faults: _ } => return format!("gvisor:{platform}"),
            Self::Environment(_) => "guest:environment",
            Self::Veth => "netns:veth",
            Self::LocalRoutes { .. } => "netns:routes",
            Self::Inlets(_) => "netns:sockets",
            Self::Broker => "broker:net",
            Self::Proxy => "broker:proxy",
            Self::Secrets => "broker:secrets",
            Self::HostNetwork => "host:net",
            Self::Interpreter(interpreter) => return format!("interpreter:{}", interpreter.source.backend()),
            Self::Machine(part) => part.name(),
            Self::InMachine(control) => return format!("vm:{}", control.name()),
            Self::Audit => "supervisor:audit",
            Self::CommandGate => "broker:commands",
            Self::ToolGate => "broker:tools",
        };
        name.to_owned()
    }
}

impl Machine {
    const fn name(&self) -> &'static str {
        match self {
            Self::Emulator { program: Emulator::Qemu, accelerator: Accelerator::Tcg, .. } => "vm:qemu-tcg",
            Self::Emulator { program: Emulator::Qemu, accelerator: Accelerator::Kvm, .. } => "vm:qemu-kvm",
            // On nothing but KVM.
            Self::Emulator { program: Emulator::Firecracker, .. } => "vm:firecracker-kvm",
            Self::Kernel { .. } => "vm:kernel",
            Self::Memory(_) => "vm:memory",
            Self::NoNetwork => "vm:no-network-device",
            Self::Network { .. } => "vm:network-device",
        }
    }
}

impl Filter {
    const fn name(&self) -> &'static str {
        match self {
            Self::NoInet => "seccomp:socket",
            Self::NoUnix => "seccomp:af_unix",
            Self::Links => "seccomp:links",
            Self::Visible => "seccomp:dumpable",
            Self::CountedMemory => "seccomp:memory",
            Self::Profile(_) | Self::Allow(_) | Self::Deny(_) | Self::SharedPids | Self::SharedFiles { .. } => {
                "seccomp"
            }
        }
    }
}
