//! The guest's end of the control socket.

use sys::bare::{self, Errno, Fd};

use crate::frames::{FromGuest, HEADER, MAX_OWN, ToGuest, first};

/// Room for frames from the supervisor, all of which are a few bytes long.
const ROOM: usize = 256;

/// The socket and what was received but not yet read.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Fd,
    buffer: [u8; ROOM],
    filled: usize,
}

impl Link {
    pub(crate) fn new(socket: Fd) -> Self {
        Self { socket, buffer: [0; ROOM], filled: 0 }
    }

    pub(crate) fn socket(&self) -> Fd {
        self.socket
    }

    /// Sends a frame, and descriptors along with it.
    pub(crate) fn send(&self, frame: &FromGuest, fds: &[Fd]) -> bare::Result<()> {
        let mut bytes = [0; MAX_OWN];
        let len = frame.encode(0, &mut bytes).ok_or(Errno::EMSGSIZE)?;
        bare::send(self.socket, bytes.get(..len).unwrap_or(&[]), fds)
    }

    /// Waits for this very frame. Any other, and the end of the socket, is an error: nothing else can be said now.
    pub(crate) fn wait_for(&mut self, wanted: ToGuest) -> bare::Result<()> {
        loop {
            match self.take()? {
                Some(frame) if frame == wanted => return Ok(()),
                Some(_) => return Err(Errno::EPROTO),
                None => self.receive(true)?,
            }
        }
    }

    /// The next frame that is already here.
    pub(crate) fn take(&mut self) -> bare::Result<Option<ToGuest>> {
        let have = self.buffer.get(..self.filled).unwrap_or(&[]);
        let Some((raw, len)) = first(have).or(Err(Errno::EPROTO))? else {
            // A frame that can never fit would leave us waiting for ever.
            return if have.len() == ROOM { Err(Errno::EMSGSIZE) } else { Ok(None) };
        };
        let frame = ToGuest::decode(&raw).or(Err(Errno::EPROTO))?;
        self.buffer.copy_within(len.min(self.filled)..self.filled, 0);
        self.filled = self.filled.saturating_sub(len.max(HEADER));
        Ok(Some(frame))
    }

    /// Receives what there is; `ECONNRESET` when the supervisor is gone.
    pub(crate) fn receive(&mut self, wait: bool) -> bare::Result<()> {
        let room = self.buffer.get_mut(self.filled..).unwrap_or(&mut []);
        match bare::receive(self.socket, room, wait) {
            Ok(0) => Err(Errno::ECONNRESET),
            Ok(got) => {
                self.filled = self.filled.saturating_add(got);
                Ok(())
            }
            Err(Errno::EINTR | Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}
