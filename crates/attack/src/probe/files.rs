//! Tries on files.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::probe::{hide, ipc, task};
use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("read", read),
    ("read-some", read_some),
    ("read-by-proc", read_by_proc),
    ("read-spelled", read_spelled),
    ("read-by-symlink", read_by_symlink),
    ("read-descriptors", read_descriptors),
    ("write", write),
    ("write-folder", write_folder),
    ("metadata", metadata),
    ("hard-link", hard_link),
    ("plant", plant),
    ("plant-odd", plant_odd),
    ("capability", capability),
    ("read-later", read_later),
    ("swap-parent", swap_parent),
    ("create", create),
    ("open-write", open_write),
    ("open-read", open_read),
    ("overwrite-program", overwrite_program),
    ("overwrite-second", overwrite_second),
    ("make-in", make_in),
    ("node", node),
    ("handles", handles),
    ("set-id", set_id),
    ("execute", execute),
    ("stat", stat),
    ("list", list),
    ("hold-file", hold_file),
    ("watch-folder", watch_folder),
];

/// Reads a few KiB, without hanging on what is no file.
fn bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = OpenOptions::new().read(true).custom_flags(0o4000).open(path)?;
    let mut kept = vec![0; 65536];
    let length = file.read(&mut kept)?;
    kept.truncate(length);
    Ok(kept)
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn read(probe: &Probe) {
    for path in probe.paths() {
        probe.read(shown(&path), bytes(&path));
    }
}

/// The same file by the roots and working directories that `/proc` offers.
fn read_by_proc(probe: &Probe) {
    let file = probe.arg(0);
    let below = file.strip_prefix("/").unwrap_or(&file);
    for pid in ["self".to_owned(), "1".to_owned()].into_iter().chain(pids()) {
        for door in ["root", "cwd", "cwd/../../../../../..", "task/1/root"] {
            let path = PathBuf::from(format!("/proc/{pid}/{door}")).join(below);
            probe.read(shown(&path), bytes(&path));
        }
    }
}

fn pids() -> Vec<String> {
    let Ok(folder) = fs::read_dir("/proc") else { return Vec::new() };
    let names = folder.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|b| b.is_ascii_digit())).take(200).collect()
}

/// The same file by names that a careless comparison takes for another.
fn read_spelled(probe: &Probe) {
    for path in probe.paths() {
        let text = shown(&path);
        for name in [
            format!("../../../../../../../../..{text}"),
            format!("//{text}"),
            text.replace('/', "/./"),
            format!("/usr/../{text}"),
            format!("/usr/bin/../..{text}"),
            format!("{text}/."),
            text.to_uppercase(),
            format!("{text}\n"),
        ] {
            probe.read(name.clone(), bytes(Path::new(&name)));
        }
        probe.read(
            "invalid utf-8 beside",
            bytes(&path.join(OsStr::new("..")).join(path.file_name().unwrap_or_default())),
        );
    }
}

/// Links made inside: absolute, relative, in two steps.
fn read_by_symlink(probe: &Probe) {
    let (file, folder) = (probe.arg(0), probe.arg(1));
    let up = PathBuf::from("../../../../../../../..").join(file.strip_prefix("/").unwrap_or(&file));
    for (name, target) in [("absolute", file), ("relative", up), ("chain", folder.join("absolute"))] {
        let link = folder.join(name);
        match symlink(&target, &link) {
            Ok(()) => probe.read(name, bytes(&link)),
            Err(error) => probe.saw::<()>(name, Err(errno(&error))),
        }
    }
}

/// Whatever descriptors came along: files are read, folders are left through.
fn read_descriptors(probe: &Probe) {
    let name = probe.arg(0);
    for number in 3..40 {
        let path = PathBuf::from(format!("/proc/self/fd/{number}"));
        // By number too, for where there is no `/proc`. No descriptor of ours is open here but the standard three.
        let Some(fd) = ::probe::task::inherited(number) else { continue };
        probe.saw(format!("descriptor {number}"), Ok::<_, Errno>(()));
        read_below(probe, fd, &name);
        probe.read(shown(&path), bytes(&path.join(&name)));
        let mut kept = [0; 4096];
        if rustix::fs::fcntl_setfl(fd, OFlags::NONBLOCK).is_ok()
            && let Ok(length) = rustix::io::read(fd, &mut kept)
        {
            probe.found(format!("bytes of {number}"), String::from_utf8_lossy(kept.get(..length).unwrap_or_default()));
        }
    }
    probe.saw::<()>("any other descriptor", Err(Errno::BADF));
}

