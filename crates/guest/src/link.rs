//! The guest's end of the control socket.

use sys::bare::{self, Errno, Fd, StdioFds};

use crate::fault::{Fault, Taken};
use crate::frames::{Address, FrameError, FromGuest, MAX_FRAME, MAX_OWN, ToGuest, first};

/// Room for frames from the supervisor, all of which but a `Start` are a few bytes long.
const ROOM: usize = 256;

/// What frames go out by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link(Fd);

impl Link {
    pub(crate) const fn new(socket: Fd) -> Self {
        Self(socket)
    }

    pub(crate) const fn socket(self) -> Fd {
        self.0
    }

    /// Sends a frame that is about the first program or none and that nobody asked for, and descriptors along with it.
    pub(crate) fn tell(self, frame: &FromGuest, fds: &[Fd]) -> bare::Result<()> {
        self.send(Address::default(), frame, fds)
    }

    /// Sends a frame to this address.
    pub(crate) fn answer(self, at: Address, frame: &FromGuest) -> bare::Result<()> {
        self.send(at, frame, &[])
    }

    fn send(self, at: Address, frame: &FromGuest, fds: &[Fd]) -> bare::Result<()> {
        let mut bytes = [0; MAX_OWN];
        let len = frame.encode(at, &mut bytes).ok_or(Errno::EMSGSIZE)?;
        bare::send(self.0, bytes.get(..len).unwrap_or(&[]), fds)
    }
}

/// What was received but not yet read.
#[derive(Debug)]
pub(crate) struct Inbox {
    small: [u8; ROOM],
    /// Instead of that, where frames may be long.
    large: Option<&'static mut [u8]>,
    filled: usize,
    /// Bytes of the frame that was handed out last.
    taken: usize,
    /// What came along, in order. One message brings three, and at most one more `Start` begins before those that came with
    /// the last one were handed out (unix_stream_read_generic() in the kernel ends a read behind descriptors).
    streams: [Option<StdioFds>; 2],
}

impl Default for Inbox {
    fn default() -> Self {
        Self { small: [0; ROOM], large: None, filled: 0, taken: 0, streams: [None, None] }
    }
}

/// One frame from the supervisor.
#[derive(Debug)]
pub(crate) struct ReceivedFrame<'a> {
    pub(crate) at: Address,
    pub(crate) frame: ToGuest<'a>,
    /// What came along with a `Start`.
    pub(crate) streams: Option<StdioFds>,
}

impl Inbox {
    /// Room for the longest frame. Nothing may have arrived yet but what fits into the small room.
    pub(crate) fn enlarge(&mut self) -> bare::Result<()> {
        let large = bare::map_bytes(MAX_FRAME)?;
        for (to, from) in large.iter_mut().zip(&self.small) {
            *to = *from;
        }
        self.large = Some(large);
        Ok(())
    }

    /// Waits for this very frame; its request. Any other, and the end of the socket, is an error: nothing else can be said
    /// now.
    pub(crate) fn wait_for(&mut self, link: Link, wanted: ToGuest<'_>) -> Taken<u32> {
        loop {
            match self.next()? {
                Some(said) if said.frame == wanted => return Ok(said.at.request),
                Some(_) => return Err(Errno::EPROTO.into()),
                None => self.receive(link, true)?,
            }
        }
    }

    /// The next frame that is already here.
    pub(crate) fn next(&mut self) -> Taken<Option<ReceivedFrame<'_>>> {
        let bytes = self.large.as_deref_mut().unwrap_or(&mut self.small);
        bytes.copy_within(self.taken.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(self.taken);
        self.taken = 0;
        let have = bytes.get(..self.filled).unwrap_or(&[]);
        let Some((raw, len)) = first(have).map_err(no_frame)? else {
            // Descriptors come with the first byte of their frame.
            if have.is_empty() && self.streams.iter().any(Option::is_some) {
                return Err(Errno::EBADF.into());
            }
            // A frame that can never fit would leave us waiting for ever.
            return if have.len() == bytes.len() { Err(Errno::EMSGSIZE.into()) } else { Ok(None) };
        };
        let frame = ToGuest::decode(&raw).map_err(no_frame)?;
        self.taken = len;
        let [next, after] = &mut self.streams;
        let streams = match frame {
            ToGuest::Start(_) => core::mem::replace(next, after.take()),
            ToGuest::Mapped
            | ToGuest::Filled
            | ToGuest::Go
            | ToGuest::Signal(_)
            | ToGuest::Resize(_)
            | ToGuest::Kill
            | ToGuest::Ping => None,
        };
        Ok(Some(ReceivedFrame { at: raw.at, frame, streams }))
    }

    /// Receives what there is; `ECONNRESET` when the supervisor is gone.
    pub(crate) fn receive(&mut self, link: Link, wait: bool) -> bare::Result<()> {
        let bytes = self.large.as_deref_mut().unwrap_or(&mut self.small);
        let (got, streams) = match bare::receive(link.socket(), bytes.get_mut(self.filled..).unwrap_or(&mut []), wait) {
            Ok((0, _)) => return Err(Errno::ECONNRESET),
            Err(Errno::EINTR | Errno::EAGAIN) => return Ok(()),
            received => received?,
        };
        self.filled = self.filled.saturating_add(got);
        match (&mut self.streams, streams) {
            (_, None) => Ok(()),
            ([next @ None, _] | [_, next @ None], streams) => {
                *next = streams;
                Ok(())
            }
            ([Some(_), Some(_)], Some(_)) => Err(Errno::EBADF),
        }
    }
}

/// By name, with what it was as the detail.
fn no_frame(error: FrameError) -> Fault {
    let (errno, detail) = match error {
        FrameError::TooLong(length) => (Errno::EMSGSIZE, length),
        FrameError::Channel(channel) => (Errno::ECHRNG, u32::from(channel)),
        FrameError::Version(number) | FrameError::Kind(number) | FrameError::Payload(number) => {
            (Errno::EPROTO, u32::from(number))
        }
        FrameError::Request(request) => (Errno::EPROTO, request),
    };
    Fault { errno: errno.number(), detail }
}
