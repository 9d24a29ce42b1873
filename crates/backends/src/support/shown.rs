//! What is shown of the host's files as it is, by a bind, and what that lets a program do with a file that it may only read.
//!
//! A folder is shown by an overlay, whose files are its own; a single file, and every folder where there are no overlays or unix
//! sockets of the host are asked for, is the host's own file.

use std::path::Path;

use policy::Support;
use policy::control::{Control, Filter};
use policy::value::{Policy, Sockets, WorkspaceMode};

use super::unmet;
use crate::host::Capabilities;

/// Whether a path lies in a place that the program writes to anyhow: rights of Landlock add up along a path.
pub(super) fn is_own(policy: &Policy, at: &Path) -> bool {
    let home = Path::new("/home").join(&policy.process.user);
    let own = ["/tmp", "/var/tmp", "/run", "/dev", "/proc"].map(Path::new);
    own.into_iter().chain([home.as_path()]).any(|own| at.starts_with(own))
}

/// What a program could do to the host's own files through a descriptor that only reads is closed where some are shown.
pub(super) fn shared_files(policy: &Policy, host: &Capabilities) -> Option<Control> {
    let binds = !host.layers_reads(policy);
    let shown = !policy.fs.read.is_empty() || (binds && policy.workspace.mode == WorkspaceMode::Ro);
    // Which of the grants are single files is not known here: locks of those stay, since programs lock files of their own.
    let locks = binds && !policy.writes_to_host();
    shown.then_some(Control::Filter(Filter::SharedFiles { locks, watches: false }))
}

/// A named pipe takes what is written to it whether its mount is read-only or not. Landlock keeps a program from it, but for what
/// is shown in a place where it may write. Who asks for sockets of the host is told of it by the lint of `fs.sockets`.
pub(super) fn pipes(policy: &Policy, host: &Capabilities) -> Option<Support> {
    if policy.fs.sockets == Sockets::Host || host.overlay_readonly() {
        return None;
    }
    let workspace = policy.workspace_at().filter(|_| policy.workspace.mode == WorkspaceMode::Ro);
    // A single file that is a pipe is refused by itself.
    let folders = policy.fs.read.iter().filter(|grant| !grant.from.is_file()).map(|grant| &grant.to);
    let at = folders.chain(workspace).find(|at| is_own(policy, at))?;
    Some(unmet(
        "fs.read/pipes",
        format!(
            "this kernel has no overlays, so that folders are shown as they are, and a named pipe in `{}`, which lies in a place that \
             the program writes to, could be written to",
            at.display()
        ),
        "show it elsewhere (`FROM:TO`, `workspace.at`), or load the kernel's module (`modprobe overlay`)",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Assumed;
    use crate::support::policy_of;

    #[test]
    fn folders_as_they_are_close_locks_unless_something_is_written_and_single_files_close_leases() {
        let host = Capabilities::assumed(Assumed::Groups);
        let closed = |text: &str| {
            let control = shared_files(&policy_of(text), &host)?;
            let shared = |locks| Control::Filter(Filter::SharedFiles { locks, watches: false });
            let locks = control == shared(true);
            assert!(locks || control == shared(false), "{control:?}");
            Some(locks)
        };
        assert_eq!(closed(""), None);
        assert_eq!(closed("[fs]\nread = ['/srv/data']"), Some(false));
        assert_eq!(closed("[fs]\nread = ['/srv/data']\nsockets = true"), Some(true));
        assert_eq!(closed("[fs]\nread = ['/srv/data']\nwrite = ['/srv/out']\nsockets = true"), Some(false));
        assert_eq!(closed("[fs]\nsockets = true\n[workspace]\npath = '/srv/w'\nmode = 'ro'"), Some(true));
    }

    #[test]
    fn a_folder_as_it_is_in_a_place_that_is_written_to_is_refused_on_a_kernel_without_overlays() {
        let (with, mut without) = (Capabilities::assumed(Assumed::Groups), Capabilities::assumed(Assumed::Groups));
        without.kernel = (5, 10);
        let refused = |text: &str, host: &Capabilities| pipes(&policy_of(text), host).is_some();
        let below = "[fs]\nread = ['/tmp/data']";
        assert!(refused(below, &without) && !refused(below, &with));
        assert!(refused("[workspace]\npath = '/srv/w'\nat = '/tmp/w'\nmode = 'ro'", &without));
        assert!(!refused("[fs]\nread = [{ from = '/tmp/data', to = '/data' }]", &without));
        assert!(!refused("[fs]\nread = ['/srv/data']", &without));
        assert!(!refused("[fs]\nread = ['/tmp/data']\nsockets = true", &without), "asked for, and told of");
    }
}
