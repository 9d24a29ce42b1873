//! Tries on the targets of links.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, Mode, OFlags, readlinkat};
use rustix::io::Errno;

use super::{Entry, Probe, errno};

pub(super) const PROBES: &[Entry] = &[("read-links", read_links)];

/// How long folders are exchanged under a look-up.
const EXCHANGED: Duration = Duration::from_millis(300);

/// `FOLDER`: where the link `link` in it leads, asked in every way there is.
fn read_links(probe: &Probe) {
    let folder = probe.arg(0);
    let link = folder.join("link");
    let tell = |name: &str, text: Result<std::ffi::CString, Errno>| {
        probe.read(name, text.map(std::ffi::CString::into_bytes).map_err(std::io::Error::from));
    };
    tell("by path", rustix::fs::readlink(&link, Vec::new()));
    tell("with a detour", rustix::fs::readlink(folder.join("../././/").join(beside(&folder)), Vec::new()));
    for process in ["self", "thread-self"] {
        let below = link.strip_prefix("/").unwrap_or(&link);
        tell(
            "by a root of /proc",
            rustix::fs::readlink(Path::new("/proc").join(process).join("root").join(below), Vec::new()),
        );
    }
    let place = OFlags::PATH | OFlags::CLOEXEC;
    match rustix::fs::open(&folder, place | OFlags::DIRECTORY, Mode::empty()) {
        Ok(folder) => tell("below a descriptor", readlinkat(&folder, "link", Vec::new())),
        Err(errno) => probe.saw::<()>("below a descriptor", Err(errno)),
    }
    match rustix::fs::open(&link, place | OFlags::NOFOLLOW, Mode::empty()) {
        Ok(link) => tell("of a descriptor", readlinkat(&link, "", Vec::new())),
        Err(errno) => probe.saw::<()>("of a descriptor", Err(errno)),
    }
    exchanged(probe, &folder);
    match std::env::set_current_dir(&folder) {
        Ok(()) => {
            tell("from its folder", readlinkat(CWD, "link", Vec::new()));
            tell("by a working directory of /proc", rustix::fs::readlink("/proc/self/cwd/link", Vec::new()));
        }
        Err(error) => probe.saw::<()>("from its folder", Err(errno(&error))),
    }
}

/// The last part of the folder, and the link in it.
fn beside(folder: &Path) -> PathBuf {
    folder.file_name().map(PathBuf::from).unwrap_or_default().join("link")
}

/// The folder is another one from moment to moment: one of our own, and the one that is not granted.
fn exchanged(probe: &Probe, folder: &Path) {
    let name = "below an exchanged folder";
    let own = std::env::var_os("TMPDIR").map_or_else(|| "/tmp".into(), PathBuf::from).join("exchanged");
    let (turn, next, good) = (own.join("turn"), own.join("next"), own.join("good"));
    let made = std::fs::create_dir_all(&good).and_then(|()| symlink("own", good.join("link")));
    if let Err(error) = made.and_then(|()| symlink(&good, &turn)) {
        return probe.saw::<()>(name, Err(errno(&error)));
    }
    let until = Instant::now() + EXCHANGED;
    let over = AtomicBool::new(false);
    let told = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) && Instant::now() < until {
                for to in [folder, &good] {
                    // The next turn brings it, if this one does not.
                    let _other = symlink(to, &next).and_then(|()| std::fs::rename(&next, &turn));
                }
            }
        });
        let mut told = Err(Errno::TIMEDOUT);
        while Instant::now() < until {
            let text = rustix::fs::readlink(turn.join("link"), Vec::new());
            if text.as_ref().is_ok_and(|text| text.as_bytes() != b"own") {
                told = text;
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
        told
    });
    probe.read(name, told.map(std::ffi::CString::into_bytes).map_err(std::io::Error::from));
}
