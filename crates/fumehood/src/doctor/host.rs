//! Causes with a remedy of their own: settings of the kernel, the container around us, and our own folders.

use std::path::Path;

use backends::{Capabilities, CgroupSource, Kernel};
use policy::control::Emulator;
use sys::proc::Process;

use super::{Finding, Severity};
use sandbox::changes::{Interrupted, all_interrupted};
use sandbox::fault::show_text;
use sandbox::state::{Places, State};

/// Everything that is found.
#[must_use]
pub fn causes(host: &Capabilities, places: &Places) -> Vec<Finding> {
    let mut found = kernel_file_systems(host);
    found.extend(namespaces(host));
    found.extend(masked_proc());
    found.extend(outer_filter());
    found.extend(memfd());
    found.extend(landlock(host));
    found.extend(cgroups(host));
    found.extend(overlay(host));
    found.extend(labels());
    found.extend(runsc(host));
    found.extend(crun(host));
    found.extend(Emulator::ALL.into_iter().filter_map(|emulator| emulator_faults(emulator, host)));
    let mut machines = Emulator::ALL.into_iter().filter_map(|emulator| host.machine(emulator).ok());
    found.extend(machines.next().and_then(|emulation| machine_kernel(&emulation.kernel)));
    found.extend(host.machine(Emulator::Qemu).ok().and_then(|_| kvm(host)));
    found.extend(Emulator::ALL.into_iter().find_map(|emulator| host.kvm(emulator).ok()).and_then(|()| vmscape()));
    found.extend(state(places));
    found.extend(half_applied(places));
    found
}

fn finding(
    id: &'static str,
    severity: Severity,
    what: impl Into<String>,
    why: &str,
    fix: impl Into<String>,
) -> Finding {
    Finding { id, severity, tiers: &[], what: what.into(), why: why.to_owned(), fix: fix.into() }
}

/// Both tiers start from /proc, sealed memory and the record.
const ALL: &[&str] = &["process", "container"];

fn blocks(
    id: &'static str,
    tiers: &'static [&'static str],
    what: impl Into<String>,
    why: &str,
    fix: impl Into<String>,
) -> Finding {
    Finding { id, severity: Severity::Blocks, tiers, what: what.into(), why: why.to_owned(), fix: fix.into() }
}

fn kernel_file_systems(host: &Capabilities) -> Vec<Finding> {
    let mut found = Vec::new();
    if let Err(missing) = host.proc() {
        let why = "the posture of a sandbox is read back from it before the program starts";
        found.push(blocks(missing.id, ALL, missing.why, why, missing.fix));
    }
    if !Path::new("/sys/kernel").exists() {
        found.push(finding(
            "host/no-sys",
            Severity::Limits,
            "/sys is not mounted",
            "control groups and security modules are found by it",
            "mount -t sysfs sysfs /sys",
        ));
    }
    found
}

fn namespaces(host: &Capabilities) -> Option<Finding> {
    let missing = host.namespaces().err()?;
    let fix = if missing.id == "userns/apparmor" { apparmor_profile() } else { missing.fix };
    Some(blocks(missing.id, &["container"], missing.why, "the container tier is made of namespaces", fix))
}

/// The profile that lets this one program make user namespaces, where Ubuntu (23.10 on) takes that from all others.
fn apparmor_profile() -> String {
    let program = std::env::current_exe().map_or_else(
        |_unknown| "/usr/local/bin/fumehood".to_owned(),
        |path| sandbox::fault::show_path(&path).trim_matches('`').to_owned(),
    );
    format!(
        "printf 'abi <abi/4.0>,\\nprofile fumehood {program} flags=(unconfined) {{ userns, }}\\n' | \
         sudo tee /etc/apparmor.d/fumehood && sudo apparmor_parser -r /etc/apparmor.d/fumehood"
    )
}