/// Files of which a single byte tells something: an empty one was masked.
fn read_some(probe: &Probe) {
    for path in probe.paths() {
        let some = bytes(&path).map_err(|error| errno(&error));
        let some = some.and_then(|bytes| if bytes.is_empty() { Err(Errno::NODATA) } else { Ok(()) });
        probe.saw(shown(&path), some);
    }
}

fn read_below(probe: &Probe, fd: BorrowedFd<'_>, name: &Path) {
    if let Ok(file) = rustix::fs::openat(fd, name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()) {
        let mut text = Vec::new();
        probe.read("below a descriptor", File::from(file).take(4096).read_to_end(&mut text).map(|_| text));
    }
}

/// Every way to change a file's content.
fn write(probe: &Probe) {
    for path in probe.paths() {
        probe.saw("open to write", put(&path, OFlags::WRONLY));
        probe.saw("append", put(&path, OFlags::WRONLY | OFlags::APPEND));
        probe.saw("open to truncate", rustix::fs::open(&path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()));
        probe.saw("truncate", truncate(&path));
        probe.saw("replace by rename", replace(&path));
        if let Ok(fd) = rustix::fs::open(&path, OFlags::PATH, Mode::empty()) {
            let again = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
            probe.saw("by /proc/self/fd", put(Path::new(&again), OFlags::WRONLY));
        }
        probe.saw("remove", fs::remove_file(&path).map_err(|error| errno(&error)));
    }
}

fn put(path: &Path, flags: OFlags) -> Result<(), Errno> {
    let fd = rustix::fs::open(path, flags | OFlags::NONBLOCK, Mode::empty())?;
    rustix::io::write(&fd, b"changed").map(|_| ())
}

fn truncate(path: &Path) -> Result<(), Errno> {
    task::truncate(path.as_os_str())
}

fn replace(path: &Path) -> Result<(), Errno> {
    let beside = path.with_extension("new");
    fs::write(&beside, b"changed").map_err(|error| errno(&error))?;
    fs::rename(&beside, path).map_err(|error| errno(&error))
}

/// Every way to change what a folder holds.
fn write_folder(probe: &Probe) {
    for folder in probe.paths() {
        let new = folder.join("new");
        probe.saw("create", fs::write(&new, b"x").map_err(|error| errno(&error)));
        probe.saw("mkdir", fs::create_dir(folder.join("d")).map_err(|error| errno(&error)));
        probe.saw("symlink", symlink("/etc/passwd", folder.join("l")).map_err(|error| errno(&error)));
        let kind = FileType::Fifo;
        probe.saw("mkfifo", rustix::fs::mknodat(CWD, folder.join("p"), kind, Mode::RWXU, 0));
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        probe.saw("unnamed file", rustix::fs::open(&folder, flags, Mode::RWXU));
        probe
            .saw("rename within", fs::rename(folder.join("file"), folder.join("moved")).map_err(|error| errno(&error)));
    }
}

/// Everything about a file that is not its content.
fn metadata(probe: &Probe) {
    for path in probe.paths() {
        probe
            .saw("chmod", fs::set_permissions(&path, fs::Permissions::from_mode(0o751)).map_err(|error| errno(&error)));
        let (uid, gid) = (Uid::from_raw(u32::MAX), Gid::from_raw(u32::MAX));
        // -1 changes nothing but clears set-id bits and moves the change time: it is answered as a real one would be.
        probe.saw("chown", rustix::fs::chownat(CWD, &path, Some(uid), Some(gid), AtFlags::empty()));
        let then = Timespec { tv_sec: 86400, tv_nsec: 0 };
        let times = Timestamps { last_access: then, last_modification: then };
        probe.saw("utimensat", rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()));
        probe.saw("setxattr", rustix::fs::setxattr(&path, c"user.fumehood", b"x", XattrFlags::empty()));
    }
}

