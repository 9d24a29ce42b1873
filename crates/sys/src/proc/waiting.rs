//! A tree that stands still while it is looked at: nobody in it hands on what was not looked at yet, and what nothing but a waiting
//! system call holds is let go of.
//!
//! *Promises*: whoever is made to stand still goes on, whatever becomes of the caller, and with the signal that it stopped for. No
//! end of a process is taken from whoever waits for it.
//!
//! *Kernel facts*: a call has its files until it returns, and while it waits another thread may close their descriptors: those
//! that sendmsg(2) sends, sockets that poll(2) asks about. Which it has the kernel tells nobody. One whose thread is asked to stop
//! (PTRACE_INTERRUPT) returns to where signals are looked at, and has none; the kernel begins it anew when the thread goes on, with
//! what its descriptors are then. One that waits for its turn of a processor stops before it runs another instruction. The end of a
//! tracing thread lets all go that it traces, stopped or not (`exit_ptrace`), a few milliseconds after others may have joined it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::io::Errno;

use super::{Process, SMALL};
use crate::error::{Error, Result};

/// Threads of one process that are made to stand still at a time.
const MAX_THREADS: usize = 4096;
/// So long the threads that were made to stand still may be traced after the tracing one was joined.
const MAX_RELEASE: Duration = Duration::from_millis(200);

impl Process {
    /// Threads of it that may do something, wake by themselves, or wait in a call which may hold files. Of a process with one thread too:
    /// another may have closed what that waits for, and have ended.
    ///
    /// # Errors
    /// ESRCH: it has ended. E2BIG: there are more than anybody could stop.
    fn acting(&self) -> Result<Vec<i32>> {
        let mut threads = self.threads()?;
        threads.retain(|thread| self.may_act(*thread));
        if threads.len() > MAX_THREADS {
            return Err(Error::new("stop", self.path("task"), Errno::TOOBIG));
        }
        Ok(threads)
    }

    fn may_act(&self, thread: i32) -> bool {
        match self.state(thread) {
            Some('R') => true,
            // One that waits for a disk (D) hears of nothing before that has answered.
            Some('S') => !self.is_at_pipe(thread),
            Some(_) | None => false,
        }
    }

    /// Whether it reads a pipe or writes to one, by the function of the kernel in which it waits: the file is that pipe. What is
    /// written so is not cut in two. Nobody else in the tree wakes it while that stands still.
    fn is_at_pipe(&self, thread: i32) -> bool {
        const CALLS: [libc::c_long; 4] = [libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev];
        const PLACES: [&str; 4] = ["pipe_read", "pipe_write", "anon_pipe_read", "anon_pipe_write"];
        let text = |name: &str| self.text(&format!("task/{thread}/{name}"), SMALL).ok();
        let is_place = || text("wchan").is_some_and(|place| PLACES.contains(&place.as_str()));
        let call = text("syscall").and_then(|call| call.split_ascii_whitespace().next()?.parse().ok());
        call.is_some_and(|call| CALLS.contains(&call)) && is_place()
    }

    fn state(&self, thread: i32) -> Option<char> {
        let stat = self.text(&format!("task/{thread}/stat"), SMALL).ok()?;
        stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
    }

    /// Whether a thread of it is traced by this one.
    fn is_traced_by(&self, thread: i32, tracer: i32) -> bool {
        let status = self.text(&format!("task/{thread}/status"), SMALL).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("TracerPid:"));
        line.and_then(|number| number.trim().parse().ok()) == Some(tracer)
    }
}

/// Makes threads stand still, until the end of the work that it is for.
#[derive(Debug, Default)]
pub struct Tracer {
    /// Those that were asked.
    asked: BTreeSet<i32>,
    /// Of these, the ones that were not seen to stop yet.
    moving: Vec<i32>,
    /// The last one, with its process.
    last: Option<(i32, i32)>,
}

