//! Tries on the network, and on every other kind of socket.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixStream};
use std::path::Path;
use std::time::Duration;

use ::probe::net;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("tcp", tcp),
    ("udp", udp),
    ("fast-open", fast_open),
    ("socket", socket),
    ("vsock", vsock),
    ("unix", unix),
    ("unix-abstract", unix_abstract),
    ("pair-abstract", pair_abstract),
    ("pair-named", pair_named),
    ("fifo", fifo),
    ("write-descriptors", write_descriptors),
    ("receive-descriptor", receive_descriptor),
    ("dns", dns),
    ("serve", serve),
    ("interfaces", interfaces),
];

/// Asks for the names of interfaces, by an end of a pair of unix sockets.
fn interfaces(probe: &Probe) {
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
    match pair.and_then(|(one, _other)| net::interfaces(one)) {
        Ok(names) => probe.found("interfaces", names.join(" ")),
        Err(errno) => probe.saw::<()>("ask for interfaces", Err(errno)),
    }
}

fn address(text: &str) -> Result<SocketAddr, Errno> {
    text.parse().map_err(|_wrong| Errno::INVAL)
}

const fn family(to: &SocketAddr) -> i32 {
    if to.is_ipv4() { 2 } else { 10 }
}

/// `ADDRESS PROTOCOL TOKEN`: connects a stream and says the token.
fn tcp(probe: &Probe) {
    let protocol = i32::try_from(probe.number(1)).unwrap_or(0);
    let token = probe.argument(2);
    let said = address(&probe.argument(0)).and_then(|to| {
        let socket = net::socket(family(&to), 1, protocol)?;
        net::connect(socket.as_fd(), to)?;
        rest(Duration::from_millis(100));
        rustix::net::send(&socket, token.as_bytes(), SendFlags::NOSIGNAL).map(|_| ())
    });
    probe.saw(format!("stream to {}", probe.argument(0)), said);
}

/// `ADDRESS PROTOCOL TOKEN`: a datagram, connected first and then not.
fn udp(probe: &Probe) {
    let protocol = i32::try_from(probe.number(1)).unwrap_or(0);
    let token = probe.argument(2);
    for connected in [true, false] {
        let said = address(&probe.argument(0)).and_then(|to| {
            let socket = net::socket(family(&to), 2, protocol)?;
            if connected {
                net::connect(socket.as_fd(), to)?;
                rustix::net::send(&socket, token.as_bytes(), SendFlags::NOSIGNAL).map(|_| ())
            } else {
                rustix::net::sendto(&socket, token.as_bytes(), SendFlags::NOSIGNAL, &to).map(|_| ())
            }
        });
        probe.saw(if connected { "connected datagram" } else { "datagram" }, said);
    }
}

fn fast_open(probe: &Probe) {
    let token = probe.argument(1);
    let said = address(&probe.argument(0)).and_then(|to| {
        let socket = net::socket(family(&to), 1, 0)?;
        net::fast_open(socket.as_fd(), to, token.as_bytes())?;
        rest(Duration::from_millis(100));
        Ok(())
    });
    probe.saw("data with the first packet", said);
}

/// Sockets by numbers, `FAMILY:TYPE:PROTOCOL` each.
fn socket(probe: &Probe) {
    for word in &probe.args {
        let text = word.to_string_lossy().into_owned();
        let numbers: Vec<i32> = text.split(':').filter_map(|n| n.parse().ok()).collect();
        let [family, kind, protocol] = numbers.as_slice() else { continue };
        probe.saw(text, net::socket(*family, *kind, *protocol));
    }
}

fn vsock(probe: &Probe) {
    for cid in [1, 2, 3] {
        let said = net::socket(40, 1, 0).and_then(|socket| match net::connect_vsock(socket.as_fd(), cid, 1023) {
            // Nobody listens; the way was open.
            Err(Errno::CONNRESET | Errno::TIMEDOUT | Errno::NODEV | Errno::CONNREFUSED) => Ok(()),
            result => result,
        });
        probe.saw(format!("vsock to {cid}"), said);
    }
}

/// `PATH TOKEN WAIT`: sockets of the host by path: datagrams from an end of a pair, and a stream, which is tried until it is
/// there or the time (ms) is over.
fn unix(probe: &Probe) {
    let path = probe.arg(0);
    let token = probe.argument(1);
    let said = UnixDatagram::pair()
        .and_then(|(end, _other)| end.send_to(token.as_bytes(), Path::new(&path).with_extension("datagram")));
    probe.saw("datagram of a pair", said.map_err(|error| errno(&error)));
    let rounds = probe.number(2) / 50;
    for round in 0..=rounds {
        let said = UnixStream::connect(&path).and_then(|mut stream| stream.write_all(token.as_bytes()));
        if said.is_ok() || round == rounds {
            probe.saw("unix socket", said.map_err(|error| errno(&error)));
            return;
        }
        rest(Duration::from_millis(50));
    }
}

