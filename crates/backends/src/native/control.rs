//! The control socket: frames to and from the guest, with time limits, treating its bytes as hostile.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use guest::frames::{self, FromGuest, ToGuest};

use super::words;
use crate::StartError;

/// Bytes read at once; a frame of ours is far shorter.
const CHUNK: usize = 4096;
/// Most frames that may wait unread: a guest that floods is cut off.
const MOST_WAITING: usize = 1024;

/// The supervisor's end.
#[derive(Debug)]
pub struct Control {
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
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether the guest closed its end.
    #[must_use]
    pub const fn closed(&self) -> bool {
        self.closed
    }

    /// Sends a frame. A guest that is gone shows at the next read.
    ///
    /// # Errors
    /// The guest is gone.
    pub fn send(&self, frame: ToGuest) -> Result<(), StartError> {
        let mut buffer = [0; frames::MAX_OWN];
        let length = frame.encode(0, &mut buffer).unwrap_or(0);
        let bytes = buffer.get(..length).unwrap_or_default();
        sys::channel::send(&self.socket, bytes).map_err(|e| StartError::system("speaking to the guest", e))
    }

    /// Takes what has arrived, without waiting.
    ///
    /// # Errors
    /// Bytes that are no frame: the guest is not ours any more.
    pub fn read(&mut self) -> Result<(), StartError> {
        self.fill(true)
    }

    /// The next frame that has arrived.
    pub fn take(&mut self) -> Option<FromGuest> {
        self.frames.pop_front()
    }

    /// The descriptors that came with the frames read so far.
    pub fn take_descriptors(&mut self) -> Vec<OwnedFd> {
        self.descriptors.drain(..).collect()
    }

    /// Waits for the next frame; `None` when the guest closed its end.
    ///
    /// # Errors
    /// No frame came within `limit`, or bytes that are no frame.
    pub fn wait(&mut self, limit: Duration) -> Result<Option<FromGuest>, StartError> {
        let until = Instant::now() + limit;
        loop {
            if let Some(frame) = self.take() {
                return Ok(Some(frame));
            }
            if self.closed {
                return Ok(None);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(StartError::system(
                    "waiting for the guest",
                    format!("nothing came within {}", words::time(limit)),
                ));
            }
            let interest = sys::channel::Interest { fd: self.socket.as_fd(), write: false };
            let ready = sys::channel::wait(&[interest], Some(left))
                .map_err(|e| StartError::system("waiting for the guest", e))?;
            if ready.first() == Some(&true) {
                self.fill(true)?;
            }
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
        if self.descriptors.len() < sys::channel::MOST_DESCRIPTORS {
            self.descriptors.extend(received.descriptors);
        }
        self.split()
    }

    fn split(&mut self) -> Result<(), StartError> {
        let hostile = |e: frames::FrameError| StartError::system("reading the guest's frames", words::no_frame(e));
        loop {
            let length = match frames::first(&self.bytes).map_err(hostile)? {
                None => return Ok(()),
                Some((raw, length)) => {
                    self.frames.push_back(FromGuest::decode(&raw).map_err(hostile)?);
                    length
                }
            };
            self.bytes.drain(..length);
            if self.frames.len() > MOST_WAITING {
                return Err(StartError::system(
                    "reading the guest's frames",
                    "more frames than any guest of ours sends",
                ));
            }
        }
    }
}
