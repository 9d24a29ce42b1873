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
    container: bool,
    namespaces: Namespaces,
    id_maps: IdMaps,
    time: bool,
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

    /// Makes the groups with their limits, the pipes and the socket.
    pub(super) fn order(&self, host: &Capabilities, mapped: Vec<OwnedFd>) -> Result<(Order, Kept), StartError> {
        let container = self.tier == Tier::Container;
        let program = sys::memfd::program(c"fumehood-guest", guest::ELF)
            .map_err(|e| StartError::system("making the guest's memory file", e))?;
        let failed = |e| StartError::system("making the guest's config", e);
        let config = sys::memfd::Later::new(c"fumehood-config").map_err(failed)?;
        let shared = config.as_fd().try_clone_to_owned();
        let shared = shared.map_err(|e| StartError::system("making the guest's config", e))?;
        let (ours, theirs) = sys::channel::pair().map_err(|e| StartError::system("making the control socket", e))?;
        let (streams, inner) = Streams::make(self.stdio)?;
        let id_maps = if container && !host.root() {
            IdMaps::BySelf { outside_uid: host.euid, outside_gid: host.egid, inside_uid: INSIDE, inside_gid: INSIDE }
        } else {
            IdMaps::Later
        };
        let order = Order {
            container,
            namespaces: if container { namespaces(host) } else { Namespaces::NONE },
            id_maps,
            time: container && host.time_namespace(),
            program,
            config: shared,
            theirs,
            inner,
            mapped,
            group: self.group(host)?,
        };
        Ok((order, Kept { config, control: Control::new(ours), streams }))
    }

    fn group(&self, host: &Capabilities) -> Result<Option<Group>, StartError> {
        let Ok(hierarchies) = host.cgroups() else { return Ok(None) };
        hierarchies
            .create(GROUPS, &self.run, &self.limits)
            .map(Some)
            .map_err(|e| StartError::system("making the control groups", e))
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
            namespaces: self.namespaces,
            cgroup: self.group.as_ref().and_then(Group::birthplace),
            tasks: &tasks,
            cgroup_namespace: self.container,
            id_maps: self.id_maps,
            time_offsets: self.time.then(from_zero),
            ambient: if self.container { AMBIENT } else { 0 },
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

/// A guest that is being made, and waits for a plan. Dropping it ends it and removes its groups.
#[derive(Debug)]
pub struct Birth {
    wanted: Wanted,
    /// What is made, once it is there; taken by whoever uses or ends it.
    made: Option<Receiver<Made>>,
    kept: Option<Kept>,
    maker: Maker,
}

/// What the thread hands over: the process, and what belongs to it.
struct Made {
    child: Result<Child, SpawnError>,
    group: Option<Group>,
}

/// A guest that was born early.
pub(super) struct Born {
    pub(super) child: Result<Child, SpawnError>,
    pub(super) group: Option<Group>,
    pub(super) kept: Kept,
    pub(super) maker: Maker,
}

/// What can be known of a start before its plan is made.
#[derive(Debug)]
pub struct Foreseen<'a> {
    /// As it stands on the container tier.
    pub policy: &'a Policy,
    /// Run id.
    pub run: &'a str,
    /// Where the streams will lead.
    pub stdio: Stdio,
}

impl Foreseen<'_> {
    /// Whether a guest of the container tier can be made ahead: not where root's own workspace must be shown, which is
    /// handed over open, nor where the host lacks what the plan will be refused for.
    #[must_use]
    pub fn possible(&self, host: &Capabilities) -> bool {
        let workspace = self.policy.workspace.path.is_some() && self.policy.workspace.mode != WorkspaceMode::None;
        !(host.root() && workspace) && host.namespaces().is_ok() && host.cgroups().is_ok()
    }

    /// The control groups that will be made, by path: to be written down before [`Foreseen::begin`].
    #[must_use]
    pub fn groups(&self, host: &Capabilities) -> Vec<PathBuf> {
        host.cgroups().map(|all| all.places(GROUPS, self.run, &groups(self.policy, host))).unwrap_or_default()
    }

    /// Makes the groups, and begins to make the guest.
    ///
    /// # Errors
    /// The host refused a group, a descriptor or a thread; nothing of it is left.
    pub fn begin(&self, host: &Capabilities) -> Result<Birth, StartError> {
        let limits = groups(self.policy, host);
        let wanted = Wanted { tier: Tier::Container, run: self.run.to_owned(), limits, stdio: self.stdio };
        let (order, kept) = wanted.order(host, Vec::new())?;
        let (made, receiver) = channel();
        let (until, over) = channel::<()>();
        let work = move || {
            let child = order.carry_out(|_pid| ()).map(|(child, ())| child);
            // Whoever should take it waits for it, or is gone with the whole process.
            drop(made.send(Made { child, group: order.group }));
            drop((order.program, order.config, order.theirs, order.inner));
            match over.recv() {
                // The other side is gone, which is what was waited for.
                Ok(()) | Err(_) => {}
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(work);
        thread.map_err(|e| StartError::system("starting the thread that makes the guest", e))?;
        Ok(Birth { wanted, made: Some(receiver), kept: Some(kept), maker: Maker { _until_dropped: until } })
    }
}

impl Birth {
    /// Whether this is the guest that a prepared plan asks for.
    #[must_use]
    pub fn fits(&self, prepared: &Prepared) -> bool {
        self.wanted == Wanted::by(prepared) && prepared.mapped.is_empty()
    }

    /// Waits until it is made.
    pub(super) fn finish(mut self) -> Result<Born, StartError> {
        let gone = || StartError::Internal("the thread that makes the guest is gone".to_owned());
        let made = self.made.take().and_then(|made| made.recv().ok()).ok_or_else(gone)?;
        let kept = self.kept.take().ok_or_else(gone)?;
        // What is left to drop is a closed handle: the drop below finds nothing to end.
        let (over, _) = channel();
        let maker = std::mem::replace(&mut self.maker, Maker { _until_dropped: over });
        Ok(Born { child: made.child, group: made.group, kept, maker })
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        let Some(Ok(made)) = self.made.take().map(|made| made.recv()) else { return };
        if let Ok(child) = made.child {
            let signalled = sys::pidfd::send_signal(&child.pidfd, 9);
            let reaped = sys::pidfd::wait(&child.pidfd);
            drop((signalled, reaped));
        }
        drop(made.group.map(|group| group.end(PATIENCE)));
    }
}
