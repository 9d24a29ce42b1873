//! The making of the guest's process, now or beside the planning.
//!
//! New namespaces cost more than all the rest of a start that waits for no other process, and nothing of a plan is needed
//! to make them: which groups with which limits, which streams, which user - all of that the policy says by itself. So
//! while the first thread reads the policy and writes the journal, a thread of its own looks for the control groups and
//! opens what the process is made of; then it makes groups and has the process born, while the first one makes the plan.
//! The guest waits for its config, which is written as soon as its process is there, while that is on its way to its
//! program. A plan that differs from what was guessed, or that is refused, ends it: nothing but the guest's own program
//! has run in it.
//!
//! The two threads speak by two channels: what the first one says ([`Tell`]), and what became of the process ([`Said`]).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use policy::Policy;
use policy::value::{Tier, WorkspaceMode};
use sys::beside::{Apart, Beside};
use sys::cgroup::{Entrance, Group, Limits};
use sys::proc::{Namespace, Process};
use sys::spawn::{Child, Door, IdMaps, Joins, Namespaces, Spawn, SpawnError, TimeOffsets};

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

/// Room for the thread that makes the guest, which also removes what dead runs left, tree by tree; only what is touched
/// costs memory. The guest's own first steps have a stack of their own.
const STACK: usize = 1 << 20;

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
    /// The half of the groups that is made meanwhile.
    joins: Option<(Arc<Door>, Vec<Entrance>)>,
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

/// The control groups that will be made, by path: to be written down before.
fn places(host: &Capabilities, run: &str, limits: &Limits) -> Vec<PathBuf> {
    host.cgroups().map(|all| all.places(GROUPS, run, limits)).unwrap_or_default()
}

fn group(host: &Capabilities, run: &str, limits: &Limits) -> Result<Option<Group>, StartError> {
    let Ok(hierarchies) = host.cgroups() else { return Ok(None) };
    hierarchies.create(GROUPS, run, limits).map(Some).map_err(|e| StartError::system("making the control groups", e))
}

impl Wanted {
    pub(super) fn by(prepared: &Prepared) -> Self {
        Self { tier: prepared.tier, run: prepared.run.clone(), limits: prepared.limits.clone(), stdio: prepared.stdio }
    }

    /// Makes everything for a start now: the groups with their limits, the pipes and the socket.
    pub(super) fn order(&self, host: &Capabilities, mapped: Vec<OwnedFd>) -> Result<(Order, Kept), StartError> {
        let manner = Manner::of(self.tier == Tier::Container, host);
        let (mut order, kept) = Parts::open()?.order(manner, self.stdio, mapped)?;
        order.group = group(host, &self.run, &self.limits)?;
        Ok((order, kept))
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
}

/// What every guest is made of: nothing of it can be seen on the host, and no policy is needed for it.
#[derive(Debug)]
struct Parts {
    program: OwnedFd,
    config: sys::memfd::Later,
    ours: OwnedFd,
    theirs: OwnedFd,
}

impl Parts {
    fn open() -> Result<Self, StartError> {
        let program = sys::memfd::program(c"fumehood-guest", guest::ELF)
            .map_err(|e| StartError::system("making the guest's memory file", e))?;
        let config = sys::memfd::Later::new(c"fumehood-config")
            .map_err(|e| StartError::system("making the guest's config", e))?;
        let (ours, theirs) = sys::channel::pair().map_err(|e| StartError::system("making the control socket", e))?;
        Ok(Self { program, config, ours, theirs })
    }

