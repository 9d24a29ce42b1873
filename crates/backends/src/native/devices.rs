//! The few devices of the host that a container shows.

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use guest::config::Attrs;

use crate::StartError;

/// Names in `/dev`, with their numbers (Documentation/admin-guide/devices.txt).
pub(super) const SHOWN: &[(&str, u32, u32)] =
    &[("null", 1, 3), ("zero", 1, 5), ("full", 1, 7), ("random", 1, 8), ("urandom", 1, 9), ("tty", 5, 0)];
/// How they are mounted. Read-only, so that a node of the host keeps its owner, mode and times, whoever owns it; the driver is read
/// and written all the same, for the kernel asks no mount about what is written to a device.
pub(super) const ATTRS: Attrs = WITH_ROOT.and(Attrs::RDONLY);
/// What of that one operation gives them together with the root, in which there is still much to be made: the guest makes each node
/// read-only when it shows it.
pub(super) const WITH_ROOT: Attrs = Attrs::NOSUID.and(Attrs::NOEXEC);

/// Told here, where it can be explained; the guest holds what it has mounted against the same numbers.
pub(super) fn judge(path: &Path, major: u32, minor: u32) -> Result<(), StartError> {
    let meta = path.symlink_metadata().map_err(|e| StartError::path("fs.root", path, &e))?;
    if meta.file_type().is_char_device() && sys::caller::device_numbers(meta.rdev()) == (major, minor) {
        return Ok(());
    }
    Err(StartError::NotTheDevice { path: path.to_owned() })
}

/// The host's nodes as they were before a runtime was started. A runtime gives its standard streams to the container's user, and may do
/// more with a node than it was asked for, as root.
#[derive(Debug)]
pub(crate) struct Nodes(Vec<Node>);

#[derive(Debug)]
struct Node {
    at: PathBuf,
    was: Option<NodePermissions>,
}

/// Whose a node is, and what it lets whom do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodePermissions {
    uid: u32,
    gid: u32,
    mode: u32,
}

impl Nodes {
    /// As they are now.
    pub(crate) fn look() -> Self {
        Self::of(SHOWN.iter().map(|(name, ..)| Path::new("/dev").join(name)))
    }

    fn of(all: impl IntoIterator<Item = PathBuf>) -> Self {
        Self(all.into_iter().map(|at| Node { was: facts(&at), at }).collect())
    }

    /// Each one that is otherwise now, in words.
    pub(crate) fn changed(&self) -> Vec<String> {
        self.0.iter().filter_map(Node::changed).collect()
    }
}

impl Node {
    fn changed(&self) -> Option<String> {
        let is = facts(&self.at);
        let at = self.at.display();
        (is != self.was).then(|| {
            format!(
                "{at} of this host was changed while the runtime started: it was {}, and is {}",
                told(self.was),
                told(is)
            )
        })
    }
}

fn facts(at: &Path) -> Option<NodePermissions> {
    let meta = at.symlink_metadata().ok()?;
    Some(NodePermissions { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() })
}

fn told(facts: Option<NodePermissions>) -> String {
    facts.map_or_else(
        || "not there".to_owned(),
        |NodePermissions { uid, gid, mode }| format!("of {uid}:{gid} with the mode {:04o}", mode & 0o7777),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_node_whose_mode_is_another_or_that_is_gone_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let [same, other, gone] = ["same", "other", "gone"].map(|name| folder.path().join(name));
        let set = |mode| std::fs::set_permissions(&other, std::fs::Permissions::from_mode(mode)).unwrap();
        for path in [&same, &other, &gone] {
            std::fs::write(path, "").unwrap();
        }
        set(0o666);
        let nodes = Nodes::of([same, other.clone(), gone.clone()]);
        assert_eq!(nodes.changed(), Vec::<String>::new());
        set(0o600);
        std::fs::remove_file(&gone).unwrap();
        let said = nodes.changed();
        assert!(said.len() == 2, "{said:?}");
        assert!(said[0].contains("/other ") && said[0].contains("mode 0666, and is of"), "{said:?}");
        assert!(said[1].contains("/gone ") && said[1].ends_with("is not there"), "{said:?}");
    }
}
