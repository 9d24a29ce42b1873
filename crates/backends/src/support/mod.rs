//! Which mechanism holds which clause: the one list from which planner, `doctor`, docs and conformance are made.
//!
//! `support` answers for one clause, exhaustively: a new clause breaks this match until each backend has answered.

mod container;
mod process;

pub(crate) use container::support as container;
pub(crate) use process::support as process;

use policy::units::{ranges, spans};
use policy::value::{NetMode, Policy, Root, WorkspaceMode};
use policy::{Enforced, Strength, Support, Unmet};

use sys::machine::Labels;

use crate::host::Capabilities;
use crate::native::label::Label;

/// How far sampling lets memory go.
const MEMORY_OVERSHOOT: &str =
    "what the tree allocates between two samples, 20 ms apart, and what the kernel keeps for its pipes and sockets";
/// How far sampling lets processor time go.
const CPU_TIME_OVERSHOOT: &str =
    "what all cores use between two samples, 20 ms apart; without a control group also children that nobody waited for";

pub(crate) fn kernel(by: impl Into<String>) -> Support {
    Support::Enforced(Enforced { by: by.into(), strength: Strength::Kernel, overshoot: None })
}

pub(crate) fn supervisor(by: impl Into<String>, overshoot: Option<&str>) -> Support {
    Support::Enforced(supervised(by, overshoot))
}

pub(crate) fn supervised(by: impl Into<String>, overshoot: Option<&str>) -> Enforced {
    Enforced { by: by.into(), strength: Strength::Supervisor, overshoot: overshoot.map(str::to_owned) }
}

