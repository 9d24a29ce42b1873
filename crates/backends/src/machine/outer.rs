//! The sandbox around the emulator: a plan of the container tier with one program, and no network but that of its machine. Of the
//! host QEMU has what that tier's root shows: the trees of the host's tools, read-only, and the shown part of `/etc`; Firecracker,
//! which needs no other file, has its own.

use std::ffi::OsString;
use std::path::Path;

use policy::control::{Accelerator, Control, Controls, Emulator, Machine, Namespace};
use policy::value::{Threat, Tier};
use policy::{Caller, Candidate, ClauseId, Format, Layers, Plan, Support};
use serde_json::{Value, json};

use super::{firecracker, frames};
use crate::StartError;
use crate::backend::Backend as _;
use crate::host::{Capabilities, Emulation};
use crate::native::Container;
use crate::native::blueprint::Blueprint;

/// Where the emulator sees what the machine is made of.
pub(super) const SHOWN: &str = "/machine";
/// The kernel there.
pub(super) const KERNEL: &str = "kernel";
/// The initial file system there.
pub(super) const INITIAL: &str = "initial";
/// The root's image there.
pub(super) const ROOT: &str = "root";
/// The workspace's image there.
pub(super) const WORKSPACE: &str = "workspace-image";

/// The word for KVM.
pub(super) const ON_KVM: &str = "kvm";
/// Threads of the emulator: its loop, one for each processor, and those that read the image.
const THREADS: u32 = 128;
/// Bytes of translated code that are kept, MiB.
const TRANSLATED: u32 = 64;
/// What the kernel is told, beside how the machine starts again. A panic, a switched-off machine and one that starts again all end the
/// emulator.
pub(super) const KERNEL_WORDS: &str = "quiet loglevel=1 panic=-1 random.trust_cpu=on tsc=unstable rdinit=/init";

/// Plans it: around the emulator stand the control groups of the machine's own plan, against whom that plan says.
pub(super) fn plan(blueprint: &Blueprint, emulation: &Emulation, host: &Capabilities) -> Result<Plan, StartError> {
    let text = document(blueprint, emulation)?.to_string();
    let root = Path::new("/");
    let mut layers = Layers::new(Caller { dir: root.to_path_buf(), home: None, profiles: vec!["default".to_owned()] });
    let none = |_: &Path| Err("no other document belongs here".to_owned());
    layers.document("machine", &text, Format::Json, root, &none);
    let broken = |why: String| StartError::Internal(format!("the plan of the emulator: {why}"));
    let loaded = layers.finish().map_err(|mistakes| broken(mistakes.to_string()))?;
    let policy = loaded.policy_on(Tier::Container).into_owned();
    // It is part of the run, whose record this is.
    let of_record = [ClauseId::AuditPath, ClauseId::AuditRedact, ClauseId::AuditContent, ClauseId::AuditSync];
    let answers = |clause: ClauseId| match (clause, blueprint.machine.network) {
        (id, _) if of_record.contains(&id) => Support::NotAsked,
        (ClauseId::NetMode, Some(ipv6)) => network(blueprint, ipv6),
        // Of the machine's own plan, whose broker has the sockets.
        (ClauseId::NetUnknown | ClauseId::NetDns, Some(_)) => Support::NotAsked,
        (_, _) => Container.support(clause, &policy, host),
    };
    let on = Candidate { tier: Tier::Container, backend: Container.name(), answers: &answers };
    policy::make_plan(&loaded, on).map_err(|refusal| {
        let all: Vec<String> =
            refusal.refused.iter().map(|reason| format!("{}: {}", reason.clause, reason.why)).collect();
        broken(all.join("; "))
    })
}

