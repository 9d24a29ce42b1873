//! Posture against plan: what the guest read back, and what the kernel shows outside, must both be what was planned.

use std::collections::BTreeMap;
use std::ffi::CStr;

use guest::config::{Attrs, Config, OwnedOp as Op};
use guest::frames::{Posture, ToGuest};
use sys::proc::{Namespace, Process};

use super::identity::{INSIDE, Identity};
use super::rooms::Rooms;
use super::running::Running;
use super::start::{Confined, Held, Started};
use super::words;
use crate::StartError;
use crate::host::Capabilities;

/// SECBIT_NOROOT, NO_SETUID_FIXUP, KEEP_CAPS off, NO_CAP_AMBIENT_RAISE, each with its lock (capabilities(7)).
const SECUREBITS: u32 = 0b1110_1111;

/// What must be in force.
#[derive(Debug)]
pub(super) struct Expected {
    container: bool,
    inside: (u32, u32),
    outside: (u32, u32),
    groups_cleared: bool,
    hostname: Vec<u8>,
    rlimits: Vec<(u32, u64)>,
    landlock: bool,
    filter: bool,
    time_namespace: bool,
    terminal: bool,
    /// What the guest was told to mount.
    points: BTreeMap<String, Point>,
}

impl Expected {
    pub(super) fn of(config: &Config, identity: &Identity, host: &Capabilities, container: bool) -> Self {
        let outside = (identity.uid, identity.gid);
        Self {
            container,
            inside: if container { (INSIDE, INSIDE) } else { outside },
            outside,
            groups_cleared: host.root(),
            hostname: config.hostname.clone(),
            rlimits: config.rlimits.iter().map(|limit| (limit.resource, limit.value)).collect(),
            landlock: config.landlock.is_some(),
            filter: !config.seccomp.is_empty(),
            time_namespace: container && host.time_namespace(),
            terminal: config.tty.is_some(),
            points: points(config),
        }
    }
}

/// A posture that equals the plan. Only this has [`Verified::go`].
#[derive(Debug)]
pub struct Verified {
    confined: Confined,
}

impl Confined {
    /// Compares both views with the plan.
    ///
    /// # Errors
    /// Every difference; the guest is killed.
    pub fn verify(self) -> Result<Verified, StartError> {
        if let Some(label) = &self.started.prepared.label
            && let Some(why) = label.differs(self.posture.label.as_bytes())
        {
            return Err(StartError::Label { why });
        }
        let mut wrong = self.started.wrong.clone();
        let expected = &self.started.prepared.expected;
        inside(expected, &self.posture, &mut wrong);
        probes(&self, &mut wrong);
        must(
            &mut wrong,
            "time at which the mounts were final",
            !expected.container || self.started.mounts_seen,
            "never",
        );
        if let Err(error) = outside(expected, &self.started.child, &mut wrong) {
            wrong.push(format!("the kernel's view could not be read: {error}"));
        }
        if wrong.is_empty() { Ok(Verified { confined: self }) } else { Err(StartError::Posture(wrong)) }
    }
}

fn must(wrong: &mut Vec<String>, what: &str, holds: bool, found: impl std::fmt::Display) {
    if !holds {
        wrong.push(format!("{what} is {found}"));
    }
}

/// Numbers as they are told. Nothing is spelled out where nothing is wrong.
struct List<'a, T>(&'a [T]);

