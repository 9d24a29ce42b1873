//! Tries on other processes: of the host (a neighbour that was set up for it), of the sandbox itself, and to outlive it.

use std::ffi::OsStr;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::Duration;

use ::probe::task::{self, Ended, Forked};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::io::Errno;
use sys::pidfd;

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("signal", signal),
    ("trace", trace),
    ("memory-of", memory_of),
    ("descriptor-of", descriptor_of),
    ("limit-of", limit_of),
    ("rank-of", rank_of),
    ("namespaces", namespaces),
    ("join-own", join_own),
    ("join-of", join_of),
    ("init-open", init_open),
    ("init-signal", init_signal),
    ("files-of", files_of),
    ("daemon", daemon),
    ("raise-limits", raise_limits),
    ("all-cores", all_cores),
    ("oom-score", oom_score),
    ("load-memory", load_memory),
];

/// `PID`: really ends it, if it may: the outside sees whether the neighbour lives.
fn signal(probe: &Probe) {
    let sent = pidfd::open(probe.pid(0)).and_then(|fd| pidfd::send_signal(fd, 10));
    probe.saw("SIGUSR1", sent.map_err(|error| error.errno));
}

fn trace(probe: &Probe) {
    probe.saw("ptrace", task::trace(probe.pid(0)));
}

/// `PID ADDRESS`: the neighbour's memory, where its secret lies.
fn memory_of(probe: &Probe) {
    use std::os::unix::fs::FileExt as _;
    let (pid, address) = (probe.pid(0), probe.number(1));
    let mut bytes = [0; 64];
    let at = usize::try_from(address).unwrap_or(0);
    match task::read_memory(pid, at, &mut bytes) {
        Ok(_) => probe.read("process_vm_readv", Ok(bytes.to_vec())),
        Err(errno) => probe.saw::<()>("process_vm_readv", Err(errno)),
    }
    let file = std::fs::File::open(format!("/proc/{pid}/mem"));
    probe.read("/proc/PID/mem", file.and_then(|file| file.read_at(&mut bytes, address).map(|_| bytes.to_vec())));
}

/// `PID`: copies of its descriptors, read.
fn descriptor_of(probe: &Probe) {
    let fd = match pidfd::open(probe.pid(0)) {
        Ok(fd) => fd,
        Err(error) => return probe.saw::<()>("pidfd_open", Err(error.errno)),
    };
    for number in 0..12 {
        let taken = task::take_descriptor(fd.as_fd(), number);
        if let Ok(taken) = &taken {
            let mut bytes = [0; 64];
            if let Ok(length) = rustix::io::pread(taken, &mut bytes, 0) {
                let text = String::from_utf8_lossy(bytes.get(..length).unwrap_or_default()).into_owned();
                probe.found(format!("descriptor {number}"), text);
                continue;
            }
        }
        probe.saw(format!("descriptor {number}"), taken);
    }
}

fn limit_of(probe: &Probe) {
    probe.saw("prlimit", task::may_limit(probe.pid(0)));
}

/// `PID`: what the kernel says of a process by its number alone.
fn rank_of(probe: &Probe) {
    let pid = probe.pid(0);
    let seen = match task::may_signal(pid) {
        Err(Errno::PERM) => Ok(()),
        result => result,
    };
    probe.saw("kill 0 tells that it exists", seen);
    let number = rustix::process::Pid::from_raw(pid);
    probe.saw("getsid", rustix::process::getsid(number));
    probe.saw("getpriority", rustix::process::getpriority_process(number));
}

/// New namespaces by clone and clone3, whose flags lie in memory.
fn namespaces(probe: &Probe) {
    let three = probe.argument(0) == "clone3";
    for (name, flag) in [
        ("user", 0x1000_0000_u64),
        ("user+mount", 0x1002_0000),
        ("user+net", 0x5000_0000),
        ("user+pid", 0x3000_0000),
        ("user+ipc+uts", 0x1c00_0000),
    ] {
        probe.saw(name, if three { task::clone3(flag) } else { task::clone(flag) });
    }
}

/// Its own namespaces again by descriptor: needs what only a privileged process has.
fn join_own(probe: &Probe) {
    let own = rustix::process::getpid().as_raw_nonzero().get();
    for (name, kind) in [("uts", 0x0400_0000), ("net", 0x4000_0000), ("ipc", 0x0800_0000)] {
        let joined = pidfd::open(own).map_err(|error| error.errno).and_then(|fd| task::join(fd, kind));
        probe.saw(format!("setns {name}"), joined);
    }
}

fn join_of(probe: &Probe) {
    let joined = pidfd::open(probe.pid(0)).map_err(|error| error.errno).and_then(|fd| task::join(fd, 0x4000_0000));
    probe.saw("setns to the neighbour's network", joined);
}

