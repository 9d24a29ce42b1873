//! Tries to have more than the limits give where nobody looks: memory, files and locks that no process shows.

use std::fs::File;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use ::probe::hide;
use rustix::fs::MemfdFlags;
use rustix::io::{Errno, Result};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::{Entry, Probe, errno, rest};

pub(super) const PROBES: &[Entry] =
    &[("memory-hidden", memory), ("fill-hidden", fill), ("locks", locks), ("socket-buffers", socket_buffers)];

const MIB: usize = 1 << 20;
/// As long as somebody who looks every 20 ms, and bears five looks, needs.
const STAY: Duration = Duration::from_millis(900);

fn count(probe: &Probe, at: usize, most: u64) -> u64 {
    probe.number(at).min(most)
}

/// So many pieces of 1 MiB, each told when it is there; the last try says how it went.
fn pieces(probe: &Probe, many: u64, mut piece: impl FnMut(u64) -> Result<()>) {
    let mut made = Ok(());
    for number in 0..many {
        made = piece(number);
        if made.is_err() {
            break;
        }
        if number % 8 == 7 {
            probe.found("has", format!("mib={}", number + 1));
        }
    }
    rest(STAY);
    probe.saw("all", made);
}

fn written() -> Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create("load", MemfdFlags::CLOEXEC)?);
    file.write_all(&vec![1_u8; MIB]).map_err(|error| errno(&error))?;
    Ok(file.into())
}

fn touched(kept: &mut Vec<Vec<u8>>) -> Result<()> {
    let mut memory = vec![0_u8; MIB];
    memory.chunks_mut(4096).filter_map(|page| page.first_mut()).for_each(|byte| *byte = 1);
    kept.push(memory);
    Ok(())
}

/// Runs `work` in a second thread, and waits for it.
fn beside(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(work);
    });
}

/// `MIB HOW`: memory that a look at the process does not show.
fn memory(probe: &Probe) {
    let many = count(probe, 0, 256);
    let mut kept = Vec::new();
    // Who is refused the first piece has none.
    probe.found("has", "mib=0");
    match probe.argument(1).as_str() {
        "undumpable" => {
            probe.saw("become undumpable", hide::undumpable());
            pieces(probe, many, |_| touched(&mut kept));
        }
        "leader" => std::thread::scope(|scope| {
            scope.spawn(|| {
                rest(Duration::from_millis(100));
                pieces(probe, many, |_| touched(&mut kept));
                // The first thread is gone: nobody else ends the process.
                ::probe::task::leave(0);
            });
            hide::end_thread();
        }),
        "table" => beside(|| {
            let mut files = Vec::new();
            match hide::own_descriptors() {
                Ok(()) => pieces(probe, many, |_| written().map(|file| files.push(file))),
                Err(errno) => probe.saw::<()>("have descriptors of its own", Err(errno)),
            }
        }),
        "unmapped" => pieces(probe, many, |_| hide::shared_unseen(MIB)),
        "mapped" => pieces(probe, many, |_| hide::map_page(&written()?)),
        "sent" | "polled" => called(probe, many, |_| written()),
        "events" => events(probe, many),
        // Each is two.
        "huge" => pieces(probe, many, |number| if number % 2 == 0 { hide::rest_of_huge_page() } else { Ok(()) }),
        _ => flight(probe, many),
    }
}

/// Events of a folder that nobody reads: half a KiB each, of which a watcher takes 16,384, 8 MiB.
fn events(probe: &Probe, many: u64) {
    let (folder, mut kept, mut waits) = (probe.arg(2), Vec::new(), 0);
    let mut made = Ok(());
    for _ in 0..many.div_ceil(8) {
        match full_watcher(&folder) {
            Ok((watcher, events)) => {
                kept.push(watcher);
                waits += events;
                probe.found("has", format!("mib={}", waits / 2048));
            }
            Err(errno) => {
                made = Err(errno);
                break;
            }
        }
    }
    rest(STAY);
    probe.saw("all", made);
}

/// A watcher of a folder, and how many events wait in it: as many as it takes, or as there was memory for.
fn full_watcher(folder: &Path) -> Result<(OwnedFd, u64)> {
    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    let path = folder.join("x".repeat(250));
    File::create(&path).map_err(|error| errno(&error))?;
    let watcher = init(CreateFlags::CLOEXEC)?;
    add_watch(&watcher, folder, WatchFlags::OPEN | WatchFlags::CLOSE)?;
    let mut waits = 0;
    for _ in 0..128 {
        for _ in 0..64 {
            File::open(&path).map_err(|error| errno(&error))?;
        }
        // Each is read as its head and its name, 272 bytes. What finds no memory is dropped without a word, and the kernel
        // takes its time to find none.
        let now = rustix::io::ioctl_fionread(&watcher)? / 272;
        if now == waits {
            break;
        }
        waits = now;
    }
    Ok((watcher, waits))
}

