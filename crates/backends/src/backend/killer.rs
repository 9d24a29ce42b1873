//! The word by which a guest ends everything, in the hands of another thread than the supervisor's.

use std::os::fd::OwnedFd;

use guest::frames::{Address, MAX_OWN, ToGuest};

/// Has the guest end everything inside at once; it does so itself, so that nobody waits for whoever supervises it.
#[derive(Debug)]
pub struct Killer(OwnedFd);

impl Killer {
    /// By another descriptor of its control socket.
    #[must_use]
    pub const fn new(control: OwnedFd) -> Self {
        Self(control)
    }

    /// A guest that is gone has ended everything; one that is told so much that nothing more fits is ended by its supervisor.
    pub fn kill(&self) {
        let mut buffer = [0; MAX_OWN];
        let length = ToGuest::Kill.encode(Address { channel: 0, request: 0 }, &mut buffer);
        let bytes = length.and_then(|length| buffer.get(..length)).unwrap_or_default();
        drop(sys::channel::send_some(&self.0, bytes, &[]));
    }
}
