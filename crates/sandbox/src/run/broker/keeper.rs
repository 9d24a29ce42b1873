//! While the run goes on: a thread of its own hears the broker, so that nothing that it says waits for the supervisor.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::Running;
use egress::wire::{self, FromBroker, ToBroker};
use sys::channel::Interest;
use sys::proc::Process;

use super::bounds::Bounds;
use super::holders::{Holders, Inside};
use super::questions::Questions;
use super::records::Summary;
use super::rules::{self, Replacing, Rules};
use super::{Folder, Incoming, failed, send};
use crate::error::Error;
use crate::run::record::Denials;
use crate::run::secret_marks::Marks;

/// How long the broker may take for its last words when the run is over.
const LAST_WORDS: Duration = Duration::from_millis(500);
/// How long it may take to take in what it is told.
const TAKES: Duration = Duration::from_secs(2);

/// How often is looked whether it said anything: it does every two seconds.
const LOOKS: Duration = Duration::from_secs(5);
/// So many looks at which it had said nothing since the one before, and it is ended: one alone may be a machine that stood still.
const MAX_SILENT: u32 = 3;

/// A broker that holds the sandbox's sockets. Dropping it ends it.
#[derive(Debug)]
pub(in crate::run) struct Keeper {
    thread: Option<JoinHandle<Summary>>,
    /// Closed when the run is over.
    over: Option<OwnedFd>,
    lost: Arc<AtomicBool>,
    told: bool,
    rules: Rules,
    /// The sandbox, once it is known.
    inside: Inside,
}

/// What the thread has.
struct Listener {
    running: Box<dyn Running>,
    bounds: Bounds,
    socket: OwnedFd,
    incoming: Incoming,
    over: OwnedFd,
    lost: Arc<AtomicBool>,
    summary: Summary,
    replacing: Replacing,
    /// The same as the keeper has, for answers.
    rules: Rules,
    questions: Questions,
    denials: Arc<Denials>,
    holders: Holders,
    /// It said what it stopped, which others were not told yet.
    unsaid: bool,
    /// It said something since the last look.
    heard: bool,
    /// Looks at which it had not.
    silent: u32,
    next_look: Option<Instant>,
    _folder: Folder,
}

impl Keeper {
    pub(super) fn new(
        (running, bounds): (Box<dyn Running>, Bounds),
        socket: OwnedFd,
        (incoming, folder): (Incoming, Folder),
        (policy, marks): (&policy::Policy, Marks),
        (questions, denials): (Questions, Arc<Denials>),
    ) -> Result<Self, Error> {
        let told = |error: &dyn std::fmt::Display| failed(&error.to_string());
        let (read, write) = sys::channel::pipe().map_err(|error| told(&error))?;
        let summary = Summary::default();
        let (rules, replacing) = rules::sides(policy, marks).map_err(|error| told(&error))?;
        let (over, inside, lost) = (read, Inside::default(), Arc::clone(&rules.lost));
        let mut listener = Listener {
            running,
            bounds,
            socket,
            incoming,
            over,
            lost: Arc::clone(&lost),
            summary,
            replacing,
            rules: rules.clone(),
            questions,
            denials,
            holders: Holders::new(Arc::clone(&inside)),
            unsaid: false,
            heard: false,
            silent: 0,
            next_look: None,
            _folder: folder,
        };
        let listen = move || {
            // A signal is for the caller's threads.
            sys::signals::block_all();
            listener.listen();
            listener.end()
        };
        let thread = std::thread::Builder::new().name("fumehood-net".to_owned()).spawn(listen);
        let thread = Some(thread.map_err(|error| told(&error))?);
        Ok(Self { thread, over: Some(write), lost, told: false, rules, inside })
    }

    /// Whose sockets the broker holds, by the number of the process that stands for the sandbox.
    pub(in crate::run) fn is_of(&self, pid: i32) {
        // Without, no connection is known by its program.
        drop(Process::open(pid).map(|process| self.inside.set((pid, process))));
    }

