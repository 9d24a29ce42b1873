//! The label of the payload's program: SELinux context or AppArmor profile.
//!
//! # Promises
//! The kernel gives the label within the payload's execve, or the execve fails. Before *go* the guest reads back which label
//! the next program gets, and AppArmor's mode with it; once the program runs, the supervisor reads the label from outside.
//!
//! # Does not promise
//! What the label's own policy allows. A type that SELinux's policy names permissive is not told from others.

use std::ffi::CString;

use policy::Policy;

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
    pub(crate) fn of(policy: &Policy) -> Option<Self> {
        Self::parse(policy.process.label.as_deref()?)
    }

    fn parse(text: &str) -> Option<Self> {
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

    /// Whether the payload, a child of the guest, has the label; `None` if it has ended already. Its program got the label
    /// when it was executed: this is a second look, from outside.
    pub(crate) fn check(&self, guest: i32, payload: i32) -> Option<Result<(), String>> {
        let children = sys::proc::Process::open(guest).and_then(|guest| guest.children()).ok()?;
        let process = children.into_iter().find_map(|child| {
            let process = sys::proc::Process::open(child).ok()?;
            let status = process.status().ok()?;
            (status.pids.last() == Some(&payload)).then_some(process)
        })?;
        let said = process.small_text(&format!("{}/current", self.lsm.folder())).ok()?;
        Some(self.differs(said.trim_end_matches(['\n', '\0']).as_bytes()).map_or(Ok(()), Err))
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
