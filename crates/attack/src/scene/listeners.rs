//! Scenes whose judge is somebody on the host who listens and must hear nothing.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use ::probe::net;
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::{Layout, Scene, SceneVerdict};
use crate::confined::{Moment, Observed, ProbeCall};
use crate::probe::Try;

/// Who listens.
enum HostListener {
    Tcp(TcpListener),
    Udp(UdpSocket),
    Unix(UnixListener),
    Datagram(UnixDatagram),
    Descriptor(OwnedFd),
}

impl HostListener {
    /// Whether anybody came, and with what.
    fn heard(&self) -> Option<Vec<u8>> {
        let mut text = vec![0; 256];
        let length = match self {
            Self::Tcp(listener) => {
                let (mut stream, _) = listener.accept().ok()?;
                stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
                stream.read(&mut text).unwrap_or(0)
            }
            Self::Unix(listener) => {
                let (mut stream, _) = listener.accept().ok()?;
                stream.set_read_timeout(Some(Duration::from_millis(200))).ok()?;
                stream.read(&mut text).unwrap_or(0)
            }
            Self::Udp(socket) => socket.recv(&mut text).ok()?,
            Self::Datagram(socket) => socket.recv(&mut text).ok()?,
            Self::Descriptor(fd) => rustix::io::read(fd, &mut text).ok().filter(|length| *length > 0)?,
        };
        text.truncate(length);
        Some(text)
    }
}

struct Listener {
    ears: Vec<HostListener>,
    heard: Option<usize>,
    pass: Vec<(Rc<OwnedFd>, i32)>,
    /// A socket to make only while the probe runs.
    late: Option<PathBuf>,
    stage_root: bool,
    /// Where the probe itself should be heard, and with what words.
    call: Option<(SocketAddr, &'static str, String)>,
}

impl Scene for Listener {
    fn arrange(&mut self, call: &mut ProbeCall) {
        call.fds.extend(self.pass.iter().cloned());
    }

    fn watch(&mut self, moment: &Moment<'_>) {
        if let Some(path) = &self.late
            && !moment.tasks.is_empty()
            && let Ok(listener) = UnixListener::bind(path)
        {
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
            let ready = listener.set_nonblocking(true).and_then(|()| std::fs::set_permissions(path, open));
            if ready.is_ok() {
                self.ears.push(HostListener::Unix(listener));
            }
            self.late = None;
        }
        if let Some((to, kind, token)) = &self.call
            && self.heard.is_none()
            && !moment.tasks.is_empty()
            && answered(*to, kind, token)
        {
            self.heard = Some(token.len());
        }
    }

