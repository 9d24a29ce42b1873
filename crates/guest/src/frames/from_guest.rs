//! What the guest says.

use super::posture::Posture;
use super::{Address, FrameError, Raw, encode};
use crate::config::MAX_EXPORTS;
use crate::step::Step;
use crate::wire::Reader;

/// Numbers of the descriptors that come with a `Mounted` frame, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    numbers: [u32; MAX_EXPORTS],
    count: u8,
}

impl Slots {
    /// Adds one; false if there is no room.
    #[must_use]
    pub fn push(&mut self, number: u32) -> bool {
        match self.numbers.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = number;
                self.count = self.count.saturating_add(1);
                true
            }
            None => false,
        }
    }

    /// The numbers.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.numbers.iter().take(usize::from(self.count)).copied()
    }

    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.count)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// What kept the program from starting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExecFailure {
    /// Nothing of that name, there or in any search directory: 127.
    NotFound,
    /// Found, but it may not or cannot be executed: 126.
    NotExecutable,
    /// Found, but the interpreter that its first line or its ELF header names is missing: 127.
    NoInterpreter,
    /// The working directory cannot be entered.
    Cwd,
    /// Arguments and environment are too large, or there is no memory, no process or no place for one more program.
    Resources,
}

/// How the payload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal {
        /// Which.
        number: u8,
        /// It dumped core.
        core: bool,
    },
}

/// The end of all, after everything was reaped; where the guest stays, the end of one program, with what it used and
/// what it waited for. What it left running goes on then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exited {
    /// Of the payload's first process.
    pub end: End,
    /// User time, microseconds.
    pub utime_us: u64,
    /// System time, microseconds.
    pub stime_us: u64,
}

/// One frame from the guest.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack, and boxing needs an allocator")]
pub enum FromGuest {
    /// The new root is built; descriptors come along.
    Mounted(Slots),
    /// The terminal's master comes along.
    Terminal,
    /// The listener of the filter that asks about links comes along.
    Asking,
    /// So many of the sockets come along, the next in the order of the config.
    Sockets(u8),
    /// What is in force.
    Posture(Posture),
    /// A step failed; the guest is gone.
    Failed {
        /// Which.
        step: Step,
        /// Why; 0 = the guest's own judgement.
        errno: i32,
        /// See [`Step`].
        detail: u32,
    },
    /// The program runs.
    Started {
        /// Its pid, as the guest sees it.
        pid: i32,
    },
    /// The program did not start; if it is the first, the guest is gone.
    ExecFailed {
        /// Why.
        errno: i32,
        /// What.
        which: ExecFailure,
    },
    /// The end.
    Exited(Exited),
    /// The program's first process was stopped by this signal.
    Stopped(u8),
    /// It goes on.
    Continued,
    /// Answer to a ping.
    Pong,
    /// Container: mounts, ids and capabilities are final, since nothing is left that could change them.
    Settled,
}

impl FromGuest {
    /// Writes the frame; its length, or `None` if `to` is too short or no such frame can have this address.
    /// [`super::MAX_OWN`] is enough for any.
    #[must_use]
    pub fn encode(&self, at: Address, to: &mut [u8]) -> Option<usize> {
        self.check(at).ok()?;
        encode(to, self.kind(), at, |payload| match self {
            Self::Mounted(slots) => {
                payload.u8(slots.count);
                slots.iter().for_each(|number| payload.u32(number));
            }
            Self::Posture(posture) => posture.put(payload),
            Self::Failed { step, errno, detail } => {
                payload.u8(step.number());
                payload.i32(*errno);
                payload.u32(*detail);
            }
            Self::Started { pid } => payload.i32(*pid),
            Self::ExecFailed { errno, which } => {
                payload.i32(*errno);
                payload.u8(match which {
                    ExecFailure::NotFound => 1,
                    ExecFailure::NotExecutable => 2,
                    ExecFailure::NoInterpreter => 3,
                    ExecFailure::Cwd => 4,
                    ExecFailure::Resources => 5,
                });
            }
            Self::Exited(exited) => exited.put(payload),
            Self::Stopped(signal) => payload.u8(*signal),
            Self::Sockets(count) => payload.u8(*count),
            Self::Terminal | Self::Asking | Self::Continued | Self::Pong | Self::Settled => {}
        })
    }

