//! Targets of links, which no right of Landlock is about: on the process tier `readlink` and `readlinkat` are asked of the
//! supervisor, and a thread of it answers.
//!
//! It never lets a call go on: another thread of the program could write another path meanwhile. It opens the link as the program
//! would, judges what it opened, and writes what it read from that into the program's memory. It has the program's user and no
//! capability. When the supervisor is gone the kernel answers ENOSYS.

use std::collections::BTreeSet;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use guest::config::OwnedRule;
use sys::fsids::FsIdsGuard;
use sys::links::{Above, Link};
use sys::paths::{FileStat, Identity};
use sys::seccomp::{Listener, names};

use super::prepare::Prepared;
use crate::StartError;

/// The calls that are asked about.
pub(crate) const CALLS: [&str; 2] = ["readlink", "readlinkat"];
/// The link in the run's own folder that the guest reads before anything is granted, and after.
pub(crate) const PROOF: &str = ".fumehood-link";
/// Processor time of the thread that answers which nobody asks about, in the first place and for each second of a run.
const MAX_AT_ONCE_US: u64 = 2_000_000;
const MAX_EACH_SECOND_US: u64 = 250_000;
/// So many answers between two looks at that.
const LOOK: u32 = 64;
const STACK: usize = 256 << 10;

/// The program that asks about the calls which the policy does not open by name; empty: all of them are.
pub(crate) fn program(allow: &[String]) -> Vec<u8> {
    let asked = CALLS.iter().filter(|name| !allow.iter().any(|other| other == *name));
    let numbers: Vec<u32> = asked.filter_map(|name| names::number(name)).collect();
    if numbers.is_empty() { Vec::new() } else { sys::seccomp::asking(&numbers).bytes() }
}

/// Whose links are told.
#[derive(Debug)]
struct Told {
    /// Places below which the layer of the run lets everything be listed.
    granted: BTreeSet<Identity>,
    /// Links on the way to what the policy names.
    ways: BTreeSet<Identity>,
    /// Keeps all of these from being others.
    _held: Vec<OwnedFd>,
    /// Who the program is.
    uid: u32,
    /// The mark of the run's processes, and the one of them that is ours.
    mark: u64,
    guest: i32,
}

/// Starts the thread that answers what comes by `listener`, until nobody is left who could ask.
///
/// # Errors
/// There is no thread for it.
pub(crate) fn answer(listener: OwnedFd, prepared: &Prepared, guest: i32) -> Result<(), StartError> {
    let told = Told::of(prepared, guest);
    let (listener, user) =
        (Listener::from(listener), (!prepared.rootless).then_some((told.uid, prepared.identity.gid)));
    let work = move || {
        // Without its user's rights alone nothing is answered, and the guest's proof fails.
        let Ok(_user) = user.map(|(uid, gid)| FsIdsGuard::user(uid, gid)).transpose() else { return };
        if sys::fsids::give_up_capabilities().is_err() {
            return;
        }
        let mut pace = Pace::default();
        // The first question is the guest's, and is judged as if nothing were granted.
        let mut granted = false;
        while let Ok(Some(question)) = listener.next() {
            let answer = sys::links::read(&listener, &question, &|link| granted && told.may(link));
            listener.answer(&question, answer);
            granted = true;
            pace.keep();
        }
    };
    let failed =
        |error: &dyn std::fmt::Display| StartError::system("starting a thread that answers about links", error);
    let _forks = sys::scheduling::DeadlineForks::allow().map_err(|errno| failed(&errno))?;
    let thread = std::thread::Builder::new().name("fumehood-links".to_owned()).stack_size(STACK);
    thread.spawn(work).map(drop).map_err(|error| failed(&error))
}

impl Told {
    fn of(prepared: &Prepared, guest: i32) -> Self {
        let rules = prepared.config.landlock.as_ref().map_or(&[][..], |layer| &layer.rules);
        let listed = |rule: &&OwnedRule| rule.access & sys::landlock::fs::READ_DIR != 0;
        let blueprint = &prepared.blueprint;
        let named = blueprint.shown().chain(prepared.folder.as_deref());
        let ways: Vec<PathBuf> = named.filter_map(sys::path_walk::of).flat_map(|way| way.links).collect();
        let mut held = Vec::new();
        let mut identities = |paths: &mut dyn Iterator<Item = &Path>| {
            let mut found = BTreeSet::new();
            for place in paths.filter_map(|path| sys::paths::open_entry(path).ok()) {
                found.extend(sys::paths::identity(&place).ok());
                held.push(place);
            }
            found
        };
        let granted = identities(&mut rules.iter().filter(listed).map(super::verify::path));
        let ways = identities(&mut ways.iter().map(PathBuf::as_path));
        Self { granted, ways, _held: held, uid: prepared.identity.uid, mark: super::mark::of(&prepared.run), guest }
    }

