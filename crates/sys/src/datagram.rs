//! Datagrams with the address that they were sent to: a socket on all addresses must answer from the one that was asked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use crate::error::{Error, ErrorContext as _, Result};

/// A datagram that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes of it in the buffer; what did not fit is lost.
    pub count: usize,
    /// Who sent it.
    pub from: SocketAddr,
    /// Whom it was sent to.
    pub to: IpAddr,
}

/// Header of a control message (`struct cmsghdr`), and what follows it, is aligned to this.
const ALIGNED: usize = size_of::<usize>();
/// `struct cmsghdr`: a length, a level, a type.
const HEADER: usize = size_of::<libc::cmsghdr>();
/// Room for one control message of either family, in words so that it is aligned.
type Control = [usize; 8];
/// Room for an address of either family (`struct sockaddr_in6` is the longer one).
type Name = [u32; 7];

/// Makes a socket say to which address a datagram was sent (IP_PKTINFO, IPV6_RECVPKTINFO).
///
/// # Errors
/// ENOTSOCK; ENOPROTOOPT: of another family.
pub fn ask_for_destination(socket: impl AsFd, v6: bool) -> Result<()> {
    let (level, name) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    let on: libc::c_int = 1;
    let length = u32::try_from(size_of_val(&on)).unwrap_or_default();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel reads `length` bytes of `on`, which lives here.
    let done = unsafe { libc::setsockopt(fd, level, name, (&raw const on).cast(), length) };
    if done == 0 { Ok(()) } else { Err(last()).named("setsockopt", || "datagram socket".into()) }
}

/// Receives what is there. The socket must have been asked for destinations.
///
/// # Errors
/// EAGAIN: nothing is there. EPROTO: it does not say where it was sent to.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> Result<ReceivedDatagram> {
    let (mut name, mut control): (Name, Control) = ([0; 7], [0; 8]);
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = empty();
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = u32::try_from(size_of_val(&name)).unwrap_or_default();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control);
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: every pointer of `message` leads to a local of the length beside it, which nobody else holds.
    let count = unsafe { libc::recvmsg(fd, &raw mut message, libc::MSG_DONTWAIT) };
    let named = || "datagram socket".to_owned();
    let Ok(count) = usize::try_from(count) else { return Err(last()).named("recvmsg", named) };
    let filled = control.iter().flat_map(|word| word.to_ne_bytes()).take(message.msg_controllen).collect::<Vec<_>>();
    let from = sender(&name.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<_>>());
    if let (Some(from), Some(to)) = (from, destination(&filled)) {
        Ok(ReceivedDatagram { count, from, to })
    } else {
        Err(Error::new("recvmsg", named(), Errno::PROTO))
    }
}

/// Sends a datagram from one of the machine's own addresses.
///
/// # Errors
/// EAGAIN: no room. EINVAL: `to` and `from` are of different families, or `from` is no own address.
pub fn send(socket: impl AsFd, bytes: &[u8], to: SocketAddr, from: IpAddr) -> Result<()> {
    let named = || "datagram socket".to_owned();
    let (mut name, mut control): (Name, Control) = ([0; 7], [0; 8]);
    let (name_bytes, control_bytes) = match (to, from) {
        (SocketAddr::V4(to), IpAddr::V4(from)) => (name4(to), info4(from)),
        (SocketAddr::V6(to), IpAddr::V6(from)) => (name6(to), info6(from)),
        (SocketAddr::V4(_), IpAddr::V6(_)) | (SocketAddr::V6(_), IpAddr::V4(_)) => {
            return Err(Error::new("sendmsg", named(), Errno::INVAL));
        }
    };
    fill(&mut name, &name_bytes, u32::from_ne_bytes);
    fill(&mut control, &control_bytes, usize::from_ne_bytes);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut message = empty();
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = u32::try_from(name_bytes.len()).unwrap_or_default();
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control_bytes.len();
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: every pointer of `message` leads to bytes of the length beside it that live here; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    if sent < 0 { Err(last()).named("sendmsg", named) } else { Ok(()) }
}

fn empty() -> libc::msghdr {
    // SAFETY: all bytes zero is a value of this C struct: null pointers, no lengths, no flags.
    unsafe { std::mem::zeroed() }
}

