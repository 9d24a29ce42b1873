//! From `Prepared` to a guest that has confined itself and waits for *go*.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use guest::config::OwnedOp as Op;
use guest::frames::{FromGuest, Posture, ToGuest};
use guest::step::Step;
use policy::value::Tier;
use sys::proc::Process;
use sys::spawn::{Child, IdRange};

use super::capacity::WatchedMounts;
use super::control::Control;
use super::prepare::Prepared;
use super::spawn::{Order, SupervisorHandles};
use super::survey::Scope;
use super::verify::Observation;
use super::{links, words};
use crate::StartError;
use crate::backend::{self, FoundPaths, Prepared as _, Streams};
use crate::host::Capabilities;

/// How long the guest may take for its steps; a healthy start takes a millisecond, a loaded machine some hundred.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(20);

/// EAGAIN, of clone(2): there is a process too many.
const AGAIN: i32 = 11;
const NO_MORE_PROCESSES: &str = "this user may have no more processes (`ulimit -u`)";

/// Folder of our control groups, in each hierarchy, below the caller's own group.
pub const GROUPS: &str = "fumehood";

/// A guest that is on its way. Dropping it kills it and removes its groups.
#[derive(Debug)]
pub(crate) struct Started {
    pub(crate) child: GuestProcess,
    pub(crate) control: Control,
    pub(crate) streams: Streams,
    pub(crate) prepared: Prepared,
    terminal: Option<OwnedFd>,
    /// What was seen of it from outside.
    pub(crate) seen: Observation,
}

/// The guest's process and groups: killed, reaped and removed when dropped.
#[derive(Debug)]
pub(crate) struct GuestProcess {
    pub(crate) child: Child,
    pub(crate) group: Option<sys::cgroup::Group>,
    pub(crate) reaped: bool,
    /// The guest's own number: that of the child, unless a runtime stands between.
    pub(crate) guest: i32,
    pub(crate) by: Starter,
    /// What an engine has of it.
    outer: Option<Box<dyn Outer>>,
    /// Everything was told to die.
    ending: bool,
    /// What is looked at where no control group counts.
    pub(crate) scope: Scope,
    /// Places in memory, to be asked whether they are full.
    pub(crate) watched: WatchedMounts,
    /// The kernel holds the memory limit.
    pub(crate) memory_limited: bool,
    /// Another kernel runs inside: the tasks of the group are not the program's.
    pub(crate) own_kernel: bool,
    /// The run, where its processes carry its mark.
    pub(crate) marked: Option<String>,
    /// Held until nothing shows the copy of `/etc` any more.
    pub(crate) _etc: Option<std::fs::File>,
    /// The namespace of the broker's sockets, where another kernel's packets come out. Held until the end: without the broker it is
    /// this kernel that refuses them there, and does not leave them unanswered.
    pub(crate) _outer_network: Option<OwnedFd>,
}

/// Who started the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// The supervisor, whose child it is.
    Supervisor,
    /// A runtime that is the supervisor's child.
    Runtime,
    /// An engine, whose processes are nobody's that we know.
    Engine,
}

impl Starter {
    /// Tasks of the run's group that are no program's.
    pub(crate) const fn own_tasks(self) -> u64 {
        match self {
            Self::Supervisor | Self::Engine => 1,
            Self::Runtime => 2,
        }
    }
}

/// What an engine has of a run, taken away when it is dropped.
pub(crate) trait Outer: std::fmt::Debug + Send {}

impl Drop for GuestProcess {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.end();
    }
}

impl GuestProcess {
    /// Tells whatever is left to die, and does not wait for it: that takes the kernel longest of all.
    pub(crate) fn begin_end(&mut self) {
        if self.ending {
            return;
        }
        self.ending = true;
        // Whoever holds these last takes their memory down: let that be the kernel's own end of the guest.
        self.watched = WatchedMounts::default();
        let killed = self.group.as_ref().map(sys::cgroup::Group::kill_begin);
        let signalled = sys::pidfd::send_signal(&self.child.pidfd, 9);
        drop((killed, signalled));
    }

