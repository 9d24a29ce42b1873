//! While the payload runs: one loop over descriptors that carries the streams, forwards signals and terminal sizes,
//! samples usage, and ends the run when a limit is passed.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use backends::native::{Full, Running, Sample};
use guest::frames::{End, ExecFailure, FromGuest};
use policy::report::Limit;
use policy::value::Over;
use policy::{Millis, Policy};
use sys::channel::Interest;

use super::outcome::Facts;
use super::streams::{Budget, Input, Room, Stream};
use super::terminal::Terminal;
use super::threshold::Lasting;
use super::violations::limit_of;
use crate::ui::bytes;

/// Between two samples while something is watched by sampling.
const CLOSE: Duration = Duration::from_millis(20);
/// Between two samples otherwise: a late out-of-memory kill of a child is noticed within this.
const EASY: Duration = Duration::from_millis(100);
/// Thresholds are judged over at least this time.
const JUDGED: Duration = Duration::from_millis(100);
/// The guest has this long to report the end after we killed everything, before it is killed itself.
const GRACE: Duration = Duration::from_secs(3);

/// What goes in and out of the payload.
#[derive(Debug)]
pub(super) struct Carried {
    /// Its stdin.
    pub(super) input: Option<Input>,
    /// Its stdout and stderr.
    pub(super) streams: Vec<Stream>,
    /// Its terminal, instead.
    pub(super) terminal: Option<Terminal>,
    /// Their budget.
    pub(super) budget: Budget,
}

/// What the loop leaves behind.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// For judging the end.
    pub(super) facts: Facts,
    /// Last sample.
    pub(super) sample: Sample,
    /// Usage of all that the guest reaped: user and system microseconds, largest resident set in bytes.
    pub(super) reaped: (u64, u64, u64),
    /// The program could not be started.
    pub(super) exec: Option<(i32, ExecFailure)>,
    /// A step of the payload's own start failed.
    pub(super) failed: Option<String>,
    /// Thresholds that were passed and reported.
    pub(super) warnings: Vec<String>,
    /// Places that were found full.
    pub(super) full: Vec<Full>,
}

/// Why a look at the host ends the run.
#[derive(Debug)]
pub(super) enum Stop {
    /// A limit that is held by counting what lies in a folder of ours.
    Limit(Limit, String),
    /// Something that the plan says is not so any more.
    Lost(String),
}

/// Looks at what no sample shows: a folder of ours, and, where processes are left that may hold them open, files that no
/// name leads to; and what holds the control files.
pub(super) type Look<'a> = &'a mut dyn FnMut(&Running, bool) -> Option<Stop>;

/// Watches until nothing runs any more.
pub(super) struct Watch<'a> {
    policy: &'a Policy,
    running: &'a mut Running,
    carried: &'a mut Carried,
    signals: Option<&'a sys::signals::Signals>,
    started: Instant,
    ended_at: Option<Instant>,
    sampled_at: Instant,
    judged_at: Instant,
    done: bool,
    /// Everything inside has ended.
    ended: bool,
    /// The program's pages were let go.
    settled: bool,
    interrupts: u32,
    /// Bytes and files are counted by looking.
    own_folder: bool,
    warn: Lasting,
    kill: Lasting,
    result: Watched,
    on_warning: &'a mut dyn FnMut(&str),
    extra: Look<'a>,
}

impl std::fmt::Debug for Watch<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("started", &self.started).field("result", &self.result).finish_non_exhaustive()
    }
}

enum Source {
    Control,
    Signals,
    InputRead,
    InputWrite,
    Read(usize),
    Write(usize),
    TerminalIn,
    TerminalOut,
}

