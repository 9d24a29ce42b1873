//! The making of the guest's process, now or beside the planning.
//!
//! New namespaces cost more than all the rest of a start that waits for no other process, and nothing of a plan is needed
//! to make them: which groups with which limits, which streams, which user - all of that the policy says by itself. So the
//! groups are made and the process is born as soon as there is a policy, on a thread of its own, and the plan is made
//! meanwhile. The guest then waits for its config. A plan that differs from what was guessed, or that is refused, ends it:
//! nothing but the guest's own program has run in it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use policy::Policy;
use policy::value::{Tier, WorkspaceMode};
use sys::cgroup::{Group, Limits};
use sys::spawn::{Child, IdMaps, Namespaces, Spawn, SpawnError, TimeOffsets};

use super::control::Control;
use super::identity::INSIDE;
use super::prepare::{FIRST_EXTRA, Prepared, Stdio, groups};
use super::running::Streams;
use super::start::{GROUPS, Inner, PATIENCE};
use crate::StartError;
use crate::host::Capabilities;

/// Capabilities that the guest needs in its own user namespace until it drops them (capabilities(7)): CHOWN,
/// DAC_OVERRIDE, FOWNER, SETGID, SETUID, SETPCAP, NET_ADMIN, SYS_CHROOT, SYS_ADMIN, SYS_RESOURCE, MKNOD.
const AMBIENT: u64 = 1 | 1 << 1 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 18 | 1 << 21 | 1 << 24 | 1 << 27;

/// Room for the few calls of the thread that makes the guest; the guest's own first steps have a stack of their own.
const STACK: usize = 64 << 10;

/// What the guest's process is made of, all of it open before it is made.
#[derive(Debug)]
pub(super) struct Order {
    manner: Manner,
    program: OwnedFd,
    config: OwnedFd,
    theirs: OwnedFd,
    inner: Inner,
    mapped: Vec<OwnedFd>,
    pub(super) group: Option<Group>,
}

/// What the supervisor keeps of it.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) config: sys::memfd::Later,
    pub(super) control: Control,
    pub(super) streams: Streams,
}

/// What a start asks of the process itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    tier: Tier,
    run: String,
    limits: Limits,
    stdio: Stdio,
}

impl Wanted {
    pub(super) fn by(prepared: &Prepared) -> Self {
        Self { tier: prepared.tier, run: prepared.run.clone(), limits: prepared.limits.clone(), stdio: prepared.stdio }
    }

    /// Makes everything for a start now: the groups with their limits, the pipes and the socket.
    pub(super) fn order(&self, host: &Capabilities, mapped: Vec<OwnedFd>) -> Result<(Order, Kept), StartError> {
        let (mut order, kept) = Manner::of(self.tier == Tier::Container, host).order(self.stdio, mapped)?;
        order.group = self.group(host)?;
        Ok((order, kept))
    }

    fn group(&self, host: &Capabilities) -> Result<Option<Group>, StartError> {
        let Ok(hierarchies) = host.cgroups() else { return Ok(None) };
        hierarchies
            .create(GROUPS, &self.run, &self.limits)
            .map(Some)
            .map_err(|e| StartError::system("making the control groups", e))
    }
}

/// What the host says about how a guest is made.
#[derive(Clone, Copy, Debug)]
struct Manner {
    container: bool,
    namespaces: Namespaces,
    id_maps: IdMaps,
    time: bool,
}

impl Manner {
    fn of(container: bool, host: &Capabilities) -> Self {
        let own =
            IdMaps::BySelf { outside_uid: host.euid, outside_gid: host.egid, inside_uid: INSIDE, inside_gid: INSIDE };
        Self {
            container,
            namespaces: if container { namespaces(host) } else { Namespaces::NONE },
            id_maps: if container && !host.root() { own } else { IdMaps::Later },
            time: container && host.time_namespace(),
        }
    }

