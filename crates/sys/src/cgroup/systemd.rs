//! A delegated group from the service manager: the way for a user without privilege to have limits on a v2 host.
//!
//! *Promises*: on success this process lies in a leaf of a scope that systemd has handed over (`Delegate=yes`), the
//! scope itself holds no process, and a probe made afterwards finds it. When the manager refused, nothing has moved.
//!
//! *Does not promise*: that a manager which answers too late does not move this process after all; that a controller is handed down; systemd gives users memory and pids, and cpu, cpuset and io
//! only where the administrator says so. [`super::Available`] tells.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::bus::{Body, Method, call};
use crate::error::{Error, Named as _};
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
    let started = Instant::now();
    match call(socket, &START, &scope(unit), started.checked_add(limit).unwrap_or(started)) {
        Ok(()) => {}
        Err(BusError::Late) => return Err(DelegationError::NoAnswer { unit: unit.to_owned(), limit }),
        Err(source) => return Err(DelegationError::Refused { unit: unit.to_owned(), source }),
    }
    let deadline = Instant::now().checked_add(limit);
    loop {
        let own = own_group()?;
        if own.rsplit('/').next() == Some(unit) {
            settle(&own, leaf)?;
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
fn scope(unit: &str) -> Body {
    let mut body = Body::default();
    body.text(unit);
    body.text("fail");
    body.list(8, |body| {
        property(body, "Description", "s", |body| body.text("a sandbox and its supervisor"));
        property(body, "Delegate", "b", |body| body.truth(true));
        property(body, "PIDs", "au", |body| body.list(4, |body| body.number(std::process::id())));
        // A scope that failed must not stay in the manager's list.
        property(body, "CollectMode", "s", |body| body.text("inactive-or-failed"));
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

/// v2 hands controllers down only from a group without processes: this one goes into a leaf.
fn settle(own: &str, leaf: &str) -> Result<(), Error> {
    let mounts = Process::own()?.mounts()?;
    let mount = mounts.iter().rev().find(|mount| mount.kind == "cgroup2");
    let mount = mount.ok_or_else(|| Error::new("open", "cgroup2", Errno::NOENT))?;
    let inner = if mount.root == "/" { Some(own) } else { own.strip_prefix(mount.root.as_str()) };
    let inner = inner.ok_or_else(|| Error::new("open", own, Errno::XDEV))?;
    let scope = Path::new(&mount.point).join(inner.trim_start_matches('/'));
    let folder = crate::paths::open_folder(&scope)?;
    let object = || scope.join(leaf).display().to_string();
    match rustix::fs::mkdirat(&folder, leaf, Mode::from_bits_retain(0o755)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(Error::new("mkdirat", object(), errno)),
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let procs: OwnedFd =
        rustix::fs::openat(&folder, format!("{leaf}/cgroup.procs"), flags, Mode::empty()).named("openat", object)?;
    rustix::io::write(&procs, b"0").named("write", object).map(|_written| ())
}
