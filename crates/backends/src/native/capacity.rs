//! The places of limited size in which a run writes, seen from outside. The kernel refuses what does not fit and counts no
//! refusals, so the limit was met when a place is found without room.
//!
//! Not seen: a place that was full between two looks and was emptied again, and a write that was refused whole though
//! something smaller would fit (fallocate(2)). Of these the program's own words are all there is.

use std::os::fd::OwnedFd;

use sys::paths::{FsStats, fs_stats};
use sys::proc::Process;

use crate::backend::{Exhausted, ExhaustedResource};

/// The places, opened when the guest has made them and before its program runs: they can be looked at when it has ended.
#[derive(Debug, Default)]
pub(crate) struct WatchedMounts(Vec<(String, OwnedFd)>);

impl WatchedMounts {
    /// A place that cannot be opened is not looked at: this holds no limit, it only tells of one.
    pub(crate) fn of(guest: &Process, places: &[String]) -> Self {
        Self(places.iter().filter_map(|place| Some((place.clone(), guest.place_at(place).ok()?))).collect())
    }

    /// Bytes and files that a place holds at most.
    pub(crate) fn size_of(&self, place: &str) -> Option<(u64, u64)> {
        let (_, fd) = self.0.iter().find(|(known, _)| known == place)?;
        fs_stats(fd).ok().map(|stats| (stats.bytes, stats.files))
    }

    /// Bytes that all of them hold; none where there is none.
    pub(crate) fn used(&self) -> Option<u64> {
        let used = |stats: FsStats| stats.bytes.saturating_sub(stats.free_bytes);
        self.0.iter().filter_map(|(_, fd)| fs_stats(fd).ok()).map(used).reduce(u64::saturating_add)
    }

    pub(crate) fn full(&self) -> Vec<Exhausted> {
        let lacks = |(place, fd): &(String, OwnedFd)| {
            let FsStats { bytes, free_bytes, files, free_files } = fs_stats(fd).ok()?;
            let full = |of| Some(Exhausted { place: place.clone(), of });
            if free_bytes == 0 {
                full(ExhaustedResource::Bytes(bytes))
            } else if free_files == 0 && files > 0 {
                full(ExhaustedResource::Files(files))
            } else {
                None
            }
        };
        self.0.iter().filter_map(lacks).collect()
    }
}
