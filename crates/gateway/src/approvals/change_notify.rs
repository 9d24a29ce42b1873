//! Tells the processes of one user that something changed in the store, within a moment and without looking all the time.
//!
//! After each commit one byte is written to a small file; inotify(7) wakes whoever listens. It is a file of its own
//! because the write-ahead log changes before a commit can be seen. A write that is lost (its process died between commit
//! and write) costs one slow look, never an answer.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::inotify;
use tokio::sync::watch;

use super::StoreError;

const FILE: &str = "approvals.bell";
/// How soon to look anyway, when inotify tells of changes.
const FALLBACK_INTERVAL: Duration = Duration::from_secs(1);
/// How soon to look when the kernel gave no inotify instance (there are 128 for a user).
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct ChangeNotifier {
    file: File,
    changes: watch::Sender<u64>,
    stop: OwnedFd,
    pub(super) look_again: Duration,
}

impl ChangeNotifier {
    pub(super) fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let failed = |why: String| StoreError::File { path: path.clone(), why };
        let file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or_default())
            .open(&path)
            .map_err(|error| failed(error.to_string()))?;
        let (changes, _) = watch::channel(0);
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.to_string()))?;
        let look_again = match watch_file(&path) {
            Ok(inotify_fd) => {
                let (changes, stop) = (changes.clone(), stop.try_clone().map_err(|error| failed(error.to_string()))?);
                let thread = std::thread::Builder::new().name("approvals".to_owned());
                thread
                    .spawn(move || forward(&inotify_fd, &stop, &changes))
                    .map_err(|error| failed(error.to_string()))?;
                FALLBACK_INTERVAL
            }
            Err(_) => POLL_INTERVAL,
        };
        Ok(Self { file, changes, stop, look_again })
    }

    /// Something changed.
    pub(super) fn notify(&self) {
        if self.file.write_all_at(b"!", 0).is_err() {
            // Those who wait look again by themselves, a second later.
        }
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Drop for ChangeNotifier {
    fn drop(&mut self) {
        if File::from(match self.stop.try_clone() {
            Ok(stop) => stop,
            Err(_) => return,
        })
        .write_all(&1_u64.to_ne_bytes())
        .is_err()
        {
            // The thread then ends with the process.
        }
    }
}

fn watch_file(path: &Path) -> rustix::io::Result<OwnedFd> {
    let inotify_fd = inotify::init(inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK)?;
    inotify::add_watch(&inotify_fd, path, inotify::WatchFlags::MODIFY)?;
    Ok(inotify_fd)
}

/// Passes changes on until it is stopped.
fn forward(inotify_fd: &OwnedFd, stop: &OwnedFd, changes: &watch::Sender<u64>) {
    let mut buffer = [0_u8; 4096];
    loop {
        let mut both = [PollFd::new(inotify_fd, PollFlags::IN), PollFd::new(stop, PollFlags::IN)];
        match poll(&mut both, None::<&Timespec>) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        let [_, stopped] = both;
        if !stopped.revents().is_empty() {
            return;
        }
        while rustix::io::read(inotify_fd.as_fd(), &mut buffer).is_ok_and(|count| count > 0) {}
        changes.send_modify(|count| *count = count.wrapping_add(1));
    }
}
