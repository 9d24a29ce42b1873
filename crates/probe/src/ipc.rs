//! Objects of the kernel that outlive who made them: System V memory, message queues, handles of files.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};

use rustix::io::Errno;

use super::{checked, last_errno};

/// Makes a System V segment with `key` and writes `text` to its start; it stays until somebody removes it.
///
/// # Errors
/// ENOSYS, EPERM: a filter. ENOMEM, ENOSPC: a limit.
pub fn make_segment(key: i32, bytes: usize, text: &[u8]) -> rustix::io::Result<i32> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let id = checked(unsafe { libc::shmget(key, bytes, libc::IPC_CREAT | 0o666) })?;
    attached(id, |memory| {
        for (to, from) in memory.iter_mut().zip(text) {
            *to = *from;
        }
    })?;
    Ok(id)
}

/// Reads the start of the System V segment with `key`.
///
/// # Errors
/// ENOENT: there is none in this ipc namespace.
pub fn read_segment(key: i32, length: usize) -> rustix::io::Result<Vec<u8>> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let id = checked(unsafe { libc::shmget(key, 0, 0) })?;
    attached(id, |memory| memory.iter().take(length).copied().collect())
}

/// Removes the System V segment with `key`. True if there was one.
#[must_use]
pub fn remove_segment(key: i32) -> bool {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let id = unsafe { libc::shmget(key, 0, 0) };
    // SAFETY: IPC_RMID takes no buffer.
    id >= 0 && unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) } == 0
}

/// The first page of a segment, attached for as long as `work` runs.
fn attached<T>(id: i32, work: impl FnOnce(&mut [u8]) -> T) -> rustix::io::Result<T> {
    // SAFETY: the kernel chooses the address.
    let address = unsafe { libc::shmat(id, std::ptr::null(), 0) };
    if address.addr() == usize::MAX {
        return Err(last_errno());
    }
    // SAFETY: a segment is at least one page long, is mapped until shmdt below, and nothing of Rust lies in it.
    let memory = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), 4096) };
    let result = work(memory);
    // SAFETY: the address came from shmat, and the slice ends here.
    checked(unsafe { libc::shmdt(address) })?;
    Ok(result)
}

/// Opens the POSIX message queue `name` for writing, making it if `make`.
///
/// # Errors
/// ENOENT, ENOSYS, EPERM, EACCES.
pub fn open_queue(name: &CStr, make: bool) -> rustix::io::Result<OwnedFd> {
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_CLOEXEC | if make { libc::O_CREAT } else { 0 };
    let default: *mut libc::mq_attr = std::ptr::null_mut();
    // SAFETY: the name is zero-ended; a null attribute means the default.
    let fd = checked(unsafe { libc::mq_open(name.as_ptr(), flags, 0o666, default) })?;
    // SAFETY: on Linux a queue is a descriptor, just made for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Removes the POSIX message queue `name`. True if there was one.
#[must_use]
pub fn remove_queue(name: &CStr) -> bool {
    // SAFETY: the name is zero-ended.
    unsafe { libc::mq_unlink(name.as_ptr()) == 0 }
}

/// Opens a file by the handle of another one in the same file system, guessing inode numbers from 2 up to `most`: what found
/// its way out of early container engines. Returns the first descriptor that opens.
///
/// # Errors
/// EPERM: not allowed (the kernel asks for `CAP_DAC_READ_SEARCH` before it looks). ESTALE: no guess fitted.
pub fn open_by_guess(folder: impl AsFd, most: u32) -> rustix::io::Result<OwnedFd> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        inode: u32,
        generation: u32,
    }
    let mut last = Errno::STALE;
    for inode in 2..most {
        let mut handle = Handle { bytes: 8, kind: 1, inode, generation: 0 };
        // SAFETY: the handle's first two fields say how long the rest is, as struct file_handle wants.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_open_by_handle_at,
                folder.as_fd().as_raw_fd(),
                &raw mut handle,
                libc::O_PATH | libc::O_CLOEXEC,
            )
        };
        if let Ok(fd) = i32::try_from(fd)
            && fd >= 0
        {
            // SAFETY: the kernel just made this descriptor for us.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        last = last_errno();
        if last == Errno::PERM || last == Errno::NOSYS || last == Errno::ACCESS {
            return Err(last);
        }
    }
    Err(last)
}
