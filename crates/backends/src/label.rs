//! The label of the payload's program: SELinux context or AppArmor profile.
//!
//! # Promises
//! The kernel gives the label within the payload's execve, or the execve fails. Before *go* the guest reads back which label
//! the next program gets, and AppArmor's mode with it; once the program runs, the supervisor reads the label from outside.
//!
//! # Does not promise
//! What the label's own policy allows. A type that SELinux's policy names permissive is not told from others.

use std::ffi::CString;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use sys::proc::Process;

/// How long a program may take from its first word to its credentials: microseconds, and longer where the processor is
/// somebody else's.
const COMMITTED: Duration = Duration::from_secs(2);

/// Who keeps labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lsm {
    /// AppArmor.
    Apparmor,
    /// SELinux.
    Selinux,
}

impl Lsm {
    /// As policies and the kernel spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Apparmor => "apparmor",
            Self::Selinux => "selinux",
        }
    }

    /// The folder of its attributes, below a process's folder in `/proc`.
    const fn folder(self) -> &'static str {
        match self {
            Self::Apparmor => "attr/apparmor",
            // It has no folder of its own (proc_pid_attr(5)).
            Self::Selinux => "attr",
        }
    }
}

/// What `process.label` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) lsm: Lsm,
    name: String,
}

impl Label {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (lsm, name) = text.split_once(':')?;
        let lsm = [Lsm::Apparmor, Lsm::Selinux].into_iter().find(|one| one.name() == lsm)?;
        Some(Self { lsm, name: name.to_owned() })
    }

    /// The file of the next program's label.
    pub(crate) fn file(&self) -> CString {
        CString::new(format!("{}/exec", self.lsm.folder())).unwrap_or_default()
    }

    /// What is written there.
    pub(crate) fn command(&self) -> Vec<u8> {
        match self.lsm {
            Lsm::Apparmor => format!("exec {}", self.name).into_bytes(),
            Lsm::Selinux => self.name.clone().into_bytes(),
        }
    }

    /// What the kernel must say of it.
    fn in_force(&self) -> String {
        match self.lsm {
            // A profile that only complains is none.
            Lsm::Apparmor => format!("{} (enforce)", self.name),
            Lsm::Selinux => self.name.clone(),
        }
    }

    /// Why what the kernel says is not what was asked for.
    pub(crate) fn differs(&self, said: &[u8]) -> Option<String> {
        let wanted = self.in_force();
        if said == wanted.as_bytes() {
            return None;
        }
        let said = String::from_utf8_lossy(said);
        Some(format!("the kernel says `{said}` and not `{wanted}`"))
    }

    /// Whether the payload, a child of the guest, has the label; `Ok` as well if it has ended already. Its program got the
    /// label when it was executed: this is a second look, from outside.
    ///
    /// The guest is told that its child has executed the program a moment before the kernel commits the credentials
    /// (`exec_mmap` and `commit_creds` in fs/exec.c), so that another label is only a difference when it stays.
    pub(crate) fn check(&self, guest: i32, ended: BorrowedFd<'_>, payload: i32) -> Result<(), String> {
        let until = Instant::now() + COMMITTED;
        loop {
            let Some(said) = self.of_payload(guest, payload) else { return Ok(()) };
            match self.differs(said.trim_end_matches(['\n', '\0']).as_bytes()) {
                None => return Ok(()),
                Some(why) if Instant::now() >= until => return Err(why),
                Some(_) => {
                    // Until the guest has ended, or for a moment.
                    let interest = sys::channel::Interest { fd: ended, write: false };
                    sys::channel::wait(&[interest], Some(Duration::from_millis(1))).map_err(|e| e.to_string())?;
                }
            }
        }
    }

    fn of_payload(&self, guest: i32, payload: i32) -> Option<String> {
        let children = Process::open(guest).and_then(|guest| guest.children()).ok()?;
        let process = children.into_iter().find_map(|child| {
            let process = Process::open(child).ok()?;
            let status = process.status().ok()?;
            (status.pids.last() == Some(&payload)).then_some(process)
        })?;
        process.small_text(&format!("{}/current", self.lsm.folder())).ok()
    }
}

/// Why the kernel did not take the label, by errno and by what the guest's step was doing.
pub(crate) fn refused(errno: i32, doing: u32, why: &str) -> String {
    match (doing, errno) {
        (0, _) => format!("this kernel has no file for it: {why}"),
        // aa_change_profile(2): ENOENT; SELinux: EINVAL.
        (_, 2) => "no profile of this name is loaded".to_owned(),
        (_, 22) => "the host's policy knows no such label".to_owned(),
        (_, 1 | 13) => format!("the host's policy does not let us change to it: {why}"),
        _ => why.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_that_only_complains_is_not_the_one_that_was_asked_for() {
        let label = Label::parse("apparmor:shell").unwrap();
        assert_eq!((label.file().as_c_str(), label.command()), (c"attr/apparmor/exec", b"exec shell".to_vec()));
        assert_eq!(label.differs(b"shell (enforce)"), None);
        for said in [&b"shell (complain)"[..], b"unconfined", b"", b"shell", b"shell (enforce)x"] {
            assert!(label.differs(said).is_some(), "{said:?}");
        }
    }

    #[test]
    fn a_context_keeps_its_colons_and_must_come_back_as_it_is() {
        let label = Label::parse("selinux:u:r:t:s0:c1,c2").unwrap();
        assert_eq!((label.file().as_c_str(), label.command()), (c"attr/exec", b"u:r:t:s0:c1,c2".to_vec()));
        assert_eq!(label.differs(b"u:r:t:s0:c1,c2"), None);
        assert!(label.differs(b"u:r:other:s0").is_some());
    }

    #[test]
    fn another_module_has_no_labels_of_ours() {
        assert_eq!(Label::parse("smack:x"), None);
    }
}
