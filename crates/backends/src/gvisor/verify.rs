//! The plan against what is in force, on both sides: what the guest reads of gVisor's kernel, and what the host shows of
//! gVisor's processes.

use std::path::{Path, PathBuf};

use guest::frames::Posture;
use policy::control::{Control, Namespace};
use policy::value::Root;
use sys::proc::{Mount, Process, Status};

use super::network::PreparedNetwork;
use super::start::{Started, WITH_NETWORK, WITHOUT_NETWORK};
use crate::backend::FoundPaths;
use crate::native::blueprint::Blueprint;
use crate::native::tree::Placed;
use crate::native::verify::{Evident, PAGE, Proof as Native, must};

/// What gVisor mounts by itself, each a file system of its own kernel.
const OWN: [(&str, &str); 5] =
    [("/proc", "proc"), ("/sys", "sysfs"), ("/dev", "tmpfs"), ("/dev/pts", "devpts"), ("/dev/shm", "tmpfs")];
/// How it calls files that its other process serves.
const SERVED: [&str; 2] = ["9p", "gofer"];
/// The namespaces in which its kernel is.
const NAMESPACES: [(Namespace, sys::proc::Namespace); 5] = [
    (Namespace::User, sys::proc::Namespace::User),
    (Namespace::Mount, sys::proc::Namespace::Mount),
    (Namespace::Net, sys::proc::Namespace::Net),
    (Namespace::Ipc, sys::proc::Namespace::Ipc),
    (Namespace::Uts, sys::proc::Namespace::Uts),
];

/// What was seen of gVisor from outside, and of its mounts from inside.
pub(super) struct Observation {
    /// The process that serves files.
    pub(super) gofer: Process,
    gofer_status: Status,
    gofer_pid: i32,
    sentry_pid: i32,
    sentry_status: Status,
    /// The words that its kernel was started with.
    sentry_words: Vec<String>,
    /// Its namespaces that are not ours.
    namespaces: Vec<Namespace>,
    /// Its network namespace.
    network: u64,
    mounts: Vec<Mount>,
}

impl Observation {
    /// Looks.
    ///
    /// # Errors
    /// A process is not there, or cannot be read; in words.
    pub(super) fn look(started: &Started) -> Result<Self, String> {
        let told = |error: sys::error::Error| error.to_string();
        let runtime = Process::open(started.inner.child.child.pid).map_err(told)?;
        let (mut sentry, mut gofer) = (None, None);
        for pid in runtime.children().map_err(told)? {
            let Ok(process) = Process::open(pid) else { continue };
            let words = argv_of(&process);
            let is = |name: &str| words.first().is_some_and(|word| word == name);
            if is("runsc-sandbox") {
                sentry = Some((pid, process, words));
            } else if is("runsc-gofer") {
                gofer = Some((pid, process));
            }
        }
        let (sentry_pid, sentry, sentry_words) = sentry.ok_or("there is no process of its kernel")?;
        let (gofer_pid, gofer) = gofer.ok_or("there is no process that serves files")?;
        let own = Process::own().map_err(told)?;
        let mut namespaces = Vec::new();
        for (kind, of_kernel) in NAMESPACES {
            if sentry.namespace(of_kernel).map_err(told)? != own.namespace(of_kernel).map_err(told)? {
                namespaces.push(kind);
            }
        }
        Ok(Self {
            gofer_status: gofer.status().map_err(told)?,
            gofer_pid,
            gofer,
            sentry_pid,
            sentry_status: sentry.status().map_err(told)?,
            sentry_words,
            namespaces,
            network: sentry.namespace(sys::proc::Namespace::Net).map_err(told)?,
            mounts: started.mounts()?,
        })
    }
}

fn argv_of(process: &Process) -> Vec<String> {
    let text = process.small_text("cmdline").unwrap_or_default();
    text.split('\0').map(str::to_owned).collect()
}