pub(crate) fn unmet(id: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Support {
    Support::Unmet(Unmet { id, why: why.into(), fix: fix.into(), weaker: None })
}

pub(crate) fn unmet_but(id: &'static str, why: impl Into<String>, fix: impl Into<String>, weaker: Enforced) -> Support {
    Support::Unmet(Unmet { id, why: why.into(), fix: fix.into(), weaker: Some(weaker) })
}

pub(crate) fn when(asked: bool, answer: impl FnOnce() -> Support) -> Support {
    if asked { answer() } else { Support::NotAsked }
}

/// Whether a tree of the host is shown writable without a layer of ours between.
pub(crate) fn writes_to_host(policy: &Policy) -> bool {
    policy.workspace.mode == WorkspaceMode::Rw || !policy.fs.write.is_empty()
}

/// A limit that only a control group holds, on every tier.
pub(crate) fn controller(host: &Capabilities, name: &str, id: &'static str) -> Support {
    match host.controller(name) {
        Some(by) => kernel(by),
        None => unmet(
            id,
            format!("no `{name}` cgroup controller can be used: {}", host.cgroup_why(name)),
            "run under a delegated cgroup (systemd-run --user --scope -p Delegate=yes), or remove the limit",
        ),
    }
}

/// The cores of a run, by its control group: of those that this host has, and that whoever called us may use. A control
/// group of v2 would take others and not hold them.
pub(crate) fn cpuset(policy: &Policy, host: &Capabilities) -> Support {
    let Some(cores) = &policy.limits.cpuset else { return Support::NotAsked };
    let Some(here) = host.processors() else { return controller(host, "cpuset", "limits.cpuset/no-controller") };
    if let Some(core) = cores.iter().find(|core| !lists(&here, **core)) {
        return unmet(
            "limits.cpuset/no-such-core",
            format!("this host has no core {core}: those that are switched on are {here}"),
            "name cores of those, or say how many by `limits.cpus`",
        );
    }
    let given = host.given_processors();
    if let Some((core, given)) = given.and_then(|given| Some((cores.iter().find(|core| !given.contains(core))?, given)))
    {
        return unmet(
            "limits.cpuset/not-given",
            format!("core {core} is not for this run: whoever called fumehood may use {}", spans(&given)),
            "name cores of those, or give the caller more (its control group's `cpuset.cpus`, or `taskset`)",
        );
    }
    controller(host, "cpuset", "limits.cpuset/no-controller")
}

/// Whether a list as the kernel writes it (`0-3,8`) names a number.
fn lists(list: &str, number: u32) -> bool {
    ranges(list).flatten().any(|(from, to)| (from..=to).contains(&number))
}

/// Clauses that need the broker, on every tier.
pub(crate) fn network_by_broker(policy: &Policy) -> Support {
    when(policy.net.mode == NetMode::Allow || !policy.net.allow.is_empty(), || {
        unmet(
            "net.allow/no-broker",
            "no backend can reach named hosts yet: the egress broker is not part of this version",
            "use `net.mode = \"none\"` or `\"loopback\"`, and bring what the program needs in by `--read`",
        )
    })
}

pub(crate) fn bandwidth(policy: &Policy) -> Support {
    when(policy.net.bandwidth.is_some(), || {
        unmet(
            "net.bandwidth/no-broker",
            "only the egress broker can meter the network, and it is not part of this version",
            "remove `net.bandwidth`; with `net.mode = \"none\"` no byte leaves anyway",
        )
    })
}

pub(crate) fn secrets(policy: &Policy) -> Support {
    when(!policy.secrets.is_empty(), || {
        unmet(
            "secrets/no-broker",
            "secrets are put on the wire by the egress broker, which is not part of this version",
            "remove the `secrets` table",
        )
    })
}

/// What a command policy is not, said in every plan.
const COMMANDS_OVERSHOOT: &str = "what an allowed program does is not judged: that is the sandbox's";

/// Lines are judged by the broker; the list of executables is held by the kernel too, as `fs.exec`.
pub(crate) fn commands(policy: &Policy, host: &Capabilities) -> Support {
    let Some(commands) = &policy.commands else { return Support::NotAsked };
    let judged = |by: String| {
        let overshoot = Some(COMMANDS_OVERSHOOT.to_owned());
        Support::Enforced(Enforced { by, strength: Strength::Broker, overshoot })
    };
    if matches!(policy.fs.root, Root::Empty | Root::Image(_)) {
        return unmet(
            "commands/no-tree",
            "programs are looked up before the run, and this root has none that could be",
            "use `fs.root = \"host\"` or `\"dir:PATH\"`",
        );
    }
    if !commands.exec {
        return judged("broker:commands".to_owned());
    }
    if !matches!(policy.fs.root, Root::Host) {
        return unmet(
            "commands/no-kernel-list",
            "the kernel's list of executables is made for the host's own tree",
            "use `fs.root = \"host\"`, or say `commands.exec = false`: then the broker alone judges",
        );
    }
    if host.landlock == 0 {
        return unmet(
            "commands/no-kernel-list",
            "this kernel has no Landlock, which holds the list of executables",
            "boot a kernel with Landlock, or say `commands.exec = false`: then the broker alone judges",
        );
    }
    judged(format!("broker:commands+landlock:{}:execute", host.landlock))
}

pub(crate) fn tools(policy: &Policy) -> Support {
    when(policy.tools.is_some(), || {
        // A run has no channel to any tool: the gate stands outside, before whoever calls it.
        Support::Enforced(Enforced { by: "broker:tools".to_owned(), strength: Strength::Broker, overshoot: None })
    })
}

/// A label for the payload, on the container tier. Without a pid namespace the end of a run is a signal, which the label's
/// own policy may forbid: so not on the process tier.
pub(crate) fn label(policy: &Policy, host: &Capabilities) -> Support {
    when(policy.process.label.is_some(), || {
        let Some(label) = Label::of(policy) else {
            return unmet("process.label/no-lsm", "only SELinux and AppArmor give labels", "remove `process.label`");
        };
        let lsm = label.lsm.name();
        match host.labels(label.lsm) {
            Labels::Enforcing => kernel(format!("lsm:{lsm}")),
            Labels::Permissive => unmet(
                "process.label/permissive",
                format!("{lsm} of this host is permissive: it would write down what the label forbids, and allow it"),
                "switch it to enforcing (`setenforce 1`), or remove `process.label`",
            ),
            Labels::Absent => unmet(
                "process.label/no-lsm",
                format!("this host does not run {lsm}"),
                format!("remove `process.label`, or boot with that security module (`security={lsm}`)"),
            ),
        }
    })
}

pub(crate) fn idle(policy: &Policy) -> Support {
    when(policy.limits.idle.is_some(), || {
        unmet("limits.idle/no-live", "only live sandboxes idle, and this is a single run", "use `limits.wall`")
    })
}

pub(crate) fn root_image(root: &Root) -> Option<Support> {
    match root {
        Root::Image(name) => Some(unmet(
            "fs.root/no-images",
            format!("`image:{name}` cannot be unpacked by this version"),
            "unpack it and use `fs.root = \"dir:PATH\"`, or use `host`",
        )),
        Root::Host | Root::Empty | Root::Dir(_) => None,
    }
}

pub(crate) fn thresholds() -> Support {
    supervisor("supervisor:sampling", Some("what is used between two looks, 100 ms apart"))
}
