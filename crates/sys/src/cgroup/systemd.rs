//! A delegated group from the service manager: the way for a user without privilege to have limits on a v2 host.
//!
//! *Promises*: on success this process lies in a leaf of a group that systemd has handed over (`Delegate=yes`), that
//! group itself holds no process, hands down what it has, and a probe made afterwards finds it. When the manager
//! refused, nothing has moved. No limit is left behind by it: a group whose limits would be escaped is not left, and its
//! number of tasks goes along.
//!
//! *Does not promise*: that a manager which answers too late does not move this process after all; that a controller is
//! there: systemd gives users memory, pids and cpu, and cpuset and io only where the administrator says so.
//! [`super::Available`] tells.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::bus::{Body, Method, call};
use super::detect::{below, exists, limited_beside_tasks, read};
use crate::error::{Error, ErrorContext as _};
use crate::proc::Process;

pub use super::bus::BusError;

/// No group was handed over.
#[derive(Debug, thiserror::Error)]
pub enum DelegationError {
    /// The bus or the manager said no.
    #[error("the service manager did not start `{unit}`: {source}")]
    Refused {
        /// Unit.
        unit: String,
        /// Answer.
        source: BusError,
    },
    /// The bus took the connection and never answered.
    #[error("the service manager did not answer about `{unit}` within {} s", .limit.as_secs())]
    NoAnswer {
        /// Unit.
        unit: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The manager took the request, and this process was not moved in time.
    #[error("this process was not moved into `{unit}` within {} s", .limit.as_secs())]
    NotMoved {
        /// Unit.
        unit: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The group that would be left has limits, which nothing would hold in the new one.
    #[error("`{}` has limits of its own, which a group of the service manager's would escape", .path.display())]
    Bound {
        /// Folder.
        path: PathBuf,
    },
    /// A leaf could not be made in the scope.
    #[error("{0}")]
    Call(#[from] Error),
}

/// Asks the manager on the bus at `socket` for scope `unit` (ending in `.scope`) around this process, waits until it is there,
/// and moves this process into leaf `leaf` of it. Returns the scope's group as `/proc/self/cgroup` names it.
///
/// # Errors
/// As the variants say.
pub fn delegate(socket: &Path, unit: &str, leaf: &str, limit: Duration) -> Result<String, DelegationError> {
    let tasks = go_along()?;
    let started = Instant::now();
    match call(socket, &START, &scope(unit, tasks), started.checked_add(limit).unwrap_or(started)) {
        Ok(()) => {}
        Err(BusError::Late) => return Err(DelegationError::NoAnswer { unit: unit.to_owned(), limit }),
        Err(source) => return Err(DelegationError::Refused { unit: unit.to_owned(), source }),
    }
    let deadline = Instant::now().checked_add(limit);
    loop {
        let own = own_group()?;
        if own.rsplit('/').next() == Some(unit) {
            let scope = folder_of(&own)?;
            settle(&crate::paths::open_folder(&scope)?, &scope, leaf)?;
            return Ok(own);
        }
        if deadline.is_none_or(|deadline| Instant::now() >= deadline) {
            return Err(DelegationError::NotMoved { unit: unit.to_owned(), limit });
        }
        let mut nothing: [PollFd<'_>; 0] = [];
        match rustix::event::poll(&mut nothing, Some(&Timespec { tv_sec: 0, tv_nsec: 1_000_000 })) {
            Ok(_) | Err(_) => {}
        }
    }
}

/// systemd's answer is a job that is only queued: that it was done shows in the own group.
const START: Method<'_> = Method {
    to: "org.freedesktop.systemd1",
    path: "/org/freedesktop/systemd1",
    interface: "org.freedesktop.systemd1.Manager",
    name: "StartTransientUnit",
    signature: "ssa(sv)a(sa(sv))",
};

/// Its arguments: name, what to do with a unit of that name, properties, and no further units.
fn scope(unit: &str, tasks: Option<u64>) -> Body {
    let mut body = Body::default();
    body.text(unit);
    body.text("fail");
    body.list(8, |body| {
        property(body, "Description", "s", |body| body.text("a sandbox and its supervisor"));
        property(body, "Delegate", "b", |body| body.truth(true));
        // Whoever asks, by the credentials of the connection: the manager may live in another pid namespace, where our
        // number is somebody else's.
        property(body, "PIDs", "au", |body| body.list(4, |body| body.number(0)));
        // A scope that failed must not stay in the manager's list.
        property(body, "CollectMode", "s", |body| body.text("inactive-or-failed"));
        if let Some(most) = tasks {
            property(body, "TasksMax", "t", |body| body.wide(most));
        }
    });
    body.list(8, |_none| {});
    body
}

fn property(body: &mut Body, name: &str, kind: &str, value: impl FnOnce(&mut Body)) {
    body.entry();
    body.text(name);
    body.types(kind);
    value(body);
}

fn own_group() -> Result<String, Error> {
    let unified = Process::own()?.cgroups()?.into_iter().find(|one| one.controllers.is_empty());
    unified.map(|one| one.path).ok_or_else(|| Error::new("read", "/proc/self/cgroup", Errno::NOENT))
}

/// Makes the own group usable when the service manager has handed it over to this process alone, as in a service or scope
/// with `Delegate=yes`: this process goes into leaf `leaf`, and limits of the group keep holding. Says whether it did.
///
/// # Errors
/// The group cannot be read, or not be written though it is ours.
pub fn settle_in_own(leaf: &str) -> Result<bool, Error> {
    let scope = folder_of(&own_group()?)?;
    let folder = crate::paths::open_folder(&scope)?;
    if !delegated(&folder) || read(&folder, "cgroup.procs")? != std::process::id().to_string() {
        return Ok(false);
    }
    settle(&folder, &scope, leaf).map(|()| true)
}

/// systemd writes down what it has given away: `user.` is there since 251, `trusted.` is for root's eyes alone.
fn delegated(folder: &OwnedFd) -> bool {
    let given = |name: &str| {
        let mut value = [0_u8; 4];
        matches!(rustix::fs::fgetxattr(folder, name, &mut value), Ok(1)) && value.first() == Some(&b'1')
    };
    given("user.delegate") || given("trusted.delegate")
}

/// The folder of a group as `/proc/self/cgroup` names it.
fn folder_of(own: &str) -> Result<PathBuf, Error> {
    let mounts = Process::own()?.mounts_of(|kind| kind == "cgroup2")?;
    let mount = mounts.last().ok_or_else(|| Error::new("open", "cgroup2", Errno::NOENT))?;
    below(mount, own).map_err(|_outside| Error::new("open", own, Errno::XDEV))
}

/// What the new scope must be held to as well: the fewest tasks of all groups that are left. The groups that every scope
/// of this user is in hold there too; what the service manager gives each unit by itself is a number of tasks alone.
fn go_along() -> Result<Option<u64>, DelegationError> {
    let user = crate::caller::euid();
    let stays =
        ["user.slice".to_owned(), format!("user-{user}.slice"), format!("user@{user}.service"), "app.slice".to_owned()];
    let own = folder_of(&own_group()?)?;
    let mut tasks: Option<u64> = None;
    for path in own.ancestors() {
        if path.file_name().is_some_and(|name| stays.iter().any(|one| name == one.as_str())) {
            continue;
        }
        let folder = crate::paths::open_folder(path)?;
        if !exists(&folder, "cgroup.type") {
            break;
        }
        if limited_beside_tasks(&folder) {
            return Err(DelegationError::Bound { path: path.to_path_buf() });
        }
        let most = read(&folder, "pids.max").ok().and_then(|text| text.parse::<u64>().ok());
        tasks = tasks.into_iter().chain(most).min();
    }
    Ok(tasks)
}

/// v2 hands controllers down only from a group without processes: this one goes into a leaf, and the group then hands
/// down all it has. What it cannot hand down it does not offer, and the next probe says so.
fn settle(folder: &OwnedFd, path: &Path, leaf: &str) -> Result<(), Error> {
    let object = || path.join(leaf).display().to_string();
    match rustix::fs::mkdirat(folder, leaf, Mode::from_bits_retain(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Error::new("mkdirat", object(), errno)),
    }
    let open = |name: &str| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        rustix::fs::openat(folder, name, flags, Mode::empty()).named("openat", object)
    };
    rustix::io::write(&open(&format!("{leaf}/cgroup.procs"))?, b"0").named("write", object)?;
    let control = open("cgroup.subtree_control")?;
    for controller in read(folder, "cgroup.controllers")?.split(' ').filter(|name| !name.is_empty()) {
        // One by one: a controller that the kernel keeps back must not cost the others.
        match rustix::io::write(&control, format!("+{controller}").as_bytes()) {
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}
