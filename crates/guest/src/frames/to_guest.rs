//! What the supervisor says.

use super::{FrameError, Raw, encode};
use crate::config::Size;
use crate::wire::Reader;

/// One frame to the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToGuest {
    /// The id maps are written.
    Mapped,
    /// All `Fill`s are filled.
    Filled,
    /// The posture is as planned: start the payload.
    Go,
    /// Send this signal to the payload's foreground group.
    Signal(u8),
    /// The terminal has a new size.
    Resize(Size),
    /// Kill all, report the end.
    Kill,
    /// Answer with a `Pong`.
    Ping,
}

impl ToGuest {
    /// Writes the frame; its length, or `None` if `to` is too short.
    #[must_use]
    pub fn encode(&self, channel: u16, to: &mut [u8]) -> Option<usize> {
        encode(to, self.kind(), channel, |payload| match self {
            Self::Signal(number) => payload.u8(*number),
            Self::Resize(size) => {
                payload.u16(size.rows);
                payload.u16(size.cols);
            }
            Self::Mapped | Self::Filled | Self::Go | Self::Kill | Self::Ping => {}
        })
    }

    /// Reads the frame.
    ///
    /// # Errors
    /// [`FrameError::Kind`], [`FrameError::Payload`].
    pub fn decode(raw: &Raw<'_>) -> Result<Self, FrameError> {
        let mut r = Reader::new(raw.payload);
        let bad = FrameError::Payload(raw.kind);
        let frame = match raw.kind {
            1 => Self::Mapped,
            2 => Self::Filled,
            3 => Self::Go,
            4 => Self::Signal(r.u8().filter(|number| (1..=64).contains(number)).ok_or(bad)?),
            5 => Self::Resize(Size { rows: r.u16().ok_or(bad)?, cols: r.u16().ok_or(bad)? }),
            6 => Self::Kill,
            7 => Self::Ping,
            kind => return Err(FrameError::Kind(kind)),
        };
        if r.remaining() == 0 { Ok(frame) } else { Err(bad) }
    }

    fn kind(&self) -> u8 {
        match self {
            Self::Mapped => 1,
            Self::Filled => 2,
            Self::Go => 3,
            Self::Signal(_) => 4,
            Self::Resize(_) => 5,
            Self::Kill => 6,
            Self::Ping => 7,
        }
    }
}
