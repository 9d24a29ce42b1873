//! System calls that are made only to hear the kernel's answer: the proof that a filter is in force.
//!
//! Each of them changes nothing when it is not refused: its arguments are small numbers, which no pointer and no descriptor
//! of ours is, and the calls of the list do nothing with such numbers but fail.

use linux_raw_sys::general as nr;

use super::errno::{Errno, Result};
use super::raw::call;

/// Calls that may be attempted.
const HARMLESS: &[u32] = &[
    nr::__NR_bind,
    nr::__NR_fallocate,
    nr::__NR_fchmod,
    nr::__NR_fcntl,
    nr::__NR_fgetxattr,
    nr::__NR_flock,
    nr::__NR_fsetxattr,
    nr::__NR_getppid,
    nr::__NR_inotify_add_watch,
    nr::__NR_io_uring_setup,
    nr::__NR_landlock_create_ruleset,
    nr::__NR_memfd_create,
    nr::__NR_mmap,
    nr::__NR_prctl,
    nr::__NR_prlimit64,
    nr::__NR_ptrace,
    nr::__NR_rt_sigqueueinfo,
    nr::__NR_seccomp,
    nr::__NR_sendto,
    nr::__NR_setns,
    nr::__NR_socket,
    nr::__NR_socketpair,
    nr::__NR_userfaultfd,
    nr::__NR_vmsplice,
];

/// The flag of sendto(2) that connects.
const MSG_FASTOPEN: u64 = 0x2000_0000;

const PR_SET_DUMPABLE: u64 = 4;

/// What a filter of ours answers to a call that a policy closes by name.
pub const EPERM: i32 = 1;

/// Calls whose first argument is a descriptor, or whose path, option or size is none when all others are zero: with the
/// descriptor -1 they fail, whoever makes them.
const BY_DESCRIPTOR: &[u32] = &[
    nr::__NR_accept,
    nr::__NR_accept4,
    nr::__NR_bind,
    nr::__NR_connect,
    nr::__NR_copy_file_range,
    nr::__NR_dup,
    nr::__NR_epoll_ctl,
    nr::__NR_epoll_pwait,
    nr::__NR_faccessat,
    nr::__NR_faccessat2,
    nr::__NR_fadvise64,
    nr::__NR_fallocate,
    nr::__NR_fanotify_mark,
    nr::__NR_fchdir,
    nr::__NR_fchmod,
    nr::__NR_fchmodat,
    nr::__NR_fchown,
    nr::__NR_fchownat,
    nr::__NR_fcntl,
    nr::__NR_fdatasync,
    nr::__NR_fgetxattr,
    nr::__NR_flistxattr,
    nr::__NR_flock,
    nr::__NR_fremovexattr,
    nr::__NR_fsetxattr,
    nr::__NR_fstat,
    nr::__NR_fstatfs,
    nr::__NR_fsync,
    nr::__NR_ftruncate,
    nr::__NR_getdents64,
    nr::__NR_getpeername,
    nr::__NR_getsockname,
    nr::__NR_getsockopt,
    nr::__NR_inotify_add_watch,
    nr::__NR_inotify_rm_watch,
    nr::__NR_ioctl,
    nr::__NR_linkat,
    nr::__NR_listen,
    nr::__NR_lseek,
    nr::__NR_mkdirat,
    nr::__NR_mknodat,
    nr::__NR_name_to_handle_at,
    nr::__NR_newfstatat,
    nr::__NR_openat,
    nr::__NR_pread64,
    nr::__NR_preadv,
    nr::__NR_preadv2,
    nr::__NR_pwrite64,
    nr::__NR_pwritev,
    nr::__NR_pwritev2,
    nr::__NR_readahead,
    nr::__NR_readlinkat,
    nr::__NR_readv,
    nr::__NR_recvfrom,
    nr::__NR_recvmmsg,
    nr::__NR_recvmsg,
    nr::__NR_renameat,
    nr::__NR_renameat2,
    nr::__NR_sendfile,
    nr::__NR_sendmmsg,
    nr::__NR_sendto,
    nr::__NR_setns,
    nr::__NR_setsockopt,
    nr::__NR_shutdown,
    nr::__NR_statx,
    nr::__NR_symlinkat,
    nr::__NR_sync_file_range,
    nr::__NR_syncfs,
    nr::__NR_timerfd_gettime,
    nr::__NR_timerfd_settime,
    nr::__NR_unlinkat,
    nr::__NR_utimensat,
    nr::__NR_vmsplice,
    nr::__NR_write,
    nr::__NR_writev,
];

