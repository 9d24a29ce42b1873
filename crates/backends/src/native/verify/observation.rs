//! What was seen from outside while the guest was on its way.

use std::path::PathBuf;

use policy::Plan;
use policy::control::{Control, Namespace};
use sys::paths::Identity;
use sys::proc::{Mount, Process};

use crate::native::capacity::WatchedMounts;
use crate::native::prepare::Prepared;
use crate::native::start::GuestProcess;

/// What was seen from outside while the guest was on its way: later it cannot be traced, and nobody may look.
#[derive(Debug, Default)]
pub(crate) struct Observation {
    /// Kinds of namespace that are not ours.
    pub(super) namespaces: Vec<Namespace>,
    /// The limits of its group, as the kernel has them; `None` = it is in no group of ours.
    pub(super) limits: Option<sys::cgroup::Limits>,
    /// Its mounts, when nothing could change them any more.
    pub(crate) mounts: Option<Vec<Mount>>,
    /// Nodes of devices that the plan gives, with the numbers that were found.
    pub(super) devices: Vec<(PathBuf, (u32, u32))>,
    /// What was found where the plan shows a tree or file of the host itself.
    pub(super) shown: Vec<(PathBuf, Identity)>,
    /// Where the certificates of the run are read.
    pub(super) certificates: Vec<PathBuf>,
    /// The packet socket of a machine's link.
    pub(super) link: Option<sys::inlet::Frames>,
    /// The sockets that came out.
    pub(super) sockets: Vec<sys::inlet::Inlet>,
    /// The network namespace of these sockets.
    pub(crate) network: Option<u64>,
    /// Why something could not be seen.
    pub(crate) blind: Vec<String>,
}

impl Observation {
    /// What is settled when the guest begins and nothing of it changes later: its namespaces and its control groups.
    pub(crate) fn born(&mut self, held: &GuestProcess, plan: &Plan) {
        let kind = |control: &Control| if let Control::Namespace(kind) = control { Some(*kind) } else { None };
        let mut demanded: Vec<Namespace> = plan.controls().filter_map(kind).collect();
        demanded.sort_unstable();
        demanded.dedup();
        if let Err(why) = self.namespaces(held.guest, &demanded) {
            self.blind.push(format!("the namespaces could not be read: {why}"));
        }
        if let Some(group) = &held.group {
            match (group.holds(held.guest), group.limits()) {
                (Ok(true), Ok(limits)) => self.limits = Some(limits),
                (Ok(_), Ok(_)) => self.blind.push("the guest is not in its control group".to_owned()),
                (Err(why), _) | (_, Err(why)) => {
                    self.blind.push(format!("the control group could not be read: {why}"));
                }
            }
        }
    }

    /// The sockets that came out, before they are the broker's; with a link, its packet socket is the last.
    pub(crate) fn sockets(&mut self, sockets: &[std::os::fd::OwnedFd], link: bool) {
        let (sockets, frames) = match sockets.split_last() {
            Some((frames, sockets)) if link => (sockets, Some(frames)),
            Some(_) | None => (sockets, None),
        };
        match frames.map(sys::inlet::look_frames).transpose() {
            Ok(frames) => self.link = frames,
            Err(why) => self.blind.push(format!("a machine's link could not be looked at: {why}")),
        }
        for socket in sockets {
            match sys::inlet::look(socket) {
                Ok(inlet) => self.sockets.push(inlet),
                Err(why) => self.blind.push(format!("a socket of the sandbox could not be looked at: {why}")),
            }
        }
    }

    fn namespaces(&mut self, pid: i32, demanded: &[Namespace]) -> sys::error::Result<()> {
        if demanded.is_empty() {
            return Ok(());
        }
        let (process, own) = (Process::open(pid)?, Process::own()?);
        for kind in demanded.iter().copied() {
            // A kernel without one of them has no link for it.
            if let (Ok(theirs), Ok(ours)) = (process.namespace(of_kernel(kind)), own.namespace(of_kernel(kind)))
                && theirs != ours
            {
                self.namespaces.push(kind);
                self.network = self.network.or((kind == Namespace::Net).then_some(theirs));
            }
        }
        Ok(())
    }

    /// The mounts, once the guest has no capability left to change them: while it goes on with its steps.
    pub(crate) fn settled(&mut self, held: &mut GuestProcess, prepared: &Prepared) {
        let seen = Process::open(held.guest).and_then(|process| Ok((process.mounts()?, process)));
        match seen {
            Ok((mounts, process)) => {
                self.mounts = Some(mounts);
                held.watched = WatchedMounts::of(&process, &held.scope.in_memory);
                for placed in prepared.placed.iter().filter(|placed| placed.is.is_some()) {
                    let found = process.place_at(&placed.point.to_string_lossy()).and_then(sys::paths::identity);
                    self.shown.extend(found.ok().map(|identity| (placed.point.clone(), identity)));
                }
                let trusted =
                    |at: &&PathBuf| prepared.certificates.as_ref().is_some_and(|all| all.are_read(&process, at));
                self.certificates = prepared.blueprint.certificates.iter().flatten().filter(trusted).cloned().collect();
                for (at, _) in &prepared.blueprint.devices {
                    let found = process.place_at(&at.to_string_lossy()).and_then(sys::paths::character_device);
                    self.devices.extend(found.ok().flatten().map(|numbers| (at.clone(), numbers)));
                }
            }
            Err(error) => self.blind.push(format!("the mounts could not be read: {error}")),
        }
    }
}

const fn of_kernel(kind: Namespace) -> sys::proc::Namespace {
    match kind {
        Namespace::User => sys::proc::Namespace::User,
        Namespace::Mount => sys::proc::Namespace::Mount,
        Namespace::Pid => sys::proc::Namespace::Pid,
        Namespace::Net => sys::proc::Namespace::Net,
        Namespace::Ipc => sys::proc::Namespace::Ipc,
        Namespace::Uts => sys::proc::Namespace::Uts,
        Namespace::Cgroup => sys::proc::Namespace::Cgroup,
        Namespace::Time => sys::proc::Namespace::Time,
    }
}
