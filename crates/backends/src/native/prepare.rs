//! From the plan to everything that the start needs. Nothing is made on the host here.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use guest::config::{Config, Ids, Mode, OwnedLandlock, OwnedProbe as Probe, OwnedRule, Size};
use policy::value::{Grant, NetMode, Tier, WorkspaceMode};
use policy::{Plan, Policy};

use super::label::Label;
use super::landlock::Rules;
use super::{environment, identity, process, rlimits, tree};
use crate::StartError;
use crate::host::Capabilities;

/// A file without a Landlock rule, by which the guest proves that Landlock is in force.
const CANARY: &CStr = c"/.landlock-probe";
use std::ffi::CStr;

/// Where the payload's standard streams lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// Pipes of the supervisor.
    Pipes,
    /// Pipes, but nothing to read.
    NoInput,
    /// A terminal of its own, of this size (rows, columns).
    Terminal(u16, u16),
}

/// What a start needs beside the plan.
#[derive(Debug)]
pub struct Launch {
    /// Run id.
    pub run: String,
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Shown read-only beside the policy's grants: a script, our own probe.
    pub show: Vec<Grant>,
    /// Files of ours, shown read-only below `/run/fumehood`: name and content (container tier).
    pub files: Vec<(String, Vec<u8>)>,
    /// A git folder that lies elsewhere, in this order: what comes later lies on top.
    pub git: Vec<GitPart>,
    /// Paths below the workspace that only hold a name for as long as the run lasts: git must not offer them for a commit.
    pub placeholders: Vec<PathBuf>,
    /// Paths below a read-write workspace that are protected, the outermost first.
    pub protect: Vec<Protect>,
    /// Values of `env.pass` that the caller has.
    pub passed: BTreeMap<OsString, OsString>,
    /// Variables that judged commands must have; nothing of the policy undoes them.
    pub forced: Vec<(OsString, OsString)>,
    /// Standard streams.
    pub stdio: Stdio,
    /// `TERM` of the caller, for a terminal.
    pub term: Option<OsString>,
    /// A 0700 folder of ours, where the process tier writes; made by the caller and removed by it.
    pub tmp: Option<PathBuf>,
    /// A folder of ours for what later starts can use again; without it nothing is kept.
    pub cache: Option<PathBuf>,
}

/// A piece of a git folder that lies outside the workspace; it keeps its path inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GitPart {
    /// Shown read-only.
    ReadOnly(PathBuf),
    /// Shown as it is, writable.
    Writable(PathBuf),
    /// Writable inside; what is written ends with the run.
    Layered(PathBuf),
    /// An empty file that nobody can replace, where git's folder has none of this name.
    Held(PathBuf),
    /// A name by which git's own pointers lead to it, or back to the workspace.
    Link {
        /// Inside.
        at: PathBuf,
        /// What it leads to, inside.
        to: PathBuf,
    },
}

/// How a path below a read-write workspace is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protect {
    /// Cannot be renamed or removed.
    Pinned(PathBuf),
    /// Cannot be changed at all.
    ReadOnly(PathBuf),
}

/// Everything that a start needs.
#[derive(Debug)]
pub struct Prepared {
    pub(super) config: Config,
    pub(super) tier: Tier,
    pub(super) identity: identity::Identity,
    pub(super) limits: sys::cgroup::Limits,
    pub(super) run: String,
    pub(super) stdio: Stdio,
    pub(super) workspace: Option<PathBuf>,
    pub(super) rootless: bool,
    pub(super) expected: super::verify::Expected,
    /// What is to be id-mapped: given to the guest in this order, from `FIRST_EXTRA` on.
    pub(super) mapped: Vec<tree::Mapped>,
    /// Descriptors are passed out after the mounts.
    pub(super) exports: bool,
    /// Process tier: where a copy of the workspace is to be made.
    pub(super) copy_to: Option<PathBuf>,
    /// Keeps the copy of `/etc` from being removed.
    pub(super) etc: Option<std::fs::File>,
    /// The label of the payload's program.
    pub(super) label: Option<Label>,
}

impl Prepared {
    /// The workspace on the host, canonical.
    #[must_use]
    pub fn workspace(&self) -> Option<&Path> {
        self.workspace.as_deref()
    }

    /// Whether a folder is shown with other ids than it has, through a clone of its mount.
    #[must_use]
    pub fn maps(&self, path: &Path) -> bool {
        self.mapped.iter().any(|mapped| mapped.path == path)
    }

