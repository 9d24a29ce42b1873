//! From `Prepared` to a guest that has confined itself and waits for *go*.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::time::Duration;

use guest::config::OwnedOp as Op;
use guest::frames::{FromGuest, Posture, ToGuest};
use guest::step::Step;
use policy::value::Tier;
use sys::spawn::{Child, IdRange};

use super::birth::{Birth, Born, Kept, Maker, Wanted};
use super::control::Control;
use super::identity::INSIDE;
use super::prepare::{Prepared, Stdio};
use super::rooms::Rooms;
use super::running::Streams;
use super::words;
use crate::StartError;
use crate::host::Capabilities;

/// How long the guest may take for its steps; a healthy start takes a millisecond, a loaded machine some hundred.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// EAGAIN, of clone(2): there is a process too many.
const AGAIN: i32 = 11;
const NO_MORE_PROCESSES: &str = "this user may have no more processes (`ulimit -u`)";

/// Folder of our control groups, in each hierarchy, below the caller's own group.
pub const GROUPS: &str = "fumehood";

/// A guest that is on its way. Dropping it kills it and removes its groups.
#[derive(Debug)]
pub struct Started {
    pub(super) child: Held,
    pub(super) control: Control,
    pub(super) streams: Streams,
    pub(super) prepared: Prepared,
    terminal: Option<OwnedFd>,
    /// What is not as planned of that which was settled when the guest began.
    pub(super) wrong: Vec<String>,
    /// The mounts were compared when nothing could change them any more.
    pub(super) mounts_seen: bool,
}

/// The guest's process and groups: killed, reaped and removed when dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) child: Child,
    pub(super) group: Option<sys::cgroup::Group>,
    pub(super) reaped: bool,
    /// Everything was told to die.
    ending: bool,
    /// Where file systems are mounted whose bytes are memory.
    pub(super) in_memory: Vec<String>,
    /// The same, to be asked whether they are full.
    pub(super) rooms: Rooms,
    /// The kernel holds the memory limit.
    pub(super) memory_limited: bool,
    /// Held until nothing shows the copy of `/etc` any more.
    pub(super) _etc: Option<std::fs::File>,
    /// The guest lives no longer than the thread that made it.
    maker: Option<Maker>,
    /// While that thread and the guest end beside this one.
    beside: Option<sys::beside::Here>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        self.end();
    }
}

impl Held {
    /// Tells whatever is left to die, and does not wait for it: that takes the kernel longest of all.
    pub(super) fn begin_end(&mut self) {
        if self.ending {
            return;
        }
        self.ending = true;
        // Whoever holds these last takes their memory down: let that be the kernel's own end of the guest.
        self.rooms = Rooms::default();
        let killed = self.group.as_ref().map(sys::cgroup::Group::kill_begin);
        let signalled = sys::pidfd::send_signal(&self.child.pidfd, 9);
        drop((killed, signalled));
        // Beside whoever has something else to do until the end.
        if let Some(maker) = &self.maker {
            self.group = self.group.take().and_then(|group| maker.remove(group).err());
        }
    }

    pub(super) fn let_guest_end(&mut self) {
        let maker = self.maker.as_ref().map(|maker| maker.thread);
        let threads: Vec<i32> = std::iter::once(self.child.pid).chain(maker).collect();
        self.beside = Some(sys::beside::let_end(&threads));
    }

    /// Kills whatever is left, reaps the guest and removes its groups. Failures have no reader here: what could not be
    /// removed stays in the journal, and `gc` takes it.
    pub(super) fn end(&mut self) {
        self.reaped = true;
        self.begin_end();
        let reaped = sys::pidfd::wait(&self.child.pidfd);
        if let Some(maker) = self.maker.take() {
            maker.end();
        }
        let removed = self.group.take().map(|group| group.end(PATIENCE));
        drop((reaped, removed, self.beside.take()));
    }
}

/// The guest has confined itself; its posture is not judged yet.
#[derive(Debug)]
pub struct Confined {
    pub(super) started: Started,
    pub(super) posture: Posture,
}