    /// By this its rules are replaced.
    pub(in crate::run) fn rules(&self) -> Rules {
        self.rules.clone()
    }

    /// Whether the broker has ended while the run goes on; said once.
    pub(in crate::run) fn newly_lost(&mut self) -> bool {
        let new = !self.told && self.lost.load(Ordering::Acquire);
        self.told |= new;
        new
    }

    /// Ends it, and says what came of the network.
    pub(in crate::run) fn finish(mut self) -> Summary {
        self.join()
    }

    fn join(&mut self) -> Summary {
        self.over = None;
        let ended = self.thread.take().map(JoinHandle::join);
        // A thread that panicked has nothing to say.
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.join());
    }
}

impl Listener {
    /// Hears the broker until it ends, or the run is over.
    fn listen(&mut self) {
        loop {
            let fds = [self.socket.as_fd(), self.running.frames(), self.over.as_fd(), self.replacing.wake.as_fd()];
            let interests = fds.map(|fd| Interest { fd, write: false });
            let wait = self.bounds.next().map_or(LOOKS, |next| next.min(LOOKS));
            let ready = sys::channel::wait(&interests, Some(wait)).unwrap_or_default();
            let [said, framed, over, woken] = [0, 1, 2, 3].map(|at| ready.get(at).copied().unwrap_or_default());
            // First what it said: the end of the run comes after what the program did.
            let goes_on = (!said || self.hear())
                && (!framed || self.lives())
                && (over || !woken || self.replace())
                && (over || self.is_heard())
                && self.is_in_bounds();
            if over {
                return self.last_words();
            }
            if !goes_on {
                let why = self.bounds.ended(&self.running.sample());
                self.summary.lost.get_or_insert(why.unwrap_or("it ended, and the network inside with it".to_owned()));
                self.lost.store(true, Ordering::Release);
                return;
            }
        }
    }

    /// Looks at what it takes of the host, where nobody else does; `false` where that is too much.
    fn is_in_bounds(&mut self) -> bool {
        let passed = self.bounds.next().and_then(|_| self.bounds.passed(&self.running.sample()));
        let Some(why) = passed else { return true };
        self.running.kill();
        self.summary.lost.get_or_insert(why);
        false
    }

    /// Whether it says anything: one that was stopped holds the sockets, and would leave programs waiting for ever.
    fn is_heard(&mut self) -> bool {
        let now = Instant::now();
        if self.next_look.is_some_and(|look| now < look) {
            return true;
        }
        self.silent = if self.heard || self.next_look.is_none() { 0 } else { self.silent.saturating_add(1) };
        (self.heard, self.next_look) = (false, now.checked_add(LOOKS));
        if self.silent < MAX_SILENT {
            return true;
        }
        self.running.kill();
        let silent = LOOKS.as_secs().saturating_mul(u64::from(MAX_SILENT));
        self.summary.lost.get_or_insert(format!("it said nothing for {silent} s, and was ended"));
        false
    }

    /// Takes in what came; `false` when no more can come, or what came is no word of a broker.
    fn hear(&mut self) -> bool {
        let more = self.incoming.read(&self.socket);
        self.heard = true;
        loop {
            match self.incoming.next() {
                Ok(Some(frame)) => {
                    if !self.hear_one(frame) {
                        return false;
                    }
                }
                Ok(None) => {
                    self.say_stopped();
                    return more;
                }
                Err(_) => {
                    self.summary.lost.get_or_insert("what it says cannot be read".to_owned());
                    return false;
                }
            }
        }
    }

    /// What was stopped is there for others; once for all that came at once.
    fn say_stopped(&mut self) {
        if std::mem::take(&mut self.unsaid) {
            self.rules.stopped(self.summary.violations());
        }
    }