impl Tracer {
    /// Asks what may act of a process to stop: how many threads were asked that had not been, and whether one may not be stopped,
    /// since another traces it or this host lets nobody.
    ///
    /// # Errors
    /// ESRCH: it has ended. E2BIG: it has more threads than anybody could stop.
    pub fn ask(&mut self, pid: i32) -> Result<(usize, bool)> {
        let process = Process::open(pid)?;
        let (mut new, mut is_refused) = (0_usize, false);
        for thread in process.acting()?.into_iter().filter(|thread| !self.asked.contains(thread)).collect::<Vec<_>>() {
            match trace(libc::PTRACE_SEIZE, thread).and_then(|()| trace(libc::PTRACE_INTERRUPT, thread)) {
                Ok(()) => {
                    self.asked.insert(thread);
                    self.moving.push(thread);
                    self.last = Some((pid, thread));
                    new = new.saturating_add(1);
                }
                Err(Errno::SRCH) => {}
                // Nobody may trace one that has ended either.
                Err(_closed) => is_refused = is_refused || !matches!(process.state(thread), None | Some('Z' | 'X')),
            }
        }
        Ok((new, is_refused))
    }

    /// Waits until all that were asked have stopped, at most so long; whether they have. One that has not had its turn of a processor
    /// yet does nothing, but its call may have its files still.
    pub fn wait(&mut self, within: Duration) -> bool {
        let end = Instant::now().checked_add(within);
        loop {
            self.moving.retain(|thread| !has_stopped(*thread));
            if self.moving.is_empty() {
                return true;
            }
            if end.is_none_or(|end| Instant::now() >= end) {
                return false;
            }
            pause();
        }
    }
}

/// Does `work` with a thread of its own, which may make others stand still: they go on when it is done. With how long that took.
///
/// # Errors
/// EAGAIN: there is no thread to do it. ECANCELED: `work` panicked.
pub fn while_tracing<T: Send>(work: impl FnOnce(&mut Tracer) -> T + Send) -> Result<(Duration, T)> {
    let traced = || {
        // A stop is told by SIGCHLD, which wakes nobody as long as this thread does not block it.
        crate::signals::block_all();
        let (mut tracer, begun) = (Tracer::default(), Instant::now());
        let done = work(&mut tracer);
        (begun.elapsed(), rustix::thread::gettid().as_raw_nonzero().get(), tracer.last, done)
    };
    let failed = |errno| Error::new("stop", "threads of a tree".to_owned(), errno);
    let (took, tracer, last, done) = std::thread::scope(|scope| {
        let helper = std::thread::Builder::new().name("fumehood-look".to_owned()).spawn_scoped(scope, traced);
        helper.map_err(|_none| failed(Errno::AGAIN))?.join().map_err(|_panicked| failed(Errno::CANCELED))
    })?;
    // All of them are let go at once. Whoever looked again before would take that one for somebody else's.
    if let Some((pid, thread)) = last
        && let Ok(process) = Process::open(pid)
    {
        let end = Instant::now().checked_add(MAX_RELEASE);
        while process.is_traced_by(thread, tracer) && end.is_some_and(|end| Instant::now() < end) {
            pause();
        }
    }
    Ok((took, done))
}

/// Nobody is waited for.
fn pause() {
    let _over = rustix::event::poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: 20_000 }));
}

fn trace(request: libc::c_uint, thread: i32) -> std::result::Result<(), Errno> {
    // SAFETY: both requests take numbers alone: PTRACE_SEIZE no options, PTRACE_INTERRUPT nothing.
    let done = unsafe { libc::ptrace(request, thread, 0_usize, 0_usize) };
    if done == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) }
}

