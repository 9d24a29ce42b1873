//! Ordinary programs of the host, started so that nothing of this process leaks into them.
//!
//! *Promises*: an empty environment but for what is named, no descriptor but the three standard ones or those named,
//! default signal dispositions, death with the calling thread. Used where `std::process::Command` would inherit all of
//! that.

use std::ffi::{CString, OsStr};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, ErrorContext as _, Result};
use crate::pidfd::{self, End, Used};
pub use crate::spawn::launch::Session;
use crate::spawn::launch::{Launch, Program};
use crate::spawn::{Child, SpawnError, Step};

/// A program to start.
#[derive(Clone, Debug)]
pub struct Command {
    program: CString,
    argv: Vec<CString>,
    env: Vec<CString>,
    directory: Option<CString>,
    session: Option<Session>,
    wrong: Option<Errno>,
}

/// What a program that was waited for left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub end: End,
    /// What it used.
    pub used: Used,
    /// What it wrote, at most the bytes that were asked for.
    pub stdout: Vec<u8>,
    /// What it wrote, at most the bytes that were asked for.
    pub stderr: Vec<u8>,
    /// Killed by us because the time was over.
    pub timed_out: bool,
}

impl Command {
    /// The program at `path`, which is not searched for.
    pub fn new(path: impl AsRef<Path>) -> Self {
        let mut command = Self {
            program: CString::default(),
            argv: Vec::new(),
            env: Vec::new(),
            directory: None,
            session: None,
            wrong: None,
        };
        command.program = command.text(path.as_ref().as_os_str().as_bytes());
        command.argv.push(command.program.clone());
        command
    }

