//! The record of what was planned, enforced, stopped and ended: append-only JSON lines, each chained to the one before.
//!
//! Promises: an edit, a removal, a reordering, and a truncation past a checkpoint are found by [`verify`], which names the
//! first bad event; secrets named by `audit.redact` and terminal control sequences are gone before anything is hashed;
//! processes append at once without harm; a crash in the middle of an append costs that event at most, and is recorded.
//! Does not promise: anything against somebody who holds the signing key, nor the events after the last checkpoint
//! against somebody who may write to the log.

mod body;
mod checkpoint;
mod error;
mod event;
mod log;
mod read;
#[cfg(test)]
mod tests;
mod verify;

pub use body::{REDACTED, Redactor};

pub use checkpoint::Checkpoint;
pub use error::AuditError;
pub use event::{Event, GENESIS, Kind, NotAnEvent};
pub use log::{CHECKPOINT_EVERY, Log, Options};
pub use read::{Filter, Follow, scan, show};
pub use verify::{Broken, Part, Verdict, verify};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::state::Dir;

/// The name of a file that was put aside: by the number of its last event, so that names sort as events do.
fn archive_name(last: u64) -> String {
    format!("audit-{last:020}.jsonl")
}

/// What a log is known by, wherever it lies: the hash of its first event. `None` while it has none, or where its first line
/// is no event.
fn identity(dir: &Dir) -> rustix::io::Result<Option<String>> {
    use std::io::{BufRead as _, BufReader, Read as _};
    let oldest = archives(dir)?.into_iter().next().map_or_else(|| log::ACTIVE.to_owned(), |(_, name)| name);
    let file = match dir.open_file(&oldest, OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        other => other?,
    };
    let mut line = Vec::new();
    let read = BufReader::new(file).take(verify::MAX_LINE).read_until(b'\n', &mut line);
    read.map_err(|error| crate::state::errno_of(&error))?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        return Ok(None);
    }
    Ok(Event::parse_unchecked(&line).ok().map(|event| event.hash))
}

/// The files that were put aside, oldest first, each with the number of its last event.
fn archives(dir: &Dir) -> rustix::io::Result<Vec<(u64, String)>> {
    let mut found = Vec::new();
    dir.each_name(|name| {
        let parsed = std::str::from_utf8(name).ok().and_then(|name| {
            let last = name.strip_prefix("audit-")?.strip_suffix(".jsonl")?.parse().ok()?;
            Some((last, name.to_owned()))
        });
        found.extend(parsed.filter(|(last, name)| archive_name(*last) == *name));
        true
    })?;
    found.sort_unstable();
    Ok(found)
}