/// A second name for a file of the host, and a change through it.
fn hard_link(probe: &Probe) {
    let (file, folder) = (probe.arg(0), probe.arg(1));
    let name = folder.join("second-name");
    let linked = fs::hard_link(&file, &name).map_err(|error| errno(&error));
    probe.saw("link", linked);
    if linked.is_ok() {
        probe.saw("write through it", put(&name, OFlags::WRONLY));
    }
}

/// Makes or changes files below a folder: folder, text, then names.
fn plant(probe: &Probe) {
    let folder = probe.arg(0);
    for name in probe.paths().into_iter().skip(1) {
        let path = folder.join(&name);
        if let Some(parent) = path.parent() {
            probe.saw("make the folder", fs::create_dir_all(parent).map_err(|error| errno(&error)));
        }
        let planted = fs::write(&path, b"#!/bin/sh\n# planted by a probe\n").map_err(|error| errno(&error));
        probe.saw(shown(&name), planted);
        // A second way, where writing in place is refused.
        let beside = folder.join("planted-beside");
        let renamed = fs::write(&beside, b"planted").and_then(|()| fs::rename(&beside, &path));
        probe.saw(format!("{} by rename", shown(&name)), renamed.map_err(|error| errno(&error)));
    }
}

/// Leaves in a folder what is no plain file, or has bits that no plain file needs.
fn plant_odd(probe: &Probe) {
    let folder = probe.arg(0);
    match probe.argument(1).as_str() {
        "set-id" => {
            let path = folder.join("file");
            let mode = fs::Permissions::from_mode(0o6755);
            probe.saw("chmod 6755", fs::set_permissions(&path, mode.clone()).map_err(|error| errno(&error)));
            let made =
                fs::write(folder.join("made"), b"x").and_then(|()| fs::set_permissions(folder.join("made"), mode));
            probe.saw("a new one", made.map_err(|error| errno(&error)));
        }
        "link-out" => {
            let path = folder.join("file");
            let swapped = fs::remove_file(&path).and_then(|()| symlink(probe.arg(2), &path));
            probe.saw("file becomes a link", swapped.map_err(|error| errno(&error)));
        }
        "future" => {
            let then = Timespec { tv_sec: 4_000_000_000, tv_nsec: 0 };
            let times = Timestamps { last_access: then, last_modification: then };
            probe.saw("mtime of 2096", rustix::fs::utimensat(CWD, folder.join("file"), &times, AtFlags::empty()));
        }
        "names" => {
            for name in ["-rf", "$(x)", "a\nb", "\u{1b}]52;c;eA==\u{7}", "a\u{202e}b"] {
                probe.saw("odd name", fs::write(folder.join(name), b"x").map_err(|error| errno(&error)));
            }
        }
        "control-pipes" => {
            // Where a supervisor, an editor or git will look: whoever opens one of them without care waits for ever.
            for name in [".mcp.json", ".envrc", ".gitattributes", "CLAUDE.md", "Makefile", "sub/package.json"] {
                let path = folder.join(name);
                probe.saw(name, rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0));
            }
        }
        "overlay-marks" => {
            let sub = folder.join("sub");
            for (name, value) in [(c"user.overlay.opaque", &b"y"[..]), (c"user.overlay.redirect", b"/../../etc")] {
                probe.saw("an overlay's mark", rustix::fs::setxattr(&sub, name, value, XattrFlags::empty()));
            }
            let gone = folder.join("gone");
            probe.saw("a whiteout", rustix::fs::mknodat(CWD, &gone, FileType::CharacterDevice, Mode::empty(), 0));
            let removed = fs::remove_file(folder.join("file"));
            probe.saw("a removal", removed.map_err(|error| errno(&error)));
        }
        _ => {
            probe.saw("fifo", rustix::fs::mknodat(CWD, folder.join("fifo"), FileType::Fifo, Mode::RWXU, 0));
            let socket = std::os::unix::net::UnixListener::bind(folder.join("socket"));
            probe.saw("socket", socket.map_err(|error| errno(&error)));
        }
    }
}