/// A container engine hides parts of /proc with mounts; then the kernel refuses a fresh /proc in a user namespace,
/// which would show them (`mnt_already_visible` in fs/namespace.c).
fn masked_proc() -> Option<Finding> {
    let mounts = Process::own().ok()?.mounts().ok()?;
    let hides = |kind: &str| !matches!(kind, "binfmt_misc" | "autofs");
    let inside = mounts.iter().filter(|mount| mount.point.starts_with("/proc/") && hides(&mount.kind));
    let names: Vec<&str> = inside.map(|mount| mount.point.as_str()).take(3).collect();
    if names.is_empty() {
        return None;
    }
    Some(finding(
        "host/masked-proc",
        Severity::Limits,
        format!("parts of /proc are hidden by mounts: {}", show_text(&names.join(", "))),
        "the kernel then refuses a fresh /proc to a user namespace, and the container tier needs one",
        "start the outer container with `--security-opt systempaths=unconfined` (Docker, Podman) or `procMount: Unmasked` \
         (Kubernetes); or use `--tier process`",
    ))
}

/// A system call filter that was here before us: engines deny the clone flags of namespaces by it.
fn outer_filter() -> Option<Finding> {
    let status = Process::own().ok()?.status().ok()?;
    (status.seccomp != 0).then(|| {
        finding(
            "host/outer-filter",
            Severity::Note,
            "a system call filter is already in force on this process",
            "container engines deny new namespaces by it; whether this one does, the sandbox that was tried tells",
            "if the container tier fails: `--security-opt seccomp=unconfined` for the outer container, or `--tier process`",
        )
    })
}

fn memfd() -> Option<Finding> {
    let strict = sys::machine::sysctl("vm.memfd_noexec").ok()?? >= 2;
    strict.then(|| {
        blocks(
            "host/memfd-noexec",
            ALL,
            "vm.memfd_noexec is 2: nothing can be executed from sealed memory",
            "the guest is started from sealed memory, so that no file can be exchanged under it",
            "sudo sysctl -w vm.memfd_noexec=1",
        )
    })
}

fn landlock(host: &Capabilities) -> Option<Finding> {
    let abi = host.landlock;
    if abi == 0 {
        return Some(blocks(
            "host/no-landlock",
            ALL,
            "this kernel has no Landlock, or it is not switched on",
            "the process tier is made of it, and the container tier demands it as a second layer",
            "Linux 5.13 with CONFIG_SECURITY_LANDLOCK, and `landlock` in the boot parameter `lsm=`",
        ));
    }
    (abi < 6).then(|| {
        blocks(
            "host/old-landlock",
            &["process"],
            format!("Landlock speaks ABI {abi}"),
            "the process tier needs ABI 6: without its scopes a sandbox could signal the host's processes",
            "Linux 6.12; until then the container tier",
        )
    })
}

fn cgroups(host: &Capabilities) -> Option<Finding> {
    const CONTROLLERS: [&str; 5] = ["memory", "pids", "cpu", "cpuset", "io"];
    let missing: Vec<&str> = CONTROLLERS.into_iter().filter(|name| host.controller(name).is_none()).collect();
    let first = missing.first()?;
    let mut why = show_text(&host.cgroup_why(first));
    if let CgroupSource::Refused(answer) = host.given() {
        why.push_str(&format!("; {}", show_text(&answer)));
    }
    let fix = if host.root() {
        "mount the controllers (cgroup2 on /sys/fs/cgroup), writable for this process; in a service, `Delegate=yes`"
    } else if host.controller("memory").is_some() {
        // A service manager has given what it was told to give.
        "`Delegate=cpu cpuset io memory pids` below `[Service]` in /etc/systemd/system/user@.service.d/delegate.conf, \
         then `sudo systemctl daemon-reload` and a new login"
    } else {
        "a user session of systemd (`sudo loginctl enable-linger $USER`, and XDG_RUNTIME_DIR=/run/user/$(id -u) in the \
         environment), which gives memory, pids and cpu; or a service with `Delegate=yes` that starts fumehood itself"
    };
    Some(finding(
        "host/no-controllers",
        Severity::Limits,
        format!("control groups cannot be used for {} ({why})", missing.join(", ")),
        "memory and processes are then held by watching or by rlimits, cpus and io rates are refused",
        fix,
    ))
}

