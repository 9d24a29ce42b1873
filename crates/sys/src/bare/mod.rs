//! What the guest needs of the kernel: raw calls without allocation and without a C library.
