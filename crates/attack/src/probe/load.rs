//! Tries to take more than the limits give, each bounded by what its arguments say.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ::probe::task::{self, Forked};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] = &[
    ("memory", memory),
    ("memory-tree", memory_tree),
    ("memory-files", memory_files),
    ("memory-memfd", memory_memfd),
    ("forks", forks),
    ("threads", threads),
    ("spin", spin),
    ("spin-children", spin_children),
    ("spin-between", spin_between),
    ("sleep", sleep),
    ("stop", stop),
    ("shout", shout),
    ("complain", complain),
    ("fill", fill),
    ("fill-open", fill_open),
    ("reserve", |probe| reserve(probe, FallocateFlags::empty())),
    ("reserve-behind", |probe| reserve(probe, FallocateFlags::KEEP_SIZE)),
    ("big-file", big_file),
    ("write-direct", write_direct),
    ("many-files", many_files),
    ("descriptors", descriptors),
    ("watches", watches),
    ("pipes", pipes),
];

const MIB: usize = 1 << 20;
/// No probe makes more processes or threads than this.
const MAX_TASKS: u64 = 200;
/// How long a load stays so that the outside sees it.
const STAY: Duration = Duration::from_millis(300);

fn mib(probe: &Probe, at: usize) -> usize {
    usize::try_from(probe.number(at)).unwrap_or(0).min(512)
}

/// Memory that is really there: each page written.
fn touched(mib: usize) -> Vec<u8> {
    let mut memory = vec![0_u8; mib * MIB];
    for page in memory.chunks_mut(4096) {
        if let Some(byte) = page.first_mut() {
            *byte = 1;
        }
    }
    memory
}

/// `MIB`: one process, step by step.
fn memory(probe: &Probe) {
    let mut kept = Vec::new();
    for step in 0..mib(probe, 0) / 4 {
        kept.push(touched(4));
        if step % 4 == 3 {
            probe.found("has", format!("mib={}", (step + 1) * 4));
        }
    }
    rest(STAY);
    probe.found("all", format!("steps={}", kept.len()));
}

/// `CHILDREN MIB`: each child a part.
fn memory_tree(probe: &Probe) {
    let each = mib(probe, 1);
    let mut children = Vec::new();
    for _ in 0..probe.number(0).min(16) {
        match task::fork() {
            Ok(Forked::Child) => {
                let kept = touched(each);
                rest(STAY * 3);
                task::leave(u8::from(kept.is_empty()));
            }
            Ok(Forked::Parent(pid)) => children.push(pid),
            Err(errno) => probe.saw::<()>("fork", Err(errno)),
        }
    }
    let mut ended = 0;
    for pid in children {
        ended += usize::from(task::wait(pid) == Ok(task::Ended::Code(0)));
    }
    probe.found("all", format!("children={ended}"));
}

/// `MIB FOLDERS`: files in memory file systems.
fn memory_files(probe: &Probe) {
    let parts = mib(probe, 0);
    let block = vec![1_u8; MIB];
    for folder in probe.paths().into_iter().skip(1) {
        let path = folder.join("fumehood-load");
        let mut written = 0;
        let filled = File::create(&path).and_then(|mut file| {
            for _ in 0..parts {
                file.write_all(&block)?;
                written += 1;
            }
            Ok(())
        });
        probe.tell(&super::Try {
            name: folder.to_string_lossy().into_owned(),
            possible: filled.is_ok(),
            errno: filled.as_ref().err().map_or(0, |error| errno(error).raw_os_error()),
            text: format!("mib={written}"),
        });
        rest(STAY);
        probe.saw("remove it", fs::remove_file(&path).map_err(|error| errno(&error)));
    }
}

/// `MIB`: a file that no folder holds.
fn memory_memfd(probe: &Probe) {
    let block = vec![1_u8; MIB];
    // Who is refused it has none.
    probe.found("has", "mib=0");
    let filled = rustix::fs::memfd_create("load", MemfdFlags::CLOEXEC).and_then(|fd| {
        let mut file = File::from(fd);
        for step in 0..mib(probe, 0) {
            file.write_all(&block).map_err(|error| errno(&error))?;
            if step % 16 == 15 {
                probe.found("has", format!("mib={}", step + 1));
            }
        }
        rest(STAY);
        Ok(())
    });
    probe.saw("all", filled);
}

