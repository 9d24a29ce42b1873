//! The network of a kernel that sends frames by itself, as gVisor's does: two network namespaces and a pair of interfaces (veth)
//! between them.
//!
//! In the inner one is one interface beside `lo`, for that kernel to take. In the outer one nobody runs: every address is local
//! there, and sockets wait for what comes. Neither has another way out.
//!
//! *Kernel facts*: a namespace lives as long as a process or a socket is in it, and a pair of interfaces goes with either of its
//! namespaces. unshare(2) and setns(2) change the calling thread alone, so the work is a thread's that ends with it.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

use crate::bare::{self, Fd};
use crate::error::{Error, ErrorContext as _, Result};

/// What is to be made.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetworkSpec<'a> {
    /// The pair of interfaces, and of which families it has addresses.
    pub pair: Option<Families>,
    /// Of which families every address is local in the outer namespace.
    pub local: Families,
    /// The sockets there: of IPv6, of UDP, and their port, as [`bare::inlet`] makes them.
    pub sockets: &'a [(bool, bool, u16)],
}

/// Families of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

/// A network that was made. It goes when this, the sockets, and whoever entered it are gone.
#[derive(Debug)]
pub struct Network {
    /// The namespace in which the other kernel takes its interface.
    pub inner: Side,
    /// The namespace in which the sockets are.
    pub outer: Side,
    /// In the order in which they were wanted.
    pub sockets: Vec<OwnedFd>,
}

/// One of both namespaces.
#[derive(Debug)]
pub struct Side {
    /// It.
    pub namespace: OwnedFd,
    /// Its inode number, as `/proc/PID/ns/net` shows it.
    pub number: u64,
    /// To the kernel, about this namespace.
    kernel: OwnedFd,
}

/// Makes it.
///
/// # Errors
/// EPERM: not root. EOPNOTSUPP: this kernel has no pairs of interfaces (veth). As [`bare::inlet`].
pub fn make(wanted: &NetworkSpec<'_>) -> Result<Network> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("network".to_owned()).spawn_scoped(scope, || made(wanted));
        let thread = thread
            .map_err(|error| Error::new("clone", "thread", Errno::from_io_error(&error).unwrap_or(Errno::AGAIN)))?;
        thread.join().unwrap_or_else(|_panic| Err(Error::new("unshare", "network namespace", Errno::CANCELED)))
    })
}

fn made(wanted: &NetworkSpec<'_>) -> Result<Network> {
    let outer = Side::enter()?;
    for (ipv6, _) in [(false, wanted.local.ipv4), (true, wanted.local.ipv6)].into_iter().filter(|(_, asked)| *asked) {
        bare::add_local_route(ipv6).map_err(|errno| told("RTM_NEWROUTE", "every address", errno))?;
    }
    let mut sockets = Vec::new();
    for (ipv6, udp, port) in wanted.sockets {
        let made = bare::inlet(*ipv6, *udp, *port).map_err(|errno| told("bind", &port.to_string(), errno))?;
        // SAFETY: it is open, new, and given up by its owner.
        sockets.push(unsafe { OwnedFd::from_raw_fd(made.leak().number()) });
    }
    let inner = Side::enter()?;
    if let Some(Families { ipv4, ipv6 }) = wanted.pair {
        let there = Fd::new(outer.namespace.as_raw_fd().cast_unsigned());
        bare::add_pair(there).map_err(|errno| told("RTM_NEWLINK", "veth", errno))?;
        outer.go_to()?;
        bare::set_outside(ipv4, ipv6).map_err(|errno| told("netlink", bare::OUTSIDE, errno))?;
        inner.go_to()?;
        bare::set_inside(ipv4, ipv6).map_err(|errno| told("netlink", bare::DEVICE, errno))?;
    }
    Ok(Network { inner, outer, sockets })
}

fn told(call: &'static str, object: &str, errno: bare::Errno) -> Error {
    Error::new(call, object, Errno::from_raw_os_error(errno.number()))
}

