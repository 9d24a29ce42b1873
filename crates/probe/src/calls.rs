//! System calls by name, each with arguments with which it does no harm, and the answers that show it was let through.
//!
//! The kernel checks permission before it looks at most arguments: `reboot` with a wrong magic number answers EPERM to who may
//! not, EINVAL to who may. So every row here is a question, never a deed.

use rustix::io::Errno;

use crate::arch;
use crate::question::{
    BAD, DOT, EMPTY, NO_FD, NO_TYPE, NOWHERE, ONE, PERF, PROC_SELF, Question, TIMEX, TMPFS, WRONG, ZEROS, ask,
};

/// The questions that every architecture has, sorted by what they are about.
const QUESTIONS: &[Question] = &[
    // The machine.
    ask("reboot", libc::SYS_reboot, [WRONG, WRONG, 0, 0, 0, 0], &[Errno::INVAL]),
    ask("kexec_load", libc::SYS_kexec_load, [0, 17, 0, 0, 0, 0], BAD),
    ask("kexec_file_load", libc::SYS_kexec_file_load, [NO_FD, NO_FD, 0, 0, WRONG, 0], BAD),
    ask(
        "init_module",
        libc::SYS_init_module,
        [NOWHERE, 64, NOWHERE, 0, 0, 0],
        &[Errno::FAULT, Errno::NOEXEC, Errno::INVAL],
    ),
    ask("finit_module", libc::SYS_finit_module, [NO_FD, NOWHERE, 0, 0, 0, 0], BAD),
    ask("delete_module", libc::SYS_delete_module, [NOWHERE, 0, 0, 0, 0, 0], BAD),
    ask("swapon", libc::SYS_swapon, [NOWHERE, 0, 0, 0, 0, 0], BAD),
    ask("swapoff", libc::SYS_swapoff, [NOWHERE, 0, 0, 0, 0, 0], BAD),
    ask("acct", libc::SYS_acct, [NOWHERE, 0, 0, 0, 0, 0], BAD),
    ask("settimeofday", libc::SYS_settimeofday, [0, 0, 0, 0, 0, 0], &[]),
    ask("adjtimex", libc::SYS_adjtimex, [TIMEX, 0, 0, 0, 0, 0], &[Errno::INVAL]),
    ask("sethostname", libc::SYS_sethostname, [NOWHERE, WRONG, 0, 0, 0, 0], &[Errno::INVAL]),
    ask("setdomainname", libc::SYS_setdomainname, [NOWHERE, WRONG, 0, 0, 0, 0], &[Errno::INVAL]),
    ask("quotactl", libc::SYS_quotactl, [0x0080_0001 << 8, NOWHERE, 0, NOWHERE, 0, 0], &[Errno::FAULT]),
    ask("syslog-read", libc::SYS_syslog, [10, 0, 0, 0, 0, 0], &[]),
    // Mounts and roots.
    ask("mount", libc::SYS_mount, [TMPFS, DOT, NO_TYPE, 0, 0, 0], &[Errno::NODEV]),
    ask("umount2", libc::SYS_umount2, [PROC_SELF, 0, 0, 0, 0, 0], &[Errno::INVAL]),
    ask("pivot_root", libc::SYS_pivot_root, [NOWHERE, NOWHERE, 0, 0, 0, 0], BAD),
    ask("chroot", libc::SYS_chroot, [DOT, 0, 0, 0, 0, 0], &[]),
    ask("fsopen", libc::SYS_fsopen, [TMPFS, 0, 0, 0, 0, 0], &[]),
    ask("open_tree-clone", libc::SYS_open_tree, [AT_FDCWD, DOT, 1, 0, 0, 0], &[]),
    ask("move_mount", libc::SYS_move_mount, [NO_FD, EMPTY, NO_FD, EMPTY, 0x44, 0], BAD),
    ask("mount_setattr", libc::SYS_mount_setattr, [NO_FD, EMPTY, 0x1000, ZEROS, 32, 0], BAD),
    ask("fspick", libc::SYS_fspick, [AT_FDCWD, DOT, 0, 0, 0, 0], &[Errno::INVAL]),
    // New namespaces.
    ask("unshare-user", libc::SYS_unshare, [NEWUSER, 0, 0, 0, 0, 0], &[]),
    ask("unshare-user-mount", libc::SYS_unshare, [NEWUSER | NEWNS, 0, 0, 0, 0, 0], &[]),
    ask("unshare-mount", libc::SYS_unshare, [NEWNS, 0, 0, 0, 0, 0], &[]),
    ask("unshare-net", libc::SYS_unshare, [NEWNET, 0, 0, 0, 0, 0], &[]),
    ask("unshare-user-net", libc::SYS_unshare, [NEWUSER | NEWNET, 0, 0, 0, 0, 0], &[]),
    ask("unshare-pid", libc::SYS_unshare, [NEWPID, 0, 0, 0, 0, 0], &[]),
    ask("unshare-cgroup", libc::SYS_unshare, [NEWCGROUP, 0, 0, 0, 0, 0], &[]),
    // Parts of the kernel that are attacked more than used.
    ask("bpf", libc::SYS_bpf, [0, ZEROS, 64, 0, 0, 0], &[Errno::INVAL]),
    ask("perf_event_open", libc::SYS_perf_event_open, [PERF, 0, usize::MAX, usize::MAX, 0, 0], BAD),
    ask("userfaultfd", libc::SYS_userfaultfd, [1, 0, 0, 0, 0, 0], &[]),
    ask("kcmp", libc::SYS_kcmp, [NO_FD, NO_FD, 0, 0, 0, 0], &[Errno::SRCH]),
    ask("io_uring_setup", libc::SYS_io_uring_setup, [1, ZEROS, 0, 0, 0, 0], BAD),
    ask("io_uring_enter", libc::SYS_io_uring_enter, [NO_FD, 0, 0, 0, 0, 0], &[Errno::BADF, Errno::OPNOTSUPP]),
    ask("add_key", libc::SYS_add_key, [NOWHERE, NOWHERE, 0, 0, THREAD_KEYRING, 0], BAD),
    ask("request_key", libc::SYS_request_key, [NOWHERE, NOWHERE, 0, 0, 0, 0], BAD),
    ask("keyctl-session", libc::SYS_keyctl, [0, SESSION_KEYRING, 0, 0, 0, 0], &[Errno::NOKEY]),
    ask("keyctl-join", libc::SYS_keyctl, [1, 0, 0, 0, 0, 0], &[]),
    ask("keyctl-user-keyring", libc::SYS_keyctl, [0, USER_KEYRING, 1, 0, 0, 0], &[]),
    ask(
        "name_to_handle_at",
        libc::SYS_name_to_handle_at,
        [AT_FDCWD, DOT, ZEROS, NOWHERE, 0, 0],
        &[Errno::OVERFLOW, Errno::FAULT],
    ),
    ask("fanotify_init", libc::SYS_fanotify_init, [0x200, 0, 0, 0, 0, 0], &[]),
    ask("memfd_secret", 447, [0, 0, 0, 0, 0, 0], &[]),
    ask("pidfd_getfd", libc::SYS_pidfd_getfd, [NO_FD, 0, 0, 0, 0, 0], BAD),
    ask("process_vm_readv", libc::SYS_process_vm_readv, [1, ZEROS, 0, ZEROS, 0, 0], &[]),
    ask("process_madvise", libc::SYS_process_madvise, [NO_FD, ZEROS, 1, 0, 0, 0], BAD),
    ask("move_pages", libc::SYS_move_pages, [0, 0, NOWHERE, 0, NOWHERE, 0], BAD),
    ask("ptrace-attach-none", libc::SYS_ptrace, [0x10, 0x3fff_ffff, 0, 0, 0, 0], &[Errno::SRCH]),
    ask("personality-aslr-off", libc::SYS_personality, [0x0004_0000, 0, 0, 0, 0, 0], &[]),
    ask("personality-read-implies-exec", libc::SYS_personality, [0x0040_0000, 0, 0, 0, 0, 0], &[]),
    ask("set_mempolicy_home_node", 450, [0, 0, 0, 0, 0, 0], BAD),
    // Calls that came late.
    ask("cachestat", 451, [NO_FD, ZEROS, ZEROS, 0, 0, 0], BAD),
    ask("io_uring_register", libc::SYS_io_uring_register, [NO_FD, 0, 0, 0, 0, 0], BAD),
    ask("process_mrelease", 448, [NO_FD, 0, 0, 0, 0, 0], BAD),
    ask("quotactl_fd", 443, [NO_FD, 0, 0, 0, 0, 0], BAD),
    ask("statmount", 457, [ZEROS, ZEROS, 256, 0, 0, 0], BAD),
    ask("listmount", 458, [ZEROS, ZEROS, 16, 0, 0, 0], BAD),
    ask("lsm_set_self_attr", 460, [WRONG, ZEROS, 16, 0, 0, 0], &[Errno::INVAL, Errno::OPNOTSUPP]),
    ask("open_tree_attr", 467, [AT_FDCWD, DOT, 1, ZEROS, 32, 0], BAD),
    ask("pidfs-by-handle", libc::SYS_open_by_handle_at, [PIDFS_ROOT, ZEROS, 0, 0, 0, 0], BAD),
    ask("nsfs-by-handle", libc::SYS_open_by_handle_at, [NSFS_ROOT, ZEROS, 0, 0, 0, 0], BAD),
    ask("seccomp-listener", libc::SYS_seccomp, [1, 8, NOWHERE, 0, 0, 0], &[Errno::FAULT]),
    // Rank.
    ask("sched_setscheduler-fifo", libc::SYS_sched_setscheduler, [0, 1, ONE, 0, 0, 0], &[]),
    ask("sched_setscheduler-rr", libc::SYS_sched_setscheduler, [0, 2, ONE, 0, 0, 0], &[]),
    ask("setpriority-negative", libc::SYS_setpriority, [0, 0, NEGATIVE_TEN, 0, 0, 0], &[]),
    ask("ioprio_set-rt", libc::SYS_ioprio_set, [1, 0, 1 << 13, 0, 0, 0], &[]),
    ask("mlockall", libc::SYS_mlockall, [6, 0, 0, 0, 0, 0], &[]),
    // Parting with restraint.
    ask("prctl-set_mm", libc::SYS_prctl, [35, 1, NOWHERE, 0, 0, 0], &[Errno::INVAL]),
    ask("prctl-ssb-enable", libc::SYS_prctl, [53, 0, 2, 0, 0, 0], &[]),
    ask("setuid-root", libc::SYS_setuid, [0, 0, 0, 0, 0, 0], &[]),
    ask("setgroups-none", libc::SYS_setgroups, [0, 0, 0, 0, 0, 0], &[]),
];

