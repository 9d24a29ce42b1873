//! The caller's side of a start: everything prepared in plain memory, then one call.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

pub(crate) use super::child::MapTexts;
use super::child::{self, Job};
use super::trampoline::{CLONE_INTO_CGROUP, clone_beside, clone_vfork};
use super::{Child, Joins, SpawnError, Step, raw};

/// Targets lie below this number, sources at or above it: placing one never overwrites another.
const FIRST_SOURCE: i32 = 64;

/// What to execute.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Program<'a> {
    /// An open file.
    Fd(BorrowedFd<'a>),
    /// A path.
    Path(&'a CStr),
}

/// All that a start can ask.
#[derive(Clone, Copy)]
pub(crate) struct Launch<'a> {
    pub(crate) flags: u64,
    pub(crate) own_pid_namespace: bool,
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
    pub(crate) tasks: &'a [BorrowedFd<'a>],
    pub(crate) joins: Option<Joins<'a>>,
    pub(crate) cgroup_namespace: bool,
    pub(crate) maps: Option<&'a MapTexts>,
    pub(crate) time_offsets: Option<&'a [u8]>,
    pub(crate) ambient: u64,
    pub(crate) reset_signals: bool,
    pub(crate) directory: Option<&'a CStr>,
    pub(crate) fds: &'a [(BorrowedFd<'a>, i32)],
    pub(crate) program: Program<'a>,
    pub(crate) argv: &'a [&'a CStr],
    pub(crate) env: &'a [&'a CStr],
}

impl Launch<'_> {
    pub(crate) fn start(&self) -> Result<Child, SpawnError> {
        let started = self.start_once();
        let Some(cgroup) = self.cgroup else { return started };
        if !matches!(started, Err(SpawnError { step: Step::Clone, errno: Errno::NOSYS })) {
            return started;
        }
        // Only clone3 is born into a group. Where a container engine forbids it, the child moves itself instead, before
        // it executes anything.
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
        let members = rustix::fs::openat(cgroup, "cgroup.procs", flags, rustix::fs::Mode::empty())
            .map_err(|errno| SpawnError { step: Step::Prepare, errno })?;
        let tasks: Vec<_> = self.tasks.iter().copied().chain([members.as_fd()]).collect();
        Launch { cgroup: None, tasks: &tasks, ..*self }.start_once()
    }

    fn start_once(&self) -> Result<Child, SpawnError> {
        self.run(|flags, cgroup, job| clone_vfork(flags, cgroup, child::run, job).map(|(pid, pidfd)| (pid, pidfd, ())))
            .map(|(child, ())| child)
    }

    /// `meanwhile` runs while the child is on its way to its program; where clone3 is forbidden, right afterwards.
    pub(crate) fn start_beside<R>(&self, meanwhile: impl FnOnce(i32) -> R) -> Result<(Child, R), SpawnError> {
        let mut meanwhile = Some(meanwhile);
        let started = self.run(|flags, cgroup, job| {
            clone_beside(flags, cgroup, child::run, job, |pid| meanwhile.take().map(|meanwhile| meanwhile(pid)))
        });
        match (started, meanwhile) {
            (Ok((child, Some(result))), _) => Ok((child, result)),
            (Err(SpawnError { step: Step::Clone, errno: Errno::NOSYS }), Some(meanwhile)) => {
                let child = self.start()?;
                let result = meanwhile(child.pid);
                Ok((child, result))
            }
            (Err(error), _) => Err(error),
            (Ok((_, None)), _) => Err(SpawnError { step: Step::Prepare, errno: Errno::INVAL }),
        }
    }

    fn run<R>(
        &self,
        clone: impl FnOnce(u64, Option<i32>, &Job<'_>) -> rustix::io::Result<(i32, OwnedFd, R)>,
    ) -> Result<(Child, R), SpawnError> {
        let prepare = |errno| SpawnError { step: Step::Prepare, errno };
        let mut moved = Vec::new();
        let mut fds = Vec::with_capacity(self.fds.len());
        for (source, target) in self.fds {
            if !(0..FIRST_SOURCE).contains(target) {
                return Err(prepare(Errno::BADF));
            }
            fds.push((above_targets(*source, &mut moved).map_err(prepare)?, *target));
        }
        let tasks: Vec<i32> = self.tasks.iter().map(|fd| raw(*fd)).collect();
        let entrances: Vec<(i32, *const c_char)> = self
            .joins
            .map_or(&[][..], |joins| joins.entrances)
            .iter()
            .map(|one| (one.base.as_raw_fd(), one.path.as_ptr()))
            .collect();
        let program = match self.program {
            Program::Fd(fd) => child::Program::Fd(above_targets(fd, &mut moved).map_err(prepare)?),
            Program::Path(path) => child::Program::Path(path.as_ptr()),
        };
        let argv = pointers(self.argv);
        let env = pointers(self.env);
        let job = Job {
            tasks: &tasks,
            door: self.joins.map(|joins| &joins.door.0),
            entrances: &entrances,
            cgroup_namespace: self.cgroup_namespace,
            parent: if self.own_pid_namespace { 0 } else { rustix::process::getpid().as_raw_nonzero().get() },
            time_offsets: self.time_offsets,
            maps: self.maps,
            ambient: self.ambient,
            reset_signals: self.reset_signals,
            directory: self.directory,
            fds: &fds,
            program,
            argv: argv.as_ptr(),
            env: env.as_ptr(),
            step: AtomicU8::new(Step::Clone as u8),
            errno: AtomicI32::new(0),
        };
        let into = if self.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 };
        let (pid, pidfd, result) = clone(self.flags | into, self.cgroup.map(raw), &job)
            .map_err(|errno| SpawnError { step: Step::Clone, errno })?;
        drop(moved);
        outcome(&job, pid, pidfd).map(|child| (child, result))
    }
}

fn outcome(job: &Job<'_>, pid: i32, pidfd: OwnedFd) -> Result<Child, SpawnError> {
    let step = Step::from_number(job.step.load(Ordering::Acquire));
    let errno = job.errno.load(Ordering::Acquire);
    if errno == 0 && step == Step::Exec {
        return Ok(Child { pid, pidfd });
    }
    // Killed by a signal before its program: no errno was written.
    let errno = if errno == 0 { Errno::CHILD } else { Errno::from_raw_os_error(errno) };
    // It has exited (or is exiting): reaping cannot block for long, and a failure to reap leaves only a zombie.
    drop(crate::pidfd::wait(&pidfd));
    Err(SpawnError { step, errno })
}

/// A number that no target has: the descriptor itself, or a copy of it.
fn above_targets(fd: BorrowedFd<'_>, moved: &mut Vec<OwnedFd>) -> rustix::io::Result<i32> {
    if raw(fd) >= FIRST_SOURCE {
        return Ok(raw(fd));
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, FIRST_SOURCE)?;
    let number = copy.as_raw_fd();
    moved.push(copy);
    Ok(number)
}

fn pointers(strings: &[&CStr]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}
