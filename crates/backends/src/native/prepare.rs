//! From the plan to everything that the start needs. Nothing is made on the host here.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use guest::config::{
    Config, Ids, Inlet, Mode, OwnedLandlock, OwnedOp as Op, OwnedProbe as Probe, OwnedRule, Rlimit, Size,
};
use policy::Plan;
use policy::control::{Control, Filter, Namespace};
use policy::value::Tier;

use super::blueprint::Blueprint;
use super::interpreter::Interpreted;
use super::landlock::Rules;
use super::verify::Point;
use super::{environment, filter, links, owner, process, source, tree};
use crate::backend::{FIRST_EXTRA, Launch, OwnProgram, Stdio, Trust};
use crate::host::Capabilities;
use crate::label::Label;
use crate::trust::Certificates;
use crate::{StartError, backend, identity};

/// A file without a Landlock rule, by which the guest proves that Landlock is in force.
const CANARY: &CStr = c"/.landlock-probe";

/// Everything that a start needs.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) config: Config,
    pub(crate) tier: Tier,
    pub(crate) identity: identity::Identity,
    pub(crate) limits: sys::cgroup::Limits,
    pub(crate) run: String,
    pub(crate) stdio: Stdio,
    /// The payload itself, where it has no path.
    pub(crate) program: Option<OwnProgram>,
    pub(crate) workspace: Option<PathBuf>,
    pub(crate) rootless: bool,
    pub(crate) blueprint: Blueprint,
    /// What the plan shows of the host, as it was placed.
    pub(crate) placed: Vec<tree::Placed>,
    pub(crate) filter: Option<filter::Built>,
    pub(crate) plan: Plan,
    /// What is to be id-mapped: given to the guest in this order, from `FIRST_EXTRA` on.
    pub(crate) mapped: Vec<tree::Mapped>,
    /// Descriptors are passed out after the mounts.
    pub(crate) exports: bool,
    /// Process tier: the folder in which the run writes.
    pub(crate) folder: Option<PathBuf>,
    /// Process tier: where a copy of the workspace is to be made.
    pub(crate) copy_to: Option<PathBuf>,
    /// What the run trusts.
    pub(crate) certificates: Option<Certificates>,
    /// Keeps the copy of `/etc` from being removed.
    pub(crate) etc: Option<std::fs::File>,
    /// The label of the payload's program.
    pub(crate) label: Option<Label>,
    /// The payload is an interpreter, and this is what it is given.
    pub(crate) interpreted: Option<Interpreted>,
    /// What must be mounted, where a runtime builds the tree.
    pub(crate) by_runtime: Option<BTreeMap<String, Point>>,
    /// An engine starts the guest.
    pub(crate) by_engine: bool,
}

impl Prepared {
    /// What the guest is told.
    pub(crate) fn told(&self) -> Vec<u8> {
        #[cfg(feature = "mutation")]
        if let Some(change) = self.blueprint.told {
            let mut config = self.config.clone();
            change(&mut config);
            return config.encode();
        }
        self.config.encode()
    }
}

impl backend::Prepared for Prepared {
    fn workspace(&self) -> Option<&Path> {
        self.workspace.as_deref()
    }

    fn maps(&self, path: &Path) -> bool {
        self.mapped.iter().any(|mapped| mapped.path == path)
    }

    fn copy_to(&self) -> Option<&Path> {
        self.copy_to.as_deref()
    }

    fn owner(&self) -> (u32, u32) {
        (self.identity.uid, self.identity.gid)
    }

    fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        host.cgroups().map(|all| all.places(super::GROUPS, &self.run, &self.limits)).unwrap_or_default()
    }

    fn start(self: Box<Self>, host: &Capabilities) -> Result<Box<dyn backend::Started>, StartError> {
        Ok(Box::new(super::start::start(*self, host)?))
    }
}

