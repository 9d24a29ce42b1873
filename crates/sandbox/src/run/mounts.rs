//! File systems that are mounted below a workspace or a grant: a layer and a copy show the tree without them, which is
//! said and not left to be found out.

use std::cell::OnceCell;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use policy::Policy;
use policy::value::{Tier, WorkspaceMode};

use crate::fault::show_path;

/// What is mounted on this host, read once and only when somebody asks. Nothing where this kernel's list cannot be read.
#[derive(Debug, Default)]
pub(super) struct Mounts(OnceCell<Vec<sys::proc::Mount>>);

impl Mounts {
    /// Where something is mounted below a folder, relative to it.
    pub(super) fn below(&self, root: &Path) -> Vec<PathBuf> {
        let read = || sys::proc::Process::own().and_then(|own| own.mounts()).unwrap_or_default();
        let root = PathBuf::from(sys::proc::shown(root.as_os_str().as_bytes()));
        let points = self.0.get_or_init(read).iter();
        let points = points.filter_map(|mount| Path::new(&mount.point).strip_prefix(&root).ok());
        let mut points: Vec<_> = points.filter(|point| *point != Path::new("")).map(Path::to_owned).collect();
        points.sort();
        points.dedup();
        points
    }

    /// What a layer over the workspace does not show, in words.
    pub(super) fn unseen(&self, policy: &Policy, tier: Tier, root: &Path) -> Vec<String> {
        let layered = matches!(policy.workspace.mode, WorkspaceMode::Ro | WorkspaceMode::Overlay);
        if tier == Tier::Container && layered {
            self.below(root).iter().map(|at| beneath(at)).collect()
        } else {
            Vec::new()
        }
    }
}

/// [`Mounts::unseen`], for one who asks once.
pub(super) fn unseen(policy: &Policy, tier: Tier, root: &Path) -> Vec<String> {
    Mounts::default().unseen(policy, tier, root)
}

fn beneath(at: &Path) -> String {
    format!(
        "a file system is mounted on {} of the workspace: inside stands what lies beneath it, mostly an empty folder; \
         grant it by itself (`--read`), or use `-w PATH:rw`",
        show_path(at)
    )
}

/// What a copy of the workspace lacks, in words.
pub(super) fn not_copied(at: &Path, why: &str) -> String {
    format!("{} of the workspace is not in its copy: {why}", show_path(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mounted_below_is_found_and_neither_the_folder_itself_nor_its_neighbour() {
        let line = |point: &str| format!("30 20 0:25 / {point} rw,relatime - tmpfs none rw\n");
        let text: String =
            ["/", "/a", "/a/in/deep", "/a/in", "/a/in", "/ab", "/b/a", "/a/with\\040space"].map(line).concat();
        let mounts = Mounts(OnceCell::from(sys::proc::parse_mountinfo(&text).unwrap()));
        let expected = ["in", "in/deep", "with space"].map(PathBuf::from);
        assert_eq!(mounts.below(Path::new("/a")), expected);
        assert_eq!(mounts.below(Path::new("/b")), [PathBuf::from("a")]);
        assert_eq!(mounts.below(Path::new("/ab")), Vec::<PathBuf>::new());
    }
}
