//! A link between two network stacks: that of a sandbox's network namespace, and that of a virtual machine whose frames somebody
//! carries.
//!
//! The sandbox's side is a pair of interfaces. One belongs to the sandbox's stack, which has every address; on the other frames
//! are read and written by a packet socket, so that nothing else has to be on it. The machine's side is its first device.
//! Both have the addresses that are said here, and nobody asks for them.

use linux_raw_sys::general::{__NR_bind, __NR_ioctl};
use linux_raw_sys::net::{AF_INET, SOCK_DGRAM, SOCK_RAW};

use super::errno::Result;
use super::fd::{Fd, Owned};
use super::netlink::{CREATE, Message, NEW, RTM_NEWLINK, family};
use super::raw::{call, read, uint, write};
use super::socket::{InterfaceRequest, SOCK_NONBLOCK, socket, switch_on};

/// The interface of the sandbox's stack. Far above what the kernel makes by itself in a fresh namespace.
const STACK: u32 = 100;
/// The interface on which frames are read and written.
pub const LINK: u32 = 101;
/// What the machine's interface is called.
pub const DEVICE: &str = "eth0";
/// The other side, as the machine knows it. Whoever resolves names has this address too: a sandbox's stack takes every address for
/// its own.
pub const GATEWAY: [u8; 4] = [198, 18, 0, 1];
const GATEWAY6: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// The machine's own address, of 198.18.0.0/15, which is set aside for tests of networks and so is nobody's.
pub const MACHINE: [u8; 4] = [198, 18, 0, 2];
/// The same in IPv6, in a prefix below fd00::/8.
pub const MACHINE6: [u8; 16] = [0xfd, 0x66, 0x75, 0x6d, 0x65, 0x68, 0x6f, 0x6f, 0, 0, 0, 0, 0, 0, 0, 2];

const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFF_UP: u32 = 1;
pub(super) const TABLE_MAIN: u8 = 254;
pub(super) const TABLE_LOCAL: u8 = 255;

/// Both interfaces up, the way to the machine, and the packet socket on the other end, which does not wait. About a dozen calls.
///
/// # Errors
/// `EPERM` without CAP_NET_ADMIN and CAP_NET_RAW over the network namespace. `EOPNOTSUPP`: the kernel has no pairs of interfaces
/// (veth). `EAFNOSUPPORT`: it has no packet sockets.
pub fn make_link(ipv6: bool) -> Result<Owned> {
    let end = |number, name| End { number, name, at: None, outside: None };
    add_pair(&end(STACK, "link0"), &end(LINK, "link1"))?;
    whole_frames(c"link0".to_bytes_with_nul())?;
    up(STACK)?;
    up(LINK)?;
    route(false, STACK, TABLE_LOCAL, Some(&MACHINE), None)?;
    if ipv6 {
        address(STACK, &GATEWAY6, 64)?;
        route(true, STACK, TABLE_LOCAL, Some(&MACHINE6), None)?;
    }
    packets()
}

/// Makes the machine's first network device, if it is there already, the way to everything. Some calls.
///
/// # Errors
/// `ENODEV`: it is not there. `EPERM` without CAP_NET_ADMIN.
pub fn join_link(ipv6: bool) -> Result<()> {
    let device = index(DEVICE.as_bytes())?;
    up(device)?;
    address(device, &MACHINE, 30)?;
    route(false, device, TABLE_MAIN, None, Some(&GATEWAY))?;
    if ipv6 {
        address(device, &MACHINE6, 128)?;
        route(true, device, TABLE_MAIN, None, Some(&GATEWAY6))?;
    }
    Ok(())
}

/// `struct ifinfomsg`.
pub(super) fn interface(index: u32, flags: u32) -> [u8; 16] {
    let mut body = [0; 16];
    body[4..8].copy_from_slice(&index.to_le_bytes());
    body[8..12].copy_from_slice(&flags.to_le_bytes());
    body[12..16].copy_from_slice(&flags.to_le_bytes());
    body
}

/// One end of a pair of interfaces.
pub(super) struct End<'a> {
    pub(super) number: u32,
    pub(super) name: &'a str,
    /// Its hardware address; without one the kernel gives it one.
    pub(super) at: Option<&'a [u8; 6]>,
    /// The namespace in which it is, if that is not the caller's.
    pub(super) outside: Option<Fd>,
}

impl End<'_> {
    fn say(&self, message: Message) -> Message {
        const IFLA_ADDRESS: u16 = 1;
        const IFLA_IFNAME: u16 = 3;
        const IFLA_NET_NS_FD: u16 = 28;
        let message = message.add(&interface(self.number, 0)).with(IFLA_IFNAME, self.name.as_bytes());
        let message = if let Some(at) = self.at { message.with(IFLA_ADDRESS, at) } else { message };
        let Some(outside) = self.outside else { return message };
        message.with(IFLA_NET_NS_FD, &outside.number().to_le_bytes())
    }
}