/// What stands in the namespace to which the machine's frames are carried: what the machine's own plan says, as around a container's
/// programs.
fn network(blueprint: &Blueprint, ipv6: bool) -> Support {
    let routes = blueprint.local[0].then(|| Control::LocalRoutes { ipv6: blueprint.local[1] });
    let inlets = (!blueprint.inlets.is_empty()).then(|| Control::Inlets(blueprint.inlets.clone()));
    let device = Control::Machine(Machine::Network { ipv6 });
    let others = routes.into_iter().chain(inlets).chain([device]);
    Support::Held(Controls::new(Control::Namespace(Namespace::Net), others))
}

fn document(blueprint: &Blueprint, emulation: &Emulation) -> Result<Value, StartError> {
    let groups = &blueprint.cgroup;
    // Where no control group can be had, the machine's memory is bounded by the emulator's words alone.
    let memory = groups.memory.map_or(json!("none"), |bytes| json!(format!("{bytes}B")));
    let (program, accelerator, against) = planned(blueprint.machine.emulator, "an emulator")?;
    let threat = match against {
        Threat::Mistakes => "mistakes",
        Threat::Hostile | Threat::MultiTenant => "hostile",
    };
    let mut document = json!({
        "version": 1,
        "name": "machine",
        "tier": "container",
        "threat": threat,
        "fs": files(program, &emulation.program),
        "limits": {
            "wall": "none", "memory": memory, "pids": THREADS, "disk": "none", "files": "none", "output": "none",
            "file_size": "1M", "open_files": 256,
        },
        "syscalls": { "profile": "default" },
    });
    if let Some(all) = document.as_object_mut().filter(|_| accelerator == Accelerator::Kvm) {
        all.insert("process".to_owned(), json!({ "devices": ["kvm"] }));
    }
    if let Some(all) = document.as_object_mut().filter(|_| blueprint.machine.network.is_some()) {
        all.insert("net".to_owned(), json!({ "mode": "allow" }));
        // The machine's frames are its only way out: an emulator makes no socket.
        all.insert("syscalls".to_owned(), json!({ "profile": "default", "deny": ["socket"] }));
    }
    let mut limit = |name: &str, value: Value| {
        if let Some(limits) = document.get_mut("limits").and_then(Value::as_object_mut) {
            limits.insert(name.to_owned(), value);
        }
    };
    if let Some(share) = &groups.cpu {
        let thousandths = share.quota_us.saturating_mul(1000).checked_div(share.period_us);
        let thousandths = thousandths.and_then(|share| u32::try_from(share).ok());
        limit("cpus", json!(f64::from(planned(thousandths, "a share of processors")?) / 1000.0));
    }
    if let Some(cores) = &groups.cpuset {
        limit("cpuset", json!(cores));
    }
    // One rate for all devices.
    if let Some(rate) = groups.io.iter().find_map(|device| device.read) {
        limit("io_read", json!(format!("{rate}B/s")));
    }
    if let Some(rate) = groups.io.iter().find_map(|device| device.write) {
        limit("io_write", json!(format!("{rate}B/s")));
    }
    Ok(document)
}

/// What it sees of the host. Firecracker has no other file than itself. Sockets are not closed to it, for its channel is one, and there
/// is none of the host's; nor are memory files, in which its channel has what comes, and so what it writes could be executed: by its own
/// filter, which each of its threads must show, nothing can.
fn files(program: Emulator, at: &Path) -> Value {
    let at = at.to_string_lossy();
    match program {
        Emulator::Qemu => json!({
            "root": "host", "exec": [at], "noexec": true, "protect": false, "tmp": "4M", "shm": "1M", "run": "1M",
        }),
        Emulator::Firecracker => json!({
            "root": "empty", "read": [{ "from": at, "to": format!("{SHOWN}/{}", firecracker::PROGRAM) }], "sockets": true,
            "noexec": false, "protect": false, "tmp": "1M", "shm": "1M", "run": "1M",
        }),
    }
}

/// A part that every machine has: without a control that asks for it there is no start.
pub(super) fn planned<T>(part: Option<T>, what: &str) -> Result<T, StartError> {
    part.ok_or_else(|| StartError::Internal(format!("{what} is not planned")))
}

