//! A program in a sandbox by this library alone, without a command line, gate or server: `alone POLICY PROGRAM [ARG ...]`. It ends as
//! the program does. `scripts/bench` measures how large it is.
#![forbid(unsafe_code)]

use std::error::Error;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use sandbox::{Capabilities, Environment, Inputs, Options, PolicyLayer, Sink, Stdin, Stdio, Visitor, Workload};

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut words = std::env::args_os().skip(1);
    let policy =
        words.next().and_then(|word| word.into_string().ok()).ok_or("usage: alone POLICY PROGRAM [ARG ...]")?;
    let euid = rustix::process::geteuid().as_raw();
    let environment = Environment::new(std::env::current_dir().ok(), std::env::vars_os().collect(), euid);
    let host = Capabilities::probe();
    let why = |error: sandbox::Error| format!("{error:?}");
    let loaded = sandbox::load(&[PolicyLayer::Document(policy)], &environment, Inputs::Now).map_err(why)?;
    let planned = sandbox::plan(loaded, Workload::Argv(words.collect()), &host).map_err(why)?;
    let stdio = Stdio::Streams {
        stdin: Stdin::Descriptor(std::io::stdin().as_fd().try_clone_to_owned()?),
        stdout: Sink::Descriptor(std::io::stdout().as_fd().try_clone_to_owned()?),
        stderr: Sink::Descriptor(std::io::stderr().as_fd().try_clone_to_owned()?),
    };
    // Nobody asks for anything meanwhile.
    let (silent, _other) = UnixStream::pair()?;
    let visitor = Visitor { fd: silent.as_fd(), ready: &mut |_| () };
    let finished = sandbox::run_here(planned, &environment, &host, Options::new(stdio), visitor).map_err(why)?;
    Ok(ExitCode::from(u8::try_from(finished.report.outcome.exit_code())?))
}
