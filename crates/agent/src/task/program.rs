//! A program and its streams.

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use sys::terminal;

use super::{Progress, Task, Waiting};
use crate::files::failure::{at, code, error_text, failure};
use crate::files::nothing;
use crate::flow::Io;
use crate::frame::{Lane, MAX_DATA};
use crate::inside::Inside;
use crate::starter::ProgramEvent;
use crate::words::{Code, Exited, Failure, Program, ProgramControl, Size, Started};

/// After the program's end its terminal is read until it was quiet for so long: what it wrote may still be on the way.
const QUIET: Duration = Duration::from_millis(100);
/// And no more than so many bytes: a child that it left behind may write for ever.
const AFTER_THE_END: usize = 128 * 1024;
/// A terminal that nobody has open is looked at so often.
const REOPENED: Duration = Duration::from_millis(50);
/// Whoever starts programs, and tells of their ends, is told to go on so often: a program inside can stop it.
const GOES_ON: Duration = Duration::from_secs(1);
/// Most times for one start. They are counted and not timed: while the sandbox is paused nobody tells and nobody starts.
const MAX_CALLS: u32 = 20;
/// Most controls that wait for the program's start.
const CONTROLS: usize = 64;

pub(super) struct Running {
    order: u64,
    /// When its starter is told to go on.
    wakes: Instant,
    /// How often it was told so before the start.
    calls: u32,
    news: VecDeque<ProgramEvent>,
    controls: VecDeque<ProgramControl>,
    pid: Option<i32>,
    ended: Option<Ended>,
    input: Option<OwnedFd>,
    outputs: Vec<Output>,
    /// Whether it has a terminal: then there is one output, and the input is the same file.
    tty: bool,
}

struct Ended {
    exited: Exited,
    at: Instant,
}

struct Output {
    lane: Lane,
    fd: OwnedFd,
    /// Bytes that are still to be read of a program that has ended.
    left: Option<usize>,
    /// Nobody has the terminal open.
    hung: bool,
    closed: bool,
}

impl Output {
    fn new(lane: Lane, fd: OwnedFd) -> Self {
        Self { lane, fd, left: None, hung: false, closed: false }
    }

    fn is_over(&self) -> bool {
        self.closed || self.left == Some(0)
    }
}

fn in_a_while() -> Instant {
    let now = Instant::now();
    now.checked_add(GOES_ON).unwrap_or(now)
}

fn checked(program: &Program) -> Result<(), Failure> {
    let texts = program.argv.iter().chain(program.env.values()).chain(program.env.keys()).chain(&program.cwd);
    if texts.into_iter().any(|text| text.contains('\0')) {
        return Err(failure(Code::Invalid, "an argument, a variable or the working directory has a zero byte"));
    }
    if program.argv.first().is_none_or(String::is_empty) {
        return Err(failure(Code::Invalid, "a program needs a name"));
    }
    if let Some(name) = program.env.keys().find(|name| name.is_empty() || name.contains('=')) {
        return Err(failure(Code::Invalid, format!("`{name}` cannot be the name of a variable")));
    }
    if program.cwd.as_deref() == Some("") {
        return Err(failure(Code::Invalid, "an empty working directory is none"));
    }
    Ok(())
}

/// Whether a folder is asked for by a name that leads through a link, as the home folder's does: shells call it by that name when
/// they are told it (`PWD`).
fn is_by_link(folder: &str) -> bool {
    let plain = folder.starts_with('/') && !folder.split('/').any(|part| part == "." || part == "..");
    plain && std::fs::canonicalize(folder).is_ok_and(|real| real != Path::new(folder))
}

