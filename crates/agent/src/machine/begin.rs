//! What the first process of a machine waits for before it makes anything: bytes that no other machine has, the time, and what
//! it is to become.
//!
//! Machines may begin with the memory of one that waited here. Until each has taken bytes of its own, all of them would have the
//! same random numbers: nothing but [`Begin`] is taken here, nothing else runs, and whatever else is asked is refused.

use std::os::fd::{AsRawFd as _, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::time::{ClockId, Timespec};
use sys::bare::{self, Fd};

use super::init::{Fault, LOOK, at, call};
use super::{Begin, FIRST, Machine, SeedReply, Waits};
use crate::files::failure::failure;
use crate::frame::{self, Frame, Kind, Lane};
use crate::words::{Code, Ended, Failure};

/// Most bytes of the filter and the files together.
const MAX_TOTAL: u64 = 64 << 20;
/// Read at once.
const CHUNK: usize = 64 * 1024;

/// What the machine is to become.
pub(super) struct MachineSetup {
    pub(super) machine: Machine,
    pub(super) filter: Vec<u8>,
    pub(super) files: Vec<(String, Vec<u8>)>,
}

/// The line to the supervisor, which blocks.
pub(super) struct Line<'a> {
    port: &'a OwnedFd,
    inbox: Vec<u8>,
}

impl<'a> Line<'a> {
    pub(super) fn new(port: &'a OwnedFd) -> Self {
        Self { port, inbox: Vec::new() }
    }

    /// Says that it waits, and waits.
    pub(super) fn begun(&mut self, disks: bool) -> Result<MachineSetup, Fault> {
        let waits = serde_json::to_vec(&Waits { disks }).unwrap_or_default();
        self.say(Kind::Event, FIRST, &waits)?;
        let begin = self.begin()?;
        let Begin { seed, clock, machine, filter, files } = begin;
        let begun = renewed(seed, clock)?;
        let lengths = std::iter::once(filter).chain(files.iter().map(|(_, length)| *length));
        let mut parts = self.parts(lengths.collect())?.into_iter();
        let words = serde_json::to_vec(&Ended::Ok(begun)).unwrap_or_default();
        self.say(Kind::End, FIRST, &words)?;
        let filter = parts.next().unwrap_or_default();
        Ok(MachineSetup { machine, filter, files: files.into_iter().map(|(name, _)| name).zip(parts).collect() })
    }

    /// The one request that is taken; all others are answered with why not.
    fn begin(&mut self) -> Result<Begin, Fault> {
        loop {
            let (kind, stream, payload) = self.frame()?;
            if kind != Kind::Open {
                continue;
            }
            match judged(stream, &payload) {
                Ok(begin) => return Ok(begin),
                Err(refused) => {
                    let words = serde_json::to_vec(&Ended::<()>::Error(refused)).unwrap_or_default();
                    self.say(Kind::End, stream, &words)?;
                }
            }
        }
    }

    /// The data behind it, in parts of these lengths.
    fn parts(&mut self, lengths: Vec<u64>) -> Result<Vec<Vec<u8>>, Fault> {
        let all = lengths.iter().fold(0_u64, |sum, length| sum.saturating_add(*length));
        if all > MAX_TOTAL {
            return Err(at("what the machine is to become")(Errno::FBIG));
        }
        let mut bytes = Vec::new();
        loop {
            let (kind, stream, payload) = self.frame()?;
            if stream == FIRST && kind == Kind::Eof {
                break;
            }
            let part = Lane::split(&payload).filter(|(lane, _)| *lane == Lane::In);
            let Some((_, part)) = part.filter(|_| stream == FIRST && kind == Kind::Data) else {
                return Err(at("what the machine is to become")(Errno::PROTO));
            };
            bytes.extend_from_slice(part);
            if u64::try_from(bytes.len()).is_ok_and(|count| count > all) {
                break;
            }
        }
        let mut rest = bytes.as_slice();
        let mut parts = Vec::with_capacity(lengths.len());
        for length in lengths {
            let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
            let (part, after) = split.ok_or_else(|| at("what the machine is to become")(Errno::PROTO))?;
            parts.push(part.to_vec());
            rest = after;
        }
        if rest.is_empty() { Ok(parts) } else { Err(at("what the machine is to become")(Errno::PROTO)) }
    }

    fn frame(&mut self) -> Result<(Kind, u32, Vec<u8>), Fault> {
        loop {
            let whole = frame::first(&self.inbox).map_err(|_odd| at("the supervisor's line")(Errno::PROTO))?;
            if let Some((frame, length)) = whole {
                let found = (frame.kind, frame.stream, frame.payload.to_vec());
                self.inbox.drain(..length);
                return Ok(found);
            }
            let mut part = vec![0; CHUNK];
            match rustix::io::read(self.port, &mut part) {
                // The supervisor's end is not open yet.
                Ok(0) => drop(rustix::event::poll(&mut [], Some(&LOOK))),
                Ok(count) => self.inbox.extend_from_slice(part.get(..count).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(at("the supervisor's line")(errno)),
            }
        }
    }

    fn say(&self, kind: Kind, stream: u32, payload: &[u8]) -> Result<(), Fault> {
        let mut bytes = Vec::new();
        let fits = frame::put(&mut bytes, Frame { kind, stream, payload });
        debug_assert!(fits, "texts of ours");
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match rustix::io::write(self.port, rest) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(at("the supervisor's line")(errno)),
            }
        }
        Ok(())
    }
}

/// Whether a request is the one that is waited for.
fn judged(stream: u32, payload: &[u8]) -> Result<Begin, Failure> {
    let refused = |why: String| failure(Code::Paused, why);
    if stream != FIRST {
        return Err(refused("this machine waits for random bytes of its own, and answers nothing before".to_owned()));
    }
    serde_json::from_slice(payload)
        .map_err(|error| refused(format!("this machine waits for random bytes of its own, and this has none: {error}")))
}

