//! What every process of a run without a pid namespace carries, and cannot put down: a resource limit whose value is the
//! run's own.
//!
//! `RLIMIT_RTTIME` limits real-time processes, and there are none in a sandbox. It is inherited by every child, shown to
//! everybody in `/proc/PID/limits`, and the filter lets nobody set it. So what outlived its guest is found wherever it went.

use std::time::{Duration, Instant};

/// `RLIMIT_RTTIME`.
pub(super) const RESOURCE: u32 = 15;
/// So many looks without a finding, one after the other, say that nothing is left; fewer where there never was anything.
const LOOKS: usize = 40;
const FIRST_LOOKS: usize = 8;
/// How long to go on where something forks as fast as it is ended.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the end of one is waited for before they are looked for again.
const A_MOMENT: Duration = Duration::from_millis(50);

/// The value of a run: microseconds that nobody would ask for, from 2^50 on.
pub(super) fn of(run: &str) -> u64 {
    let digest = policy::json::sha256_hex(run.as_bytes());
    let low = digest.get(..12).and_then(|hex| u64::from_str_radix(hex, 16).ok()).unwrap_or_default();
    (1 << 50) + low
}

/// Ends every process that carries the mark of a run; how many.
///
/// # Errors
/// Processes cannot be listed, or some are still there after two seconds; in words.
pub(super) fn end_marked(run: &str) -> Result<usize, String> {
    let (mark, began) = (of(run), Instant::now());
    let (mut ended, mut empty) = (0_usize, 0_usize);
    loop {
        let found = sys::proc::limited(RESOURCE, mark).map_err(|error| error.to_string())?;
        // A chain of processes that fork and end may pass by one look, and hardly by all of these.
        empty = if found.is_empty() { empty.saturating_add(1) } else { 0 };
        if empty == LOOKS || (ended == 0 && empty == FIRST_LOOKS) {
            return Ok(ended);
        }
        // A slow look at a busy host that finds nothing is no leftover.
        if !found.is_empty() && began.elapsed() > END_TIMEOUT {
            return Err(format!("{} processes of the run are still there", found.len()));
        }
        for process in &found {
            // One that has ended meanwhile needs no signal.
            if sys::pidfd::send_signal(process, 9).is_ok() {
                ended = ended.saturating_add(1);
            }
        }
        if let Some(first) = found.first() {
            let gone = [sys::channel::Interest { fd: std::os::fd::AsFd::as_fd(first), write: false }];
            drop(sys::channel::wait(&gone, Some(A_MOMENT)));
        }
    }
}
