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
/// What a place takes of a small `limits.files` whatever its share is: its own root, and something to write.
const LEAST_OF_A_PLACE: u64 = 2;
/// The home folder is in it.
const LEAST_OF_TMP: u64 = 4;
/// A layer: the root of its file system, the two folders of an overlay, two of the kernel's own, and two that it tries the file
/// system with, in whose place something can be written afterwards.
const LEAST_OF_A_LAYER: u64 = 7;

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
    let files = policy.limits.files;
    let size = |bytes: u64| Size { bytes, inodes: inodes(files, bytes, total) };
    let mut sizes = Sizes { tmp: size(tmp), shm: size(shm), run: size(run), workspace: size(workspace) };
    if let Some(files) = files {
        sizes.fit(files, layered);
    }
    sizes
}

impl Sizes {
    /// Every place has what it needs to be made; what that is more than its share the others have less.
    fn fit(&mut self, files: u64, layered: bool) {
        let workspace = if layered { LEAST_OF_A_LAYER } else { 0 };
        let Self { tmp, shm, run, workspace: layer } = self;
        let mut over = 0_u64;
        let mut places = [(tmp, LEAST_OF_TMP), (shm, LEAST_OF_A_PLACE), (run, LEAST_OF_A_PLACE), (layer, workspace)];
        for (place, least) in &mut places {
            place.inodes = place.inodes.max(*least);
            over = over.saturating_add(place.inodes);
        }
        over = over.saturating_sub(files);
        for (place, least) in &mut places {
            let less = place.inodes.saturating_sub(*least).min(over);
            place.inodes = place.inodes.saturating_sub(less);
            over = over.saturating_sub(less);
        }
    }
}

fn inodes(files: Option<u64>, bytes: u64, total: u64) -> u64 {
    let by_size = (bytes / BYTES_PER_INODE).saturating_add(LEAST_INODES);
    let Some(files) = files else { return by_size };
    // In proportion to the bytes; rounding goes down so that the sum stays below the limit.
    let share = u128::from(files) * u128::from(bytes) / u128::from(total);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::{LEAST_OF_A_LAYER, LEAST_OF_TMP, divide, inodes};

    #[test]
    fn the_least_limit_is_held_and_every_place_can_be_made() {
        for files in [16, 17, 24, 48, 64, 1000] {
            for mode in ["copy", "overlay"] {
                let text = format!("limits.files = {files}\nworkspace = {{ path = \"/srv\", mode = \"{mode}\" }}");
                let sizes = divide(&crate::support::policy_of(&text));
                let all = [sizes.tmp, sizes.shm, sizes.run, sizes.workspace].map(|size| size.inodes);
                assert!(all.iter().sum::<u64>() <= files, "{files} {mode}: {all:?}");
                assert!(sizes.workspace.inodes >= LEAST_OF_A_LAYER, "{files} {mode}: {all:?}");
                assert!(sizes.tmp.inodes >= LEAST_OF_TMP, "{files} {mode}: {all:?}");
            }
        }
    }

    #[test]
    fn shares_never_add_up_to_more_than_the_limit() {
        let total = 300;
        let sum: u64 = [100, 50, 150].iter().map(|b| inodes(Some(1000), *b, total)).sum();
        assert!(sum <= 1000, "{sum}");
    }
}
