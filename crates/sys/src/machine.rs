//! Facts about this machine and kernel that decide what can be held. Asking leaves no trace.

use crate::error::{Error, Result};
use rustix::io::Errno;

/// (major, minor) of the running kernel.
#[must_use]
pub fn kernel() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy().into_owned();
    parse_release(&release).unwrap_or((0, 0))
}

/// Whether the running kernel is at least this one. Vendors port things back: prefer asking for the thing itself.
#[must_use]
pub fn kernel_at_least(major: u32, minor: u32) -> bool {
    kernel() >= (major, minor)
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// A number under `/proc/sys`; `None` when this kernel has no such setting.
///
/// # Errors
/// It exists and cannot be read or is no number.
pub fn sysctl(name: &str) -> Result<Option<i64>> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    match std::fs::read_to_string(&path) {
        Ok(text) => match text.trim().parse() {
            Ok(number) => Ok(Some(number)),
            Err(_not_a_number) => Err(Error::new("parse", path, Errno::BADMSG)),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::new("read", path, Errno::from_io_error(&error).unwrap_or(Errno::IO))),
    }
}

/// What a security module does with labels on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// It is not built in, or not switched on.
    Absent,
    /// It keeps labels and forbids nothing (SELinux in permissive mode).
    Permissive,
    /// It holds what its policy says of a label.
    Enforcing,
}

/// Whether AppArmor runs: only then has this process a label of it. The file of its own came with Linux 5.8; it needs no
/// securityfs, which a container does not show.
#[must_use]
pub fn apparmor() -> Labels {
    match std::fs::read("/proc/self/attr/apparmor/current") {
        Ok(label) if !label.is_empty() => Labels::Enforcing,
        Ok(_) | Err(_) => Labels::Absent,
    }
}

/// Whether SELinux runs, and enforces.
#[must_use]
pub fn selinux() -> Labels {
    match std::fs::read_to_string("/sys/fs/selinux/enforce") {
        Ok(text) if text.trim() == "1" => Labels::Enforcing,
        Ok(_) => Labels::Permissive,
        Err(_) => Labels::Absent,
    }
}

/// What stands in the way of user namespaces for a user without privilege, as far as settings tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserNamespaces {
    /// `user.max_user_namespaces`; 0 forbids them.
    pub most: Option<i64>,
    /// `kernel.unprivileged_userns_clone` (Debian and others); 0 forbids them.
    pub unprivileged_clone: Option<i64>,
    /// `kernel.apparmor_restrict_unprivileged_userns` (Ubuntu); 1 lets them be made and takes their capabilities away.
    pub apparmor_restricts: Option<i64>,
}

/// Reads the settings about user namespaces.
///
/// # Errors
/// One exists and cannot be read.
pub fn user_namespaces() -> Result<UserNamespaces> {
    Ok(UserNamespaces {
        most: sysctl("user.max_user_namespaces")?,
        unprivileged_clone: sysctl("kernel.unprivileged_userns_clone")?,
        apparmor_restricts: sysctl("kernel.apparmor_restrict_unprivileged_userns")?,
    })
}

/// Whether a process may stop the threads of those below it, as far as Yama is asked (`kernel.yama.ptrace_scope`). `powerful`: it
/// may trace whatever runs there (CAP_SYS_PTRACE).
///
/// # Errors
/// The setting exists and cannot be read.
pub fn may_stop(powerful: bool) -> Result<bool> {
    Ok(permits(sysctl("kernel.yama.ptrace_scope")?, powerful))
}

/// 1: who descends from it; 2: by that capability alone; 3: nobody.
const fn permits(scope: Option<i64>, powerful: bool) -> bool {
    match scope {
        None | Some(0 | 1) => true,
        Some(2) => powerful,
        Some(_) => false,
    }
}

/// Whether `/dev/kvm` can be opened for use by this process.
#[must_use]
pub fn kvm() -> bool {
    use rustix::fs::{Mode, OFlags};
    rustix::fs::open("/dev/kvm", OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty()).is_ok()
}

/// This boot's id: with a process's number and start time it names that process for ever.
///
/// # Errors
/// `/proc` is not mounted.
pub fn boot_id() -> Result<String> {
    let path = "/proc/sys/kernel/random/boot_id";
    std::fs::read_to_string(path)
        .map(|text| text.trim().to_owned())
        .map_err(|error| Error::new("read", path, Errno::from_io_error(&error).unwrap_or(Errno::IO)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_descends_from_us_may_be_stopped_unless_yama_wants_a_capability_or_lets_nobody() {
        let permitted = |scope| (permits(scope, false), permits(scope, true));
        assert_eq!([None, Some(0), Some(1)].map(permitted), [(true, true); 3]);
        assert_eq!([Some(2), Some(3)].map(permitted), [(false, true), (false, false)]);
    }

    #[test]
    fn releases_of_vendors_parse() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some((6, 18)));
        assert_eq!(parse_release("5.14.0-427.el9.x86_64"), Some((5, 14)));
        assert_eq!(parse_release("nonsense"), None);
        assert!(kernel() > (3, 0));
    }

    #[test]
    fn a_setting_that_does_not_exist_is_not_zero() {
        assert_eq!(sysctl("kernel.no_such_thing").unwrap(), None);
        assert!(sysctl("kernel.pid_max").unwrap().unwrap() > 100);
        assert!(sysctl("kernel.ostype").is_err());
    }
}