/// Fresh random numbers and the time; what the generator gave before and after.
pub(super) fn renewed(seed: [u8; 32], clock: (i64, u32)) -> Result<SeedReply, Fault> {
    let device = rustix::fs::open("/dev/urandom", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let device = device.map_err(at("/dev/urandom"))?;
    let before = drawn()?;
    let number = Fd::new(u32::try_from(device.as_raw_fd()).unwrap_or(u32::MAX));
    bare::reseed(number, seed).map_err(call("fresh random bytes"))?;
    set(clock)?;
    Ok(SeedReply { before, after: drawn()? })
}

/// Sets the clock.
pub(super) fn set((seconds, nanoseconds): (i64, u32)) -> Result<(), Fault> {
    let now = Timespec { tv_sec: seconds, tv_nsec: nanoseconds.into() };
    rustix::time::clock_settime(ClockId::Realtime, now).map_err(at("the clock"))
}

fn drawn() -> Result<[u8; 16], Fault> {
    let mut bytes = [0; 16];
    if sys::random::fill(&mut bytes) { Ok(bytes) } else { Err(at("random bytes")(Errno::IO)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::FsSize;

    const NONE: FsSize = FsSize { bytes: 0, inodes: 0 };

    fn begin() -> Begin {
        let machine = Machine {
            version: frame::VERSION,
            user: "user".to_owned(),
            id: 1000,
            hostname: "sandbox".to_owned(),
            umask: 0o22,
            noexec: true,
            loopback: false,
            network: None,
            tmp: NONE,
            shm: NONE,
            run: NONE,
            workspace: None,
            certificates: Vec::new(),
            machine_id: None,
            rlimits: std::collections::BTreeMap::new(),
            environment: Vec::new(),
            cwd: "/".to_owned(),
            attempts: vec![crate::machine::Attempt { number: 90, args: [u64::MAX; 6], errno: 1 }],
        };
        Begin { seed: [7; 32], clock: (1, 2), machine, filter: 3, files: vec![("a".to_owned(), 2)] }
    }

    fn words(begin: &Begin) -> Vec<u8> {
        serde_json::to_vec(begin).unwrap()
    }

    #[test]
    fn only_what_brings_fresh_bytes_is_taken() {
        assert_eq!(judged(FIRST, &words(&begin())), Ok(begin()));
        assert_eq!(judged(FIRST + 1, &words(&begin())).unwrap_err().code, Code::Paused);
        assert_eq!(judged(FIRST, br#"{"op":"hello","version":1}"#).unwrap_err().code, Code::Paused);
        let mut without = serde_json::to_value(begin()).unwrap();
        without.as_object_mut().unwrap().remove("seed");
        let refused = judged(FIRST, &serde_json::to_vec(&without).unwrap()).unwrap_err();
        assert!(refused.message.contains("seed"), "{refused}");
        let mut short = serde_json::to_value(begin()).unwrap();
        short["seed"].as_array_mut().unwrap().pop();
        assert!(judged(FIRST, &serde_json::to_vec(&short).unwrap()).is_err());
    }

    /// Requests before it are refused one by one, and nothing of them is kept.
    #[test]
    fn requests_before_the_fresh_bytes_are_refused_and_the_right_one_is_still_taken() {
        let (ours, theirs) = sys::channel::pair().unwrap();
        let mut sent = Vec::new();
        let mut put = |kind, stream, payload: &[u8]| assert!(frame::put(&mut sent, Frame { kind, stream, payload }));
        put(Kind::Open, 2, br#"{"op":"hello","version":1}"#);
        put(Kind::Credit, 2, &[0; 4]);
        put(Kind::Open, FIRST, br#"{"op":"start","argv":["sh"]}"#);
        put(Kind::Open, FIRST, &words(&begin()));
        put(Kind::Data, FIRST, b"\0fi");
        put(Kind::Data, FIRST, b"\0lhi");
        put(Kind::Eof, FIRST, b"");
        sys::channel::send(&ours, &sent).unwrap();
        let mut line = Line::new(&theirs);
        assert_eq!(line.begin().ok(), Some(begin()));
        let parts = line.parts(vec![3, 2]).ok().unwrap();
        assert_eq!(parts, [b"fil".to_vec(), b"hi".to_vec()]);
        let mut said = vec![0; 4096];
        let count = sys::channel::receive(&ours, &mut said, true).unwrap().count;
        let mut said = said.get(..count).unwrap();
        for stream in [2, FIRST] {
            let (frame, length) = frame::first(said).unwrap().unwrap();
            assert_eq!((frame.kind, frame.stream), (Kind::End, stream));
            assert!(String::from_utf8_lossy(frame.payload).contains("paused"), "{frame:?}");
            said = said.get(length..).unwrap();
        }
        assert!(said.is_empty());
    }

    #[test]
    fn data_of_another_length_than_was_said_is_a_fault() {
        for (data, lengths) in
            [(&b"\0ab"[..], vec![3]), (b"\0abcd", vec![3]), (b"", vec![1]), (b"", vec![MAX_TOTAL + 1])]
        {
            let (ours, theirs) = sys::channel::pair().unwrap();
            let mut sent = Vec::new();
            assert!(data.is_empty() || frame::put(&mut sent, Frame { kind: Kind::Data, stream: FIRST, payload: data }));
            assert!(frame::put(&mut sent, Frame { kind: Kind::Eof, stream: FIRST, payload: b"" }));
            sys::channel::send(&ours, &sent).unwrap();
            assert!(Line::new(&theirs).parts(lengths).is_err());
        }
    }
}