    /// With the streams everything but the groups.
    fn order(self, manner: Manner, stdio: Stdio, mapped: Vec<OwnedFd>) -> Result<(Order, Kept), StartError> {
        let Self { program, config, ours, theirs } = self;
        let shared = config.as_fd().try_clone_to_owned();
        let shared = shared.map_err(|e| StartError::system("making the guest's config", e))?;
        let (streams, inner) = Streams::make(stdio)?;
        let order = Order { manner, program, config: shared, theirs, inner, mapped, group: None, joins: None };
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
            joins: self.joins.as_ref().map(|(door, entrances)| Joins { door, entrances }),
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

/// Where everything that a run makes on the host is written down before it is made.
pub trait Notebook {
    /// The run's id, which names its groups.
    fn run(&self) -> &str;

    /// Writes down a control group that is about to be made.
    ///
    /// # Errors
    /// It cannot be written down: then it must not be made.
    fn note(&mut self, group: PathBuf) -> Result<(), StartError>;
}

/// What the first thread says to the one that makes the guest. A closed channel is the end: whoever made a guest ends
/// then, and the kernel kills the guest with the thread that made it.
#[derive(Debug)]
enum Tell {
    /// There is a policy, and a journal that knows of them: make the groups of this run, and the guest.
    Make(Box<Make>),
    /// The guest has its config; so nobody speaks to it by its number any more, and it may be reaped.
    Told,
    /// The guest was told to die, and nobody reads its groups any more: remove them, unless this thread was quicker.
    Remove,
}

/// What is to be made.
#[derive(Debug)]
struct Make {
    wanted: Wanted,
    /// Where the other half of the groups is made meanwhile: this thread makes the half that the guest is born in.
    joins: Option<(Arc<Door>, Vec<Entrance>)>,
}

/// What became of the process.
#[derive(Debug)]
enum Said {
    /// It is there, on its way to its program; and what speaks to it.
    Begun(i32, Box<Kept>),
    /// It executes its program, or there is none; and which thread made it.
    Made(Result<Child, SpawnError>, Option<Group>, i32),
}

/// A guest's mount namespace, while it is held. The thread that made the guest lets go of it.
type Mounts = Arc<Mutex<Option<OwnedFd>>>;

/// The groups of a guest that was told to die. Whichever thread has nothing else to do removes them.
type Groups = Arc<Mutex<Option<Group>>>;

/// Failures have no reader here: what could not be removed stays in the journal, and `gc` takes it.
fn remove(groups: &Groups) {
    let group = groups.lock().map(|mut group| group.take());
    drop(group.map(|group| group.map(|group| group.end(PATIENCE))));
}

/// Keeps the thread that made a guest: the kernel kills the guest when that thread ends, and it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Maker {
    pub(super) thread: i32,
    mounts: Mounts,
    groups: Groups,
    to: Sender<Tell>,
    /// Nothing is said by it: it closes when the thread is done.
    done: Receiver<Said>,
}

impl Maker {
    /// Leaves the taking down of the guest's mounts to the thread that made it, which does it when the guest has ended,
    /// beside the report. Otherwise it belongs to the guest's end, which then waits for an RCU grace period
    /// (`namespace_unlock()` in fs/namespace.c) before anybody hears of it. The process ends no earlier than its threads,
    /// so nothing of it outlives a run.
    pub(super) fn take_down_mounts(&self, guest: i32) {
        let held = Process::open(guest).and_then(|process| process.hold(Namespace::Mount));
        // Without it the guest's end takes longer, and nothing else.
        if let (Ok(held), Ok(mut mounts)) = (held, self.mounts.lock()) {
            *mounts = Some(held);
        }
    }

    /// Leaves the removal of a dying guest's groups to that thread, which does it when the mounts are down, or sooner
    /// where it cannot see the guest's end.
    pub(super) fn remove(&self, group: Group) -> Result<(), Group> {
        match self.groups.lock() {
            Ok(mut place) => *place = Some(group),
            Err(_) => return Err(group),
        }
        // A thread that is gone leaves them to the end.
        drop(self.to.send(Tell::Remove));
        Ok(())
    }

