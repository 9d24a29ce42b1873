//! Starts a program in new namespaces without ever forking this process.
//!
//! *Promises*: the cost does not depend on this process's memory, and other threads of it go on; the child holds
//! exactly the descriptors named, dies with this process, whichever thread asked for it, and has no real-time scheduling
//! policy; a failure is a step and an errno, never a half-started child.
//!
//! *Does not promise*: that the child is confined. It runs with all capabilities of its new user namespace.
//!
//! *Kernel facts*: clone3 with `CLONE_CLEAR_SIGHAND` 5.5, `CLONE_INTO_CGROUP` 5.7, `CLOSE_RANGE_CLOEXEC` 5.11. A time
//! namespace is entered at the execution. The death signal is tied to the *thread* that made the child, so one that may
//! end before the process does lets another one make it (`keeper`).

mod child;
mod keeper;
pub(crate) mod launch;
mod trampoline;

use std::ffi::CStr;
use std::fmt::Write as _;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::io::Errno;

use keeper::Parent;

use crate::error::{Error, ErrorContext as _};

/// The steps of a start, in order. A failure names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// Moving descriptors out of the way and mapping a stack, in the caller.
    Prepare = 0,
    /// clone3.
    Clone = 1,
    /// The parent-death signal, or the parent was dead already.
    DeathSignal = 2,
    /// Giving up a real-time scheduling policy.
    Scheduling = 3,
    /// Writing `0` to the v1 `tasks` files.
    Cgroup = 4,
    /// unshare of the cgroup namespace.
    CgroupNamespace = 5,
    /// A private mount tree, and the file systems in it.
    Mounts = 6,
    /// Writing `timens_offsets`.
    TimeOffsets = 7,
    /// Writing the child's own id maps.
    IdMaps = 8,
    /// Raising ambient capabilities.
    Ambient = 9,
    /// Resetting signal dispositions.
    Signals = 10,
    /// Changing the working directory.
    Directory = 11,
    /// Placing and closing descriptors.
    Descriptors = 12,
    /// A session of its own.
    Session = 13,
    /// Taking the terminal.
    Terminal = 14,
    /// The execution itself.
    Exec = 15,
}

impl Step {
    fn from_number(number: u8) -> Self {
        const ALL: [Step; 16] = [
            Step::Prepare,
            Step::Clone,
            Step::DeathSignal,
            Step::Scheduling,
            Step::Cgroup,
            Step::CgroupNamespace,
            Step::Mounts,
            Step::TimeOffsets,
            Step::IdMaps,
            Step::Ambient,
            Step::Signals,
            Step::Directory,
            Step::Descriptors,
            Step::Session,
            Step::Terminal,
            Step::Exec,
        ];
        ALL.get(usize::from(number)).copied().unwrap_or(Step::Prepare)
    }

    /// The step in words for a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prepare => "preparing the start",
            Self::Clone => "`clone3`",
            Self::Cgroup => "entering the control groups",
            Self::CgroupNamespace => "`unshare` of the cgroup namespace",
            Self::Scheduling => "giving up the real-time scheduling policy",
            Self::DeathSignal => "setting the parent-death signal",
            Self::Mounts => "mounting in its own namespace",
            Self::TimeOffsets => "writing `timens_offsets`",
            Self::IdMaps => "writing the id maps",
            Self::Ambient => "raising ambient capabilities",
            Self::Signals => "resetting signals",
            Self::Directory => "changing the working directory",
            Self::Descriptors => "placing descriptors",
            Self::Session => "making a session",
            Self::Terminal => "taking the terminal",
            Self::Exec => "executing the program",
        }
    }
}

/// A start failed; there is no child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} failed: {errno}", step.as_str())]
pub struct SpawnError {
    /// Where.
    pub step: Step,
    /// Why.
    pub errno: Errno,
}

/// A started child. Dropping it neither kills nor reaps.
#[derive(Debug)]
pub struct Child {
    /// Its number in the caller's pid namespace.
    pub pid: i32,
    /// Its descriptor, close-on-exec.
    pub pidfd: OwnedFd,
}

