//! The places of limited size in which a run writes, seen from outside. The kernel refuses what does not fit and counts no
//! refusals, so the limit was met when a place is found without room.
//!
//! Not seen: a place that was full between two looks and was emptied again, and a write that was refused whole though
//! something smaller would fit (fallocate(2)). Of these the program's own words are all there is.

use std::os::fd::OwnedFd;

use sys::paths::{Room, room};
use sys::proc::Process;

/// The places, opened when the guest has made them and before its program runs: they can be looked at when it has ended.
#[derive(Debug, Default)]
pub(super) struct Rooms(Vec<(String, OwnedFd)>);

/// A place without room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Full {
    /// Where it is inside.
    pub place: String,
    /// What there is none left of.
    pub of: Lack,
}

/// What a full place has none left of, and how many it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Bytes.
    Bytes(u64),
    /// Files and folders.
    Files(u64),
}

impl Rooms {
    /// A place that cannot be opened is not looked at: this holds no limit, it only tells of one.
    pub(super) fn of(guest: &Process, places: &[String]) -> Self {
        Self(places.iter().filter_map(|place| Some((place.clone(), guest.place_at(place).ok()?))).collect())
    }

    pub(super) fn full(&self) -> Vec<Full> {
        let lacks = |(place, fd): &(String, OwnedFd)| {
            let Room { bytes, free_bytes, files, free_files } = room(fd).ok()?;
            let of = match (free_bytes, free_files) {
                (0, _) => Lack::Bytes(bytes),
                (_, 0) if files > 0 => Lack::Files(files),
                _ => return None,
            };
            Some(Full { place: place.clone(), of })
        };
        self.0.iter().filter_map(lacks).collect()
    }
}