/// A pair of interfaces, of which each sends what the other hears. One call.
pub(super) fn add_pair(own: &End<'_>, other: &End<'_>) -> Result<()> {
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    const VETH_INFO_PEER: u16 = 1;
    let data = |message: Message| message.nested(VETH_INFO_PEER, |message| other.say(message));
    let info = |message: Message| message.with(IFLA_INFO_KIND, b"veth\0").nested(IFLA_INFO_DATA, data);
    own.say(Message::new(RTM_NEWLINK, CREATE | NEW, &[])).nested(IFLA_LINKINFO, info).order()
}

pub(super) fn up(interface_index: u32) -> Result<()> {
    Message::new(RTM_NEWLINK, 0, &interface(interface_index, IFF_UP)).order()
}

pub(super) fn address(interface_index: u32, address: &[u8], bits: u8) -> Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    /// Nobody else can have it: nobody is asked.
    const IFA_F_NODAD: u8 = 2;
    let index = interface_index.to_le_bytes();
    let body = [family(address.len() == 16), bits, IFA_F_NODAD, 0, index[0], index[1], index[2], index[3]];
    Message::new(RTM_NEWADDR, CREATE | NEW, &body).with(IFA_LOCAL, address).with(IFA_ADDRESS, address).order()
}

/// To one address, or to all of them by another.
pub(super) fn route(ipv6: bool, device: u32, table: u8, to: Option<&[u8]>, by: Option<&[u8]>) -> Result<()> {
    const RTA_DST: u16 = 1;
    const RTA_OIF: u16 = 4;
    const RTA_GATEWAY: u16 = 5;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_LINK: u8 = 253;
    const RTN_UNICAST: u8 = 1;
    let bits = match to {
        Some(_) if ipv6 => 128,
        Some(_) => 32,
        None => 0,
    };
    let scope = if by.is_none() && !ipv6 { SCOPE_LINK } else { 0 };
    let body = [family(ipv6), bits, 0, 0, table, PROTOCOL_STATIC, scope, RTN_UNICAST, 0, 0, 0, 0];
    let message = Message::new(RTM_NEWROUTE, CREATE, &body);
    let message = if let Some(to) = to { message.with(RTA_DST, to) } else { message };
    let message = if let Some(by) = by { message.with(RTA_GATEWAY, by) } else { message };
    message.with(RTA_OIF, &device.to_le_bytes()).order()
}

fn index(name: &[u8]) -> Result<u32> {
    const SIOCGIFINDEX: u32 = 0x8933;
    let socket = socket(AF_INET, SOCK_DGRAM)?;
    let mut request = InterfaceRequest::of(name, 0);
    // SAFETY: SIOCGIFINDEX reads an ifreq of 40 bytes and writes its number.
    unsafe { call(__NR_ioctl, [socket.fd().raw(), uint(SIOCGIFINDEX), write(&mut request)]) }?;
    let [a, b, c, d, ..] = request.value.to_le_bytes();
    Ok(u32::from_le_bytes([a, b, c, d]))
}

/// Checksums are whole and no frame is longer than the link's: the other end is no interface of this kernel's.
fn whole_frames(name: &[u8]) -> Result<()> {
    const SIOCETHTOOL: u32 = 0x8946;
    const ETHTOOL_STXCSUM: u32 = 0x17;
    let socket = socket(AF_INET, SOCK_DGRAM)?;
    // `struct ethtool_value`.
    let off: [u32; 2] = [ETHTOOL_STXCSUM, 0];
    let request = InterfaceRequest::of(name, read(&off));
    // SAFETY: SIOCETHTOOL reads an ifreq of 40 bytes, and with this command the eight bytes of `off`, which lives here.
    unsafe { call(__NR_ioctl, [socket.fd().raw(), uint(SIOCETHTOOL), read(&request)]) }.map(drop)
}

