//! The socket to the engine: orders with their descriptors come in, records go out.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use egress::wire::{self, DESCRIPTORS, FromBroker, MAX_SOCKETS, Orders, ToBroker, VERSION};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendFlags};

use zeroize::Zeroizing;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::error::BrokerError;

/// What is read at once.
const PIECE: usize = 1 << 16;

/// Reads the orders and the sockets that came with them.
///
/// # Errors
/// The engine is gone, says something else first, or a version or a count that does not fit.
pub(crate) fn orders(socket: impl AsFd) -> Result<(Orders, Vec<OwnedFd>), BrokerError> {
    // Values of secrets are among it: what held some of them is wiped, and so no larger than it must be.
    let (mut bytes, mut sockets) = (Zeroizing::new(Vec::with_capacity(2 * PIECE)), Vec::new());
    loop {
        if let Some((frame, length)) = wire::decode(&bytes)? {
            let ToBroker::Orders(orders) = frame else {
                return Err(BrokerError::Orders("something else came first".to_owned()));
            };
            if length != bytes.len() {
                return Err(BrokerError::Orders("more came before they were answered".to_owned()));
            }
            return checked(*orders, sockets);
        }
        if let Some(length) = wire::length(&bytes)?.filter(|length| length.saturating_add(PIECE) > bytes.capacity()) {
            let mut larger = Zeroizing::new(Vec::with_capacity(length.saturating_add(PIECE)));
            larger.extend_from_slice(&bytes);
            bytes = larger;
        }
        receive(&socket, &mut bytes, &mut sockets)?;
        if sockets.len() > MAX_SOCKETS {
            return Err(BrokerError::Descriptors { named: MAX_SOCKETS, came: sockets.len() });
        }
    }
}

fn checked(orders: Orders, sockets: Vec<OwnedFd>) -> Result<(Orders, Vec<OwnedFd>), BrokerError> {
    if orders.version != VERSION {
        return Err(BrokerError::Orders(format!("version {} is not {VERSION}", orders.version)));
    }
    if orders.sockets.len() != sockets.len() {
        return Err(BrokerError::Descriptors { named: orders.sockets.len(), came: sockets.len() });
    }
    Ok((orders, sockets))
}

/// One message, added to what came before.
fn receive(socket: impl AsFd, bytes: &mut Vec<u8>, sockets: &mut Vec<OwnedFd>) -> Result<(), BrokerError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut buffer = Zeroizing::new(vec![0; PIECE]);
    let message = loop {
        let into = &mut [IoSliceMut::new(&mut buffer)];
        match rustix::net::recvmsg(&socket, into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            other => break other.map_err(|errno| BrokerError::Socket { call: "recvmsg", errno })?,
        }
    };
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            sockets.extend(rights);
        }
    }
    if message.flags.contains(ReturnFlags::CTRUNC) {
        return Err(BrokerError::Orders("descriptors were lost on the way".to_owned()));
    }
    if message.bytes == 0 {
        return Err(BrokerError::NoOrders);
    }
    bytes.extend_from_slice(buffer.get(..message.bytes).unwrap_or_default());
    Ok(())
}

/// The same socket for the runtime.
pub(crate) struct Line {
    stream: tokio::net::UnixStream,
    bytes: Vec<u8>,
}

impl Line {
    pub(crate) fn new(socket: std::os::unix::net::UnixStream) -> Result<Self, BrokerError> {
        socket.set_nonblocking(true)?;
        Ok(Self { stream: tokio::net::UnixStream::from_std(socket)?, bytes: Vec::new() })
    }

    /// The next frame; `None`: the engine closed. Nothing is lost when this is given up half-way.
    pub(crate) async fn next(&mut self) -> Result<Option<ToBroker>, BrokerError> {
        loop {
            if let Some((frame, length)) = wire::decode(&self.bytes)? {
                self.bytes.drain(..length);
                return Ok(Some(frame));
            }
            if self.stream.read_buf(&mut self.bytes).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Says frames, waiting for room.
    pub(crate) async fn say(&mut self, frames: &[FromBroker]) -> Result<(), BrokerError> {
        for frame in frames {
            self.stream.write_all(&wire::encode(frame)?).await?;
        }
        Ok(())
    }
}

/// Says one frame, waiting for room.
///
/// # Errors
/// The engine is gone.
pub(crate) fn say(socket: impl AsFd, frame: &FromBroker) -> Result<(), BrokerError> {
    let bytes = wire::encode(frame)?;
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let mut none = SendAncillaryBuffer::default();
        match rustix::net::sendmsg(&socket, &[IoSlice::new(rest)], &mut none, SendFlags::NOSIGNAL) {
            Ok(sent) => rest = rest.get(sent..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(BrokerError::Socket { call: "sendmsg", errno }),
        }
    }
    Ok(())
}

/// Says why it cannot go on.
///
/// # Errors
/// The engine is gone.
pub(crate) fn failed(socket: impl AsFd, error: &BrokerError) -> Result<(), BrokerError> {
    let said = FromBroker::Failed { what: "the broker".to_owned(), why: error.to_string() };
    say(socket, &said.bounded())
}
