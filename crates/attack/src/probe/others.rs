//! Tries on what other runs hold or leave, on what the supervisor reads, and by doors that few look at.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::symlink;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ::probe::{doors, ipc, task};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use sys::pidfd;

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("leave", leave),
    ("look-left", look_left),
    ("hold-secret", hold_secret),
    ("look-beside", look_beside),
    ("say-where", say_where),
    ("garbage", garbage),
    ("holes", holes),
    ("write-until", write_until),
    ("stdin-folder", stdin_folder),
    ("metadata-newer", metadata_newer),
    ("parent-descriptors", parent_descriptors),
    ("namespace-doors", namespace_doors),
    ("claim-init", claim_init),
    ("discipline", discipline),
    ("flood", flood),
    ("write-by-link", write_by_link),
];

/// Where programs leave things for later.
fn places(name: &str) -> Vec<PathBuf> {
    let own = ["HOME", "TMPDIR", "XDG_RUNTIME_DIR"].iter().filter_map(std::env::var_os).map(PathBuf::from);
    let known = ["/tmp", "/var/tmp", "/dev/shm", "/run", "/run/lock"].map(PathBuf::from);
    own.chain(known).map(|folder| folder.join(name)).collect()
}

/// `TOKEN NAME KEY`: leaves a secret wherever it can.
fn leave(probe: &Probe) {
    for path in places(&probe.argument(1)) {
        probe.saw(path.to_string_lossy(), fs::write(&path, probe.argument(0)).map_err(|error| errno(&error)));
    }
    let key = i32::try_from(probe.number(2)).unwrap_or(1);
    probe.saw("System V segment", ipc::make_segment(key, 4096, probe.argument(0).as_bytes()));
}

/// `NAME KEY`: looks for what somebody before has left.
fn look_left(probe: &Probe) {
    for path in places(&probe.argument(0)) {
        probe.read(path.to_string_lossy(), fs::read(&path));
    }
    let key = i32::try_from(probe.number(1)).unwrap_or(1);
    probe.read("System V segment", ipc::read_segment(key, 64).map_err(std::io::Error::from));
}

fn abstract_name(name: &str) -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name.as_bytes())
}

/// `TOKEN NAME KEY MS`: as [`leave`], and answers with the secret at an abstract socket for a while.
fn hold_secret(probe: &Probe) {
    leave(probe);
    let until = Instant::now() + Duration::from_millis(probe.number(3).min(6000));
    let listener = abstract_name(&probe.argument(1)).and_then(|name| UnixListener::bind_addr(&name));
    let ready = listener.as_ref().is_ok_and(|listener| listener.set_nonblocking(true).is_ok());
    while Instant::now() < until {
        if ready
            && let Ok(listener) = &listener
            && let Ok((mut stream, _)) = listener.accept()
            && stream.write_all(probe.argument(0).as_bytes()).is_err()
        {
            // Who asked has gone.
        }
        rest(Duration::from_millis(20));
    }
    for path in places(&probe.argument(1)) {
        if fs::remove_file(path).is_err() {
            // It was never made.
        }
    }
}

/// `NAME KEY`: looks for what somebody beside holds.
fn look_beside(probe: &Probe) {
    look_left(probe);
    let answer = abstract_name(&probe.argument(0)).and_then(|name| {
        let mut stream = UnixStream::connect_addr(&name)?;
        stream.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut bytes = vec![0; 64];
        let length = stream.read(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    });
    probe.read("abstract socket", answer);
    let Ok(folder) = fs::read_dir("/proc") else { return };
    for entry in folder.flatten().filter(|entry| entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit)) {
        if let Ok(words) = fs::read(entry.path().join("cmdline")) {
            probe.read("cmdline", Ok(words));
        }
    }
}

/// What a program learns of where it is by asking, and by being refused.
fn say_where(probe: &Probe) {
    let cwd = std::env::current_dir().map(|path| path.into_os_string().into_encoded_bytes());
    probe.read("working directory", cwd);
    for name in ["/etc/shadow", "/root/.ssh/id_rsa", "../outside", "/proc/1/environ"] {
        if let Err(error) = fs::read(name) {
            probe.saw::<()>(name, Err(errno(&error)));
            eprintln_bounded(&format!("cat: {name}: Permission denied"));
        }
    }
}

fn eprintln_bounded(text: &str) {
    if writeln!(std::io::stderr(), "{text}").is_err() {
        // Nobody listens any more.
    }
}

/// `KIB`: what looks like frames, with lengths that nobody would believe, into every descriptor that there is.
fn garbage(probe: &Probe) {
    let mut frame = vec![0xff_u8; 12];
    frame.extend_from_slice(&[0x7f, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0x80]);
    let frames = frame.repeat(1024 / frame.len() + 1);
    for number in 3..64 {
        let Some(fd) = task::inherited(number) else { continue };
        probe.saw(format!("descriptor {number}"), rustix::io::write(fd, &frames));
    }
    for _ in 0..probe.number(0).min(8192) {
        let out = std::io::stdout().lock().write_all(&frames);
        if out.is_err() || std::io::stderr().lock().write_all(&frames).is_err() {
            return;
        }
    }
}

/// `COUNT MIB FOLDER`: files that hold next to nothing and look large.
fn holes(probe: &Probe) {
    let mut made = 0;
    for number in 0..probe.number(0).min(256) {
        let file = File::create(probe.arg(2).join(format!("hole-{number}")));
        let sized = file.and_then(|mut file| {
            // Each another one, so that none is kept for another.
            file.write_all(&number.to_le_bytes())?;
            file.set_len(probe.number(1).min(64) << 20)
        });
        made += u64::from(sized.is_ok());
    }
    probe.found("files with holes", format!("mib={}", made * probe.number(1)));
}