/// Starts the guest, or goes on with the one that was born early.
///
/// # Errors
/// The host refused namespaces, a cgroup or a descriptor.
pub fn start(prepared: Prepared, host: &Capabilities, birth: Option<Birth>) -> Result<Started, StartError> {
    let born = birth.and_then(|birth| {
        // Writing the config and the maps takes as long as the guest's way to its program, and it waits for them.
        birth.finish(|pid, kept| {
            let Kept { config, control, streams } = kept;
            let told = streams_to_payload(&prepared, &streams).and_then(|()| tell(pid, config, &prepared, &control));
            (told, control, streams)
        })
    });
    match born {
        Some(born) => go_on(prepared, born),
        // Whatever was in the way of one that was begun early has its words here.
        None => start_now(prepared, host),
    }
}

fn start_now(prepared: Prepared, host: &Capabilities) -> Result<Started, StartError> {
    let (order, kept) = Wanted::by(&prepared).order(host, mapped(&prepared)?)?;
    let Kept { config, control, streams } = kept;
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
    let held = Held::new(child, order.group, None);
    let started = Started::new(prepared, held, control, streams);
    // Only now, so that the guest is ended if it was not told.
    told.map(|()| started)
}

fn go_on(prepared: Prepared, born: Born<(Result<(), StartError>, Control, Streams)>) -> Result<Started, StartError> {
    let Born { child, group, told, released, maker } = born;
    let child = match child {
        Ok(child) => child,
        Err(error) => {
            drop(group.map(|group| group.end(PATIENCE)));
            return Err(refused(error));
        }
    };
    // Only now, so that the guest is ended if it was not told.
    let held = Held::new(child, group, Some(maker));
    let untold = || StartError::Internal("the guest was not told its config".to_owned());
    let (told, control, streams) = told.ok_or_else(untold)?;
    told?;
    released.map_err(|e| StartError::system("letting the guest run on every processor", e))?;
    Ok(Started::new(prepared, held, control, streams))
}

impl Held {
    fn new(child: Child, group: Option<sys::cgroup::Group>, maker: Option<Maker>) -> Self {
        Self {
            child,
            group,
            reaped: false,
            ending: false,
            in_memory: Vec::new(),
            rooms: Rooms::default(),
            memory_limited: false,
            _etc: None,
            maker,
            beside: None,
        }
    }
}

impl Started {
    fn new(mut prepared: Prepared, mut held: Held, control: Control, streams: Streams) -> Self {
        held.in_memory = in_memory(&prepared.config.ops);
        held.memory_limited = prepared.limits.memory.is_some();
        held._etc = prepared.etc.take();
        Self { child: held, control, streams, terminal: None, wrong: Vec::new(), mounts_seen: false, prepared }
    }
}

/// Gives the guest what it waits for: its config, as root its id maps, and the word that both are there.
fn tell(pid: i32, config: sys::memfd::Later, prepared: &Prepared, control: &Control) -> Result<(), StartError> {
    config.fill(&prepared.config.encode()).map_err(|e| StartError::system("writing the guest's config", e))?;
    if prepared.tier == Tier::Container && !prepared.rootless {
        let (uid, gid) = prepared.owner();
        let range = |outside| [IdRange { inside: INSIDE, outside, count: 1 }];
        sys::spawn::write_id_maps(pid, &range(uid), &range(gid), false)
            .map_err(|e| StartError::system("writing the id maps", e))?;
    }
    control.send(ToGuest::Mapped)
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
            | Op::Overlay { .. }
            | Op::Device { .. }
            | Op::Devpts { .. }
            | Op::Proc { .. }
            | Op::Mqueue { .. }
            | Op::Mask { .. }
            | Op::ReadOnly { .. }
            | Op::Pin { .. }
            | Op::Stub { .. }
            | Op::SetAttr { .. } => None,
        })
        .map(|path| path.to_string_lossy().into_owned())
        .collect()
}

fn refused(error: sys::spawn::SpawnError) -> StartError {
    let words = format!("{}: {}", error.step.words(), error.errno);
    if error.errno.raw_os_error() == AGAIN {
        return StartError::system("starting the guest", NO_MORE_PROCESSES);
    }
    if error.step == sys::spawn::Step::Clone {
        return StartError::Namespaces { why: words };
    }
    StartError::system("starting the guest", words)
}

