//! After *go*: reap everything, pass signals on, answer, start what is asked for, and report the end when everything is
//! over.

use sys::bare::{self, Change, Errno, StdioFds, Used, Wait};

use crate::child;
use crate::config::{Mode, Size};
use crate::fault::{Fault, Taken};
use crate::frames::{Address, End, ExecFailure, Exited, FromGuest, Start, ToGuest};
use crate::link::Inbox;
use crate::programs::{Program, Programs};
use crate::state::Guest;
use crate::step::Step;

/// The guest as init.
struct Init<'g, 'a> {
    guest: &'g mut Guest<'a>,
    programs: Programs,
    /// All that was reaped.
    used: Used,
    /// It was told to kill all: no program is started any more, and it goes when the last has ended.
    leaving: bool,
}

/// Runs until everything inside has ended; the exit code.
pub(crate) fn run(guest: &mut Guest<'_>, payload: i32) -> i32 {
    let mut inbox = core::mem::take(&mut guest.inbox);
    let (first, link) = (guest.first, guest.link);
    let programs = Programs::new(Program { at: first, pid: payload });
    let mut init = Init { guest, programs, used: Used::default(), leaving: false };
    match init.watch(&mut inbox) {
        Ok(Some(end)) => {
            init.finish();
            link.answer(first, &exited(end, init.used)).map_or(125, |()| 0)
        }
        Ok(None) => {
            init.finish();
            0
        }
        // The supervisor is gone, or speaks nonsense: nobody is left to answer for the payload.
        Err(Fault { errno, detail }) => {
            let _told = link.tell(&FromGuest::Failed { step: Step::Init, errno, detail }, &[]);
            init.kill_all();
            init.finish();
            125
        }
    }
}

impl Init<'_, '_> {
    /// Until the payload has ended, whose end it answers; where the guest stays, until it was told to go.
    fn watch(&mut self, inbox: &mut Inbox) -> Taken<Option<End>> {
        if self.guest.view.stay {
            child::hold_streams(self.guest)?;
        }
        // What came together with *go* was read with it, and no poll would tell of it: a signal of the caller, for one.
        self.heed(inbox)?;
        let children = self.guest.children.as_ref().ok_or(Errno::EBADF)?.fd();
        while !(self.leaving && self.guest.view.stay && self.programs.is_empty()) {
            let [control, child] = match bare::poll_readable([self.guest.link.socket(), children]) {
                Err(Errno::EINTR) => continue,
                ready => ready?,
            };
            if child {
                // One signal may stand for many children: it only says that it is time to look.
                let mut information = [0; 128];
                let _drained = bare::read_some(children, &mut information);
                if let Some(end) = self.reap()? {
                    return Ok(Some(end));
                }
            }
            if control {
                inbox.receive(self.guest.link, false)?;
                self.heed(inbox)?;
            }
        }
        Ok(None)
    }

    fn reap(&mut self) -> Taken<Option<End>> {
        loop {
            let (pid, change, its) = match bare::wait_any(Wait::No) {
                Ok(None) | Err(Errno::ECHILD) => return Ok(None),
                Err(Errno::EINTR) => continue,
                changed => match changed? {
                    Some(changed) => changed,
                    None => return Ok(None),
                },
            };
            let program = self.programs.of_process(pid);
            let end = match change {
                Change::Exited(code) => End::Code(code),
                Change::Killed { signal, core } => End::Signal { number: signal, core },
                Change::Stopped(signal) => {
                    self.tell(program, &FromGuest::Stopped(signal))?;
                    continue;
                }
                Change::Continued => {
                    self.tell(program, &FromGuest::Continued)?;
                    continue;
                }
            };
            add(&mut self.used, its);
            let Some(program) = program else { continue };
            if !self.guest.view.stay {
                return Ok(Some(end));
            }
            self.programs.end(pid);
            self.guest.link.answer(program.at, &exited(end, its))?;
        }
    }

    /// What nobody asked for, about a program.
    fn tell(&self, about: Option<Program>, frame: &FromGuest) -> Taken {
        let Some(Program { at, pid: _ }) = about else { return Ok(()) };
        Ok(self.guest.link.answer(Address { channel: at.channel, request: 0 }, frame)?)
    }