    /// Everything but the groups: nothing of it can be seen on the host.
    fn order(self, stdio: Stdio, mapped: Vec<OwnedFd>) -> Result<(Order, Kept), StartError> {
        let program = sys::memfd::program(c"fumehood-guest", guest::ELF)
            .map_err(|e| StartError::system("making the guest's memory file", e))?;
        let failed = |e| StartError::system("making the guest's config", e);
        let config = sys::memfd::Later::new(c"fumehood-config").map_err(failed)?;
        let shared = config.as_fd().try_clone_to_owned();
        let shared = shared.map_err(|e| StartError::system("making the guest's config", e))?;
        let (ours, theirs) = sys::channel::pair().map_err(|e| StartError::system("making the control socket", e))?;
        let (streams, inner) = Streams::make(stdio)?;
        let order = Order { manner: self, program, config: shared, theirs, inner, mapped, group: None };
        Ok((order, Kept { config, control: Control::new(ours), streams }))
    }
}

impl Order {
    /// Makes the process. `meanwhile` runs while it is on its way to its program.
    pub(super) fn carry_out<R>(&self, meanwhile: impl FnOnce(i32) -> R) -> Result<(Child, R), SpawnError> {
        let [input, output, errors] = &self.inner;
        let mut fds: Vec<(BorrowedFd<'_>, i32)> = vec![
            (input.as_fd(), 0),
            (output.as_fd(), 1),
            (errors.as_fd(), 2),
            (self.theirs.as_fd(), 3),
            (self.config.as_fd(), 4),
        ];
        let first = i32::try_from(FIRST_EXTRA).unwrap_or(5);
        fds.extend(self.mapped.iter().zip(first..).map(|(mount, at)| (mount.as_fd(), at)));
        let tasks = self.group.as_ref().map(Group::tasks).unwrap_or_default();
        let spawn = Spawn {
            namespaces: self.manner.namespaces,
            cgroup: self.group.as_ref().and_then(Group::birthplace),
            tasks: &tasks,
            cgroup_namespace: self.manner.container,
            id_maps: self.manner.id_maps,
            time_offsets: self.manner.time.then(from_zero),
            ambient: if self.manner.container { AMBIENT } else { 0 },
            fds: &fds,
            program: self.program.as_fd(),
            argv: &[c"fumehood-guest"],
        };
        spawn.start_beside(meanwhile)
    }

    /// There is no process: what was made for it goes. What cannot be removed stays in the journal, for `gc`.
    pub(super) fn undo(self) {
        drop(self.group.map(|group| group.end(PATIENCE)));
    }
}

/// Offsets by which the clocks since boot begin at zero inside: how long the host runs tells which host it is.
fn from_zero() -> TimeOffsets {
    let (monotonic, boot) = sys::caller::clocks_since_boot();
    TimeOffsets { monotonic: monotonic.saturating_neg(), boot: boot.saturating_neg() }
}

fn namespaces(host: &Capabilities) -> Namespaces {
    let time = if host.time_namespace() { Namespaces::TIME } else { Namespaces::NONE };
    [Namespaces::USER, Namespaces::MOUNT, Namespaces::PID, Namespaces::NET, Namespaces::IPC, Namespaces::UTS]
        .into_iter()
        .fold(time, Namespaces::and)
}

/// Keeps the thread that made a guest: the kernel kills the guest when that thread ends, and it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Maker {
    _until_dropped: Sender<()>,
}

/// A thread that gets ready to make a guest: nothing of it can be seen on the host yet.
#[derive(Debug)]
pub struct Ready {
    tier: Tier,
    stdio: Stdio,
    group: Sender<Option<Group>>,
    made: Receiver<Result<Made, StartError>>,
    maker: Maker,
}

/// A guest that is being made, and waits for a plan. Dropping it ends it and removes its groups.
#[derive(Debug)]
pub struct Birth {
    wanted: Wanted,
    /// What is made, once it is there; taken by whoever uses or ends it.
    made: Option<Receiver<Result<Made, StartError>>>,
    maker: Maker,
}

/// What the thread hands over: the process, and what belongs to it.
#[derive(Debug)]
struct Made {
    child: Result<Child, SpawnError>,
    group: Option<Group>,
    kept: Kept,
}

/// A guest that was born early.
pub(super) struct Born {
    pub(super) child: Result<Child, SpawnError>,
    pub(super) group: Option<Group>,
    pub(super) kept: Kept,
    pub(super) maker: Maker,
}

