//! A program that runs in a machine. The engine speaks to it by a guest's frames, which a thread of ours carries over to the agent.

use std::io::Write;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use agent::words::Program;
use guest::frames::{FromGuest, ToGuest};

use super::link::Link;
use super::live::{Live, Origin};
use super::monitor::Monitor;
use super::pump::Pump;
use super::relay::{Changed, Relay, Workspace};
use super::start::no_places;
use crate::StartError;
use crate::backend::{self, Exhausted, Killer, Memory, Sample, Streams};
use crate::native::control::Control;

/// How long a machine has to hand over the copy of its workspace, where no limit leaves it less.
const HAND_OVER: Duration = Duration::from_secs(300);

/// A program that runs.
#[derive(Debug)]
pub(super) struct Running {
    /// First, so that the thread ends when the machine has.
    emulator: Box<dyn backend::Running>,
    control: Control,
    streams: Streams,
    /// Out-of-memory kills in the machine, as its kernel says.
    kills: Arc<AtomicU64>,
    relay: Option<JoinHandle<()>>,
    /// What became of the copy of the workspace, when the program has ended.
    changed: Receiver<Changed>,
    /// Of a live sandbox: what can be asked of the machine beside its agent.
    live: Option<Live>,
    /// The emulator is frozen.
    frozen: bool,
}

impl Running {
    /// Has the agent start the program.
    pub(super) fn new(
        emulator: Box<dyn backend::Running>,
        link: Link,
        program: Program,
        changed: Option<Workspace>,
    ) -> Result<Self, StartError> {
        let failed = |what: &'static str| move |error: sys::error::Error| StartError::system(what, error);
        let (ours, theirs) = sys::channel::pair().map_err(failed("making the control socket"))?;
        let pipes = failed("making the pipes");
        let pipe = || sys::channel::pipe();
        let ((output, out), (errors, err)) = (pipe().map_err(&pipes)?, pipe().map_err(&pipes)?);
        let (inner, input) = if program.stdin {
            let (inner, input) = pipe().map_err(&pipes)?;
            (Some(inner), Some(input))
        } else {
            (None, None)
        };
        for fd in [&output, &out, &errors, &err].into_iter().chain(&inner).chain(&input) {
            sys::channel::set_nonblocking(fd).map_err(&pipes)?;
        }
        let kills = Arc::new(AtomicU64::new(0));
        let relay = Relay::new((link, theirs), (inner, out, err), program, Arc::clone(&kills));
        let relay = relay.map_err(|why| StartError::system("asking the machine's agent", why))?;
        let (thread, changed) = thread(move || relay.run(changed))?;
        let streams = Streams { input, output: Some(output), errors: Some(errors), terminal: None, socket: None };
        let (control, relay) = (Control::new(ours), Some(thread));
        Ok(Self { emulator, control, streams, kills, relay, changed, live: None, frozen: false })
    }

    /// Hands the agent itself to the caller: that of a live sandbox.
    pub(super) fn live(
        emulator: Box<dyn backend::Running>,
        (link, monitor): (Link, Option<Monitor>),
        origin: Origin,
    ) -> Result<Self, StartError> {
        let failed = |what: &'static str| move |error: sys::error::Error| StartError::system(what, error);
        let pair = |what: &'static str| {
            let (ours, theirs) = sys::channel::pair().map_err(failed(what))?;
            sys::channel::set_nonblocking(&theirs).map_err(failed(what))?;
            Ok::<_, StartError>((ours, theirs))
        };
        let (ours, theirs) = pair("making the control socket")?;
        let (socket, inner) = pair("making the agent's socket")?;
        let (orders, first) = pair("making the socket for orders")?;
        sys::channel::set_nonblocking(&orders).map_err(failed("making the socket for orders"))?;
        let made = |error: std::io::Error| StartError::system("making the agent's socket", error.to_string());
        let orders = Link::new(orders).map_err(made)?;
        let pump = Pump::new(link, (inner, first), theirs).map_err(made)?;
        let (relay, changed) = thread(move || {
            pump.run();
            Ok(None)
        })?;
        let streams = Streams { input: None, output: None, errors: None, terminal: None, socket: Some(socket) };
        let (control, kills) = (Control::new(ours), Arc::new(AtomicU64::new(0)));
        let live = Some(Live::new(monitor, orders, origin));
        Ok(Self { emulator, control, streams, kills, relay: Some(relay), changed, live, frozen: false })
    }

    /// What is used is used by the emulator, whose threads are no processes of the program's; out-of-memory kills are inside.
    fn of_machine(&self, sample: Sample) -> Sample {
        let oom_kills = sample.oom_kills.saturating_add(self.kills.load(Ordering::Relaxed));
        Sample { oom_kills, pids: 0, pids_peak: 0, uncounted_pids: true, ..sample }
    }
}

