//! The calling thread acts on files as another user for a while, as root would hand the work to it.
//!
//! *Kernel facts*: setfsuid(2) and setfsgid(2) are per thread and answer the former id, never an error, so the change is
//! read back. Leaving fsuid 0 takes the file capabilities (CAP_DAC_OVERRIDE and others) out of the effective set, and
//! coming back restores them (capabilities(7)). A thread made meanwhile inherits the ids. setgroups(2) as a bare system call
//! is per thread too: the supplementary groups of the caller would open files that are closed to that user.

use std::marker::PhantomData;

use rustix::fs::Gid;
use rustix::io::Errno;
use rustix::thread::set_thread_groups;

use crate::error::{Error, ErrorContext as _, Result};

/// While this lives, the calling thread opens and makes files as another user. Not for sending to another thread.
#[derive(Debug)]
pub struct FsIdsGuard {
    before: (u32, u32),
    /// The supplementary groups that were given up.
    groups: Vec<Gid>,
    thread_bound: PhantomData<*const ()>,
}

const ASK: u32 = u32::MAX;

impl FsIdsGuard {
    /// Becomes `uid` and `gid` for files, without supplementary groups.
    ///
    /// # Errors
    /// EPERM: this process may not.
    pub fn user(uid: u32, gid: u32) -> Result<Self> {
        let object = || format!("uid {uid}, gid {gid}");
        let before = (set_uid(ASK), set_gid(ASK));
        let groups = rustix::process::getgroups().named("getgroups", object)?;
        if !groups.is_empty() {
            set_thread_groups(&[]).named("setgroups", object)?;
        }
        // From here on a failure is taken back when the guard is dropped.
        let guard = Self { before, groups, thread_bound: PhantomData };
        // The group first: without uid 0 it could not be changed.
        set_gid(gid);
        set_uid(uid);
        if (set_uid(ASK), set_gid(ASK)) == (uid, gid) {
            return Ok(guard);
        }
        Err(Error::new("setfsuid", object(), Errno::PERM))
    }
}

impl FsIdsGuard {
    /// As [`FsIdsGuard::user`], but files that root may read stay readable: for copying into a file system that only knows
    /// that user's ids.
    ///
    /// # Errors
    /// EPERM: this process may not.
    pub fn user_who_reads_all(uid: u32, gid: u32) -> Result<Self> {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let guard = Self::user(uid, gid)?;
        let object = || format!("uid {uid}");
        // setfsuid(2) took the capabilities over files from the effective set; one of them is wanted back.
        let mut sets = capabilities(None).named("capget", object)?;
        if sets.permitted.contains(CapabilitySet::DAC_READ_SEARCH) {
            sets.effective |= CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).named("capset", object)?;
        }
        Ok(guard)
    }
}

/// Leaves the calling thread no capability but that to look into processes, if it has that.
///
/// # Errors
/// None that the kernel documents for giving up.
pub fn give_up_capabilities() -> Result<()> {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let object = || "calling thread".to_owned();
    let mut sets = capabilities(None).named("capget", object)?;
    sets.effective &= CapabilitySet::SYS_PTRACE;
    sets.permitted = sets.effective;
    sets.inheritable = CapabilitySet::empty();
    set_capabilities(None, sets).named("capset", object)
}

impl Drop for FsIdsGuard {
    fn drop(&mut self) {
        set_uid(self.before.0);
        set_gid(self.before.1);
        // What gave them up can take them back: neither id is asked for that. If it fails, there are fewer rights, not more.
        if !self.groups.is_empty() && set_thread_groups(&self.groups).is_err() {}
    }
}

/// The former fsuid. An invalid id asks and changes nothing.
fn set_uid(uid: u32) -> u32 {
    // SAFETY: takes a number and touches no memory; the C library's wrapper changes the calling thread alone.
    unsafe { libc::setfsuid(uid) }.cast_unsigned()
}

/// The former fsgid.
fn set_gid(gid: u32) -> u32 {
    // SAFETY: takes a number and touches no memory; the C library's wrapper changes the calling thread alone.
    unsafe { libc::setfsgid(gid) }.cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_root_is_closed_to_the_other_user_and_open_again_afterwards() {
        if !rustix::process::geteuid().is_root() {
            println!("skip: needs root");
            return;
        }
        assert!(std::fs::File::open("/etc/shadow").is_ok());
        let (ask, asked) = std::sync::mpsc::channel::<()>();
        let beside = std::thread::spawn(move || {
            asked.recv().unwrap();
            std::fs::File::open("/etc/shadow").is_ok()
        });
        let other = FsIdsGuard::user(65534, 65534).unwrap();
        ask.send(()).unwrap();
        assert!(beside.join().unwrap(), "a thread that was there before is not changed");
        assert_eq!(std::fs::File::open("/etc/shadow").unwrap_err().raw_os_error(), Some(13));
        assert!(std::fs::File::open("/etc/passwd").is_ok());
        drop(other);
        assert!(std::fs::File::open("/etc/shadow").is_ok());
    }
}