impl Ready {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refused it.
    pub fn new(tier: Tier, stdio: Stdio, host: &Capabilities) -> Result<Self, StartError> {
        let manner = Manner::of(tier == Tier::Container, host);
        let (made, receiver) = channel();
        let (group, chosen) = channel();
        let (until, over) = channel::<()>();
        let work = move || {
            let work = work(manner, stdio, &chosen);
            // Whoever should take it waits for it, or is gone with the whole process.
            if let Some(work) = work {
                drop(made.send(work));
            }
            match over.recv() {
                // The other side is gone, which is what was waited for.
                Ok(()) | Err(_) => {}
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
        thread.map_err(|e| StartError::system("starting the thread that makes the guest", e))?;
        Ok(Self { tier, stdio, group, made: receiver, maker: Maker { _until_dropped: until } })
    }
}

/// What the thread does; `None` if nobody wants a guest after all.
fn work(manner: Manner, stdio: Stdio, group: &Receiver<Option<Group>>) -> Option<Result<Made, StartError>> {
    let ready = manner.order(stdio, Vec::new());
    let group = group.recv().ok()?;
    let (mut order, kept) = match ready {
        Ok(ready) => ready,
        Err(error) => {
            drop(group.map(|group| group.end(PATIENCE)));
            return Some(Err(error));
        }
    };
    order.group = group;
    let child = order.carry_out(|_pid| ()).map(|(child, ())| child);
    Some(Ok(Made { child, group: order.group, kept }))
}

/// What can be known of a start before its plan is made.
#[derive(Debug)]
pub struct Foreseen<'a> {
    /// As it stands on the tier.
    pub policy: &'a Policy,
    /// Run id.
    pub run: &'a str,
}

impl Foreseen<'_> {
    /// Whether a guest can be made ahead: not where root's own workspace must be shown, which is handed over open, nor
    /// where the host lacks what the plan will be refused for.
    #[must_use]
    pub fn possible(tier: Tier, policy: &Policy, host: &Capabilities) -> bool {
        let workspace = policy.workspace.path.is_some() && policy.workspace.mode != WorkspaceMode::None;
        match tier {
            Tier::Container => !(host.root() && workspace) && host.namespaces().is_ok() && host.cgroups().is_ok(),
            Tier::Process => host.cgroups().is_ok(),
            Tier::Language | Tier::Gvisor | Tier::Vm => false,
        }
    }

    /// The control groups that will be made, by path: to be written down before [`Foreseen::begin`].
    #[must_use]
    pub fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        host.cgroups().map(|all| all.places(GROUPS, self.run, &groups(self.policy, host))).unwrap_or_default()
    }

    /// Makes the groups, and lets the thread make the guest.
    ///
    /// # Errors
    /// The host refused a group; nothing of it is left.
    pub fn begin(&self, ready: Ready, host: &Capabilities) -> Result<Birth, StartError> {
        let Ready { tier, stdio, group, made, maker } = ready;
        let limits = groups(self.policy, host);
        let wanted = Wanted { tier, run: self.run.to_owned(), limits, stdio };
        if let Err(unsent) = group.send(wanted.group(host)?) {
            drop(unsent.0.map(|group| group.end(PATIENCE)));
            return Err(gone());
        }
        Ok(Birth { wanted, made: Some(made), maker })
    }
}

fn gone() -> StartError {
    StartError::Internal("the thread that makes the guest is gone".to_owned())
}

impl Birth {
    /// Whether this is the guest that a prepared plan asks for.
    #[must_use]
    pub fn fits(&self, prepared: &Prepared) -> bool {
        self.wanted == Wanted::by(prepared) && prepared.mapped.is_empty()
    }

    /// Waits until it is made.
    pub(super) fn finish(mut self) -> Result<Born, StartError> {
        let made = self.made.take().and_then(|made| made.recv().ok()).ok_or_else(gone)??;
        // What is left to drop is a closed handle: the drop below finds nothing to end.
        let (over, _) = channel();
        let maker = std::mem::replace(&mut self.maker, Maker { _until_dropped: over });
        Ok(Born { child: made.child, group: made.group, kept: made.kept, maker })
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        let Some(Ok(Ok(made))) = self.made.take().map(|made| made.recv()) else { return };
        if let Ok(child) = made.child {
            let signalled = sys::pidfd::send_signal(&child.pidfd, 9);
            let reaped = sys::pidfd::wait(&child.pidfd);
            drop((signalled, reaped));
        }
        drop(made.group.map(|group| group.end(PATIENCE)));
    }
}
