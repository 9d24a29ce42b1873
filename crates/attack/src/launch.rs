//! Starts one process, watches it from outside, and takes what it writes.

use std::ffi::OsString;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use sys::command::Command;
use sys::pidfd::{self, End};

use crate::confined::{Moment, Observed};
use crate::survey;
use sandbox::fault::Fault;

/// At most this much of each output is kept; the rest is read and dropped.
const KEPT: usize = 4 << 20;
/// How often the outside looks.
pub(crate) const PERIOD: Duration = Duration::from_millis(15);

/// What to start.
#[derive(Debug)]
pub struct Start<'a> {
    /// Program and arguments.
    pub argv: Vec<OsString>,
    /// Environment, `NAME=VALUE`.
    pub env: Vec<OsString>,
    /// Working directory.
    pub directory: &'a Path,
    /// Standard input; `None` is `/dev/null`.
    pub stdin: Option<BorrowedFd<'a>>,
    /// More descriptors, with their numbers.
    pub fds: &'a [(BorrowedFd<'a>, RawFd)],
    /// Killed after this.
    pub limit: Duration,
    /// The probe's marker.
    pub marker: &'a str,
}

/// A failure of ours.
#[must_use]
pub fn own(what: &str, errno: Errno) -> Fault {
    Fault {
        id: "attack/failed",
        what: what.to_owned(),
        place: "`fumehood attack`".to_owned(),
        why: errno.to_string().to_lowercase(),
        fix: "see the reason; nothing was concluded from this row".to_owned(),
    }
}

/// Runs it to its end.
///
/// # Errors
/// It could not be started.
pub fn run(start: &Start<'_>, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| own("`/dev/null` cannot be opened", errno))?;
    let piped = |errno| own("no pipe can be made", errno);
    let (out, out_end) = pipe_with(PipeFlags::CLOEXEC).map_err(piped)?;
    let (err, err_end) = pipe_with(PipeFlags::CLOEXEC).map_err(piped)?;
    let (program, arguments) = start.argv.split_first().ok_or_else(|| own("no program was named", Errno::INVAL))?;
    let command = Command::new(program).args(arguments).directory(start.directory);
    let command = start.env.iter().fold(command, Command::variable);
    let mut fds = vec![(start.stdin.unwrap_or(null.as_fd()), 0), (out_end.as_fd(), 1), (err_end.as_fd(), 2)];
    fds.extend_from_slice(start.fds);
    let begun = Instant::now();
    let child = command.start_with(&fds).map_err(|failed| own("the probe cannot be started", failed.errno))?;
    drop((out_end, err_end));
    let mut streams = [Some(out), Some(err)];
    let mut kept = [Vec::new(), Vec::new()];
    let mut timed_out = false;
    let end = loop {
        let ended = turn(&child.pidfd, &mut streams, &mut kept).map_err(|errno| own("the probe was lost", errno))?;
        if ended {
            break pidfd::wait(&child.pidfd).map_err(|error| own("the probe was lost", error.errno))?.0;
        }
        let since = begun.elapsed();
        watch(&Moment { since, tasks: &survey::tasks(start.marker), child: child.pid });
        if since > start.limit && !timed_out {
            timed_out = true;
            pidfd::send_signal(&child.pidfd, 9).map_err(|error| own("the probe cannot be ended", error.errno))?;
        }
    };
    let wall = begun.elapsed();
    let [stdout, stderr] = kept;
    let code = match end {
        End::Exited(code) => Some(code),
        End::Signalled { signal, .. } => Some(128 + signal),
    };
    Ok(Observed { stdout, stderr, code, timed_out, wall, report: serde_json::Value::Null })
}

/// Takes what is there, for one period. True when the program has ended and nothing is left to read.
fn turn(child: &OwnedFd, streams: &mut [Option<OwnedFd>; 2], kept: &mut [Vec<u8>; 2]) -> Result<bool, Errno> {
    let until = Instant::now() + PERIOD;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(left.subsec_nanos()) };
        let mut polled = vec![PollFd::new(child, PollFlags::IN)];
        polled.extend(streams.iter().flatten().map(|fd| PollFd::new(fd, PollFlags::IN)));
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(polled);
        let mut ready = ready.into_iter();
        let ended = ready.next() == Some(true);
        let mut quiet = true;
        for (stream, kept) in streams.iter_mut().zip(kept.iter_mut()) {
            if stream.is_some() && ready.next() == Some(true) {
                quiet = false;
                take(stream, kept)?;
            }
        }
        if ended && quiet {
            return Ok(true);
        }
        if !ended && left.is_zero() {
            return Ok(false);
        }
    }
}

fn take(stream: &mut Option<OwnedFd>, kept: &mut Vec<u8>) -> Result<(), Errno> {
    let Some(fd) = stream else { return Ok(()) };
    let mut part = [0; 1 << 16];
    match rustix::io::read(&*fd, &mut part) {
        Ok(0) => *stream = None,
        Ok(length) => {
            let room = KEPT.saturating_sub(kept.len()).min(length);
            kept.extend(part.get(..room).unwrap_or_default());
        }
        Err(Errno::INTR) => {}
        Err(errno) => return Err(errno),
    }
    Ok(())
}
