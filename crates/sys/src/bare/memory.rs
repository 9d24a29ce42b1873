//! Mappings that live as long as the process.

use core::ffi::{CStr, c_void};

use linux_raw_sys::general::{
    __NR_fcntl, __NR_memfd_create, __NR_mmap, __NR_pread64, F_ADD_SEALS, F_GET_SEALS, F_SEAL_GROW, F_SEAL_SEAL,
    F_SEAL_SHRINK, F_SEAL_WRITE, MAP_ANONYMOUS, MAP_PRIVATE, MFD_ALLOW_SEALING, MFD_CLOEXEC, PROT_READ, PROT_WRITE,
};

use super::errno::{Errno, Result};
use super::fd::{Fd, Owned};
use super::file::{status, write_all};
use super::raw::{call, text, uint, write};

/// Maps a sealed memfd for good. Three calls.
///
/// # Errors
/// `EPERM` when it is not sealed against writing and shrinking; else that of fcntl(2), statx(2) or mmap(2).
pub fn map_sealed(fd: Fd) -> Result<&'static [u8]> {
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    let seals = unsafe { call(__NR_fcntl, [fd.raw(), uint(F_GET_SEALS)]) }?;
    let needed = uint(F_SEAL_SHRINK | F_SEAL_WRITE);
    if seals & needed != needed {
        return Err(Errno::EPERM);
    }
    let len = usize::try_from(status(fd, c"")?.size).unwrap_or(usize::MAX);
    // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody.
    let at = unsafe { call(__NR_mmap, [0, len, uint(PROT_READ), uint(MAP_PRIVATE), fd.raw(), 0]) }?;
    let at = core::ptr::with_exposed_provenance::<u8>(at);
    // SAFETY: the kernel mapped `len` readable bytes there; the seals keep them from changing or vanishing, and nothing
    // here ever unmaps.
    Ok(unsafe { core::slice::from_raw_parts(at, len) })
}

/// A sealed copy of a file in a memory file of its own, close-on-exec. A memory file of another kernel can be executed, but has no
/// name by which the C library knows its program.
///
/// # Errors
/// That of memfd_create(2), pread(2), write(2) or fcntl(2).
pub fn copy_sealed(from: Fd, name: &CStr) -> Result<Owned> {
    let flags = uint(MFD_CLOEXEC | MFD_ALLOW_SEALING);
    // SAFETY: a path that ends with zero and lives until the call returns; the kernel only reads it.
    let copy = Owned::new(unsafe { call(__NR_memfd_create, [text(name), flags]) }?);
    let (mut part, mut at) = ([0; 16 << 10], 0_usize);
    loop {
        let size = part.len();
        // SAFETY: `size` writable bytes that nobody else uses meanwhile.
        let count = unsafe { call(__NR_pread64, [from.raw(), write(&mut part), size, at]) }?;
        match part.get(..count) {
            None | Some([]) => break,
            Some(bytes) => write_all(copy.fd(), bytes)?,
        }
        at = at.saturating_add(count);
    }
    let seals = uint(F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    // SAFETY: the call takes numbers alone; the kernel touches no memory of ours.
    unsafe { call(__NR_fcntl, [copy.fd().raw(), uint(F_ADD_SEALS), seals]) }?;
    Ok(copy)
}

/// Zeroed words for good.
///
/// # Errors
/// `ENOMEM`, or that of mmap(2).
pub fn map_words(count: usize) -> Result<&'static mut [usize]> {
    let at = map_zeroed(count.checked_mul(size_of::<usize>()).ok_or(Errno::ENOMEM)?)?.cast::<usize>();
    // SAFETY: `count` zeroed words, page-aligned, that nobody else knows of and nothing ever unmaps.
    Ok(unsafe { core::slice::from_raw_parts_mut(at, count) })
}

/// Zeroed bytes for good.
///
/// # Errors
/// `ENOMEM`, or that of mmap(2).
pub fn map_bytes(count: usize) -> Result<&'static mut [u8]> {
    let at = map_zeroed(count)?.cast::<u8>();
    // SAFETY: `count` zeroed bytes that nobody else knows of and nothing ever unmaps.
    Ok(unsafe { core::slice::from_raw_parts_mut(at, count) })
}

fn map_zeroed(len: usize) -> Result<*mut c_void> {
    let flags = uint(MAP_PRIVATE | MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address of the kernel's choice takes nothing from anybody.
    let at = unsafe { call(__NR_mmap, [0, len, uint(PROT_READ | PROT_WRITE), flags, usize::MAX, 0]) }?;
    Ok(core::ptr::with_exposed_provenance_mut(at))
}