    /// Takes a frame in; `false` where the broker may not say it.
    fn hear_one(&mut self, frame: FromBroker) -> bool {
        let expected = match &frame {
            FromBroker::Ready { digest, authority: _ } => self.replacing.ready(digest),
            FromBroker::Refused { why } => self.replacing.refused(why),
            FromBroker::Ask { id, host, port, request } => {
                if !self.questions.ask((*id, host, *port), request.as_ref(), &self.rules) {
                    self.rules.answer(*id, false);
                }
                true
            }
            FromBroker::Whose { id, from, to } => {
                if let Some(program) = self.holders.look(*from, *to) {
                    self.summary.had(*to, program);
                }
                // One that takes nothing is found by its silence.
                let _taken = self.hand_over(&ToBroker::Looked { id: *id });
                true
            }
            FromBroker::Seen(seen) => self.questions.passed(seen),
            FromBroker::Told {} => self.replacing.is_counted(),
            FromBroker::Denied(_)
            | FromBroker::Usage(_)
            | FromBroker::Used { .. }
            | FromBroker::Unreached { .. }
            | FromBroker::Alive {}
            | FromBroker::Failed { .. } => true,
            // Which secrets it holds is said once, before it is ready.
            FromBroker::Holds { .. } => false,
        };
        if let (true, FromBroker::Ready { digest, authority: _ }) = (expected, &frame) {
            self.questions.judged_by(digest);
            self.summary.rules = Some(digest.clone());
        }
        if !expected {
            self.summary.lost.get_or_insert("it judges by other rules than it was given".to_owned());
        }
        let (told, stopped) = (matches!(frame, FromBroker::Told {}), matches!(frame, FromBroker::Denied(_)));
        if let Some(first) = self.summary.hear(frame) {
            self.denials.first(&first);
        }
        self.unsaid |= stopped;
        self.rules.told(self.summary.usage());
        if told {
            // Whoever waits looks at it then.
            self.say_stopped();
            self.replacing.counted();
        }
        expected
    }

    /// Hands it rules that somebody asked for, and answers of people; `false` where it takes none.
    fn replace(&mut self) -> bool {
        let Some(fresh) = self.replacing.take_requests() else { return false };
        fresh.iter().all(|frame| self.hand_over(frame))
    }

    /// Sends a frame, and waits for a broker that takes nothing no longer than it may take.
    fn hand_over(&self, frame: &ToBroker) -> bool {
        let (Ok(bytes), Some(until)) = (wire::encode(frame), Instant::now().checked_add(TAKES)) else { return false };
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            match sys::channel::send_some(&self.socket, rest, &[]) {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.is_again() => {
                    let interest = [Interest { fd: self.socket.as_fd(), write: true }];
                    if !sys::channel::wait_until(&interest, Some(until)).is_ok_and(|ready| ready == [true]) {
                        return false;
                    }
                }
                Err(_gone) => return false,
            }
        }
        true
    }

    /// Whether its process is still there: any frame of its guest but that it began is about its end.
    fn lives(&mut self) -> bool {
        let read = self.running.read_frames().is_ok();
        let mut ended = false;
        while let Some(frame) = self.running.next_frame() {
            ended |= matches!(
                frame,
                guest::frames::FromGuest::Exited(_)
                    | guest::frames::FromGuest::ExecFailed { .. }
                    | guest::frames::FromGuest::Failed { .. }
            );
        }
        read && !ended && !self.running.closed()
    }

    /// Asks for the last counts; one that does not answer is ended all the same.
    fn last_words(&mut self) {
        if send(&self.socket, &ToBroker::End {}, &[]).is_err() {
            return;
        }
        let Some(until) = Instant::now().checked_add(LAST_WORDS) else { return };
        loop {
            let interest = [Interest { fd: self.socket.as_fd(), write: false }];
            let ready = sys::channel::wait_until(&interest, Some(until)).unwrap_or_default();
            if ready != [true] || !self.hear() {
                return;
            }
        }
    }

    fn end(mut self) -> Summary {
        self.questions.end();
        self.running.begin_end();
        self.running.end();
        self.summary
    }
}
