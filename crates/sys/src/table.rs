//! A file of 64-bit words that several processes look at and change at once, and byte locks that die with their owner.
//!
//! *Promises*: a word is read and written as a whole, whatever other processes do; no access reaches beyond the length
//! that the file had when it was mapped; words that were allocated can be written although the disk is full. A byte lock is
//! gone when the last descriptor of its owner is: when the process is dead, whatever killed it, in whichever pid namespace.
//!
//! *Does not promise*: that two words change together (take `flock` on the file for that). A write to words that are a
//! hole of the file, on a full disk, is a SIGBUS, and so is any access after somebody who may write to the file made it
//! shorter: [`SharedCounters::allocate`] prevents the one, a folder of one's own the other.
//!
//! *Kernel facts*: OFD locks (Linux 3.15) belong to the open file description, so two openings in one process exclude each
//! other as well. Reading a hole gives 0 and takes no place on the disk.

use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd as _};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};

use crate::error::{Error, ErrorContext as _, Result};

const WORD: usize = size_of::<u64>();

/// A shared mapping of a file.
#[derive(Debug)]
pub struct SharedCounters {
    file: File,
    base: NonNull<AtomicU64>,
    length: NonZeroUsize,
}

// SAFETY: the mapping is reached through atomics alone and lives as long as `SharedCounters`; its fields are never changed.
unsafe impl Send for SharedCounters {}
// SAFETY: as for `Send`; all that shared references give is `&[AtomicU64]`, which is made to be shared.
unsafe impl Sync for SharedCounters {}

impl SharedCounters {
    /// Maps the first `length` words of `file`, open for reading and writing. A shorter file is made that long; what is
    /// new is a hole.
    ///
    /// # Errors
    /// EINVAL: `length` is 0 or too much. EACCES: it is not open for both. ENODEV: no file that can be mapped. ENOMEM.
    pub fn map(file: File, length: usize) -> Result<Self> {
        let object = || "table".to_owned();
        let invalid = || Error::new("mmap", object(), Errno::INVAL);
        let length = NonZeroUsize::new(length).ok_or_else(invalid)?;
        let bytes = length.get().checked_mul(WORD).filter(|b| isize::try_from(*b).is_ok()).ok_or_else(invalid)?;
        let wanted = u64::try_from(bytes).or(Err(Errno::FBIG)).named("ftruncate", object)?;
        let stat = rustix::fs::fstat(&file).named("fstat", object)?;
        if u64::try_from(stat.st_size).unwrap_or(0) < wanted {
            rustix::fs::ftruncate(&file, wanted).named("ftruncate", object)?;
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses a fresh range of address space (the hint is null), so no memory of ours is replaced.
        let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, MapFlags::SHARED, &file, 0) };
        let start = start.named("mmap", object)?;
        let base = NonNull::new(start.cast()).ok_or_else(|| Error::new("mmap", object(), Errno::FAULT))?;
        Ok(Self { file, base, length })
    }

    /// Gives these words a place on the disk, so that writing them cannot fail; what they hold stays.
    ///
    /// # Errors
    /// EINVAL: beyond the length. ENOSPC, EDQUOT: the disk is full.
    pub fn allocate(&self, from: usize, count: usize) -> Result<()> {
        let object = || format!("{count} words of a table from {from}");
        if from.checked_add(count).is_none_or(|end| end > self.length.get()) {
            return Err(Error::new("fallocate", object(), Errno::INVAL));
        }
        let bytes = |words: usize| u64::try_from(words * WORD).or(Err(Errno::FBIG));
        let (offset, length) = (bytes(from).named("fallocate", object)?, bytes(count).named("fallocate", object)?);
        loop {
            match rustix::fs::fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, length) {
                Ok(()) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new("fallocate", object(), errno)),
            }
        }
    }

    /// The words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `base` is the start of a mapping of exactly `length` words, a page boundary and so aligned, readable
        // and writable, and it lives until `self` is dropped, which the lifetime of the slice forbids. Other processes
        // change the words, which is what atomics are for. The length in bytes was checked to fit `isize`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.length.get()) }
    }

    /// The file.
    #[must_use]
    pub const fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for SharedCounters {
    #[expect(clippy::let_underscore_must_use, reason = "unmapping our own range cannot fail, and drop cannot tell")]
    fn drop(&mut self) {
        // SAFETY: the range is exactly the mapping that `map` made, and nothing borrows from it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.length.get() * WORD) };
    }
}

