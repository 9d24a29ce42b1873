//! What a run did to its workspace, kept aside until somebody takes it or throws it away.
//!
//! Promises: whatever the run left in its layer - links, pipes, devices, forged overlay attributes, hostile names - is read
//! without following, waiting for, or executing anything; set-user-id bits and owners stay behind; [`apply`] takes exactly
//! what [`diff`] showed (by digest), all of it or nothing, never through a link, and never over what somebody changed on the
//! host meanwhile. Does not promise: extended attributes and times; hard links become separate files, but for
//! names of one file of the host's that became the same.

mod access;
mod apply;
mod copy;
mod diff;
mod error;
mod exchange;
mod git_objects;
mod guarded;
mod honest;
mod indices;
mod interrupted;
mod judged;
mod locks;
mod manifest;
mod marks;
mod order;
mod parts;
mod references;
mod reflog;
mod repacked;
mod store;
mod tidied;
mod together;
mod turns;
#[cfg(test)]
mod again {
    mod tests;
}
#[cfg(test)]
mod tests;
mod upper;
mod worktrees;

pub use apply::{Applied, Conflict, Guarded, KeysLeft, Request, apply, apply_then};
pub(crate) use apply::{ApplyState, apply_own, apply_telling, standing};
pub use copy::{Baseline, MOUNTED, copy_in, read_copy};
pub use diff::{Diff, DiffEntry, MarkedPath, diff, marked};
pub use error::ChangesError;
pub(crate) use guarded::{MAX_JUDGED, PARTIAL, left_out};
pub(crate) use honest::LIES;
pub use indices::Indices;
pub(crate) use interrupted::unlock;
pub use interrupted::{Interrupted, all_interrupted, interrupted};
pub(crate) use manifest::{ASIDE, must_have_ended, read as read_list, target_bytes};
pub use manifest::{
    BLOBS, Change, Entry, Fingerprint, Kind, Manifest, NotedHead, NotedReference, Refused, aside_folder, discard,
    discard_at, load, newest, put_aside, runs,
};
pub use marks::{Mark, climbs, leaves, marks};
pub(crate) use repacked::LISTED_OTHERWISE;
pub use store::{Bounds, Known, MAX_DEPTH, Store, Until};
pub(crate) use store::{FOREIGN, Timed, stream};
pub(crate) use tidied::{BESIDE, moved_in, naming};
pub use upper::read_upper;
