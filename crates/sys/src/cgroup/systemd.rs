//! A delegated group from the service manager: the way for a user without privilege to have limits on a v2 host.
//!
//! *Promises*: on success this process lies in a leaf of a scope that systemd has handed over (`Delegate=yes`), the
//! scope itself holds no process, and a probe made afterwards finds it. When the manager refused, nothing has moved.
//!
//! *Does not promise*: that a manager which answers too late does not move this process after all; that a controller is handed down; systemd gives users memory and pids, and cpu, cpuset and io
//! only where the administrator says so. [`super::Available`] tells.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use zbus::{OwnedObjectPath, Variant};

use crate::error::{Error, Named as _};
use crate::proc::Process;

/// Which bus the service manager is on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bus {
    /// The system's, for root.
    System,
    /// The user's, by its socket, usually `/run/user/UID/bus`.
    User(PathBuf),
}

/// No group was handed over.
#[derive(Debug, thiserror::Error)]
pub enum DelegationError {
    /// The bus or the manager said no.
    #[error("the service manager did not start `{unit}`: {source}")]
    Refused {
        /// Unit.
        unit: String,
        /// Answer.
        source: Box<zbus::Error>,
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

type Properties<'a> = Vec<(&'a str, Variant<'a>)>;

/// Asks for scope `unit` (ending in `.scope`) around this process, waits until it is there, and moves this process into
/// leaf `leaf` of it. Returns the scope's group as `/proc/self/cgroup` names it.
///
/// # Errors
/// As the variants say.
pub fn delegate(bus: &Bus, unit: &str, leaf: &str, limit: Duration) -> Result<String, DelegationError> {
    let refused = |source| DelegationError::Refused { unit: unit.to_owned(), source: Box::new(source) };
    // In a thread of its own: the bus's own time limit covers calls, not the greeting before them, and a bus that accepts
    // and stays silent would hold the start for minutes.
    let (told, answer) = std::sync::mpsc::channel();
    let (bus, name) = (bus.clone(), unit.to_owned());
    std::thread::spawn(move || {
        // Nobody listens any more when the answer comes too late.
        drop(told.send(zbus::block_on(ask(&bus, &name, limit))));
    });
    match answer.recv_timeout(limit) {
        Ok(asked) => asked.map_err(refused)?,
        Err(_too_late) => return Err(DelegationError::NoAnswer { unit: unit.to_owned(), limit }),
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
async fn ask(bus: &Bus, unit: &str, limit: Duration) -> zbus::Result<()> {
    let builder = match bus {
        Bus::System => zbus::connection::Builder::system(),
        Bus::User(socket) => zbus::connection::Builder::address(format!("unix:path={}", socket.display()).as_str()),
    };
    let connection = builder.method_timeout(limit).build().await?;
    let properties: Properties<'_> = vec![
        ("Description", Variant::from("a sandbox and its supervisor")),
        ("Delegate", Variant::from(true)),
        ("PIDs", Variant::from(vec![std::process::id()])),
        // A scope that failed must not stay in the manager's list.
        ("CollectMode", Variant::from("inactive-or-failed")),
    ];
    let none: Vec<(&str, Properties<'_>)> = Vec::new();
    let reply = connection
        .call_method(
            Some("org.freedesktop.systemd1"),
            "/org/freedesktop/systemd1",
            Some("org.freedesktop.systemd1.Manager"),
            "StartTransientUnit",
            &(unit, "fail", properties, none),
        )
        .await?;
    reply.body().deserialize::<OwnedObjectPath>().map(|_job| ())
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
