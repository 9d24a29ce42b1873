//! What a look at the tree could not see, and when that ends the run: to go on would be to hold a limit that nobody can
//! see.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use backends::Unseen;
use policy::Bytes;

/// Something that could not be seen in so many looks, one after the other, is not about to be seen: a program between
/// fork(2) and execve(2) is closed for less than a millisecond, and a descriptor is received as soon as somebody reads.
const LOOKS: usize = 5;
/// What is said of a descriptor that waits on: it may be a file without a name, or a socket in which more wait, and the
/// kernel tells nobody.
pub(super) const WAITING: &str = "a descriptor waits in a socket, and nobody outside can tell what it leads to";
/// How what a look could not see ends a run begins.
pub(super) const UNKNOWN: &str = "what the program uses cannot be known any more";
/// So long processes may come and go faster than they can be looked at.
const MAX_PARTLY: Duration = Duration::from_secs(1);

/// The looks so far.
#[derive(Debug)]
pub(super) struct Blindness {
    /// Of the last looks: descriptors that waited in sockets, and processes that were closed.
    last: VecDeque<(u64, u64)>,
    partly: Option<Instant>,
    /// The program may hide what it has; else a descriptor on its way is taken for nothing.
    hostile: bool,
}

/// What counts for files that were not seen, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AtMost {
    pub(super) memory: u64,
    pub(super) disk: u64,
}

impl Blindness {
    pub(super) const fn new(hostile: bool) -> Self {
        Self { last: VecDeque::new(), partly: None, hostile }
    }

    /// Takes in one look. `file_size`: the largest file that there can be.
    ///
    /// # Errors
    /// Why what the tree uses cannot be known any more, in words.
    pub(super) fn look(&mut self, seen: Unseen, file_size: Option<Bytes>, now: Instant) -> Result<AtMost, String> {
        if self.last.len() == LOOKS {
            self.last.pop_front();
        }
        self.last.push_back((seen.waiting, seen.processes));
        if seen.memory {
            return Err(
                "it has shared memory whose size nobody outside can tell, or more sockets than can be looked through"
                    .to_owned(),
            );
        }
        let least = |of: fn(&(u64, u64)) -> u64| {
            if self.last.len() < LOOKS { 0 } else { self.last.iter().map(of).min().unwrap_or(0) }
        };
        let (waiting, closed) = (least(|(waiting, _)| *waiting), least(|(_, closed)| *closed));
        if closed > 0 {
            return Err(
                "a process of it cannot be looked into: it runs a program that this user may not read, or is traced by another"
                    .to_owned(),
            );
        }
        if !seen.partly {
            self.partly = None;
        } else if now.saturating_duration_since(*self.partly.get_or_insert(now)) > MAX_PARTLY {
            return Err(
                "its processes come and go faster than they can be looked at, or are too many for one look".to_owned()
            );
        }
        if waiting > 0 && self.hostile {
            return Err(WAITING.to_owned());
        }
        let each = file_size.map_or(u64::MAX, |size| size.0);
        let bytes = |files: u64| files.saturating_mul(each);
        Ok(AtMost { memory: bytes(seen.memory_files), disk: bytes(seen.disk_files) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Option<Bytes> = Some(Bytes(10));

    #[test]
    fn descriptors_that_stay_on_their_way_end_the_run_of_who_may_be_hostile() {
        let now = Instant::now();
        for hostile in [true, false] {
            let mut blindness = Blindness::new(hostile);
            let mut look = |waiting| blindness.look(Unseen { waiting, ..Unseen::default() }, SIZE, now);
            for _ in 1..LOOKS {
                assert_eq!(look(3), Ok(AtMost::default()));
            }
            let end = look(2);
            assert_eq!(end, if hostile { Err(WAITING.to_owned()) } else { Ok(AtMost::default()) });
            assert_eq!(look(0), Ok(AtMost::default()), "they were received");
            assert_eq!(look(9), Ok(AtMost::default()));
        }
    }

    #[test]
    fn a_file_that_is_only_mapped_counts_as_the_largest() {
        let mut blindness = Blindness::new(true);
        let seen = Unseen { memory_files: 2, disk_files: 1, ..Unseen::default() };
        assert_eq!(blindness.look(seen, SIZE, Instant::now()), Ok(AtMost { memory: 20, disk: 10 }));
        assert_eq!(blindness.look(seen, None, Instant::now()).unwrap().disk, u64::MAX);
    }

    #[test]
    fn what_stays_closed_or_is_never_whole_ends_the_run() {
        let mut blindness = Blindness::new(true);
        let now = Instant::now();
        let closed = Unseen { processes: 1, ..Unseen::default() };
        for _ in 1..LOOKS {
            assert!(blindness.look(closed, SIZE, now).is_ok());
        }
        assert!(blindness.look(closed, SIZE, now).is_err());
        let mut blindness = Blindness::new(true);
        let partly = Unseen { partly: true, ..Unseen::default() };
        assert!(blindness.look(partly, SIZE, now).is_ok());
        assert!(blindness.look(partly, SIZE, now + Duration::from_millis(900)).is_ok());
        assert!(blindness.look(Unseen::default(), SIZE, now + Duration::from_millis(950)).is_ok());
        assert!(blindness.look(partly, SIZE, now + Duration::from_millis(1900)).is_ok());
        assert!(blindness.look(partly, SIZE, now + Duration::from_millis(3000)).is_err());
    }
}