const AT_FDCWD: usize = usize::MAX - 99;
/// `FD_PIDFS_ROOT` and `FD_NSFS_ROOT` (fcntl.h): handles of processes and namespaces instead of files.
const PIDFS_ROOT: usize = usize::MAX - 10_001;
const NSFS_ROOT: usize = usize::MAX - 10_002;
const NEGATIVE_TEN: usize = usize::MAX - 9;
const SESSION_KEYRING: usize = usize::MAX - 2;
const THREAD_KEYRING: usize = usize::MAX;
const USER_KEYRING: usize = usize::MAX - 3;
const NEWNS: usize = 0x0002_0000;
const NEWCGROUP: usize = 0x0200_0000;
const NEWUSER: usize = 0x1000_0000;
const NEWPID: usize = 0x2000_0000;
const NEWNET: usize = 0x4000_0000;

/// The question of this name.
#[must_use]
pub fn question(name: &str) -> Option<&'static Question> {
    all().find(|question| question.name == name)
}

fn all() -> impl Iterator<Item = &'static Question> {
    QUESTIONS.iter().chain(arch::QUESTIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        for question in all() {
            assert_eq!(all().filter(|other| other.name == question.name).count(), 1, "{}", question.name);
        }
    }

    #[test]
    fn an_unconfined_process_may_ask_for_a_handle_of_its_folder() {
        assert_eq!(question("name_to_handle_at").unwrap().ask(), Ok(()));
    }
}
