//! The guest under a filter that kills on any call which is not on its published list or a plain program's own.

use guest::CALLS_AFTER_SECCOMP;
use guest::frames::End;

use crate::harness::{Sandbox, Who};
use crate::world::{container, process};

/// What the dynamic loader and `true` need besides.
pub(crate) const PROGRAM: &[&str] = &[
    "brk",
    "mmap",
    "mprotect",
    "munmap",
    "access",
    "fstat",
    "newfstatat",
    "pread64",
    "arch_prctl",
    "set_tid_address",
    "set_robust_list",
    "rseq",
    "prlimit64",
    "getrandom",
    "write",
    "futex",
];

fn number(name: &str) -> u32 {
    let number = match name {
        "openat" => libc::SYS_openat,
        "socket" => libc::SYS_socket,
        "kill" => libc::SYS_kill,
        "close" => libc::SYS_close,
        "prctl" => libc::SYS_prctl,
        "recvmsg" => libc::SYS_recvmsg,
        "sendmsg" => libc::SYS_sendmsg,
        "ppoll" => libc::SYS_ppoll,
        "read" => libc::SYS_read,
        "wait4" => libc::SYS_wait4,
        "close_range" => libc::SYS_close_range,
        "clone" => libc::SYS_clone,
        "setsid" => libc::SYS_setsid,
        "landlock_restrict_self" => libc::SYS_landlock_restrict_self,
        "umask" => libc::SYS_umask,
        "chdir" => libc::SYS_chdir,
        "rt_sigprocmask" => libc::SYS_rt_sigprocmask,
        "execve" => libc::SYS_execve,
        "statx" => libc::SYS_statx,
        "ioctl" => libc::SYS_ioctl,
        "dup3" => libc::SYS_dup3,
        "exit_group" => libc::SYS_exit_group,
        "brk" => libc::SYS_brk,
        "mmap" => libc::SYS_mmap,
        "mprotect" => libc::SYS_mprotect,
        "munmap" => libc::SYS_munmap,
        "access" => libc::SYS_access,
        "fstat" => libc::SYS_fstat,
        "newfstatat" => libc::SYS_newfstatat,
        "pread64" => libc::SYS_pread64,
        "arch_prctl" => libc::SYS_arch_prctl,
        "set_tid_address" => libc::SYS_set_tid_address,
        "set_robust_list" => libc::SYS_set_robust_list,
        "rseq" => libc::SYS_rseq,
        "prlimit64" => libc::SYS_prlimit64,
        "getrandom" => libc::SYS_getrandom,
        "write" => libc::SYS_write,
        "futex" => libc::SYS_futex,
        other => panic!("no number for {other}"),
    };
    u32::try_from(number).unwrap()
}

/// Allows these calls and kills on any other.
pub(crate) fn allow(names: &[&str]) -> Vec<u8> {
    const LOAD_NUMBER: (u16, u8, u8, u32) = (0x20, 0, 0, 0);
    const ALLOW: (u16, u8, u8, u32) = (0x06, 0, 0, 0x7fff_0000);
    const KILL: (u16, u8, u8, u32) = (0x06, 0, 0, 0x8000_0000);
    let mut program = vec![LOAD_NUMBER];
    for name in names {
        program.push((0x15, 0, 1, number(name)));
        program.push(ALLOW);
    }
    program.push(KILL);
    program
        .iter()
        .flat_map(|(code, yes, no, value)| [&code.to_le_bytes()[..], &[*yes, *no], &value.to_le_bytes()].concat())
        .collect()
}

#[test]
fn the_published_calls_are_all_that_the_guest_makes_after_the_filter() {
    let names = [CALLS_AFTER_SECCOMP, PROGRAM].concat();
    for who in Who::BOTH {
        let mut config = container(who, &["true"]);
        config.seccomp = allow(&names);
        let told = who.be(|| Sandbox::run(who, &config));
        assert_eq!((told.exited.end, told.posture.seccomp_mode), (End::Code(0), 2), "{told:?}");
        let mut config = process(who.outside(), &["true"]);
        config.seccomp = allow(&names);
        let told = who.be(|| Sandbox::start_with(who, &config, sys::spawn::Namespaces::NONE, &[]).finish());
        assert_eq!((told.exited.end, told.posture.seccomp_mode), (End::Code(0), 2), "{told:?}");
    }
}

#[test]
fn the_filter_holds_for_the_payload() {
    // The control of the test above: uname is on neither list.
    let names = [CALLS_AFTER_SECCOMP, PROGRAM].concat();
    let who = Who::Rootless;
    let mut config = container(who, &["uname"]);
    config.seccomp = allow(&names);
    let told = who.be(|| Sandbox::run(who, &config));
    assert_eq!(told.exited.end, End::Signal { number: 31, core: false });
}
