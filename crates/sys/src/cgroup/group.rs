//! One group: a folder in each hierarchy that a limit needs, entered together, killed at once, removed together.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::detect::{Base, exists, read};
use super::{CgroupError, Controller, Hierarchies, Kill, Limits, Version, limits};
use crate::error::{Error, ErrorContext as _};
use crate::pidfd;

/// The group's folder in one hierarchy.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    pub(super) folder: OwnedFd,
    pub(super) path: PathBuf,
    base: Arc<OwnedFd>,
    /// Relative to `base`.
    name: String,
}

/// A group that exists. Dropping it leaves it there: [`Group::remove`] is explicit, since it can fail.
#[derive(Debug)]
pub struct Group {
    pub(super) parts: Vec<Part>,
    tasks: Vec<OwnedFd>,
    kill: Kill,
}

/// A descriptor that becomes ready when the group ran out of memory.
#[derive(Debug)]
pub struct OomWatch {
    /// Wait on this.
    pub fd: OwnedFd,
    /// For this: `IN` for v1's event counter, `PRI` for v2's `memory.events`, which wakes for other events as well.
    pub interest: PollFlags,
}

impl Hierarchies {
    /// Makes group `folder`/`name` with `limits` below the caller's own group. The folder is shared by all groups and
    /// stays. On v2 beside v1 a part without controllers is made too, for the atomic kill and the processor times.
    ///
    /// # Errors
    /// [`CgroupError::Missing`] when the host cannot hold a limit; [`CgroupError::Limit`] when the kernel refuses a value
    /// (a parent's limit may be lower); EEXIST when the name is taken. What was made is removed again.
    pub fn create(&self, folder: &str, name: &str, limits: &Limits) -> Result<Group, CgroupError> {
        let mut group = self.empty(folder, name)?;
        if let Err(error) = self.make(&mut group, folder, name, limits) {
            // The first failure is the one to tell; what is left is found by its folder.
            drop(group.remove(Duration::from_millis(100)));
            return Err(error);
        }
        Ok(group)
    }

    fn make(&self, group: &mut Group, folder: &str, name: &str, limits: &Limits) -> Result<(), CgroupError> {
        let needed = limits.controllers();
        // The own `cpu.stat` and `cgroup.kill` of v2 need no controller.
        if let Some(base) = self.v2() {
            group.parts.push(make_part(base, folder, name, &needed)?);
        }
        for controller in &needed {
            self.base(*controller).ok_or_else(|| self.why_not(*controller))?;
        }
        for base in self.bases.iter().filter(|base| self.holds_on_v1(base, &needed)) {
            let part = make_part(base, folder, name, &needed)?;
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let tasks = rustix::fs::openat(&part.folder, "tasks", flags, Mode::empty());
            group.tasks.push(tasks.named("openat", || part.path.join("tasks").display().to_string())?);
            group.parts.push(part);
        }
        limits::apply(&group.parts, limits)
    }

    /// The folders that [`Hierarchies::create`] would make, so that they can be written down before.
    #[must_use]
    pub fn places(&self, folder: &str, name: &str, limits: &Limits) -> Vec<PathBuf> {
        let needed = limits.controllers();
        self.bases
            .iter()
            .filter(|base| base.version == Version::V2 || self.holds_on_v1(base, &needed))
            .map(|base| base.path.join(folder).join(name))
            .collect()
    }

