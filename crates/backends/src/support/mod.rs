//! Which mechanism holds which clause: the one list from which planner, `doctor`, docs and conformance are made.
//!
//! `support` answers for one clause, exhaustively: a new clause breaks this match until each backend has answered.

mod commands;
mod container;
mod crun;
mod devices;
mod engine;
mod executables;
mod gvisor;
mod language;
mod machine;
mod network;
pub use network::unmet_rules;
mod places;
mod process;
mod shown;

pub(crate) use commands::is_of_the_system;
pub(crate) use container::{probe as container_probe, support as container};
pub(crate) use crun::{probe as crun_probe, support as crun};
pub(crate) use engine::{DOCKER, EngineRow, PODMAN, probe as engine_probe, support as engine};
pub(crate) use executables::lies_in;
pub use executables::unshown as unshown_program;
pub(crate) use gvisor::{probe as gvisor_probe, support as gvisor};
pub use language::MODULES as LANGUAGE_MODULES;
pub(crate) use language::support as language;
pub(crate) use machine::{probe as machine_probe, support as machine};
pub(crate) use process::{probe as process_probe, support as process};

use policy::control::{CgroupLimit, Control, Controls, Filter, Namespace, Resource, Variables, Watch};
use policy::units::{ranges, spans};
use policy::value::{NetMode, Policy, Root, Threat};
use policy::{ClauseId, Support, Unmet};

use sys::machine::Labels;

use crate::host::Capabilities;
use crate::identity::INSIDE;
use crate::label::Label;

/// Held by one control.
pub(crate) fn held(by: Control) -> Support {
    Support::Held(by.into())
}

/// Held by the first, with others behind it.
pub(crate) fn held_with(first: Control, others: impl IntoIterator<Item = Control>) -> Support {
    Support::Held(Controls::new(first, others))
}

pub(crate) const fn watched(watch: Watch) -> Control {
    Control::Watch(watch)
}

pub(crate) fn unmet(id: &'static str, why: impl Into<String>, fix: impl Into<String>) -> Support {
    Support::Unmet(Unmet { id, why: why.into(), fix: fix.into(), weaker: None })
}

pub(crate) fn unmet_but(id: &'static str, why: impl Into<String>, fix: impl Into<String>, weaker: Control) -> Support {
    Support::Unmet(Unmet { id, why: why.into(), fix: fix.into(), weaker: Some(weaker.into()) })
}

pub(crate) fn when(asked: bool, answer: impl FnOnce() -> Support) -> Support {
    if asked { answer() } else { Support::NotAsked }
}

/// As [`when`], with what is asked for.
pub(crate) fn when_some<T>(asked: Option<T>, answer: impl FnOnce(T) -> Support) -> Support {
    asked.map_or(Support::NotAsked, answer)
}

/// A limit that only a control group holds, on every tier.
pub(crate) fn by_group(
    host: &Capabilities,
    id: &'static str,
    limits: impl IntoIterator<Item = CgroupLimit>,
) -> Support {
    let mut limits = limits.into_iter();
    let Some(first) = limits.next() else { return Support::NotAsked };
    match host.controller(first.controller()) {
        Some(version) => {
            let of = |limit| Control::Cgroup { version, limit };
            held_with(of(first), limits.map(of))
        }
        None => no_controller(host, first.controller(), id),
    }
}

fn no_controller(host: &Capabilities, name: &str, id: &'static str) -> Support {
    unmet(
        id,
        format!("no `{name}` cgroup controller can be used: {}", host.cgroup_why(name)),
        "run under a delegated cgroup (systemd-run --user --scope -p Delegate=yes), or remove the limit",
    )
}

/// The share of processor time.
pub(crate) fn cpus(policy: &Policy, host: &Capabilities) -> Support {
    const PERIOD_US: u64 = 100_000;
    /// The kernel takes no longer one, and no quota below a millisecond: what is less than a hundredth of a core has it.
    const MAX_PERIOD_US: u64 = 1_000_000;
    const LEAST_QUOTA_US: u64 = 1000;
    let limit = policy.limits.cpus.map(|share| {
        let quota = |period: u64| u64::from(share.0).saturating_mul(period / 1000);
        let period_us = if quota(PERIOD_US) < LEAST_QUOTA_US { MAX_PERIOD_US } else { PERIOD_US };
        CgroupLimit::Cpu { quota_us: quota(period_us), period_us }
    });
    by_group(host, "limits.cpus/no-controller", limit)
}

