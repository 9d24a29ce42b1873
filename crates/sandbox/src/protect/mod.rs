//! Control files: what git, editors, shells and agents read without being asked, and so what a run must not plant.
//!
//! Promises: in a `rw` workspace each protected path that exists is in [`ProtectPlan::binds`], each folder of git's in
//! `layers`, their parents in `pins`; nothing is followed through a symbolic link; [`Hold`] notices that somebody outside took
//! a mount away; [`Sentry`] puts aside what is made while the run lasts, and [`check`] what slipped in all the same.
//! Must not: mount anything. The plan is a description for a backend.

mod blob;
mod branches;
mod by_itself;
mod check;
mod git;
mod gitconfig;
mod gitdir;
mod hash;
mod hold;
mod home;
mod index;
mod led;
mod left_out;
mod links;
mod list;
mod listed;
mod mentioned;
mod named;
mod objects;
mod plan;
mod references;
mod sentry;
mod staged;
mod stored;
#[cfg(test)]
mod tests;
mod users;
mod words;
mod work_tree;

pub use blob::{BlobNames, is_blob, is_mode_of, mode_beside};
pub use branches::{Branches, LedTo, MAX_LIST, MAX_REFERENCE, branches_of_head, led_by, read_branch};
pub use by_itself::is_tidied;
pub use check::{Slipped, check};
pub use git::{GitElsewhere, GitProblem, MAX_POINTER, elsewhere, resolve, within, worktree_of};
pub use gitconfig::{Part, config_objection, part, remotes_of, servers_named, taken};
pub use gitdir::{
    DATA, Kind, NEW_REPOSITORY, NodeChange, REPOSITORY, is_remembered, makes_repository, objection, split,
};
pub use hash::Hash;
pub use hold::Hold;
pub use index::{READ_AS_FILES, SUBMODULE, index_objection, settled};
pub use led::{Led, documents, led, with_links};
pub use left_out::LeftOut;
pub use list::{List, Marked, Protected, Shape, Verdict, is_short, judge, list, steers};
pub use listed::listed;
pub use mentioned::mentioned;
pub use named::{as_written_and_quoted, depends_on_branch, named_by_git, named_elsewhere};
pub use objects::{MAX_UNPACKED, Name, NewObjects, ServerFile, beside, is_loose, is_loose_name};
pub use plan::{Bind, DOCUMENT, PathStat, ProtectPlan, plan};
pub use references::{branch_of, branches_of, followed, id_of, merged, references_of};
pub use sentry::{Sentry, late};
pub use staged::{Staged, contents_of, servers, staged};
pub use stored::{History, ObjectsFolder, StoredObjects, TreeEntry};
pub use work_tree::{WorkTree, unseen, unseen_changes};