/// Prepares a plan.
///
/// # Errors
/// A path of the plan cannot be used, or a profile is unknown.
pub(crate) fn prepare(plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Prepared, StartError> {
    let mut blueprint = Blueprint::of(plan, launch);
    if let Some(OwnProgram::File(own)) = &launch.program {
        if plan.tier == Tier::Language {
            // There is one program, and it starts no other.
            blueprint.exec = Some(vec![own.clone()]);
        }
        blueprint.own_program = blueprint.exec.as_deref() == Some(std::slice::from_ref(own));
    }
    let identity = owner::choose(&blueprint, host, &launch.run)?;
    let filter = filter::build(&blueprint)?;
    let mut config = common(&blueprint, host, launch);
    let interpreted = (plan.tier == Tier::Language).then(|| Interpreted::of(&blueprint, launch));
    if let Some(interpreted) = &interpreted {
        config.argv.splice(0..0, interpreted.argv_prefix());
    }
    let mut mapped = Vec::new();
    let (mut copy_to, mut etc, mut placed) = (None, None, Vec::new());
    let (rules, cwd, workspace) = if blueprint.container {
        let queues = filter.as_ref().is_none_or(filter::Built::opens_queues);
        let tree = tree::build(&blueprint, host, launch, identity, queues)?;
        (config.sources, config.ops, etc) = (tree.sources, tree.ops, tree.etc);
        (mapped, placed) = (tree.mapped, tree.placed);
        (tree.rules, tree.cwd, tree.workspace)
    } else {
        let tmp = launch.tmp.as_deref().ok_or_else(|| StartError::Internal("no folder of our own".to_owned()))?;
        let places = process::places(&blueprint, &launch.show, tmp, (identity, !host.root()))?;
        copy_to = places.copy;
        placed.extend(places.placed.into_iter().map(as_it_is));
        (places.rules, places.cwd, places.workspace)
    };
    config.cwd = source::text(&cwd);
    let label = blueprint.label.as_deref().and_then(Label::parse);
    if let Some(label) = &label {
        (config.label_file, config.label) = (label.file(), label.command());
    }
    config.program = launch.program.as_ref().map(|_| number_after(mapped.len()));
    layers(&mut config, &blueprint, &rules);
    probes(&mut config, plan, filter.as_ref(), &blueprint, &placed);
    if let Some(folder) = launch.tmp.as_deref().filter(|_| blueprint.links) {
        config.asking = links::program(&blueprint.allow);
        config.proof = source::text(&folder.join(links::PROOF));
    }
    config.seccomp = filter.as_ref().map(|built| built.program.clone()).unwrap_or_default();
    (config.env, config.search) = environment(&blueprint, launch);
    config.ids = inside(host, &identity, &blueprint);
    let exports = config.ops.iter().any(is_exported);
    Ok(Prepared {
        limits: blueprint.cgroup.clone(),
        run: launch.run.clone(),
        program: launch.program.clone(),
        stdio: interpreted.as_ref().map_or(launch.stdio, |one| one.stdio(launch.stdio)),
        interpreted,
        by_runtime: None,
        by_engine: false,
        rootless: !host.root(),
        tier: plan.tier,
        plan: plan.clone(),
        identity,
        workspace,
        mapped,
        exports,
        folder: launch.tmp.clone(),
        copy_to,
        certificates: launch.trust.as_ref().map(Trust::certificates),
        etc,
        label,
        config,
        blueprint,
        placed,
        filter,
    })
}

/// A folder of the host's that is seen at its own place.
fn as_it_is((at, write): (PathBuf, bool)) -> tree::Placed {
    tree::Placed { point: at.clone(), at, dir: true, write, source: None, is: None }
}

/// Whether what is made there is looked into from outside.
const fn is_exported(op: &Op) -> bool {
    matches!(op, Op::Overlay { export: Some(_), .. } | Op::Tmpfs { export: Some(_), .. } | Op::Fill { .. })
}

/// The descriptor behind those of `mapped` folders.
pub(crate) fn number_after(mapped: usize) -> u32 {
    FIRST_EXTRA.saturating_add(u32::try_from(mapped).unwrap_or(u32::MAX))
}

pub(crate) fn common(blueprint: &Blueprint, host: &Capabilities, launch: &Launch) -> Config {
    let text = |value: &OsStr| CString::new(value.as_bytes()).unwrap_or_default();
    let own_network = blueprint.namespaces.contains(&Namespace::Net);
    Config {
        mode: if blueprint.container { Mode::Container } else { Mode::Process },
        // The frame says that the config is there; as root, the id maps too.
        wait_mapped: true,
        wait_filled: (blueprint.hides || launch.laid) && blueprint.container,
        loopback: blueprint.container && blueprint.loopback(),
        // Never in the host's own.
        local_ipv4: own_network && blueprint.local[0],
        local_ipv6: own_network && blueprint.local[1],
        link: own_network && blueprint.machine.network.is_some(),
        inlets: blueprint.inlets.iter().filter(|_| own_network).map(inlet).collect(),
        inner_limits: blueprint.inner_limits,
        new_keyring: blueprint.keyring,
        new_session: blueprint.session,
        close_descriptors: blueprint.close_descriptors,
        drop_capabilities: blueprint.drop_capabilities,
        no_new_privs: blueprint.no_new_privs,
        undumpable: blueprint.undumpable,
        prove_payload_scope: blueprint.payload_scope,
        ignored: ignored(),
        clear_groups: blueprint.clear_groups && host.root(),
        umask: blueprint.umask.unwrap_or_default(),
        tty: match launch.stdio {
            Stdio::Terminal(rows, cols) if blueprint.terminal => Some(Size { rows, cols }),
            Stdio::Terminal(..) | Stdio::Pipes | Stdio::NoInput | Stdio::Socket | Stdio::Sockets | Stdio::Spoken => {
                None
            }
        },
        hostname: blueprint.hostname.clone().filter(|_| blueprint.container).unwrap_or_default().into_bytes(),
        rlimits: rlimits(blueprint, &launch.run),
        argv: launch.argv.iter().map(|word| text(word)).collect(),
        ..Config::default()
    }
}

const fn inlet(inlet: &policy::control::Inlet) -> Inlet {
    Inlet { ipv6: inlet.ipv6, udp: inlet.udp, port: inlet.port }
}

/// What is allowed here is never more than the caller may have: a lower limit of theirs holds the clause as well.
fn rlimits(blueprint: &Blueprint, run: &str) -> Vec<Rlimit> {
    let capped = |number: u32, value: u64| {
        let most = sys::rlimit::get(number).and_then(|(_, hard)| hard);
        most.map_or(value, |most| value.min(most))
    };
    let one = |(resource, value): &(policy::control::Resource, u64)| {
        let number = resource.number();
        Rlimit { resource: number, value: capped(number, *value) }
    };
    let mark = blueprint.mark.then(|| Rlimit { resource: super::mark::RESOURCE, value: super::mark::of(run) });
    blueprint.rlimits.iter().map(one).chain(mark).collect()
}

/// Which signals this process ignores, and the guest after it; all of them where that cannot be known.
fn ignored() -> u64 {
    sys::proc::Process::own().and_then(|own| own.status()).map_or(u64::MAX, |status| status.ignored)
}

fn inside(host: &Capabilities, identity: &identity::Identity, blueprint: &Blueprint) -> Option<Ids> {
    if blueprint.container {
        return blueprint.user.as_ref().map(|(_, id)| Ids { uid: *id, gid: *id });
    }
    host.root().then_some(Ids { uid: identity.uid, gid: identity.gid })
}

/// The payload's variables, and where its program is looked for.
pub(crate) fn environment(blueprint: &Blueprint, launch: &Launch) -> (Vec<CString>, Vec<CString>) {
    // One folder is both home and temporary: each is the run's own, bounded together, and gone with it.
    let folder = launch.tmp.as_ref().filter(|_| !blueprint.container).map(|tmp| tmp.to_string_lossy().into_owned());
    let home = folder.clone().unwrap_or_else(|| format!("/home/{}", blueprint.user_name()));
    let variables = environment::build(blueprint, launch, &home, folder.as_deref().unwrap_or("/tmp"));
    // Commands were judged by the list of the system.
    let search = environment::search(if blueprint.judged { &[] } else { &variables });
    (variables, search)
}

/// The sandbox's Landlock layer, and the payload's own.
fn layers(config: &mut Config, blueprint: &Blueprint, rules: &Rules) {
    let abi = blueprint.landlock.unwrap_or_default();
    let scoped = blueprint.container || blueprint.signal_scope;
    config.landlock = (abi > 0).then(|| OwnedLandlock {
        handled_fs: sys::landlock::fs_rights(abi),
        handled_net: if blueprint.no_inet && abi >= 4 { sys::landlock::NET_RIGHTS } else { 0 },
        scoped: if scoped { sys::landlock::scopes(abi) } else { 0 },
        flags: 0,
        rules: rules.for_abi(abi),
        ports: Vec::new(),
    });
    // Each layer denies links and renames from one folder to another unless it says otherwise, handled or not
    // (Documentation/userspace-api/landlock.rst): this one judges signals alone and leaves files to the first.
    let refer = sys::landlock::fs::REFER;
    config.payload_layer = blueprint.payload_scope.then(|| OwnedLandlock {
        scoped: sys::landlock::scopes(abi),
        handled_fs: refer,
        rules: vec![OwnedRule { path: c"/".into(), access: refer, is: None }],
        ..OwnedLandlock::default()
    });
}

/// What the kernel must refuse, and what it must not, when every control is in force. Asked for by the plan and not by what
/// was built of it.
fn probes(
    config: &mut Config,
    plan: &Plan,
    filter: Option<&filter::Built>,
    blueprint: &Blueprint,
    placed: &[tree::Placed],
) {
    if blueprint.container {
        config.ops.push(guest::config::OwnedOp::File { path: CANARY.into(), mode: 0o444, bytes: Vec::new() });
        config.probes.push(Probe::OpenMustFail(CANARY.into()));
    } else {
        // Where all is granted that could be opened, the layer must refuse a call of a device, which the guest always tries.
        config.probes.extend(ungranted(blueprint).map(|path| Probe::OpenMustFail(source::text(path))));
        config.probes.push(Probe::SignalMustFail(sys::caller::pid()));
    }
    config.probes.push(Probe::OpenMustWork(c"/dev/null".into()));
    for control in plan.controls() {
        if let Control::Device { at, .. } = control {
            config.probes.push(Probe::OpenMustWork(source::text(at)));
        } else if let Control::ReadFolders { abi: _, folders } = control {
            let closed = tree::Placed::closed(placed, folders);
            config.probes.extend(closed.map(|placed| Probe::OpenMustFail(source::text(&placed.point))));
        }
    }
    config.probes.push(Probe::SocketMustFail { family: 40, kind: 1, protocol: 0 });
    if plan.controls().any(|control| *control == Control::Filter(Filter::NoInet)) {
        config.probes.push(Probe::SocketMustFail { family: 2, kind: 1, protocol: 0 });
        config.probes.push(Probe::SocketMustFail { family: 10, kind: 2, protocol: 0 });
    }
    config.probes.extend(filter.iter().flat_map(|built| built.probes.iter().cloned()));
}

/// A file of the host that anybody may read and that is not shown.
fn ungranted(blueprint: &Blueprint) -> Option<&'static Path> {
    const CANDIDATES: [&str; 6] = [
        "/etc/passwd",
        "/proc/version",
        "/proc/uptime",
        "/proc/cpuinfo",
        "/etc/hostname",
        "/sys/devices/system/cpu/online",
    ];
    let shown = blueprint.reads.iter().chain(&blueprint.writes).chain(&blueprint.workspace);
    let granted: Vec<PathBuf> =
        shown.map(|shown| shown.from.canonicalize().unwrap_or_else(|_gone| shown.from.clone())).collect();
    let anybody = |path: &Path| path.metadata().is_ok_and(|meta| meta.is_file() && meta.mode() & 0o004 != 0);
    CANDIDATES.iter().map(Path::new).find(|path| !granted.iter().any(|from| path.starts_with(from)) && anybody(path))
}
