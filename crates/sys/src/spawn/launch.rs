//! The caller's side of a start: everything prepared in plain memory, then one call.

use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicI32, AtomicU8, Ordering};
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

pub(crate) use super::child::MapTexts;
pub use super::child::Session;
use super::child::{self, Job};
use super::keeper::Parent;
use super::trampoline::{self, CLONE_INTO_CGROUP, CLONE_VFORK, Sharing};
use super::{Child, InnerMount, SpawnError, Step, raw};
use crate::scheduling::DeadlineForks;

/// Targets lie below this number.
const MAX_TARGET: i32 = 64;

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
    pub(crate) cgroup_namespace: bool,
    pub(crate) mounts: &'a [InnerMount<'a>],
    pub(crate) maps: Option<&'a MapTexts>,
    pub(crate) time_offsets: Option<&'a [u8]>,
    pub(crate) ambient: u64,
    pub(crate) reset_signals: bool,
    pub(crate) directory: Option<&'a CStr>,
    pub(crate) session: Option<Session>,
    pub(crate) fds: &'a [(BorrowedFd<'a>, i32)],
    pub(crate) program: Program<'a>,
    pub(crate) argv: &'a [&'a CStr],
    pub(crate) env: &'a [&'a CStr],
}

impl Launch<'_> {
    /// Starts it from the calling thread, with which it ends.
    pub(crate) fn start(&self) -> Result<Child, SpawnError> {
        self.start_from(Parent::Caller, |_pid| ()).map(|(child, ())| child)
    }

    /// Starts it from the calling thread, which sleeps until its program has been executed; its number alone.
    pub(crate) fn start_asleep(&self) -> Result<i32, SpawnError> {
        let launch = Self { flags: self.flags | CLONE_VFORK, ..*self };
        launch.begin(Parent::Caller, |_pid| ()).map(|(pid, _, ())| pid)
    }

    /// `meanwhile` runs while the child is on its way to its program.
    pub(super) fn start_from<R>(
        &self,
        parent: Parent,
        meanwhile: impl FnOnce(i32) -> R,
    ) -> Result<(Child, R), SpawnError> {
        match self.begin(parent, meanwhile)? {
            (pid, Some(pidfd), result) => Ok((Child { pid, pidfd }, result)),
            (_, None, _) => Err(SpawnError { step: Step::Clone, errno: Errno::NOSYS }),
        }
    }

    fn begin<R>(
        &self,
        parent: Parent,
        meanwhile: impl FnOnce(i32) -> R,
    ) -> Result<(i32, Option<OwnedFd>, R), SpawnError> {
        let prepare = |errno| SpawnError { step: Step::Prepare, errno };
        let failed = |errno| SpawnError { step: Step::Clone, errno };
        let mut moved = Vec::new();
        let mut fds = Vec::with_capacity(self.fds.len());
        // Sources lie above all targets: placing one never overwrites another. No higher than that, for who may have few.
        let first = self.fds.iter().map(|(_, target)| target.saturating_add(1)).fold(0, i32::max);
        for (source, target) in self.fds {
            if !(0..MAX_TARGET).contains(target) {
                return Err(prepare(Errno::BADF));
            }
            fds.push((from(first, *source, &mut moved).map_err(prepare)?, *target));
        }
        let program = match self.program {
            Program::Fd(fd) => child::Program::Fd(from(first, fd, &mut moved).map_err(prepare)?),
            Program::Path(path) => child::Program::Path(path.as_ptr()),
        };
        let (argv, env) = (pointers(self.argv), pointers(self.env));
        let texts = (argv.as_ptr(), env.as_ptr());
        let tasks: Vec<i32> = self.tasks.iter().map(|fd| raw(*fd)).collect();

        let _forks = DeadlineForks::allow().map_err(|errno| SpawnError { step: Step::Scheduling, errno })?;
        let first = self.job(&tasks, &fds, program, texts);
        let into = if self.cgroup.is_some() { CLONE_INTO_CGROUP } else { 0 };
        match (trampoline::start(parent, self.flags | into, self.cgroup.map(raw), child::run, &first), self.cgroup) {
            // Only clone3 is born into a group. Where a container engine forbids it, the child moves itself instead, before
            // it executes anything.
            (Err(Errno::NOSYS), Some(cgroup)) => {
                let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC;
                let members = rustix::fs::openat(cgroup, "cgroup.procs", flags, rustix::fs::Mode::empty());
                let members = members.map_err(prepare)?;
                let tasks = [&tasks[..], &[members.as_raw_fd()]].concat();
                let second = self.job(&tasks, &fds, program, texts);
                let started = trampoline::start(parent, self.flags, None, child::run, &second).map_err(failed)?;
                finish(&second, started, meanwhile)
            }
            (started, _) => finish(&first, started.map_err(failed)?, meanwhile),
        }
    }

    fn job<'a>(
        &'a self,
        tasks: &'a [i32],
        fds: &'a [(i32, i32)],
        program: child::Program,
        (argv, env): (*const *const c_char, *const *const c_char),
    ) -> Job<'a> {
        Job {
            tasks,
            cgroup_namespace: self.cgroup_namespace,
            mounts: self.mounts,
            parent: if self.own_pid_namespace { 0 } else { rustix::process::getpid().as_raw_nonzero().get() },
            time_offsets: self.time_offsets,
            maps: self.maps,
            ambient: self.ambient,
            reset_signals: self.reset_signals,
            directory: self.directory,
            session: self.session,
            open_files: crate::rlimit::open_files_of_children(),
            fds,
            program,
            argv,
            env,
            step: AtomicU8::new(Step::Clone as u8),
            errno: AtomicI32::new(0),
        }
    }
}

fn finish<R>(
    job: &Job<'_>,
    (pid, pidfd, sharing): (i32, Option<OwnedFd>, Sharing<'_>),
    meanwhile: impl FnOnce(i32) -> R,
) -> Result<(i32, Option<OwnedFd>, R), SpawnError> {
    let result = meanwhile(pid);
    drop(sharing);
    let step = Step::from_number(job.step.load(Ordering::Acquire));
    let errno = job.errno.load(Ordering::Acquire);
    if errno == 0 && step == Step::Exec {
        return Ok((pid, pidfd, result));
    }
    // Killed by a signal before its program: no errno was written.
    let errno = if errno == 0 { Errno::CHILD } else { Errno::from_raw_os_error(errno) };
    // It has exited (or is exiting): reaping cannot block for long, and a failure to reap leaves only a zombie.
    let _gone = pidfd.map_or_else(|| crate::reap::wait(pid), |pidfd| crate::pidfd::wait(&pidfd).ok());
    Err(SpawnError { step, errno })
}

/// A number from `first` on: the descriptor itself, or a copy of it.
fn from(first: i32, fd: BorrowedFd<'_>, moved: &mut Vec<OwnedFd>) -> rustix::io::Result<i32> {
    if raw(fd) >= first {
        return Ok(raw(fd));
    }
    let copy = rustix::io::fcntl_dupfd_cloexec(fd, first)?;
    let number = copy.as_raw_fd();
    moved.push(copy);
    Ok(number)
}

fn pointers(strings: &[&CStr]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
}