/// `NAME TOKEN`: sockets without a path, stream and datagram.
fn unix_abstract(probe: &Probe) {
    let token = probe.argument(1);
    let said = UnixAddr::from_abstract_name(probe.argument(0))
        .and_then(|address| UnixStream::connect_addr(&address))
        .and_then(|mut stream| stream.write_all(token.as_bytes()));
    probe.saw("abstract stream", said.map_err(|error| errno(&error)));
    let said = UnixAddr::from_abstract_name(format!("{}-datagram", probe.argument(0))).and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(token.as_bytes(), &address)
    });
    probe.saw("abstract datagram", said.map_err(|error| errno(&error)));
}

/// `NAME TOKEN`: the same from an end of a pair, which no call that makes a socket by its family shows.
fn pair_abstract(probe: &Probe) {
    let said = UnixAddr::from_abstract_name(format!("{}-datagram", probe.argument(0))).and_then(|address| {
        let (end, _other) = UnixDatagram::pair()?;
        end.send_to_addr(probe.argument(1).as_bytes(), &address)
    });
    probe.saw("datagram of a pair", said.map_err(|error| errno(&error)));
}

/// `NAME`: an end of a pair takes a name of the host's, and shows what is said to it within a second and a half.
fn pair_named(probe: &Probe) {
    let heard = UnixDatagram::pair().and_then(|(end, _other)| {
        // Of a pair that is still one each end hears the other alone.
        rustix::net::connect_unspec(&end)?;
        rustix::net::bind(&end, &SocketAddrUnix::new_abstract_name(probe.argument(0).as_bytes())?)?;
        end.set_read_timeout(Some(Duration::from_millis(1500)))?;
        let mut text = vec![0; 256];
        let length = end.recv(&mut text)?;
        text.truncate(length);
        Ok(text)
    });
    probe.read("a name of the host's", heard);
}

/// `PATH TOKEN`: a named pipe of the host.
fn fifo(probe: &Probe) {
    use rustix::fs::{Mode, OFlags};
    let said = rustix::fs::open(probe.arg(0), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())
        .and_then(|fd| rustix::io::write(&fd, probe.argument(1).as_bytes()));
    probe.saw("named pipe", said);
}

/// Says a token into every descriptor that came along.
fn write_descriptors(probe: &Probe) {
    for number in 3..40 {
        let Some(fd) = ::probe::task::inherited(number) else { continue };
        probe.saw(format!("descriptor {number}"), rustix::io::write(fd, probe.argument(0).as_bytes()));
    }
    probe.saw::<()>("any other descriptor", Err(Errno::BADF));
}

/// Takes a descriptor from whatever standard input is, and reads the file `NAME` through it.
fn receive_descriptor(probe: &Probe) {
    use rustix::fs::{Mode, OFlags};
    let stdin = std::io::stdin();
    match net::receive_descriptor(stdin.as_fd()) {
        Ok(fd) => {
            let opened = rustix::fs::openat(&fd, probe.arg(0), OFlags::RDONLY, Mode::empty());
            match opened {
                Ok(file) => {
                    let mut text = Vec::new();
                    let read = std::fs::File::from(file).take(4096).read_to_end(&mut text).map(|_| text);
                    probe.read("through a descriptor that was passed in", read);
                }
                Err(errno) => probe.saw::<()>("open through it", Err(errno)),
            }
        }
        Err(errno) => probe.saw::<()>("receive", Err(errno)),
    }
}

/// `ADDRESS LABEL`: a question to a resolver, whose name carries the label.
fn dns(probe: &Probe) {
    let label = probe.argument(1);
    let mut packet = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    packet.push(u8::try_from(label.len()).unwrap_or(0));
    packet.extend_from_slice(label.as_bytes());
    packet.extend_from_slice(b"\x07example\x03com\x00\x00\x10\x00\x01");
    let said = address(&probe.argument(0)).and_then(|to| {
        let socket = net::socket(family(&to), 2, 0)?;
        rustix::net::sendto(&socket, &packet, SendFlags::NOSIGNAL, &to).map(|_| ())
    });
    probe.saw("question to a resolver", said);
}

/// `PORT TOKEN KIND`: listens, and says the token to whoever comes within a second and a half.
fn serve(probe: &Probe) {
    let port = u16::try_from(probe.number(0)).unwrap_or(0);
    let token = probe.argument(1);
    if probe.argument(2) == "udp" {
        let bound = std::net::UdpSocket::bind(("0.0.0.0", port));
        let heard = bound.and_then(|socket| {
            socket.set_read_timeout(Some(Duration::from_millis(1500)))?;
            let mut from = [0; 64];
            let (_, peer) = socket.recv_from(&mut from)?;
            socket.send_to(token.as_bytes(), peer)
        });
        return probe.saw("served a datagram", heard.map_err(|error| errno(&error)));
    }
    let bound = std::net::TcpListener::bind(("0.0.0.0", port));
    let heard = bound.and_then(|listener| {
        listener.set_nonblocking(true)?;
        for _ in 0..30 {
            if let Ok((mut stream, _)) = listener.accept() {
                return stream.write_all(token.as_bytes());
            }
            rest(Duration::from_millis(50));
        }
        Err(std::io::Error::from(std::io::ErrorKind::TimedOut))
    });
    probe.saw("served a connection", heard.map_err(|error| errno(&error)));
}
