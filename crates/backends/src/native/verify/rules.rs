//! The evidence of Landlock and of the filter: attempts, and what the kernel answered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use guest::config::OwnedProbe as Probe;
use policy::control::Filter;

use super::{Evident, Proof, must};
use crate::native::{filter, landlock, words};

/// Whether one lies within the other.
fn meets(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

impl Proof<'_> {
    /// The layer is in force, and no rule of it lets anything be executed that `allowed` does not know.
    pub(super) fn executable(&self, allowed: impl Fn(&Path, u64) -> bool) -> Evident {
        use sys::landlock::fs::EXECUTE;
        self.landlock()?;
        let Some(layer) = &self.started.prepared.config.landlock else { return Err("there is no layer".to_owned()) };
        must(layer.handled_fs & EXECUTE != 0, || "the layer does not handle execution".to_owned())?;
        for rule in layer.rules.iter().filter(|rule| rule.access & EXECUTE != 0) {
            let path = Path::new(OsStr::from_bytes(rule.path.to_bytes()));
            must(allowed(path, rule.access), || format!("{} can be executed", path.display()))?;
        }
        Ok(())
    }

    /// Rights of Landlock add up along a path: nothing that can be executed lies above or below what can be written.
    pub(super) fn never_written(&self) -> Evident {
        use sys::landlock::fs::WRITE_FILE;
        let rules = self.started.prepared.config.landlock.iter().flat_map(|layer| &layer.rules);
        let written: Vec<&Path> = rules
            .filter(|rule| rule.access & WRITE_FILE != 0)
            .map(|rule| Path::new(OsStr::from_bytes(rule.path.to_bytes())))
            .collect();
        self.executable(|path, _| !written.iter().any(|other| meets(path, other)))
    }

    /// Nothing but what is listed, and the loaders that a listed program needs.
    pub(super) fn listed(&self, files: &[PathBuf]) -> Evident {
        let loaders = landlock::loaders();
        let listed = |path: &Path| {
            loaders.iter().chain(files).any(|file| file == path || file.canonicalize().is_ok_and(|file| file == path))
        };
        self.executable(|path, _| listed(path))
    }

    /// The layer is in force, and no rule of it lets more of a writable place be written to than the listed folders; nor does the
    /// filter let a descriptor that only reads change a file.
    pub(super) fn written_only(&self, folders: &[PathBuf]) -> Evident {
        use sys::landlock::fs::WRITE_FILE;
        self.landlock()?;
        let prepared = &self.started.prepared;
        must(prepared.blueprint.folders.as_deref() == Some(folders), || "nobody kept to the list".to_owned())?;
        let closed = prepared.filter.as_ref().is_some_and(filter::Built::closes_leases);
        must(closed, || "files elsewhere can be acted on through a descriptor that reads".to_owned())?;
        let rules = prepared.config.landlock.iter().flat_map(|layer| &layer.rules);
        let own = prepared.folder.as_ref().and_then(|own| own.canonicalize().ok());
        for rule in rules.filter(|rule| rule.access & WRITE_FILE != 0) {
            let path = Path::new(OsStr::from_bytes(rule.path.to_bytes()));
            if own.as_ref().is_some_and(|own| path.starts_with(own)) {
                continue;
            }
            for placed in prepared.placed.iter().filter(|placed| placed.write) {
                let point = placed.point.canonicalize().ok().filter(|_| !self.container());
                let point = point.as_ref().unwrap_or(&placed.point);
                let listed = |folder: &PathBuf| match folder.strip_prefix(&placed.at) {
                    Ok(below) => path.starts_with(point.join(below)),
                    Err(_) => placed.at.starts_with(folder),
                };
                must(!meets(path, point) || folders.iter().any(listed), || {
                    format!("{} can be written to", path.display())
                })?;
            }
        }
        Ok(())
    }

    /// An open that must fail and one that must work.
    pub(super) fn landlock(&self) -> Evident {
        must(self.posture.landlock_layers > 0, || "no layer was put on".to_owned())?;
        let opens = |probe: &Probe| matches!(probe, Probe::OpenMustFail(_));
        if self.container() || self.started.prepared.config.probes.iter().any(opens) {
            self.probed(opens)?;
        } else {
            must(self.posture.signal_scope_proven, || "nothing was seen to be refused".to_owned())?;
        }
        self.probed(|probe| matches!(probe, Probe::OpenMustWork(_)))
    }

    pub(super) fn rule(&self, path: &Path) -> Evident {
        let prepared = &self.started.prepared;
        let placed = prepared.placed.iter().any(|placed| placed.at == *path);
        must(placed, || format!("{} has no rule", path.display()))?;
        let planned = prepared.config.landlock.as_ref().map_or(0, |layer| layer.rules.len());
        must(usize::try_from(self.posture.landlock_rules) == Ok(planned), || {
            format!("the layer has {} rules", self.posture.landlock_rules)
        })
    }

    /// At least one probe of a kind was made, and all of them were answered as they must be.
    pub(super) fn probed(&self, kind: impl Fn(&Probe) -> bool) -> Evident {
        let asked = &self.started.prepared.config.probes;
        must(asked.len() == self.posture.probes.len(), || format!("{} probes were made", self.posture.probes.len()))?;
        let mut made = 0_usize;
        for (probe, errno) in asked.iter().zip(self.posture.probes.iter()).filter(|(probe, _)| kind(probe)) {
            made = made.saturating_add(1);
            must(probe.held(errno), || {
                format!("{}, and the kernel's answer was: {}", words::probe(probe), words::answer(errno))
            })?;
        }
        must(made > 0, || "no probe was made".to_owned())
    }

    /// The kernel's answer to one attempted call.
    pub(super) fn answer(&self, number: u32, args: &[u64; 6]) -> Option<i32> {
        let mut answers = self.started.prepared.config.probes.iter().zip(self.posture.probes.iter());
        let of_it =
            |probe: &Probe| matches!(probe, Probe::Call { number: n, args: a, .. } if *n == number && a == args);
        answers.find(|(probe, _)| of_it(probe)).map(|(_, errno)| errno)
    }

    pub(super) fn filter(&self, part: &Filter) -> Evident {
        let Some(built) = &self.started.prepared.filter else { return Err("there is no filter".to_owned()) };
        must(self.posture.seccomp_mode == 2 && self.status.seccomp == 2, || {
            format!("the seccomp mode is {}", self.status.seccomp)
        })?;
        self.probed(|probe| matches!(probe, Probe::Call { errno: 0, .. }))?;
        self.probed(|probe| matches!(probe, Probe::Call { errno, .. } if *errno != 0))?;
        match part {
            Filter::Profile(_) => Ok(()),
            Filter::Allow(names) => built.named(names, true, |number, args| self.answer(number, args)),
            Filter::Deny(names) => built.named(names, false, |number, args| self.answer(number, args)),
            Filter::NoUnix => must(built.closes_unix(), || "unix sockets can be made".to_owned()),
            Filter::SharedFiles { locks } => {
                let blueprint = &self.started.prepared.blueprint;
                must(blueprint.shared_files, || "nobody closed what acts on files of others".to_owned())?;
                let asked = blueprint.allow.iter().any(|name| name == "inotify_add_watch");
                must(built.closes_watches() || asked, || "folders of others can be watched".to_owned())?;
                must(built.closes_leases() && (built.closes_locks() || !locks), || {
                    "files of others can be held".to_owned()
                })
            }
            Filter::SharedPids => must(built.closes_others(), || "other processes can be reached".to_owned()),
            Filter::Visible => must(built.closes_undumpable(), || "a process can become undumpable".to_owned()),
            Filter::CountedMemory => {
                must(built.closes_uncounted(), || "memory can be had that nobody counts".to_owned())
            }
            Filter::NoInet => self.probed(|probe| matches!(probe, Probe::SocketMustFail { family: 2 | 10, .. })),
        }
    }
}