    /// One more argument.
    #[must_use]
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        let argument = self.text(argument.as_ref().as_bytes());
        self.argv.push(argument);
        self
    }

    /// More arguments.
    #[must_use]
    pub fn args<S: AsRef<OsStr>>(self, arguments: impl IntoIterator<Item = S>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// One variable of its environment, which is empty otherwise.
    #[must_use]
    pub fn env(self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let variable = [name.as_bytes(), b"=", value.as_ref().as_bytes()].concat();
        self.variable(OsStr::from_bytes(&variable))
    }

    /// One variable of its environment, as `NAME=VALUE`.
    #[must_use]
    pub fn variable(mut self, variable: impl AsRef<OsStr>) -> Self {
        let variable = self.text(variable.as_ref().as_bytes());
        self.env.push(variable);
        self
    }

    /// Its working directory.
    #[must_use]
    pub fn directory(mut self, path: impl AsRef<Path>) -> Self {
        let path = self.text(path.as_ref().as_os_str().as_bytes());
        self.directory = Some(path);
        self
    }

    /// The name by which it is called (its argument 0); else its path.
    #[must_use]
    pub fn named(mut self, name: impl AsRef<OsStr>) -> Self {
        let name = self.text(name.as_ref().as_bytes());
        if let Some(first) = self.argv.first_mut() {
            *first = name;
        }
        self
    }

    /// A session of its own.
    #[must_use]
    pub fn session(mut self, session: Session) -> Self {
        self.session = Some(session);
        self
    }

    /// Starts it with these three standard descriptors.
    ///
    /// # Errors
    /// As [`crate::spawn::Spawn::start`]; EINVAL at [`Step::Prepare`]: a text has a zero byte.
    pub fn start(
        &self,
        stdin: BorrowedFd<'_>,
        stdout: BorrowedFd<'_>,
        stderr: BorrowedFd<'_>,
    ) -> std::result::Result<Child, SpawnError> {
        self.start_with(&[(stdin, 0), (stdout, 1), (stderr, 2)])
    }

    /// Starts it with these descriptors, each beside its number in the program.
    ///
    /// # Errors
    /// As [`Command::start`]; EBADF at [`Step::Prepare`]: a number below 0 or above 63.
    pub fn start_with(&self, fds: &[(BorrowedFd<'_>, RawFd)]) -> std::result::Result<Child, SpawnError> {
        self.launch(fds, |launch| launch.start())
    }

    /// Starts it with these descriptors from a process of one thread, which sleeps until it has been executed: its number, which
    /// is nobody else's until that process has waited for it. Needs no pidfd, which not every kernel has.
    ///
    /// # Errors
    /// As [`Command::start_with`].
    pub fn start_asleep(&self, fds: &[(BorrowedFd<'_>, RawFd)]) -> std::result::Result<i32, SpawnError> {
        self.launch(fds, |launch| launch.start_asleep())
    }

    fn launch<R>(
        &self,
        fds: &[(BorrowedFd<'_>, RawFd)],
        start: impl FnOnce(Launch<'_>) -> std::result::Result<R, SpawnError>,
    ) -> std::result::Result<R, SpawnError> {
        if let Some(errno) = self.wrong {
            return Err(SpawnError { step: Step::Prepare, errno });
        }
        let argv: Vec<_> = self.argv.iter().map(CString::as_c_str).collect();
        let env: Vec<_> = self.env.iter().map(CString::as_c_str).collect();
        start(Launch {
            flags: 0,
            own_pid_namespace: false,
            cgroup: None,
            tasks: &[],
            cgroup_namespace: false,
            mounts: &[],
            maps: None,
            time_offsets: None,
            ambient: 0,
            reset_signals: true,
            directory: self.directory.as_deref(),
            session: self.session,
            fds,
            program: Program::Path(&self.program),
            argv: &argv,
            env: &env,
        })
    }

    /// Runs it to its end with `input` on stdin, for at most `limit`, keeping at most `keep` bytes of each output.
    /// `input` above what a pipe takes at once (64 KiB) is refused with EFBIG.
    ///
    /// # Errors
    /// The step of the start or the call that failed.
    pub fn output(&self, input: &[u8], keep: usize, limit: Duration) -> Result<Output> {
        let object = || self.program.to_string_lossy().into_owned();
        let stdin = filled(input).named("pipe", object)?;
        let (out, out_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).named("pipe", object)?;
        let (err, err_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).named("pipe", object)?;
        let child = self
            .start(stdin.as_fd(), out_end.as_fd(), err_end.as_fd())
            .map_err(|failed| Error::new("execve", object(), failed.errno))?;
        drop((stdin, out_end, err_end));
        let deadline = Instant::now().checked_add(limit);
        let mut streams = [Stream::new(out, keep), Stream::new(err, keep)];
        let timed_out = !drain(&child, &mut streams, deadline).named("poll", object)?;
        if timed_out {
            pidfd::send_signal(&child.pidfd, libc::SIGKILL)?;
        }
        let (end, used) = pidfd::wait(&child.pidfd)?;
        let [stdout, stderr] = streams.map(|stream| stream.bytes);
        Ok(Output { end, used, stdout, stderr, timed_out })
    }

    fn text(&mut self, bytes: &[u8]) -> CString {
        CString::new(bytes).unwrap_or_else(|_zero_byte| {
            self.wrong = Some(Errno::INVAL);
            CString::default()
        })
    }
}

/// A pipe with all of `input` in it, or `/dev/null`.
fn filled(input: &[u8]) -> rustix::io::Result<OwnedFd> {
    if input.is_empty() {
        return rustix::fs::open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    }
    let flags = rustix::pipe::PipeFlags::CLOEXEC | rustix::pipe::PipeFlags::NONBLOCK;
    let (read, write) = rustix::pipe::pipe_with(flags)?;
    if rustix::io::write(&write, input)? != input.len() {
        return Err(Errno::FBIG);
    }
    rustix::fs::fcntl_setfl(&read, OFlags::empty())?;
    Ok(read)
}

struct Stream {
    file: Option<std::fs::File>,
    bytes: Vec<u8>,
    keep: usize,
}

impl Stream {
    fn new(fd: OwnedFd, keep: usize) -> Self {
        Self { file: Some(fd.into()), bytes: Vec::new(), keep }
    }

    /// Takes what is there; what is above the limit is read and dropped, so that the writer does not block.
    fn take(&mut self) -> rustix::io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut part = [0; 8192];
        match file.read(&mut part) {
            Ok(0) => self.file = None,
            Ok(length) => {
                let room = self.keep.saturating_sub(self.bytes.len()).min(length);
                self.bytes.extend(part.get(..room).unwrap_or_default());
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
        Ok(())
    }
}

/// Reads until the child has ended and its streams are closed or empty. False when the deadline came first.
fn drain(child: &Child, streams: &mut [Stream; 2], deadline: Option<Instant>) -> rustix::io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Ok(false);
        }
        let timeout = left.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        let mut polled = vec![PollFd::new(&child.pidfd, PollFlags::IN)];
        for stream in streams.iter() {
            polled.extend(stream.file.as_ref().map(|file| PollFd::new(file, PollFlags::IN)));
        }
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let ended = ready.next() == Some(true);
        let mut quiet = true;
        for stream in streams.iter_mut().filter(|stream| stream.file.is_some()) {
            if ready.next() == Some(true) {
                quiet = false;
                stream.take()?;
            }
        }
        // A grandchild may hold the pipe open for ever: the end of the program itself is the end.
        if ended && quiet {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_sees_no_environment_and_no_descriptor_of_ours() {
        let open = std::fs::File::open("/etc/passwd").unwrap();
        rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
        let output = Command::new("/bin/sh")
            .args(["-c", "/usr/bin/env; ls /proc/self/fd | tr '\\n' ' '"])
            .output(b"", 4096, LIMIT)
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.end, End::Exited(0));
        // `ls` opens the folder as 3.
        assert!(text.ends_with("0 1 2 3 "), "{text}");
        assert!(!text.contains("PATH=/") && !text.contains("CARGO"), "{text}");
    }

    #[test]
    fn input_output_and_the_status_pass() {
        let output = Command::new("/bin/sh")
            .args(["-c", "cat; echo $WORD >&2; exit 7"])
            .env("WORD", "two")
            .directory("/")
            .output(b"one", 4096, LIMIT)
            .unwrap();
        assert_eq!((output.stdout.as_slice(), output.stderr.as_slice()), (&b"one"[..], &b"two\n"[..]));
        assert_eq!((output.end, output.timed_out), (End::Exited(7), false));
    }

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let output =
            Command::new("/bin/sh").args(["-c", "sleep 50"]).output(b"", 10, Duration::from_millis(100)).unwrap();
        assert!(output.timed_out);
        assert_eq!(output.end, End::Signalled { signal: libc::SIGKILL, core: false });
    }

    #[test]
    fn a_missing_program_is_an_error_and_not_a_status() {
        assert_eq!(Command::new("/no/such").output(b"", 1, LIMIT).unwrap_err().errno, Errno::NOENT);
    }

    #[test]
    fn a_session_is_its_own_with_or_without_a_terminal() {
        // Fields 1, 5, 6 and 7 of proc(5): pid, group, session, terminal.
        let script = "set -- $(cat /proc/$$/stat); echo $1 $5 $6 $7 $0";
        let pair = crate::terminal::open(crate::terminal::Size { rows: 1, columns: 80 }).unwrap();
        let (read, write) = crate::channel::pipe().unwrap();
        let null = crate::channel::dev_null().unwrap();
        for (session, stdin) in [(Session::Plain, &null), (Session::Terminal, &pair.slave)] {
            let command = Command::new("/bin/sh").named("called").args(["-c", script]).session(session);
            let command = command.env("PATH", "/usr/bin:/bin");
            let child = command.start(stdin.as_fd(), write.as_fd(), null.as_fd()).unwrap();
            assert_eq!(pidfd::wait(&child.pidfd).unwrap().0, End::Exited(0));
            let mut text = [0; 200];
            let count = rustix::io::read(&read, &mut text).unwrap();
            let text = String::from_utf8_lossy(&text[..count]).into_owned();
            let fields: Vec<&str> = text.split_whitespace().collect();
            let pid = child.pid.to_string();
            assert_eq!((fields[0], fields[1], fields[2], fields[4]), (&*pid, &*pid, &*pid, "called"), "{text}");
            assert_eq!(fields[3] != "0", session == Session::Terminal, "{text}");
        }
        // The control: without one it stays in ours.
        let output = Command::new("/bin/cat").arg("/proc/self/stat").output(b"", 4096, LIMIT).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let fields: Vec<&str> = text.split_whitespace().collect();
        assert_ne!(fields[0], fields[5]);
    }
}
