//! While the payload runs: one loop over descriptors that carries the streams, forwards signals and terminal sizes,
//! samples usage, and ends the run when a limit is passed. What it watches is what the plan's controls say.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use backends::{Exhausted, Running, Sample};
use guest::frames::{End, ExecFailure, FromGuest};
use policy::report::Limit;
use sys::channel::Interest;

use super::frozen::{Task, WhileFrozen};
use super::handle::{Order, OrderSource};
use super::locks::LockLook;
use super::outcome::ExitFacts;
use super::pace::{self, Rest};
use super::passed::Passed;
use super::streams::{ReadBuffer, StdStreams};
use super::threshold::Lasting;
use super::unseen::{self, Blindness};
use super::wall::Wall;
use super::watches::Watches;
use crate::changes::Until;

/// Thresholds are judged over at least this time.
const JUDGED: Duration = Duration::from_millis(100);
/// Where nothing of a run runs, only its processor time is asked for, and all the rest at least so often.
const ASLEEP: Duration = Duration::from_secs(1);
/// SIGKILL.
const KILL: i32 = 9;
/// The guest has this long to report the end after we killed everything, before it is killed itself.
const GRACE: Duration = Duration::from_secs(3);

/// What the loop leaves behind.
#[derive(Debug, Default)]
pub(super) struct Watched {
    /// For judging the end.
    pub(super) facts: ExitFacts,
    /// Last sample.
    pub(super) sample: Sample,
    /// Processor time of all that the guest reaped: user and system microseconds.
    pub(super) reaped: (u64, u64),
    /// The program could not be started.
    pub(super) exec: Option<(i32, ExecFailure)>,
    /// A step of the payload's own start failed.
    pub(super) failed: Option<String>,
    /// Thresholds that were passed and reported.
    pub(super) warnings: Vec<String>,
    /// Places that were found full.
    pub(super) full: Vec<Exhausted>,
    /// Bytes that the places of limited size held at the end.
    pub(super) written: u64,
    /// Time that is nobody's usage: before it was taken, and while whoever reads the output was waited for at its end.
    pub(super) apart: Duration,
}

/// Why a look at the host ends the run.
#[derive(Debug)]
pub(super) enum StopReason {
    /// A limit that is held by counting what lies in a folder of ours.
    Limit(Limit, String),
    /// Something that the plan says is not so any more.
    Lost(String),
}

/// Looks at what no sample shows: a folder of ours, to which so many bytes are added that lie in files without a name; and
/// what holds the control files.
pub(super) type HostCheck<'a> = &'a mut dyn FnMut(u64) -> Option<StopReason>;

/// Watches until nothing runs any more.
pub(super) struct Watch<'a, 'v> {
    watches: &'a Watches,
    running: &'a mut dyn Running,
    std_streams: &'a mut StdStreams,
    orders: &'a mut OrderSource<'v>,
    wall: Wall,
    ended_at: Option<Instant>,
    sampled_at: Instant,
    judged_at: Instant,
    locks: LockLook,
    /// Processor time of the last look.
    looking: Duration,
    blindness: Blindness,
    passed: Passed,
    /// Whether it ran since the last sample, and when there was a whole look.
    rest: Rest,
    rested: bool,
    looked_at: Instant,
    /// Bytes in the places of limited size.
    disk: Option<u64>,
    done: bool,
    /// Everything inside has ended.
    ended: bool,
    warn: Lasting,
    kill: Lasting,
    result: Watched,
    hooks: Hooks<'a>,
    /// Everything inside stands still until somebody asks for the contrary.
    frozen: bool,
}

/// Whom the watch asks, and whom it tells.
pub(super) struct Hooks<'a> {
    pub(super) warned: &'a mut dyn FnMut(&str),
    pub(super) check_host: HostCheck<'a>,
    pub(super) while_frozen: WhileFrozen<'a>,
}

impl std::fmt::Debug for Watch<'_, '_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watch").field("wall", &self.wall).field("result", &self.result).finish_non_exhaustive()
    }
}

enum Source {
    Control,
    Orders,
    InputRead,
    InputWrite,
    Read(usize),
    Write(usize),
    TerminalIn,
    TerminalOut,
}

