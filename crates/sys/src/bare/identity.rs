//! Who we are, and what we may use: ids, groups, limits, keyring, priority, host name.

use linux_raw_sys::general::{
    __NR_getgroups, __NR_getresgid, __NR_getresuid, __NR_keyctl, __NR_prlimit64, __NR_setgroups, __NR_sethostname,
    __NR_setpriority, __NR_setresgid, __NR_setresuid, __NR_uname, rlimit64,
};

use super::errno::Result;
use super::raw::{call, int, read, small, uint, write};

/// All three user ids.
///
/// # Errors
/// That of setresuid(2).
pub fn set_user(uid: u32) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_setresuid, [uint(uid), uint(uid), uint(uid)]) }.map(drop)
}

/// All three group ids.
///
/// # Errors
/// That of setresgid(2).
pub fn set_group(gid: u32) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_setresgid, [uint(gid), uint(gid), uint(gid)]) }.map(drop)
}

/// No supplementary groups.
///
/// # Errors
/// That of setgroups(2): `EPERM` where the user namespace denies it.
pub fn clear_groups() -> Result<()> {
    // SAFETY: a count of 0 reads nothing.
    unsafe { call(__NR_setgroups, [0, 0]) }.map(drop)
}

/// How many supplementary groups we have.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn group_count() -> Result<u32> {
    // SAFETY: a count of 0 writes nothing.
    unsafe { call(__NR_getgroups, [0, 0]) }.map(|count| small(count).unsigned_abs())
}

/// Real, effective and saved user id.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn users() -> Result<[u32; 3]> {
    three(__NR_getresuid)
}

/// Real, effective and saved group id.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn groups() -> Result<[u32; 3]> {
    three(__NR_getresgid)
}

fn three(number: u32) -> Result<[u32; 3]> {
    let [mut real, mut effective, mut saved] = [0_u32; 3];
    // SAFETY: getresuid and getresgid write one u32 to each of three places.
    unsafe { call(number, [write(&mut real), write(&mut effective), write(&mut saved)]) }?;
    Ok([real, effective, saved])
}

/// Soft and hard limit become `value`.
///
/// # Errors
/// That of prlimit(2): `EPERM` = above the hard limit.
pub fn set_limit(resource: u32, value: u64) -> Result<()> {
    let limit = rlimit64 { rlim_cur: value, rlim_max: value };
    // SAFETY: an rlimit64 to read, nothing to write.
    unsafe { call(__NR_prlimit64, [0, uint(resource), read(&limit), 0]) }.map(drop)
}

/// Soft and hard limit.
///
/// # Errors
/// That of prlimit(2): `EINVAL` = no such resource.
pub fn limit(resource: u32) -> Result<(u64, u64)> {
    let mut limit = rlimit64 { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing to read, an rlimit64 to write.
    unsafe { call(__NR_prlimit64, [0, uint(resource), 0, write(&mut limit)]) }?;
    Ok((limit.rlim_cur, limit.rlim_max))
}

/// A new anonymous session keyring, so that the caller's keys are out of reach.
///
/// # Errors
/// That of keyctl(2).
pub fn join_new_keyring() -> Result<()> {
    const KEYCTL_JOIN_SESSION_KEYRING: u32 = 1;
    // SAFETY: a name of NULL reads nothing.
    unsafe { call(__NR_keyctl, [uint(KEYCTL_JOIN_SESSION_KEYRING), 0]) }.map(drop)
}

/// The number of our session keyring.
///
/// # Errors
/// That of keyctl(2).
pub fn session_keyring() -> Result<usize> {
    const KEYCTL_GET_KEYRING_ID: u32 = 0;
    const SESSION: i32 = -3;
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_keyctl, [uint(KEYCTL_GET_KEYRING_ID), int(SESSION), 0]) }
}

/// Our nice value.
///
/// # Errors
/// That of setpriority(2).
pub fn set_nice(nice: i32) -> Result<()> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_setpriority, [0, 0, int(nice)]) }.map(drop)
}

/// sethostname(2).
///
/// # Errors
/// That of sethostname(2).
pub fn set_hostname(name: &[u8]) -> Result<()> {
    // SAFETY: the slice is valid for its length.
    unsafe { call(__NR_sethostname, [read(name), name.len()]) }.map(drop)
}

/// The host name, in the first bytes; its length.
///
/// # Errors
/// None that the kernel documents for this use.
pub fn hostname() -> Result<([u8; 64], usize)> {
    let mut names = [[0_u8; 65]; 6];
    // SAFETY: new_utsname is six texts of 65 bytes.
    unsafe { call(__NR_uname, [write(&mut names)]) }?;
    let [_, node, ..] = names;
    let mut name = [0; 64];
    for (to, from) in name.iter_mut().zip(node) {
        *to = from;
    }
    Ok((name, node.iter().take_while(|byte| **byte != 0).count().min(64)))
}