/// New namespaces, by the kernel's flags. The cgroup namespace is separate: it must come after the attachment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespaces(u64);

impl Namespaces {
    /// None.
    pub const NONE: Self = Self(0);
    /// `CLONE_NEWTIME`; entered at the execution.
    pub const TIME: Self = Self(0x80);
    /// `CLONE_NEWNS`.
    pub const MOUNT: Self = Self(0x0002_0000);
    /// `CLONE_NEWUTS`.
    pub const UTS: Self = Self(0x0400_0000);
    /// `CLONE_NEWIPC`.
    pub const IPC: Self = Self(0x0800_0000);
    /// `CLONE_NEWUSER`.
    pub const USER: Self = Self(0x1000_0000);
    /// `CLONE_NEWPID`.
    pub const PID: Self = Self(0x2000_0000);
    /// `CLONE_NEWNET`.
    pub const NET: Self = Self(0x4000_0000);

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The kernel's flags of those that clone(2) makes too, which are all but a time namespace.
    #[must_use]
    pub const fn flags(self) -> u32 {
        let [a, b, c, d, ..] = (self.0 & !Self::TIME.0).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Whether all of `other` are in this.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Who writes the id maps of a new user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdMaps {
    /// Nobody here: there is no new user namespace, or [`write_id_maps`] follows after the start.
    Later,
    /// The child maps its own outside ids, one each, and gives up setgroups. Needs no privilege.
    BySelf {
        /// The caller's effective uid.
        outside_uid: u32,
        /// The caller's effective gid.
        outside_gid: u32,
        /// What it becomes inside.
        inside_uid: u32,
        /// What it becomes inside.
        inside_gid: u32,
    },
}

/// Offsets of the monotonic and boot-time clocks in a new time namespace, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeOffsets {
    /// CLOCK_MONOTONIC.
    pub monotonic: i64,
    /// CLOCK_BOOTTIME.
    pub boot: i64,
}

/// What the child mounts in its own mount namespace, before anything of its program. It is gone with the last process of
/// the namespace.
#[derive(Clone, Copy, Debug)]
pub enum InnerMount<'a> {
    /// A new file system, `nosuid` and `nodev`.
    New {
        /// Its type, e.g. `tmpfs`.
        kind: &'a CStr,
        /// An existing folder.
        at: &'a CStr,
        /// Nothing in it can be executed.
        noexec: bool,
        /// Options of the file system.
        options: &'a CStr,
    },
    /// A tree that is mounted nowhere yet ([`crate::tree::clone`]), with the attributes that it has.
    Tree {
        /// It.
        tree: BorrowedFd<'a>,
        /// An existing folder, or a file for a file.
        at: &'a CStr,
    },
}

/// A start, described wholly before anything happens.
#[derive(Clone, Copy, Debug)]
pub struct Spawn<'a> {
    /// New namespaces.
    pub namespaces: Namespaces,
    /// A v2 group to be born in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// v1 `tasks` files, open for writing, into which the child writes itself.
    pub tasks: &'a [BorrowedFd<'a>],
    /// A new cgroup namespace, made after the attachment so that the own group is its root.
    pub cgroup_namespace: bool,
    /// Mounted in this order; needs [`Namespaces::MOUNT`], whose tree becomes private.
    pub mounts: &'a [InnerMount<'a>],
    /// Id maps.
    pub id_maps: IdMaps,
    /// Clock offsets; needs [`Namespaces::TIME`].
    pub time_offsets: Option<TimeOffsets>,
    /// Capabilities (a bit each) that survive the execution although the uid is not mapped yet.
    pub ambient: u64,
    /// (descriptor, number that it gets in the child). All other descriptors are closed.
    pub fds: &'a [(BorrowedFd<'a>, i32)],
    /// The program, an executable file (not a script).
    pub program: BorrowedFd<'a>,
    /// Its arguments, the name first. The environment is empty.
    pub argv: &'a [&'a CStr],
}

