//! The evidence of Landlock and of the filter: attempts, and what the kernel answered.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use guest::config::{OwnedLandlock, OwnedProbe as Probe, OwnedRule};
use policy::control::{Control, Filter};
use sys::landlock::fs;

use super::{Evident, Proof, must};
use crate::native::folders::lists;
use crate::native::landlock::Access;
use crate::native::tree::Placed;
use crate::native::{filter, landlock, process, words};
use crate::support::is_of_the_system;

/// What a rule gives that changes something.
const WRITES: u64 = !(fs::EXECUTE | fs::READ_FILE | fs::READ_DIR | fs::IOCTL_DEV);

/// Whether one lies within the other.
fn meets(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

pub(crate) fn path(rule: &OwnedRule) -> &Path {
    Path::new(OsStr::from_bytes(rule.path.to_bytes()))
}

/// Of a grant its rule where it is read or written to, with the rights to write only where they were planned: rights add up along a
/// path, so no rule on it or above it gives more, but on what `written` knows.
fn granted(rules: &[OwnedRule], place: &Path, (read, write): (bool, bool), written: impl Fn(&Path) -> bool) -> Evident {
    let own = rules.iter().filter(|rule| path(rule) == place).fold(0, |all, rule| all | rule.access);
    let wanted = if read { fs::READ_FILE } else { 0 } | if write { fs::WRITE_FILE } else { 0 };
    must(own & wanted == wanted, || format!("{} has no rule with its rights", place.display()))?;
    let more = rules
        .iter()
        .find(|rule| !write && rule.access & WRITES != 0 && place.starts_with(path(rule)) && !written(path(rule)));
    must(more.is_none(), || format!("{} can be written to", place.display()))
}

/// Whether a list of executables has a file.
fn is_listed(files: &[PathBuf], path: &Path) -> bool {
    let loaders = landlock::loaders();
    loaders.iter().chain(files).any(|file| file == path || file.canonicalize().is_ok_and(|file| file == path))
}

/// The first of these rules that is about more of the places, each as it is shown and where it lies, than the listed folders. Below
/// a place `needed` tells what has its rule for other reasons.
fn unlisted<'a>(
    mut rules: impl Iterator<Item = &'a Path>,
    places: &[(&Path, PathBuf)],
    folders: &[PathBuf],
    needed: impl Fn(&Path) -> bool,
) -> Option<&'a Path> {
    let more = |path: &Path, at: &Path, point: &Path| match path.strip_prefix(point) {
        Ok(below) => {
            let known = lists(folders, &at.join(below)) || (path != point && needed(path));
            !known
        }
        Err(_) => point.starts_with(path) && !lists(folders, at),
    };
    rules.find(|path| places.iter().any(|(at, point)| more(path, at, point)))
}

