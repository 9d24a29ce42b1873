//! Sockets whose path is longer than the kernel's 107 bytes (unix(7)): reached by the descriptor of their folder.

use std::io::{Error, ErrorKind, Result};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use tokio::net::{UnixListener, UnixStream};

/// The folder of a socket, held open, and a short path to it.
struct Short {
    _folder: OwnedFd,
    path: PathBuf,
}

fn short(path: &Path) -> Result<Short> {
    let none = || Error::new(ErrorKind::InvalidInput, "the path of a socket needs a folder and a name");
    let (folder, name) = (path.parent().ok_or_else(none)?, path.file_name().ok_or_else(none)?);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
    Ok(Short { _folder: folder, path })
}

/// Connects to the socket at a path of any length.
pub(crate) async fn connect(path: &Path) -> Result<UnixStream> {
    UnixStream::connect(short(path)?.path).await
}

/// Listens at a path of any length, at which nothing is.
pub(crate) fn bind(path: &Path) -> Result<UnixListener> {
    UnixListener::bind(short(path)?.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_path_of_any_length_is_reached() {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().to_owned();
        for _ in 0..4 {
            path.push("d".repeat(100));
        }
        std::fs::create_dir_all(&path).unwrap();
        path.push("socket");
        assert!(UnixListener::bind(&path).is_err(), "without the descriptor it would not be reached");
        let listener = bind(&path).unwrap();
        let (client, server) = tokio::join!(connect(&path), listener.accept());
        assert!(client.is_ok() && server.is_ok());
    }
}
