//! What the agent finds when it is started, and what it changes before anything else.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Broken;
use crate::files::nothing;
use crate::inside::Inside;
use crate::leftovers::Leftovers;
use crate::starter::Starters;

/// First of all: nobody reads this process, and its socket is not descriptor 0.
///
/// # Errors
/// EBADF: descriptor 0 is not open.
pub(crate) fn prepare() -> Result<(OwnedFd, Inside), Errno> {
    // Where the sandbox's filter forbids it, the layer of the starters keeps programs from looking in all the same.
    let _hidden = sys::bare::set_dumpable(false);
    sys::signals::ignore_file_size();
    let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let nothing = nothing()?;
    rustix::stdio::dup2_stdin(&nothing)?;
    surroundings(socket, None, true)
}

/// The supervisor's socket and what all tasks share. `alone`: this process is the agent's, and nobody else's.
///
/// # Errors
/// Those of the start of the process that starts programs.
pub(crate) fn surroundings(socket: OwnedFd, home: Option<&Path>, alone: bool) -> Result<(OwnedFd, Inside), Errno> {
    let flags = rustix::fs::fcntl_getfl(&socket)?;
    rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK)?;
    let variable = |name| std::env::vars_os().find(|(key, _)| key == name).map(|(_, value)| value);
    let absolute = |path: PathBuf| Some(path).filter(|path| path.is_absolute());
    let home = home.map(Path::to_owned).or_else(|| absolute(PathBuf::from(variable("HOME")?)));
    let home = home.unwrap_or_else(|| PathBuf::from("/"));
    let cwd = rustix::process::getcwd(Vec::new()).map_or_else(|_| b"/".to_vec(), std::ffi::CString::into_bytes);
    let cwd = PathBuf::from(OsString::from_vec(cwd));
    let inside = Inside {
        cwd: if are_one(&cwd, &home) { home.clone() } else { cwd },
        home,
        user: variable("USER").map(|user| user.to_string_lossy().into_owned()).unwrap_or_default(),
        starters: Starters::begin(alone),
        leftovers: Leftovers::default(),
    };
    Ok((socket, inside))
}

/// Whether two paths lead to the same folder: the home folder is a link.
fn are_one(one: &Path, other: &Path) -> bool {
    let stat = |path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
    matches!((stat(one), stat(other)), (Ok(one), Ok(other)) if one == other)
}

/// One line for the log, which nobody need read.
pub(crate) fn complain(broken: &Broken) {
    let _logged = rustix::io::write(rustix::stdio::stderr(), format!("agent: {broken}\n").as_bytes());
}