/// `COUNT HOW`: processes that stay, flat or each in a session of its own.
fn forks(probe: &Probe) {
    let own_sessions = probe.argument(1) == "sessions";
    let mut made = 0;
    let mut failure = None;
    for _ in 0..probe.number(0).min(MAX_TASKS) {
        match task::fork() {
            Ok(Forked::Child) => {
                if own_sessions && (rustix::process::setsid().is_err() || task::fork() != Ok(Forked::Child)) {
                    rest(Duration::from_millis(20));
                    task::leave(0);
                }
                rest(STAY * 3);
                task::leave(0);
            }
            Ok(Forked::Parent(_)) => made += 1,
            Err(errno) => {
                failure = Some(errno);
                break;
            }
        }
    }
    rest(STAY * 2);
    probe.tell(&super::Try {
        name: "forks".to_owned(),
        possible: failure.is_none(),
        errno: failure.map_or(0, Errno::raw_os_error),
        text: format!("made={made}"),
    });
    rest(STAY * 2);
}

/// `COUNT`: threads that stay.
fn threads(probe: &Probe) {
    let mut made = Vec::new();
    let mut failure = None;
    for _ in 0..probe.number(0).min(MAX_TASKS) {
        let builder = std::thread::Builder::new().stack_size(64 << 10);
        match builder.spawn(|| rest(STAY * 3)) {
            Ok(handle) => made.push(handle),
            Err(error) => {
                failure = Some(errno(&error));
                break;
            }
        }
    }
    rest(STAY);
    probe.tell(&super::Try {
        name: "threads".to_owned(),
        possible: failure.is_none(),
        errno: failure.map_or(0, Errno::raw_os_error),
        text: format!("made={}", made.len()),
    });
    for handle in made {
        if handle.join().is_err() {
            break;
        }
    }
}

fn burn(time: Duration) {
    let until = Instant::now() + time;
    let mut number = 1_u64;
    while Instant::now() < until {
        for _ in 0..2000 {
            number = std::hint::black_box(number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    }
}

/// `PROCESSES MILLISECONDS`: computes on as many cores as there are.
fn spin(probe: &Probe) {
    let time = Duration::from_millis(probe.number(1).min(5000));
    let mut children = Vec::new();
    for _ in 0..probe.number(0).min(8) {
        match task::fork() {
            Ok(Forked::Child) => {
                burn(time);
                task::leave(0);
            }
            Ok(Forked::Parent(pid)) => children.push(pid),
            Err(errno) => probe.saw::<()>("fork", Err(errno)),
        }
    }
    for pid in children {
        probe.saw("burned", task::wait(pid));
    }
}

/// `MILLISECONDS`: computes in children that each end before anybody counts them.
fn spin_children(probe: &Probe) {
    let until = Instant::now() + Duration::from_millis(probe.number(0).min(5000));
    let mut rounds = 0;
    while Instant::now() < until {
        let burned = task::in_child(|| {
            burn(Duration::from_millis(40));
            0
        });
        if let Err(errno) = burned {
            return probe.saw::<()>("fork", Err(errno));
        }
        rounds += 1;
    }
    probe.found("burned", format!("rounds={rounds}"));
}

/// `MILLISECONDS`: computes between the moments at which the kernel looks who runs, and sleeps over each of them.
fn spin_between(probe: &Probe) {
    // Of 4 ms, as most kernels have them; what runs for 2.8 of them is seen by none.
    const TICK: i64 = 4_000_000;
    let until = Instant::now() + Duration::from_millis(probe.number(0).min(8000));
    while Instant::now() < until {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic).tv_nsec % TICK;
        let ahead = u64::try_from(TICK - now).unwrap_or(0) + 300_000;
        rest(Duration::from_nanos(ahead));
        burn(Duration::from_micros(2800));
    }
    probe.saw("burned", Ok(()));
}

/// `MILLISECONDS`: deaf to every signal that one can be deaf to.
fn sleep(probe: &Probe) {
    task::ignore_signals();
    probe.found("asleep", "");
    rest(Duration::from_millis(probe.number(0).min(6000)));
    probe.found("awake", "");
}

/// `MILLISECONDS`: stops itself; a child wakes it after the time, so that nothing stays behind.
fn stop(probe: &Probe) {
    let own = rustix::process::getpid();
    let time = Duration::from_millis(probe.number(0).min(6000));
    if task::fork() == Ok(Forked::Child) {
        rest(time);
        if rustix::process::kill_process(own, rustix::process::Signal::CONT).is_err() {
            task::leave(1);
        }
        task::leave(0);
    }
    probe.found("stopped", "");
    task::stop();
    probe.found("awake", "");
}

/// `BYTES`: output as fast as it goes.
fn shout(probe: &Probe) {
    let block = vec![b'x'; 1 << 16];
    let mut out = std::io::stdout().lock();
    let mut left = usize::try_from(probe.number(0)).unwrap_or(0).min(64 * MIB);
    while left > 0 {
        let part = left.min(block.len());
        if out.write_all(block.get(..part).unwrap_or_default()).is_err() {
            return;
        }
        left -= part;
    }
}

/// `COUNT`: says on standard error that so many different things were denied, as a program does that is stopped often.
fn complain(probe: &Probe) {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stderr().lock());
    for number in 0..probe.number(0).min(400_000) {
        if writeln!(out, "cat: /etc/shadow-{number}: Permission denied").is_err() {
            return;
        }
    }
}

