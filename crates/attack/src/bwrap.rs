//! bubblewrap as a careful author would call it: shows that rows can fail, and where a peer stands.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::confined::{Confined, Moment, Observed, ProbeCall};
use crate::{bare, launch};
use sandbox::fault::Fault;

/// Runs the probe under `bwrap`, as an ordinary user.
#[derive(Clone, Copy, Debug)]
pub struct Bwrap;

const FIXED: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "sandbox",
    "--setenv",
    "PATH",
    "/usr/bin:/bin",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/sbin",
    "/sbin",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/run",
    "--tmpfs",
    "/home",
];

impl Confined for Bwrap {
    fn name(&self) -> &'static str {
        "bubblewrap"
    }

    fn workspace_seen(&self, _host: &Path) -> PathBuf {
        PathBuf::from("/workspace")
    }

    fn run(&self, call: &ProbeCall, watch: &mut dyn FnMut(&Moment<'_>)) -> Result<Observed, Fault> {
        let mut argv: Vec<OsString> = vec![call.program.clone().into(), "__control".into(), "user".into()];
        argv.push("/usr/bin/bwrap".into());
        argv.extend(FIXED.iter().map(OsString::from));
        for path in call.read.iter().chain([&call.program]) {
            argv.extend(["--ro-bind".into(), path.into(), path.into()]);
        }
        if let Some(workspace) = &call.workspace {
            argv.extend(["--bind".into(), workspace.into(), "/workspace".into()]);
            argv.extend(["--chdir".into(), "/workspace".into()]);
        }
        argv.extend(["--".into(), call.program.clone().into()]);
        argv.extend(call.argv.iter().cloned());
        let observed = bare::run_in(call, argv, call.bare_directory(), watch)?;
        if observed.stderr.starts_with(b"bwrap: ") {
            let why = String::from_utf8_lossy(&observed.stderr).trim().to_owned();
            let mut fault = launch::own("bubblewrap did not start", rustix::io::Errno::PERM);
            fault.why = why;
            return Err(fault);
        }
        Ok(observed)
    }
}
