//! The program inside the sandbox. All of it is in the library; here is only its entry.
#![no_std]
#![no_main]

sys::entry!(guest::main);