/// `FOLDER`: a program with rights that its user has not, by the attribute of its file.
fn capability(probe: &Probe) {
    let path = probe.arg(0).join("capable");
    if let Err(error) = fs::write(&path, b"#!/bin/sh\n") {
        return probe.saw::<()>("capabilities of a file", Err(errno(&error)));
    }
    // VFS_CAP_REVISION_2, effective, all of the first 32 (capability.h).
    let rights: [u32; 5] = [0x0200_0001, u32::MAX, 0, 0, 0];
    let bytes: Vec<u8> = rights.iter().flat_map(|part| part.to_le_bytes()).collect();
    let given = rustix::fs::setxattr(&path, c"security.capability", &bytes, XattrFlags::empty());
    probe.saw("capabilities of a file", given);
    removed(&path);
}

/// `FILE MS`: reads a file that is not there yet, until it is.
fn read_later(probe: &Probe) {
    let (path, until) = (probe.arg(0), Instant::now() + Duration::from_millis(probe.number(1)));
    while Instant::now() < until {
        if let Ok(text) = bytes(&path) {
            return probe.read(shown(&path), Ok(text));
        }
        rest(Duration::from_millis(20));
    }
    probe.read(shown(&path), bytes(&path));
}

/// Renames a folder away and builds another in its place.
fn swap_parent(probe: &Probe) {
    let (folder, name) = (probe.arg(0), probe.arg(1));
    let parent = folder.join(&name);
    probe.saw("rename away", fs::rename(&parent, folder.join("old")).map_err(|error| errno(&error)));
    let built =
        fs::create_dir_all(parent.join("hooks")).and_then(|()| fs::write(parent.join("hooks/pre-commit"), b"x"));
    probe.saw("build anew", built.map_err(|error| errno(&error)));
}

/// Makes files of these exact names, which the outside looks for.
fn create(probe: &Probe) {
    for path in probe.paths() {
        probe.saw(shown(&path), fs::write(&path, b"x").map_err(|error| errno(&error)));
    }
}

/// Opens for writing and writes nothing.
fn open_write(probe: &Probe) {
    for path in probe.paths() {
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let opened = rustix::fs::open(&path, flags, Mode::empty());
        // What is covered by /dev/null takes everything and is nothing.
        let is_null = |file: &_| rustix::fs::fstat(file).is_ok_and(|stat| stat.st_rdev == rustix::fs::makedev(1, 3));
        let opened = opened.and_then(|file| if is_null(&file) { Err(Errno::NODEV) } else { Ok(()) });
        // A running program: permission was given, only the moment is wrong.
        let opened = if opened == Err(Errno::TXTBSY) { Ok(()) } else { opened };
        probe.saw(shown(&path), opened);
    }
}

