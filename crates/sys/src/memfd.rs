//! Sealed memory files: a program that nobody can overwrite, and data that nobody can change after it was handed over.
//!
//! *Promises*: after [`program`] and [`data`] return, neither content, size, mode nor seals can change, not even by
//! root and not through `/proc/self/exe` (CVE-2019-5736).
//!
//! *Kernel facts*: `MFD_EXEC` and `MFD_NOEXEC_SEAL` exist since 6.3 and older kernels answer EINVAL to them;
//! `vm.memfd_noexec = 2` refuses `MFD_EXEC` with EACCES. `F_SEAL_EXEC` (0x20) came with them.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;

use crate::error::{ErrorContext as _, Result};

const SEAL_EXEC: SealFlags = SealFlags::from_bits_retain(0x20);
const CONTENT: SealFlags = SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// A sealed, executable memory file with `bytes`, close-on-exec.
///
/// # Errors
/// EACCES: `vm.memfd_noexec` is 2. ENOSPC, EMFILE, ENOMEM as for any file.
pub fn program(name: &CStr, bytes: &[u8]) -> Result<OwnedFd> {
    create(name, bytes, MemfdFlags::EXEC)
}

/// A sealed memory file with `bytes` that cannot be executed where the kernel knows the difference, close-on-exec.
///
/// # Errors
/// ENOSPC, EMFILE, ENOMEM as for any file.
pub fn data(name: &CStr, bytes: &[u8]) -> Result<OwnedFd> {
    create(name, bytes, MemfdFlags::NOEXEC_SEAL)
}

/// A memory file that is handed over before its content is there. Until [`Later::fill`] it is empty and not sealed.
#[derive(Debug)]
pub struct Later {
    file: OwnedFd,
    seals: SealFlags,
}

impl Later {
    /// One that cannot be executed where the kernel knows the difference, close-on-exec.
    ///
    /// # Errors
    /// As [`data`].
    pub fn new(name: &CStr) -> Result<Self> {
        let (file, seals) = empty(name, MemfdFlags::NOEXEC_SEAL)?;
        Ok(Self { file, seals })
    }

    /// Writes the content and seals it.
    ///
    /// # Errors
    /// As [`data`].
    pub fn fill(self, bytes: &[u8]) -> Result<()> {
        fill(&self.file, self.seals, bytes)
    }
}

impl std::os::fd::AsFd for Later {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn create(name: &CStr, bytes: &[u8], kind: MemfdFlags) -> Result<OwnedFd> {
    let (file, seals) = empty(name, kind)?;
    fill(&file, seals, bytes)?;
    Ok(file)
}

fn empty(name: &CStr, kind: MemfdFlags) -> Result<(OwnedFd, SealFlags)> {
    let object = || format!("memfd:{}", name.to_string_lossy());
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    match rustix::fs::memfd_create(name, flags | kind) {
        Ok(file) => Ok((file, CONTENT | SEAL_EXEC)),
        // A kernel before 6.3: every memory file is executable and its mode cannot be sealed.
        Err(Errno::INVAL) => Ok((rustix::fs::memfd_create(name, flags).named("memfd_create", object)?, CONTENT)),
        Err(errno) => Err(errno).named("memfd_create", object),
    }
}

fn fill(file: &OwnedFd, seals: SealFlags, bytes: &[u8]) -> Result<()> {
    let object = || "memory file".to_owned();
    let (mut rest, mut at) = (bytes, 0_u64);
    while !rest.is_empty() {
        // Whoever is given it reads it from its beginning.
        let written = rustix::io::pwrite(file, rest, at).named("pwrite", object)?;
        rest = rest.get(written..).unwrap_or_default();
        at = at.saturating_add(u64::try_from(written).unwrap_or(u64::MAX));
    }
    rustix::fs::fcntl_add_seals(file, seals).named("fcntl(F_ADD_SEALS)", object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _, Write as _};

    #[test]
    fn sealed_data_reads_back_and_refuses_every_change() {
        let mut file = std::fs::File::from(data(c"t", b"hello").unwrap());
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        assert!(file.set_len(0).is_err());
        assert!(file.set_len(100).is_err());
        file.rewind().unwrap();
        assert!(file.write_all(b"x").is_err());
        assert!(rustix::fs::fcntl_add_seals(&file, SealFlags::empty()).is_err());
        // Control: the same writes work on a file without seals.
        let free = rustix::fs::memfd_create(c"free", MemfdFlags::CLOEXEC).unwrap();
        let mut free = std::fs::File::from(free);
        free.write_all(b"x").unwrap();
        free.set_len(100).unwrap();
    }

    #[test]
    fn a_sealed_program_keeps_its_mode_and_data_has_no_execute_bit() {
        use rustix::fs::Mode;
        let file = program(c"t", b"\x7fELF").unwrap();
        assert_ne!(rustix::fs::fstat(&file).unwrap().st_mode & 0o111, 0);
        assert_eq!(rustix::fs::fchmod(&file, Mode::from_bits_retain(0o600)), Err(Errno::PERM));
        let file = data(c"t", b"").unwrap();
        assert_eq!(rustix::fs::fstat(&file).unwrap().st_mode & 0o111, 0);
    }
}