/// The pipes belong to whom the payload is outside, so that it can open them by name (`/dev/stdout`, `/dev/stdin`).
fn streams_to_payload(prepared: &Prepared, streams: &Streams) -> Result<(), StartError> {
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

fn mapped(prepared: &Prepared) -> Result<Vec<OwnedFd>, StartError> {
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

impl Started {
    /// uid and gid that the payload has outside.
    #[must_use]
    pub const fn owner(&self) -> (u32, u32) {
        self.prepared.owner()
    }

    /// Whether the guest will pass out descriptors of the workspace's layer.
    #[must_use]
    pub fn exports(&self) -> bool {
        self.prepared.exports
    }

    /// Waits for the descriptors of the workspace's layer: the overlay's upper, or the empty tmpfs of a copy, which the
    /// caller fills before it calls [`Started::filled`].
    ///
    /// # Errors
    /// A step of the guest failed.
    pub fn layer(&mut self) -> Result<OwnedFd, StartError> {
        let frame = self.expect()?;
        let FromGuest::Mounted(_) = frame else { return Err(unexpected(&frame)) };
        let mut list = self.control.take_descriptors();
        list.pop().ok_or_else(|| StartError::system("reading the guest's frames", "a descriptor is missing"))
    }

    /// The copy is complete.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn filled(&self) -> Result<(), StartError> {
        self.control.send(ToGuest::Filled)
    }

    /// Waits until the guest has confined itself and said what is in force.
    ///
    /// # Errors
    /// A step of the guest failed; it is named.
    pub fn confined(mut self) -> Result<Confined, StartError> {
        // While the guest is busy with its steps.
        self.wrong = super::verify::born(&self);
        if let (true, Some(maker)) = (self.prepared.tier == Tier::Container, &self.child.maker) {
            maker.take_down_mounts(self.child.child.pid);
        }
        loop {
            let frame = self.expect()?;
            if frame == FromGuest::Terminal {
                self.terminal = self.control.take_descriptors().pop();
                continue;
            }
            if frame == FromGuest::Settled && !self.mounts_seen {
                let seen = super::verify::mounted(&mut self);
                self.wrong.extend(seen);
                self.mounts_seen = true;
                continue;
            }
            let FromGuest::Posture(posture) = frame else { return Err(unexpected(&frame)) };
            if let Some(master) = self.terminal.take() {
                self.streams.set_terminal(master);
            }
            return Ok(Confined { started: self, posture });
        }
    }

    fn expect(&mut self) -> Result<FromGuest, StartError> {
        match self.control.wait(PATIENCE)? {
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
            return StartError::Label { why: super::label::refused(errno, detail, &why) };
        }
        // EINVAL: of locked mounts (clone_private_mount() in the kernel), or of a kind that has names of its own making.
        if let (22, Step::Mounts, Some(Op::Overlay { path, .. })) = (errno, step, self.prepared.config.ops.get(index)) {
            let why = "file systems are mounted below it, or its own is of a kind that cannot be layered, as /proc"
                .to_owned();
            return StartError::Layer { path: PathBuf::from(OsStr::from_bytes(path.to_bytes())), why };
        }
        let not_allowed = matches!(errno, 1 | 13);
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

fn unexpected(frame: &FromGuest) -> StartError {
    StartError::system("reading the guest's frames", format!("it says {} at the wrong time", words::frame(frame)))
}

/// The descriptors for the payload's three streams.
pub(super) type Inner = [OwnedFd; 3];

impl Streams {
    pub(super) fn make(stdio: Stdio) -> Result<(Self, Inner), StartError> {
        let error = |e| StartError::system("making the pipes", e);
        let null = || sys::channel::dev_null().map_err(|e| StartError::system("opening /dev/null", e));
        if let Stdio::Terminal(..) = stdio {
            return Ok((Self::default(), [null()?, null()?, null()?]));
        }
        let (output, output_inner) = sys::channel::pipe().map_err(error)?;
        let (errors, errors_inner) = sys::channel::pipe().map_err(error)?;
        let (input_inner, input) = match stdio {
            Stdio::NoInput => (null()?, None),
            Stdio::Pipes | Stdio::Terminal(..) => {
                let (read, write) = sys::channel::pipe().map_err(error)?;
                sys::channel::set_nonblocking(&write).map_err(error)?;
                (read, Some(write))
            }
        };
        for fd in [&output, &errors] {
            sys::channel::set_nonblocking(fd).map_err(error)?;
        }
        let streams = Self { input, output: Some(output), errors: Some(errors), terminal: None };
        Ok((streams, [input_inner, output_inner, errors_inner]))
    }
}