/// Whether a thread that the calling one traces has stopped, or ended; left to be told of again.
fn has_stopped(thread: i32) -> bool {
    let Ok(number) = libc::id_t::try_from(thread) else { return true };
    // SAFETY: `siginfo_t` is plain data for which all zero bytes are a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WSTOPPED | libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the pointer is to a live, writable value of the type that waitid(2) fills.
    let answer = unsafe { libc::waitid(libc::P_PID, number, &raw mut info, options) };
    // SAFETY: the fields of SIGCHLD are set, or all zero when nothing was to be told.
    answer != 0 || unsafe { info.si_pid() } != 0
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;
    use crate::channel::pipe;

    const LONG: Duration = Duration::from_secs(20);

    /// A copy of this process in which a second thread waits for something, and the first does `then`, and waits for its end.
    fn copy(wait: impl FnOnce() -> bool + Send, then: impl FnOnce()) -> (i32, OwnedFd) {
        let pid = crate::fork::run(|| {
            let right = std::thread::scope(|scope| {
                let waiting = scope.spawn(wait);
                then();
                waiting.join().unwrap()
            });
            i32::from(!right)
        });
        let pid = pid.unwrap();
        (pid, crate::pidfd::open(pid).unwrap())
    }

    fn rest(millis: i64) {
        poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: millis * 1_000_000 })).unwrap();
    }

    /// Does something while a process stands still: whether a thread of it was refused, whether all stopped, and what came of it.
    fn still<T: Send>(pid: i32, work: impl FnOnce() -> T + Send) -> (bool, bool, T) {
        let all = |tracer: &mut Tracer| (tracer.ask(pid).unwrap().1, tracer.wait(LONG), work());
        while_tracing(all).unwrap().1
    }

    /// Looks until so many threads wait in a call that may hold files.
    fn waiting(process: &Process, many: usize) -> Vec<i32> {
        for _ in 0..1000 {
            let found = process.acting().unwrap();
            if found.len() == many && found.iter().all(|thread| process.state(*thread) == Some('S')) {
                return found;
            }
            rest(10);
        }
        panic!("never {many}");
    }

    fn hung_up(read: &OwnedFd) -> bool {
        let mut list = [PollFd::new(read, PollFlags::IN)];
        poll(&mut list, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        list.iter().any(|one| one.revents().contains(PollFlags::HUP))
    }

    /// The end of a pipe that is in no table any more stays until the call that asks about it lets it go.
    #[test]
    fn a_call_that_waits_has_a_file_that_was_closed_until_its_thread_is_stopped() {
        let (read, write) = pipe().unwrap();
        let (begin, begun) = std::os::unix::net::UnixStream::pair().unwrap();
        let raw = write.as_raw_fd();
        let (pid, pidfd) = copy(
            || {
                // SAFETY: open until the other thread closes it, and never used here after that.
                let asked = unsafe { std::os::fd::BorrowedFd::borrow_raw(raw) };
                let mut list = [PollFd::new(&asked, PollFlags::PRI)];
                // Begun anew it finds none.
                poll(&mut list, None).is_ok() && list.iter().any(|one| one.revents().contains(PollFlags::NVAL))
            },
            || {
                let mut byte = [0];
                rustix::io::read(&begin, &mut byte).unwrap();
                // SAFETY: the copy's own descriptor, which it owns by `write` and never drops.
                unsafe { libc::close(raw) };
            },
        );
        drop(write);
        let process = Process::open(pid).unwrap();
        waiting(&process, 2);
        rustix::io::write(begun.as_fd(), b"x").unwrap();
        for _ in 0..1000 {
            if !std::path::Path::new(&format!("/proc/{pid}/fd/{raw}")).is_symlink() {
                break;
            }
            rest(10);
        }
        assert!(!hung_up(&read), "only the call has it");
        // Copies that other tests made of this process meanwhile have it too, until they end.
        let is_gone = || {
            rest(10);
            hung_up(&read)
        };
        assert_eq!(still(pid, || (0..1000).any(|_| is_gone())), (false, true, true));
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, crate::pidfd::End::Exited(0));
    }

    #[test]
    fn a_call_goes_on_and_gives_what_it_waited_for() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, pidfd) = copy(|| rustix::io::read(&one, &mut [0; 4]) == Ok(2), || ());
        let process = Process::open(pid).unwrap();
        for _ in 0..20 {
            let waits = waiting(&process, 2);
            let stands = || waits.iter().all(|thread| process.state(*thread) == Some('t'));
            assert_eq!(still(pid, stands), (false, true, true));
            assert!(!stands(), "they go on as soon as anybody knows that it is over");
        }
        rustix::io::write(other.as_fd(), b"ab").unwrap();
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, crate::pidfd::End::Exited(0));
    }

    /// Whoever traces its own to keep others away is told.
    #[test]
    fn a_thread_that_another_traces_is_refused() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (pid, pidfd) = copy(|| rustix::io::read(&one, &mut [0; 1]) == Ok(1), || ());
        let process = Process::open(pid).unwrap();
        let waits = waiting(&process, 2);
        let refused = |_: &mut Tracer| {
            trace(libc::PTRACE_SEIZE, waits[0]).unwrap();
            still(pid, || ()).0
        };
        assert!(while_tracing(refused).unwrap().1);
        assert!(!still(pid, || ()).0, "nobody traces it any more");
        rustix::io::write(&other, b"a").unwrap();
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, crate::pidfd::End::Exited(0));
    }

    /// Nobody hands on what was not looked at yet.
    #[test]
    fn a_thread_that_runs_stands_still_and_goes_on() {
        let pid = crate::fork::run(|| {
            let end = Instant::now() + LONG;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
            0
        });
        let pid = pid.unwrap();
        let (process, pidfd) = (Process::open(pid).unwrap(), crate::pidfd::open(pid).unwrap());
        for _ in 0..1000 {
            if process.state(pid) == Some('R') {
                break;
            }
            rest(10);
        }
        for _ in 0..20 {
            assert_eq!(still(pid, || process.state(pid)), (false, true, Some('t')));
            assert_eq!(process.state(pid), Some('R'));
        }
        crate::signals::send(pid, false, libc::SIGKILL).unwrap();
        assert_eq!(
            crate::pidfd::wait(&pidfd).unwrap().0,
            crate::pidfd::End::Signalled { signal: libc::SIGKILL, core: false }
        );
    }

    /// The thread that closed what the only other one waits for has ended.
    #[test]
    fn a_process_with_one_thread_left_may_have_files_in_its_call() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let pid = crate::fork::run(|| i32::from(rustix::io::read(&one, &mut [0; 1]) != Ok(1))).unwrap();
        waiting(&Process::open(pid).unwrap(), 1);
        rustix::io::write(&other, b"a").unwrap();
        let pidfd = crate::pidfd::open(pid).unwrap();
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, crate::pidfd::End::Exited(0));
    }

    #[test]
    fn whoever_is_at_a_pipe_and_nowhere_else_is_left_alone() {
        let (read, write) = pipe().unwrap();
        let pid = crate::fork::run(|| i32::from(rustix::io::read(&read, &mut [0; 1]) != Ok(1))).unwrap();
        let process = Process::open(pid).unwrap();
        for _ in 0..1000 {
            let call = process.text(&format!("task/{pid}/syscall"), SMALL).unwrap();
            if call.starts_with("0 ") && process.state(pid) == Some('S') {
                break;
            }
            rest(10);
        }
        if process.text(&format!("task/{pid}/wchan"), SMALL).is_ok_and(|place| place != "0") {
            assert_eq!(process.acting().unwrap(), Vec::<i32>::new());
        } else {
            println!("skip: pipes: this kernel tells nobody where a thread waits");
        }
        rustix::io::write(&write, b"a").unwrap();
        let pidfd = crate::pidfd::open(pid).unwrap();
        assert_eq!(crate::pidfd::wait(&pidfd).unwrap().0, crate::pidfd::End::Exited(0));
    }
}