/// The program that holds the sandbox, by what `/proc` shows of process 1 and of the parent.
fn init_open(probe: &Probe) {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    for pid in [1, parent] {
        for file in ["mem", "environ", "maps", "auxv", "stack", "fd/0", "fd/3", "fd/5", "root/.", "cwd/."] {
            let path = format!("/proc/{pid}/{file}");
            let opened = std::fs::File::open(&path);
            probe.saw(path, opened.map_err(|error| errno(&error)));
        }
        probe.saw(format!("ptrace {pid}"), task::trace(pid));
    }
}

fn init_signal(probe: &Probe) {
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_nonzero().get());
    for pid in [1, parent] {
        probe.saw(format!("signal to {pid}"), task::may_signal(pid));
        probe.saw(format!("prlimit of {pid}"), task::may_limit(pid));
    }
}

/// `PID`: everything that `/proc` says of it.
fn files_of(probe: &Probe) {
    let pid = probe.pid(0);
    for file in
        ["environ", "cmdline", "maps", "auxv", "status", "stat", "io", "wchan", "syscall", "mountinfo", "cgroup"]
    {
        probe.read(file, std::fs::read(format!("/proc/{pid}/{file}")));
    }
    for link in ["exe", "cwd", "root"] {
        let read = std::fs::read_link(format!("/proc/{pid}/{link}"));
        probe.read(link, read.map(|path| path.into_os_string().into_encoded_bytes()));
    }
}

/// `HOW`: leaves a process that has nothing to do with its parent any more.
fn daemon(probe: &Probe) {
    let how = probe.argument(0);
    let made = task::fork();
    if made == Ok(Forked::Child) {
        if rustix::process::setsid().is_err() {
            task::leave(1);
        }
        if task::fork() != Ok(Forked::Child) {
            task::leave(0);
        }
        task::ignore_signals();
        if how == "storm" {
            // A chain: each child is born while its parent is being killed, for a bounded time.
            let until = std::time::Instant::now() + Duration::from_secs(3);
            while std::time::Instant::now() < until {
                if let Ok(Forked::Parent(_)) = task::fork() {
                    task::leave(0);
                } else {
                    rest(Duration::from_millis(4));
                }
            }
            task::leave(0);
        }
        if how == "stopped" {
            task::stop();
        }
        rest(Duration::from_secs(8));
        task::leave(0);
    }
    probe.saw("daemon", made);
    if how == "session" || how == "held-output" || how == "storm" || how == "stopped" {
        rest(Duration::from_millis(100));
    }
    if how == "stays" {
        rest(Duration::from_secs(3));
    }
}

/// Its own limits, hard ones included, one above what they are.
fn raise_limits(probe: &Probe) {
    for (name, number) in [
        ("files", 7_u32),
        ("processes", 6),
        ("file size", 1),
        ("locked memory", 8),
        ("priority", 13),
        ("real time", 14),
        ("queues", 12),
    ] {
        let raised = task::limit(number).and_then(|(_, hard)| {
            if hard == u64::MAX { Err(Errno::NOTSUP) } else { task::set_limit(number, hard + 1) }
        });
        probe.saw(format!("more {name}"), raised);
    }
}

fn all_cores(probe: &Probe) {
    match task::set_affinity_all() {
        Ok(cores) => probe.found("sched_setaffinity", format!("cores={cores}")),
        Err(errno) => probe.saw::<()>("sched_setaffinity", Err(errno)),
    }
}

/// Asks to be the last whom the kernel kills for memory.
fn oom_score(probe: &Probe) {
    let written = std::fs::write("/proc/self/oom_score_adj", b"-1000");
    probe.saw("oom_score_adj -1000", written.map_err(|error| errno(&error)));
}

/// `PROGRAM LOADER`: copies a program into memory that is sealed against being executed, and gives it to the dynamic loader.
fn load_memory(probe: &Probe) {
    probe.saw("by the loader", loaded(probe));
}

fn loaded(probe: &Probe) -> Result<(), Errno> {
    let made = rustix::fs::memfd_create("probe", MemfdFlags::NOEXEC_SEAL).or_else(|error| match error {
        // Linux before 6.3 knows no such seal.
        Errno::INVAL => rustix::fs::memfd_create("probe", MemfdFlags::empty()),
        other => Err(other),
    });
    let mut memory = std::fs::File::from(made?);
    let program = std::fs::read(probe.arg(0)).map_err(|error| errno(&error))?;
    memory.write_all(&program).map_err(|error| errno(&error))?;
    let (loader, door) = (probe.arg(1), format!("/proc/self/fd/{}", memory.as_raw_fd()));
    let opened = rustix::fs::open(&loader, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let ended = task::in_child(|| {
        let error = task::exec(opened, &[loader.as_os_str(), OsStr::new(&door)], &[]);
        u8::try_from(error.raw_os_error()).unwrap_or(255)
    })?;
    match ended {
        Ended::Code(0) => Ok(()),
        // The loader's own, when it cannot map a file.
        Ended::Code(127) => Err(Errno::ACCESS),
        Ended::Code(code) => Err(Errno::from_raw_os_error(i32::from(code))),
        Ended::Signal(_) => Err(Errno::PERM),
    }
}