    /// Process tier, mode `copy`: where the copy must be made before the start.
    #[must_use]
    pub fn copy_to(&self) -> Option<&Path> {
        self.copy_to.as_deref()
    }

    /// uid and gid that the payload has outside.
    #[must_use]
    pub const fn owner(&self) -> (u32, u32) {
        (self.identity.uid, self.identity.gid)
    }

    /// Name of the run's control groups below `fumehood/`.
    #[must_use]
    pub fn run(&self) -> &str {
        &self.run
    }
}

impl Prepared {
    /// The control groups that the start will make, by path.
    #[must_use]
    pub fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        host.cgroups().map(|all| all.places(super::GROUPS, &self.run, &self.limits)).unwrap_or_default()
    }
}

/// Prepares a plan.
///
/// # Errors
/// A path of the plan cannot be used, or a profile is unknown.
pub fn prepare(plan: &Plan, host: &Capabilities, launch: &Launch) -> Result<Prepared, StartError> {
    let policy = &plan.policy;
    let container = plan.tier == Tier::Container;
    let identity = identity::choose(policy, host, &launch.run, container)?;
    let mut config = common(policy, host, launch, container)?;
    let mut mapped = Vec::new();
    let (mut copy_to, mut etc) = (None, None);
    let (rules, cwd, workspace) = if container {
        let tree = tree::build(policy, host, launch, identity)?;
        (config.sources, config.ops, etc) = (tree.sources, tree.ops, tree.etc);
        mapped = tree.mapped;
        (tree.rules, tree.cwd, tree.workspace)
    } else {
        let tmp = launch.tmp.as_deref().ok_or_else(|| StartError::Internal("no folder of our own".to_owned()))?;
        let places = process::places(policy, &launch.show, tmp, (identity, !host.root()))?;
        copy_to = places.copy;
        (places.rules, places.cwd, places.workspace)
    };
    config.cwd = tree::text(&cwd);
    let label = Label::of(policy);
    if let Some(label) = &label {
        (config.label_file, config.label) = (label.file(), label.command());
    }
    confine(&mut config, policy, host, &rules, container);
    config.env = variables(policy, launch, container);
    config.ids = inside(host, &identity, container);
    let exports = container && matches!(policy.workspace.mode, WorkspaceMode::Overlay | WorkspaceMode::Copy);
    Ok(Prepared {
        expected: super::verify::Expected::of(&config, &identity, host, container),
        limits: groups(policy, host),
        run: launch.run.clone(),
        stdio: launch.stdio,
        rootless: !host.root(),
        tier: plan.tier,
        identity,
        workspace,
        mapped,
        exports,
        copy_to,
        etc,
        label,
        config,
    })
}

/// First descriptor of the guest after the fixed ones.
pub(super) const FIRST_EXTRA: u32 = 5;

fn common(policy: &Policy, host: &Capabilities, launch: &Launch, container: bool) -> Result<Config, StartError> {
    let text = |value: &OsStr| CString::new(value.as_bytes()).unwrap_or_default();
    let nproc = container && host.controller("pids").is_none();
    Ok(Config {
        mode: if container { Mode::Container } else { Mode::Process },
        // The frame says that the config is there; as root, the id maps too.
        wait_mapped: true,
        loopback: container && policy.net.mode == NetMode::Loopback,
        inner_limits: container,
        new_keyring: true,
        ignored: ignored(),
        clear_groups: host.root(),
        umask: policy.process.umask,
        tty: match launch.stdio {
            Stdio::Terminal(rows, cols) => Some(Size { rows, cols }),
            Stdio::Pipes | Stdio::NoInput => None,
        },
        hostname: if container { policy.process.hostname.clone().into_bytes() } else { Vec::new() },
        rlimits: rlimits::of(policy, nproc),
        seccomp: super::filter::program(policy, host, container)?,
        argv: launch.argv.iter().map(|word| text(word)).collect(),
        search: environment::PATH.split(':').map(|dir| CString::new(dir).unwrap_or_default()).collect(),
        ..Config::default()
    })
}

/// Which signals this process ignores, and the guest after it; all of them where that cannot be known.
fn ignored() -> u64 {
    sys::proc::Process::own().and_then(|own| own.status()).map_or(u64::MAX, |status| status.ignored)
}

fn inside(host: &Capabilities, identity: &identity::Identity, container: bool) -> Option<Ids> {
    if container {
        return Some(Ids { uid: identity::INSIDE, gid: identity::INSIDE });
    }
    host.root().then_some(Ids { uid: identity.uid, gid: identity.gid })
}