/// Calls that fail, or only tell something, when all their arguments are zero: no path, no place, no size.
const BY_NOTHING: &[u32] = &[
    nr::__NR_add_key,
    nr::__NR_capget,
    nr::__NR_capset,
    nr::__NR_chdir,
    nr::__NR_chroot,
    nr::__NR_clock_getres,
    nr::__NR_clock_gettime,
    nr::__NR_clock_nanosleep,
    nr::__NR_clone3,
    nr::__NR_getcwd,
    nr::__NR_getegid,
    nr::__NR_geteuid,
    nr::__NR_getgid,
    nr::__NR_getitimer,
    nr::__NR_getpid,
    nr::__NR_getppid,
    nr::__NR_getpriority,
    nr::__NR_getrandom,
    nr::__NR_getrlimit,
    nr::__NR_getrusage,
    nr::__NR_gettid,
    nr::__NR_gettimeofday,
    nr::__NR_getuid,
    nr::__NR_getxattr,
    nr::__NR_lgetxattr,
    nr::__NR_listxattr,
    nr::__NR_llistxattr,
    nr::__NR_lremovexattr,
    nr::__NR_lsetxattr,
    nr::__NR_memfd_create,
    nr::__NR_mincore,
    nr::__NR_mount,
    nr::__NR_mremap,
    nr::__NR_munmap,
    nr::__NR_nanosleep,
    nr::__NR_pidfd_open,
    nr::__NR_pipe2,
    nr::__NR_process_vm_readv,
    nr::__NR_process_vm_writev,
    nr::__NR_removexattr,
    nr::__NR_request_key,
    nr::__NR_sched_getaffinity,
    nr::__NR_sched_getparam,
    nr::__NR_sched_setparam,
    nr::__NR_sched_setscheduler,
    nr::__NR_sched_yield,
    nr::__NR_setxattr,
    nr::__NR_statfs,
    nr::__NR_sysinfo,
    nr::__NR_truncate,
    nr::__NR_umount2,
    nr::__NR_uname,
    nr::__NR_unshare,
];

/// Calls that fail, or change nothing, when all their arguments are -1.
const BY_MINUS_ONE: &[u32] = &[
    nr::__NR_epoll_create1,
    nr::__NR_eventfd2,
    nr::__NR_getpgid,
    nr::__NR_getsid,
    nr::__NR_inotify_init1,
    nr::__NR_msgctl,
    nr::__NR_personality,
    nr::__NR_pidfd_getfd,
    nr::__NR_pidfd_send_signal,
    nr::__NR_semctl,
    nr::__NR_setpgid,
    nr::__NR_setpriority,
    nr::__NR_setregid,
    nr::__NR_setresgid,
    nr::__NR_setresuid,
    nr::__NR_setreuid,
    nr::__NR_shmat,
    nr::__NR_shmctl,
    nr::__NR_tgkill,
    nr::__NR_timerfd_create,
    nr::__NR_tkill,
];

/// Calls with arguments of their own: a request that ptrace(2) does not have, a resource that nobody has, a type that no socket
/// has, flags of which one is unknown.
const BY_UNKNOWN: &[(u32, [u64; 6])] = &[
    (nr::__NR_prlimit64, [4095, 255, 0, 0, 0, 0]),
    (nr::__NR_ptrace, [4095, 0, 0, 0, 0, 0]),
    (nr::__NR_socket, [1, 255, 0, 0, 0, 0]),
    (nr::__NR_userfaultfd, [0xffff_ffff, 0, 0, 0, 0, 0]),
];