/// `MIB FOLDERS`: one file in each, as large as it may get; how much went is the first number.
fn fill(probe: &Probe) {
    let block = vec![1_u8; MIB / 4];
    for folder in probe.paths().into_iter().skip(1) {
        let path = folder.join("fumehood-fill");
        let mut written = 0;
        let filled = File::create(&path).and_then(|mut file| {
            for _ in 0..mib(probe, 0) * 4 {
                file.write_all(&block)?;
                written += 1;
            }
            Ok(())
        });
        told(probe, &folder, filled.map_err(|error| errno(&error)), written / 4);
    }
    rest(STAY);
    for folder in probe.paths().into_iter().skip(1) {
        probe.saw("remove it", fs::remove_file(folder.join("fumehood-fill")).map_err(|error| errno(&error)));
    }
}

fn told(probe: &Probe, folder: &std::path::Path, done: Result<(), Errno>, mib: usize) {
    probe.tell(&super::Try {
        name: folder.to_string_lossy().into_owned(),
        possible: done.is_ok(),
        errno: done.err().map_or(0, Errno::raw_os_error),
        text: format!("mib={mib}"),
    });
}

/// `MIB FOLDER`: the same in files that have no name any more.
fn fill_open(probe: &Probe) {
    let block = vec![1_u8; MIB];
    let folder = probe.arg(1);
    let mut kept = Vec::new();
    let mut written = 0;
    let mut failure = Ok(());
    for number in 0..mib(probe, 0) {
        let path = folder.join(format!("fumehood-open-{number}"));
        let made = File::create(&path).and_then(|mut file| {
            fs::remove_file(&path)?;
            file.write_all(&block)?;
            Ok(file)
        });
        match made {
            Ok(file) => {
                kept.push(file);
                written += 1;
            }
            Err(error) => {
                failure = Err(errno(&error));
                break;
            }
        }
    }
    rest(STAY);
    told(probe, &folder, failure, written);
}

/// `MIB FOLDER`: blocks without writing.
fn reserve(probe: &Probe, flags_of_room: FallocateFlags) {
    let path = probe.arg(1).join("fumehood-reserve");
    // The kernel ends who reserves more than a file may hold, unless it would rather hear of it.
    task::ignore_signals();
    let bytes = u64::try_from(mib(probe, 0) * MIB).unwrap_or(0);
    let flags = OFlags::CREATE | OFlags::RDWR;
    let done = rustix::fs::open(&path, flags, rustix::fs::Mode::RWXU)
        .and_then(|fd| rustix::fs::fallocate(&fd, flags_of_room, 0, bytes));
    told(probe, &probe.arg(1), done, if done.is_ok() { mib(probe, 0) } else { 0 });
    rest(STAY);
    probe.saw("remove it", fs::remove_file(&path).map_err(|error| errno(&error)));
}

