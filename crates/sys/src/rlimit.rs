//! Resource limits of this process, to know what a child could be given at most.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit};

/// (soft, hard); `None` is no limit.
pub type Limit = (Option<u64>, Option<u64>);

/// The limit with the kernel's number (`RLIMIT_*`, the same on all architectures in use); `None` for a number that is no limit.
#[must_use]
pub fn get(number: u32) -> Option<Limit> {
    const ALL: [Resource; 16] = [
        Resource::Cpu,
        Resource::Fsize,
        Resource::Data,
        Resource::Stack,
        Resource::Core,
        Resource::Rss,
        Resource::Nproc,
        Resource::Nofile,
        Resource::Memlock,
        Resource::As,
        Resource::Locks,
        Resource::Sigpending,
        Resource::Msgqueue,
        Resource::Nice,
        Resource::Rtprio,
        Resource::Rttime,
    ];
    let resource = *ALL.get(usize::try_from(number).ok()?)?;
    let Rlimit { current, maximum } = rustix::process::getrlimit(resource);
    Some((current, maximum))
}

/// How many files this process may have open at once.
#[must_use]
pub fn open_files() -> u64 {
    rustix::process::getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Lets this process have at least so many files open, as far as its hard limit allows that. For a program about itself; a
/// library asks [`open_files`].
pub fn raise_open_files(least: u64) {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    if current.is_none_or(|soft| soft >= least) {
        return;
    }
    let wanted = Rlimit { current: Some(maximum.map_or(least, |hard| least.min(hard))), maximum };
    match rustix::process::setrlimit(Resource::Nofile, wanted) {
        // Then it stays what it was, and whoever needs more finds that out.
        Ok(()) | Err(_) => {}
    }
}

/// Makes room for so many descriptors in this process's table. The kernel lets a table grow at once while one thread uses it;
/// afterwards each doubling waits until every processor has let go of the old one, 10 to 20 ms at the first file beyond the
/// 64th. For a program about itself, before it has threads.
pub fn reserve_descriptors(count: u32) {
    let last = RawFd::try_from(count.saturating_sub(1)).unwrap_or(RawFd::MAX);
    let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // Where the limit is lower, the table stays as it is, and so does the wait.
    drop(root.map(|root| rustix::io::fcntl_dupfd_cloexec(root, last)));
}

/// How many files this process could have open before it raised that for itself alone; 0: it has not.
static BEFORE: AtomicU64 = AtomicU64::new(0);

/// As [`raise_open_files`], for this process alone: what it starts from then on has as many as this one had before.
pub fn raise_own_open_files(least: u64) {
    let before = open_files();
    if before >= least {
        return;
    }
    // Once: what was given to us first is what is handed on. In place before the limit is another one.
    let _known = BEFORE.compare_exchange(0, before, Ordering::Relaxed, Ordering::Relaxed);
    raise_open_files(least);
}

/// Soft and hard limit of open files for a new process, where they are to be others than this one's.
pub(crate) fn open_files_of_children() -> Option<[u64; 2]> {
    let before = BEFORE.load(Ordering::Relaxed);
    let hard = rustix::process::getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    (before > 0).then(|| [before.min(hard), hard])
}

/// One test after the other: they are about this process.
#[cfg(test)]
pub(crate) static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[cfg(test)]
mod tests {
    use std::sync::PoisonError;

    use super::*;

    #[test]
    fn what_is_raised_for_this_process_alone_is_none_of_what_it_starts() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = || {
            let limit = std::time::Duration::from_secs(60);
            let said =
                crate::command::Command::new("/bin/sh").args(["-c", "ulimit -Sn; ulimit -Hn"]).output(b"", 99, limit);
            String::from_utf8(said.unwrap().stdout).unwrap()
        };
        let (before, (soft, hard)) = (shown(), get(7).unwrap());
        let wanted = hard.unwrap_or(u64::MAX).min(soft.unwrap() + 1);
        raise_own_open_files(wanted);
        assert_eq!((open_files(), get(7).unwrap().1), (wanted, hard));
        assert_eq!(shown(), before);
        // Again: it is still what was there first.
        raise_own_open_files(hard.unwrap_or(u64::MAX).min(wanted + 1));
        assert_eq!(shown(), before);
    }

    #[test]
    fn the_table_has_the_room_that_was_made() {
        let room = || {
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            status.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap().trim().parse::<u32>().unwrap()
        };
        let asked = 2 * room();
        reserve_descriptors(asked);
        assert!(room() >= asked.min(u32::try_from(open_files()).unwrap()), "{asked}");
    }

    #[test]
    fn numbers_are_the_kernels() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let shown = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.get(26..).unwrap().split_whitespace().next().unwrap().parse::<u64>().ok()
        };
        for (number, name) in [
            (0, "Max cpu time"),
            (3, "Max stack size"),
            (7, "Max open files"),
            (8, "Max locked memory"),
            (14, "Max realtime priority"),
        ] {
            assert_eq!(get(number).unwrap().0, shown(name), "{name}");
        }
        assert_eq!(get(16), None);
    }
}