impl<'a> Watch<'a> {
    /// A watch over a payload that was just let go.
    pub(super) fn new(
        policy: &'a Policy,
        running: &'a mut Running,
        carried: &'a mut Carried,
        signals: Option<&'a sys::signals::Signals>,
        on_warning: &'a mut dyn FnMut(&str),
        (own_folder, extra): (bool, Look<'a>),
    ) -> Self {
        let now = Instant::now();
        let mut result = Watched::default();
        result.facts.memory = policy.limits.memory;
        result.facts.cpu_time = policy.limits.cpu_time;
        Self {
            policy,
            running,
            carried,
            signals,
            started: now,
            ended_at: None,
            sampled_at: now,
            judged_at: now,
            done: false,
            ended: false,
            settled: false,
            interrupts: 0,
            own_folder,
            warn: Lasting::since(now),
            kill: Lasting::since(now),
            result,
            on_warning,
            extra,
        }
    }

    /// Runs the loop; returns when the guest has ended.
    #[must_use]
    pub(super) fn run(mut self) -> Watched {
        let mut room = Room::new();
        while !self.done {
            let (ready, sources) = {
                let (interests, sources) = self.interests();
                let ready = sys::channel::wait(&interests, Some(self.next_deadline()));
                (ready.unwrap_or_default(), sources)
            };
            for (source, ready) in sources.iter().zip(ready) {
                if ready {
                    self.serve(source, &mut room);
                }
            }
            self.limits();
        }
        self.last_look();
        let signals = self.signals;
        let mut interrupted = false;
        for stream in &mut self.carried.streams {
            let mut waits = |fd: BorrowedFd<'_>| {
                interrupted = interrupted || !has_room(fd, signals);
                !interrupted
            };
            stream.finish(&mut self.carried.budget, &mut room, &mut waits);
        }
        if let Some(terminal) = &mut self.carried.terminal {
            terminal.finish(&mut self.carried.budget, &mut room);
        }
        self.result
    }

    /// The end may have come between two samples: what it left is judged all the same.
    fn last_look(&mut self) {
        let before = self.result.sample;
        let sample = if self.ended { self.running.last_sample() } else { self.running.sample() };
        self.result.sample = Sample {
            memory_peak: sample.memory_peak.max(before.memory_peak),
            pids_peak: sample.pids_peak.max(before.pids_peak),
            user_us: sample.user_us.max(before.user_us),
            system_us: sample.system_us.max(before.system_us),
            ..sample
        };
        self.result.facts.oom_kills = sample.oom_kills;
        self.look_for_full();
        // The guest says the end when it has no child left, and orphans are its children. What was lost in the last moment
        // is looked at when the control files are.
        if self.result.facts.ended_for.is_none()
            && let Some(Stop::Limit(limit, words)) = (self.extra)(self.running, !self.ended)
        {
            self.result.facts.ended_for = Some((limit, words));
        }
    }

    fn look_for_full(&mut self) {
        for full in self.running.full_places() {
            if !self.result.full.iter().any(|known| known.place == full.place) {
                self.result.full.push(full);
            }
        }
    }

    fn interests(&self) -> (Vec<Interest<'_>>, Vec<Source>) {
        let mut list: Vec<Interest<'_>> = Vec::with_capacity(8);
        let mut sources = Vec::with_capacity(8);
        let mut add = |fd, write, source| {
            list.push(Interest { fd, write });
            sources.push(source);
        };
        add(self.running.control.as_fd(), false, Source::Control);
        if let Some(signals) = self.signals {
            add(signals.as_fd(), false, Source::Signals);
        }
        if let Some(input) = &self.carried.input {
            if let Some(fd) = input.wants_read() {
                add(fd, false, Source::InputRead);
            }
            if let Some(fd) = input.wants_write() {
                add(fd, true, Source::InputWrite);
            }
        }
        for (index, stream) in self.carried.streams.iter().enumerate() {
            if let Some(fd) = stream.wants_read() {
                add(fd, false, Source::Read(index));
            }
            if let Some(fd) = stream.wants_write() {
                add(fd, true, Source::Write(index));
            }
        }
        if let Some(terminal) = &self.carried.terminal {
            for (fd, write) in terminal.wants() {
                add(fd, write, if write { Source::TerminalOut } else { Source::TerminalIn });
            }
        }
        (list, sources)
    }

    fn serve(&mut self, source: &Source, room: &mut Room) {
        match source {
            Source::Control => self.frames(),
            Source::Signals => self.forward(),
            Source::InputRead => {
                if let Some(input) = &mut self.carried.input {
                    input.read(room);
                }
            }
            Source::InputWrite => {
                if let Some(input) = &mut self.carried.input {
                    input.write();
                }
            }
            Source::Read(index) => {
                if let Some(stream) = self.carried.streams.get_mut(*index) {
                    stream.read(&mut self.carried.budget, room);
                }
            }
            Source::Write(index) => {
                if let Some(stream) = self.carried.streams.get_mut(*index) {
                    stream.write();
                }
            }
            Source::TerminalIn | Source::TerminalOut => {
                if let Some(terminal) = &mut self.carried.terminal {
                    terminal.serve(&mut self.carried.budget, room);
                }
            }
        }
    }

