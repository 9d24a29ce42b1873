//! A pair of connected sockets that can carry descriptors, and pipes: how a parent and what it starts speak.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
    SocketType,
};
use rustix::pipe::PipeFlags;

use crate::error::{ErrorContext as _, Result};

/// Most descriptors that one message may bring; more are closed by the kernel (`MSG_CTRUNC`).
pub const MAX_DESCRIPTORS: usize = 16;

/// A connected pair of unix stream sockets, close-on-exec.
///
/// # Errors
/// EMFILE, ENFILE.
pub fn pair() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .named("socketpair", || "unix stream".into())
}

/// A connected pair of unix sockets that keep what is sent at once together, close-on-exec. The end of one side is heard by the other.
///
/// # Errors
/// EMFILE, ENFILE.
pub fn packets() -> Result<(OwnedFd, OwnedFd)> {
    rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .named("socketpair", || "unix packets".into())
}

/// Who connected a unix stream socket, or listens on its other side: its process, as this pid namespace counts (0 = it has no
/// number here), and its user.
///
/// # Errors
/// It is no such socket.
pub fn peer(socket: impl AsFd) -> Result<(i32, u32)> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    // SAFETY: `SO_PEERCRED` fills one `ucred`, whose size is said, and the descriptor is open.
    let answer = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut length,
        )
    };
    let asked = if answer == 0 { Ok((who.pid, who.uid)) } else { Err(Errno::INVAL) };
    asked.named("getsockopt(SO_PEERCRED)", || "unix stream".into())
}

/// How much of what was written to a unix stream socket the other side has not read yet, as the kernel accounts it; 0: all of
/// it was read.
///
/// # Errors
/// It is no such socket.
pub fn unread_by_peer(socket: BorrowedFd<'_>) -> Result<u32> {
    let mut left: libc::c_int = 0;
    // SAFETY: `TIOCOUTQ` writes one int to the place it is given, which lives as long as the call; the descriptor is open.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut left) };
    let asked = if answer == 0 { Ok(u32::try_from(left).unwrap_or(0)) } else { Err(Errno::INVAL) };
    asked.named("ioctl(TIOCOUTQ)", || "unix stream".into())
}

/// A pipe, close-on-exec: (read end, write end).
///
/// # Errors
/// EMFILE, ENFILE.
pub fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC).named("pipe2", || "pipe".into())
}

/// Gives a pipe to another user, so that it can be opened by name (`/dev/stdout`). What is no pipe is left alone: the
/// owner of `/dev/null` is not ours to change.
///
/// # Errors
/// EPERM: the caller is not root.
pub fn give_pipe(fd: impl AsFd, uid: u32, gid: u32) -> Result<()> {
    let named = || "pipe".to_owned();
    let stat = rustix::fs::fstat(&fd).named("fstat", named)?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Fifo {
        return Ok(());
    }
    let (uid, gid) = (rustix::fs::Uid::from_raw(uid), rustix::fs::Gid::from_raw(gid));
    rustix::fs::fchown(&fd, Some(uid), Some(gid)).named("fchown", named)
}

/// `/dev/null`, for reading and writing, close-on-exec.
///
/// # Errors
/// ENOENT: there is no /dev.
pub fn dev_null() -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).named("open", || "/dev/null".into())
}

/// Makes reads and writes of this open file description answer EAGAIN instead of waiting. Shared with everybody who
/// holds the same description.
///
/// # Errors
/// EBADF.
pub fn set_nonblocking(fd: impl AsFd) -> Result<()> {
    let flags = rustix::fs::fcntl_getfl(&fd).named("fcntl(F_GETFL)", || "descriptor".into())?;
    rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK).named("fcntl(F_SETFL)", || "descriptor".into())
}

/// Sends all bytes; a peer that is gone is an error, never a signal.
///
/// # Errors
/// EPIPE, ECONNRESET: the peer is gone.
pub fn send(socket: impl AsFd, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        let sent = rustix::net::sendmsg(
            &socket,
            &[IoSlice::new(bytes)],
            &mut SendAncillaryBuffer::default(),
            SendFlags::NOSIGNAL,
        );
        match sent {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).named("sendmsg", || "control socket".into()),
        }
    }
    Ok(())
}

