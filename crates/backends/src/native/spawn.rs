//! The guest's process: what it is made of, and its making.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use policy::control::Namespace;
use policy::value::Tier;
use sys::cgroup::Group;
use sys::spawn::{Child, IdMaps, Namespaces, Spawn, SpawnError, TimeOffsets};

use super::control::Control;
use super::prepare::Prepared;
use super::start::{GROUPS, START_TIMEOUT};
use crate::StartError;
use crate::backend::Inner;
use crate::backend::Streams;
use crate::backend::{FIRST_EXTRA, OwnProgram};
use crate::host::Capabilities;

/// Capabilities that the guest needs in its own user namespace until it drops them (capabilities(7)): CHOWN,
/// DAC_OVERRIDE, FOWNER, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_ADMIN, SYS_CHROOT, SYS_ADMIN, SYS_RESOURCE, MKNOD.
const AMBIENT: u64 =
    1 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 12 | 1 << 18 | 1 << 21 | 1 << 24 | 1 << 27;

/// NET_RAW: the packet socket of a machine's link.
const OF_LINK: u64 = 1 << 13;

/// What the guest's process is made of, all of it open before it is made.
#[derive(Debug)]
pub(crate) struct Order {
    container: bool,
    /// It makes the link of a machine.
    link: bool,
    namespaces: Namespaces,
    cgroup_namespace: bool,
    id_maps: IdMaps,
    time: bool,
    program: OwnedFd,
    config: OwnedFd,
    theirs: OwnedFd,
    inner: Inner,
    mapped: Vec<OwnedFd>,
    /// The payload, where it is one of ours.
    payload: Option<OwnedFd>,
    pub(crate) group: Option<Group>,
}

/// What the supervisor keeps of it.
#[derive(Debug)]
pub(crate) struct SupervisorHandles {
    pub(crate) config: sys::memfd::Later,
    pub(crate) control: Control,
    pub(crate) streams: Streams,
    /// The inode of the payload's own program, where it has no path.
    pub(crate) program: Option<u64>,
}

impl Order {
    /// Makes everything that the process is made of, its groups with their limits last.
    pub(crate) fn of(
        prepared: &Prepared,
        host: &Capabilities,
        mapped: Vec<OwnedFd>,
    ) -> Result<(Self, SupervisorHandles), StartError> {
        let container = prepared.tier == Tier::Container;
        let inside = prepared.blueprint.user.as_ref().map_or(0, |(_, id)| *id);
        let own =
            IdMaps::BySelf { outside_uid: host.euid, outside_gid: host.egid, inside_uid: inside, inside_gid: inside };
        let program = sys::memfd::program(c"fumehood-guest", guest::ELF)
            .map_err(|e| StartError::system("making the guest's memory file", e))?;
        let payload = prepared.program.as_ref().map(own_program).transpose()?;
        let inode = payload.as_ref().map(sys::paths::identity).transpose();
        let inode = inode.map_err(|e| StartError::system("looking at the agent's memory file", e))?.map(|is| is.inode);
        let config = sys::memfd::Later::new(c"fumehood-config")
            .map_err(|e| StartError::system("making the guest's config", e))?;
        let shared = config.as_fd().try_clone_to_owned();
        let shared = shared.map_err(|e| StartError::system("making the guest's config", e))?;
        let (ours, theirs) = sys::channel::pair().map_err(|e| StartError::system("making the control socket", e))?;
        let (streams, inner) = Streams::make(prepared.stdio)?;
        let order = Self {
            container,
            link: prepared.config.link,
            namespaces: namespaces(&prepared.blueprint.namespaces),
            cgroup_namespace: prepared.blueprint.namespaces.contains(&Namespace::Cgroup),
            id_maps: if container && !host.root() { own } else { IdMaps::Later },
            time: prepared.blueprint.namespaces.contains(&Namespace::Time),
            program,
            config: shared,
            theirs,
            inner,
            mapped,
            payload,
            group: group(prepared, host)?,
        };
        Ok((order, SupervisorHandles { config, control: Control::new(ours), streams, program: inode }))
    }

    /// Makes the process. `meanwhile` runs while it is on its way to its program.
    pub(crate) fn carry_out<R>(&self, meanwhile: impl FnOnce(i32) -> R) -> Result<(Child, R), SpawnError> {
        let [input, output, errors] = &self.inner;
        let mut fds: Vec<(BorrowedFd<'_>, i32)> = vec![
            (input.as_fd(), 0),
            (output.as_fd(), 1),
            (errors.as_fd(), 2),
            (self.theirs.as_fd(), 3),
            (self.config.as_fd(), 4),
        ];
        let first = i32::try_from(FIRST_EXTRA).unwrap_or(5);
        fds.extend(self.mapped.iter().chain(&self.payload).zip(first..).map(|(fd, at)| (fd.as_fd(), at)));
        let tasks = self.group.as_ref().map(Group::tasks).unwrap_or_default();
        let spawn = Spawn {
            namespaces: self.namespaces,
            cgroup: self.group.as_ref().and_then(Group::v2_dir),
            tasks: &tasks,
            cgroup_namespace: self.cgroup_namespace,
            mounts: &[],
            id_maps: self.id_maps,
            time_offsets: self.time.then(from_zero),
            ambient: if self.container { AMBIENT | if self.link { OF_LINK } else { 0 } } else { 0 },
            fds: &fds,
            program: self.program.as_fd(),
            argv: &[c"fumehood-guest"],
        };
        spawn.start_beside(meanwhile)
    }

    /// There is no process: what was made for it goes. What cannot be removed stays in the journal, for `gc`.
    pub(crate) fn undo(self) {
        drop(self.group.map(|group| group.end(START_TIMEOUT)));
    }
}

/// The payload's program as a descriptor.
pub(crate) fn own_program(program: &OwnProgram) -> Result<OwnedFd, StartError> {
    match program {
        OwnProgram::Bytes(bytes) => sys::memfd::program(c"fumehood-agent", bytes)
            .map_err(|e| StartError::system("making the agent's memory file", e)),
        OwnProgram::File(path) => std::fs::File::open(path)
            .map(OwnedFd::from)
            .map_err(|e| StartError::system("opening our own program", format!("{}: {e}", path.display()))),
    }
}

pub(crate) fn group(prepared: &Prepared, host: &Capabilities) -> Result<Option<Group>, StartError> {
    let Ok(hierarchies) = host.cgroups() else { return Ok(None) };
    let made = hierarchies.create(GROUPS, &prepared.run, &prepared.limits);
    made.map(Some).map_err(|e| StartError::system("making the control groups", e))
}

/// Offsets by which the clocks since boot begin at zero inside: how long the host runs tells which host it is.
fn from_zero() -> TimeOffsets {
    let (monotonic, boot) = sys::caller::clocks_since_boot();
    TimeOffsets { monotonic: monotonic.saturating_neg(), boot: boot.saturating_neg() }
}

/// Those that clone3(2) makes; a control group's is taken when the process is in its group.
pub(crate) fn namespaces(kinds: &[Namespace]) -> Namespaces {
    kinds.iter().fold(Namespaces::NONE, |all, kind| {
        all.and(match kind {
            Namespace::User => Namespaces::USER,
            Namespace::Mount => Namespaces::MOUNT,
            Namespace::Pid => Namespaces::PID,
            Namespace::Net => Namespaces::NET,
            Namespace::Ipc => Namespaces::IPC,
            Namespace::Uts => Namespaces::UTS,
            Namespace::Time => Namespaces::TIME,
            Namespace::Cgroup => Namespaces::NONE,
        })
    })
}