/// Files that wait in a socket.
fn flight(probe: &Probe, many: u64) {
    match socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None) {
        Ok((one, other)) => {
            pieces(probe, many, |_| hide::send(one.as_fd(), &written()?));
            drop(other);
        }
        Err(errno) => probe.saw::<()>("make a pair of sockets", Err(errno)),
    }
}

/// Files that only calls have in which threads wait, eight in each: they are sent, or wait in a socket that is asked about. Counted are those in calls that still wait at the end.
fn called(probe: &Probe, many: u64, mut make: impl FnMut(u64) -> Result<OwnedFd>) {
    const EACH: u64 = 8;
    let least = |number| i32::try_from(100 + number).map_err(|_large| Errno::MFILE);
    let full = if probe.argument(1) == "sent" { Some(full_socket()) } else { None };
    let full = match full.transpose() {
        Ok(pair) => pair,
        Err(errno) => return probe.saw::<()>("fill a socket", Err(errno)),
    };
    let (mut calls, mut others) = (Vec::new(), Vec::new());
    let made = (0..many / EACH).try_for_each(|group| {
        let of_group = group * EACH..(group + 1) * EACH;
        // Each has a number that no later one has: a call that is begun anew finds none.
        let apart = |number| rustix::io::fcntl_dupfd_cloexec(make(number)?, least(number)?);
        let mut files = of_group.map(apart).collect::<Result<Vec<_>>>()?;
        let socket = full.as_ref().map(|(own, _)| own.try_clone()).transpose().map_err(|error| errno(&error))?;
        if socket.is_none() {
            let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            files.iter().try_for_each(|file| hide::send(one.as_fd(), file))?;
            // A byte would end the wait for anything but what never comes.
            files = vec![rustix::io::fcntl_dupfd_cloexec(other, least(many + group)?)?];
            others.push(one);
        }
        calls.push(hide::in_call(files, socket, || rest(Duration::from_millis(30)))?);
        Ok(())
    });
    rest(STAY);
    let waiting = calls.iter().filter(|call| !call.is_finished()).count();
    probe.found("has", format!("mib={}", waiting * 8));
    let let_go = waiting < calls.len();
    probe.saw("all", made.and(if let_go { Err(Errno::BADF) } else { Ok(()) }));
}

/// A socket that takes no more, and the other end.
fn full_socket() -> Result<(OwnedFd, OwnedFd)> {
    let (one, other) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let mut stream = std::os::unix::net::UnixStream::from(one);
    stream.set_nonblocking(true).map_err(|error| errno(&error))?;
    while stream.write(&[1; 4096]).is_ok() {}
    stream.set_nonblocking(false).map_err(|error| errno(&error))?;
    Ok((stream.into(), other))
}

/// `MIB HOW FOLDER`: files without a name that a look at the descriptors does not show.
fn fill(probe: &Probe) {
    let (many, folder) = (count(probe, 0, 64), probe.arg(2));
    // Who is refused the first one has none.
    probe.found("has", "mib=0");
    if probe.argument(1) == "rule" {
        return ruled(probe, many, &folder);
    }
    if matches!(probe.argument(1).as_str(), "sent" | "polled") {
        return called(probe, many, |number| nameless(&folder, number).map(OwnedFd::from));
    }
    if probe.argument(1) == "mapped" {
        return pieces(probe, many, |number| hide::map_page(&nameless(&folder, number)?));
    }
    beside(|| {
        let mut files = Vec::new();
        match hide::own_descriptors() {
            Ok(()) => pieces(probe, many, |number| nameless(&folder, number).map(|file| files.push(file))),
            Err(errno) => probe.saw::<()>("have descriptors of its own", Err(errno)),
        }
    });
}

/// Files that a rule of Landlock is about, which keeps them as long as there is the rule.
fn ruled(probe: &Probe, many: u64, folder: &Path) {
    use std::os::fd::AsRawFd as _;
    let failed = |errno: sys::bare::Errno| Errno::from_raw_os_error(errno.number());
    match sys::bare::Ruleset::new(sys::landlock::fs::READ_FILE, 0, 0) {
        Ok(rules) => pieces(probe, many, |number| {
            let file = nameless(folder, number)?;
            let place = u32::try_from(file.as_raw_fd()).map_err(|_negative| Errno::BADF)?;
            rules.allow_path(sys::bare::Fd::new(place), sys::landlock::fs::READ_FILE).map_err(failed)
        }),
        Err(errno) => probe.saw::<()>("make rules", Err(failed(errno))),
    }
}