impl Side {
    /// A new namespace, in which the calling thread is from now on, with its `lo` up.
    fn enter() -> Result<Self> {
        let named = || "network namespace".to_owned();
        // SAFETY: a network namespace is no memory and no descriptor: nothing that this process holds becomes another.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }.named("unshare", named)?;
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
        let namespace = rustix::fs::open("/proc/thread-self/ns/net", flags, rustix::fs::Mode::empty());
        let namespace = namespace.named("open", named)?;
        let number = rustix::fs::fstat(&namespace).named("fstat", named)?.st_ino;
        bare::loopback_up().map_err(|errno| told("ioctl(SIOCSIFFLAGS)", "lo", errno))?;
        let kernel = rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)
            .named("socket", || "netlink".to_owned())?;
        Ok(Self { namespace, number, kernel })
    }

    /// The calling thread is in it from now on.
    fn go_to(&self) -> Result<()> {
        let kind = Some(LinkNameSpaceType::Network);
        rustix::thread::move_into_link_name_space(self.namespace.as_fd(), kind)
            .named("setns", || "network namespace".to_owned())
    }

    /// The names of the interfaces of this namespace that are up, as its kernel says them now.
    ///
    /// # Errors
    /// The kernel's answer is none.
    pub fn interfaces_up(&self) -> Result<Vec<String>> {
        /// `struct nlmsghdr` of a request for a dump (RTM_GETLINK, NLM_F_REQUEST, NLM_F_DUMP), and an empty `struct ifinfomsg`.
        const REQUEST: [u8; 32] =
            [32, 0, 0, 0, 18, 0, 1, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let named = || "interfaces".to_owned();
        let no_answer = || Error::new("RTM_GETLINK", "interfaces", Errno::PROTO);
        rustix::net::send(&self.kernel, &REQUEST, SendFlags::empty()).named("RTM_GETLINK", named)?;
        let (mut names, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
        loop {
            let received = rustix::net::recv(&self.kernel, &mut buffer, RecvFlags::empty());
            let (length, _) = received.named("RTM_GETLINK", named)?;
            let mut bytes = buffer.get(..length).unwrap_or(&[]);
            while !bytes.is_empty() {
                let (kind, body) = next(&mut bytes).ok_or_else(no_answer)?;
                match kind {
                    DONE => return Ok(names),
                    LINK => names.extend(name_if_up(body).ok_or_else(no_answer)?),
                    _ => return Err(no_answer()),
                }
            }
        }
    }
}

const DONE: u16 = 3;
/// `RTM_NEWLINK`.
const LINK: u16 = 16;

/// Takes the first message of the kernel's: its kind, and what follows its header.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<(u16, &'a [u8])> {
    let length = usize::try_from(u32_at(bytes, 0)?).ok()?;
    let (kind, body) = (u16_at(bytes, 4)?, bytes.get(16..length)?);
    *bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
    Some((kind, body))
}

