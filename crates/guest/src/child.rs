//! The payload's first process: from the guest's memory to the program.
//!
//! It gets its own session, its terminal, its own Landlock layer (which keeps it from signalling or tracing the guest),
//! unblocked signals, and of all descriptors only 0, 1 and 2.

use core::ffi::CStr;

use sys::bare::{self, Errno, Fd, Pointers, Stack};

use crate::config::View;
use crate::confine::{Fault, Guest};
use crate::frames::{ExecFailure, FromGuest};
use crate::paths::Path;
use crate::step::Step;

/// Why the payload does not run.
#[derive(Clone, Copy)]
pub(crate) enum Failed {
    /// A control could not be put on.
    Step(Step, Fault),
    /// The program could not be started.
    Exec(Errno, ExecFailure),
}

fn at(step: Step) -> impl Fn(Errno) -> Failed {
    move |errno| Failed::Step(step, errno.into())
}

/// What the payload's first process is made of; made while the supervisor judges the posture.
pub(crate) struct Ready<'a> {
    arguments: Pointers<'a>,
    environment: Pointers<'a>,
    stack: Stack,
}

impl<'a> Ready<'a> {
    pub(crate) fn new(view: &View<'a>) -> bare::Result<Self> {
        Ok(Self {
            arguments: pointers(view.argv.len(), view.argv.iter())?,
            environment: pointers(view.env.len(), view.env.iter())?,
            stack: Stack::new()?,
        })
    }
}

/// Starts it and tells so; its pid.
pub(crate) fn start(guest: &mut Guest<'_>) -> Result<i32, Failed> {
    let view = guest.view;
    let spawn = at(Step::Spawn);
    let ready = match guest.ready.take() {
        Some(ready) => ready,
        None => Ready::new(&view).map_err(&spawn)?,
    };
    let Ready { arguments, environment, mut stack } = ready;
    let mut failed = None;
    let pid = {
        let (guest, failed) = (&*guest, &mut failed);
        let mut work = || {
            // Only a failure comes back from an exec.
            *failed = Some(match setup(guest) {
                Ok(()) => execute(&view, &arguments, &environment),
                Err(failed) => failed,
            });
            125
        };
        bare::spawn_in_our_memory(&mut stack, &mut work).map_err(&spawn)?
    };
    if let Some(failed) = failed {
        return Err(failed);
    }
    // The payload's streams end when the payload closes them, and not when we do. It cannot fail for this range.
    let _closed = bare::close_range(0, 2);
    if let Some(terminal) = &mut guest.terminal {
        terminal.slave = None;
    }
    guest.payload_layer = None;
    // A supervisor that died since *go* does not hear it. The payload runs: to fail here would leave it to itself, while
    // the watch finds the closed socket and kills all.
    let _heard = guest.link.send(&FromGuest::Started { pid }, &[]);
    Ok(pid)
}

fn pointers<'a>(count: usize, texts: impl Iterator<Item = &'a CStr>) -> bare::Result<Pointers<'a>> {
    let mut pointers = Pointers::new(count)?;
    for text in texts {
        pointers.push(text)?;
    }
    Ok(pointers)
}

/// In the child: everything up to the program.
fn setup(guest: &Guest<'_>) -> Result<(), Failed> {
    let setup = at(Step::PayloadSetup);
    bare::new_session().map_err(&setup)?;
    if let Some(slave) = guest.terminal.as_ref().and_then(|terminal| terminal.slave.as_ref()) {
        bare::take_terminal(slave.fd()).map_err(&setup)?;
        for stream in 0..3 {
            bare::duplicate_to(slave.fd(), Fd::new(stream), true).map_err(&setup)?;
        }
    }
    if let Some((ruleset, flags)) = &guest.payload_layer {
        ruleset.restrict_self(*flags).map_err(at(Step::PayloadLayer))?;
    }
    bare::set_umask(guest.view.umask);
    let cwd = if guest.view.cwd.is_empty() { c"/" } else { guest.view.cwd };
    bare::change_dir(cwd).map_err(|errno| Failed::Exec(errno, ExecFailure::Cwd))?;
    bare::close_range(3, u32::MAX).map_err(&setup)?;
    bare::block_all(false).map_err(&setup)
}

/// In the child: becomes the program, or says why not.
fn execute(view: &View<'_>, arguments: &Pointers<'_>, environment: &Pointers<'_>) -> Failed {
    let name = view.argv.iter().next().unwrap_or(c"");
    let attempt = |path: &CStr| {
        let errno = bare::execve(path, arguments, environment);
        (errno, judge(errno, path))
    };
    let mut failed = (Errno::ENOENT, ExecFailure::NotFound);
    if name.to_bytes().contains(&b'/') {
        failed = attempt(name);
        return Failed::Exec(failed.0, failed.1);
    }
    for folder in view.search.iter().filter(|_| !name.is_empty()) {
        let mut path = Path::new();
        let fits = [folder.to_bytes(), b"/", name.to_bytes()].iter().try_for_each(|part| path.push(part));
        if fits.is_err() {
            continue;
        }
        match attempt(path.as_c_str()) {
            (_, ExecFailure::NotFound) => {}
            // As a shell does: a file that may not be executed does not hide a later one that may.
            (Errno::EACCES, ExecFailure::NotExecutable) => failed = (Errno::EACCES, ExecFailure::NotExecutable),
            (errno, which) => return Failed::Exec(errno, which),
        }
    }
    Failed::Exec(failed.0, failed.1)
}

fn judge(errno: Errno, path: &CStr) -> ExecFailure {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR if bare::exists(path) => ExecFailure::NoInterpreter,
        Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::ELOOP => ExecFailure::NotFound,
        Errno::E2BIG | Errno::ENOMEM | Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE => ExecFailure::Resources,
        _ => ExecFailure::NotExecutable,
    }
}