    /// Reads the frame.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::Payload`], [`FrameError::Channel`], [`FrameError::Request`].
    pub fn decode(raw: &Raw<'_>) -> Result<Self, FrameError> {
        let bad = FrameError::Payload(raw.kind);
        let mut r = Reader::new(raw.payload);
        let frame = match raw.kind {
            1 => read_slots(&mut r).map(Self::Mounted),
            2 => Some(Self::Terminal),
            3 => Posture::read(&mut r).map(Self::Posture),
            4 => read_failed(&mut r),
            5 => r.i32().map(|pid| Self::Started { pid }),
            6 => read_exec_failed(&mut r),
            7 => Exited::read(&mut r).map(Self::Exited),
            8 => r.u8().map(Self::Stopped),
            9 => Some(Self::Continued),
            10 => Some(Self::Pong),
            11 => Some(Self::Settled),
            12 => r.u8().map(Self::Sockets),
            13 => Some(Self::Asking),
            kind => return Err(FrameError::Kind(kind)),
        };
        let frame = frame.filter(|_| r.remaining() == 0).ok_or(bad)?;
        frame.check(raw.at).map(|()| frame)
    }

    fn check(&self, at: Address) -> Result<(), FrameError> {
        let (any_channel, answers) = match self {
            Self::Started { .. } | Self::ExecFailed { .. } | Self::Exited(_) => (true, true),
            Self::Stopped(_) | Self::Continued => (true, false),
            Self::Pong => (false, true),
            Self::Mounted(_)
            | Self::Terminal
            | Self::Asking
            | Self::Sockets(_)
            | Self::Posture(_)
            | Self::Failed { .. }
            | Self::Settled => (false, false),
        };
        at.check(any_channel, answers)
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Mounted(_) => 1,
            Self::Terminal => 2,
            Self::Posture(_) => 3,
            Self::Failed { .. } => 4,
            Self::Started { .. } => 5,
            Self::ExecFailed { .. } => 6,
            Self::Exited(_) => 7,
            Self::Stopped(_) => 8,
            Self::Continued => 9,
            Self::Pong => 10,
            Self::Settled => 11,
            Self::Sockets(_) => 12,
            Self::Asking => 13,
        }
    }
}

fn read_slots(r: &mut Reader<'_>) -> Option<Slots> {
    let mut slots = Slots::default();
    for _ in 0..r.u8()? {
        if !slots.push(r.u32()?) {
            return None;
        }
    }
    Some(slots)
}

fn read_failed(r: &mut Reader<'_>) -> Option<FromGuest> {
    Some(FromGuest::Failed { step: Step::from_number(r.u8()?)?, errno: r.i32()?, detail: r.u32()? })
}

fn read_exec_failed(r: &mut Reader<'_>) -> Option<FromGuest> {
    let errno = r.i32()?;
    let which = match r.u8()? {
        1 => ExecFailure::NotFound,
        2 => ExecFailure::NotExecutable,
        3 => ExecFailure::NoInterpreter,
        4 => ExecFailure::Cwd,
        5 => ExecFailure::Resources,
        0 | 6.. => return None,
    };
    Some(FromGuest::ExecFailed { errno, which })
}

impl Exited {
    fn put(&self, payload: &mut crate::wire::Writer<'_>) {
        let (kind, number, core) = match self.end {
            End::Code(code) => (0, code, false),
            End::Signal { number, core } => (1, number, core),
        };
        payload.u8(kind);
        payload.u8(number);
        payload.u8(u8::from(core));
        payload.u64(self.utime_us);
        payload.u64(self.stime_us);
    }

    fn read(r: &mut Reader<'_>) -> Option<Self> {
        let end = match (r.u8()?, r.u8()?, r.flag()?) {
            (0, code, false) => End::Code(code),
            (1, number @ 1..=64, core) => End::Signal { number, core },
            _ => return None,
        };
        Some(Self { end, utime_us: r.u64()?, stime_us: r.u64()? })
    }
}