fn nameless(folder: &Path, number: u64) -> Result<File> {
    let path = folder.join(format!("fumehood-hidden-{number}"));
    let open = File::options().read(true).write(true).create_new(true).open(&path);
    let mut file = open.map_err(|error| errno(&error))?;
    std::fs::remove_file(&path).map_err(|error| errno(&error))?;
    file.write_all(&vec![1_u8; MIB]).map_err(|error| errno(&error))?;
    Ok(file)
}

/// `COUNT FOLDER`: byte-range locks, which are memory of the kernel that it charges to nobody.
fn locks(probe: &Probe) {
    const EACH: i64 = 1000;
    let (many, folder) = (count(probe, 0, 40_000), probe.arg(1));
    let (mut files, mut made) = (Vec::new(), 0_u64);
    let done = (0..many.div_ceil(1000)).try_for_each(|number| {
        let file = nameless_empty(&folder, number)?;
        // From the end on: the kernel looks through a list from its beginning.
        (1..=EACH).rev().try_for_each(|at| {
            hide::lock_byte(&file, at * 2)?;
            made += 1;
            Ok::<_, Errno>(())
        })?;
        files.push(file);
        Ok(())
    });
    // To look through so many takes a while, and whoever looks rests for up to a second then.
    rest(STAY * 3);
    probe.tell(&super::Try {
        name: "locks".to_owned(),
        possible: done.is_ok(),
        errno: done.err().map_or(0, Errno::raw_os_error),
        text: format!("locks={made}"),
    });
}

fn nameless_empty(folder: &Path, number: u64) -> Result<File> {
    let path = folder.join(format!("fumehood-lock-{number}"));
    let file = File::options().read(true).write(true).create_new(true).open(&path).map_err(|error| errno(&error))?;
    std::fs::remove_file(&path).map_err(|error| errno(&error))?;
    Ok(file)
}

/// `MIB tcp|udp`: bytes that wait in sockets of the loopback, which nobody takes.
fn socket_buffers(probe: &Probe) {
    let most = usize::try_from(count(probe, 0, 256)).unwrap_or(0) * MIB;
    let waits = match probe.argument(1).as_str() {
        "tcp" => streams(most),
        "packets" => packets(most),
        _ => datagrams(most),
    };
    match waits {
        // Once, after the time in which somebody could have acted.
        Ok(bytes) => probe.found("waits", format!("mib={}", bytes / MIB)),
        Err(error) => probe.saw::<()>("make sockets", Err(errno(&error))),
    }
}

/// Connections that nobody reads from, each as full as it gets.
fn streams(most: usize) -> std::io::Result<usize> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut kept, mut all, part) = (Vec::new(), 0, vec![1; 60_000]);
    while all < most {
        let Ok(mut stream) = TcpStream::connect(listener.local_addr()?) else { break };
        let Ok((other, _)) = listener.accept() else { break };
        stream.set_nonblocking(true)?;
        while all < most
            && let Ok(sent) = stream.write(&part)
        {
            all += sent;
        }
        kept.push((stream, other));
    }
    rest(STAY);
    Ok(all)
}

/// Connections in which each byte is a packet of its own, with all that the kernel needs for one.
fn packets(most: usize) -> std::io::Result<usize> {
    /// At least so much: on either side the head of a packet alone takes 700 bytes.
    const PACKET: usize = 768;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut kept, mut all) = (Vec::new(), 0);
    while all < most {
        let Ok(stream) = TcpStream::connect(listener.local_addr()?) else { break };
        let Ok((other, _)) = listener.accept() else { break };
        stream.set_nonblocking(true)?;
        while all < most && rustix::net::send(&stream, b"x", rustix::net::SendFlags::EOR).is_ok() {
            all += PACKET;
        }
        kept.push((stream, other));
    }
    rest(STAY);
    Ok(all)
}

/// Datagrams that nobody takes, counted when they are taken at last: what finds no room is dropped without a word.
fn datagrams(most: usize) -> std::io::Result<usize> {
    let (sender, mut kept, mut part) = (UdpSocket::bind("127.0.0.1:0")?, Vec::new(), vec![1; 60_000]);
    while kept.len() * 3 * part.len() < most {
        let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else { break };
        for _ in 0..3 {
            sender.send_to(&part, socket.local_addr()?)?;
        }
        socket.set_nonblocking(true)?;
        kept.push(socket);
    }
    rest(STAY);
    let mut all = 0;
    for socket in &kept {
        while let Ok(length) = socket.recv(&mut part) {
            all += length;
        }
    }
    Ok(all)
}