impl Spawn<'_> {
    /// Starts it. Returns when the program has been executed.
    ///
    /// # Errors
    /// The step that failed and its errno. EPERM at [`Step::Clone`]: namespaces are not allowed to this user. ENOSPC at
    /// [`Step::Clone`]: a `user.max_*_namespaces` limit. EACCES at [`Step::Exec`]: the program may not be executed.
    pub fn start(&self) -> Result<Child, SpawnError> {
        self.start_beside(|_pid| ()).map(|(child, ())| child)
    }

    /// Starts it, and calls `meanwhile` with its number while it is on its way to its program. Returns when both are
    /// done.
    ///
    /// # Errors
    /// As [`Spawn::start`]; what `meanwhile` returned is dropped then.
    pub fn start_beside<R>(&self, meanwhile: impl FnOnce(i32) -> R) -> Result<(Child, R), SpawnError> {
        let maps = match self.id_maps {
            IdMaps::Later => None,
            IdMaps::BySelf { outside_uid, outside_gid, inside_uid, inside_gid } => Some(launch::MapTexts {
                uid: format!("{inside_uid} {outside_uid} 1\n").into_bytes(),
                gid: format!("{inside_gid} {outside_gid} 1\n").into_bytes(),
            }),
        };
        let offsets = self
            .time_offsets
            .map(|offsets| format!("monotonic {} 0\nboottime {} 0\n", offsets.monotonic, offsets.boot).into_bytes());
        launch::Launch {
            flags: self.namespaces.0,
            own_pid_namespace: self.namespaces.has(Namespaces::PID),
            cgroup: self.cgroup,
            tasks: self.tasks,
            cgroup_namespace: self.cgroup_namespace,
            mounts: self.mounts,
            maps: maps.as_ref(),
            time_offsets: offsets.as_deref(),
            ambient: self.ambient,
            reset_signals: false,
            directory: None,
            session: None,
            fds: self.fds,
            program: launch::Program::Fd(self.program),
            argv: self.argv,
            env: &[],
        }
        .start_from(Parent::lasting(), meanwhile)
    }
}

/// One line of a uid or gid map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdRange {
    /// First id inside.
    pub inside: u32,
    /// First id outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// Writes the maps of the user namespace of `pid`, which waits for it. `setgroups` stays allowed inside unless denied
/// here: a writer without privilege must deny it before the gid map (user_namespaces(7)).
///
/// # Errors
/// EPERM: not allowed to map these ids. EINVAL: overlapping or empty ranges. EACCES: the process cannot be read.
pub fn write_id_maps(pid: i32, uids: &[IdRange], gids: &[IdRange], deny_setgroups: bool) -> Result<(), Error> {
    if deny_setgroups {
        write_once(pid, "setgroups", b"deny")?;
    }
    write_once(pid, "gid_map", lines(gids).as_bytes())?;
    write_once(pid, "uid_map", lines(uids).as_bytes())
}

fn lines(ranges: &[IdRange]) -> String {
    ranges.iter().fold(String::new(), |mut text, range| {
        // Writing to a `String` cannot fail.
        if writeln!(text, "{} {} {}", range.inside, range.outside, range.count).is_err() {
            text.clear();
        }
        text
    })
}

/// A map file takes one write, at offset 0, and no second one.
fn write_once(pid: i32, file: &str, text: &[u8]) -> Result<(), Error> {
    let path = format!("/proc/{pid}/{file}");
    let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::CLOEXEC | rustix::fs::OFlags::NOFOLLOW;
    let fd = rustix::fs::open(path.as_str(), flags, rustix::fs::Mode::empty()).named("open", || path.clone())?;
    let written = rustix::io::write(&fd, text).named("write", || path.clone())?;
    if written == text.len() { Ok(()) } else { Err(Error::new("write", path, Errno::IO)) }
}

/// The raw number, for the child.
fn raw(fd: BorrowedFd<'_>) -> i32 {
    fd.as_raw_fd()
}

#[cfg(test)]
mod tests;