/// `MIB FOLDER`: one sparse file whose size passes the limit.
fn big_file(probe: &Probe) {
    let path = probe.arg(1).join("fumehood-big");
    task::ignore_signals();
    let bytes = u64::try_from(mib(probe, 0) * MIB).unwrap_or(0);
    let done = File::create(&path).and_then(|file| file.set_len(bytes)).map_err(|error| errno(&error));
    told(probe, &probe.arg(1), done, if done.is_ok() { mib(probe, 0) } else { 0 });
    probe.saw("remove it", fs::remove_file(&path).map_err(|error| errno(&error)));
}

/// `MIB MILLISECONDS FOLDER`: past the page cache, for that long at most.
fn write_direct(probe: &Probe) {
    const SECTOR: usize = 4096;
    let (path, until) =
        (probe.arg(2).join("fumehood-direct"), Instant::now() + Duration::from_millis(probe.number(1).min(5000)));
    let memory = vec![1_u8; MIB + SECTOR];
    let start = memory.as_ptr().align_offset(SECTOR);
    let block = memory.get(start..start.saturating_add(MIB)).unwrap_or_default();
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::DIRECT;
    match rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR) {
        Err(errno) => probe.saw::<()>("open past the cache", Err(errno)),
        Ok(file) => {
            let (mut file, mut written, mut done) = (File::from(file), 0, Ok(()));
            while done.is_ok() && written < mib(probe, 0) && Instant::now() < until {
                done = file.write_all(block).map_err(|error| errno(&error));
                written += usize::from(done.is_ok());
            }
            told(probe, &probe.arg(2), done, written);
            probe.saw("remove it", fs::remove_file(&path).map_err(|error| errno(&error)));
        }
    }
}

/// `COUNT FOLDERS`: empty files.
fn many_files(probe: &Probe) {
    let most = usize::try_from(probe.number(0)).unwrap_or(0).min(4000);
    for folder in probe.paths().into_iter().skip(1) {
        let below = folder.join("fumehood-many");
        let mut made: Vec<PathBuf> = Vec::new();
        let mut failure = fs::create_dir(&below).map_err(|error| errno(&error));
        while failure.is_ok() && made.len() < most {
            let path = below.join(made.len().to_string());
            failure = File::create(&path).map(|_| ()).map_err(|error| errno(&error));
            made.push(path);
        }
        probe.tell(&super::Try {
            name: folder.to_string_lossy().into_owned(),
            possible: failure.is_ok(),
            errno: failure.err().map_or(0, Errno::raw_os_error),
            text: format!("files={}", made.len()),
        });
        rest(STAY);
        probe.saw("remove them", fs::remove_dir_all(&below).map_err(|error| errno(&error)));
    }
}

/// `COUNT`: open descriptors of one process.
fn descriptors(probe: &Probe) {
    counted(probe, "descriptors", || rustix::fs::open("/", OFlags::PATH, Mode::empty()).map(|fd| vec![fd]));
}

/// `COUNT`: inotify instances, which the kernel counts per user of the whole host.
fn watches(probe: &Probe) {
    counted(probe, "inotify", || {
        rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).map(|fd| vec![fd])
    });
}

/// `COUNT`: pipes, whose buffers are memory of the kernel.
fn pipes(probe: &Probe) {
    counted(probe, "pipes", || rustix::pipe::pipe().map(|(read, write)| vec![read, write]));
}

fn counted(probe: &Probe, name: &str, make: impl Fn() -> Result<Vec<std::os::fd::OwnedFd>, Errno>) {
    let mut kept = Vec::new();
    let mut failure = Ok(());
    for _ in 0..probe.number(0).min(5000) {
        match make() {
            Ok(fds) => kept.push(fds),
            Err(errno) => {
                failure = Err(errno);
                break;
            }
        }
    }
    let many = kept.len();
    rest(STAY);
    drop(kept);
    probe.tell(&super::Try {
        name: name.to_owned(),
        possible: failure.is_ok(),
        errno: failure.err().map_or(0, Errno::raw_os_error),
        text: format!("made={many}"),
    });
}