/// Frames of the other end, as they are.
fn packets() -> Result<Owned> {
    const AF_PACKET: u32 = 17;
    const ALL: [u8; 2] = [0, 3];
    const SOL_PACKET: u32 = 263;
    const PACKET_IGNORE_OUTGOING: u32 = 23;
    let made = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK)?;
    switch_on(made.fd(), SOL_PACKET, PACKET_IGNORE_OUTGOING)?;
    // `struct sockaddr_ll`: family, protocol, interface; the rest is not asked for.
    let mut address = [0_u8; 20];
    address[0] = 17;
    address[2..4].copy_from_slice(&ALL);
    address[4..8].copy_from_slice(&LINK.to_le_bytes());
    // SAFETY: the kernel reads the 20 bytes of the address.
    unsafe { call(__NR_bind, [made.fd().raw(), read(&address), 20]) }?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::IpAddr;
    use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
    use std::time::{Duration, Instant};
    use std::{eprintln, thread, vec, vec::Vec};

    use super::super::{add_local_route, inlet, loopback_up};
    use super::*;

    const OWN: [u8; 6] = [2, 0, 0, 0, 0, 2];
    const ASKED: [u8; 4] = [203, 0, 113, 9];

    fn owned(made: Owned) -> OwnedFd {
        let made = std::mem::ManuallyDrop::new(made);
        // SAFETY: it is open, and whoever had it never closes it.
        unsafe { OwnedFd::from_raw_fd(made.fd().number()) }
    }

    /// The sum of RFC 1071.
    fn sum(bytes: &[u8]) -> u16 {
        let words = bytes.chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(*two.get(1).unwrap_or(&0)));
        let all: u32 = words.sum();
        let folded = (all & 0xffff) + (all >> 16);
        !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
    }

    fn framed(to: &[u8], kind: [u8; 2], body: &[u8]) -> Vec<u8> {
        [to, &OWN, &kind, body].concat()
    }

    /// Who has an address?
    fn who_has(address: &[u8; 4]) -> Vec<u8> {
        let body = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &OWN, &MACHINE, &[0; 6], address];
        framed(&[0xff; 6], [8, 6], &body.concat())
    }

    /// A datagram from one address to port 53 of another.
    fn datagram(gateway: &[u8], from: [u8; 4]) -> Vec<u8> {
        let mut header = [&[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0][..], &from, &ASKED].concat();
        let whole = sum(&header).to_be_bytes();
        header[10..12].copy_from_slice(&whole);
        framed(gateway, [8, 0], &[&header[..], &[0x0f, 0xa0, 0, 53, 0, 12, 0, 0], b"ask?"].concat())
    }

    /// The next frame that is one.
    #[expect(clippy::disallowed_methods, reason = "a test that waits for the kernel")]
    fn next(link: &mut File, again: Option<&[u8]>, wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let until = Instant::now() + Duration::from_secs(20);
        let mut frame = vec![0; 2048];
        for turn in 0_u32.. {
            if Instant::now() > until {
                break;
            }
            // As every stack asks again: a link that has just come up may lose a frame.
            if let Some(frame) = again.filter(|_| turn % 256 == 255) {
                link.write_all(frame).unwrap();
            }
            match link.read(&mut frame) {
                Ok(count) if wanted(&frame[..count]) => return frame[..count].to_vec(),
                Ok(_) => {}
                Err(_) => thread::sleep(Duration::from_millis(2)),
            }
        }
        panic!("no such frame came")
    }

    /// As a machine's stack would: it asks for the way, sends a datagram to an address that nobody has, and is answered from there
    /// by the one socket; one that says that it is from elsewhere is heard by nobody.
    #[test]
    fn a_machine_reaches_the_sockets_of_the_namespace_and_is_answered() {
        let namespace = thread::spawn(|| {
            // SAFETY: this thread alone has the new namespace, and ends with it.
            if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
                eprintln!("skip: a link in a network namespace of its own: it needs root");
                return;
            }
            loopback_up().unwrap();
            add_local_route(false).unwrap();
            add_local_route(true).unwrap();
            let socket = owned(inlet(false, true, 53).unwrap());
            let link = owned(make_link(true).unwrap());
            let seen = crate::inlet::look_frames(&link).unwrap();
            assert_eq!(seen.interface, LINK);
            assert!(crate::inlet::look_frames(&socket).is_err() && crate::inlet::look(&link).is_err());
            let mut link = File::from(link);
            link.write_all(&who_has(&GATEWAY)).unwrap();
            let answer = next(&mut link, Some(&who_has(&GATEWAY)), |frame| frame[12..14] == [8, 6] && frame[21] == 2);
            let gateway = answer[6..12].to_vec();
            // Another's address is none that a machine can have.
            link.write_all(&datagram(&gateway, [198, 51, 100, 7])).unwrap();
            link.write_all(&datagram(&gateway, MACHINE)).unwrap();
            let mut bytes = [0; 64];
            let waits = [crate::channel::Interest { fd: socket.as_fd(), write: false }];
            crate::channel::wait(&waits, Some(Duration::from_secs(20))).unwrap();
            let came = crate::datagram::receive(&socket, &mut bytes).unwrap();
            assert_eq!((came.from.ip(), came.to), (IpAddr::from(MACHINE), IpAddr::from(ASKED)));
            assert_eq!(&bytes[..came.count], b"ask?");
            assert!(crate::datagram::receive(&socket, &mut bytes).is_err(), "the other one came too");
            crate::datagram::send(&socket, b"answer", came.from, came.to).unwrap();
            // Who asked for the way has said where it is.
            let frame = next(&mut link, None, |frame| frame[12..14] == [8, 0] && frame[23] == 17);
            assert_eq!((&frame[26..30], &frame[42..48]), (&ASKED[..], &b"answer"[..]));
            // Its checksum is whole: the other end is no interface that would make it.
            let whole = [&frame[26..34], &[0, 17, 0, 14], &frame[34..48]].concat();
            assert_eq!((sum(&whole), sum(&frame[14..34])), (0, 0));
        });
        namespace.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}