/// A thread, and what it says at its end.
fn thread(run: impl FnOnce() -> Changed + Send + 'static) -> Result<(JoinHandle<()>, Receiver<Changed>), StartError> {
    let (said, changed) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name("fumehood-machine".to_owned()).spawn(move || {
        // A signal is for the caller's threads.
        sys::signals::block_all();
        // An engine that does not ask is gone.
        drop(said.send(run()));
    });
    thread.map(|thread| (thread, changed)).map_err(|error| StartError::system("making a thread", error))
}

impl backend::Running for Running {
    fn pid(&self) -> i32 {
        self.emulator.pid()
    }

    fn take_streams(&mut self) -> Streams {
        std::mem::take(&mut self.streams)
    }

    fn frames(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    fn read_frames(&mut self) -> Result<(), StartError> {
        self.control.read()
    }

    fn next_frame(&mut self) -> Option<FromGuest> {
        self.control.take()
    }

    fn closed(&self) -> bool {
        self.control.closed()
    }

    fn check_label(&self, _payload: i32) -> Result<(), String> {
        Ok(())
    }

    fn signal(&self, number: u8) -> Result<(), StartError> {
        self.control.send(ToGuest::Signal(number))
    }

    fn kill(&self) {
        self.emulator.kill();
    }

    fn killer(&self) -> Result<Killer, StartError> {
        self.emulator.killer()
    }

    fn kill_guest(&self) {
        self.emulator.kill_guest();
    }

    /// Of a live sandbox first what is inside, then the emulator, which stands still in any case.
    fn freeze(&mut self, frozen: bool) -> Result<(), String> {
        let Some(live) = &mut self.live else { return self.emulator.freeze(frozen) };
        if !frozen {
            self.emulator.freeze(false)?;
            self.frozen = false;
            return live.go_on();
        }
        if !live.is_still() {
            // A machine that does not obey is paused all the same, and nothing is written down of it then.
            drop(live.stop());
        }
        let done = self.emulator.freeze(true);
        self.frozen = done.is_ok();
        if !self.frozen {
            live.go_on()?;
        }
        done
    }

    fn remembers(&self) -> bool {
        self.live.is_some()
    }

    fn remember(&mut self, to: &mut dyn Write) -> Result<Memory, String> {
        let Some(live) = &mut self.live else { return Err("it has one program, and ends with that".to_owned()) };
        if self.frozen && !live.is_still() {
            return Err("it did not stand still when it was paused: resume it first".to_owned());
        }
        if self.frozen {
            // Its emulator alone: what is inside stands still.
            self.emulator.freeze(false)?;
        }
        let stopped = if live.is_still() { Ok(()) } else { live.stop() };
        let written = stopped.and_then(|()| live.write(to));
        let as_before = if self.frozen { self.emulator.freeze(true) } else { live.go_on() };
        if let Err(why) = as_before {
            self.emulator.kill();
            return Err(format!("the machine does not go on, and was ended: {why}"));
        }
        written
    }

    fn end_left(&self) -> Result<(), String> {
        self.emulator.end_left()
    }

    fn sample(&self) -> Sample {
        self.of_machine(self.emulator.sample())
    }

    fn last_sample(&self) -> Sample {
        self.of_machine(self.emulator.last_sample())
    }

    fn locks(&self, most: u64) -> Result<u64, StartError> {
        self.emulator.locks(most)
    }

    fn written_bytes(&self) -> Option<u64> {
        None
    }

    fn full_places(&self) -> Vec<Exhausted> {
        no_places()
    }

    fn memory_by_survey(&self) -> bool {
        false
    }

    fn bring_back(&mut self, within: Option<Duration>) -> Changed {
        match self.changed.recv_timeout(within.unwrap_or(HAND_OVER).min(HAND_OVER)) {
            Ok(changed) => changed,
            Err(RecvTimeoutError::Disconnected) => Err("the thread that carries it was lost".to_owned()),
            Err(RecvTimeoutError::Timeout) => {
                self.emulator.kill();
                Err("the program had ended, and no time was left to hand it over".to_owned())
            }
        }
    }

    fn begin_end(&mut self) {
        self.emulator.begin_end();
    }

    fn end(self: Box<Self>) {
        let Self { emulator, control, streams, kills: _, relay, changed: _, live, frozen: _ } = *self;
        emulator.end();
        // All of what it waits for is gone.
        drop((control, streams, live));
        if let Some(relay) = relay {
            drop(relay.join());
        }
    }
}