    /// The group that an earlier process made, wherever parts of it are left. `None` when there are none.
    ///
    /// # Errors
    /// A folder cannot be opened.
    pub fn open(&self, folder: &str, name: &str) -> Result<Option<Group>, CgroupError> {
        let mut group = self.empty(folder, name)?;
        for base in &self.bases {
            match open_part(base, format!("{folder}/{name}"), base.controllers.clone()) {
                Ok(part) => group.parts.push(part),
                Err(error) if error.errno == Errno::NOENT => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok((!group.parts.is_empty()).then_some(group))
    }

    /// Names of all groups in `folder`, of all hierarchies, sorted.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn names(&self, folder: &str) -> Result<Vec<String>, CgroupError> {
        let mut names = Vec::new();
        for base in &self.bases {
            match open_folder(&base.folder, folder) {
                Ok(fd) => names.extend(children(&fd, &base.path)?),
                Err(Errno::NOENT) => {}
                Err(errno) => {
                    return Err(Error::new("openat2", base.path.join(folder).display().to_string(), errno).into());
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    /// Removes the folder that all groups share, wherever it is empty. It may be called while others make groups: the
    /// kernel removes no folder that holds one, and who makes one makes the folder again. Gives how many there were.
    #[must_use]
    pub fn remove_folder(&self, folder: &str) -> usize {
        let removed = |base: &&Base| rustix::fs::unlinkat(&base.folder, folder, AtFlags::REMOVEDIR).is_ok();
        self.bases.iter().filter(removed).count()
    }

    fn empty(&self, folder: &str, name: &str) -> Result<Group, CgroupError> {
        for part in [folder, name] {
            if part.is_empty() || part.starts_with('.') || part.contains(['/', '\n', '\0']) {
                return Err(Error::new("mkdir", part, Errno::INVAL).into());
            }
        }
        let kill = self.available().kill.clone().unwrap_or(Kill::Frozen);
        Ok(Group { parts: Vec::new(), tasks: Vec::new(), kill })
    }

    /// Whether limits are held there on v1; without a v2 beside it also whether the kill or the processor times are.
    fn holds_on_v1(&self, base: &Base, needed: &[Controller]) -> bool {
        let besides: &[Controller] =
            if self.v2().is_some() { &[] } else { &[Controller::Freezer, Controller::CpuAccounting] };
        base.version == Version::V1 && base.controllers.iter().any(|one| needed.contains(one) || besides.contains(one))
    }
}

impl Group {
    /// v1 `tasks` files, open for writing: a process that is to be in the group writes `0` into each, first thing.
    #[must_use]
    pub fn tasks(&self) -> Vec<BorrowedFd<'_>> {
        self.tasks.iter().map(|fd| fd.as_fd()).collect()
    }

    /// The v2 folder, for `CLONE_INTO_CGROUP`.
    #[must_use]
    pub fn v2_dir(&self) -> Option<BorrowedFd<'_>> {
        self.parts.iter().find(|part| part.version == Version::V2).map(|part| part.folder.as_fd())
    }

    /// The folders that were made, to be written into a journal and compared with `/proc/PID/cgroup`.
    pub fn paths(&self) -> impl Iterator<Item = (&Path, &[Controller], Version)> {
        self.parts.iter().map(|part| (part.path.as_path(), part.controllers.as_slice(), part.version))
    }

    /// The limits as the kernel holds them now.
    ///
    /// # Errors
    /// A file cannot be read or understood.
    pub fn limits(&self) -> Result<Limits, CgroupError> {
        limits::read_back(&self.parts)
    }

    /// Changes the limits of a running group; those not asked stay as they are.
    ///
    /// # Errors
    /// As [`Hierarchies::create`]; a limit whose controller the group was made without is [`CgroupError::Missing`].
    pub fn change(&self, limits: &Limits) -> Result<(), CgroupError> {
        limits::apply(&self.parts, limits)
    }

    /// Whether every part of the group names process `pid` (a number of this pid namespace).
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn holds(&self, pid: i32) -> Result<bool, CgroupError> {
        let pid = pid.to_string();
        for part in &self.parts {
            if !read(&part.folder, "cgroup.procs")?.lines().any(|line| line == pid) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Puts process `pid` into every part of the group. Whoever is born in it comes there without the kernel's wait for a grace
    /// period, 10 ms and more for each part: this is for processes that somebody else starts.
    ///
    /// # Errors
    /// ESRCH: it is gone.
    pub fn take(&self, pid: i32) -> Result<(), CgroupError> {
        self.parts.iter().try_for_each(|part| limits::write(part, "cgroup.procs", &pid.to_string()))
    }

    /// Kills everything in the group, what forks meanwhile included.
    ///
    /// # Errors
    /// A kernel file cannot be written, or processes are left after `limit`.
    pub fn kill(&self, limit: Duration) -> Result<(), CgroupError> {
        let v2 = self.parts.iter().find(|part| part.version == Version::V2);
        match (self.kill, v2) {
            (Kill::Atomic, Some(part)) if exists(&part.folder, "cgroup.kill") => {
                limits::write(part, "cgroup.kill", "1")?;
                self.wait_empty(limit)
            }
            (Kill::Atomic | Kill::Frozen, _) => self.kill_frozen(limit),
        }
    }

    /// Starts to kill everything in the group, where the kernel does that at once; whoever needs it done waits for the
    /// processes, or asks [`Group::kill`].
    ///
    /// # Errors
    /// The kernel file cannot be written.
    pub fn kill_begin(&self) -> Result<(), CgroupError> {
        match self.parts.iter().find(|part| part.version == Version::V2) {
            Some(part) if self.kill == Kill::Atomic && exists(&part.folder, "cgroup.kill") => {
                limits::write(part, "cgroup.kill", "1")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Removes the folders, and kills for `limit` what keeps them busy.
    ///
    /// # Errors
    /// As [`Group::remove`].
    pub fn end(mut self, limit: Duration) -> Result<(), CgroupError> {
        self.tasks.clear();
        let busy = |part: &Part| {
            rustix::fs::unlinkat(&*part.base, part.name.as_str(), AtFlags::REMOVEDIR).is_err_and(|e| e != Errno::NOENT)
        };
        // All of them, not until the first: what is gone is gone.
        if self.parts.iter().filter(|part| busy(part)).count() == 0 {
            return Ok(());
        }
        self.parts.retain(|part| exists(&part.folder, "cgroup.procs"));
        let killed = self.kill(limit);
        self.remove(limit).and(killed)
    }

    /// Waits until no part has a process. Killed ones count until they are gone, not until they are reaped.
    ///
    /// # Errors
    /// EBUSY: processes are left after `limit`.
    pub fn wait_empty(&self, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now().checked_add(limit);
        let mut pause = Pause::new();
        loop {
            let mut busy = None;
            for part in &self.parts {
                if !read(&part.folder, "cgroup.procs")?.is_empty() {
                    busy = Some(part);
                }
            }
            let Some(part) = busy else { return Ok(()) };
            if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                return Err(Error::new("kill", part.path.display().to_string(), Errno::BUSY).into());
            }
            pause.sleep();
        }
    }

    /// Removes the folders. Retries for `limit` while the kernel still counts a dying process.
    ///
    /// # Errors
    /// EBUSY: processes are left. The others are removed all the same; the first error is told.
    pub fn remove(self, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now().checked_add(limit);
        drop(self.tasks);
        let mut first = Ok(());
        for part in &self.parts {
            let removed = remove_part(part, deadline);
            if first.is_ok() {
                first = removed;
            }
        }
        first
    }

    /// Something to wait on for an out-of-memory event; `None` when memory is not limited by this group.
    ///
    /// # Errors
    /// The kernel file cannot be opened.
    pub fn oom_watch(&self) -> Result<Option<OomWatch>, CgroupError> {
        let Some(part) = self.parts.iter().find(|part| part.controllers.contains(&Controller::Memory)) else {
            return Ok(None);
        };
        let open = |file: &str| {
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            rustix::fs::openat(&part.folder, file, flags, Mode::empty())
                .named("openat", || part.path.join(file).display().to_string())
        };
        if part.version == Version::V2 {
            return Ok(Some(OomWatch { fd: open("memory.events")?, interest: PollFlags::PRI }));
        }
        let flags = rustix::event::EventfdFlags::CLOEXEC | rustix::event::EventfdFlags::NONBLOCK;
        let counter = rustix::event::eventfd(0, flags).named("eventfd", || "cgroup.event_control".into())?;
        let control = open("memory.oom_control")?;
        // The kernel looks both numbers up at the write; `control` need not stay open (Documentation/cgroup-v1/memory.rst).
        let numbers = [&counter, &control].map(std::os::fd::AsRawFd::as_raw_fd);
        let [counter_number, control_number] = numbers;
        limits::write(part, "cgroup.event_control", &format!("{counter_number} {control_number}"))?;
        Ok(Some(OomWatch { fd: counter, interest: PollFlags::IN }))
    }

    fn kill_frozen(&self, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now().checked_add(limit);
        let freezer = self.freezer();
        let mut pause = Pause::new();
        loop {
            if let Some((part, file, freeze, _)) = freezer {
                limits::write(part, file, freeze)?;
            }
            let any = self.kill_listed();
            // Thaw even if killing failed: a frozen process cannot die.
            if let Some((part, file, _, thaw)) = freezer {
                limits::write(part, file, thaw)?;
            }
            if !any? {
                return Ok(());
            }
            if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                return self.wait_empty(Duration::ZERO);
            }
            pause.sleep();
        }
    }

    #[cfg(test)]
    pub(super) fn kill_frozen_for_test(&self, limit: Duration) {
        self.kill_frozen(limit).unwrap();
    }

    /// Whether the group's processes can be stopped all at once.
    #[must_use]
    pub fn can_freeze(&self) -> bool {
        self.freezer().is_some()
    }

    /// Stops all processes of the group, and waits for `limit` until they stand; or lets them go on.
    ///
    /// # Errors
    /// EOPNOTSUPP: there is no freezer. EBUSY: one does not stop (it waits for a disk, say); all go on then.
    pub fn freeze(&self, frozen: bool, limit: Duration) -> Result<(), CgroupError> {
        let deadline = Instant::now().checked_add(limit);
        let missing = |errno| CgroupError::from(Error::new("freeze", "the control group", errno));
        let (part, file, freeze, thaw) = self.freezer().ok_or_else(|| missing(Errno::OPNOTSUPP))?;
        limits::write(part, file, if frozen { freeze } else { thaw })?;
        let (state, stands) = match part.version {
            Version::V1 => (file, freeze),
            Version::V2 => ("cgroup.events", "frozen 1"),
        };
        let mut pause = Pause::new();
        while frozen && !read(&part.folder, state)?.lines().any(|line| line.trim() == stands) {
            if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
                limits::write(part, file, thaw)?;
                return Err(missing(Errno::BUSY));
            }
            pause.sleep();
        }
        Ok(())
    }

    fn freezer(&self) -> Option<(&Part, &'static str, &'static str, &'static str)> {
        let v1 = self.parts.iter().find(|part| part.controllers.contains(&Controller::Freezer));
        let v2 = self.parts.iter().find(|part| part.version == Version::V2 && exists(&part.folder, "cgroup.freeze"));
        v1.map(|part| (part, "freezer.state", "FROZEN", "THAWED")).or(v2.map(|part| (part, "cgroup.freeze", "1", "0")))
    }

    /// One round. A number may be reused between list and signal, so the signal goes by descriptor, and only to what is
    /// still listed after the descriptor was opened.
    fn kill_listed(&self) -> Result<bool, CgroupError> {
        let mut any = false;
        for part in &self.parts {
            let listed = read(&part.folder, "cgroup.procs")?;
            let open: Vec<(&str, OwnedFd)> =
                listed.lines().filter_map(|line| Some((line, pidfd::open(line.parse().ok()?).ok()?))).collect();
            any |= !listed.is_empty();
            let again = read(&part.folder, "cgroup.procs")?;
            for (line, process) in open.iter().filter(|(line, _)| again.lines().any(|now| now == *line)) {
                match pidfd::send_signal(process, libc::SIGKILL) {
                    Ok(()) => {}
                    Err(error) if error.errno == Errno::SRCH => {}
                    Err(error) => return Err(Error::new("pidfd_send_signal", *line, error.errno).into()),
                }
            }
        }
        Ok(any)
    }
}

/// How long the shared folder is made again when it was removed in between. A time, not a count: who removes may be
/// scheduled just so, many times in a row.
const RACES: Duration = Duration::from_secs(5);

fn make_part(base: &Base, folder: &str, name: &str, needed: &[Controller]) -> Result<Part, CgroupError> {
    let controllers: Vec<Controller> =
        base.controllers.iter().copied().filter(|one| needed.contains(one) || base.version == Version::V1).collect();
    let relative = format!("{folder}/{name}");
    make_folder(base, folder, &relative)?;
    let part = open_part(base, relative, controllers)?;
    limits::prepare(base, folder, &part)?;
    Ok(part)
}

/// The group's folder, and before it the shared one. Somebody who removes the empty one ([`Hierarchies::remove_folder`])
/// may come between: then it is made again.
fn make_folder(base: &Base, folder: &str, relative: &str) -> Result<(), Error> {
    let mode = Mode::from_bits_retain(0o755);
    let failed = |name: &str, errno| Error::new("mkdirat", base.path.join(name).display().to_string(), errno);
    let mut deadline = None;
    loop {
        match rustix::fs::mkdirat(&base.folder, relative, mode) {
            Ok(()) => return Ok(()),
            Err(Errno::NOENT | Errno::NODEV) => {}
            Err(errno) => return Err(failed(relative, errno)),
        }
        // The clock is read by whom this concerns: the first miss is the usual one, where there is no folder yet.
        let now = Instant::now();
        if now >= *deadline.get_or_insert_with(|| now.checked_add(RACES).unwrap_or(now)) {
            return Err(failed(folder, Errno::BUSY));
        }
        match rustix::fs::mkdirat(&base.folder, folder, mode) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(folder, errno)),
        }
    }
}

fn open_part(base: &Base, name: String, controllers: Vec<Controller>) -> Result<Part, Error> {
    let path = base.path.join(&name);
    let folder = open_folder(&base.folder, &name).named("openat2", || path.display().to_string())?;
    Ok(Part { version: base.version, controllers, folder, path, base: Arc::clone(&base.folder), name })
}

pub(super) fn open_folder(base: &OwnedFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(base, name, flags, Mode::empty(), resolve)
}

fn children(folder: &OwnedFd, path: &Path) -> Result<Vec<String>, Error> {
    let object = || path.display().to_string();
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder).named("readdir", object)? {
        let entry = entry.named("readdir", object)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type() == rustix::fs::FileType::Directory && name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn remove_part(part: &Part, deadline: Option<Instant>) -> Result<(), CgroupError> {
    let mut pause = Pause::new();
    loop {
        match rustix::fs::unlinkat(&*part.base, part.name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(Errno::BUSY | Errno::INTR) if deadline.is_some_and(|deadline| Instant::now() < deadline) => {
                // Groups that something inside made keep it busy as well.
                remove_below(&part.folder, &part.path, 0)?;
                pause.sleep();
            }
            Err(errno) => return Err(Error::new("rmdir", part.path.display().to_string(), errno).into()),
        }
    }
}

fn remove_below(folder: &OwnedFd, path: &Path, depth: usize) -> Result<(), CgroupError> {
    const MAX_DEPTH: usize = 32;
    for name in children(folder, path)? {
        if depth < MAX_DEPTH
            && let Ok(child) = open_folder(folder, &name)
        {
            remove_below(&child, &path.join(&name), depth.saturating_add(1))?;
        }
        match rustix::fs::unlinkat(folder, name.as_str(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT | Errno::BUSY) => {}
            Err(errno) => return Err(Error::new("rmdir", path.join(&name).display().to_string(), errno).into()),
        }
    }
    Ok(())
}

/// Waits 50 us, then twice as long each time, up to 10 ms.
struct Pause(u64);

impl Pause {
    fn new() -> Self {
        Self(50)
    }

    fn sleep(&mut self) {
        let time = Timespec::try_from(Duration::from_micros(self.0)).ok();
        let mut nothing: [PollFd<'_>; 0] = [];
        match rustix::event::poll(&mut nothing, time.as_ref()) {
            // Woken early by a signal is as good as woken in time.
            Ok(_) | Err(_) => {}
        }
        self.0 = self.0.saturating_mul(2).min(10_000);
    }
}