/// Holds its own program by a descriptor, becomes another program so that the first one is no longer busy, and opens it for
/// writing: the way of CVE-2019-5736. Nothing is written.
fn overwrite_program(probe: &Probe) {
    let path = probe.arg(0);
    let held = rustix::fs::open("/proc/self/exe", OFlags::PATH, Mode::empty())
        .or_else(|_| rustix::fs::open(&path, OFlags::PATH, Mode::empty()));
    let copied = fs::read("/proc/self/exe").or_else(|_| fs::read(&path)).map_err(|error| errno(&error));
    let became = held.and_then(|held| {
        let memory = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC)?;
        File::from(memory.try_clone().map_err(|e| errno(&e))?).write_all(&copied?).map_err(|error| errno(&error))?;
        // Through a descriptor that may only read, since one that may write keeps the file busy.
        let number = std::os::fd::AsRawFd::as_raw_fd(&memory);
        let program =
            rustix::fs::open(format!("/proc/self/fd/{number}"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        drop(memory);
        let held = std::os::fd::AsRawFd::as_raw_fd(&held).to_string();
        let words = ["fumehood", "__probe", "second", "overwrite-second", &held].map(OsStr::new);
        Err::<(), _>(task::exec(program, &[words[0], words[1], words[2], words[3], words[4], path.as_os_str()], &[]))
    });
    probe.saw("become another program", became);
    // Where it cannot be another program, it can at least ask for the file by its name; a busy one says nothing.
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    match rustix::fs::open(&path, flags, Mode::empty()) {
        Err(Errno::TXTBSY) => {}
        result => probe.saw("open by name", result),
    }
}

fn overwrite_second(probe: &Probe) {
    let door = PathBuf::from(format!("/proc/self/fd/{}", probe.argument(0)));
    for path in [door, probe.arg(1)] {
        probe.saw(
            "open the program for writing",
            rustix::fs::open(&path, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty()),
        );
    }
}

/// Opens for reading and reads nothing.
fn open_read(probe: &Probe) {
    for path in probe.paths() {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        probe.saw(shown(&path), rustix::fs::open(&path, flags, Mode::empty()));
    }
}

/// Opens an unnamed file in a folder of the host, given as `INODE:PATH`: the same name inside may be another folder.
fn make_in(probe: &Probe) {
    for word in &probe.args {
        let text = word.to_string_lossy().into_owned();
        let Some((inode, path)) = text.split_once(':') else { continue };
        let same = fs::metadata(path)
            .map_err(|error| errno(&error))
            .and_then(|meta| if meta.ino().to_string() == inode { Ok(()) } else { Err(Errno::NOENT) });
        let flags = OFlags::TMPFILE | OFlags::WRONLY;
        probe.saw(path, same.and_then(|()| rustix::fs::open(path, flags, Mode::RWXU)));
    }
}

/// Makes a device node of the host's disk (`MAJOR:MINOR`) and opens it, never reading.
fn node(probe: &Probe) {
    let word = probe.argument(0);
    let (major, minor) = word.split_once(':').unwrap_or(("1", "1"));
    let device = rustix::fs::makedev(major.parse().unwrap_or(1), minor.parse().unwrap_or(1));
    for folder in probe.paths().into_iter().skip(1) {
        let path = folder.join("fumehood-node");
        let made = rustix::fs::mknodat(CWD, &path, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, device);
        probe.saw(format!("mknod in {}", shown(&folder)), made);
        if made.is_ok() {
            probe.saw("open it", rustix::fs::open(&path, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()));
            removed(&path);
        }
    }
}

fn handles(probe: &Probe) {
    for folder in probe.paths() {
        let opened = rustix::fs::open(&folder, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty());
        let guessed = opened.and_then(|fd| ipc::open_by_guess(fd.as_fd(), 64).map(|_| ()));
        // A stale handle is what a guess gets from who would have opened the right one.
        let guessed = if guessed == Err(Errno::STALE) { Ok(()) } else { guessed };
        probe.saw("open by handle", guessed);
    }
}

/// Executes a program that changes its uid by the file's set-uid bit, and says which uid that made.
fn set_id(probe: &Probe) {
    let program = probe.arg(0);
    let opened = rustix::fs::open(&program, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    match opened {
        Ok(fd) => {
            let argv = [program.as_os_str(), OsStr::new("__probe"), OsStr::new("set-id"), OsStr::new("identity")];
            probe.saw::<()>("execute", Err(task::exec(fd, &argv, &[])));
        }
        Err(errno) => probe.saw::<()>("open", Err(errno)),
    }
}

/// Copies itself to writable places and into memory, and executes the copy.
fn execute(probe: &Probe) {
    let Ok(program) = fs::read("/proc/self/exe").or_else(|_| fs::read(probe.arg(0))) else {
        return probe.saw::<()>("own program", Err(Errno::NOENT));
    };
    for place in probe.paths().into_iter().skip(1) {
        if place.as_os_str() == "memfd" {
            let made = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::empty());
            let filled = made.and_then(|fd| {
                File::from(fd.try_clone().map_err(|error| errno(&error))?)
                    .write_all(&program)
                    .map_err(|e| errno(&e))?;
                started(fd)
            });
            probe.saw("memory", filled);
            continue;
        }
        let path = place.join("fumehood-copy");
        let written =
            fs::write(&path, &program).and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o755)));
        let run = written
            .map_err(|error| errno(&error))
            .and_then(|()| started(rustix::fs::open(&path, OFlags::RDONLY, Mode::empty())?));
        probe.saw(shown(&place), run);
        removed(&path);
    }
}

/// Takes away what a try made; what stays is in a folder of the run, which goes with it.
fn removed(path: &Path) {
    if fs::remove_file(path).is_err() {
        // It was not made, or the folder is already gone.
    }
}