    /// Removes the groups if the thread is not there yet, and waits until it has done all that was left to it. The guest
    /// must have ended.
    pub(super) fn end(self) {
        let Self { thread: _, mounts: _, groups, to, done } = self;
        drop(to);
        remove(&groups);
        while done.recv().is_ok() {}
    }
}

/// Whether a guest can be made ahead, by what costs nothing to ask: not where root's own workspace must be shown, which
/// is handed over open.
#[must_use]
pub fn foreseeable(tier: Tier, policy: &Policy, host: &Capabilities) -> bool {
    let workspace = policy.workspace.path.is_some() && policy.workspace.mode != WorkspaceMode::None;
    match tier {
        Tier::Container => !(host.root() && workspace),
        Tier::Process => true,
        Tier::Language | Tier::Gvisor | Tier::Vm => false,
    }
}

/// A thread that will make a guest, and looks at the host while there is no policy yet. Dropping it ends it.
#[derive(Debug)]
pub struct Ready {
    to: Sender<Tell>,
    said: Receiver<Said>,
    mounts: Mounts,
    groups: Groups,
    apart: Apart,
}

impl Ready {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host refused it.
    pub fn new(host: &Arc<Capabilities>) -> Result<Self, StartError> {
        let ((to, told), (say, said)) = (channel(), channel());
        let host = Arc::clone(host);
        let (mounts, groups) = (Mounts::default(), Groups::default());
        let (held_here, left) = (Arc::clone(&mounts), Arc::clone(&groups));
        let work = move |beside: Beside| {
            host.look_ahead();
            // What is in the way is met again on the ordinary way, where it has its words.
            let Some((order, kept)) = Parts::open().ok().and_then(|parts| order(parts, &host, &told)) else { return };
            let guest = carry_out(order, kept, &told, &say);
            // What was made here is kept from a processor as this thread was, until the first thread releases it.
            let ended = (beside.end(), guest.map(sys::pidfd::wait_for_end));
            drop((ended, held_here.lock().map(|mut held| held.take())));
            while let Ok(word) = told.recv() {
                if matches!(word, Tell::Remove) {
                    remove(&left);
                }
            }
            drop(say);
        };
        let apart = sys::beside::start(STACK, work)
            .map_err(|e| StartError::system("starting the thread that makes the guest", e))?;
        Ok(Self { to, said, mounts, groups, apart })
    }

    /// Writes the groups down and lets the thread make them and the guest. `None`: this host has no groups or no
    /// namespaces, or what the guest is made of cannot be had, and nothing was made.
    pub fn begin(
        self,
        (tier, stdio): (Tier, Stdio),
        policy: &Policy,
        host: &Capabilities,
        notes: &mut impl Notebook,
    ) -> Option<Birth> {
        if host.cgroups().is_err() || tier == Tier::Container && host.namespaces().is_err() {
            return None;
        }
        let Self { to, said, mounts, groups: left, apart } = self;
        let (run, limits) = (notes.run().to_owned(), groups(policy, host));
        for place in places(host, &run, &limits) {
            notes.note(place).ok()?;
        }
        // Namespaces take so long that half of the groups can be made here meanwhile.
        let halves = host.cgroups().ok().filter(|all| tier == Tier::Container && all.has_halves(&limits));
        let door = Arc::new(Door::default());
        let joins = halves.map(|all| (Arc::clone(&door), all.entrances(GROUPS, &run, &limits)));
        let wanted = Wanted { tier, run: run.clone(), limits: limits.clone(), stdio };
        // A thread that is gone shows when its guest is asked for.
        drop(to.send(Tell::Make(Box::new(Make { wanted: wanted.clone(), joins }))));
        let rest = halves.map(|all| all.create_rest(GROUPS, &run, &limits));
        let ways = Ways { to, said, mounts, groups: left, apart };
        let mut birth = Birth { wanted, ways: Some(ways), rest: None };
        match rest.transpose() {
            Ok(rest) => {
                door.open();
                birth.rest = rest;
                Some(birth)
            }
            Err(_) => {
                door.bar();
                None
            }
        }
    }
}

/// On the thread, as soon as there is a policy: the groups, or the half of them that the guest is born in, and all else
/// that the guest is made of.
fn order(parts: Parts, host: &Capabilities, told: &Receiver<Tell>) -> Option<(Order, Kept)> {
    let Ok(Tell::Make(make)) = told.recv() else { return None };
    let Make { wanted: Wanted { tier, run, limits, stdio }, joins } = *make;
    let (mut order, kept) = parts.order(Manner::of(tier == Tier::Container, host), stdio, Vec::new()).ok()?;
    order.group = match host.cgroups() {
        Ok(all) if joins.is_some() => Some(all.create_birthplace(GROUPS, &run, &limits).ok()?),
        Ok(_) | Err(_) => group(host, &run, &limits).ok()?,
    };
    order.joins = joins;
    Some((order, kept))
}

/// The guest, to be waited for.
fn carry_out(mut order: Order, kept: Kept, told: &Receiver<Tell>, say: &Sender<Said>) -> Option<OwnedFd> {
    let child = order.carry_out(|pid| {
        // Whoever should hear it waits for it, or is gone with the whole process. Until it answers, the number is the
        // guest's: one that failed is reaped only afterwards.
        drop(say.send(Said::Begun(pid, Box::new(kept))));
        drop(told.recv());
    });
    let group = order.group.take();
    // The payload's ends of its streams, above all: what is still open here would keep them from ending.
    drop(order);
    let child = child.map(|(child, ())| child);
    let guest = child.as_ref().ok().and_then(|child| child.pidfd.try_clone().ok());
    drop(say.send(Said::Made(child, group, sys::beside::this_thread())));
    guest
}

/// What the first thread has of the other one and of the guest that it makes.
#[derive(Debug)]
struct Ways {
    to: Sender<Tell>,
    said: Receiver<Said>,
    mounts: Mounts,
    groups: Groups,
    apart: Apart,
}

/// A guest that is being made, and waits for a plan. Dropping it ends it and removes its groups.
#[derive(Debug)]
pub struct Birth {
    wanted: Wanted,
    /// Taken by whoever uses or ends it.
    ways: Option<Ways>,
    /// The half of its groups that was made here.
    rest: Option<Group>,
}

/// A guest that was born early.
pub(super) struct Born<T> {
    pub(super) child: Result<Child, SpawnError>,
    pub(super) group: Option<Group>,
    /// What came of telling it; `None` when there was nobody to tell.
    pub(super) told: Option<T>,
    /// Whether it may run on every processor that we may.
    pub(super) released: sys::error::Result<()>,
    pub(super) maker: Maker,
}

impl Birth {
    /// Whether this is the guest that a prepared plan asks for.
    #[must_use]
    pub fn fits(&self, prepared: &Prepared) -> bool {
        self.wanted == Wanted::by(prepared) && prepared.mapped.is_empty()
    }