/// Every control of the plan without evidence.
pub(super) fn lacks(
    started: &Started,
    seen: &Observation,
    posture: &Posture,
    (armed, found): (&[Control], &FoundPaths),
) -> Vec<String> {
    let native = Native { started: &started.inner, posture, status: seen.sentry_status.clone(), armed, found };
    let proof = Proof { started, seen, posture, native };
    let mut lacks = started.inner.seen.blind.clone();
    for entry in &started.inner.prepared.plan.entries {
        let missing = entry.controls.iter().filter_map(|control| Some((control, proof.evidence(control).err()?)));
        lacks.extend(missing.map(|(control, why)| format!("`{}` by {}: {why}", entry.clause, control.name())));
    }
    lacks.dedup();
    lacks
}

struct Proof<'a> {
    started: &'a Started,
    seen: &'a Observation,
    posture: &'a Posture,
    native: Native<'a>,
}

/// What gVisor does by itself is held only where the plan's control asked for it.
fn asked(by_control: bool) -> Evident {
    must(by_control, || "nobody asked for it".to_owned())
}

impl Proof<'_> {
    const fn blueprint(&self) -> &Blueprint {
        &self.started.inner.prepared.blueprint
    }

    #[expect(clippy::too_many_lines, reason = "a table: one arm per control")]
    fn evidence(&self, control: &Control) -> Evident {
        let p = self.posture;
        match control {
            Control::OwnKernel { platform, faults: _ } => self.own_kernel(platform),
            Control::Machine(_) | Control::InMachine(_) => Err("there is no machine on this tier".to_owned()),
            Control::Namespace(kind) => {
                asked(self.blueprint().namespaces.contains(kind))?;
                must(self.seen.namespaces.contains(kind), || "it is ours".to_owned())
            }
            Control::Veth => match &self.started.network {
                Some(network) => network.evidence(self.seen.network),
                None => Err("none was made".to_owned()),
            },
            Control::Root(planned) => self.root(planned),
            Control::User { name, id } => self.user(name, *id),
            Control::Umask(mask) => must(p.umask == *mask, || format!("the umask is {:o}", p.umask)),
            Control::NoCapabilities => {
                asked(self.blueprint().drop_capabilities)?;
                let sets = &p.capabilities;
                let all = sets.inheritable | sets.permitted | sets.effective | sets.ambient;
                must(all == 0, || format!("its capability sets together are {all:#x}"))
            }
            Control::NoGroups => {
                asked(self.blueprint().clear_groups)?;
                must(p.groups == 0, || format!("it has {} supplementary groups", p.groups))
            }
            Control::Session => {
                asked(self.blueprint().session)?;
                must(p.session == p.pid, || format!("its session is {}", p.session))
            }
            Control::NoNewPrivs => {
                asked(self.blueprint().no_new_privs)?;
                must(p.no_new_privs, || "it is not set".to_owned())
            }
            Control::Mount { from, at, write } => self.shown(from, at, *write),
            Control::Tmpfs { at, bytes, inodes } => self.sized(Path::new(at), *bytes, *inodes),
            Control::Copy { from, at, size: Some((bytes, inodes)) } => {
                let placed = Placed::planned(&self.started.inner.prepared.placed, from, at)?;
                self.sized(&placed.point, *bytes, *inodes)
            }
            Control::NoexecMounts => self.noexec(),
            Control::Certificates { at } => self.certificates(at),
            // The same words of the guest, the same files of the group, the same parts of the supervisor.
            Control::Hostname(_)
            | Control::NoDescriptors
            | Control::Undumpable
            | Control::Filter(_)
            | Control::Cgroup { .. }
            | Control::Rlimit { .. }
            | Control::Environment(_)
            | Control::LocalRoutes { .. }
            | Control::Inlets(_)
            | Control::Broker
            | Control::Proxy
            | Control::Secrets
            | Control::ProtectedAtApply
            | Control::Watch(_)
            | Control::ImageTree(_)
            | Control::Audit
            | Control::CommandGate
            | Control::ToolGate => self.native.evidence(control),
            Control::NoInnerNamespaces
            | Control::KeptGroups(_)
            | Control::RunMark
            | Control::Device { .. }
            | Control::Keyring
            | Control::SignalScope
            | Control::PayloadScope
            | Control::Terminal { .. }
            | Control::Label(_)
            | Control::ReadOnlyOverlay
            | Control::Overlay { .. }
            | Control::Copy { size: None, .. }
            | Control::Hide(_)
            | Control::Covered(_)
            | Control::ProtectedMounts
            | Control::NoexecRules(_)
            | Control::Executables { .. }
            | Control::ReadFolders { .. }
            | Control::WriteFolders { .. }
            | Control::Landlock(_)
            | Control::Rule { .. }
            | Control::EachFile(_)
            | Control::Interpreter(_)
            | Control::HostNetwork => Err("gVisor is not asked for it".to_owned()),
        }
    }

    /// Both of its processes are under a filter, in namespaces and in the group of the run, and its kernel is nobody.
    fn own_kernel(&self, platform: &str) -> Evident {
        asked(self.blueprint().own_kernel)?;
        let seen = self.seen;
        let Some(group) = &self.started.inner.child.group else { return Err("it is in no control group".to_owned()) };
        for (what, pid, status) in
            [("kernel", seen.sentry_pid, &seen.sentry_status), ("file server", seen.gofer_pid, &seen.gofer_status)]
        {
            must(status.seccomp == 2 && status.no_new_privs, || format!("its {what} has no filter"))?;
            must(group.holds(pid).is_ok_and(|held| held), || format!("its {what} is not in the run's control group"))?;
        }
        must(!seen.sentry_status.uid.contains(&0) && !seen.sentry_status.gid.contains(&0), || {
            format!("its kernel is user {:?}", seen.sentry_status.uid)
        })?;
        must(seen.namespaces.len() == NAMESPACES.len(), || {
            format!("of namespaces its kernel has only {:?} of its own", seen.namespaces)
        })?;
        let said = |word: &String| word.strip_prefix("--platform=").map(str::to_owned);
        let other = seen.sentry_words.iter().filter_map(said).find(|found| found != platform);
        must(other.is_none(), || format!("its platform is {other:?}"))?;
        let word = format!("--platform={platform}");
        must(!self.started.says_platform || seen.sentry_words.contains(&word), || format!("it was not told {word}"))?;
        self.told_network()?;
        // Unasked it opens no socket of the host, and then says no word of it.
        let opens = |word: &&String| word.contains("host-uds=") && *word != "--host-uds=none";
        must(!seen.sentry_words.iter().any(|word| opens(&word)), || "it may open sockets of the host".to_owned())?;
        must(self.posture.pid == 1, || format!("the guest is process {}", self.posture.pid))?;
        let served = seen.mounts.iter().find(|mount| mount.point == "/").map(|mount| mount.kind.as_str());
        must(served.is_some_and(|kind| SERVED.contains(&kind)), || format!("the root inside is of type {served:?}"))
    }

    /// What its kernel was told of a network: nothing where gVisor's own stack is to take an interface, which is what it does unasked.
    fn told_network(&self) -> Evident {
        let taken = self.started.network.as_ref().is_some_and(PreparedNetwork::pair);
        let said = self.seen.sentry_words.iter().find(|word| word.contains("-network="));
        let holds = match said.map(String::as_str) {
            Some(WITHOUT_NETWORK) => !taken,
            Some(WITH_NETWORK) | None => taken,
            Some(_) => false,
        };
        must(holds, || format!("of a network it was told {said:?}"))
    }

    /// One read-only root, every mount that was planned, none that was not; and each file that is served is the one that was
    /// judged.
    fn root(&self, planned: &Root) -> Evident {
        // Which mounts there may be comes from what was applied: that must be the plan's.
        let root = self.blueprint().root.as_ref();
        must(root == Some(planned), || format!("the root is {root:?}"))?;
        let mounts = &self.seen.mounts;
        let roots: Vec<&Mount> = mounts.iter().filter(|mount| mount.point == "/").collect();
        must(roots.len() == 1 && roots.iter().all(|root| root.has("ro")), || "the root can be written to".to_owned())?;
        let planned = self.started.bundle.mounts();
        for mount in mounts.iter().filter(|mount| mount.point != "/") {
            let ours = planned.iter().any(|(at, ..)| at == Path::new(&mount.point));
            let its = OWN.iter().any(|(at, kind)| *at == mount.point && *kind == mount.kind);
            must(ours || its, || format!("nobody planned the mount at {}", mount.point))?;
        }
        for (at, write, _) in &planned {
            let mount = self.uppermost(at)?;
            must(SERVED.contains(&mount.kind.as_str()), || format!("at {} is a {}", mount.point, mount.kind))?;
            must(*write || mount.has("ro"), || format!("{} can be written to", mount.point))?;
        }
        self.started.bundle.shown.iter().try_for_each(|shown| self.served(&shown.at, shown.is))
    }

    fn uppermost(&self, at: &Path) -> Result<&Mount, String> {
        let found = self.seen.mounts.iter().rev().find(|mount| Path::new(&mount.point) == at);
        found.ok_or_else(|| format!("there is no mount at {}", at.display()))
    }

    /// What the file server has at this place is the file that was judged.
    fn served(&self, at: &Path, is: guest::config::Identity) -> Evident {
        let place = self.seen.gofer.place_at(&at.to_string_lossy()).and_then(sys::paths::identity);
        let found = place.map_err(|error| format!("{} is not served: {error}", at.display()))?;
        must((found.device, found.inode) == ((is.major, is.minor), is.ino), || {
            format!("{} is another file than the one that was judged", at.display())
        })
    }

    fn user(&self, name: &str, id: u32) -> Evident {
        // The kernel knows numbers: the name is what files and variables were made with.
        let user = self.blueprint().user.as_ref();
        must(user.is_some_and(|(named, _)| named == name), || format!("inside it is {user:?}"))?;
        let p = self.posture;
        must([p.uid, p.euid, p.suid, p.gid, p.egid, p.sgid] == [id; 6], || {
            format!("inside it is user {}, {}, {} and group {}, {}, {}", p.uid, p.euid, p.suid, p.gid, p.egid, p.sgid)
        })
    }

    fn shown(&self, from: &Path, at: &Path, write: bool) -> Evident {
        let placed = Placed::planned(&self.started.inner.prepared.placed, from, at)?;
        let mount = self.uppermost(&placed.point)?;
        must(!write && mount.has("ro"), || format!("{} can be written to", mount.point))
    }

    /// What is trusted is what the file server has at each place, and nobody writes there.
    fn certificates(&self, at: &[PathBuf]) -> Evident {
        asked(self.blueprint().certificates.is_some())?;
        let Some(wanted) = &self.started.inner.prepared.certificates else { return Err("none were made".to_owned()) };
        for place in at {
            let mount = self.uppermost(place)?;
            must(mount.has("ro"), || format!("{} can be written to", mount.point))?;
            must(wanted.are_read(&self.seen.gofer, place), || format!("{} has others", mount.point))?;
        }
        Ok(())
    }

    /// The size that the host's kernel says, and that it is served where it belongs.
    fn sized(&self, at: &Path, bytes: u64, inodes: u64) -> Evident {
        let place = at.to_string_lossy();
        self.uppermost(at)?;
        let Some((most_bytes, most_inodes)) = self.started.inner.child.watched.size_of(&place) else {
            return Err(format!("the size of {place} cannot be read"));
        };
        let bytes = bytes.div_ceil(PAGE).saturating_mul(PAGE);
        must(most_bytes > 0 && most_bytes <= bytes, || format!("{place} holds {most_bytes} bytes"))?;
        must(most_inodes > 0 && most_inodes <= inodes, || format!("{place} holds {most_inodes} files"))
    }

    /// What gVisor brings itself is its root's, who nobody inside is.
    fn noexec(&self) -> Evident {
        for mount in &self.seen.mounts {
            let its = OWN.iter().any(|(at, kind)| *at == mount.point && *kind == mount.kind);
            must(its || mount.has("ro") || mount.has("noexec"), || format!("{} can be executed from", mount.point))?;
        }
        Ok(())
    }
}