impl Running {
    pub(super) fn start(mut program: Program, inside: &mut Inside) -> Result<Self, Failure> {
        checked(&program)?;
        let home = || inside.home.to_str().filter(|_| inside.cwd == inside.home).map(str::to_owned);
        if let Some(folder) = program.cwd.clone().or_else(home).filter(|folder| is_by_link(folder)) {
            program.env.entry("PWD".to_owned()).or_insert(folder);
        }
        let failed = |errno| {
            let why = error_text(errno);
            failure(code(errno), format!("no streams can be made for the program (limits.files): {why}"))
        };
        let tty = program.tty;
        let (input, outputs, theirs) = match tty {
            Some(size) => on_a_terminal(size)?,
            None => on_pipes(program.stdin).map_err(failed)?,
        };
        for fd in outputs.iter().map(|output| &output.fd).chain(&input) {
            let flags = rustix::fs::fcntl_getfl(fd).map_err(failed)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK).map_err(failed)?;
        }
        let order = inside.starters.order(program, theirs)?;
        Ok(Self {
            order,
            wakes: in_a_while(),
            calls: 0,
            news: VecDeque::new(),
            controls: VecDeque::new(),
            pid: None,
            ended: None,
            input,
            outputs,
            tty: tty.is_some(),
        })
    }

    fn hear(&mut self, io: &mut Io<'_>) -> Result<(), Failure> {
        while let Some(told) = self.news.pop_front() {
            match told {
                ProgramEvent::Started(pid) => {
                    self.pid = Some(pid);
                    io.reply(&Started { pid: u32::try_from(pid).unwrap_or(0) });
                }
                ProgramEvent::Failed(failure) => return Err(failure),
                ProgramEvent::Exited(exited) => self.end(exited),
                ProgramEvent::Gone => {
                    return Err(failure(Code::Failed, "a program inside ended the process that starts programs"));
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, exited: Exited) {
        self.ended = Some(Ended { exited, at: Instant::now() });
        for output in &mut self.outputs {
            // What it has printed is in the pipe; what comes later is of a child that it left behind.
            let there = || usize::try_from(rustix::io::ioctl_fionread(&output.fd).unwrap_or(0)).unwrap_or(0);
            output.left = Some(if self.tty { AFTER_THE_END } else { there() });
        }
    }

    fn obey(&mut self, inside: &mut Inside) {
        let (Some(pid), None) = (self.pid, &self.ended) else { return };
        while let Some(control) = self.controls.pop_front() {
            match control {
                ProgramControl::Signal { number, tree: true } => {
                    inside.starters.signal(self.order, i32::from(number));
                }
                ProgramControl::Signal { number, tree: false } => {
                    let group = self.foreground().unwrap_or(pid);
                    // It may just have ended.
                    drop(sys::signals::send(group, true, i32::from(number)));
                }
                ProgramControl::Resize(Size { rows, cols }) => {
                    if let (true, Some(output)) = (self.tty, self.outputs.first()) {
                        drop(terminal::resize(&output.fd, terminal::Size { rows, columns: cols }));
                    }
                }
            }
        }
    }

    /// Without this a stopped starter would leave the client waiting for a start, or for an end that was.
    ///
    /// # Errors
    /// It was told often enough and has not started the program: something inside stops it without end.
    fn wake(&mut self, inside: &mut Inside) -> Result<(), Failure> {
        if Instant::now() < self.wakes {
            return Ok(());
        }
        if self.pid.is_none() {
            self.calls = self.calls.saturating_add(1);
            if self.calls > MAX_CALLS {
                let why = "the process that starts programs did not start it within 20 s: a program inside may stop it again and again";
                return Err(failure(Code::Failed, why));
            }
        }
        inside.starters.wake(self.order);
        self.wakes = in_a_while();
        Ok(())
    }

    /// The foreground group of its terminal: one of its own session, never one of ours.
    fn foreground(&self) -> Option<i32> {
        let terminal = self.outputs.first().filter(|_| self.tty)?;
        rustix::termios::tcgetpgrp(&terminal.fd).ok().map(|group| group.as_raw_nonzero().get())
    }

    /// Writes what came; true if something moved.
    fn write(&mut self, io: &mut Io<'_>) -> bool {
        let Some(input) = self.input.as_ref().filter(|_| self.ended.is_none()) else {
            io.drop_input();
            return false;
        };
        if io.input().is_empty() {
            // To a terminal the end of a file is a byte that somebody types.
            if io.is_over() && !self.tty {
                self.input = None;
            }
            return false;
        }
        let bytes = io.input().get(..MAX_DATA).unwrap_or_else(|| io.input());
        match rustix::io::write(input, bytes) {
            Ok(count) => {
                io.take(count);
                true
            }
            Err(Errno::AGAIN | Errno::INTR) => false,
            Err(_) => {
                // It reads no more.
                if !self.tty {
                    self.input = None;
                }
                io.drop_input();
                false
            }
        }
    }

    /// Reads each output once; true if something moved.
    fn read(&mut self, io: &mut Io<'_>) -> Result<bool, Failure> {
        let mut moved = false;
        for output in self.outputs.iter_mut().filter(|output| !output.is_over()) {
            output.hung = false;
            if io.may_send() == 0 {
                break;
            }
            let most = output.left.unwrap_or(MAX_DATA);
            match io.data_from(output.lane, most, |bytes| rustix::io::read(&output.fd, bytes)) {
                Ok(0) => output.closed = true,
                Ok(count) => {
                    moved = true;
                    output.left = output.left.map(|left| left.saturating_sub(count));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(Errno::IO) if self.tty && self.ended.is_none() => output.hung = true,
                Err(Errno::IO) if self.tty => output.closed = true,
                Err(errno) => return Err(at("reading the output of", std::path::Path::new("the program"))(errno)),
            }
        }
        if let Some(ended) = self.ended.as_mut().filter(|_| moved) {
            ended.at = Instant::now();
        }
        Ok(moved)
    }
}

/// Input, outputs and what the program gets.
type Streams = (Option<OwnedFd>, Vec<Output>, Vec<OwnedFd>);

fn on_pipes(stdin: bool) -> Result<Streams, Errno> {
    let (read, input) = match stdin {
        true => rustix::pipe::pipe_with(PipeFlags::CLOEXEC).map(|(read, write)| (read, Some(write)))?,
        false => (nothing()?, None),
    };
    let (out, theirs_out) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let (err, theirs_err) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
    let outputs = vec![Output::new(Lane::Out, out), Output::new(Lane::Err, err)];
    Ok((input, outputs, vec![read, theirs_out, theirs_err]))
}

fn on_a_terminal(size: Size) -> Result<Streams, Failure> {
    let pair = terminal::open(terminal::Size { rows: size.rows, columns: size.cols }).map_err(|error| {
        let full = [Errno::MFILE, Errno::NFILE, Errno::NOSPC, Errno::NOMEM].contains(&error.errno);
        let code = if full { Code::TooMany } else { Code::Unsupported };
        failure(code, format!("this sandbox gives no terminal (dev.tty): {error}"))
    })?;
    let input = pair.master.try_clone().map_err(|error| failure(Code::TooMany, format!("no terminal: {error}")))?;
    Ok((Some(input), vec![Output::new(Lane::Out, pair.master)], vec![pair.slave]))
}

impl Task for Running {
    fn step(&mut self, io: &mut Io<'_>, inside: &mut Inside) -> Result<Progress, Failure> {
        self.hear(io)?;
        if self.ended.is_none() {
            self.wake(inside)?;
        }
        if self.pid.is_none() {
            return Ok(Progress::Until(self.wakes));
        }
        self.obey(inside);
        let wrote = self.write(io);
        let moved = self.read(io)? || wrote;
        let Some(ended) = &self.ended else {
            let hung = self.outputs.iter().any(|output| output.hung);
            let later = Instant::now().checked_add(REOPENED).filter(|_| hung);
            let next = later.map_or(self.wakes, |later| later.min(self.wakes));
            return Ok(if moved { Progress::More } else { Progress::Until(next) });
        };
        let quiet = ended.at.checked_add(QUIET).filter(|_| self.tty && io.may_send() > 0);
        let waited = quiet.is_some_and(|quiet| quiet <= Instant::now());
        if !waited && self.outputs.iter().any(|output| !output.is_over()) {
            return Ok(if moved { Progress::More } else { quiet.map_or(Progress::Wait, Progress::Until) });
        }
        let exited = ended.exited;
        for output in self.outputs.drain(..).filter(|output| !output.closed) {
            inside.leftovers.add(output.fd);
        }
        Progress::done(exited)
    }

    fn waits<'a>(&'a self, flow: &Waiting, add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        if self.pid.is_none() {
            return;
        }
        for output in self.outputs.iter().filter(|output| flow.can_send && !output.is_over() && !output.hung) {
            add(output.fd.as_fd(), PollFlags::IN);
        }
        if let (true, Some(input)) = (flow.has_input, &self.input) {
            add(input.as_fd(), PollFlags::OUT);
        }
    }

    fn control(&mut self, control: ProgramControl) {
        if self.controls.len() < CONTROLS {
            self.controls.push_back(control);
        }
    }

    fn told(&mut self, told: ProgramEvent) {
        self.news.push_back(told);
    }

    fn cancel(&mut self, inside: &mut Inside) {
        for told in self.news.drain(..) {
            match told {
                ProgramEvent::Exited(exited) => self.ended = Some(Ended { exited, at: Instant::now() }),
                ProgramEvent::Started(_) | ProgramEvent::Failed(_) | ProgramEvent::Gone => {}
            }
        }
        // The number of one that has ended may be another's by now, and what it left behind lives on.
        if self.ended.is_none() {
            inside.starters.end(self.order);
        }
        for output in self.outputs.drain(..).filter(|output| !output.closed) {
            inside.leftovers.add(output.fd);
        }
    }

    fn order(&self) -> Option<u64> {
        Some(self.order)
    }
}