    /// Waits until its process is there, tells it what it waits for while it is on its way to its program, and waits
    /// until it is there. `None`: its groups could not be made, and nothing is left of them.
    pub(super) fn finish<T>(mut self, tell: impl FnOnce(i32, Kept) -> T) -> Option<Born<T>> {
        let Ways { to, said, mounts, groups, apart } = self.ways.take()?;
        let mut tell = Some(tell);
        let mut told = None;
        loop {
            // Closed: then what was made here goes with this.
            match said.recv().ok()? {
                Said::Begun(pid, kept) => {
                    told = tell.take().map(|tell| tell(pid, *kept));
                    // A thread that is gone shows at the next word.
                    drop(to.send(Tell::Told));
                }
                Said::Made(child, group, thread) => {
                    let released = child.as_ref().map_or(Ok(()), |child| apart.release(child.pid));
                    let maker = Maker { thread, mounts, groups, to, done: said };
                    let group = group.into_iter().chain(self.rest.take()).reduce(Group::with);
                    return Some(Born { child, group, told, released, maker });
                }
            }
        }
    }
}

impl Drop for Birth {
    fn drop(&mut self) {
        let rest = self.rest.take();
        let end = |group: Option<Group>| drop(group.map(|group| group.end(PATIENCE)));
        let Some(Ways { to, said, mounts: _, groups: _, apart: _apart }) = self.ways.take() else {
            return end(rest);
        };
        // Nobody will tell it anything: what speaks to it goes with the word that it has begun.
        drop(to);
        while let Ok(word) = said.recv() {
            let Said::Made(child, group, _thread) = word else { continue };
            if let Ok(child) = child {
                let signalled = sys::pidfd::send_signal(&child.pidfd, 9);
                let reaped = sys::pidfd::wait(&child.pidfd);
                drop((signalled, reaped));
            }
            end(group);
        }
        end(rest);
    }
}