/// Whether executing a file works: in a child, with the probe that does nothing.
fn started(fd: std::os::fd::OwnedFd) -> Result<(), Errno> {
    let argv = ["fumehood", "__probe", "copy", "nothing-said"].map(OsStr::new);
    let ended = task::in_child(|| {
        // A program that is held open for writing is busy: only the error tells.
        let error = task::exec(fd, &argv, &[]);
        if error == Errno::TXTBSY { 0 } else { u8::try_from(error.raw_os_error()).unwrap_or(255) }
    })?;
    match ended {
        // 125: the copy ran, and did not know the name.
        task::Ended::Code(0 | 125) => Ok(()),
        task::Ended::Code(code) => Err(Errno::from_raw_os_error(i32::from(code))),
        task::Ended::Signal(_) => Err(Errno::PERM),
    }
}

/// What is learnt about a file without reading it.
fn stat(probe: &Probe) {
    for path in probe.paths() {
        match fs::metadata(&path) {
            Ok(meta) => probe.found("stat", format!("size={}", meta.len())),
            Err(error) => probe.saw::<()>("stat", Err(errno(&error))),
        }
        let access = rustix::fs::access(&path, rustix::fs::Access::EXISTS);
        probe.tell(&super::Try {
            name: "access".to_owned(),
            possible: access.is_ok(),
            errno: access.err().map_or(0, Errno::raw_os_error),
            text: if access.is_ok() { "exists".to_owned() } else { String::new() },
        });
        if let Some(parent) = path.parent() {
            probe.saw("chdir", std::env::set_current_dir(parent).map_err(|error| errno(&error)));
        }
    }
}

/// The names in folders.
fn list(probe: &Probe) {
    for folder in probe.paths() {
        match fs::read_dir(&folder) {
            Ok(entries) => {
                let names: Vec<_> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
                let text = names.join(" ");
                probe.tell(&super::Try { name: shown(&folder), possible: !names.is_empty(), errno: 0, text });
            }
            Err(error) => probe.saw::<()>(shown(&folder), Err(errno(&error))),
        }
    }
}

/// `PATH HOW`: holds a file that can only be read, so that others cannot use it as before. Tried again for half a second: whoever
/// looks from outside may be in the way.
fn hold_file(probe: &Probe) {
    let how = probe.argument(1);
    let file = match File::open(probe.arg(0)) {
        Ok(file) => file,
        Err(error) => return probe.saw::<()>(how, Err(errno(&error))),
    };
    // A lease that is to be given back is told by a signal.
    task::ignore_signals();
    let hold = || match how.as_str() {
        "lock" => rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive),
        "lease" => hide::lease(&file),
        _ => rustix::fs::ioctl_getflags(&file).and_then(|flags| {
            let more = rustix::fs::IFlags::NODUMP | rustix::fs::IFlags::NOATIME;
            rustix::fs::ioctl_setflags(&file, flags | more)
        }),
    };
    let mut held = hold();
    for _ in 0..20 {
        if held != Err(Errno::AGAIN) {
            break;
        }
        rest(Duration::from_millis(25));
        held = hold();
    }
    probe.saw(how.clone(), held);
    rest(Duration::from_millis(700));
}

/// `FOLDER MS`: is told of the first name that is made in a folder.
fn watch_folder(probe: &Probe) {
    use rustix::fs::inotify;
    let until = Instant::now() + Duration::from_millis(probe.number(1));
    let watched = inotify::init(inotify::CreateFlags::NONBLOCK).and_then(|fd| {
        inotify::add_watch(&fd, probe.arg(0), inotify::WatchFlags::CREATE)?;
        Ok(fd)
    });
    let fd = match watched {
        Ok(fd) => fd,
        Err(errno) => return probe.saw::<()>("watch", Err(errno)),
    };
    let mut events = [0; 4096];
    while Instant::now() < until {
        if let Ok(length @ 1..) = rustix::io::read(&fd, &mut events) {
            let told = String::from_utf8_lossy(events.get(..length).unwrap_or_default()).replace('\0', "");
            return probe.found("a name", told);
        }
        rest(Duration::from_millis(20));
    }
    probe.saw::<()>("be told", Err(Errno::TIMEDOUT));
}