/// Takes the lock on one byte of `file` until its last descriptor is closed; `false` if another opening has it.
///
/// # Errors
/// EBADF: not open for writing. ENOLCK.
pub fn try_lock_byte(file: impl AsFd, byte: u32) -> Result<bool> {
    let mut lock = one_byte(libc::F_WRLCK, byte);
    match ofd(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(Error::new("fcntl(F_OFD_SETLK)", format!("byte {byte}"), errno)),
    }
}

/// Whether another opening has the lock on this byte.
///
/// # Errors
/// EBADF, ENOLCK.
pub fn is_byte_locked(file: impl AsFd, byte: u32) -> Result<bool> {
    let mut lock = one_byte(libc::F_WRLCK, byte);
    ofd(file, libc::F_OFD_GETLK, &mut lock).named("fcntl(F_OFD_GETLK)", || format!("byte {byte}"))?;
    Ok(lock.l_type != kind(libc::F_UNLCK))
}

fn one_byte(lock: libc::c_int, byte: u32) -> libc::flock {
    libc::flock {
        l_type: kind(lock),
        l_whence: kind(libc::SEEK_SET),
        l_start: i64::from(byte),
        l_len: 1,
        // The kernel wants 0 here for OFD locks.
        l_pid: 0,
    }
}

/// The constants are small; the field is narrower than the type they have in the C headers.
fn kind(constant: libc::c_int) -> libc::c_short {
    libc::c_short::try_from(constant).unwrap_or(libc::c_short::MAX)
}

fn ofd(file: impl AsFd, command: libc::c_int, lock: &mut libc::flock) -> rustix::io::Result<()> {
    let fd = file.as_fd().as_raw_fd();
    // SAFETY: `fd` is open for the length of the call (it is borrowed); both commands take a pointer to `flock`, read it
    // and, for F_OFD_GETLK, write it; `lock` is valid for both and is not used meanwhile.
    let answer = unsafe { libc::fcntl(fd, command, std::ptr::from_mut(lock)) };
    if answer == -1 {
        let error = std::io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn open(path: &std::path::Path) -> File {
        File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
    }

    #[test]
    fn two_mappings_of_a_file_see_each_other_and_the_file_keeps_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let a = SharedCounters::map(open(&path), 4096).unwrap();
        let b = SharedCounters::map(open(&path), 4096).unwrap();
        a.allocate(512, 512).unwrap();
        a.words()[1023].store(7, Ordering::Relaxed);
        assert_eq!((b.words().len(), b.words()[1023].load(Ordering::Relaxed)), (4096, 7));
        assert_eq!(b.words()[4095].load(Ordering::Relaxed), 0);
        assert_eq!(a.allocate(4000, 97).unwrap_err().errno, Errno::INVAL);
        assert_eq!(a.allocate(usize::MAX, 2).unwrap_err().errno, Errno::INVAL);
        drop((a, b));
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!((bytes.len(), bytes[1023 * 8]), (4096 * 8, 7));
    }

    #[test]
    fn holes_take_no_place_until_they_are_allocated() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let words = SharedCounters::map(open(&path), 1 << 20).unwrap();
        assert!(words.words().iter().all(|word| word.load(Ordering::Relaxed) == 0));
        let before = words.file().metadata().unwrap().blocks();
        words.allocate(0, 1 << 10).unwrap();
        assert_eq!(before, 0);
        assert!(words.file().metadata().unwrap().blocks() * 512 >= 1 << 13);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        for bad in [0, usize::MAX, usize::MAX / WORD] {
            assert_eq!(SharedCounters::map(open(&path), bad).unwrap_err().errno, Errno::INVAL, "{bad}");
        }
    }

    #[test]
    fn a_byte_lock_excludes_other_openings_and_ends_with_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lives");
        let (a, b) = (open(&path), open(&path));
        assert!(try_lock_byte(&a, 3).unwrap());
        assert!(!try_lock_byte(&b, 3).unwrap());
        assert!(try_lock_byte(&b, 4).unwrap());
        assert!(is_byte_locked(&b, 3).unwrap() && is_byte_locked(&a, 4).unwrap());
        // One's own lock is no other's.
        assert!(!is_byte_locked(&a, 3).unwrap());
        let copy = a.try_clone().unwrap();
        drop(a);
        assert!(is_byte_locked(&b, 3).unwrap());
        drop(copy);
        assert!(!is_byte_locked(&b, 3).unwrap());
        assert!(try_lock_byte(&b, 3).unwrap());
    }
}
