//! From an emulator that was let go to a machine that is a run's own: it boots, or begins with the memory of a prepared one; and
//! takes fresh random bytes in any case, before it is anything.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use agent::machine::{Begin, Begun};
use serde_json::json;

use super::kept::Kept;
use super::link::Link;
use super::monitor::Monitor;
use super::start::Rest;

/// How long the machine's kernel may take to its first process: seconds on an idle host, a minute on a busy one.
const BOOT: Duration = Duration::from_secs(150);
/// How long that may take to take what it is told.
const TAKES: Duration = Duration::from_secs(60);
/// Bytes of a machine's state beyond its memory.
const STATE: u64 = 64 << 20;

/// Until the machine has taken its random bytes. Nothing but that was asked of it, and nothing was answered.
pub(super) fn begun(rest: &mut Rest, orders: OwnedFd, line: OwnedFd) -> Result<(Link, Begun), String> {
    let mut link = Link::new(line).map_err(|error| error.to_string())?;
    waiting(rest, orders, &mut link)?;
    let begun = begin(&mut link, rest)?;
    Ok((link, begun))
}

/// Until the machine's first process waits for them.
pub(super) fn waiting(rest: &mut Rest, orders: OwnedFd, link: &mut Link) -> Result<(), String> {
    let mut monitor = Monitor::greeted(orders)?;
    match (rest.kept.take(), rest.keeps.take()) {
        (Some(state), keeps) => {
            let read = monitor.read_from(state.as_fd()).and_then(|()| monitor.order("cont", &json!({})));
            if let (Err(_), Some(keeps)) = (&read, keeps) {
                keeps.forget();
            }
            read
        }
        (None, keeps) => {
            let waits = link.waits(BOOT)?;
            if let Some(keeps) = keeps.filter(|_| !waits.disks) {
                keep(&keeps, &mut monitor, rest.memory.saturating_add(STATE))?;
            }
            Ok(())
        }
    }
}

/// Keeps what waits as it is now, for later machines. That there is no room for it is no fault of this one, which goes on.
fn keep(keeps: &Kept, monitor: &mut Monitor, most: u64) -> Result<(), String> {
    monitor.order("stop", &json!({}))?;
    let (read, write) = sys::channel::pipe().map_err(|error| error.to_string())?;
    monitor.write_to(write.as_fd())?;
    drop(write);
    let mut state = State::of(read)?;
    let kept = keeps.keep(&mut state, most);
    // The emulator is to come to its end, also where nobody keeps it.
    let rest = std::io::copy(&mut state, &mut std::io::sink());
    rest.map_err(|error| format!("the machine's state: {error}"))?;
    monitor.moved()?;
    drop(kept);
    monitor.order("cont", &json!({}))
}

/// What the emulator writes, for as long as that may take.
struct State {
    pipe: File,
    until: Instant,
}

impl State {
    fn of(pipe: OwnedFd) -> Result<Self, String> {
        sys::channel::set_nonblocking(&pipe).map_err(|error| error.to_string())?;
        Ok(Self { pipe: File::from(pipe), until: Instant::now() + TAKES })
    }
}

impl Read for State {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            match self.pipe.read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                other => return other,
            }
            let left = self.until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(ErrorKind::TimedOut.into());
            }
            let interest = sys::channel::Interest { fd: self.pipe.as_fd(), write: false };
            sys::channel::wait(&[interest], Some(left)).map_err(|error| std::io::Error::from(error.errno))?;
        }
    }
}

/// Tells the machine what it is to become.
fn begin(link: &mut Link, rest: &Rest) -> Result<Begun, String> {
    let mut seed = [0; 32];
    if !sys::random::fill(&mut seed) {
        return Err("the host's kernel gives no random bytes".to_owned());
    }
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let begin = Begin {
        seed,
        clock: (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos()),
        machine: rest.machine.clone(),
        filter: length(&rest.filter.program),
        files: rest.files.iter().map(|(name, bytes)| (name.clone(), length(bytes))).collect(),
    };
    let files = rest.files.iter().map(|(_, bytes)| bytes.as_slice());
    let data: Vec<&[u8]> = std::iter::once(rest.filter.program.as_slice()).chain(files).collect();
    link.begin(&begin, &data, TAKES)
}