/// Sends what the peer takes now, with descriptors beside the first byte; how many bytes went.
///
/// # Errors
/// EAGAIN: nothing went, nor did a descriptor. EPIPE, ECONNRESET: the peer is gone. EINVAL: more than [`MAX_DESCRIPTORS`].
pub fn send_some(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<usize> {
    let named = || "control socket".to_owned();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(rustix::net::SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL).named("sendmsg", named);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    loop {
        match rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => return other.named("sendmsg", named),
        }
    }
}

/// What one read brought.
#[derive(Debug)]
pub struct Received {
    /// Bytes read; 0 = the peer closed.
    pub count: usize,
    /// Descriptors that came along, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
}

/// Reads what is there, descriptors included.
///
/// # Errors
/// EAGAIN with `nonblocking` and nothing there; ECONNRESET.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], nonblocking: bool) -> Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut flags = RecvFlags::CMSG_CLOEXEC;
    flags.set(RecvFlags::DONTWAIT, nonblocking);
    let message = loop {
        match rustix::net::recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut control, flags) {
            Err(Errno::INTR) => {}
            other => break other.named("recvmsg", || "control socket".into())?,
        }
    };
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    Ok(Received { count: message.bytes, descriptors })
}

/// One descriptor to wait for.
#[derive(Clone, Copy, Debug)]
pub struct Interest<'a> {
    /// The descriptor.
    pub fd: BorrowedFd<'a>,
    /// Wait until it can be written, else until it can be read.
    pub write: bool,
}

/// Waits until one of the descriptors is ready, has an error or was hung up; which of them are.
///
/// # Errors
/// ENOMEM, EINVAL (more descriptors than RLIMIT_NOFILE).
pub fn wait(interests: &[Interest<'_>], limit: Option<Duration>) -> Result<Vec<bool>> {
    let mut list: Vec<PollFd<'_>> = interests
        .iter()
        .map(|i| PollFd::from_borrowed_fd(i.fd, if i.write { PollFlags::OUT } else { PollFlags::IN }))
        .collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    match rustix::event::poll(&mut list, limit.as_ref()) {
        Ok(_) => Ok(list.iter().map(|fd| !fd.revents().is_empty()).collect()),
        Err(Errno::INTR) => Ok(vec![false; interests.len()]),
        Err(errno) => Err(errno).named("poll", || format!("{} descriptors", interests.len())),
    }
}

/// As [`wait`], until this moment: no signal ends it earlier, and when it is past none is ready any more, so that whoever waits again and
/// again for one that always is comes to an end.
///
/// # Errors
/// As [`wait`].
pub fn wait_until(interests: &[Interest<'_>], until: Option<Instant>) -> Result<Vec<bool>> {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(vec![false; interests.len()]);
        }
        let ready = wait(interests, left)?;
        // Else it was a signal, or it is late.
        if ready.contains(&true) {
            return Ok(ready);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_through_and_a_closed_peer_is_an_error_without_a_signal() {
        let (a, b) = pair().unwrap();
        send(&a, b"hello").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receive(&b, &mut buffer, false).unwrap().count, 5);
        assert!(receive(&b, &mut buffer, true).is_err());
        drop(b);
        assert!(send(&a, b"x").is_err());
    }

    #[test]
    fn waiting_tells_which_descriptor_is_ready() {
        let (read, write) = pipe().unwrap();
        let interests = [Interest { fd: read.as_fd(), write: false }, Interest { fd: write.as_fd(), write: true }];
        assert_eq!(wait(&interests, Some(Duration::ZERO)).unwrap(), [false, true]);
        let now = Instant::now();
        assert_eq!(wait_until(&interests, None).unwrap(), [false, true]);
        assert_eq!(wait_until(&interests[..1], Some(now + Duration::from_millis(20))).unwrap(), [false]);
        assert!(now.elapsed() >= Duration::from_millis(20), "it was not late yet");
        assert_eq!(wait_until(&interests, Some(now)).unwrap(), [false, false], "it is late");
    }
}