    fn frames(&mut self) {
        if let Err(error) = self.running.control.read() {
            self.result.failed.get_or_insert(error.to_string());
            self.running.kill_guest();
            self.done = true;
        }
        while let Some(frame) = self.running.control.take() {
            match frame {
                FromGuest::Exited(exited) => {
                    match exited.end {
                        End::Code(code) => self.result.facts.code = Some(i32::from(code)),
                        End::Signal { number, core: _ } => self.result.facts.signal = Some(i32::from(number)),
                    }
                    self.result.reaped = (exited.utime_us, exited.stime_us, exited.maxrss_kb.saturating_mul(1024));
                    (self.done, self.ended) = (true, true);
                    self.running.let_guest_end();
                }
                FromGuest::ExecFailed { errno, which } => {
                    self.result.exec = Some((errno, which));
                    self.done = true;
                }
                FromGuest::Failed { step, errno, detail: _ } => {
                    let why = std::io::Error::from_raw_os_error(errno);
                    self.result.failed = Some(format!("the guest stopped at step `{}`: {why}", step.name()));
                    self.done = true;
                }
                FromGuest::Started { pid } => {
                    if let Err(why) = self.running.check_label(pid) {
                        self.result.failed = Some(format!("the program does not have its label: {why}"));
                        self.running.kill_guest();
                        self.done = true;
                    }
                }
                FromGuest::Continued
                | FromGuest::Stopped(_)
                | FromGuest::Pong
                | FromGuest::Settled
                | FromGuest::Mounted(_)
                | FromGuest::Terminal
                | FromGuest::Posture(_) => {}
            }
        }
        if self.running.control.closed() {
            self.done = true;
        }
    }

    /// Signals of the caller reach the payload, whose own handler runs. A third interrupt is for a payload that ignores
    /// them: everything is killed.
    fn forward(&mut self) {
        let Some(signals) = self.signals else { return };
        while let Some(number) = signals.next() {
            if number == sys::signals::WINDOW_CHANGED {
                if let Some(terminal) = &self.carried.terminal {
                    terminal.follow_size();
                }
                continue;
            }
            self.result.facts.interrupted = Some(number);
            self.interrupts = self.interrupts.saturating_add(1);
            let Ok(small) = u8::try_from(number) else { continue };
            if self.interrupts >= 3 || self.running.signal(small).is_err() {
                self.running.kill();
                self.ended_at.get_or_insert_with(Instant::now);
            }
        }
    }

    fn next_deadline(&self) -> Duration {
        let now = Instant::now();
        let sampling = self.period().saturating_sub(now.saturating_duration_since(self.sampled_at));
        let wall = self.policy.limits.wall.map_or(sampling, |wall| self.left(wall, now));
        sampling.min(wall).max(Duration::from_millis(1))
    }

    fn left(&self, wall: Millis, now: Instant) -> Duration {
        Duration::from_millis(wall.0).saturating_sub(now.saturating_duration_since(self.started))
    }

    fn period(&self) -> Duration {
        let limits = &self.policy.limits;
        let watched = limits.kill.is_some() || limits.warn.is_some() || limits.cpu_time.is_some();
        if self.running.memory_by_survey() || watched || self.own_folder { CLOSE } else { EASY }
    }

    fn limits(&mut self) {
        let now = Instant::now();
        if let Some(at) = self.ended_at {
            if now.saturating_duration_since(at) > GRACE {
                self.running.kill_guest();
                self.done = true;
            }
            return;
        }
        // One that ended by itself did so in time, however late we hear of it.
        if let Some(wall) = self.policy.limits.wall
            && !self.ended
            && self.left(wall, now).is_zero()
        {
            self.end(Limit::Wall, format!("wall time reached its limit of {wall}"));
            return;
        }
        if self.carried.budget.exceeded() && self.policy.limits.over == Over::Kill {
            self.end(Limit::Output, format!("output passed {}", limit_of(self.policy.limits.output)));
            return;
        }
        // The end has a look of its own.
        if !self.done && now.saturating_duration_since(self.sampled_at) >= self.period() {
            if !self.settled && now.saturating_duration_since(self.started) >= EASY {
                // This takes longer: until it ends, what the start needed of our own program is only in the way.
                self.settled = true;
                sys::heap::let_go_of_program();
            }
            self.sample(now);
        }
    }