/// The rate of every block device of the host; one that is not limited would be a way around.
pub(crate) fn io(policy: &Policy, host: &Capabilities, id: ClauseId) -> Support {
    let read = id == ClauseId::LimitsIoRead;
    let (rate, no_controller, no_device) = if read {
        (policy.limits.io_read, "limits.io_read/no-controller", "limits.io_read/no-device")
    } else {
        (policy.limits.io_write, "limits.io_write/no-controller", "limits.io_write/no-device")
    };
    let limit = |device, rate| {
        if read { CgroupLimit::IoRead { device, rate } } else { CgroupLimit::IoWrite { device, rate } }
    };
    when_some(rate, |rate| {
        let disks = match host.disks() {
            Ok(disks) if !disks.is_empty() => disks,
            Ok(_) => return unmet(no_device, "the kernel lists no block device in /sys/block", "remove the limit"),
            Err(why) => {
                return unmet(
                    no_device,
                    format!("the block devices of this host cannot be listed: /sys/block: {why}"),
                    "mount /sys, or remove the limit",
                );
            }
        };
        by_group(host, no_controller, disks.into_iter().map(|device| limit(device, rate.0)))
    })
}

/// Processor time is watched; each process has its own limit behind that.
pub(crate) fn cpu_time(policy: &Policy, host: &Capabilities) -> Support {
    when_some(policy.limits.cpu_time, |limit| {
        let counted = host.counts_time();
        // Per process and in whole seconds: the sampling of the tree comes first, this is behind it.
        let seconds = limit.0.div_ceil(1000).saturating_add(1);
        held_with(
            watched(Watch::CpuTime { limit, counted }),
            [Control::Rlimit { resource: Resource::Cpu, value: seconds }],
        )
    })
}

/// Byte-range locks that a run may have at once: databases have some hundred.
const MAX_LOCKS: u64 = 16_384;

/// Of a limit of memory, the most that may wait in sockets uncharged.
pub(crate) const fn waiting(limit: policy::Bytes) -> Watch {
    Watch::Waiting(policy::Bytes(limit.0 / 4))
}

/// Memory of the whole tree. `own_network`: its sockets of TCP and netlink, if it may have any, are in a namespace of its own.
pub(crate) fn memory(policy: &Policy, host: &Capabilities, own_network: bool) -> Support {
    let locks = watched(Watch::Locks(MAX_LOCKS));
    when_some(policy.limits.memory, |limit| match host.controller("memory") {
        Some(version) => {
            // What no group is charged for is there with sockets of TCP and netlink alone.
            let sockets = own_network && policy.net.mode != NetMode::None;
            let waiting = sockets.then(|| watched(waiting(limit)));
            let group = Control::Cgroup { version, limit: CgroupLimit::Memory(limit.0) };
            held_with(group, [locks].into_iter().chain(waiting))
        }
        None => {
            let closing = [Filter::Visible, Filter::CountedMemory];
            looked_at(policy, host.may_stop(own_network), Watch::Memory(limit), closing, [locks])
        }
    })
}

/// Held by looking at the processes of the tree. Against a hostile program `closing` closes what hides from that, and calls that
/// wait have to let go of their files: `may_stop`, or nothing of that closes it.
pub(crate) fn looked_at(
    policy: &Policy,
    may_stop: bool,
    watch: Watch,
    closing: impl IntoIterator<Item = Filter>,
    others: impl IntoIterator<Item = Control>,
) -> Support {
    let hostile = policy.threat != Threat::Mistakes;
    if hostile && !may_stop {
        return Support::Unmet(Unmet {
            id: "threat/no-stopping",
            why: format!(
                "`threat = \"{}\"`, and a hostile program can hide files in calls that wait: no thread of it may be stopped here (kernel.yama.ptrace_scope)",
                policy.threat
            ),
            fix: "sysctl -w kernel.yama.ptrace_scope=1, run where cgroups are writable (`fumehood doctor` says how) in the container tier, accept it by `prefer`, or set threat = \"mistakes\"".to_owned(),
            weaker: Some(Controls::new(watched(watch), others)),
        });
    }
    let closing = closing.into_iter().filter(|_| hostile).map(Control::Filter);
    held_with(watched(watch), closing.chain(others))
}

/// Processes of the whole tree; the guest itself is one more.
pub(crate) fn pids(policy: &Policy, host: &Capabilities, otherwise: impl FnOnce(u32) -> Support) -> Support {
    when_some(policy.limits.pids, |count| match host.controller("pids") {
        Some(version) => held(Control::Cgroup { version, limit: tasks(u64::from(count).saturating_add(1)) }),
        None => otherwise(count),
    })
}

/// The kernel takes no number of tasks above its own most, that of all it can have.
pub(crate) fn tasks(count: u64) -> CgroupLimit {
    /// `PID_MAX_LIMIT` of a 64-bit kernel.
    const MAX_TASKS: u64 = 4_194_304;
    CgroupLimit::Pids(count.min(MAX_TASKS))
}

