//! How `limits.disk` and `limits.files` are divided among the places that can be written.
//!
//! All of them are tmpfs and count against `limits.memory` too: tmp, shm and run take their own sizes, the
//! workspace layer gets the rest.

use policy::value::{Policy, WorkspaceMode};

/// Size and inode limit of one tmpfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Bytes.
    pub(crate) bytes: u64,
    /// Inodes.
    pub(crate) inodes: u64,
}

impl Size {
    /// A quarter, and the rest.
    pub(crate) const fn quarter(self) -> (Self, Self) {
        let Self { bytes, inodes } = self;
        let (less_bytes, less_inodes) = (bytes / 4, inodes / 4);
        (
            Self { bytes: less_bytes, inodes: less_inodes },
            Self { bytes: bytes.saturating_sub(less_bytes), inodes: inodes.saturating_sub(less_inodes) },
        )
    }
}

/// Sizes of every writable place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// `/tmp`, the home folder included.
    pub(crate) tmp: Size,
    /// `/dev/shm`.
    pub(crate) shm: Size,
    /// `/run`.
    pub(crate) run: Size,
    /// Overlay upper or copy of the workspace.
    pub(crate) workspace: Size,
}

/// Inodes granted for each 4 KiB page when `limits.files` is not set: a file needs at least one page to hold anything,
/// and an inode costs the kernel about 1 KiB that `size=` does not count.
const BYTES_PER_INODE: u64 = 4096;
/// A tree needs a few inodes before anybody writes: mount root, `.`, our own folders.
const LEAST_INODES: u64 = 64;

/// Divides the limits.
pub(crate) fn divide(policy: &Policy) -> Sizes {
    let disk = policy.limits.disk.map_or(u64::MAX, |b| b.0);
    let shm = policy.fs.shm.0.min(disk);
    let run = policy.fs.run.0.min(disk.saturating_sub(shm));
    let tmp = policy.fs.tmp.0.min(disk.saturating_sub(shm).saturating_sub(run));
    let rest = disk.saturating_sub(tmp).saturating_sub(shm).saturating_sub(run);
    let layered = matches!(policy.workspace.mode, WorkspaceMode::Overlay | WorkspaceMode::Copy);
    // Without `limits.disk` a layer still must not take all memory: as much as /tmp has.
    let workspace = match (layered, policy.limits.disk) {
        (false, _) => 0,
        (true, Some(_)) => rest,
        (true, None) => policy.fs.tmp.0,
    };
    let total = tmp.saturating_add(shm).saturating_add(run).saturating_add(workspace).max(1);
    let size = |bytes: u64| Size { bytes, inodes: inodes(policy.limits.files, bytes, total) };
    Sizes { tmp: size(tmp), shm: size(shm), run: size(run), workspace: size(workspace) }
}

fn inodes(files: Option<u64>, bytes: u64, total: u64) -> u64 {
    let by_size = (bytes / BYTES_PER_INODE).saturating_add(LEAST_INODES);
    let Some(files) = files else { return by_size };
    // In proportion to the bytes; rounding goes down so that the sum stays below the limit.
    let share = u128::from(files) * u128::from(bytes) / u128::from(total);
    u64::try_from(share).unwrap_or(u64::MAX).max(4)
}

#[cfg(test)]
mod tests {
    use super::inodes;

    #[test]
    fn shares_never_add_up_to_more_than_the_limit() {
        let total = 300;
        let sum: u64 = [100, 50, 150].iter().map(|b| inodes(Some(1000), *b, total)).sum();
        assert!(sum <= 1000, "{sum}");
    }
}