/// How many processors the machine has.
pub(super) fn processors(blueprint: &Blueprint) -> u64 {
    let share = blueprint.cgroup.cpu.as_ref();
    share.map_or(1, |share| share.quota_us.div_ceil(share.period_us.max(1)).clamp(1, 8))
}

/// What is said beside [`words`] where the machine does not boot, but begins with what a prepared one was.
pub(super) const PREPARED: [&str; 2] = ["-incoming", "defer"];

/// The emulator's words: all devices that the machine has.
///
/// # Errors
/// A part of every machine is not planned: its kernel, its memory, whether it has a network.
pub(super) fn emulator_argv(
    blueprint: &Blueprint,
    emulation: &Emulation,
    workspace: bool,
) -> Result<Vec<OsString>, StartError> {
    let parts = &blueprint.machine;
    let (release, digest) = planned(parts.kernel.as_ref(), "a kernel")?;
    if (release, digest) != (&emulation.kernel.release, &emulation.kernel.digest()) {
        return Err(StartError::Internal("the prepared kernel is another than was planned".to_owned()));
    }
    planned((parts.no_network != parts.network.is_some()).then_some(()), "a machine with a network or without one")?;
    let (program, accelerator, _against) = planned(parts.emulator, "an emulator")?;
    if program != emulation.emulator {
        return Err(StartError::Internal("the emulator is another than was planned".to_owned()));
    }
    if program == Emulator::Firecracker {
        return Ok(firecracker::words());
    }
    let at = |name: &str| format!("{SHOWN}/{name}");
    let image = |node: &str, file: &str| {
        format!("driver=file,node-name={node},read-only=on,locking=off,filename={SHOWN}/{file}")
    };
    // Rounded down: never more than is planned.
    let memory = planned(parts.memory, "memory")? >> 20;
    let (accel, cpu) = match accelerator {
        Accelerator::Tcg => (format!("tcg,tb-size={TRANSLATED}"), "max"),
        // A machine has no machines of its own: what KVM does for those is closed to it.
        Accelerator::Kvm => (ON_KVM.to_owned(), "host,vmx=off,svm=off"),
    };
    let sandbox = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";
    let mut words: Vec<OsString> = vec![emulation.program.clone().into_os_string()];
    let options = [
        ("-machine", "q35,vmport=off,hpet=off".to_owned()),
        ("-accel", accel),
        ("-cpu", cpu.to_owned()),
        ("-smp", processors(blueprint).to_string()),
        ("-m", format!("{memory}M")),
        ("-display", "none".to_owned()),
        ("-monitor", "none".to_owned()),
        ("-serial", "none".to_owned()),
        ("-parallel", "none".to_owned()),
        ("-vga", "none".to_owned()),
        ("-sandbox", sandbox.to_owned()),
        ("-kernel", at(KERNEL)),
        ("-initrd", at(INITIAL)),
        ("-append", format!("{KERNEL_WORDS} reboot=t")),
        ("-chardev", "socket,id=control,fd=0".to_owned()),
        ("-mon", "chardev=control,mode=control".to_owned()),
        ("-chardev", "socket,id=agent,fd=1".to_owned()),
        ("-device", "virtio-serial-pci".to_owned()),
        ("-device", format!("virtserialport,chardev=agent,nr={},name=fumehood", agent::machine::PORT)),
        ("-blockdev", image("root", ROOT)),
        ("-device", "virtio-blk-pci,drive=root".to_owned()),
    ];
    let second =
        [("-blockdev", image("workspace", WORKSPACE)), ("-device", "virtio-blk-pci,drive=workspace".to_owned())];
    words.extend(["-nodefaults", "-no-user-config", "-no-reboot"].map(OsString::from));
    let device = frames::WORDS.map(|(option, value)| (option, value.to_owned()));
    let device = device.into_iter().filter(|_| parts.network.is_some());
    for (option, value) in options.into_iter().chain(second.into_iter().filter(|_| workspace)).chain(device) {
        words.extend([OsString::from(option), OsString::from(value)]);
    }
    Ok(words)
}