/// One file cannot hold more than all may hold together.
pub(crate) fn file_size(policy: &Policy) -> Option<Control> {
    let least = policy.limits.file_size.into_iter().chain(policy.limits.disk).min()?;
    Some(Control::Rlimit { resource: Resource::FileSize, value: least.0 })
}

/// What every process of a sandbox is bounded by, whatever the policy says.
pub(crate) fn base_rlimits() -> impl Iterator<Item = Control> {
    [
        // 0 would still start a crash handler behind a pipe; 1 is the value that the kernel gives up at (core(5)).
        (Resource::Core, 1),
        // Not one page that the kernel cannot reclaim: any other value lets mlockall(2) through for what comes later.
        (Resource::LockedMemory, 0),
        (Resource::PendingSignals, 1024),
        // One queue as the kernel makes them unasked: they count for the user, whose other programs need theirs.
        (Resource::MessageQueues, 98_304),
        (Resource::Nice, 0),
        (Resource::RealTimePriority, 0),
    ]
    .into_iter()
    .map(|(resource, value)| Control::Rlimit { resource, value })
}

/// What the guest is before any payload, on every tier.
pub(crate) fn confinement(host: &Capabilities) -> Vec<Control> {
    let mut all = vec![
        Control::NoNewPrivs,
        Control::NoCapabilities,
        Control::NoDescriptors,
        Control::Undumpable,
        Control::Session,
        Control::Keyring,
    ];
    all.push(match host.kept_groups() {
        [] => Control::NoGroups,
        kept => Control::KeptGroups(kept.to_vec()),
    });
    if sys::landlock::scopes(host.landlock) != 0 {
        all.push(Control::PayloadScope);
    }
    all.extend(base_rlimits());
    all
}

/// The cores of a run, by its control group: of those that this host has, and that whoever called us may use. A control
/// group of v2 would take others and not hold them.
pub(crate) fn cpuset(policy: &Policy, host: &Capabilities) -> Support {
    let Some(cores) = &policy.limits.cpuset else { return Support::NotAsked };
    let by_group = || by_group(host, "limits.cpuset/no-controller", [CgroupLimit::Cpuset(cores.clone())]);
    let Some(here) = host.processors() else { return by_group() };
    if let Some(core) = cores.iter().find(|core| !lists(&here, **core)) {
        return unmet(
            "limits.cpuset/no-such-core",
            format!("this host has no core {core}: those that are switched on are {here}"),
            "name cores of those, or say how many by `limits.cpus`",
        );
    }
    let given = host.allowed_cpus();
    if let Some((core, given)) = given.and_then(|given| Some((cores.iter().find(|core| !given.contains(core))?, given)))
    {
        return unmet(
            "limits.cpuset/not-given",
            format!("core {core} is not for this run: whoever called fumehood may use {}", spans(&given)),
            "name cores of those, or give the caller more (its control group's `cpuset.cpus`, or `taskset`)",
        );
    }
    by_group()
}

/// Whether a list as the kernel writes it (`0-3,8`) names a number.
fn lists(list: &str, number: u32) -> bool {
    ranges(list).flatten().any(|(from, to)| (from..=to).contains(&number))
}

/// What the clauses of the environment put into it: each its own part.
pub(crate) fn environment(policy: &Policy, id: ClauseId) -> Support {
    let (env, inputs) = (&policy.env, &policy.inputs);
    let given = |asked: bool, variables: Variables| when(asked, || held(Control::Environment(variables)));
    if id == ClauseId::EnvPass {
        return given(!env.pass.is_empty(), Variables::Passed(env.pass.clone()));
    }
    if id == ClauseId::EnvSet {
        return given(!env.set.is_empty(), Variables::Set(env.set.clone()));
    }
    let values = inputs.iter().filter_map(|(name, input)| Some((name.clone(), input.value.clone()?)));
    given(!inputs.is_empty(), Variables::Inputs(values.collect()))
}

pub(crate) fn tools(policy: &Policy) -> Support {
    // A run has no channel to any tool: the gate stands outside, before whoever calls it.
    when(policy.tools.is_some(), || held(Control::ToolGate))
}