fn overlay(host: &Capabilities) -> Option<Finding> {
    if !host.has_overlay() {
        return Some(finding(
            "host/no-overlay",
            Severity::Limits,
            format!("Linux {} has no overlays, and no module of that name", host.release),
            "`overlay` is refused, and granted folders are shown as they are: locks of whole files are closed where nothing is written",
            "`-w PATH:copy`, or a kernel with `overlay`, as Debian's own",
        ));
    }
    (!host.root() && !host.overlay_on_tmpfs()).then(|| {
        finding(
            "host/old-overlay",
            Severity::Limits,
            format!("Linux {}.{} has no user attributes on tmpfs", host.kernel.0, host.kernel.1),
            "an overlay of an ordinary user mounts there and then fails, so that `overlay` is refused",
            "`-w PATH:copy`, or Linux 6.6",
        )
    })
}

fn labels() -> Option<Finding> {
    let enforcing = std::fs::read_to_string("/sys/fs/selinux/enforce").is_ok_and(|text| text.trim() == "1");
    enforcing.then(|| {
        finding(
            "host/selinux",
            Severity::Note,
            "SELinux is enforcing",
            "its rules come on top of ours and may deny what a policy grants; denials are in the host's audit log",
            "`ausearch -m avc -ts recent` shows what it denied",
        )
    })
}

/// That there is no `runsc` is said by the tier itself.
fn runsc(host: &Capabilities) -> Option<Finding> {
    let engine = host.runsc().ok()?;
    let known: Vec<String> = engine.faults().map(|k| format!("{} ({})", k.id, k.what)).collect();
    (!known.is_empty()).then(|| {
        finding(
            "gvisor/old-runsc",
            Severity::Limits,
            format!(
                "{} is release {}, with faults that are mended since: {}",
                show_text(&engine.path.display().to_string()),
                show_text(&engine.version),
                known.join(", ")
            ),
            "the gvisor tier is refused with `threat = \"multi-tenant\"` by such a release; else what a program does with a fault of gVisor's \
             meets the filter and the namespaces around it, and then the host",
            "gVisor's own newest release as /usr/local/bin/runsc, which is taken before a distribution's",
        )
    })
}

/// Told where it is installed: nobody gets it unasked.
fn crun(host: &Capabilities) -> Option<Finding> {
    let runtime = host.crun().ok()?;
    let known: Vec<String> = runtime.faults().map(|fault| format!("{} ({})", fault.id, fault.what)).collect();
    (!known.is_empty()).then(|| {
        finding(
            "crun/known-faults",
            Severity::Note,
            format!(
                "{} is release {}, with faults that are mended since: {}",
                show_text(&runtime.path.display().to_string()),
                show_text(&runtime.version),
                known.join(", ")
            ),
            "`backend = \"crun\"` is refused against hostile code with such a release",
            "a newer release of `crun`; the native backend needs none",
        )
    })
}

/// Told where machines are to be had.
fn emulator_faults(emulator: Emulator, host: &Capabilities) -> Option<Finding> {
    let emulation = host.machine(emulator).ok()?;
    let known: Vec<String> = emulation.faults().map(|hole| format!("{} ({})", hole.id, hole.what)).collect();
    (!known.is_empty()).then(|| {
        finding(
            match emulator {
                Emulator::Qemu => "qemu/known-faults",
                Emulator::Firecracker => "firecracker/known-faults",
            },
            Severity::Limits,
            format!(
                "{} is release {}, with faults that are mended since: {}",
                show_text(&emulation.program.display().to_string()),
                show_text(&emulation.version),
                known.join(", ")
            ),
            "the vm tier is refused against hostile code with such a release",
            format!("a newer release of {}", emulator.as_str()),
        )
    })
}

