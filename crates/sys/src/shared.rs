//! A descriptor of the caller's: other processes share what is behind it, and none of our reads and writes may block there. Who waits for
//! a slow reader holds no limit meanwhile.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::buffer::Buffer;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};

/// The descriptor, and what keeps us from blocking on it.
#[derive(Debug)]
pub struct SharedFd {
    fd: OwnedFd,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Nobody is waited for: a file, a device, or a pipe or terminal that was opened anew, whose flags are ours alone.
    Unblocked,
    /// Each call says that it does not wait.
    Socket,
    /// It may not be opened anew (somebody else's, after `su`), and its flags are others' as well: it is asked right before each call.
    /// Between the two another process may take the room.
    Asked,
}

impl SharedFd {
    /// For reading.
    pub fn input(fd: OwnedFd) -> Self {
        Self::new(fd, OFlags::RDONLY)
    }

    /// For writing.
    pub fn output(fd: OwnedFd) -> Self {
        Self::new(fd, OFlags::WRONLY)
    }

    fn new(fd: OwnedFd, access: OFlags) -> Self {
        let kind = match rustix::fs::fstat(&fd).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
            Ok(FileType::Socket) => Kind::Socket,
            Ok(FileType::Fifo) => Kind::Asked,
            Ok(FileType::CharacterDevice) if rustix::termios::isatty(&fd) => Kind::Asked,
            Ok(
                FileType::CharacterDevice
                | FileType::RegularFile
                | FileType::Directory
                | FileType::Symlink
                | FileType::BlockDevice
                | FileType::Unknown,
            )
            | Err(_) => Kind::Unblocked,
        };
        if kind == Kind::Asked && !is_master(&fd) {
            let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            if let Ok(own) = rustix::fs::open(name, flags, Mode::empty()) {
                return Self { fd: own, kind: Kind::Unblocked };
            }
        }
        Self { fd, kind }
    }

    /// Whether somebody else could make a call of ours wait all the same.
    pub fn may_block(&self) -> bool {
        self.kind == Kind::Asked
    }

    /// Reads once.
    ///
    /// # Errors
    /// As read(2); `EAGAIN` where it would wait.
    pub fn read<B: Buffer<u8>>(&self, buffer: B) -> rustix::io::Result<B::Output> {
        match self.kind {
            Kind::Socket => rustix::net::recv(&self.fd, buffer, RecvFlags::DONTWAIT).map(|(read, _)| read),
            Kind::Asked if !self.is_ready(false) => Err(Errno::AGAIN),
            Kind::Asked | Kind::Unblocked => rustix::io::read(&self.fd, buffer),
        }
    }

    /// Writes some of it, and says how much.
    ///
    /// # Errors
    /// As write(2); `EAGAIN` where it would wait.
    pub fn write(&self, bytes: &[u8]) -> rustix::io::Result<usize> {
        match self.kind {
            Kind::Socket => rustix::net::send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL),
            Kind::Asked if !self.is_ready(true) => Err(Errno::AGAIN),
            Kind::Asked | Kind::Unblocked => rustix::io::write(&self.fd, bytes),
        }
    }

    fn is_ready(&self, write: bool) -> bool {
        let asked = crate::channel::Interest { fd: self.fd.as_fd(), write };
        crate::channel::wait(&[asked], Some(Duration::ZERO)).is_ok_and(|ready| ready.first() == Some(&true))
    }
}

/// Opened anew it is another terminal.
fn is_master(fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| stat.st_rdev == rustix::fs::makedev(5, 2))
}

impl AsFd for SharedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills what is behind `fd` until a page has no room any more.
    fn fill(fd: &OwnedFd) {
        crate::channel::set_nonblocking(fd).unwrap();
        while rustix::io::write(fd, &[b'x'; 4096]).is_ok() {}
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK).unwrap();
    }

    #[test]
    fn no_write_waits_for_a_reader_of_a_pipe_or_a_socket_and_the_callers_flags_stay() {
        for (_reader, writer) in [rustix::pipe::pipe().unwrap(), crate::channel::pair().unwrap()] {
            let callers = writer.try_clone().unwrap();
            fill(&callers);
            let shared = SharedFd::output(writer);
            assert!(!shared.may_block());
            // The room that a look would have promised is somebody else's by now.
            assert_eq!(shared.write(&[0; 4096]), Err(Errno::AGAIN));
            assert!(!rustix::fs::fcntl_getfl(&callers).unwrap().contains(OFlags::NONBLOCK));
        }
    }

    #[test]
    fn no_read_waits_for_a_writer_of_a_pipe_or_a_socket() {
        for (reader, _writer) in [rustix::pipe::pipe().unwrap(), crate::channel::pair().unwrap()] {
            let shared = SharedFd::input(reader);
            let mut place = [0; 16];
            assert_eq!(shared.read(&mut place[..]), Err(Errno::AGAIN));
        }
    }

    #[test]
    fn a_terminals_master_is_not_opened_anew_and_is_asked() {
        let master = rustix::pty::openpt(rustix::pty::OpenptFlags::RDWR).unwrap();
        assert!(SharedFd::output(master).may_block());
    }
}
