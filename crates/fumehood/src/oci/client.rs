//! What is asked of a container's supervisor.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use sys::channel::Interest;

use super::store::{Record, Store, is_there, short};

/// Letting a program go takes milliseconds, on a loaded machine more.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Longest answer.
const MAX_ANSWER: u64 = 4096;

/// Asks one word; what is not `ok` is why not.
pub(crate) fn ask(store: &Store, id: &str, word: &str) -> std::io::Result<()> {
    let (_folder, path) = short(&store.socket(id))?;
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(START_TIMEOUT))?;
    stream.write_all(format!("{word}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(MAX_ANSWER)).read_line(&mut line)?;
    match line.trim() {
        "ok" => Ok(()),
        "" => Err(std::io::Error::other("its supervisor ended")),
        why => Err(std::io::Error::other(why.to_owned())),
    }
}

/// Waits until its supervisor is gone; whether it is.
pub(crate) fn gone(record: &Record, within: Duration) -> bool {
    let Ok(process) = sys::pidfd::open(record.pid) else { return true };
    if !is_there(record) {
        return true;
    }
    let interest = Interest { fd: process.as_fd(), write: false };
    sys::channel::wait(&[interest], Some(within)).is_ok_and(|ready| ready.first() == Some(&true))
}
