//! The record of what was planned, enforced, stopped and ended: append-only JSON lines, each chained to the one before.
//!
//! Promises: an edit, a removal, a reordering, and a truncation past a checkpoint are found by [`verify`], which names the
//! first bad event; secrets named by `audit.redact` and terminal control sequences are gone before anything is hashed;
//! processes append at once without harm; a crash in the middle of an append costs that event at most, and is recorded.
//! Does not promise: anything against somebody who holds the signing key, nor the events after the last checkpoint
//! against somebody who may write to the log.

mod body;
mod canonical;
mod checkpoint;
mod error;
mod event;
mod log;
mod read;
#[cfg(test)]
mod tests;
mod verify;

pub use body::{REDACTED, Redactor};
pub use canonical::{canonical, hex, sha256_hex, unhex};
pub use checkpoint::Checkpoint;
pub use error::AuditError;
pub use event::{Event, GENESIS, Kind, NotAnEvent};
pub use log::{CHECKPOINT_EVERY, Log, Options};
pub use read::{Filter, Follow, show};
pub use verify::{Broken, Verdict, verify};

use crate::state::Dir;

/// The name of a file that was put aside: by the number of its last event, so that names sort as events do.
fn archive_name(last: u64) -> String {
    format!("audit-{last:020}.jsonl")
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