    /// Kills whatever is left, reaps the guest and removes its groups. Failures have no reader here: what could not be
    /// removed stays in the journal, and `gc` takes it.
    pub(crate) fn end(&mut self) {
        self.reaped = true;
        self.begin_end();
        match self.by {
            Starter::Supervisor | Starter::Runtime => drop(sys::pidfd::wait(&self.child.pidfd)),
            // Another's child, who reaps it.
            Starter::Engine => {
                let ended = sys::channel::Interest { fd: self.child.pidfd.as_fd(), write: false };
                drop(sys::channel::wait(&[ended], Some(START_TIMEOUT)));
            }
        }
        let removed = self.group.take().map(|group| group.end(START_TIMEOUT));
        drop((removed, self.outer.take()));
    }
}

/// The guest has confined itself; its posture is not judged yet.
#[derive(Debug)]
pub(crate) struct Confined {
    pub(crate) started: Started,
    pub(crate) posture: Posture,
}

/// Starts the guest.
///
/// # Errors
/// The host refused namespaces, a cgroup or a descriptor.
pub(crate) fn start(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let (order, kept) = Order::of(&prepared, host, mapped(&prepared)?)?;
    let SupervisorHandles { config, control, streams, program } = kept;
    if let Err(error) = streams_to_payload(&prepared, &streams) {
        order.undo();
        return Err(error);
    }
    // Writing the config and the maps takes as long as the guest's way to its program, and it waits for them.
    let made = order.carry_out(|pid| tell(pid, config, &prepared, &control));
    let (child, told) = match made {
        Ok(made) => made,
        Err(error) => {
            order.undo();
            return Err(refused(error));
        }
    };
    let mut started = Started::new(prepared, GuestProcess::new(child, order.group), control, streams);
    started.child.scope.program = program;
    // Only now, so that the guest is ended if it was not told.
    told.map(|()| started)
}

impl GuestProcess {
    pub(crate) fn new(child: Child, group: Option<sys::cgroup::Group>) -> Self {
        Self {
            guest: child.pid,
            by: Starter::Supervisor,
            outer: None,
            child,
            group,
            reaped: false,
            ending: false,
            scope: Scope::default(),
            watched: WatchedMounts::default(),
            memory_limited: false,
            own_kernel: false,
            marked: None,
            _etc: None,
            _outer_network: None,
        }
    }

    /// A guest that an engine started, and put into its group by us.
    pub(crate) fn by_engine(child: Child, group: sys::cgroup::Group, outer: Box<dyn Outer>) -> Self {
        let mut held = Self::new(child, Some(group));
        (held.by, held.outer) = (Starter::Engine, Some(outer));
        held
    }
}

impl Started {
    pub(crate) fn new(mut prepared: Prepared, mut held: GuestProcess, control: Control, streams: Streams) -> Self {
        held.scope = scope(&prepared);
        if prepared.by_runtime.is_some() {
            held.by = Starter::Runtime;
        }
        held.memory_limited = prepared.limits.memory.is_some();
        held.marked = prepared.blueprint.mark.then(|| prepared.run.clone());
        held._etc = prepared.etc.take();
        Self { child: held, control, streams, terminal: None, seen: Observation::default(), prepared }
    }
}

/// Gives the guest what it waits for: its config, as root its id maps, and the word that both are there.
fn tell(pid: i32, config: sys::memfd::Later, prepared: &Prepared, control: &Control) -> Result<(), StartError> {
    config.fill(&prepared.told()).map_err(|e| StartError::system("writing the guest's config", e))?;
    if prepared.tier == Tier::Container && !prepared.rootless {
        let (uid, gid) = prepared.owner();
        let inside = prepared.blueprint.user.as_ref().map_or(0, |(_, id)| *id);
        let range = |outside| [IdRange { inside, outside, count: 1 }];
        sys::spawn::write_id_maps(pid, &range(uid), &range(gid), false)
            .map_err(|e| StartError::system("writing the id maps", e))?;
    }
    control.send(ToGuest::Mapped)
}

/// The guest's number outside: the only child of the runtime, and the first process of a pid namespace of its own.
///
/// # Errors
/// There is none, or there are others; in words.
fn guest_of(runtime: i32) -> Result<i32, String> {
    let told = |error: sys::error::Error| error.to_string();
    let children = Process::open(runtime).and_then(|process| process.children()).map_err(told)?;
    let [only] = children[..] else { return Err(format!("the runtime has {} children", children.len())) };
    let pids = Process::open(only).and_then(|process| process.status()).map_err(told)?.pids;
    if pids.len() > 1 && pids.last() == Some(&1) {
        Ok(only)
    } else {
        Err("its child is not the first process".to_owned())
    }
}