impl<T: std::fmt::Display> std::fmt::Display for List<'_, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, number) in self.0.iter().enumerate() {
            write!(f, "{}{number}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

fn inside(expected: &Expected, p: &Posture, wrong: &mut Vec<String>) {
    let (uid, gid) = expected.inside;
    must(wrong, "uid inside", [p.uid, p.euid, p.suid] == [uid; 3], List(&[p.uid, p.euid, p.suid]));
    must(wrong, "gid inside", [p.gid, p.egid, p.sgid] == [gid; 3], List(&[p.gid, p.egid, p.sgid]));
    must(wrong, "number of groups", !expected.groups_cleared || p.groups == 0, p.groups);
    must(wrong, "no_new_privs", p.no_new_privs, p.no_new_privs);
    must(wrong, "seccomp mode", !expected.filter || p.seccomp_mode == 2, p.seccomp_mode);
    must(wrong, "dumpable", p.dumpable == 0, p.dumpable);
    // In the process tier the guest must outlive us for a moment: it ends its tree when the control socket closes.
    let death_signal = if expected.container { 9 } else { 0 };
    must(wrong, "parent-death signal", p.death_signal == death_signal, p.death_signal);
    let sets = &p.capabilities;
    let all = sets.inheritable | sets.permitted | sets.effective | sets.ambient;
    must(wrong, "capability sets together", all == 0, format_args!("{all:#x}"));
    if expected.container {
        must(wrong, "securebits", p.securebits & SECUREBITS == SECUREBITS, p.securebits);
        must(wrong, "pid inside", p.pid == 1, p.pid);
        must(
            wrong,
            "host name",
            p.hostname.as_bytes() == expected.hostname,
            String::from_utf8_lossy(p.hostname.as_bytes()),
        );
    } else {
        must(wrong, "signal scope", p.signal_scope_proven, p.signal_scope_proven);
    }
    must(wrong, "Landlock layers", !expected.landlock || p.landlock_layers > 0, p.landlock_layers);
    // 0 to 3, the config, and one more while the posture is gathered; both sides of a terminal. Nothing else is open.
    let known = if expected.terminal { 8 } else { 6 };
    must(
        wrong,
        "open descriptors",
        !p.more_descriptors && p.descriptors >> known == 0,
        format_args!("{:#x}", p.descriptors),
    );
    for (resource, value) in &expected.rlimits {
        let found = usize::try_from(*resource).ok().and_then(|index| p.rlimits.get(index));
        if found != Some(&(*value, *value)) {
            let found = found.map_or_else(|| "unknown".to_owned(), |(soft, hard)| format!("{soft}, at most {hard}"));
            wrong.push(format!("resource limit {resource} is {found}"));
        }
    }
}

fn probes(confined: &Confined, wrong: &mut Vec<String>) {
    let asked = &confined.started.prepared.config.probes;
    must(wrong, "number of probes", asked.len() == confined.posture.probes.len(), confined.posture.probes.len());
    for (probe, errno) in asked.iter().zip(confined.posture.probes.iter()) {
        if !probe.held(errno) {
            wrong.push(format!("{}, and the kernel's answer was: {}", words::probe(probe), words::answer(errno)));
        }
    }
}

/// What is settled when the guest begins and nothing of it changes later: its namespaces and its control groups. Looked
/// at while the guest is busy.
pub(super) fn born(started: &Started) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Err(error) = settled(&started.prepared.expected, &started.child, &mut wrong) {
        wrong.push(format!("the kernel's view could not be read: {error}"));
    }
    wrong
}

/// The mounts, once the guest has no capability left to change them: while it goes on with its steps.
pub(super) fn mounted(started: &mut Started) -> Vec<String> {
    let mut wrong = Vec::new();
    let seen = Process::open(started.child.child.pid).and_then(|process| Ok((process.mounts()?, process)));
    match seen {
        Ok((found, process)) => {
            mounts(&started.prepared.expected, &found, &mut wrong);
            // They are what was just looked at, and there is time for it now.
            started.child.rooms = Rooms::of(&process, &started.child.in_memory);
        }
        Err(error) => wrong.push(format!("the kernel's view of the mounts could not be read: {error}")),
    }
    wrong
}

fn settled(expected: &Expected, held: &Held, wrong: &mut Vec<String>) -> Result<(), sys::error::Error> {
    if expected.container {
        let process = Process::open(held.child.pid)?;
        let own = Process::own()?;
        for kind in [
            Namespace::User,
            Namespace::Mount,
            Namespace::Pid,
            Namespace::Net,
            Namespace::Ipc,
            Namespace::Uts,
            Namespace::Cgroup,
            Namespace::Time,
        ] {
            if kind == Namespace::Time && !expected.time_namespace {
                continue;
            }
            let (theirs, ours) = (process.namespace(kind)?, own.namespace(kind)?);
            must(wrong, &format!("{} namespace", kind.name()), theirs != ours, theirs);
        }
    }
    if let Some(group) = &held.group {
        let held_there = group.holds(held.child.pid).unwrap_or(false);
        must(wrong, "control group", held_there, "another one");
    }
    Ok(())
}

/// The kernel's own view of the guest.
fn outside(expected: &Expected, held: &Held, wrong: &mut Vec<String>) -> Result<(), sys::error::Error> {
    let process = Process::open(held.child.pid)?;
    let status = process.status()?;
    let (uid, gid) = expected.outside;
    must(wrong, "uid outside", status.uid == [uid; 4], List(&status.uid));
    must(wrong, "gid outside", status.gid == [gid; 4], List(&status.gid));
    must(wrong, "no_new_privs outside", status.no_new_privs, status.no_new_privs);
    must(wrong, "seccomp outside", !expected.filter || status.seccomp == 2, status.seccomp);
    let sets = &status.capabilities;
    let all = sets.inheritable | sets.permitted | sets.effective | sets.ambient;
    must(wrong, "capability sets outside, together,", all == 0, format_args!("{all:#x}"));
    must(wrong, "set of ignored signals", status.ignored == 0, format_args!("{:#x}", status.ignored));
    if expected.container {
        must(wrong, "capability bounding set outside", sets.bounding == 0, format_args!("{:#x}", sets.bounding));
        must(wrong, "pid namespaces", status.pids.len() > 1 && status.pids.last() == Some(&1), List(&status.pids));
    }
    Ok(())
}

