//! Fumehood: a sandbox for AI agents that enforces or refuses. The rooms of the supervisor; `main` only calls `cli`.
#![forbid(unsafe_code)]

pub mod cli;