/// Arguments with which a call that a policy names can be attempted: it does nothing, and answers neither `EPERM`, `EACCES`
/// nor `ENOSYS` by itself to somebody without any privilege. `None`: there are none that are sure, and it is not attempted.
#[must_use]
pub fn harmless(number: u32) -> Option<[u64; 6]> {
    let has = |list: &[u32]| list.contains(&number);
    if has(BY_DESCRIPTOR) {
        Some([u64::MAX, 0, 0, 0, 0, 0])
    } else if has(BY_NOTHING) || has(crate::arch::BY_NOTHING) {
        Some([0; 6])
    } else if has(BY_MINUS_ONE) {
        Some([u64::MAX; 6])
    } else {
        BY_UNKNOWN.iter().find(|(known, _)| *known == number).map(|(_, args)| *args)
    }
}

/// Whether an attempt was answered as it must be: refused with the errno `wanted`, or (0) by the kernel itself, as it likes.
#[must_use]
pub const fn answered(wanted: i32, found: i32) -> bool {
    const EACCES: i32 = 13;
    const ENOSYS: i32 = 38;
    if wanted == 0 { found != EPERM && found != EACCES && found != ENOSYS } else { found == wanted }
}

/// Below the lowest address that the kernel maps for anybody (`vm.mmap_min_addr` apart, which is no lower than one page).
const FIRST_PAGE: u64 = 4096;

/// Whether [`attempt`] makes this call.
#[must_use]
pub fn can_attempt(number: u32, args: &[u64; 6]) -> bool {
    if harmless(number).is_some_and(|only| only == *args) {
        return true;
    }
    let flag = |at: usize, value: u64| number == nr::__NR_sendto && at == 3 && value == MSG_FASTOPEN;
    let nowhere = |value: u64| value < FIRST_PAGE || value == u64::MAX || value == u64::from(u32::MAX);
    // Of these only what the kernel refuses: a mapping of no bytes, a value that PR_SET_DUMPABLE does not have, and no signal whose
    // description lies nowhere.
    let refused = match (number, args) {
        (nr::__NR_rt_sigqueueinfo, [_, signal, info, ..]) => *signal == 0 && *info == 0,
        (nr::__NR_mmap, [_, length, ..]) => *length == 0,
        (nr::__NR_prctl, [option, value, ..]) => *option == PR_SET_DUMPABLE && *value == 2,
        _ => true,
    };
    refused
        && HARMLESS.contains(&number)
        && args.iter().enumerate().all(|(at, value)| nowhere(*value) || flag(at, *value))
}

/// The errno with which the kernel, or a filter before it, answers; 0 = it worked.
///
/// # Errors
/// `EINVAL`: not one of the calls that can be attempted.
pub fn attempt(number: u32, args: &[u64; 6]) -> Result<i32> {
    if !can_attempt(number, args) {
        return Err(Errno::EINVAL);
    }
    let args = args.map(|value| usize::try_from(value).unwrap_or(usize::MAX));
    // SAFETY: no argument is an address of ours or a descriptor that is open, so that the kernel reads and writes nothing
    // of ours whichever call of the list this is.
    Ok(Errno::of(&unsafe { call(number, args) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As somebody without privilege, on a thread of its own, none of them is answered as a filter answers.
    #[test]
    fn what_can_be_attempted_is_answered_by_the_kernel() {
        use rustix::process::{Gid, Uid};
        let all = || (0..1024).filter_map(|number| Some((number, harmless(number)?)));
        assert!(all().count() > 150);
        let tried = move || {
            let (uid, gid) = (Uid::from_raw(1000), Gid::from_raw(1000));
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
                rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            }
            for (number, args) in all() {
                let errno = attempt(number, &args).unwrap();
                // A kernel that was built without it has no such call.
                assert!(answered(0, errno) || errno == 38, "call {number}: {errno}");
            }
        };
        std::thread::spawn(tried).join().unwrap();
    }

    #[test]
    fn only_what_is_harmless_is_attempted() {
        let close = nr::__NR_close;
        assert!(attempt(close, &[3, 0, 0, 0, 0, 0]).is_err() && harmless(close).is_none());
        assert!(attempt(nr::__NR_openat, &[0; 6]).is_err(), "other arguments than its own");
        let queued = |signal| can_attempt(nr::__NR_rt_sigqueueinfo, &[1, signal, 0, 0, 0, 0]);
        assert!(queued(0) && !queued(9), "no signal");
        assert!(!can_attempt(nr::__NR_reboot, &[0; 6]) && !can_attempt(nr::__NR_exit_group, &[u64::MAX; 6]));
    }
}