/// `FILE MS`: makes a file again and again, so that it is made whatever its folder is at the moment.
fn write_until(probe: &Probe) {
    let until = Instant::now() + Duration::from_millis(probe.number(1).min(3000));
    let mut made = Err(Errno::NOENT);
    while Instant::now() < until {
        made = fs::write(probe.arg(0), b"planted").map_err(|error| errno(&error)).or(made);
        rest(Duration::from_millis(1));
    }
    probe.saw("make it", made);
}

/// `NAME`: standard input, were it a folder of the host.
fn stdin_folder(probe: &Probe) {
    let name = probe.argument(0);
    let stdin = std::io::stdin();
    probe.read("below standard input", below(stdin.as_fd(), Path::new(&name)));
    for door in ["/proc/self/fd/0", "/dev/stdin", "/dev/fd/0"] {
        probe.read(door, fs::read(Path::new(door).join(&name)));
    }
    let entered = rustix::process::fchdir(stdin.as_fd());
    probe.saw("enter it", entered);
    if entered.is_ok() {
        probe.read("from within", fs::read(&name));
    }
}

fn below(fd: BorrowedFd<'_>, name: &Path) -> std::io::Result<Vec<u8>> {
    let file = rustix::fs::openat(fd, name, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty())?;
    let mut text = Vec::new();
    File::from(file).take(4096).read_to_end(&mut text).map(|_| text)
}

/// Everything about a file that is not its content, by calls that a filter may not know yet.
fn metadata_newer(probe: &Probe) {
    for path in probe.paths() {
        let path: &OsStr = path.as_os_str();
        probe.saw("fchmodat2", doors::change_mode(path, 0o751));
        probe.saw("setxattrat", doors::set_attribute(path));
        probe.saw("file_setattr", doors::set_flags(path));
    }
}

/// Copies of the descriptors of whoever started it.
fn parent_descriptors(probe: &Probe) {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    for pid in [parent, 1] {
        match pidfd::open(pid) {
            Err(error) => probe.saw::<()>(format!("pidfd_open {pid}"), Err(error.errno)),
            Ok(fd) => {
                for number in 0..4 {
                    probe.saw(format!("descriptor {number}"), task::take_descriptor(fd.as_fd(), number));
                }
            }
        }
    }
}

/// Namespaces by controls of a pidfd (`PIDFD_GET_*_NAMESPACE`, 6.11), and what lies above its own (`NS_GET_USERNS`,
/// `NS_GET_PARENT`).
fn namespace_doors(probe: &Probe) {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    match pidfd::open(parent) {
        Err(error) => probe.saw::<()>("pidfd_open", Err(error.errno)),
        Ok(fd) => {
            for (name, number) in [("mount", 3), ("net", 4), ("pid", 5), ("user", 9)] {
                probe.saw(format!("{name} namespace of whoever started it"), doors::control(&fd, 0xff00 | number));
            }
        }
    }
    for (kind, request) in [("user", 0xb701), ("user", 0xb702), ("pid", 0xb702)] {
        let opened = File::open(format!("/proc/self/ns/{kind}")).map_err(|error| errno(&error));
        probe.saw(format!("above its {kind} namespace"), opened.and_then(|file| doors::control(file, request)));
    }
}

fn claim_init(probe: &Probe) {
    let pair = UnixStream::pair().map_err(|error| errno(&error));
    probe.saw("process 1", pair.and_then(|(ours, _theirs)| doors::claim_to_be_init(ours)));
}

/// Another line discipline for a terminal of its own: `N_NULL` and `N_GSM0710`.
fn discipline(probe: &Probe) {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let terminal = rustix::fs::open("/dev/ptmx", flags, Mode::empty());
    let terminal = terminal.or_else(|_| rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty()));
    for number in [27, 21] {
        let set = terminal.as_ref().map_err(|errno| *errno);
        let set = set.and_then(|terminal| doors::set_discipline(terminal, number));
        probe.saw(format!("line discipline {number}"), set);
    }
}

/// `ADDRESS TOKEN`: two hundred datagrams at once.
fn flood(probe: &Probe) {
    let sent = probe.argument(0).parse().map_err(|_wrong| Errno::INVAL).and_then(|to: std::net::SocketAddr| {
        let socket = ::probe::net::socket(if to.is_ipv4() { 2 } else { 10 }, 2, 0)?;
        for _ in 0..200 {
            rustix::net::sendto(&socket, probe.argument(1).as_bytes(), rustix::net::SendFlags::NOSIGNAL, &to)?;
        }
        Ok(())
    });
    probe.saw("two hundred datagrams", sent);
}

/// `FOLDER FILE`: writes to a file through links in a folder, which it makes itself.
fn write_by_link(probe: &Probe) {
    let (folder, file) = (probe.arg(0), probe.arg(1));
    let beside = Path::new("..").join(file.file_name().unwrap_or_default());
    for (name, target) in [("absolute", fs::canonicalize(&file).unwrap_or_else(|_| file.clone())), ("relative", beside)]
    {
        let link = folder.join(name);
        // Where no link can be made, nothing was tried: no answer is one.
        if symlink(&target, &link).is_ok() {
            let opened =
                fs::OpenOptions::new().append(true).open(&link).and_then(|mut file| file.write_all(b"planted"));
            probe.saw(format!("{name} link"), opened.map_err(|error| errno(&error)));
        }
    }
}
