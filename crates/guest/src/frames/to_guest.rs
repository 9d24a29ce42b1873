//! What the supervisor says.

use super::{Address, FrameError, Raw, Start, encode};
use crate::config::Size;
use crate::wire::Reader;

/// One frame to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuest<'a> {
    /// The id maps are written.
    Mapped,
    /// All `Fill`s are filled.
    Filled,
    /// The posture is as planned: start the payload.
    Go,
    /// Send this signal to the program's group; to the terminal's foreground group, if it is the first program's.
    Signal(u8),
    /// The terminal has a new size.
    Resize(Size),
    /// Kill all, report the end. A guest that stays goes when all have ended.
    Kill,
    /// Answer with a `Pong`.
    Ping,
    /// Start one more program, where the config says that the guest stays.
    Start(Start<'a>),
}

impl<'a> ToGuest<'a> {
    /// Writes the frame; its length, or `None` if `to` is too short or no such frame can have this address.
    #[must_use]
    pub fn encode(&self, at: Address, to: &mut [u8]) -> Option<usize> {
        self.check(at).ok()?;
        encode(to, self.kind(), at, |payload| match self {
            Self::Signal(number) => payload.u8(*number),
            Self::Resize(size) => {
                payload.u16(size.rows);
                payload.u16(size.cols);
            }
            Self::Start(start) => start.put(payload),
            Self::Mapped | Self::Filled | Self::Go | Self::Kill | Self::Ping => {}
        })
    }

    /// Reads the frame.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::Payload`], [`FrameError::Channel`], [`FrameError::Request`].
    pub fn decode(raw: &Raw<'a>) -> Result<Self, FrameError> {
        let mut r = Reader::new(raw.payload);
        let frame = match raw.kind {
            1 => Some(Self::Mapped),
            2 => Some(Self::Filled),
            3 => Some(Self::Go),
            4 => r.u8().filter(|number| (1..=64).contains(number)).map(Self::Signal),
            5 => r.u16().zip(r.u16()).map(|(rows, cols)| Self::Resize(Size { rows, cols })),
            6 => Some(Self::Kill),
            7 => Some(Self::Ping),
            8 => Start::read(&mut r).map(Self::Start),
            kind => return Err(FrameError::Kind(kind)),
        };
        let frame = frame.filter(|_| r.remaining() == 0).ok_or(FrameError::Payload(raw.kind))?;
        frame.check(raw.at).map(|()| frame)
    }

    /// Whether it is answered, and so has a request id.
    #[must_use]
    pub const fn asks(&self) -> bool {
        match self {
            Self::Go | Self::Ping | Self::Start(_) => true,
            Self::Mapped | Self::Filled | Self::Signal(_) | Self::Resize(_) | Self::Kill => false,
        }
    }

    fn check(&self, at: Address) -> Result<(), FrameError> {
        let any_channel = match self {
            // The first channel is that of the payload, which has its own frame.
            Self::Start(_) if at.channel == 0 => return Err(FrameError::Channel(0)),
            Self::Signal(_) | Self::Start(_) => true,
            Self::Mapped | Self::Filled | Self::Go | Self::Resize(_) | Self::Kill | Self::Ping => false,
        };
        at.check(any_channel, self.asks())
    }

    pub(crate) const fn kind(&self) -> u8 {
        match self {
            Self::Mapped => 1,
            Self::Filled => 2,
            Self::Go => 3,
            Self::Signal(_) => 4,
            Self::Resize(_) => 5,
            Self::Kill => 6,
            Self::Ping => 7,
            Self::Start(_) => 8,
        }
    }
}
