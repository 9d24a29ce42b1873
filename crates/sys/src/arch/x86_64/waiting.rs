//! A program in machine code.

/// The smallest program that waits: the ELF header (64 bits, little-endian, executable, x86-64, entry 0x400078, one
/// program header at 64), that header (the whole file at 0x400000, read and execute), and
/// `l: mov eax, 34; syscall; jmp l` (pause).
#[rustfmt::skip]
pub(crate) const WAITING: &[u8; 129] = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0\x78\0\x40\0\0\0\0\0\
    \x40\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\x38\0\x01\0\0\0\0\0\0\0\
    \x01\0\0\0\x05\0\0\0\0\0\0\0\0\0\0\0\0\0\x40\0\0\0\0\0\0\0\x40\0\0\0\0\0\
    \x81\0\0\0\0\0\0\0\x81\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\
    \xb8\x22\0\0\0\x0f\x05\xeb\xf7";
