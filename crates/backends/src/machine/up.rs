//! From an emulator that was let go to a machine that is a run's own: it boots, or begins with the memory of a prepared one or of
//! a live sandbox; and takes fresh random bytes in any case, before it is anything.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant, SystemTime};

use agent::machine::{Begin, Order, SeedReply};
use agent::words::Ended;
use policy::control::Accelerator;
use serde_json::json;

use super::link::Link;
use super::monitor::Monitor;
use super::start::{Lines, Rest};
use super::{firecracker, frames, proof};

/// How long the machine's kernel may take to its first process: seconds on an idle host, a minute on a busy one.
const BOOT: Duration = Duration::from_secs(150);
/// The same on KVM, where it takes about a second. A host that is itself a machine, all of whose processors are emulated, took 23 s
/// for it; one whose KVM cannot run our kernel never ends.
const BOOT_ON_KVM: Duration = Duration::from_secs(60);
/// How long that may take to take what it is told, and the emulator for a machine's state.
pub(super) const TAKES: Duration = Duration::from_secs(60);
/// Bytes of a machine's state beyond its memory.
const STATE: u64 = 64 << 20;

/// Until the machine has taken its random bytes. Nothing but that was asked of it, and nothing was answered. In one that begins
/// with the memory of a live sandbox the agent alone goes on.
/// `guest`: the first process of the sandbox around the emulator.
pub(super) fn begun(rest: &mut Rest, lines: Lines, guest: i32) -> Result<(Option<Monitor>, Link, SeedReply), String> {
    let link = |line: OwnedFd| Link::new(line).map_err(|error| error.to_string());
    let (monitor, mut link) = match lines {
        Lines::Sockets(orders, line) => {
            let mut link = link(line)?;
            (Some(waiting(rest, orders, &mut link)?), link)
        }
        Lines::Channel => {
            let until = Instant::now() + BOOT_ON_KVM;
            let emulator = proof::found(&rest.words, guest, until)?;
            let mut link = link(firecracker::line(emulator, until)?)?;
            link.waits(BOOT_ON_KVM)?;
            (None, link)
        }
    };
    let begun = if rest.goes_on {
        match link.order(&Order::Renew { seed: seed()?, clock: clock() }, TAKES)? {
            Ended::Ok(begun) => begun,
            Ended::Error(failure) => return Err(format!("it does not go on from what it was: {}", failure.message)),
        }
    } else {
        begin(&mut link, rest)?
    };
    Ok((monitor, link, begun))
}

/// Lets the programs of a machine go on that begins with the memory of a live sandbox.
pub(super) fn gone_on(link: &mut Link) -> Result<(), String> {
    match link.order::<()>(&Order::GoOn { clock: clock() }, TAKES)? {
        Ended::Ok(()) => Ok(()),
        Ended::Error(failure) => Err(failure.message),
    }
}

/// Until the machine's first process waits for them.
pub(super) fn waiting(rest: &mut Rest, orders: OwnedFd, link: &mut Link) -> Result<Monitor, String> {
    let mut monitor = Monitor::greeted(orders)?;
    if let Some(end) = rest.frames.take() {
        frames::join(&mut monitor, &end)?;
        rest.joined = true;
    }
    match (rest.kept.take(), rest.keeps.take()) {
        (Some(state), keeps) => {
            let read = monitor.read_from(state.as_fd()).and_then(|()| monitor.order("cont", &json!({})));
            if let (Err(_), Some(keeps)) = (&read, keeps) {
                keeps.forget();
            }
            read.map(|()| monitor)
        }
        (None, keeps) => {
            let waits = match rest.blueprint.machine.emulator {
                Some((_, Accelerator::Kvm, _)) => link.waits(BOOT_ON_KVM)?,
                Some((_, Accelerator::Tcg, _)) | None => link.waits(BOOT)?,
            };
            if let Some(keeps) = keeps.filter(|_| !waits.disks) {
                // That there is no room for it is no fault of this one, which goes on.
                let most = most(rest.memory);
                drop(written(&mut monitor, |state| keeps.keep(state, most))?);
            }
            Ok(monitor)
        }
    }
}

/// The most that the state of a machine with so much memory may be.
pub(super) const fn most(memory: u64) -> u64 {
    memory.saturating_add(STATE)
}

/// Has all that a machine is, its memory included, written at one moment, and read by `take`, whose result it is; it goes on
/// afterwards.
pub(super) fn written<T>(monitor: &mut Monitor, take: impl FnOnce(&mut dyn Read) -> T) -> Result<T, String> {
    monitor.order("stop", &json!({}))?;
    let taken = state_of(monitor, take);
    let goes_on = monitor.order("cont", &json!({}));
    taken.and_then(|taken| goes_on.map(|()| taken))
}

fn state_of<T>(monitor: &mut Monitor, take: impl FnOnce(&mut dyn Read) -> T) -> Result<T, String> {
    let (read, write) = sys::channel::pipe().map_err(|error| error.to_string())?;
    monitor.write_to(write.as_fd())?;
    drop(write);
    let mut state = State::of(read)?;
    let taken = take(&mut state);
    // The emulator is to come to its end, also where nobody keeps it.
    let rest = std::io::copy(&mut state, &mut std::io::sink());
    rest.map_err(|error| format!("the machine's state: {error}"))?;
    monitor.moved()?;
    Ok(taken)
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
            let interest = sys::channel::Interest { fd: self.pipe.as_fd(), write: false };
            let ready = sys::channel::wait_until(&[interest], Some(self.until));
            if ready.map_err(|error| std::io::Error::from(error.errno))? != [true] {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

/// Random bytes for one machine.
fn seed() -> Result<[u8; 32], String> {
    let mut seed = [0; 32];
    if sys::random::fill(&mut seed) { Ok(seed) } else { Err("the host's kernel gives no random bytes".to_owned()) }
}

/// The time, as a machine is told it.
pub(super) fn clock() -> (i64, u32) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(now.as_secs()).unwrap_or(i64::MAX), now.subsec_nanos())
}

/// Tells the machine what it is to become.
fn begin(link: &mut Link, rest: &Rest) -> Result<SeedReply, String> {
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let begin = Begin {
        seed: seed()?,
        clock: clock(),
        machine: rest.machine.clone(),
        filter: length(&rest.filter.program),
        files: rest.files.iter().map(|(name, bytes)| (name.clone(), length(bytes))).collect(),
    };
    let files = rest.files.iter().map(|(_, bytes)| bytes.as_slice());
    let data: Vec<&[u8]> = std::iter::once(rest.filter.program.as_slice()).chain(files).collect();
    link.begin(&begin, &data, TAKES)
}