    fn sample(&mut self, now: Instant) {
        let before = self.result.sample;
        let sample = self.running.sample();
        self.sampled_at = now;
        self.result.sample = Sample {
            memory_peak: sample.memory_peak.max(before.memory_peak),
            pids_peak: sample.pids_peak.max(before.pids_peak),
            ..sample
        };
        self.look_for_full();
        let passed = self.passed(&sample).map(|(limit, words)| Stop::Limit(limit, words));
        match passed.or_else(|| (self.extra)(self.running, true)) {
            None => {}
            Some(Stop::Limit(limit, message)) => return self.end(limit, message),
            Some(Stop::Lost(message)) => {
                self.result.failed.get_or_insert(message);
                self.running.kill();
                self.ended_at = Some(Instant::now());
                return;
            }
        }
        // Processes are counted in ticks of 10 ms: over a shorter time a busy tree would look idle every other look.
        if now.saturating_duration_since(self.judged_at) >= JUDGED {
            self.judged_at = now;
            self.thresholds(&sample, now);
        }
    }

    /// Limits that are held by sampling, and out-of-memory kills that the kernel counted.
    fn passed(&self, sample: &Sample) -> Option<(Limit, String)> {
        let limits = &self.policy.limits;
        if sample.oom_kills > 0 {
            let limit = limit_of(limits.memory);
            let words = format!("memory of the tree reached {limit}: the kernel killed a process of it");
            return Some((Limit::Memory, words));
        }
        if let Some(limit) = limits.cpu_time {
            let used = (sample.user_us + sample.system_us) / 1000;
            if used >= limit.0 {
                let words = format!("processor time of the tree, {}, reached its limit of {limit}", Millis(used));
                return Some((Limit::CpuTime, words));
            }
        }
        if let Some(limit) = limits.memory
            && sample.memory > limit.0
        {
            let words = format!("memory of the tree, {}, passed its limit of {limit}", bytes(sample.memory));
            return Some((Limit::Memory, words));
        }
        if let Some(limit) = limits.pids
            && sample.pids > u64::from(limit)
        {
            let words = format!("{} processes and threads, the limit is {limit}", sample.pids);
            return Some((Limit::Pids, words));
        }
        None
    }

    fn thresholds(&mut self, sample: &Sample, now: Instant) {
        if let Some(threshold) = self.policy.limits.kill
            && let Some(words) = self.kill.judge(&threshold, sample, now)
        {
            self.end(Limit::Threshold, format!("usage stayed above the threshold: {words}"));
            return;
        }
        if let Some(threshold) = self.policy.limits.warn
            && self.result.warnings.is_empty()
            && let Some(words) = self.warn.judge(&threshold, sample, now)
        {
            (self.on_warning)(&words);
            self.result.warnings.push(words);
        }
    }

    fn end(&mut self, limit: Limit, message: String) {
        self.result.facts.ended_for = Some((limit, message));
        self.running.kill();
        self.ended_at = Some(Instant::now());
    }
}

/// Waits until a reader takes more; `false` if a signal of the caller came first, which no program is left to get.
fn has_room(fd: BorrowedFd<'_>, signals: Option<&sys::signals::Signals>) -> bool {
    loop {
        let mut interests = vec![Interest { fd, write: true }];
        interests.extend(signals.map(|signals| Interest { fd: signals.as_fd(), write: false }));
        let Ok(ready) = sys::channel::wait(&interests, None) else { return true };
        let ended = |number: Option<i32>| number.is_some_and(|number| number != sys::signals::WINDOW_CHANGED);
        if ready.get(1) == Some(&true) && signals.is_some_and(|signals| ended(signals.next())) {
            return false;
        }
        if ready.first() == Some(&true) {
            return true;
        }
    }
}

/// A descriptor of ours, duplicated so that it can be owned.
///
/// # Errors
/// EMFILE.
pub(super) fn own(fd: impl AsFd) -> std::io::Result<OwnedFd> {
    fd.as_fd().try_clone_to_owned()
}