    fn heed(&mut self, inbox: &mut Inbox) -> Taken {
        while let Some(said) = inbox.next()? {
            let at = said.at;
            match said.frame {
                ToGuest::Signal(number) => {
                    if let Some(program) = self.programs.of_channel(at.channel)? {
                        self.signal(program, i32::from(number));
                    }
                }
                ToGuest::Resize(size) => self.resize(size),
                ToGuest::Kill => {
                    self.kill_all();
                    self.leaving = true;
                }
                ToGuest::Ping => self.guest.link.answer(at, &FromGuest::Pong)?,
                ToGuest::Start(start) => self.start(at, &start, said.streams)?,
                // Said once, before go.
                ToGuest::Mapped | ToGuest::Filled | ToGuest::Go => {
                    return Err(Fault { errno: Errno::EPROTO.number(), detail: u32::from(said.frame.kind()) });
                }
            }
        }
        Ok(())
    }

    /// One more program, on a channel of its own. What the supervisor should not have asked for ends everything; what
    /// cannot be had is the end of this program alone.
    fn start(&mut self, at: Address, start: &Start<'_>, streams: Option<StdioFds>) -> Taken {
        if !self.guest.view.stay {
            return Err(Errno::EOPNOTSUPP.into());
        }
        self.programs.open(at.channel)?;
        let streams = streams.ok_or(Errno::EBADF)?;
        let started = if self.leaving {
            Err((Errno::ESHUTDOWN.number(), ExecFailure::Resources))
        } else if self.programs.is_full() {
            Err((Errno::EAGAIN.number(), ExecFailure::Resources))
        } else {
            child::start_another(self.guest, start, &streams).map_err(|failed| match failed {
                child::StartFailure::Exec(errno, which) => (errno.number(), which),
                // There was no process or no memory for it.
                child::StartFailure::Step(_, fault) => (fault.errno, ExecFailure::Resources),
            })
        };
        drop(streams);
        let frame = match started {
            Ok(pid) => {
                self.programs.add(Program { at, pid });
                FromGuest::Started { pid }
            }
            Err((errno, which)) => FromGuest::ExecFailed { errno, which },
        };
        Ok(self.guest.link.answer(at, &frame)?)
    }

    /// To the foreground group of the terminal, which is the payload's, else to the program's first group. A group that is
    /// gone is no failure.
    fn signal(&self, program: Program, number: i32) {
        let terminal = self.guest.terminal.as_ref().filter(|_| program.at.channel == 0);
        let foreground = terminal.and_then(|terminal| bare::foreground_group(terminal.master.fd()).ok());
        let group = foreground.filter(|group| *group > 1).unwrap_or(program.pid);
        if bare::kill(group.saturating_neg(), number) == Err(Errno::ESRCH) {
            let _gone = bare::kill(program.pid, number);
        }
    }

    fn resize(&self, size: Size) {
        if let Some(terminal) = &self.guest.terminal {
            let _closed = bare::set_terminal_size(terminal.master.fd(), size.rows, size.cols);
        }
    }

    /// Everybody but us. In a pid namespace -1 means its processes; in the process tier it means those within our Landlock
    /// signal scope, and only if that scope was proven. The filter need not allow the question who we are.
    fn kill_all(&self) {
        if self.guest.view.mode != Mode::Process && self.guest.posture.pid == 1 || self.guest.scope_proven {
            let _nobody_left = bare::kill(-1, bare::SIGKILL);
        }
    }

    /// Reaps what is left and lets nothing live on.
    fn finish(&mut self) {
        let mut killed = false;
        loop {
            let obeyed = self.guest.view.label.is_empty();
            match bare::wait_any(if killed && obeyed { Wait::Block } else { Wait::No }) {
                Ok(Some((_, Change::Exited(_) | Change::Killed { .. }, its))) => add(&mut self.used, its),
                Ok(Some(_)) | Err(Errno::EINTR) => {}
                // Orphans become our children, so no children means that nobody is left.
                Err(_) => return,
                // The policy of a label may keep us from signalling what runs under it: our own end, which ends the pid
                // namespace, is asked of nobody.
                Ok(None) if killed => return,
                Ok(None) => {
                    self.kill_all();
                    killed = true;
                }
            }
        }
    }
}

fn exited(end: End, used: Used) -> FromGuest {
    let Used { utime_us, stime_us } = used;
    FromGuest::Exited(Exited { end, utime_us, stime_us })
}

fn add(used: &mut Used, its: Used) {
    used.utime_us = used.utime_us.saturating_add(its.utime_us);
    used.stime_us = used.stime_us.saturating_add(its.stime_us);
}