/// The name of an interface (`struct ifinfomsg`, attributes) that is up, or none of one that is not; nothing where it is no such
/// message.
fn name_if_up(body: &[u8]) -> Option<Option<String>> {
    const NAME: u16 = 3;
    if u32_at(body, 8)? & 1 == 0 {
        return Some(None);
    }
    let mut rest = body.get(16..)?;
    loop {
        let (length, kind) = (usize::from(u16_at(rest, 0)?), u16_at(rest, 2)?);
        if kind == NAME {
            let name = rest.get(4..length)?;
            let name = CStr::from_bytes_until_nul(name).map_or(name, CStr::to_bytes);
            return Some(Some(String::from_utf8_lossy(name).into_owned()));
        }
        // A length of nothing would never come to an end.
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::bare::{DEVICE, OUTSIDE};

    /// Runs `work` on a thread that is in a namespace.
    fn within<T: Send>(side: &Side, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                side.go_to().unwrap();
                work()
            });
            thread.join().unwrap()
        })
    }

    const BOTH: Families = Families { ipv4: true, ipv6: true };
    const SOCKETS: &[(bool, bool, u16)] =
        &[(false, false, 443), (true, false, 443), (false, true, 53), (true, true, 53)];
    const WAIT: Duration = Duration::from_secs(5);

    fn connects(side: &Side, to: &str) -> bool {
        within(side, || TcpStream::connect_timeout(&to.parse().unwrap(), Duration::from_millis(2500)).is_ok())
    }

    #[test]
    fn whatever_is_sent_inside_comes_to_the_sockets_outside_and_nowhere_else() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skip: it makes network namespaces, as root alone may");
            return;
        }
        let made = make(&NetworkSpec { pair: Some(BOTH), local: BOTH, sockets: SOCKETS }).unwrap();
        assert_eq!(made.inner.interfaces_up().unwrap(), ["lo", DEVICE]);
        assert_eq!(made.outer.interfaces_up().unwrap(), ["lo", OUTSIDE]);
        let own = crate::proc::Process::own().unwrap().namespace(crate::proc::Namespace::Net).unwrap();
        assert!(made.inner.number != made.outer.number && ![made.inner.number, made.outer.number].contains(&own));
        let asked = ["198.51.100.7:443", "169.254.169.254:443", "[2001:db8::7]:443"];
        for (to, socket) in asked.into_iter().zip([0, 0, 1]) {
            assert_eq!(crate::inlet::look(&made.sockets[socket]).unwrap().namespace, made.outer.number);
            let listener = TcpListener::from(made.sockets[socket].try_clone().unwrap());
            listener.set_nonblocking(false).unwrap();
            let mut client = within(&made.inner, || TcpStream::connect_timeout(&to.parse().unwrap(), WAIT)).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            assert_eq!(server.local_addr().unwrap().to_string(), to, "it says what was asked for");
            server.write_all(b"here").unwrap();
            let mut said = [0; 4];
            client.read_exact(&mut said).unwrap();
            assert_eq!(&said, b"here");
        }
        for (from, to, socket) in [("0.0.0.0:0", "9.9.9.9:53", 2), ("[::]:0", "[2001:db8::9]:53", 3)] {
            let server = UdpSocket::from(made.sockets[socket].try_clone().unwrap());
            server.set_nonblocking(false).unwrap();
            server.set_read_timeout(Some(WAIT)).unwrap();
            within(&made.inner, || UdpSocket::bind(from).unwrap().send_to(b"asked", to).unwrap());
            let mut said = [0; 8];
            assert_eq!(server.recv(&mut said).unwrap(), 5, "{to}");
        }
        assert!(!connects(&made.inner, "198.51.100.7:80"), "nothing waits there");
        let host = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert!(!connects(&made.inner, &host.to_string()), "its loopback is its own");
    }

    #[test]
    fn without_the_pair_or_the_routes_nothing_leads_there() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skip: it makes network namespaces, as root alone may");
            return;
        }
        let alone = make(&NetworkSpec { pair: None, local: BOTH, sockets: SOCKETS }).unwrap();
        assert_eq!(alone.inner.interfaces_up().unwrap(), ["lo"]);
        assert!(!connects(&alone.inner, "198.51.100.7:443"));
        let none = Families::default();
        let lost = make(&NetworkSpec { pair: Some(BOTH), local: none, sockets: SOCKETS }).unwrap();
        assert!(!connects(&lost.inner, "198.51.100.7:443"), "nothing takes it there");
        let four = Families { ipv4: true, ipv6: false };
        let half = make(&NetworkSpec { pair: Some(four), local: four, sockets: SOCKETS }).unwrap();
        assert!(connects(&half.inner, "198.51.100.7:443") && !connects(&half.inner, "[2001:db8::7]:443"));
    }
}
