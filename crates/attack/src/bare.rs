//! No confinement: the control. A probe that does not work here proves nothing inside.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use crate::confined::{Confined, Moment, Observed, ProbeCall};
use crate::launch::{self, Start};
use crate::row::Control;
use sandbox::fault::Fault;

/// Runs the probe as it is.
#[derive(Clone, Copy, Debug)]
pub struct Bare;

impl Confined for Bare {
    fn name(&self) -> &'static str {
        "none"
    }

    fn workspace_seen(&self, host: &Path) -> PathBuf {
        host.to_path_buf()
    }

    fn run(&self, call: &ProbeCall, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault> {
        let how = match call.control {
            Control::User => "user",
            Control::Private => "private",
            Control::Caller => "caller",
        };
        // The marker must stand where the survey looks for it, so the program that lets go of privilege is replaced by the
        // probe itself.
        let mut argv: Vec<OsString> = vec![call.program.clone().into(), "__control".into(), how.into()];
        argv.push(call.program.clone().into());
        argv.extend(call.argv.iter().cloned());
        run_in(call, argv, call.bare_directory(), watch)
    }
}

/// Starts `argv` in `directory` with what the call says of environment, descriptors and time.
pub(super) fn run_in(
    call: &ProbeCall,
    argv: Vec<OsString>,
    directory: &Path,
    watch: &mut dyn FnMut(&Moment<'_>),
) -> Result<Observed, Fault> {
    let mut argv = argv;
    if call.terminal {
        argv.splice(0..0, [call.program.clone().into(), "__control".into(), "terminal".into()]);
    }
    if call.groups {
        argv.splice(0..0, [call.program.clone().into(), "__control".into(), "groups".into()]);
    }
    if let Some((at, secret)) = &call.mount {
        let words: [OsString; 5] =
            [call.program.clone().into(), "__control".into(), "mount".into(), at.into(), secret.into()];
        argv.splice(0..0, words);
    }
    if let Some(file) = &call.resolvers {
        let words = [call.program.clone().into(), "__control".into(), "resolvers".into(), file.into()];
        argv.splice(0..0, words);
    }
    if let Some(namespace) = &call.network {
        let words = [call.program.clone().into(), "__control".into(), "network".into(), namespace.into()];
        argv.splice(0..0, words);
    }
    let fds: Vec<_> = call.fds.iter().map(|(fd, number)| (fd.as_fd(), *number)).collect();
    let env = call.env.iter().map(|(name, value)| {
        let mut text = OsString::from(format!("{name}="));
        text.push(value);
        text
    });
    let start = Start {
        argv,
        env: env.collect(),
        directory,
        stdin: call.stdin.as_ref().map(|fd| fd.as_fd()),
        fds: &fds,
        limit: call.limit,
        marker: call.marker(),
    };
    launch::run(&start, watch)
}
