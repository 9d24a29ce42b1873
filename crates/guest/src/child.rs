//! A program's first process, the payload's or that of a later one: from the guest's memory to the program.
//!
//! It gets its own session, its terminal, its own Landlock layer (which keeps it from signalling or tracing the guest),
//! unblocked signals, and of all descriptors only 0, 1 and 2.

use core::ffi::CStr;

use sys::bare::{self, Errno, Fd, Pointers, StdioFds};

use crate::config::{Mode, View};
use crate::fault::Fault;
use crate::frames::{ExecFailure, FromGuest, Start};
use crate::mounts::NULL;
use crate::paths::Path;
use crate::ready::Ready;
use crate::state::Guest;
use crate::step::Step;

/// Where a program's first process has the program that it becomes, if that has no path; closed by the exec.
const PROGRAM: u32 = 3;

/// Why the payload does not run.
#[derive(Clone, Copy)]
pub(crate) enum StartFailure {
    /// A control could not be put on.
    Step(Step, Fault),
    /// The program could not be started.
    Exec(Errno, ExecFailure),
}

fn at(step: Step) -> impl Fn(Errno) -> StartFailure {
    move |errno| StartFailure::Step(step, errno.into())
}

/// What one start is about.
struct StartRequest<'a> {
    /// The program, by path or by name.
    name: &'a CStr,
    /// Where it stands instead.
    program: Option<Fd>,
    cwd: &'a CStr,
    /// Its streams; `None` = those that the guest itself was given, or its terminal.
    streams: Option<&'a StdioFds>,
}

/// Starts the payload and tells so; its pid.
pub(crate) fn start(guest: &mut Guest<'_>) -> Result<i32, StartFailure> {
    let view = guest.view;
    let mut ready = match guest.ready.take() {
        Some(ready) => ready,
        None => Ready::new(&view).map_err(at(Step::Spawn))?,
    };
    let program = view.program.map(Fd::new);
    let wanted = StartRequest { name: view.argv.iter().next().unwrap_or(c""), program, cwd: view.cwd, streams: None };
    let pid = launch(guest, &mut ready, &wanted)?;
    // The payload's streams end when the payload closes them, and not when we do. It cannot fail for this range.
    let _closed = bare::close_range(0, 2);
    program.into_iter().for_each(bare::close);
    if view.stay {
        guest.ready = Some(ready.emptied());
    } else {
        guest.payload_layer = None;
    }
    if let Some(terminal) = &mut guest.terminal {
        terminal.slave = None;
    }
    // A supervisor that died since *go* does not hear it. The payload runs: to fail here would leave it to itself, while
    // the watch finds the closed socket and kills all.
    let _heard = guest.link.answer(guest.first, &FromGuest::Started { pid });
    Ok(pid)
}

/// Our own 0, 1 and 2 are taken by something else, so that no stream of another program ever has their numbers: in its
/// child they are put in their places one after the other.
pub(crate) fn hold_streams(guest: &Guest<'_>) -> bare::Result<()> {
    let children = guest.children.as_ref().ok_or(Errno::EBADF)?.fd();
    (0..3).try_for_each(|stream| bare::duplicate_to(children, Fd::new(stream), false))
}

/// Starts one more program, as the payload was started; its pid.
pub(crate) fn start_another(guest: &mut Guest<'_>, start: &Start<'_>, streams: &StdioFds) -> Result<i32, StartFailure> {
    let none = StartFailure::Exec(Errno::E2BIG, ExecFailure::Resources);
    let ready = guest.ready.take().ok_or(none)?;
    let (mut ready, all) = ready.filled(start.argv, start.env);
    let name = start.argv.iter().next().unwrap_or(c"");
    let wanted = StartRequest { name, program: None, cwd: start.cwd, streams: Some(streams) };
    let started = if all { launch(guest, &mut ready, &wanted) } else { Err(none) };
    guest.ready = Some(ready.emptied());
    started
}