    fn judge(&mut self, _observed: &Observed, tries: &[Try]) -> SceneVerdict {
        let heard = self.ears.iter().find_map(HostListener::heard);
        if let Some(text) = heard {
            return SceneVerdict::Possible(format!("the host heard {} bytes", text.len()));
        }
        if self.heard.is_some() {
            return SceneVerdict::Possible("the host connected to it and was answered".to_owned());
        }
        if tries.is_empty() {
            return SceneVerdict::Unclear("the probe said nothing".to_owned());
        }
        let _as_made = self.stage_root;
        SceneVerdict::Stopped(format!("nobody on the host heard anything ({})", super::answers(tries)))
    }
}

/// Whether somebody at this address answers with the token.
fn answered(to: SocketAddr, kind: &str, token: &str) -> bool {
    let mut text = [0; 128];
    let length = if kind == "udp" {
        UdpSocket::bind("127.0.0.1:0").and_then(|socket| {
            socket.set_read_timeout(Some(Duration::from_millis(60)))?;
            socket.send_to(b"?", to)?;
            socket.recv(&mut text)
        })
    } else {
        TcpStream::connect_timeout(&to, Duration::from_millis(60)).and_then(|mut stream| {
            stream.set_read_timeout(Some(Duration::from_millis(200)))?;
            stream.read(&mut text)
        })
    };
    length.is_ok_and(|length| text.get(..length) == Some(token.as_bytes()))
}

/// Makes the ear `detail`, and the words that lead to it.
pub(super) fn make(layout: &mut Layout<'_>, detail: &str) -> io::Result<Box<dyn Scene>> {
    let mut scene =
        Listener { ears: Vec::new(), heard: None, pass: Vec::new(), late: None, stage_root: layout.root, call: None };
    match detail {
        "tcp4" | "tcp6" | "tcp-host" | "mptcp" => {
            let listener = if detail == "mptcp" { multipath()? } else { TcpListener::bind(address_of(detail)?)? };
            listener.set_nonblocking(true)?;
            layout.words.insert("address", listener.local_addr()?.to_string());
            scene.ears.push(HostListener::Tcp(listener));
        }
        "udp4" | "udp6" | "udp-host" => {
            let socket = UdpSocket::bind(address_of(detail)?)?;
            socket.set_nonblocking(true)?;
            layout.words.insert("address", socket.local_addr()?.to_string());
            scene.ears.push(HostListener::Udp(socket));
        }
        "resolver" => {
            let socket = UdpSocket::bind("127.53.53.53:53").or_else(|_| UdpSocket::bind("127.53.53.53:5353"))?;
            socket.set_nonblocking(true)?;
            layout.words.insert("address", socket.local_addr()?.to_string());
            scene.ears.push(HostListener::Udp(socket));
        }
        "inbound-tcp" | "inbound-udp" => {
            // A port that was free a moment ago.
            let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
            layout.words.insert("port", port.to_string());
            let kind = if detail == "inbound-udp" { "udp" } else { "tcp" };
            scene.call = Some((SocketAddr::from(([127, 0, 0, 1], port)), kind, layout.token.clone()));
        }
        _ => local(layout, &mut scene, detail)?,
    }
    Ok(Box::new(scene))
}

/// Where an ear of the network listens, by the end of its name; any port.
fn address_of(detail: &str) -> io::Result<SocketAddr> {
    let ip = if detail.ends_with("-host") {
        own_address()?
    } else if detail.ends_with('6') {
        Ipv6Addr::LOCALHOST.into()
    } else {
        Ipv4Addr::LOCALHOST.into()
    };
    Ok(SocketAddr::new(ip, 0))
}

/// The ears that need no network.
fn local(layout: &mut Layout<'_>, scene: &mut Listener, detail: &str) -> io::Result<()> {
    match detail {
        "unix-granted" => unix(layout, scene, layout.granted.join("socket"))?,
        "unix-workspace" => unix(layout, scene, layout.workspace.join("socket"))?,
        "unix-ungranted" => unix(layout, scene, layout.stage.join("ungranted/socket"))?,
        "unix-late" => {
            scene.late = Some(layout.workspace.join("late"));
            let seen = layout.words.get("ws").cloned().unwrap_or_default();
            layout.words.insert("socket", format!("{seen}/late"));
        }
        "abstract" => {
            let name = layout.words.get("name").cloned().unwrap_or_default();
            let listener = UnixListener::bind_addr(&UnixAddr::from_abstract_name(&name)?)?;
            listener.set_nonblocking(true)?;
            let datagram = UnixDatagram::bind_addr(&UnixAddr::from_abstract_name(format!("{name}-datagram"))?)?;
            datagram.set_nonblocking(true)?;
            scene.ears.extend([HostListener::Unix(listener), HostListener::Datagram(datagram)]);
        }
        "fifo-granted" | "fifo-workspace" => {
            let folder = if detail == "fifo-granted" { &layout.granted } else { &layout.workspace };
            let path = folder.join("pipe");
            rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0)?;
            layout.stage.hand_over(&path, 0o666)?;
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            scene.ears.push(HostListener::Descriptor(rustix::fs::open(&path, flags, Mode::empty())?));
            layout.words.insert("pipe", path.to_string_lossy().into_owned());
            let seen = layout.words.get("ws").cloned().unwrap_or_default();
            layout.words.insert("workspace-pipe", format!("{seen}/pipe"));
        }
        "inherited" => {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            scene.ears.push(HostListener::Descriptor(ours));
            scene.pass.push((Rc::new(theirs), 9));
        }
        _ => return Err(io::Error::other("no such listener")),
    }
    Ok(())
}

fn unix(layout: &mut Layout<'_>, scene: &mut Listener, path: PathBuf) -> io::Result<()> {
    let listener = UnixListener::bind(&path)?;
    listener.set_nonblocking(true)?;
    layout.stage.hand_over(&path, 0o777)?;
    let datagrams = path.with_extension("datagram");
    let datagram = UnixDatagram::bind(&datagrams)?;
    datagram.set_nonblocking(true)?;
    layout.stage.hand_over(&datagrams, 0o777)?;
    scene.ears.extend([HostListener::Unix(listener), HostListener::Datagram(datagram)]);
    let seen = path
        .strip_prefix(&layout.workspace)
        .map(|below| PathBuf::from(layout.words.get("ws").cloned().unwrap_or_default()).join(below));
    layout.words.insert("socket", seen.unwrap_or(path).to_string_lossy().into_owned());
    Ok(())
}

/// The address that this host would use to reach others; asking sends nothing.
fn own_address() -> io::Result<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect("192.0.2.1:9")?;
    let address = socket.local_addr()?.ip();
    if address.is_loopback() { Err(io::Error::other("this host has no address but loopback")) } else { Ok(address) }
}

/// A listener of the multipath protocol.
fn multipath() -> io::Result<TcpListener> {
    let socket = net::socket(2, 1, 262)?;
    rustix::net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    rustix::net::listen(&socket, 4)?;
    Ok(TcpListener::from(socket))
}

/// What a program says on a descriptor before anything else: used by the neighbour.
pub(super) fn say(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// A name of the host's service that is not there yet: what is said to it must reach no sandbox.
struct UnclaimedName {
    name: UnixAddr,
    token: String,
}

/// `{name}` stands for it.
pub(super) fn named(layout: &mut Layout<'_>, _: &str) -> io::Result<Box<dyn Scene>> {
    let name = UnixAddr::from_abstract_name(layout.words.get("name").cloned().unwrap_or_default())?;
    Ok(Box::new(UnclaimedName { name, token: layout.token.clone() }))
}

impl Scene for UnclaimedName {
    fn watch(&mut self, moment: &Moment<'_>) {
        if !moment.tasks.is_empty()
            && UnixDatagram::unbound()
                .and_then(|socket| socket.send_to_addr(self.token.as_bytes(), &self.name))
                .is_err()
        {
            // Nobody has the name: so it should be.
        }
    }

    fn judge(&mut self, observed: &Observed, tries: &[Try]) -> SceneVerdict {
        super::by_token(observed, tries, &self.token, "what a program of the host said to its service")
    }
}
