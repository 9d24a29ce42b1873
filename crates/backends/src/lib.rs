//! Backends.
#![forbid(unsafe_code)]
