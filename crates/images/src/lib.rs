//! Images as root trees: what was packed elsewhere is judged, unpacked once, and kept by its digest.
//!
//! The store is `images/` of the state folder, its owner's alone. A tree in it is named by the digest of its image, and
//! each use begins with reading all of it again: sizes and times prove nothing.
//!
//! # Promises
//! An import makes nothing outside its own new folder, whatever names, links and sizes the layers hold: every entry is walked
//! to beneath a descriptor, through no link. What cannot be had as it was packed is either refused, with the entry and the
//! reason, or counted in [`UnpackNotes`]. A refused import leaves nothing in the store. A tree whose content changed is not given out.
//! # Does not promise
//! Owners: all that is unpacked belongs to who imports it. Nor that who owns the store does not change a tree while it is in
//! use: that user wrote the policy, too.
#![forbid(unsafe_code)]

mod apt;
mod build;
mod check;
mod config;
mod debian;
mod decode;
mod dockerfile;
mod downloads;
mod error;
mod export;
mod host;
mod layout;
mod made;
mod pack;
mod record;
mod resolve;
mod runs;
mod seal;
mod source;
mod store;
mod tree;
mod unfinished;
mod unpack;

pub use build::{Build, Run, Steps};
pub use config::Defaults;
pub use debian::Debian;
pub use downloads::Downloads;
pub use error::ImageError;
pub use host::FromHost;
pub use layout::architecture;
pub use resolve::{NamePattern, Reference, is_name};
pub use runs::OfCaller;
pub use store::{About, Lease, Listed, Store};
pub use unpack::{MAX_ENTRIES, MAX_RATIO, MAX_UNPACKED, UnpackNotes};