fn variables(policy: &Policy, launch: &Launch, container: bool) -> Vec<CString> {
    let home = match (&launch.tmp, container) {
        // One folder is both: each is the run's own, bounded together, and gone with it.
        (Some(tmp), false) => tmp.clone().into_os_string().into_vec(),
        (Some(_) | None, _) => format!("/home/{}", policy.process.user).into_bytes(),
    };
    let tmp = match (&launch.tmp, container) {
        (Some(tmp), false) => tmp.clone().into_os_string().into_vec(),
        (Some(_) | None, _) => b"/tmp".to_vec(),
    };
    let (home, tmp) = (String::from_utf8_lossy(&home).into_owned(), String::from_utf8_lossy(&tmp).into_owned());
    environment::build(policy, (&launch.passed, &launch.forced), &home, &tmp, launch.term.as_deref())
}

/// Landlock layers and the probes that prove them.
fn confine(config: &mut Config, policy: &Policy, host: &Capabilities, rules: &Rules, container: bool) {
    let abi = host.landlock;
    let closed_network = policy.net.mode != NetMode::Loopback && abi >= 4;
    config.landlock = (abi > 0).then(|| OwnedLandlock {
        handled_fs: sys::landlock::fs_rights(abi),
        handled_net: if closed_network { sys::landlock::NET_RIGHTS } else { 0 },
        scoped: sys::landlock::scopes(abi),
        flags: 0,
        rules: rules.for_abi(abi),
        ports: Vec::new(),
    });
    // Each layer denies links and renames from one folder to another unless it says otherwise, handled or not
    // (Documentation/userspace-api/landlock.rst): this one judges signals alone and leaves files to the first.
    let refer = sys::landlock::fs::REFER;
    config.payload_layer = (sys::landlock::scopes(abi) != 0).then(|| OwnedLandlock {
        scoped: sys::landlock::scopes(abi),
        handled_fs: refer,
        rules: vec![OwnedRule { path: c"/".into(), access: refer, is: None }],
        ..OwnedLandlock::default()
    });
    if container && abi > 0 {
        config.ops.push(guest::config::OwnedOp::File { path: CANARY.into(), mode: 0o444, bytes: Vec::new() });
        config.probes.push(Probe::OpenMustFail(CANARY.into()));
    }
    if !container {
        // Not one that the policy grants: it would open.
        let granted = |path: &Path| {
            let grants = policy.fs.read.iter().chain(&policy.fs.write).map(|grant| &grant.from);
            grants.chain(&policy.workspace.path).any(|from| path.starts_with(from))
        };
        let shut = ["/etc/passwd", "/proc/version", "/etc/hostname"].iter().map(Path::new);
        if let Some(path) = shut.filter(|path| !granted(path)).find(|path| path.is_file()) {
            config.probes.push(Probe::OpenMustFail(tree::text(path)));
        }
        config.probes.push(Probe::SignalMustFail(sys::caller::pid()));
    }
    config.probes.push(Probe::OpenMustWork(c"/dev/null".into()));
    let vsock = Probe::SocketMustFail { family: 40, kind: 1, protocol: 0 };
    config.probes.push(vsock);
    if policy.net.mode != NetMode::Loopback {
        config.probes.push(Probe::SocketMustFail { family: 2, kind: 1, protocol: 0 });
        config.probes.push(Probe::SocketMustFail { family: 10, kind: 2, protocol: 0 });
    }
}

pub(super) fn groups(policy: &Policy, host: &Capabilities) -> sys::cgroup::Limits {
    let limits = &policy.limits;
    let can = |name: &str| host.controller(name).is_some();
    // The guest itself is one process in the group.
    let pids = limits.pids.filter(|_| can("pids")).map(|n| u64::from(n).saturating_add(1));
    sys::cgroup::Limits {
        memory: limits.memory.filter(|_| can("memory")).map(|m| m.0),
        pids,
        cpu: limits.cpus.filter(|_| can("cpu")).map(|share| sys::cgroup::CpuShare {
            quota_us: u64::from(share.0).saturating_mul(100).max(1000),
            period_us: 100_000,
        }),
        cpuset: limits
            .cpuset
            .as_ref()
            .filter(|_| can("cpuset"))
            .map(|cores| cores.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")),
        io: super::io::limits(policy, host),
    }
}
