//! Which program has a connection that the broker is about to deny, seen from outside while the broker holds it.
//!
//! # Promises
//! A program is named only where it had the connection while it was looked at, executed the same file before and after, and
//! no process of the sandbox that executes another one had it too. All else is unknown, and never guessed.
//! # Does not promise
//! That it made the connection: a program may hand one over, or execute another file meanwhile. It helps whoever looks for the
//! cause, and no rule is held by it.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use egress::wire::MAX_WHOSE;
use sys::proc::Process;

/// How long one look may take, and all of a run: who looks also hands on rules and answers, which do not wait for names.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: Duration = Duration::from_secs(2);

/// The process that stands for the sandbox, with its number outside, once it is known.
pub(super) type Inside = Arc<OnceLock<(i32, Process)>>;

/// What looks, in one run.
#[derive(Debug)]
pub(super) struct Holders {
    inside: Inside,
    /// Looks so far: a broker that asks without end gets none.
    looks: usize,
    /// What they took.
    spent: Duration,
}

impl Holders {
    pub(super) const fn new(inside: Inside) -> Self {
        Self { inside, looks: 0, spent: Duration::ZERO }
    }

    /// The file that the program executes which has the connection from `from` to `to`, as the sandbox shows it.
    pub(super) fn look(&mut self, from: SocketAddr, to: SocketAddr) -> Option<String> {
        self.looks = self.looks.saturating_add(1);
        let (root, inside) = self.inside.get().filter(|_| self.looks <= MAX_WHOSE && self.spent < LOOKS)?;
        let begun = Instant::now();
        let found = holder((*root, inside), from, to, begun.checked_add(LOOK)?);
        self.spent = self.spent.saturating_add(begun.elapsed());
        found
    }
}

fn holder((root, inside): (i32, &Process), from: SocketAddr, to: SocketAddr, until: Instant) -> Option<String> {
    let socket = inside.connection(from, to).ok()??;
    let mut found = None;
    for pid in sys::proc::tree(root).ok()? {
        if Instant::now() >= until {
            return None;
        }
        let program = match Process::open(pid).and_then(|process| having(&process, socket)) {
            Ok(Some(program)) => program,
            Ok(None) => continue,
            // One that ends meanwhile has it no more.
            Err(error) if error.is_gone() => continue,
            // Who cannot be looked into may have it as well.
            Err(_) => return None,
        };
        if found.as_ref().is_some_and(|other| *other != program) {
            return None;
        }
        found = Some(program);
    }
    found
}

/// What a process executes, if it has this socket and executes the same before and after that was seen.
fn having(process: &Process, socket: u64) -> sys::error::Result<Option<String>> {
    // Where its first thread has ended, another one shows what it has.
    let Some(living) = process.living()? else { return Ok(None) };
    let has = |living: &Process| Ok(living.descriptors()?.sockets.iter().any(|(inode, _)| *inode == socket));
    if !has(&living)? {
        return Ok(None);
    }
    let before = living.executable()?;
    Ok((has(&living)? && living.executable()? == before).then_some(before))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn a_program_is_named_only_where_it_alone_has_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _held = listener.accept().unwrap();
        let (from, to) = (stream.local_addr().unwrap(), stream.peer_addr().unwrap());
        let own = std::fs::read_link("/proc/self/exe").unwrap().to_string_lossy().into_owned();
        let inside = Inside::default();
        let mut early = Holders::new(Arc::clone(&inside));
        assert_eq!(early.look(from, to), None, "nobody said whose they are");
        let own_number = std::process::id().cast_signed();
        inside.set((own_number, Process::open(own_number).unwrap())).unwrap();
        let mut holders = Holders::new(Arc::clone(&inside));
        assert_eq!(holders.look(from, to), Some(own));
        let nobody = SocketAddr::new(from.ip(), 1);
        assert_eq!(holders.look(nobody, to), None, "there is no such connection");
        // Another program has it too: nobody can say whose it is.
        let sleep = sys::command::Command::new("/bin/sleep").arg("60");
        let fd = stream.as_fd();
        let child = sleep.start(fd, fd, fd).unwrap();
        assert_eq!(holders.look(from, to), None);
        sys::pidfd::send_signal(&child.pidfd, 9).unwrap();
        sys::pidfd::wait(&child.pidfd).unwrap();
        drop(stream);
        assert_eq!(holders.look(from, to), None, "it is closed");
        let mut asked = Holders { inside: Arc::clone(&inside), looks: MAX_WHOSE, spent: Duration::ZERO };
        assert_eq!(asked.look(from, to), None);
        let mut late = Holders { inside, looks: 0, spent: LOOKS };
        assert_eq!(late.look(from, to), None);
    }
}