/// What must be mounted at one place.
#[derive(Debug, Default)]
struct Point {
    /// Mounts of the source may lie below.
    whole: bool,
    /// It must be there; a mask of something that the kernel does not have is not.
    needed: bool,
    /// Options that the uppermost mount must have.
    options: Vec<&'static str>,
}

/// Where mounts may be, and with which options.
fn points(config: &Config) -> BTreeMap<String, Point> {
    let text = |path: &CStr| sys::proc::shown(path.to_bytes());
    let root = Point { needed: true, options: options(Attrs::RDONLY | Attrs::NOSUID | Attrs::NODEV), whole: false };
    let mut all = BTreeMap::from([("/".to_owned(), root)]);
    for op in &config.ops {
        let (path, whole, needed, attrs) = match op {
            Op::Bind { path, attrs, .. } => (path, true, true, *attrs),
            Op::ReadOnly { path, .. } => (path, true, true, Attrs::RDONLY),
            Op::Stub { path, .. } => (path, false, true, Attrs::RDONLY),
            Op::Overlay { path, attrs, .. } | Op::Tmpfs { path, attrs, .. } | Op::Fill { path, attrs, .. } => {
                (path, false, true, *attrs)
            }
            Op::Devpts { path, .. } => (path, false, true, Attrs::NOSUID | Attrs::NOEXEC),
            Op::Proc { path } | Op::Mqueue { path } => {
                (path, false, true, Attrs::NOSUID | Attrs::NODEV | Attrs::NOEXEC)
            }
            Op::Pin { path } => (path, false, true, Attrs::NONE),
            Op::Mask { path, .. } => (path, false, false, Attrs::NONE),
            Op::Device { path, .. } => (path, false, true, super::devices::ATTRS),
            Op::Root { .. } | Op::Dir { .. } | Op::File { .. } | Op::Symlink { .. } | Op::SetAttr { .. } => continue,
        };
        let point = all.entry(text(path)).or_default();
        point.whole |= whole;
        point.needed |= needed;
        point.options.extend(options(attrs));
    }
    all
}

/// The words of `/proc/PID/mountinfo` for attributes of a mount.
fn options(attrs: Attrs) -> Vec<&'static str> {
    [(Attrs::RDONLY, "ro"), (Attrs::NOSUID, "nosuid"), (Attrs::NODEV, "nodev"), (Attrs::NOEXEC, "noexec")]
        .into_iter()
        .filter(|(attr, _)| attrs.bits() & attr.bits() != 0)
        .map(|(_, word)| word)
        .collect()
}

/// One root, no mount but the planned ones (nothing of the host's tree is left), and each of them as it was planned.
fn mounts(expected: &Expected, found: &[sys::proc::Mount], wrong: &mut Vec<String>) {
    let roots = found.iter().filter(|mount| mount.point == "/").count();
    must(wrong, "number of root mounts", roots == 1, roots);
    for mount in found {
        let planned = expected.points.contains_key(&mount.point)
            || expected.points.iter().any(|(place, point)| {
                point.whole && mount.point.strip_prefix(place.as_str()).is_some_and(|rest| rest.starts_with('/'))
            });
        must(wrong, "mount that nobody planned", planned, &mount.point);
    }
    for (place, point) in &expected.points {
        // The last line of a place is its uppermost mount.
        match found.iter().rev().find(|mount| mount.point == *place) {
            Some(mount) => {
                let all = point.options.iter().all(|option| mount.has(option));
                if !all {
                    let (wanted, has) = (point.options.join(", "), mount.options.join(", "));
                    wrong.push(format!("the mount at {place} must be {wanted}, and it is {has}"));
                }
            }
            None => must(wrong, "planned mount that is not there", !point.needed, place),
        }
    }
}

impl Verified {
    /// Lets the payload start.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn go(self) -> Result<Running, StartError> {
        let started = self.confined.started;
        started.control.send(ToGuest::Go)?;
        let label = started.prepared.label;
        Ok(Running { held: started.child, control: started.control, streams: started.streams, label })
    }

    /// The guest's pid outside.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.confined.started.child.child.pid
    }
}
