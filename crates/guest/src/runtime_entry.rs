//! How the guest comes in where a runtime or an engine of containers starts it: with its standard streams alone.
//!
//! The control socket is its standard input, or descriptor 3 where a runtime hands that on, or else it is connected to in its root.
//! By it come, three descriptors with one byte each time: first the config, the pipe for its mounts and the program that has no
//! path (`/dev/null` where there is none); then the payload's streams, with the number of what follows; then the sources of
//! its mounts. What it sees mounted it writes down at once, as the kernel says it: from outside nobody can ask the kernel that it
//! runs on.
//!
//! Where an engine makes no user namespace, the first process is told by another socket in its root which namespaces to make. A copy
//! of it, in these, is the guest; the first only waits for its end.

use sys::bare::{self, Errno, Fd, Owned, StdioFds};

use crate::config::{ENTRY_SOCKET, MAX_CONFIG, Mode, NAMESPACES_SOCKET};
use crate::fault::Taken;

/// Descriptors that are always there: the payload's three, the control socket, the config.
pub(crate) const CONTROL: u32 = 3;
pub(crate) const CONFIG: u32 = 4;
/// Behind the config: the sources of mounts, and a program without a path behind them.
const EXTRA: u32 = CONFIG + 1;
/// Above every number that has a meaning, where no sources come.
const ASIDE: u32 = 20;
/// The same where they do: three for each of at most 255 messages.
const FAR_ASIDE: u32 = 800;
/// Aside of these: the first six that come, then the socket, then what comes.
const SOCKET: u32 = 6;

/// How this process came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// Whoever started it gave it everything.
    Given,
    /// It came in, and every descriptor has its number.
    CameIn,
    /// It was the container's first process: the guest was a copy of it, and has ended.
    WasFirst,
}

/// Comes in, if this is how the guest was started.
pub(crate) fn enter() -> Taken<Entry> {
    // Whoever starts the guest itself gave it a control socket.
    let (open, _) = bare::open_bitmap(CONFIG + 1)?;
    let has = |number: u32| open & (1 << number) != 0;
    let (given, aside_from) = match (has(CONTROL), has(CONFIG)) {
        (true, true) => return Ok(Entry::Given),
        (true, false) => (Owned::adopt(Fd::new(CONTROL)), ASIDE),
        (false, _) if was_first()? => return Ok(Entry::WasFirst),
        (false, _) => match bare::connect(ENTRY_SOCKET) {
            Err(Errno::ENOENT) => (Owned::adopt(Fd::new(0)), ASIDE),
            connected => (connected?, FAR_ASIDE),
        },
    };
    // Out of its place, so that it can be put there and closed in whatever the guest executes.
    let socket = move_to(given.leak(), aside_from + SOCKET)?;
    let socket = socket.fd();
    let [config, mounts, program] = aside(three(socket)?.1, aside_from)?;
    let (more, streams) = three(socket)?;
    let streams = aside(streams, aside_from + 3)?;
    tell_mounts(mounts.fd())?;
    drop(mounts);
    let mut next = EXTRA;
    for _ in 0..more {
        for source in aside(three(socket)?.1, aside_from + SOCKET + 1)? {
            bare::duplicate_to(source.fd(), Fd::new(next), false)?;
            next = next.saturating_add(1);
        }
    }
    bare::duplicate_to(socket, Fd::new(CONTROL), false)?;
    bare::duplicate_to(config.fd(), Fd::new(CONFIG), false)?;
    bare::duplicate_to(program.fd(), Fd::new(next), false)?;
    for (stream, number) in streams.iter().zip(0..) {
        bare::duplicate_to(stream.fd(), Fd::new(number), true)?;
    }
    Ok(Entry::CameIn)
}

/// Makes the namespaces that the supervisor tells of, if it is there to tell of them: the guest goes on in them as a copy, and the
/// first process, which is true here, comes back when that has ended. Why there is no copy is told as an errno.
fn was_first() -> Taken<bool> {
    let socket = match bare::connect(NAMESPACES_SOCKET) {
        Err(Errno::ENOENT) => return Ok(false),
        connected => connected?,
    };
    let mut told = [0; 4];
    if bare::read_some(socket.fd(), &mut told)? != told.len() {
        return Err(Errno::EPROTO.into());
    }
    match bare::copy_into(u32::from_le_bytes(told)) {
        Ok(None) => Ok(false),
        Ok(Some(pid)) => {
            while bare::reap(pid) == Err(Errno::EINTR) {}
            Ok(true)
        }
        Err(errno) => {
            bare::write_all(socket.fd(), &errno.number().to_le_bytes())?;
            Err(errno.into())
        }
    }
}

/// A program that has no path is a file of the host's kernel. Where ours is another one it becomes a file of that, in its place.
pub(crate) fn take_program(mode: Mode, program: Option<u32>) -> Taken {
    if let (Mode::Bundle, Some(number)) = (mode, program) {
        let copy = bare::copy_sealed(Fd::new(number), c"fumehood-agent")?;
        bare::duplicate_to(copy.fd(), Fd::new(number), false)?;
    }
    Ok(())
}

/// The next three descriptors, and the byte that they came with.
fn three(socket: Fd) -> Taken<(u8, StdioFds)> {
    let mut byte = [0];
    match bare::receive(socket, &mut byte, true)? {
        (1, Some(three)) => Ok((byte[0], three)),
        (_, _) => Err(Errno::EPROTO.into()),
    }
}

/// Out of the way of the numbers that are to be given.
fn aside(three: StdioFds, first: u32) -> Taken<[Owned; 3]> {
    let [a, b, c] = three;
    Ok([move_to(a.fd(), first)?, move_to(b.fd(), first + 1)?, move_to(c.fd(), first + 2)?])
}

fn move_to(from: Fd, number: u32) -> Taken<Owned> {
    let to = Fd::new(number);
    bare::duplicate_to(from, to, false)?;
    Ok(Owned::adopt(to))
}

fn tell_mounts(to: Fd) -> Taken {
    let file = bare::open_as_anybody(c"/proc/self/mountinfo", false)?;
    let mut bytes = [0; 1024];
    loop {
        let count = bare::read_some(file.fd(), &mut bytes)?;
        match bytes.get(..count) {
            Some([]) | None => return Ok(()),
            Some(some) => bare::write_all(to, some)?,
        }
    }
}

/// The whole file, in memory of our own. Its size is not asked: a kernel that is not Linux need not know all flags of statx(2).
pub(crate) fn read_all(file: Fd) -> Taken<&'static [u8]> {
    let bytes = bare::map_bytes(MAX_CONFIG)?;
    let mut filled = 0;
    loop {
        let count = bare::read_some(file, bytes.get_mut(filled..).unwrap_or(&mut []))?;
        filled = filled.saturating_add(count);
        // One byte too many is too many: what was read may go on.
        if filled == MAX_CONFIG {
            return Err(Errno::EMSGSIZE.into());
        }
        if count == 0 {
            return Ok(bytes.get(..filled).unwrap_or(&[]));
        }
    }
}
