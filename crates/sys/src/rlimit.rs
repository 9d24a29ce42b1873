//! Resource limits of this process, to know what a child could be given at most.

use rustix::process::{Resource, Rlimit};

/// (soft, hard); `None` is no limit.
pub type Limit = (Option<u64>, Option<u64>);

/// The limit with the kernel's number (`RLIMIT_*` of x86-64); `None` for a number that is no limit.
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

/// Lets this process have at least so many files open, if its hard limit allows that; how many it may have.
#[must_use]
pub fn open_files(least: u64) -> u64 {
    let Rlimit { current, maximum } = rustix::process::getrlimit(Resource::Nofile);
    let (soft, hard) = (current.unwrap_or(u64::MAX), maximum.unwrap_or(u64::MAX));
    if soft >= least {
        return soft;
    }
    let wanted = least.min(hard);
    match rustix::process::setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(_) => soft,
    }
}

/// Makes this process's table of descriptors so large, once. To be called while there is one thread: a table that threads
/// share grows by waiting for an RCU grace period (fs/file.c, `expand_fdtable`), 1 to 6 ms on a quiet machine. What fails is
/// only that time.
pub fn make_room(descriptors: u64) {
    let last = i32::try_from(descriptors.saturating_sub(1)).unwrap_or(0);
    drop(rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), last));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_room_leaves_no_descriptor_behind() {
        make_room(100);
        let shown = std::fs::read_to_string("/proc/self/status").unwrap();
        let size: u64 = shown.lines().find_map(|line| line.strip_prefix("FDSize:")).unwrap().trim().parse().unwrap();
        assert!(size >= 100, "{size}");
        assert!(!std::path::Path::new("/proc/self/fd/99").exists());
    }

    #[test]
    fn numbers_are_the_kernels() {
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
