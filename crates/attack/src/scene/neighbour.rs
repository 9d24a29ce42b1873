//! Scenes about processes: a neighbour on the host that must be left alone, and a probe that must not outlive its run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::pipe::{PipeFlags, pipe_with};
use sys::command::Command;
use sys::pidfd;

use super::{Layout, Scene, SceneVerdict, by_errno, by_token, listeners};
use crate::confined::{Moment, Observed};
use crate::probe::{Try, rest};
use crate::survey;

/// A process of the host, of the same user as the probe, that keeps a secret in every place a process has.
struct Neighbour {
    pidfd: OwnedFd,
    token: String,
    how: Judge,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Judge {
    /// Its secret must not come out.
    Secret,
    /// It must live on.
    Life,
    /// No call on it may be let through.
    Calls,
}

impl Scene for Neighbour {
    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        match self.how {
            Judge::Secret => by_token(observed, tries, &self.token, "the secret of a process of the host"),
            Judge::Calls => by_errno(tries),
            Judge::Life => match pidfd::try_wait(&self.pidfd) {
                Ok(None) if tries.is_empty() => SceneVerdict::Unclear("the probe said nothing".to_owned()),
                Ok(None) => SceneVerdict::Stopped(format!("the process of the host lives ({})", super::answers(tries))),
                Ok(Some(_)) | Err(_) => SceneVerdict::Possible("a process of the host was ended".to_owned()),
            },
        }
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        if pidfd::send_signal(&self.pidfd, 9).is_ok() && pidfd::wait(&self.pidfd).is_err() {
            // Reaped already: it is gone, which was the aim.
        }
    }
}

/// Starts a neighbour. `detail`: secret, life or calls.
pub(super) fn make(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let (said, said_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let held = File::open(&layout.secret)?;
    let null = File::open("/dev/null")?;
    let command = Command::new(layout.program)
        .args(["__control", "user"])
        .arg(layout.program)
        .args(["__neighbour", &layout.token])
        .env("TOKEN", &layout.token)
        .directory(layout.stage.path());
    let fds = [(null.as_fd(), 0), (said_end.as_fd(), 1), (null.as_fd(), 2), (held.as_fd(), 5)];
    let child = command.start_with(&fds).map_err(|failed| io::Error::from(failed.errno))?;
    drop(said_end);
    let how = match detail {
        "life" => Judge::Life,
        "calls" => Judge::Calls,
        _ => Judge::Secret,
    };
    let scene = Neighbour { pidfd: child.pidfd, token: layout.token.clone(), how };
    let mut line = String::new();
    BufReader::new(File::from(said)).read_line(&mut line)?;
    if line.trim().is_empty() {
        return Err(io::Error::other("the neighbour did not start"));
    }
    layout.words.insert("pid", child.pid.to_string());
    layout.words.insert("at", line.trim().to_owned());
    Ok(Box::new(scene))
}

/// What the neighbour does: `fumehood __neighbour TOKEN` says where its secret lies in memory, and waits.
///
/// # Errors
/// Nobody listens.
pub fn stay(token: &OsStr) -> io::Result<()> {
    let memory = token.as_encoded_bytes().to_vec();
    listeners::say(&format!("{}\n", memory.as_ptr().addr()))?;
    rest(Duration::from_secs(12));
    drop(memory);
    Ok(())
}

/// Nothing with the probe's marker may live after the end.
struct Survivors {
    marker: String,
    seen: bool,
}

/// `detail` is not used: the marker comes with the call.
pub(super) fn survivors(_: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    Ok(Box::new(Survivors { marker: String::new(), seen: false }))
}

impl Scene for Survivors {
    fn arrange(&mut self, call: &mut crate::confined::ProbeCall) {
        self.marker = call.argv.get(1).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default();
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        self.seen |= !moment.tasks.is_empty();
    }

    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        if let Some(lived) = lived_on(&self.marker) {
            return lived;
        }
        if tries.is_empty() && !self.seen {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        SceneVerdict::Stopped("no process lived on".to_owned())
    }
}

/// Whether any process with this marker is there after the end; none is afterwards.
fn lived_on(marker: &str) -> Option<SceneVerdict> {
    // What was killed may take a moment to be gone; what races its killer lives too short for a single look.
    rest(Duration::from_millis(150));
    let until = Instant::now() + Duration::from_millis(250);
    let mut count = 0;
    while Instant::now() < until {
        count = count.max(super::host::alive(marker).len());
    }
    // They are ours: ended here, each by its descriptor, and looked for again since some fork.
    for _ in 0..50 {
        for task in super::host::alive(marker) {
            if let Ok(fd) = pidfd::open(task.pid)
                && pidfd::send_signal(&fd, 9).is_err()
            {
                continue;
            }
        }
        if super::host::alive(marker).is_empty() {
            break;
        }
        rest(Duration::from_millis(2));
    }
    (count > 0).then(|| SceneVerdict::Possible(format!("{count} process(es) lived on after the end")))
}

/// Whoever holds the sandbox from inside is killed from outside, as by the kernel for want of memory.
struct GuestKilled {
    marker: String,
    killed: bool,
}

/// Of an unconfined probe its first process is killed.
pub(super) fn guest_killed(_: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    Ok(Box::new(GuestKilled { marker: String::new(), killed: false }))
}

impl GuestKilled {
    /// The process to be killed: ours, since whoever watches started it.
    fn guest(moment: &Moment<'_>) -> Option<i32> {
        let parent = |pid| survey::task(pid)?.field("PPid")?.parse::<i32>().ok();
        if moment.tasks.iter().any(|task| task.pid == moment.child) {
            return Some(moment.child);
        }
        let mut above = moment.tasks.iter().filter_map(|task| parent(task.pid));
        above.find(|guest| parent(*guest) == Some(moment.child))
    }
}

impl Scene for GuestKilled {
    fn arrange(&mut self, call: &mut crate::confined::ProbeCall) {
        self.marker = call.marker().to_owned();
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        // The probe and the process that it left.
        if !self.killed
            && moment.tasks.len() > 1
            && let Some(guest) = Self::guest(moment)
        {
            self.killed = pidfd::open(guest).and_then(|fd| pidfd::send_signal(&fd, 9)).is_ok();
        }
    }

    fn refused(&self, _why: &str) -> Option<SceneVerdict> {
        // A run whose guest was killed ends with a failure.
        let stopped = || SceneVerdict::Stopped("no process lived on when the guest was killed".to_owned());
        self.killed.then(|| lived_on(&self.marker).unwrap_or_else(stopped))
    }

    fn judge(&mut self, _observed: &Observed, _tries: &[Try]) -> SceneVerdict {
        match (lived_on(&self.marker), self.killed) {
            (Some(lived), _) => lived,
            (None, true) => SceneVerdict::Stopped("no process lived on when the guest was killed".to_owned()),
            (None, false) => SceneVerdict::Unclear("there was no guest that could be killed".to_owned()),
        }
    }
}
