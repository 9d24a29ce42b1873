//! Ways in which a program hides memory, files and locks from whoever counts by looking at its processes.

use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use crate::{call, checked, last_errno};

/// This process cannot be traced or read by its user's other processes any more.
///
/// # Errors
/// What the kernel or a filter says.
pub fn undumpable() -> rustix::io::Result<()> {
    // SAFETY: the call takes numbers alone.
    checked(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0_usize, 0_usize, 0_usize, 0_usize) }).map(|_| ())
}

/// Ends the calling thread alone; of the first one its process goes on without its folder in `/proc` showing anything.
pub fn end_thread() {
    let _never = call(libc::SYS_exit, [0; 6]);
}

/// The calling thread has descriptors of its own from now on.
///
/// # Errors
/// What the kernel or a filter says.
pub fn own_descriptors() -> rustix::io::Result<()> {
    crate::task::unshare(libc::CLONE_FILES)
}

/// Shared memory without a file, written and then unmapped from the page tables: it is there until the process ends.
///
/// # Errors
/// What the kernel or a filter says.
pub fn shared_unseen(bytes: usize) -> rustix::io::Result<()> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(last_errno());
    }
    // SAFETY: the mapping made above, which is writable and of this size.
    unsafe { std::ptr::write_bytes(at.cast::<u8>(), 1, bytes) };
    // SAFETY: the same mapping; nobody has a reference into it.
    checked(unsafe { libc::madvise(at, bytes, libc::MADV_DONTNEED) }).map(|_| ())
}

/// A huge page of which one small page is kept: the kernel has the whole until it lacks memory, and shows the one.
///
/// # Errors
/// What the kernel or a filter says.
pub fn rest_of_huge_page() -> rustix::io::Result<()> {
    const HUGE: usize = 2 << 20;
    let (flags, rights) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 2 * HUGE, rights, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(last_errno());
    }
    let page = at.map_addr(|address| address.next_multiple_of(HUGE));
    // SAFETY: the mapping made above has room for one huge page from there on; nobody has a reference into it.
    checked(unsafe { libc::madvise(page, HUGE, libc::MADV_HUGEPAGE) })?;
    // SAFETY: as above, and it is writable.
    unsafe { page.cast::<u8>().write_volatile(1) };
    // SAFETY: as above: all of it but its first small page.
    checked(unsafe { libc::madvise(page.wrapping_byte_add(4096), HUGE - 4096, libc::MADV_DONTNEED) }).map(|_| ())
}

/// Maps one page of a file, which is there until the process ends.
///
/// # Errors
/// What the kernel or a filter says.
pub fn map_page(file: impl AsFd) -> rustix::io::Result<()> {
    let (page, file) = (4096, file.as_fd().as_raw_fd());
    // SAFETY: a new mapping at an address that the kernel chooses, which nobody reads.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), page, libc::PROT_READ, libc::MAP_SHARED, file, 0) };
    if at == libc::MAP_FAILED { Err(last_errno()) } else { Ok(()) }
}

/// Sends a descriptor into a socket, where it waits.
///
/// # Errors
/// What the kernel or a filter says.
pub fn send(socket: BorrowedFd<'_>, file: &OwnedFd) -> rustix::io::Result<()> {
    send_all(socket, &[file.as_fd()])
}

/// As many as eight.
fn send_all(socket: BorrowedFd<'_>, files: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut buffer = SendAncillaryBuffer::new(&mut space);
    if !buffer.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(rustix::io::Errno::NOBUFS);
    }
    rustix::net::sendmsg(socket, &[std::io::IoSlice::new(b"x")], &mut buffer, SendFlags::empty()).map(|_| ())
}

/// Makes a call with files, in which a thread waits, and closes their descriptors once `waits` says that it does: nothing else has
/// them then. The thread ends when the call does. `full`: a socket that takes no more, to which they are sent; else it is
/// waited for what never comes of them.
///
/// # Errors
/// What the kernel or a filter says: no thread, no descriptor.
pub fn in_call(
    files: Vec<OwnedFd>,
    full: Option<OwnedFd>,
    waits: impl FnOnce(),
) -> rustix::io::Result<std::thread::JoinHandle<()>> {
    let numbers: Vec<i32> = files.into_iter().map(std::os::fd::IntoRawFd::into_raw_fd).collect();
    let theirs = numbers.clone();
    let begin = std::thread::Builder::new().spawn(move || {
        if let Some(full) = full {
            // SAFETY: they are open until the call has looked them up, and nothing else is done with them here.
            let files: Vec<BorrowedFd<'_>> = theirs.iter().map(|fd| unsafe { BorrowedFd::borrow_raw(*fd) }).collect();
            let _over = send_all(full.as_fd(), &files);
        } else {
            let asked = |fd: &i32| libc::pollfd { fd: *fd, events: libc::POLLPRI, revents: 0 };
            let mut list: Vec<libc::pollfd> = theirs.iter().map(asked).collect();
            let length = libc::nfds_t::try_from(list.len()).unwrap_or(0);
            // SAFETY: the kernel reads and writes so many entries, which live until the call returns.
            let _over = unsafe { libc::poll(list.as_mut_ptr(), length, -1) };
        }
    });
    let thread = begin.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::AGAIN))?;
    waits();
    for number in numbers {
        // SAFETY: this function's own, which it took apart above; the call in the other thread has looked them up.
        unsafe { libc::close(number) };
    }
    Ok(thread)
}

/// A lock of one byte of a file, for this process.
///
/// # Errors
/// What the kernel or a filter says.
pub fn lock_byte(file: impl AsFd, at: i64) -> rustix::io::Result<()> {
    let lock =
        libc::flock { l_type: i16::try_from(libc::F_WRLCK).unwrap_or(1), l_whence: 0, l_start: at, l_len: 1, l_pid: 0 };
    // SAFETY: the kernel reads the lock, which lives until the call returns.
    checked(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLK, &raw const lock) }).map(|_| ())
}

/// Keeps everybody else from opening a file for the time that a lease is given to be broken (F_SETLEASE).
///
/// # Errors
/// What the kernel or a filter says.
pub fn lease(file: impl AsFd) -> rustix::io::Result<()> {
    // SAFETY: the call takes numbers alone.
    checked(unsafe { libc::fcntl(file.as_fd().as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }).map(|_| ())
}
