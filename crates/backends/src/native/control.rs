//! The control socket: frames to and from the guest, with time limits, treating its bytes as hostile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use guest::frames::{self, Address, FrameError, FromGuest, ToGuest};

use super::words;
use crate::StartError;

/// Bytes read at once; a frame of ours is far shorter.
const CHUNK: usize = 4096;
/// Most frames that may wait unread: a guest that floods is cut off.
const MAX_WAITING: usize = 1024;

/// All that is asked of a guest that starts one program is to start it, so that this is every request's id.
const GO: u32 = 1;

/// The supervisor's end.
#[derive(Debug)]
pub(crate) struct Control {
    socket: OwnedFd,
    bytes: Vec<u8>,
    frames: VecDeque<FromGuest>,
    descriptors: VecDeque<OwnedFd>,
    closed: bool,
}

impl Control {
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self { socket, bytes: Vec::new(), frames: VecDeque::new(), descriptors: VecDeque::new(), closed: false }
    }

    /// The descriptor to wait on.
    #[must_use]
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the guest closed its end.
    #[must_use]
    pub(crate) const fn closed(&self) -> bool {
        self.closed
    }

    /// Sends a frame about the first program, or none. A guest that is gone shows at the next read.
    ///
    /// # Errors
    /// The guest is gone, or the frame is one that has no place on this channel.
    pub(crate) fn send(&self, frame: ToGuest<'_>) -> Result<(), StartError> {
        let at = Address { channel: 0, request: if frame.asks() { GO } else { 0 } };
        let mut buffer = [0; frames::MAX_OWN];
        let bytes = frame.encode(at, &mut buffer).and_then(|length| buffer.get(..length));
        let bytes =
            bytes.ok_or_else(|| StartError::Internal("a frame has no place on the first channel".to_owned()))?;
        sys::channel::send(&self.socket, bytes).map_err(|e| StartError::system("speaking to the guest", e))
    }

    /// Takes what has arrived, without waiting.
    ///
    /// # Errors
    /// Bytes that are no frame: the guest is not ours any more.
    pub(crate) fn read(&mut self) -> Result<(), StartError> {
        self.fill(true)
    }

    /// The next frame that has arrived.
    pub(crate) fn take(&mut self) -> Option<FromGuest> {
        self.frames.pop_front()
    }

    /// The descriptors that came with the frames read so far.
    pub(crate) fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    /// Waits for the next frame; `None` when the guest closed its end.
    ///
    /// # Errors
    /// No frame came within `limit`, or bytes that are no frame.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<Option<FromGuest>, StartError> {
        let until = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take() {
                return Ok(Some(frame));
            }
            if self.closed {
                return Ok(None);
            }
            let interest = sys::channel::Interest { fd: self.socket.as_fd(), write: false };
            let ready = sys::channel::wait_until(&[interest], Some(until))
                .map_err(|e| StartError::system("waiting for the guest", e))?;
            if ready != [true] {
                return Err(StartError::system(
                    "waiting for the guest",
                    format!("nothing came within {}", words::time(limit)),
                ));
            }
            self.fill(true)?;
        }
    }

    fn fill(&mut self, nonblocking: bool) -> Result<(), StartError> {
        let mut buffer = [0; CHUNK];
        let received = match sys::channel::receive(&self.socket, &mut buffer, nonblocking) {
            Ok(received) => received,
            Err(error) if error.is_again() => return Ok(()),
            Err(_) => {
                self.closed = true;
                return Ok(());
            }
        };
        if received.count == 0 {
            self.closed = true;
            return Ok(());
        }
        self.bytes.extend_from_slice(buffer.get(..received.count).unwrap_or_default());
        if self.descriptors.len() < sys::channel::MAX_DESCRIPTORS {
            self.descriptors.extend(received.descriptors);
        }
        self.split()
    }

    fn split(&mut self) -> Result<(), StartError> {
        let hostile = |e: FrameError| StartError::system("reading the guest's frames", words::no_frame(e));
        loop {
            let length = match frames::first(&self.bytes).map_err(hostile)? {
                None => return Ok(()),
                Some((raw, length)) => {
                    let frame = FromGuest::decode(&raw).and_then(|frame| known(raw.at).map(|()| frame));
                    self.frames.push_back(frame.map_err(hostile)?);
                    length
                }
            };
            self.bytes.drain(..length);
            if self.frames.len() > MAX_WAITING {
                return Err(StartError::system(
                    "reading the guest's frames",
                    "more frames than any guest of ours sends",
                ));
            }
        }
    }
}

/// There is one program and one request: a frame about another is nonsense, or hostile.
fn known(at: Address) -> Result<(), FrameError> {
    match at {
        Address { channel: 0, request: 0 | GO } => Ok(()),
        Address { channel: 0, request } => Err(FrameError::Request(request)),
        Address { channel, request: _ } => Err(FrameError::Channel(channel)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer that a guest sends to this address, as the supervisor reads it.
    fn heard(channel: u16, request: u32) -> Result<Option<FromGuest>, String> {
        let (ours, theirs) = sys::channel::pair().unwrap();
        let mut bytes = [0; frames::MAX_OWN];
        let length = FromGuest::Started { pid: 2 }.encode(Address { channel, request }, &mut bytes).unwrap();
        sys::channel::send(&theirs, &bytes[..length]).unwrap();
        let mut control = Control::new(ours);
        control.read().map_err(|error| format!("{error:?}"))?;
        Ok(control.take())
    }

    #[test]
    fn a_frame_about_a_program_or_a_request_that_nobody_knows_is_an_error() {
        assert_eq!(heard(0, GO), Ok(Some(FromGuest::Started { pid: 2 })));
        assert!(heard(1, GO).unwrap_err().contains("program 1"));
        assert!(heard(0, 77).unwrap_err().contains("request 77"));
    }

    #[test]
    fn what_has_no_place_on_the_first_channel_is_not_left_unsaid() {
        let (ours, theirs) = sys::channel::pair().unwrap();
        let frame = guest::frames::OwnedStart { argv: vec![c"true".to_owned()], ..Default::default() };
        let bytes = frame.encode(Address { channel: 1, request: 1 }).unwrap();
        let (raw, _) = frames::first(&bytes).unwrap().unwrap();
        let control = Control::new(ours);
        assert!(control.send(ToGuest::decode(&raw).unwrap()).is_err());
        control.send(ToGuest::Go).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(sys::channel::receive(&theirs, &mut buffer, true).unwrap().count, frames::HEADER);
    }
}
