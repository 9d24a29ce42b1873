//! Whether anybody can write to a file by what is open already.
//!
//! *Promises*: [`none`] says yes only where at that moment no process had the file open for writing, or mapped so that it
//! can be written. What is written later goes through an opening that was not there yet, and changes the file's change time.
//!
//! *Kernel facts*: a read lease (`F_SETLEASE`) is given for a file that nobody has open for writing; a shared mapping that
//! can be written keeps its opening alive. A lease is broken with a signal to its holder, which ends a process by default:
//! `F_SETSIG` makes it SIGURG, which is ignored by default. Some file systems give no leases, and neither does the kernel to
//! whoever neither owns the file nor has `CAP_LEASE`.

use std::os::fd::{AsFd, AsRawFd as _};

/// `F_SETSIG` of `linux/fcntl.h`, which the crate `libc` does not have for every C library.
const F_SETSIG: libc::c_int = 10;

/// Whether nobody can write to this file, which must be open for reading alone. False where the kernel does not say.
#[must_use]
pub fn none(file: impl AsFd) -> bool {
    let fd = file.as_fd().as_raw_fd();
    let ask = |command: libc::c_int, value: libc::c_int| {
        // SAFETY: `fd` is open for the length of the call (it is borrowed), and both commands take a number and no pointer.
        unsafe { libc::fcntl(fd, command, value) != -1 }
    };
    // Given back at once: whoever opens the file meanwhile waits no longer than that.
    ask(F_SETSIG, libc::SIGURG) && ask(libc::F_SETLEASE, libc::F_RDLCK) && ask(libc::F_SETLEASE, libc::F_UNLCK)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use rustix::mm::{MapFlags, ProtFlags};

    #[test]
    fn an_open_writer_and_a_writable_mapping_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        std::fs::write(&path, "some text").unwrap();
        let look = || super::none(File::open(&path).unwrap());
        if !look() {
            // This file system gives no leases: nothing is claimed there.
            return;
        }
        let writer = File::options().read(true).write(true).open(&path).unwrap();
        assert!(!look(), "a writer");
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a fresh range (the hint is null), which nothing of this test reads or writes.
        let at =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), 9, protection, MapFlags::SHARED, &writer, 0) }.unwrap();
        drop(writer);
        assert!(!look(), "a mapping whose descriptor is closed");
        // SAFETY: the range is the one that was mapped above, and nobody has a reference into it.
        unsafe { rustix::mm::munmap(at, 9) }.unwrap();
        assert!(look(), "nobody any more");
    }
}