/// On KVM a machine is several times faster, and what is between its programs and the host is less code.
fn kvm(host: &Capabilities) -> Option<Finding> {
    let backends::Missing { id, why, fix } = host.kvm(Emulator::Qemu).err()?;
    let what = format!("machines run on QEMU's software processor: {why}");
    let why = "they are several times slower than on KVM, and QEMU's makers promise no boundary there: what gets out meets the container tier";
    Some(finding(id, Severity::Note, what, why, fix))
}

/// What the kernel says of a fault of processors by which a machine reads from its emulator.
fn vmscape() -> Option<Finding> {
    let said = std::fs::read_to_string("/sys/devices/system/cpu/vulnerabilities/vmscape").ok()?;
    said.starts_with("Vulnerable").then(|| {
        finding(
            "machine/vmscape",
            Severity::Limits,
            format!("a machine on KVM can read memory of its emulator: vmscape is `{}`", show_text(said.trim_end())),
            "the processor remembers branches of the machine in the emulator (CVE-2025-40300), and this kernel does nothing against it. Of a run the emulator holds its disks and what goes through its channels",
            "a newer kernel of this series, and the newest microcode; or `--tier gvisor`",
        )
    })
}

/// Debian's newest kernel for virtual machines is as old as the distribution.
fn machine_kernel(kernel: &Kernel) -> Option<Finding> {
    (kernel.version() < (6, 12)).then(|| {
        finding(
            "machine/old-kernel",
            Severity::Note,
            format!("machines start from Linux {}, which is older than 6.12", show_text(&kernel.release)),
            "its Landlock keeps no program from signalling the agent that started it: killed, the run ends as a failure (125); stopped, it stands still until `limits.wall` (124)",
            "`fumehood machine prepare --package FILE` with Debian's kernel for virtual machines, of Debian 13 or later",
        )
    })
}

fn state(places: &Places) -> Option<Finding> {
    let fault = State::open(places).and_then(|state| state.audit().map(|_| ())).err()?.fault();
    Some(Finding {
        id: fault.id,
        severity: Severity::Blocks,
        tiers: ALL,
        what: format!("{}: {}", fault.what, fault.place),
        why: fault.why,
        fix: fault.fix,
    })
}

/// What is wrong with the state folder is said by [`state`].
fn half_applied(places: &Places) -> Vec<Finding> {
    let halves = State::open(places).ok().and_then(|state| all_interrupted(&state).ok()).unwrap_or_default();
    let told = |half: Interrupted| {
        finding(
            "changes/interrupted",
            Severity::Note,
            format!("an `apply` of {} was ended half-way", half.run),
            &format!("a part of it may be in {}, and the rest is not", half.workspace),
            format!("{} again finishes it", half.finishes()),
        )
    };
    halves.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_machines_without_scopes_of_signals_is_told_with_what_replaces_it() {
        let told = |release: &str| {
            let about = serde_json::json!({ "package": "linux", "release": release, "kernel": "-", "modules": "-" });
            machine_kernel(&serde_json::from_value(about).unwrap())
        };
        for new in ["6.12", "6.12.43+deb13-cloud-amd64", "7.0.1"] {
            assert_eq!(told(new), None);
        }
        for old in ["6.1.0-56-cloud-amd64", "6.11.9", "5.15.0", "nonsense"] {
            let finding = told(old).unwrap_or_else(|| panic!("{old} is not told"));
            assert!(finding.id == "machine/old-kernel" && finding.severity == Severity::Note, "{finding:?}");
            assert!(finding.what.contains(old) && finding.fix.contains("machine prepare --package"), "{finding:?}");
        }
    }
}