impl<'a, 'v> Watch<'a, 'v> {
    /// A watch over a payload that was just let go.
    pub(super) fn new(
        watches: &'a Watches,
        running: &'a mut dyn Running,
        std_streams: &'a mut StdStreams,
        orders: &'a mut OrderSource<'v>,
        hooks: Hooks<'a>,
    ) -> Self {
        let (now, ticks) = (Instant::now(), sys::proc::ticks_everywhere());
        let wall = Wall::new(orders.deadline(), watches.wall, now);
        let mut result = Watched::default();
        result.facts.memory = watches.memory_limit;
        result.facts.file_limited = watches.file_size.is_some();
        result.facts.interpreted = watches.interpreted;
        Self {
            watches,
            running,
            std_streams,
            orders,
            wall,
            ended_at: None,
            sampled_at: now,
            judged_at: now,
            locks: LockLook::new(now, ticks),
            looking: Duration::ZERO,
            blindness: Blindness::new(watches.hostile),
            passed: Passed::default(),
            rest: Rest::new(ticks),
            rested: false,
            looked_at: now,
            disk: None,
            done: false,
            ended: false,
            warn: Lasting::since(now),
            kill: Lasting::since(now),
            result,
            hooks,
            frozen: false,
        }
    }

    /// Runs the loop; returns when the guest has ended.
    #[must_use]
    pub(super) fn run(mut self) -> Watched {
        let mut buffer = ReadBuffer::new();
        if self.std_streams.may_block() {
            self.hold_wall();
        }
        while !self.done {
            let (ready, sources) = {
                let (interests, sources) = self.interests();
                let ready = sys::channel::wait(&interests, Some(self.next_deadline()));
                (ready.unwrap_or_default(), sources)
            };
            for (source, ready) in sources.iter().zip(ready) {
                if ready {
                    self.serve(source, &mut buffer);
                }
            }
            self.limits();
        }
        // Nobody heard of it: what ended otherwise did so before.
        let facts = &self.result.facts;
        let by_kill = facts.code.is_none() && facts.signal.is_none_or(|signal| signal == KILL);
        if self.wall.has_passed() && by_kill && facts.ended_for.is_none() {
            self.end_for_wall();
        }
        if !self.ended
            && let Err(why) = self.running.end_left()
        {
            self.result.failed.get_or_insert(why);
        }
        self.last_look();
        let ended = Instant::now();
        let orders = &mut *self.orders;
        let mut interrupted = false;
        let mut waits = |fd: BorrowedFd<'_>| {
            interrupted = interrupted || !orders.has_room(fd);
            !interrupted
        };
        for stream in &mut self.std_streams.streams {
            stream.finish(&mut self.std_streams.budget, &mut buffer, &mut waits);
        }
        if let Some(terminal) = &mut self.std_streams.terminal {
            terminal.finish(&mut self.std_streams.budget, &mut buffer, &mut waits);
        }
        self.result.apart = ended.elapsed().saturating_add(self.orders.waited());
        // What was still on its way when the program ended counts as well.
        let passed = self.std_streams.budget.passed(self.watches.output).map(|message| (Limit::Output, message));
        self.result.facts.ended_for = self.result.facts.ended_for.or(passed);
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
        let (user, system) = self.result.reaped;
        let used =
            user.saturating_add(system).max(self.result.sample.user_us.saturating_add(self.result.sample.system_us));
        self.result.facts.cpu_reached =
            self.watches.cpu_limit.is_some_and(|limit| Duration::from_micros(used) >= limit);
        // A live sandbox goes on when one program was out of memory; it matters where the agent itself was ended for it.
        if !(self.watches.live && self.result.facts.killed) {
            self.result.facts.oom_kills = sample.oom_kills;
        }
        self.result.written = self.running.written_bytes().unwrap_or(0);
        self.look_for_full();
        // The guest says the end when it has no child left, and orphans are its children. What was lost in the last moment
        // is looked at when the control files are.
        if self.result.facts.ended_for.is_none()
            && let Some(StopReason::Limit(limit, words)) = (self.hooks.check_host)(sample.unlinked)
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
        add(self.running.frames(), false, Source::Control);
        self.orders.wants().for_each(|fd| add(fd, false, Source::Orders));
        if let Some(input) = &self.std_streams.input {
            if let Some(fd) = input.wants_read() {
                add(fd, false, Source::InputRead);
            }
            if let Some(fd) = input.wants_write() {
                add(fd, true, Source::InputWrite);
            }
        }
        for (index, stream) in self.std_streams.streams.iter().enumerate() {
            if let Some(fd) = stream.wants_read() {
                add(fd, false, Source::Read(index));
            }
            if let Some(fd) = stream.wants_write() {
                add(fd, true, Source::Write(index));
            }
        }
        if let Some(terminal) = &self.std_streams.terminal {
            for (fd, write) in terminal.wants() {
                add(fd, write, if write { Source::TerminalOut } else { Source::TerminalIn });
            }
        }
        (list, sources)
    }

    fn serve(&mut self, source: &Source, buffer: &mut ReadBuffer) {
        match source {
            Source::Control => self.frames(),
            Source::Orders => self.orders(),
            Source::InputRead => {
                if let Some(input) = &mut self.std_streams.input {
                    input.read(buffer);
                }
            }
            Source::InputWrite => {
                if let Some(input) = &mut self.std_streams.input {
                    input.write();
                }
            }
            Source::Read(index) => {
                if let Some(stream) = self.std_streams.streams.get_mut(*index) {
                    stream.read(&mut self.std_streams.budget, buffer);
                }
            }
            Source::Write(index) => {
                if let Some(stream) = self.std_streams.streams.get_mut(*index) {
                    stream.write();
                }
            }
            Source::TerminalIn | Source::TerminalOut => {
                if let Some(terminal) = &mut self.std_streams.terminal {
                    terminal.serve(&mut self.std_streams.budget, buffer);
                }
            }
        }
    }

    fn frames(&mut self) {
        if let Err(error) = self.running.read_frames() {
            self.result.failed.get_or_insert(error.to_string());
            self.running.kill_guest();
            self.done = true;
        }
        while let Some(frame) = self.running.next_frame() {
            match frame {
                FromGuest::Exited(exited) => {
                    match exited.end {
                        End::Code(code) => self.result.facts.code = Some(i32::from(code)),
                        End::Signal { number, core: _ } => self.result.facts.signal = Some(i32::from(number)),
                    }
                    self.result.reaped = (exited.utime_us, exited.stime_us);
                    (self.done, self.ended) = (true, true);
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
                    } else {
                        self.orders.began();
                    }
                }
                FromGuest::Continued
                | FromGuest::Stopped(_)
                | FromGuest::Pong
                | FromGuest::Settled
                | FromGuest::Asking
                | FromGuest::Sockets(_)
                | FromGuest::Mounted(_)
                | FromGuest::Terminal
                | FromGuest::Posture(_) => {}
            }
        }
        if self.running.closed() {
            self.done = true;
        }
    }

    /// What the caller asks for.
    fn orders(&mut self) {
        self.orders.listen();
        while let Some(order) = self.orders.next() {
            match order {
                Order::Signal(number) => {
                    self.result.facts.interrupted = Some(i32::from(number));
                    if self.running.signal(number).is_err() {
                        self.kill();
                    }
                }
                Order::Resize(rows, columns) => {
                    if let Some(terminal) = &self.std_streams.terminal {
                        terminal.resize(rows, columns);
                    }
                }
                // It is there already, and counts from now on.
                Order::Wall => {}
                Order::Freeze(frozen, done) => {
                    let answer = self.running.freeze(frozen);
                    self.frozen = if answer.is_ok() { frozen } else { self.frozen };
                    // Who asked may be gone.
                    drop(done.send(answer));
                }
                Order::WhileFrozen(task) => self.stand_still(task),
                Order::Kill => {
                    self.result.facts.interrupted.get_or_insert(KILL);
                    self.result.facts.killed = true;
                    self.kill();
                }
            }
        }
    }

    fn stand_still(&mut self, task: Task) {
        let of_itself = matches!(task, Task::Snapshot(..)) && self.running.remembers();
        let thaws = !self.frozen && !of_itself;
        if thaws && let Err(error) = self.running.freeze(true) {
            return task.refuse(&error);
        }
        let at = self.wall.at();
        (self.hooks.while_frozen)(task, &Until { ended: self.orders.killed(), at }, &mut *self.running);
        if thaws && let Err(error) = self.running.freeze(false) {
            self.result.failed.get_or_insert(format!("what was frozen does not go on: {error}"));
            self.kill();
        }
    }

    fn kill(&mut self) {
        self.running.kill();
        self.ended_at.get_or_insert_with(Instant::now);
    }

    fn next_deadline(&self) -> Duration {
        let now = Instant::now();
        let sampling = self.period().saturating_sub(now.saturating_duration_since(self.sampled_at));
        sampling.min(self.wall.left(now).unwrap_or(sampling)).max(Duration::from_millis(1))
    }

    /// Whether something is held by looking.
    fn is_close(&self) -> bool {
        let waits = self.result.sample.waiting > 0;
        self.running.memory_by_survey() || self.watches.samples() || self.watches.folder() || waits
    }

    fn period(&self) -> Duration {
        pace::pause(self.is_close(), self.looking)
    }

    /// Whether nothing of it can have changed since the last sample.
    fn sleeps(&mut self, now: Instant) -> bool {
        let slept = self.rest.slept(self.running.ran_us());
        // One whole look comes when it has stopped: for what was not due at the last one.
        let rested = std::mem::replace(&mut self.rested, slept);
        let settled = rested && !self.is_close() && !self.result.sample.sockets_full;
        slept && settled && now.saturating_duration_since(self.looked_at) < ASLEEP
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
        if !self.ended && self.wall.left(now).is_some_and(|left| left.is_zero()) {
            self.frames();
            if !self.ended {
                self.end_for_wall();
            }
            return;
        }
        if let Some(message) = self.std_streams.budget.passed(self.watches.output) {
            self.end(Limit::Output, message);
            return;
        }
        // The end has a look of its own.
        if !self.done && now.saturating_duration_since(self.sampled_at) >= self.period() {
            self.sample(now);
        }
    }

    /// `limits.wall` is held while we hear nothing; or everything is ended.
    fn hold_wall(&mut self) -> bool {
        let held = self.wall.hold(&*self.running);
        if let Err(why) = held {
            self.result.failed.get_or_insert(why);
            self.kill();
            return false;
        }
        true
    }

    fn sample(&mut self, now: Instant) {
        let began = sys::caller::thread_time();
        self.sampled_at = now;
        if (self.is_close() || self.watches.waiting.is_some()) && !self.hold_wall() {
            return;
        }
        let sleeps = self.sleeps(now);
        let sample = if sleeps { self.result.sample } else { self.look(now) };
        self.orders.tell(self.result.sample, (self.std_streams.budget.produced(), self.disk));
        let passed = if sleeps { (self.hooks.check_host)(sample.unlinked) } else { self.looked(&sample, now) };
        let aside = if sleeps { Duration::ZERO } else { sample.aside };
        self.looking = sys::caller::thread_time().saturating_sub(began).saturating_add(aside);
        if self.wall.has_passed() {
            // Everything was ended while it was looked at; the loop hears of it now, and says why.
            return;
        }
        match passed {
            None => {}
            Some(StopReason::Limit(limit, message)) => return self.end(limit, message),
            Some(StopReason::Lost(message)) => {
                self.result.failed.get_or_insert(message);
                return self.kill();
            }
        }
        // Processes are counted in ticks of 10 ms: over a shorter time a busy tree would look idle every other look.
        if now.saturating_duration_since(self.judged_at) >= JUDGED {
            self.judged_at = now;
            self.thresholds(&sample, now);
        }
    }

    /// A whole look.
    fn look(&mut self, now: Instant) -> Sample {
        let (before, sample) = (self.result.sample, self.running.sample());
        self.looked_at = now;
        self.result.sample = Sample {
            memory_peak: sample.memory_peak.max(before.memory_peak),
            pids_peak: sample.pids_peak.max(before.pids_peak),
            ..sample
        };
        self.disk = if self.watches.writes_to_host { None } else { self.running.written_bytes() };
        self.look_for_full();
        sample
    }

    /// What ends the run, of all that was looked at.
    fn looked(&mut self, sample: &Sample, now: Instant) -> Option<StopReason> {
        let file_size = self.watches.file_size;
        let at_most = match self.blindness.look(sample.unseen, file_size, now) {
            Ok(at_most) => at_most,
            Err(why) => match self.watches.by_looking() {
                Some(limit) => {
                    return Some(StopReason::Limit(limit, format!("{}: {why}", unseen::UNKNOWN)));
                }
                None => unseen::AtMost::default(),
            },
        };
        let sample = Sample { memory: sample.memory.saturating_add(at_most.memory), ..*sample };
        let passed = self.passed.judge(self.watches, &sample).or_else(|| self.locks(sample.ran_us, now));
        passed
            .map(|(limit, words)| StopReason::Limit(limit, words))
            .or_else(|| (self.hooks.check_host)(sample.unlinked.saturating_add(at_most.disk)))
    }

    /// Byte-range locks, which are looked at no more often than they need.
    fn locks(&mut self, ran_us: Option<u64>, now: Instant) -> Option<(Limit, String)> {
        let most = self.watches.locks.filter(|_| self.locks.is_due(ran_us, now))?;
        match self.running.locks(most) {
            Ok(found) if found <= most => None,
            Ok(_more) => {
                let words = format!("more than {most} byte-range locks, which are memory of the kernel");
                Some((Limit::Memory, words))
            }
            Err(why) => Some((Limit::Memory, format!("byte-range locks cannot be counted any more: {why}"))),
        }
    }

    fn thresholds(&mut self, sample: &Sample, now: Instant) {
        if let Some(threshold) = self.watches.kill
            && let Some(words) = self.kill.judge(&threshold, sample, now)
        {
            self.end(Limit::Threshold, format!("usage stayed above the threshold: {words}"));
            return;
        }
        if let Some(threshold) = self.watches.warn
            && self.result.warnings.is_empty()
            && let Some(words) = self.warn.judge(&threshold, sample, now)
        {
            (self.hooks.warned)(&words);
            self.result.warnings.push(words);
        }
    }

    fn end(&mut self, limit: Limit, message: String) {
        self.result.facts.ended_for = Some((limit, message));
        self.running.kill();
        self.ended_at = Some(Instant::now());
    }

    fn end_for_wall(&mut self) {
        if let Some(wall) = self.wall.limit() {
            self.end(Limit::Wall, format!("wall time reached its limit of {wall}"));
        }
    }
}
