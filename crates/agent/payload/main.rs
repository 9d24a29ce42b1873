//! The program inside a live sandbox. All of it is in the library; here is only its entry.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    agent::main()
}
