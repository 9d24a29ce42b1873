//! A connection to a port inside.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType};

use super::{Progress, Task, Waiting};
use crate::files::failure::{code, error_text, failure};
use crate::flow::Io;
use crate::frame::{Lane, MAX_DATA};
use crate::inside::Inside;
use crate::words::{Code, Failure};

pub(super) struct Port {
    port: u16,
    socket: OwnedFd,
    connected: bool,
    /// The second address was tried.
    second: bool,
    /// The program has sent all.
    read_all: bool,
    /// The program gets no more.
    wrote_all: bool,
}

impl Port {
    pub(super) fn new(port: u16) -> Result<Self, Failure> {
        if port == 0 {
            return Err(failure(Code::Invalid, "0 is no port"));
        }
        let new = |socket, second| Self { port, socket, connected: false, second, read_all: false, wrote_all: false };
        match begin(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Ok(socket) => Ok(new(socket, false)),
            Err(first) => match begin(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
                Ok(socket) => Ok(new(socket, true)),
                Err(_) => Err(refused(port, first)),
            },
        }
    }

    /// Whether the connection stands; where nobody listens at the first address the second is tried.
    fn connect(&mut self) -> Result<bool, Failure> {
        let errno = match rustix::net::sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => match rustix::net::getpeername(&self.socket) {
                Ok(_) => return Ok(true),
                Err(Errno::NOTCONN) => return Ok(false),
                Err(errno) => errno,
            },
            Ok(Err(errno)) | Err(errno) => errno,
        };
        if self.second {
            return Err(refused(self.port, errno));
        }
        self.second = true;
        self.socket =
            begin(SocketAddr::from((Ipv6Addr::LOCALHOST, self.port))).map_err(|_second| refused(self.port, errno))?;
        Ok(false)
    }
}

fn begin(to: SocketAddr) -> Result<OwnedFd, Errno> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

fn refused(port: u16, errno: Errno) -> Failure {
    let why = error_text(errno);
    match errno {
        Errno::CONNREFUSED | Errno::CONNRESET | Errno::TIMEDOUT => {
            failure(Code::Closed, format!("nobody inside listens at port {port}: {why}"))
        }
        Errno::ACCESS | Errno::PERM | Errno::AFNOSUPPORT | Errno::NETUNREACH | Errno::ADDRNOTAVAIL => failure(
            Code::Unsupported,
            format!("this sandbox has no network inside (net.mode), so no port {port}: {why}"),
        ),
        other => failure(code(other), format!("port {port}: {why}")),
    }
}

impl Task for Port {
    fn step(&mut self, io: &mut Io<'_>, _inside: &mut Inside) -> Result<Progress, Failure> {
        if !self.connected {
            self.connected = self.connect()?;
            if !self.connected {
                return Ok(Progress::Wait);
            }
            io.reply(&());
        }
        let mut moved = false;
        if self.wrote_all {
            io.drop_input();
        } else if !io.input().is_empty() {
            let bytes = io.input().get(..MAX_DATA).unwrap_or_else(|| io.input());
            match rustix::net::send(&self.socket, bytes, rustix::net::SendFlags::NOSIGNAL) {
                Ok(count) => {
                    io.take(count);
                    moved = true;
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => self.wrote_all = true,
            }
        } else if io.is_over() {
            self.wrote_all = true;
            let _told = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        if !self.read_all && io.may_send() > 0 {
            match io.data_from(Lane::Out, MAX_DATA, |bytes| rustix::io::read(&self.socket, bytes)) {
                Ok(1..) => moved = true,
                Err(Errno::AGAIN | Errno::INTR) => {}
                // A reset is an end as well: there is no other word for it here.
                Ok(0) | Err(_) => {
                    self.read_all = true;
                    io.eof();
                }
            }
        }
        if self.read_all && self.wrote_all {
            return Progress::done(());
        }
        Ok(if moved { Progress::More } else { Progress::Wait })
    }

    fn waits<'a>(&'a self, flow: &Waiting, add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, self.connected && flow.can_send && !self.read_all);
        flags.set(PollFlags::OUT, !self.connected || (flow.has_input && !self.wrote_all));
        if !flags.is_empty() {
            add(self.socket.as_fd(), flags);
        }
    }
}
