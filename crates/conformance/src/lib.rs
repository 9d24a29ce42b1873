//! Conformance.
#![forbid(unsafe_code)]
