//! Which run's changes are the newest: a number that grows, since clocks are coarse and are set back.
//!
//! A run gets its number when its changes are kept, at its end. `changes/sequence` holds the last one that was given, and
//! `changes/RUN/order` that of the run.

use std::io::Write as _;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::{Errno, Result};

use crate::state::{Cross, Dir, RunId, errno_of};

const SEQUENCE: &str = "sequence";
const ORDER: &str = "order";
/// No number is longer, in bytes.
const MAX_NUMBER: u64 = 32;

/// Gives the run of these changes the next number.
pub(super) fn number(changes: &Dir, of: &Dir) -> Result<()> {
    let mode = Mode::RUSR | Mode::WUSR;
    let counter = changes.open_file(SEQUENCE, OFlags::RDWR | OFlags::CREATE, mode)?;
    // Held until the number is written down, and let go with the descriptor.
    rustix::fs::flock(&counter, FlockOperation::LockExclusive)?;
    // A counter that is gone or was damaged goes on above all that were given.
    let last = match read(changes, SEQUENCE)? {
        Some(last) => last,
        None => all(changes)?.into_iter().map(|(number, _)| number).max().unwrap_or(0),
    };
    let next = last.saturating_add(1);
    write(of, ORDER, next)?;
    rustix::fs::ftruncate(&counter, 0)?;
    rustix::io::pwrite(&counter, format!("{next}\n").as_bytes(), 0).map(drop)
}

/// The runs that have changes, each with its number, in the order of their names. One without a number has 0.
pub(super) fn all(changes: &Dir) -> Result<Vec<(u64, RunId)>> {
    let ids = changes.names()?.into_iter().filter_map(|name| name.to_str()?.parse::<RunId>().ok());
    let number = |id: &RunId| {
        let of = changes.enter(id.as_str(), Cross::No).and_then(|of| read(&of, ORDER));
        of.unwrap_or_default().unwrap_or(0)
    };
    Ok(ids.map(|id| (number(&id), id)).collect())
}

/// `None` if there is no number.
fn read(dir: &Dir, name: &str) -> Result<Option<u64>> {
    match dir.read(name, MAX_NUMBER) {
        Ok(text) => Ok(std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok())),
        Err(Errno::NOENT | Errno::FBIG | Errno::INVAL) => Ok(None),
        Err(errno) => Err(errno),
    }
}

fn write(dir: &Dir, name: &str, number: u64) -> Result<()> {
    let mut file = dir.open_file(name, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC, Mode::RUSR | Mode::WUSR)?;
    writeln!(file, "{number}").map_err(|error| errno_of(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_grow_whatever_the_names_and_when_the_counter_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let changes = Dir::open(&folder.path().canonicalize().unwrap()).unwrap();
        let give = |id: &str| {
            changes.make(id, Mode::RWXU).unwrap();
            number(&changes, &changes.enter(id, Cross::No).unwrap()).unwrap();
        };
        give("r-20261122-013045-ffffff");
        give("r-20261122-013045-000000");
        for lost in [None, Some("no number")] {
            std::fs::remove_file(folder.path().join(SEQUENCE)).unwrap();
            if let Some(text) = lost {
                std::fs::write(folder.path().join(SEQUENCE), text).unwrap();
            }
            give(if lost.is_some() { "r-20261122-013045-888888" } else { "r-20001122-013045-777777" });
        }
        changes.make("r-20991122-013045-111111", Mode::RWXU).unwrap();
        let mut found = all(&changes).unwrap();
        found.sort();
        let ends: Vec<&str> = found.iter().map(|(_, id)| id.as_str().get(18..).unwrap()).collect();
        assert_eq!(ends, ["111111", "ffffff", "000000", "777777", "888888"]);
    }
}