fn last() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Bytes into words, zeros behind them.
fn fill<W, const N: usize>(words: &mut [W], bytes: &[u8], word: fn([u8; N]) -> W) {
    for (to, chunk) in words.iter_mut().zip(bytes.chunks(N)) {
        let mut whole = [0; N];
        for (a, b) in whole.iter_mut().zip(chunk) {
            *a = *b;
        }
        *to = word(whole);
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// `struct sockaddr_in` or `sockaddr_in6`.
fn sender(name: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(take(name, 0)?));
    let port = u16::from_be_bytes(take(name, 2)?);
    match family {
        libc::AF_INET => Some(SocketAddr::new(IpAddr::from(take::<4>(name, 4)?), port)),
        libc::AF_INET6 => Some(SocketAddr::new(IpAddr::from(take::<16>(name, 8)?), port)),
        _ => None,
    }
}

/// The one control message that was asked for: `struct in_pktinfo` (whose last member is the header's destination) or
/// `in6_pktinfo`.
fn destination(control: &[u8]) -> Option<IpAddr> {
    let level = i32::from_ne_bytes(take(control, ALIGNED)?);
    let kind = i32::from_ne_bytes(take(control, ALIGNED + 4)?);
    match (level, kind) {
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => take::<4>(control, HEADER + 8).map(|a| Ipv4Addr::from(a).into()),
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => take::<16>(control, HEADER).map(|a| Ipv6Addr::from(a).into()),
        _ => None,
    }
}

fn header(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
    let length = HEADER.saturating_add(data.len());
    let mut out = length.to_ne_bytes().to_vec();
    out.extend_from_slice(&level.to_ne_bytes());
    out.extend_from_slice(&kind.to_ne_bytes());
    out.extend_from_slice(data);
    out.resize(out.len().next_multiple_of(ALIGNED), 0);
    out
}

fn info4(from: Ipv4Addr) -> Vec<u8> {
    let data = [[0; 4], from.octets(), [0; 4]].concat();
    header(libc::IPPROTO_IP, libc::IP_PKTINFO, &data)
}

fn info6(from: Ipv6Addr) -> Vec<u8> {
    let data = [&from.octets()[..], &[0; 4]].concat();
    header(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &data)
}

fn family(number: i32) -> [u8; 2] {
    u16::try_from(number).unwrap_or_default().to_ne_bytes()
}

fn name4(to: std::net::SocketAddrV4) -> Vec<u8> {
    let mut out = family(libc::AF_INET).to_vec();
    out.extend_from_slice(&to.port().to_be_bytes());
    out.extend_from_slice(&to.ip().octets());
    out.resize(16, 0);
    out
}

fn name6(to: std::net::SocketAddrV6) -> Vec<u8> {
    let mut out = family(libc::AF_INET6).to_vec();
    out.extend_from_slice(&to.port().to_be_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&to.ip().octets());
    out.extend_from_slice(&to.scope_id().to_ne_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// The answer to a datagram leaves from where it was sent to: a connected client takes it.
    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        for (wild, asked) in [("0.0.0.0:0", "127.7.7.7"), ("[::]:0", "::1")] {
            let server = UdpSocket::bind(wild).unwrap();
            ask_for_destination(&server, wild.starts_with('[')).unwrap();
            let port = server.local_addr().unwrap().port();
            let asked: IpAddr = asked.parse().unwrap();
            let client = UdpSocket::bind(if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
            client.connect((asked, port)).unwrap();
            let mut buffer = [0; 64];
            assert!(receive(&server, &mut buffer).unwrap_err().is_again());
            client.send(b"question").unwrap();
            let came = receive(&server, &mut buffer).unwrap();
            assert_eq!((came.count, came.to, came.from), (8, asked, client.local_addr().unwrap()));
            send(&server, b"answer", came.from, came.to).unwrap();
            assert_eq!(client.recv(&mut buffer).unwrap(), 6);
        }
    }

    #[test]
    fn without_being_asked_a_socket_does_not_say() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(b"x", server.local_addr().unwrap()).unwrap();
        assert_eq!(receive(&server, &mut [0; 8]).unwrap_err().errno, Errno::PROTO);
        let from = "::1".parse().unwrap();
        assert_eq!(send(&client, b"x", server.local_addr().unwrap(), from).unwrap_err().errno, Errno::INVAL);
    }
}