    /// Whether the program may be told where a link leads.
    fn may(&self, link: &Link) -> bool {
        if self.ways.contains(&link.facts.identity) {
            return true;
        }
        let Ok(above) = Above::of(link.folder.as_fd()) else { return false };
        if let Some(process) = &above.process
            && let Some(marked) = sys::proc::has_limit(process, super::mark::RESOURCE, self.mark)
        {
            let number = sys::paths::path_of(process).ok().and_then(|path| path.file_name()?.to_str()?.parse().ok());
            return marked && number.is_some_and(|number: i32| number != self.guest);
        }
        let granted = |folder: &FileStat| self.granted.contains(&folder.identity);
        above.folders.iter().any(granted) || self.is_anybodys(&above.folders)
    }

    /// A folder of somebody else that everybody on this host may list: what it holds is no secret of the user's.
    fn is_anybodys(&self, folders: &[FileStat]) -> bool {
        const LISTED: u32 = 0o5;
        const PASSED: u32 = 0o1;
        let lists = folders.first().is_some_and(|folder| folder.uid != self.uid && folder.mode & LISTED == LISTED);
        lists && folders.iter().all(|folder| folder.mode & PASSED == PASSED)
    }
}

/// Keeps what answers cost the supervisor within bounds: a program that does nothing but ask waits for its answers.
#[derive(Debug)]
struct Pace {
    began: std::time::Instant,
    since: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { began: std::time::Instant::now(), since: 0 }
    }
}

impl Pace {
    fn keep(&mut self) {
        self.since = self.since.saturating_add(1) % LOOK;
        if self.since != 0 {
            return;
        }
        let elapsed = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let used = u64::try_from(sys::caller::thread_time().as_micros()).unwrap_or(u64::MAX);
        let wait = over(used, elapsed);
        if wait > std::time::Duration::ZERO {
            let _waited = sys::channel::wait(&[], Some(wait));
        }
    }
}

/// How long to wait after so much processor time, so long after the beginning.
fn over(used_us: u64, elapsed_us: u64) -> std::time::Duration {
    let each = elapsed_us / 1_000 * (MAX_EACH_SECOND_US / 1_000);
    let more = used_us.saturating_sub(MAX_AT_ONCE_US.saturating_add(each));
    std::time::Duration::from_micros(more.saturating_mul(1_000_000 / MAX_EACH_SECOND_US))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Duration;

    use super::*;

    fn told(granted: &[&Path]) -> Told {
        let identity = |path: &&Path| sys::paths::identity(sys::paths::open_place(path).unwrap()).unwrap();
        let uid = sys::caller::euid();
        Told {
            granted: granted.iter().map(identity).collect(),
            ways: BTreeSet::new(),
            _held: Vec::new(),
            uid,
            mark: 1,
            guest: 0,
        }
    }

    #[test]
    fn both_calls_are_asked_about_unless_the_policy_opens_them_by_name() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(program(&names(&["readlink", "readlinkat"])).is_empty());
        let (both, one) = (program(&names(&["getpid"])), program(&names(&["readlink"])));
        assert_eq!(both.len(), one.len() + 8, "one instruction more");
    }

    /// Where everybody may list, a folder of somebody else's holds no secret of the program's user; one of its own is told when granted.
    #[test]
    fn a_folder_is_told_when_it_is_granted_or_when_it_is_anybodys() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().canonicalize().unwrap();
        for mode in [0o700, 0o755] {
            std::fs::set_permissions(&top, std::fs::Permissions::from_mode(mode)).unwrap();
            let above = Above::of(sys::paths::open_place(&top).unwrap().as_fd()).unwrap();
            let own = told(&[]);
            assert!(!own.is_anybodys(&above.folders), "{mode:o}: the program's own");
            let others = Told { uid: own.uid + 1, ..told(&[]) };
            assert_eq!(others.is_anybodys(&above.folders), mode == 0o755, "{mode:o}: somebody else's");
            let within = |told: &Told| above.folders.iter().any(|folder| told.granted.contains(&folder.identity));
            assert!(!within(&own) && within(&told(&[&top])) && within(&told(&[Path::new("/")])), "{mode:o}");
        }
    }

    #[test]
    fn who_only_asks_waits_for_answers() {
        let second = 1_000_000;
        // A burst, and a quarter of a core for ever.
        for (used, elapsed, wait) in [
            (0, 0, 0),
            (2 * second, 0, 0),
            (3 * second, 4 * second, 0),
            (3 * second, 0, 4),
            (5 * second, 8 * second, 4),
        ] {
            assert_eq!(over(used, elapsed), Duration::from_secs(wait), "{used} {elapsed}");
        }
    }
}