impl Proof<'_> {
    /// The layer that was put on handles all that its ABI knows: a right that is not handled is nobody's to refuse.
    fn layer(&self, abi: u32) -> Result<&OwnedLandlock, String> {
        let prepared = &self.started.prepared;
        let layer = prepared.config.landlock.as_ref().ok_or("there is no layer")?;
        let (all, handled) = (sys::landlock::fs_rights(abi), layer.handled_fs);
        must(abi > 0 && handled == all, || format!("the layer handles the rights {handled:#x}, and not {all:#x}"))?;
        let planned = |control| prepared.plan.controls().any(|found| *found == control);
        let closed = abi >= 4 && planned(Control::Filter(Filter::NoInet));
        let (net, handled) = (if closed { sys::landlock::NET_RIGHTS } else { 0 }, layer.handled_net);
        must(handled == net, || format!("the layer handles the rights to ports {handled:#x}, and not {net:#x}"))?;
        let kept = self.container() || planned(Control::SignalScope);
        let (scopes, scoped) = (if kept { sys::landlock::scopes(abi) } else { 0 }, layer.scoped);
        must(scoped == scopes, || format!("the layer has the scopes {scoped:#x}, and not {scopes:#x}"))?;
        Ok(layer)
    }

    /// The layer is in force, and no rule of it lets anything be executed that `allowed` does not know.
    fn executable(&self, abi: u32, allowed: impl Fn(&Path) -> bool) -> Evident {
        self.landlock(abi)?;
        for rule in self.layer(abi)?.rules.iter().filter(|rule| rule.access & fs::EXECUTE != 0) {
            must(allowed(path(rule)), || format!("{} can be executed", path(rule).display()))?;
        }
        Ok(())
    }

    /// Rights of Landlock add up along a path: nothing that can be executed lies above or below what can be written.
    pub(super) fn never_written(&self, abi: u32) -> Evident {
        let rules = &self.layer(abi)?.rules;
        let written: Vec<&Path> = rules.iter().filter(|rule| rule.access & fs::WRITE_FILE != 0).map(path).collect();
        self.executable(abi, |path| !written.iter().any(|other| meets(path, other)))
    }

    /// Of an interpreter, whose own control names no ABI: by the layer of its plan, nothing but the interpreter itself.
    pub(super) fn interpreter_alone(&self) -> Evident {
        let prepared = &self.started.prepared;
        let of = |control: &Control| if let Control::Landlock(abi) = control { Some(*abi) } else { None };
        let abi = prepared.plan.controls().find_map(of).ok_or("the plan has no layer")?;
        self.listed(abi, prepared.blueprint.exec.as_deref().unwrap_or_default())
    }

    /// Nothing but what is listed, and the loaders that a listed program needs.
    pub(super) fn listed(&self, abi: u32, files: &[PathBuf]) -> Evident {
        self.executable(abi, |path| is_listed(files, path))
    }

    /// The layer is in force, and no rule of it lets more of a writable place be written to than the listed folders; nor does the
    /// filter let a descriptor that only reads change a file.
    pub(super) fn written_only(&self, abi: u32, folders: &[PathBuf]) -> Evident {
        self.landlock(abi)?;
        let prepared = &self.started.prepared;
        must(prepared.blueprint.folders.write.as_deref() == Some(folders), || "nobody kept to the list".to_owned())?;
        let closed = prepared.filter.as_ref().is_some_and(filter::Built::closes_leases);
        must(closed, || "files elsewhere can be acted on through a descriptor that reads".to_owned())?;
        let more = self.beyond(abi, fs::WRITE_FILE, folders, |_needed| false)?;
        must(more.is_none(), || format!("{} can be written to", more.unwrap_or_default().display()))
    }

    /// The layer is in force and refused the first place of which not all may be read; no rule of it lets more of what is shown be read
    /// than what is listed, and what programs need of the system where that is shown too.
    pub(super) fn read_only_there(&self, abi: u32, folders: &[PathBuf]) -> Evident {
        self.landlock(abi)?;
        let prepared = &self.started.prepared;
        must(prepared.blueprint.folders.read.as_deref() == Some(folders), || "nobody kept to the list".to_owned())?;
        if let Some(closed) = Placed::closed(&prepared.placed, folders) {
            let point = closed.point.as_os_str().as_bytes();
            self.probed(|probe| matches!(probe, Probe::OpenMustFail(path) if path.to_bytes() == point))?;
        }
        let more = self.beyond(abi, fs::READ_FILE | fs::READ_DIR, folders, |path| {
            let list = prepared.blueprint.exec.as_deref().unwrap_or_default();
            process::is_device(path) || is_of_the_system(path) || is_listed(list, path)
        })?;
        must(more.is_none(), || format!("{} can be read", more.unwrap_or_default().display()))
    }

    /// What of the places of the plan a rule gives these rights to, beyond the listed folders. Below a place `needed` tells what
    /// has them for other reasons.
    fn beyond(
        &self,
        abi: u32,
        rights: u64,
        folders: &[PathBuf],
        needed: impl Fn(&Path) -> bool,
    ) -> Result<Option<PathBuf>, String> {
        let prepared = &self.started.prepared;
        let own = prepared.folder.as_ref().and_then(|own| own.canonicalize().ok());
        let git = |path: &Path| {
            let elsewhere = prepared.blueprint.git.iter().any(|git| git == path);
            elsewhere && lists(folders, &prepared.blueprint.in_workspace(Path::new(".git")))
        };
        let others = |path: &Path| own.as_ref().is_some_and(|own| path.starts_with(own)) || git(path);
        // What is only read is none of those that are written to.
        let places = prepared.placed.iter().filter(|placed| placed.write || rights & fs::WRITE_FILE == 0);
        let real = |point: &Path| point.canonicalize().ok().filter(|_| !self.container());
        let places: Vec<(&Path, PathBuf)> =
            places.map(|one| (one.at.as_path(), real(&one.point).unwrap_or_else(|| one.point.clone()))).collect();
        let rules = self.layer(abi)?.rules.iter().filter(|rule| rule.access & rights != 0).map(path);
        Ok(unlisted(rules.filter(|path| !others(path)), &places, folders, needed).map(Path::to_owned))
    }

    /// What must fail and an open that must work, under a layer that handles all that its ABI knows. Where everything is granted that
    /// could be opened, no open must fail: a call of a device must, which no rule of the process tier gives.
    pub(super) fn landlock(&self, abi: u32) -> Evident {
        self.layer(abi)?;
        must(self.posture.landlock_layers > 0, || "no layer was put on".to_owned())?;
        let opens = |probe: &Probe| matches!(probe, Probe::OpenMustFail(_));
        if self.container() || self.started.prepared.config.probes.iter().any(opens) {
            self.probed(opens)?;
        } else {
            must(self.posture.device_refused, || "nothing was seen to be refused".to_owned())?;
        }
        self.probed(|probe| matches!(probe, Probe::OpenMustWork(_)))
    }

    /// The guest put on as many rules as there are, and of them the grant has what the plan says.
    pub(super) fn rule(&self, at: &Path, write: bool) -> Evident {
        let prepared = &self.started.prepared;
        let placed = prepared.placed.iter().any(|placed| placed.at == *at);
        must(placed, || format!("{} has no rule", at.display()))?;
        let rules = prepared.config.landlock.as_ref().map_or(&[][..], |layer| &layer.rules);
        must(usize::try_from(self.posture.landlock_rules) == Ok(rules.len()), || {
            format!("the layer has {} rules", self.posture.landlock_rules)
        })?;
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_gone| path.to_owned());
        let planned = |control: &Control| {
            if let Control::Rule { path, write: true } = control { Some(real(path)) } else { None }
        };
        let written: Vec<PathBuf> =
            prepared.plan.controls().filter_map(planned).chain(prepared.folder.as_deref().map(real)).collect();
        // Of a grant only what is listed can be read and written to where there are such lists, which are looked at by themselves.
        let listed = prepared.blueprint.folders.at(at, Access::READ | Access::WRITE);
        let (read, write) = (listed.has(Access::READ), write && listed.has(Access::WRITE));
        granted(rules, &real(at), (read, write), |path| {
            process::is_device(path) || written.iter().any(|written| path.starts_with(written))
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
            Filter::Profile(name) => {
                let built = self.started.prepared.blueprint.profile.as_deref();
                must(built == Some(name), || format!("its rules are those of {}", built.unwrap_or("none")))
            }
            Filter::Allow(names) => built.named(names, true, |number, args| self.answer(number, args)),
            Filter::Deny(names) => built.named(names, false, |number, args| self.answer(number, args)),
            Filter::NoUnix => must(built.closes_unix(), || "unix sockets can be made".to_owned()),
            Filter::SharedFiles { locks, watches } => {
                let blueprint = &self.started.prepared.blueprint;
                must(blueprint.shared_files, || "nobody closed what acts on files of others".to_owned())?;
                let asked = blueprint.allow.iter().any(|name| name == "inotify_add_watch");
                must(built.closes_watches() || asked || !watches, || "folders of others can be watched".to_owned())?;
                must(built.closes_leases() && (built.closes_locks() || !locks), || {
                    "files of others can be held".to_owned()
                })
            }
            Filter::Links => {
                let (refused, told) = (self.posture.link_refused, self.posture.link_told);
                must(refused, || "a link was told before its folder was granted".to_owned())?;
                must(told, || "a link was not told although its folder is granted".to_owned())
            }
            Filter::SharedPids => must(built.closes_others(), || "other processes can be reached".to_owned()),
            Filter::Visible => {
                let blueprint = &self.started.prepared.blueprint;
                must(built.closes_undumpable(), || "a process can become undumpable".to_owned())?;
                must(built.closes_rules() || blueprint.agent, || "rules can keep files that nobody sees".to_owned())
            }
            Filter::CountedMemory => {
                must(built.closes_uncounted(), || "memory can be had that nobody counts".to_owned())
            }
            Filter::NoInet => self.probed(|probe| matches!(probe, Probe::SocketMustFail { family: 2 | 10, .. })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(all: &[(&str, u64)]) -> Vec<OwnedRule> {
        let rule = |(path, access): &(&str, u64)| OwnedRule {
            path: std::ffi::CString::new(*path).unwrap(),
            access: *access,
            is: None,
        };
        all.iter().map(rule).collect()
    }

    const READ: u64 = fs::READ_FILE | fs::READ_DIR | fs::EXECUTE;
    const WRITE: u64 = READ | fs::WRITE_FILE | fs::MAKE_REG;
    const READS: (bool, bool) = (true, false);
    const BOTH: (bool, bool) = (true, true);

    #[test]
    fn a_grant_has_its_rule_and_no_more_rights_than_were_planned() {
        let nothing = |_: &Path| false;
        let data = Path::new("/data/in");
        assert_eq!(granted(&rules(&[("/data/in", READ)]), data, READS, nothing), Ok(()));
        assert_eq!(granted(&rules(&[("/data/in", WRITE)]), data, BOTH, nothing), Ok(()));
        // None, another one's, and one that cannot do what was granted.
        for all in [&[][..], &[("/data", READ)], &[("/data/in", fs::EXECUTE)]] {
            assert!(granted(&rules(all), data, READS, nothing).is_err(), "{all:?}");
        }
        assert!(granted(&rules(&[("/data/in", READ)]), data, BOTH, nothing).is_err());
        // On it, beside it, above it; to make a file is to write, and below it is another one's.
        for all in [
            &[("/data/in", WRITE)][..],
            &[("/data/in", READ), ("/data/in", WRITE)],
            &[("/data/in", READ), ("/data", fs::MAKE_REG)],
        ] {
            assert!(granted(&rules(all), data, READS, nothing).is_err(), "{all:?}");
        }
        assert_eq!(granted(&rules(&[("/data/in", READ), ("/data/in/out", WRITE)]), data, READS, nothing), Ok(()));
        // One of which a list names no part has none.
        assert_eq!(granted(&[], data, (false, false), nothing), Ok(()));
        // A place that another control gives for writing holds this one too.
        let planned = |path: &Path| path == Path::new("/data");
        assert_eq!(granted(&rules(&[("/data/in", READ), ("/data", WRITE)]), data, READS, planned), Ok(()));
    }

    #[test]
    fn a_rule_for_more_than_what_is_listed_is_found_on_a_place_above_it_and_in_it() {
        // The second one lies elsewhere than it is shown.
        let places =
            [(Path::new("/w"), PathBuf::from("/w")), (Path::new("/home/user/d"), PathBuf::from("/tmp/.home/d"))];
        let folders = [PathBuf::from("/w/src"), PathBuf::from("/home/user/d/in")];
        let found = |rule: &'static str, needed: &str| {
            unlisted([Path::new(rule)].into_iter(), &places, &folders, |path| path == Path::new(needed)).is_some()
        };
        for listed in ["/w/src", "/w/src/deep", "/tmp/.home/d/in", "/etc", "/w2", "/srv"] {
            assert!(!found(listed, ""), "{listed}");
        }
        for more in ["/", "/w", "/w/srcs", "/w/lib", "/tmp", "/tmp/.home/d", "/tmp/.home/d/out"] {
            assert!(found(more, ""), "{more}");
        }
        // What is needed lies in a place; it is none, nor above one.
        assert!(!found("/w/tool", "/w/tool"));
        assert!(found("/w", "/w") && found("/", "/"));
        let whole = [PathBuf::from("/")];
        assert_eq!(unlisted([Path::new("/w"), Path::new("/")].into_iter(), &places, &whole, |_| false), None);
    }
}
