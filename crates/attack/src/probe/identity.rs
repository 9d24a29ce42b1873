//! Tries to learn who and where the host is, and what is left of others.

use std::os::fd::AsFd as _;

use ::probe::{ipc, task};

use super::{Entry, Probe};

pub(super) const PROBES: &[Entry] = &[
    ("identity", identity),
    ("nothing-said", |_| ()),
    ("environment", environment),
    ("segment-read", segment_read),
    ("queue-read", queue_read),
    ("segment-leave", segment_leave),
    ("queue-leave", queue_leave),
    ("type-in", type_in),
    ("whose-terminal", whose_terminal),
];

/// The uid that counts, for the program that a set-uid bit should have raised.
fn identity(probe: &Probe) {
    probe.found("identity", format!("euid={}", rustix::process::geteuid().as_raw()));
}

/// Its own environment, by the C library and by the kernel.
fn environment(probe: &Probe) {
    let own: Vec<_> = std::env::vars_os().map(|(name, value)| format!("{name:?}={value:?}")).collect();
    probe.found("own environment", own.join(" "));
    let Ok(folder) = std::fs::read_dir("/proc") else { return };
    for entry in folder.flatten().take(4000) {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid.bytes().all(|byte| byte.is_ascii_digit()) {
            for file in ["environ", "cmdline"] {
                if let Ok(bytes) = std::fs::read(entry.path().join(file)) {
                    probe.read(format!("{file} of {pid}"), Ok(bytes));
                }
            }
        }
    }
}

fn key(probe: &Probe) -> i32 {
    i32::try_from(probe.number(0)).unwrap_or(1)
}

/// `KEY`: System V memory that somebody outside has made.
fn segment_read(probe: &Probe) {
    match ipc::read_segment(key(probe), 64) {
        Ok(bytes) => probe.read("System V segment", Ok(bytes)),
        Err(errno) => probe.saw::<()>("System V segment", Err(errno)),
    }
}

/// `NAME`: a message queue that somebody outside has made.
fn queue_read(probe: &Probe) {
    let Ok(name) = std::ffi::CString::new(format!("/{}", probe.argument(0))) else { return };
    probe.saw("message queue", ipc::open_queue(&name, false));
}

/// `KEY`: leaves System V memory behind.
fn segment_leave(probe: &Probe) {
    probe.saw("System V segment", ipc::make_segment(key(probe), 1 << 20, b"left"));
}

/// `NAME`: leaves a message queue behind.
fn queue_leave(probe: &Probe) {
    let Ok(name) = std::ffi::CString::new(format!("/{}", probe.argument(0))) else { return };
    probe.saw("message queue", ipc::open_queue(&name, true));
}

/// Which terminal the caller sits at, by the standard descriptors and by what `/proc` says of this process.
fn whose_terminal(probe: &Probe) {
    for number in 0..3 {
        let link = std::fs::read_link(format!("/proc/self/fd/{number}"));
        probe.read(format!("link of {number}"), link.map(|path| path.into_os_string().into_encoded_bytes()));
    }
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    for fd in [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()] {
        let name = rustix::termios::ttyname(fd, Vec::new()).map(|name| name.into_bytes());
        probe.read("ttyname", name.map_err(std::io::Error::from));
    }
}

/// `HIGH TEXT`: types into every terminal among the standard descriptors, and into `/dev/tty`.
fn type_in(probe: &Probe) {
    let high = probe.number(0);
    let terminal = std::fs::File::open("/dev/tty");
    let (stdin, stdout, stderr) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    let mut fds = vec![("stdin", stdin.as_fd()), ("stdout", stdout.as_fd()), ("stderr", stderr.as_fd())];
    if let Ok(terminal) = &terminal {
        fds.push(("/dev/tty", terminal.as_fd()));
    }
    for (name, fd) in fds {
        for byte in probe.argument(1).bytes() {
            probe.saw(format!("{name} {}", char::from(byte)), task::type_into_terminal(fd, byte, high));
        }
    }
}
