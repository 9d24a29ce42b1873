//! Guest.
#![forbid(unsafe_code)]