/// Starts a program; its pid.
fn launch(guest: &Guest<'_>, ready: &mut Ready<'_>, wanted: &StartRequest<'_>) -> Result<i32, StartFailure> {
    let Ready { arguments, environment, stack } = ready;
    let mut failed = None;
    let pid = {
        let failed = &mut failed;
        let mut work = || {
            // Only a failure comes back from an exec.
            *failed = Some(match setup(guest, wanted) {
                Ok(()) if wanted.program.is_some() => {
                    let errno = bare::execute_descriptor(Fd::new(PROGRAM), arguments, environment);
                    StartFailure::Exec(errno, judge(errno, wanted.name))
                }
                Ok(()) => execute(&guest.view, wanted.name, arguments, environment),
                Err(failed) => failed,
            });
            125
        };
        bare::spawn_in_our_memory(stack, &mut work).map_err(at(Step::Spawn))?
    };
    failed.map_or(Ok(pid), Err)
}

/// In the child: everything up to the program.
fn setup(guest: &Guest<'_>, wanted: &StartRequest<'_>) -> Result<(), StartFailure> {
    let setup = at(Step::PayloadSetup);
    bare::new_session().map_err(&setup)?;
    if let Some(streams) = wanted.streams {
        for (stream, number) in streams.iter().zip(0..) {
            bare::duplicate_to(stream.fd(), Fd::new(number), true).map_err(&setup)?;
        }
    } else if let Some(slave) = guest.terminal.as_ref().and_then(|terminal| terminal.slave.as_ref()) {
        bare::take_terminal(slave.fd()).map_err(&setup)?;
        for stream in 0..3 {
            bare::duplicate_to(slave.fd(), Fd::new(stream), true).map_err(&setup)?;
        }
    }
    if guest.view.mode != Mode::Process {
        own_null().map_err(&setup)?;
    }
    if let Some((ruleset, flags)) = &guest.payload_layer {
        ruleset.restrict_self(*flags).map_err(at(Step::PayloadLayer))?;
    }
    let cwd = if wanted.cwd.is_empty() { c"/" } else { wanted.cwd };
    bare::change_dir(cwd).map_err(|errno| StartFailure::Exec(errno, ExecFailure::Cwd))?;
    let beyond = match wanted.program {
        Some(program) => {
            bare::duplicate_to(program, Fd::new(PROGRAM), false).map_err(&setup)?;
            PROGRAM.saturating_add(1)
        }
        None => 3,
    };
    bare::close_range(beyond, bare::LAST_FD).map_err(&setup)?;
    bare::block_all(false).map_err(&setup)
}

/// A stream that is the host's `/dev/null` becomes the one inside, whose mount is read-only: by a descriptor that was opened
/// outside anybody could set the times of the host's node.
fn own_null() -> bare::Result<()> {
    for stream in (0..3).map(Fd::new) {
        if bare::status(stream, c"").is_ok_and(|found| found.device == Some(NULL)) {
            bare::duplicate_to(bare::open_read_write(c"/dev/null")?.fd(), stream, true)?;
        }
    }
    Ok(())
}

/// In the child: becomes the program, or says why not.
fn execute(view: &View<'_>, name: &CStr, arguments: &Pointers<'_>, environment: &Pointers<'_>) -> StartFailure {
    let attempt = |path: &CStr| {
        let errno = bare::execve(path, arguments, environment);
        (errno, judge(errno, path))
    };
    let mut failed = (Errno::ENOENT, ExecFailure::NotFound);
    if name.to_bytes().contains(&b'/') {
        failed = attempt(name);
        return StartFailure::Exec(failed.0, failed.1);
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
            (errno, which) => return StartFailure::Exec(errno, which),
        }
    }
    StartFailure::Exec(failed.0, failed.1)
}

fn judge(errno: Errno, path: &CStr) -> ExecFailure {
    match errno {
        Errno::ENOENT | Errno::ENOTDIR if bare::exists(path) => ExecFailure::NoInterpreter,
        Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG | Errno::ELOOP => ExecFailure::NotFound,
        Errno::E2BIG | Errno::ENOMEM | Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE => ExecFailure::Resources,
        _ => ExecFailure::NotExecutable,
    }
}
