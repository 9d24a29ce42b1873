//! A payload that is an interpreter of ours: it says its limits before it is given the program.
//!
//! Its words and its stdin are the channel. It is started with its limits, tries them, and writes them back as one line on
//! its stdout; only when that line is the plan's is the program written to its stdin, and what follows there is the
//! program's own. Until then nothing of the program has been read by anybody inside.

use std::ffi::CString;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use policy::Control;
use policy::control::Interpreter;
use sys::channel::Interest;

use super::blueprint::Blueprint;
use super::running::Running;
use crate::backend::{Launch, Stdio, Streams};
use crate::{StartError, backend};

/// The first word of our own executable by which it becomes an interpreter; nobody else says it.
pub const WORD: &str = "__language";
/// How long an interpreter may take to say its limits, or to read its program.
const READY: Duration = Duration::from_secs(20);
/// The longest line of limits.
const MAX_LINE: usize = 64 * 1024;
/// How much of its complaint is shown.
const MAX_WORDS: usize = 500;

/// What an interpreter is told and given.
#[derive(Debug)]
pub(crate) struct Interpreted {
    /// None where a test of the proof leaves it out.
    limits: Option<Interpreter>,
    code: Vec<u8>,
    /// What follows the program on its stdin is the program's.
    input: bool,
}

impl Interpreted {
    pub(super) fn of(blueprint: &Blueprint, launch: &Launch) -> Self {
        let code = launch.files.first().map(|(_, bytes)| bytes.clone()).unwrap_or_default();
        Self { limits: blueprint.interpreter.clone(), code, input: launch.stdio == Stdio::Pipes }
    }

    /// The words before the program's own.
    pub(super) fn argv_prefix(&self) -> Vec<CString> {
        let limits = self.limits.as_ref().map(Interpreter::to_line).unwrap_or_default();
        let words = ["fumehood", WORD, &limits];
        words.into_iter().map(|word| CString::new(word).unwrap_or_default()).collect()
    }

    /// Whether its program may call tools.
    pub(super) fn calls_tools(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.tools)
    }

    /// By its stdin it is given the program, and speaks of tools.
    pub(super) fn stdio(&self, asked: Stdio) -> Stdio {
        if self.calls_tools() {
            return Stdio::Spoken;
        }
        if asked == Stdio::NoInput { Stdio::Pipes } else { asked }
    }

    /// The control that it is.
    pub(super) fn control(&self) -> Option<Control> {
        self.limits.clone().map(Control::Interpreter)
    }

    /// Waits until the interpreter has said its limits.
    ///
    /// # Errors
    /// They are others than the plan's, or it said nothing.
    pub(super) fn prove(self, mut running: Running) -> Result<Proven, StartError> {
        let streams = std::mem::take(&mut running.streams);
        let (Some(input), Some(output)) = (streams.input.or(streams.socket), streams.output) else {
            return Err(StartError::Internal("an interpreter without pipes".to_owned()));
        };
        let mut output = File::from(output);
        let line = line(&mut output).map_err(|why| {
            let words = complaint(streams.errors.as_ref());
            StartError::Posture(vec![format!("the interpreter did not say its limits: {why}{words}")])
        })?;
        let said = Interpreter::from_line(&line).ok();
        if said.is_none() || said != self.limits {
            let wanted = self.limits.as_ref().map(Interpreter::to_line).unwrap_or_default();
            return Err(StartError::Posture(vec![format!("the interpreter has the limits {line}, and not {wanted}")]));
        }
        running.streams = Streams { output: Some(OwnedFd::from(output)), errors: streams.errors, ..Streams::default() };
        Ok(Proven { running, input, program: self })
    }
}

/// An interpreter with the plan's limits, which has no program yet.
#[derive(Debug)]
pub(super) struct Proven {
    running: Running,
    input: OwnedFd,
    program: Interpreted,
}

impl backend::Verified for Proven {
    fn pid(&self) -> i32 {
        self.running.held.child.pid
    }

    fn takes_program(&self) -> bool {
        // Its process is readable when it has ended.
        let end = Interest { fd: self.running.held.child.pidfd.as_fd(), write: false };
        sys::channel::wait(&[end], Some(Duration::ZERO)).is_ok_and(|ready| ready == [false])
    }

    fn give(&mut self, program: Vec<u8>) -> Result<(), StartError> {
        self.program.code = program;
        Ok(())
    }

    fn go(self: Box<Self>) -> Result<Box<dyn backend::Running>, StartError> {
        let Self { mut running, input, program } = *self;
        let mut input = File::from(input);
        let length = u64::try_from(program.code.len()).unwrap_or(u64::MAX).to_le_bytes();
        let given = write(&mut input, &length).and_then(|()| write(&mut input, &program.code));
        given.map_err(|why| StartError::System { what: "giving the interpreter its program".to_owned(), why })?;
        let input = OwnedFd::from(input);
        if program.calls_tools() {
            running.streams.socket = Some(input);
        } else {
            running.streams.input = program.input.then_some(input);
        }
        Ok(Box::new(running))
    }
}

/// Waits for a descriptor until a moment.
fn wait(interest: Interest<'_>, until: Instant) -> Result<(), String> {
    let ready = sys::channel::wait_until(&[interest], Some(until)).map_err(|error| error.to_string())?;
    if ready == [true] { Ok(()) } else { Err(format!("nothing came within {READY:?}")) }
}

/// One line, and nothing after it: whoever waits for its program has nothing more to say.
fn line(output: &mut File) -> Result<String, String> {
    let until = Instant::now() + READY;
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    while bytes.last() != Some(&b'\n') {
        if bytes.len() > MAX_LINE {
            return Err("it says too much".to_owned());
        }
        match output.read(&mut chunk) {
            Ok(0) => return Err("it has ended".to_owned()),
            Ok(count) => bytes.extend_from_slice(chunk.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(Interest { fd: output.as_fd(), write: false }, until)?
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    bytes.pop();
    String::from_utf8(bytes).map_err(|_bytes| "it says no text".to_owned())
}

fn write(input: &mut File, mut bytes: &[u8]) -> Result<(), String> {
    let until = Instant::now() + READY;
    while !bytes.is_empty() {
        match input.write(bytes) {
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait(Interest { fd: input.as_fd(), write: true }, until)?
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(())
}

/// What it wrote on its error stream, which is ours as long as it has no program.
fn complaint(errors: Option<&OwnedFd>) -> String {
    let Some(mut errors) = errors.and_then(|fd| fd.try_clone().ok()).map(File::from) else { return String::new() };
    let mut bytes = vec![0; MAX_WORDS];
    let count = errors.read(&mut bytes).unwrap_or_default();
    bytes.truncate(count);
    let text = sys::proc::shown(&bytes);
    if text.is_empty() { text } else { format!(" ({})", text.trim()) }
}
