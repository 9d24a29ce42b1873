//! Fumehood: a sandbox for AI agents that enforces or refuses.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(fumehood::cli::main())
}
