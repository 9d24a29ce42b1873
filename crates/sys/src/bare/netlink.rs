//! Messages to the kernel about interfaces, addresses and routes (rtnetlink(7)): one request, one answer.

use linux_raw_sys::net::SOCK_RAW;

use super::errno::{Errno, Result};
use super::file::{read_some, write_all};
use super::socket::socket;

const AF_NETLINK: u32 = 16;
const NLMSG_ERROR: u16 = 2;
/// Bytes of `struct nlmsghdr`.
const HEADER: usize = 16;
/// Longest message; one that would be longer is refused when it is sent.
const MAX_MESSAGE: usize = 256;
/// `NLM_F_CREATE`.
pub(super) const CREATE: u16 = 0x400;
/// `NLM_F_EXCL`: it must not be there.
pub(super) const NEW: u16 = 0x200;
pub(super) const RTM_NEWLINK: u16 = 16;
const REQUEST: u16 = 1;
const ACKNOWLEDGE: u16 = 4;

/// The number of a family, as messages have it.
pub(super) const fn family(ipv6: bool) -> u8 {
    if ipv6 { 10 } else { 2 }
}

/// A message in the making.
pub(super) struct Message {
    bytes: [u8; MAX_MESSAGE],
    length: usize,
}

impl Message {
    /// `body`: what the kind of message begins with, `struct ifinfomsg`, `ifaddrmsg` or `rtmsg`.
    pub(super) fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut message = Self { bytes: [0; MAX_MESSAGE], length: HEADER };
        message.put(4, &kind.to_le_bytes());
        message.put(6, &(REQUEST | flags).to_le_bytes());
        message.add(body)
    }

    /// With one more attribute.
    pub(super) fn with(self, attribute: u16, value: &[u8]) -> Self {
        self.nested(attribute, |message| message.add(value))
    }

    /// With one more attribute, whose value is made of others.
    pub(super) fn nested(mut self, attribute: u16, inner: impl FnOnce(Self) -> Self) -> Self {
        let begin = self.length;
        self.length = begin.saturating_add(4);
        let mut message = inner(self);
        let length = u16::try_from(message.length.saturating_sub(begin)).unwrap_or(u16::MAX);
        message.put(begin, &length.to_le_bytes());
        message.put(begin.saturating_add(2), &attribute.to_le_bytes());
        message.length = message.length.next_multiple_of(4);
        message
    }

    pub(super) fn add(mut self, value: &[u8]) -> Self {
        self.put(self.length, value);
        self.length = self.length.saturating_add(value.len());
        self
    }

    fn put(&mut self, at: usize, value: &[u8]) {
        for (to, from) in self.bytes.iter_mut().skip(at).zip(value) {
            *to = *from;
        }
    }

    /// Sends it to the kernel and takes the first answer; how long it is.
    pub(super) fn ask(mut self, answer: &mut [u8]) -> Result<usize> {
        let length = u32::try_from(self.length).or(Err(Errno::E2BIG))?;
        self.put(0, &length.to_le_bytes());
        let bytes = self.bytes.get(..self.length).ok_or(Errno::E2BIG)?;
        let netlink = socket(AF_NETLINK, SOCK_RAW)?;
        write_all(netlink.fd(), bytes)?;
        read_some(netlink.fd(), answer)
    }

    /// Has the kernel do it, and waits until it has.
    pub(super) fn order(mut self) -> Result<()> {
        let flags = u16_at(&self.bytes, 6).unwrap_or(0);
        self.put(6, &(flags | ACKNOWLEDGE).to_le_bytes());
        let mut answer = [0; 512];
        let length = self.ask(&mut answer)?;
        let answer = answer.get(..length).unwrap_or(&[]);
        match failed(answer) {
            Some(0) => Ok(()),
            Some(error) => Err(Errno::of_message(error)),
            None => Err(Errno::EPROTO),
        }
    }
}

/// What the kernel says instead of an answer; 0: it is done.
pub(super) fn failed(answer: &[u8]) -> Option<i32> {
    if u16_at(answer, 4) != Some(NLMSG_ERROR) {
        return None;
    }
    Some(i32::from_le_bytes(*answer.get(16..)?.first_chunk()?))
}

/// What kind of message an answer is.
pub(super) fn kind(answer: &[u8]) -> Option<u16> {
    u16_at(answer, 4)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