/// A label for the payload, on the container tier. Without a pid namespace the end of a run is a signal, which the label's
/// own policy may forbid: so not on the process tier.
pub(crate) fn label(policy: &Policy, host: &Capabilities) -> Support {
    when_some(policy.process.label.as_ref(), |text| {
        let Some(label) = Label::parse(text) else {
            return unmet("process.label/no-lsm", "only SELinux and AppArmor give labels", "remove `process.label`");
        };
        let lsm = label.lsm.name();
        match host.labels(label.lsm) {
            Labels::Enforcing => held(Control::Label(text.clone())),
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
        unmet(
            "limits.idle/no-live",
            "a policy holds for single runs too, which do not idle",
            "say it for a live sandbox (`create --idle TIME`), or use `limits.wall`",
        )
    })
}

/// The root tree of the container tier. An image is read when something starts: before that nobody knows whether it is whole.
pub(crate) fn root(root: &Root) -> Support {
    let tree = [Control::Root(root.clone())];
    let image = match root {
        Root::Image(image) => match &image.found {
            Ok(found) if !found.is_kept() => None,
            Ok(found) => Some(Control::ImageTree(found.digest.clone())),
            Err(lacking) => return unmet(lacking.id, lacking.why.clone(), lacking.fix.clone()),
        },
        Root::Host | Root::Empty | Root::Dir(_) => None,
    };
    held_with(Control::Namespace(Namespace::Mount), tree.into_iter().chain(image))
}

/// The number of the user inside: an image may know it by another one.
pub(crate) fn user(policy: &Policy) -> Control {
    let known = match &policy.fs.root {
        Root::Image(image) => image.found.as_ref().ok().and_then(|found| found.user),
        Root::Host | Root::Empty | Root::Dir(_) => None,
    };
    Control::User { name: policy.process.user.clone(), id: known.unwrap_or(INSIDE) }
}

/// A clause of the language tier, asked of another one.
pub(crate) fn of_language(policy: &Policy, id: ClauseId) -> Support {
    when(policy.demand(id).is_some(), || {
        unmet(
            "language/needs-language",
            "only an interpreter of the language tier holds it: here the program is whatever the policy lets run",
            "use `--tier language`, or drop the clause",
        )
    })
}

/// The policy of a document that says this alone.
#[cfg(test)]
pub(crate) fn policy_of(text: &str) -> Policy {
    let root = std::path::Path::new("/");
    let caller = policy::Caller { dir: root.to_path_buf(), home: None, profiles: Vec::new() };
    let mut layers = policy::Layers::new(caller);
    let none = |_: &std::path::Path| Err("no such file".to_owned());
    layers.document("own", &format!("version = 1\n{text}\n"), policy::Format::Toml, root, &none);
    layers.finish().unwrap_or_else(|mistakes| panic!("{mistakes}")).policy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Assumed;

    #[test]
    fn a_share_is_held_as_it_was_asked_for_however_small() {
        let host = Capabilities::assumed(Assumed::Groups);
        for (share, quota_us, period_us) in
            [("0.001", 1000, 1_000_000), ("0.009", 9000, 1_000_000), ("0.01", 1000, 100_000), ("1.5", 150_000, 100_000)]
        {
            let held = Control::Cgroup { version: 2, limit: CgroupLimit::Cpu { quota_us, period_us } };
            assert_eq!(
                cpus(&policy_of(&format!("limits.cpus = {share}")), &host),
                Support::Held(held.into()),
                "{share}"
            );
        }
    }

    #[test]
    fn no_group_is_told_a_number_of_tasks_that_the_kernel_refuses() {
        let host = Capabilities::assumed(Assumed::Groups);
        for (asked, written) in [(64, 65), (4_194_303, 4_194_304), (4_194_304, 4_194_304)] {
            let policy = policy_of(&format!("limits.pids = {asked}"));
            let found = pids(&policy, &host, |_| Support::NotAsked);
            let held = Control::Cgroup { version: 2, limit: CgroupLimit::Pids(written) };
            assert_eq!(found, Support::Held(held.into()), "{asked}");
        }
    }

    #[test]
    fn what_hides_in_calls_that_wait_is_a_refusal_where_no_thread_may_be_stopped() {
        let watch = || Watch::Disk(policy::Bytes(1 << 20));
        let answer = |text, may_stop| looked_at(&policy_of(text), may_stop, watch(), [Filter::Visible], []);
        assert!(
            matches!(answer("threat = \"hostile\"", true), Support::Held(held) if held.against() == Threat::Hostile)
        );
        let Support::Unmet(unmet) = answer("threat = \"hostile\"", false) else { panic!("it is held") };
        let weaker = unmet.weaker.map(|weaker| weaker.against());
        assert_eq!((unmet.id, weaker), ("threat/no-stopping", Some(Threat::Mistakes)));
        let held = |may_stop| answer("threat = \"mistakes\"", may_stop);
        assert!(matches!(held(false), Support::Held(_)) && held(false) == held(true));
    }
}
