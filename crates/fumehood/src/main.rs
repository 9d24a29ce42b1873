//! Fumehood: a sandbox for AI agents that enforces or refuses.
#![forbid(unsafe_code)]

fn main() {}
