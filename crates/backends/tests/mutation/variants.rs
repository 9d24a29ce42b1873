//! Every variant of a control, by construction: what is matched is what is expected.

use policy::Control;
use policy::control::{Filter, Machine, Namespace, Watch};

/// The names of all variants, and the name of one's: both come from one list, and a variant that is not in it does not compile.
macro_rules! variants {
    ($of:ident, $all:ident, $name:ident: $($variant:ident)*) => {
        const $all: &[&str] = &[$(stringify!($variant)),*];

        const fn $name(value: &$of) -> &'static str {
            match value {
                $($of::$variant { .. } => stringify!($variant),)*
            }
        }
    };
}

variants! { Control, CONTROLS, control:
    Namespace Root ImageTree User Device Hostname NoInnerNamespaces NoNewPrivs NoCapabilities NoGroups KeptGroups RunMark NoDescriptors
    Undumpable Session Keyring SignalScope PayloadScope Umask Terminal Label Mount ReadOnlyOverlay Overlay Copy Tmpfs Hide Certificates
    Covered ProtectedMounts ProtectedAtApply NoexecMounts NoexecRules Executables ReadFolders WriteFolders Landlock Rule Filter
    Cgroup Rlimit EachFile Watch OwnKernel Environment Veth LocalRoutes Inlets Broker Proxy Secrets Machine InMachine HostNetwork
    Interpreter Audit CommandGate ToolGate
}
variants! { Namespace, NAMESPACES, namespace:
    User Mount Pid Net Ipc Uts Cgroup Time
}
variants! { Filter, FILTERS, filter:
    Profile Allow Deny NoInet NoUnix SharedPids SharedFiles Links Visible CountedMemory
}
variants! { Watch, WATCHES, watch:
    Wall CpuTime Memory Locks Waiting Pids Disk Files Tmp Output Warn Kill Protected
}
variants! { Machine, MACHINES, machine:
    Emulator Kernel Memory NoNetwork Network
}

/// The variant of a control, with that of its parameter where this is what is applied.
pub(crate) fn of(one: &Control) -> String {
    let part = if let Control::Namespace(kind) = one {
        Some(namespace(kind))
    } else if let Control::Filter(part) = one {
        Some(filter(part))
    } else if let Control::Watch(part) = one {
        Some(watch(part))
    } else if let Control::Machine(part) = one {
        Some(machine(part))
    } else {
        None
    };
    let name = control(one);
    part.map_or_else(|| name.to_owned(), |part| format!("{name}::{part}"))
}

/// All that [`of`] can say.
pub(crate) fn all() -> Vec<String> {
    let parts = [("Namespace", NAMESPACES), ("Filter", FILTERS), ("Watch", WATCHES), ("Machine", MACHINES)];
    let whole = CONTROLS.iter().filter(|name| !parts.iter().any(|(of, _)| of == *name)).map(|name| (*name).to_owned());
    let parted = parts.iter().flat_map(|(of, parts)| parts.iter().map(move |part| format!("{of}::{part}")));
    whole.chain(parted).collect()
}

/// What no other backend than that of machines has.
pub(crate) const OF_A_MACHINE: &[&str] =
    &["InMachine", "Machine::Emulator", "Machine::Kernel", "Machine::Memory", "Machine::NoNetwork", "Machine::Network"];

/// The variants that no other case has than those whose name begins so.
pub(crate) fn only_of(case: &str) -> &'static [&'static str] {
    match case.split(',').next() {
        Some("device") => &["Device"],
        Some("gvisor") => &["OwnKernel", "Veth"],
        Some("language") => &["Interpreter"],
        Some("vm") => OF_A_MACHINE,
        _ => &[],
    }
}

/// A variant that another test leaves out: where, and by which name.
pub(crate) const ELSEWHERE: &[(&str, &str, &str)] =
    &[("ImageTree", include_str!("../../../sandbox/tests/mutation.rs"), "fn an_image_is_demanded_by_its_digest()")];