/// What is looked at while it runs.
fn scope(prepared: &Prepared) -> Scope {
    let looked_at = |control: &policy::Control| {
        use policy::control::Watch;
        matches!(control, policy::Control::Watch(Watch::Memory(_) | Watch::Disk(_) | Watch::Files(_) | Watch::Tmp(_)))
    };
    let folder = prepared.folder.as_ref();
    Scope {
        in_memory: in_memory(&prepared.config.ops),
        files: prepared.plan.controls().any(looked_at),
        let_go: prepared.plan.entries.iter().any(|entry| {
            entry.controls.iter().any(looked_at) && entry.controls.against() != policy::value::Threat::Mistakes
        }),
        uncharged: prepared
            .plan
            .controls()
            .any(|control| matches!(control, policy::Control::Watch(policy::control::Watch::Waiting(_)))),
        own_network: prepared.blueprint.namespaces.contains(&policy::control::Namespace::Net),
        // As the kernel shows it.
        folder: folder.map(|folder| folder.canonicalize().unwrap_or_else(|_gone| folder.clone())),
        counted_memory: prepared.blueprint.counted_memory,
        program: None,
    }
}

/// Mount points of what is kept in memory.
fn in_memory(ops: &[Op]) -> Vec<String> {
    ops.iter()
        .filter_map(|op| match op {
            Op::Tmpfs { path, .. } | Op::Fill { path, .. } => Some(path),
            Op::Overlay { path, size, .. } if *size > 0 => Some(path),
            Op::Root { .. }
            | Op::Dir { .. }
            | Op::File { .. }
            | Op::Symlink { .. }
            | Op::Bind { .. }
            | Op::BindInner { .. }
            | Op::Overlay { .. }
            | Op::Device { .. }
            | Op::Devpts { .. }
            | Op::Proc { .. }
            | Op::Mqueue { .. }
            | Op::Mask { .. }
            | Op::ReadOnly { .. }
            | Op::Pin { .. }
            | Op::SetAttr { .. } => None,
        })
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

pub(crate) fn refused(error: sys::spawn::SpawnError) -> StartError {
    let words = format!("{}: {}", error.step.as_str(), error.errno);
    if error.step == sys::spawn::Step::Scheduling {
        return StartError::RealTime { why: words };
    }
    if error.errno.raw_os_error() == AGAIN {
        return StartError::system("starting the guest", NO_MORE_PROCESSES);
    }
    if error.step == sys::spawn::Step::Clone {
        return StartError::Namespaces { why: words };
    }
    StartError::system("starting the guest", words)
}

/// The pipes belong to whom the payload is outside, so that it can open them by name (`/dev/stdout`, `/dev/stdin`).
pub(crate) fn streams_to_payload(prepared: &Prepared, streams: &Streams) -> Result<(), StartError> {
    if prepared.rootless {
        return Ok(());
    }
    let (uid, gid) = prepared.owner();
    // Either end will do: a pipe is one inode.
    for fd in [&streams.input, &streams.output, &streams.errors].into_iter().flatten() {
        sys::channel::give_pipe(fd, uid, gid).map_err(|e| StartError::system("handing over the pipes", e))?;
    }
    Ok(())
}

/// The trees that are shown with other ids, mounted nowhere, in their order.
pub(crate) fn mapped(prepared: &Prepared) -> Result<Vec<OwnedFd>, StartError> {
    let (uid, gid) = prepared.owner();
    let one = |from: &super::tree::Mapped| {
        let mapping = |why: String| StartError::Mapping { path: from.path.clone(), why };
        let failed = |e| mapping(format!("{e}"));
        let place = sys::paths::open_place(&from.path).map_err(failed)?;
        let found = sys::paths::identity(&place).map_err(failed)?;
        if (found.device, found.inode) != ((from.is.major, from.is.minor), from.is.ino) {
            return Err(mapping("it is another folder than the one that was judged".to_owned()));
        }
        sys::idmap::clone_mapped(place, (from.uid, uid), (from.gid, gid)).map_err(failed)
    };
    prepared.mapped.iter().map(one).collect()
}

impl backend::Started for Started {
    fn layers(&mut self) -> Result<Vec<(u32, OwnedFd)>, StartError> {
        if !self.prepared.exports {
            return Ok(Vec::new());
        }
        let frame = self.expect()?;
        let FromGuest::Mounted(slots) = frame else { return Err(unexpected(&frame)) };
        let list = self.control.take_descriptors();
        if list.len() != slots.iter().count() {
            return Err(StartError::system("reading the guest's frames", "a descriptor is missing"));
        }
        Ok(slots.iter().zip(list).collect())
    }

    fn sockets(&mut self) -> Result<Vec<OwnedFd>, StartError> {
        let config = &self.prepared.config;
        let planned = config.inlets.len().saturating_add(usize::from(config.link));
        let mut all = Vec::new();
        while all.len() < planned {
            let frame = self.expect()?;
            let FromGuest::Sockets(count) = frame else { return Err(unexpected(&frame)) };
            let came = self.control.take_descriptors();
            if came.len() != usize::from(count) || came.is_empty() {
                return Err(StartError::system("reading the guest's frames", "a socket is missing"));
            }
            all.extend(came);
        }
        self.seen.sockets(&all, self.prepared.config.link);
        Ok(all)
    }

    fn waits(&self) -> bool {
        self.prepared.config.wait_filled
    }

    fn filled(&self) -> Result<(), StartError> {
        self.control.send(ToGuest::Filled)
    }

    fn verify(
        self: Box<Self>,
        armed: &[policy::Control],
        found: &FoundPaths,
    ) -> Result<Box<dyn backend::Verified>, StartError> {
        let mut started = *self;
        let Some(interpreted) = started.prepared.interpreted.take() else {
            return Ok(Box::new(started.confined()?.verify(armed, found)?));
        };
        let armed: Vec<policy::Control> = armed.iter().cloned().chain(interpreted.control()).collect();
        Ok(Box::new(interpreted.prove(started.confined()?.verify(&armed, found)?.run()?)?))
    }
}

impl Started {
    /// Waits until the guest has confined itself and said what is in force.
    ///
    /// # Errors
    /// A step of the guest failed; it is named.
    pub(crate) fn confined(mut self) -> Result<Confined, StartError> {
        // While the guest is busy with its steps; a runtime may not even have made it, an engine's guest still makes a namespace.
        if self.child.by == Starter::Supervisor {
            self.seen.born(&self.child, &self.prepared.plan);
        }
        loop {
            let frame = self.expect()?;
            if frame == FromGuest::Terminal {
                self.terminal = self.control.take_descriptors().pop();
                continue;
            }
            if frame == FromGuest::Asking {
                self.answer_about_links()?;
                continue;
            }
            if frame == FromGuest::Settled {
                if self.child.by == Starter::Runtime {
                    match guest_of(self.child.child.pid) {
                        Ok(guest) => self.child.guest = guest,
                        Err(why) => self.seen.blind.push(format!("the guest could not be found: {why}")),
                    }
                }
                if self.child.by != Starter::Supervisor {
                    self.seen.born(&self.child, &self.prepared.plan);
                }
                self.seen.settled(&mut self.child, &self.prepared);
                continue;
            }
            let FromGuest::Posture(posture) = frame else { return Err(unexpected(&frame)) };
            if let Some(folder) = self.prepared.folder.as_ref().filter(|_| !self.prepared.config.asking.is_empty()) {
                let removed = std::fs::remove_file(folder.join(links::PROOF));
                removed.map_err(|error| StartError::system("removing the link of a proof", error))?;
            }
            if let Some(master) = self.terminal.take() {
                self.streams.set_terminal(master);
            }
            return Ok(Confined { started: self, posture });
        }
    }

    /// From here on, and as long as anybody of the run is left.
    fn answer_about_links(&mut self) -> Result<(), StartError> {
        let listener = self.control.take_descriptors().pop();
        let missing = || StartError::system("reading the guest's frames", "a listener is missing");
        links::answer(listener.ok_or_else(missing)?, &self.prepared, self.child.guest)
    }

    pub(crate) fn expect(&mut self) -> Result<FromGuest, StartError> {
        match self.control.wait(START_TIMEOUT)? {
            Some(FromGuest::Failed { step, errno, detail }) => Err(self.failed(step, errno, detail)),
            Some(frame) => Ok(frame),
            None => Err(StartError::system("waiting for the guest", self.end_of_guest())),
        }
    }

    /// A failed step as an error: what the host does not allow is a refusal with a remedy, the rest is told as it is.
    fn failed(&self, step: Step, errno: i32, detail: u32) -> StartError {
        let why = match errno {
            0 => "refused by its own check".to_owned(),
            AGAIN => {
                return StartError::Guest {
                    step: step.name(),
                    why: NO_MORE_PROCESSES.to_owned(),
                    detail: String::new(),
                };
            }
            errno => std::io::Error::from_raw_os_error(errno).to_string(),
        };
        let index = usize::try_from(detail).unwrap_or(usize::MAX);
        if step == Step::Label {
            return StartError::Label { why: crate::label::refused(errno, detail, &why) };
        }
        // EBUSY: a filter around has a listener; EPERM: it lets none be made.
        if step == Step::Links && detail == 2 && matches!(errno, 1 | 16) {
            return StartError::Links { why };
        }
        // EINVAL: of locked mounts (clone_private_mount() in the kernel), or of a kind that has names of its own making.
        if let (22, Step::Mounts, Some(Op::Overlay { path, .. })) = (errno, step, self.prepared.config.ops.get(index)) {
            let why = "file systems are mounted below it, or its own is of a kind that cannot be layered, as /proc"
                .to_owned();
            return StartError::Layer { path: PathBuf::from(OsStr::from_bytes(path.to_bytes())), why };
        }
        // Where no namespace of mounts was made it is none of the host's doing.
        let own_mounts = self.prepared.blueprint.namespaces.contains(&policy::control::Namespace::Mount);
        let not_allowed = own_mounts && matches!(errno, 1 | 13);
        if not_allowed && step == Step::Mounts && matches!(self.prepared.config.ops.get(index), Some(Op::Proc { .. })) {
            // mount_too_revealing() in the kernel: a fresh procfs needs one without masks outside.
            let why = format!("a fresh /proc cannot be mounted, since parts of the one outside are masked: {why}");
            return StartError::Namespaces { why };
        }
        if not_allowed && matches!(step, Step::Sources | Step::Mounts | Step::Mapped) && detail == 0 {
            let why = format!("mounting is denied inside the new namespaces (AppArmor or SELinux?): {why}");
            return StartError::Namespaces { why };
        }
        StartError::Guest { step: step.name(), why, detail: self.detail(step, detail) }
    }

    /// What the step was working on, in words.
    fn detail(&self, step: Step, detail: u32) -> String {
        let index = usize::try_from(detail).unwrap_or(usize::MAX);
        let config = &self.prepared.config;
        let rule = |layer: &guest::config::OwnedLandlock| layer.rules.get(index).map(|rule| words::path(&rule.path));
        let text = if step == Step::Sources {
            config.sources.get(index).map(words::source)
        } else if step == Step::Mounts {
            config.ops.get(index).map(words::op)
        } else if step == Step::Network {
            let inlet = || index.checked_sub(16).and_then(|at| config.inlets.get(at)).map(words::inlet);
            if index == 4 { Some(words::LINK.to_owned()) } else { inlet() }
        } else if step == Step::Landlock {
            config.landlock.as_ref().and_then(rule)
        } else if step == Step::Probes {
            config.probes.get(index).map(words::probe)
        } else {
            None
        };
        text.map(|text| format!(", {}", text.chars().take(300).collect::<String>())).unwrap_or_default()
    }

    fn end_of_guest(&mut self) -> String {
        match sys::pidfd::wait(&self.child.child.pidfd) {
            Ok((end, _)) => format!("{} before it was confined", words::end(end)),
            Err(error) => format!("it is gone: {error}"),
        }
    }
}

pub(crate) fn unexpected(frame: &FromGuest) -> StartError {
    StartError::system("reading the guest's frames", format!("it says {} at the wrong time", words::frame(frame)))
}
