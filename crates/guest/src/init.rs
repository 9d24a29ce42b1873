//! After *go*: reap everything, pass signals on, answer, and report the end when everything is over.

use sys::bare::{self, Change, Errno, Used, Wait};

use crate::config::{Mode, Size};
use crate::confine::Guest;
use crate::frames::{End, Exited, FromGuest, ToGuest};

/// The supervisor is gone, or speaks nonsense: nobody is left to answer for the payload.
struct Alone;

/// Runs until everything inside has ended; the exit code.
pub(crate) fn run(guest: &mut Guest<'_>, payload: i32) -> i32 {
    let mut used = Used::default();
    match watch(guest, payload, &mut used) {
        Ok(end) => {
            finish(guest, &mut used);
            let Used { utime_us, stime_us, maxrss_kb } = used;
            let exited = Exited { end, utime_us, stime_us, maxrss_kb };
            guest.link.send(&FromGuest::Exited(exited), &[]).map_or(125, |()| 0)
        }
        Err(Alone) => {
            kill_all(guest);
            finish(guest, &mut used);
            125
        }
    }
}

/// Until the payload's first process has ended.
fn watch(guest: &mut Guest<'_>, payload: i32, used: &mut Used) -> Result<End, Alone> {
    // What came together with *go* was read with it, and no poll would tell of it: a signal of the caller, for one.
    heed(guest, payload)?;
    loop {
        let children = guest.children.as_ref().ok_or(Alone)?.fd();
        let [control, child] = match bare::poll_readable([guest.link.socket(), children]) {
            Err(Errno::EINTR) => continue,
            ready => ready.or(Err(Alone))?,
        };
        if child {
            // One signal may stand for many children: it only says that it is time to look.
            let mut information = [0; 128];
            let _drained = bare::read_some(children, &mut information);
            if let Some(end) = reap(guest, payload, used)? {
                return Ok(end);
            }
        }
        if control {
            listen(guest, payload)?;
        }
    }
}

fn reap(guest: &Guest<'_>, payload: i32, used: &mut Used) -> Result<Option<End>, Alone> {
    loop {
        match bare::wait_any(Wait::No) {
            Ok(None) | Err(Errno::ECHILD) => return Ok(None),
            Err(Errno::EINTR) => {}
            Err(_) => return Err(Alone),
            Ok(Some((pid, change, its))) => {
                let frame = match change {
                    Change::Exited(_) | Change::Killed { .. } => {
                        add(used, its);
                        match (pid == payload, end(change)) {
                            (true, Some(end)) => return Ok(Some(end)),
                            _ => continue,
                        }
                    }
                    Change::Stopped(signal) => FromGuest::Stopped(signal),
                    Change::Continued => FromGuest::Continued,
                };
                if pid == payload {
                    guest.link.send(&frame, &[]).or(Err(Alone))?;
                }
            }
        }
    }
}

fn end(change: Change) -> Option<End> {
    match change {
        Change::Exited(code) => Some(End::Code(code)),
        Change::Killed { signal, core } => Some(End::Signal { number: signal, core }),
        Change::Stopped(_) | Change::Continued => None,
    }
}

fn add(used: &mut Used, its: Used) {
    used.utime_us = used.utime_us.saturating_add(its.utime_us);
    used.stime_us = used.stime_us.saturating_add(its.stime_us);
    used.maxrss_kb = used.maxrss_kb.max(its.maxrss_kb);
}

fn listen(guest: &mut Guest<'_>, payload: i32) -> Result<(), Alone> {
    guest.link.receive(false).or(Err(Alone))?;
    heed(guest, payload)
}

fn heed(guest: &mut Guest<'_>, payload: i32) -> Result<(), Alone> {
    while let Some(frame) = guest.link.take().or(Err(Alone))? {
        match frame {
            ToGuest::Signal(number) => signal(guest, payload, i32::from(number)),
            ToGuest::Resize(size) => resize(guest, size),
            ToGuest::Kill => kill_all(guest),
            ToGuest::Ping => guest.link.send(&FromGuest::Pong, &[]).or(Err(Alone))?,
            // Said once, before go.
            ToGuest::Mapped | ToGuest::Filled | ToGuest::Go => return Err(Alone),
        }
    }
    Ok(())
}

/// To the foreground group of the terminal, else to the payload's first group. A group that is gone is no failure.
fn signal(guest: &Guest<'_>, payload: i32, number: i32) {
    let foreground = guest.terminal.as_ref().and_then(|terminal| bare::foreground_group(terminal.master.fd()).ok());
    let group = foreground.filter(|group| *group > 1).unwrap_or(payload);
    if bare::kill(group.saturating_neg(), number) == Err(Errno::ESRCH) {
        let _gone = bare::kill(payload, number);
    }
}

fn resize(guest: &Guest<'_>, size: Size) {
    if let Some(terminal) = &guest.terminal {
        let _closed = bare::set_terminal_size(terminal.master.fd(), size.rows, size.cols);
    }
}

/// Everybody but us. In a pid namespace -1 means its processes; in the process tier it means those within our Landlock
/// signal scope, and only if that scope was proven.
fn kill_all(guest: &Guest<'_>) {
    if guest.view.mode == Mode::Container && bare::pid() == 1 || guest.scope_proven {
        let _nobody_left = bare::kill(-1, bare::SIGKILL);
    }
}

/// Reaps what is left and lets nothing live on.
fn finish(guest: &Guest<'_>, used: &mut Used) {
    let mut killed = false;
    loop {
        let obeyed = guest.view.label.is_empty();
        match bare::wait_any(if killed && obeyed { Wait::Block } else { Wait::No }) {
            Ok(Some((_, Change::Exited(_) | Change::Killed { .. }, its))) => add(used, its),
            Ok(Some(_)) | Err(Errno::EINTR) => {}
            // Orphans become our children, so no children means that nobody is left.
            Err(_) => return,
            // The policy of a label may keep us from signalling what runs under it: our own end, which ends the pid
            // namespace, is asked of nobody.
            Ok(None) if killed => return,
            Ok(None) => {
                kill_all(guest);
                killed = true;
            }
        }
    }
}
