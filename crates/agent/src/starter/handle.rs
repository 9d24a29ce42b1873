//! One starter, as the agent sees it: it has one program at a time, and the next when nothing of the last one runs any more. So all
//! that descends from a program is below its starter, or carries its mark, whatever sessions it made and whatever parents it lost.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::link::Link;
use super::messages::StarterMessage;
use super::process::ProcessRef;
use crate::tree::{Ending, ProcessSet};
use crate::words::{Exited, Failure};

const KILL: i32 = 9;
/// SIGCONT.
const CONTINUE: i32 = 18;
/// What is being ended is looked at again after this time: first often, then seldom.
const SOON: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(100);
const OFTEN: u32 = 50;
/// So often in all, which is nearly a minute. Counted and not timed: while the sandbox is paused nothing ends.
const MAX_LOOKS: u32 = 600;
/// So often where `/proc` shows nothing, which is some seconds: what is not in the program's own group is not found later either.
const MAX_BLIND: u32 = 100;

/// So often nothing is to be left of what a starter that is gone had, with a while in between.
const MAX_ENDS: u32 = 100;
static NOBODY: BTreeSet<i32> = BTreeSet::new();

/// A starter.
#[derive(Debug)]
pub(super) struct StarterHandle {
    pub(super) link: Link,
    /// Its number, when it has said that it is there.
    pub(super) pid: Option<i32>,
    /// The same process, whatever becomes of the number.
    process: Option<ProcessRef>,
    /// What its programs carry, and all that they leave behind: where the kernel lets it adopt nobody. Else it has no mark, and is
    /// told by the kernel when nobody is left.
    mark: Option<u64>,
    pub(super) job: Option<Job>,
}

/// A program of a starter, and what it left behind.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) order: u64,
    program: Option<i32>,
    /// The program has ended.
    over: bool,
    /// All of it is to end: when it is looked at next, and how often it was.
    ending: Option<(Instant, u32)>,
}

/// News of a program.
#[derive(Clone, Debug)]
pub(crate) enum ProgramEvent {
    /// It runs, with this pid.
    Started(i32),
    /// It was not started.
    Failed(Failure),
    /// It has ended.
    Exited(Exited),
    /// Its starter is gone, and whatever was left of it was ended.
    Gone,
}

impl StarterHandle {
    pub(super) const fn new(link: Link, mark: Option<u64>) -> Self {
        Self { link, pid: None, process: None, mark, job: None }
    }

    /// Its program, and all that descends from it.
    fn members(&self) -> Option<ProcessSet<'static>> {
        let pid = self.pid?;
        Some(match self.mark {
            Some(mark) => ProcessSet::Marked { mark, but: Some(pid) },
            None => ProcessSet::Below { top: pid, but: &NOBODY },
        })
    }

    pub(super) fn takes(&mut self, order: u64) {
        self.job = Some(Job { order, program: None, over: false, ending: None });
    }

    pub(super) const fn is_free(&self) -> bool {
        self.job.is_none()
    }

    /// The order of the program that it starts or that runs.
    pub(super) fn order(&self) -> Option<u64> {
        self.job.as_ref().filter(|job| !job.over).map(|job| job.order)
    }

    /// What it says is added to `told`, with the number of the order; false if it is gone, or says what it may not say.
    pub(super) fn hear(&mut self, may_be: impl Fn(i32) -> bool, told: &mut Vec<(u64, ProgramEvent)>) -> bool {
        let (news, lives) = self.link.hear();
        for news in news {
            match self.heard(news, &may_be) {
                Some(of_program) => told.extend(of_program),
                None => return false,
            }
        }
        lives
    }

    /// `None`: it may not say that.
    fn heard(&mut self, news: StarterMessage, may_be: impl Fn(i32) -> bool) -> Option<Option<(u64, ProgramEvent)>> {
        match (news, &mut self.job) {
            (StarterMessage::Ready { guarded: _, marks: _, pid }, _) if self.pid.is_none() && may_be(pid) => {
                self.process = ProcessRef::of(pid);
                self.pid = Some(pid);
                Some(None)
            }
            (StarterMessage::Started { id, pid }, Some(job))
                if job.order == id && job.program.is_none() && may_be(pid) =>
            {
                job.program = Some(pid);
                let waits = job.ending.is_some();
                if waits {
                    self.look();
                }
                Some(Some((id, ProgramEvent::Started(pid))))
            }
            (StarterMessage::Failed { id, failure }, Some(job)) if job.order == id && job.program.is_none() => {
                self.job = None;
                Some(Some((id, ProgramEvent::Failed(failure))))
            }
            (StarterMessage::Exited { id, exited, left }, Some(job)) if job.order == id && !job.over => {
                job.over = true;
                // One that adopts nobody cannot know.
                if !left && self.mark.is_none() {
                    self.job = None;
                }
                Some(Some((id, ProgramEvent::Exited(exited))))
            }
            (StarterMessage::Empty, Some(job)) if job.over => {
                if self.mark.is_none() {
                    self.job = None;
                }
                Some(None)
            }
            (
                StarterMessage::Ready { .. }
                | StarterMessage::Started { .. }
                | StarterMessage::Failed { .. }
                | StarterMessage::Exited { .. }
                | StarterMessage::Empty,
                _,
            ) => None,
        }
    }

    /// Sends a signal to all that descends from its program.
    pub(super) fn signal(&self, number: i32) {
        let reached = self.members().and_then(|set| set.signal(number));
        if reached.is_none_or(|count| count == 0) {
            self.group(number);
        }
    }

    fn group(&self, number: i32) {
        let program = self.job.as_ref().filter(|job| !job.over).and_then(|job| job.program);
        // It may just have ended.
        program.into_iter().for_each(|pid| drop(sys::signals::send(pid, true, number)));
    }

    /// Ends its program and all that descends from it; what one that has ended left behind lives on.
    pub(super) fn end(&mut self) {
        if let Some(job) = self.job.as_mut().filter(|job| !job.over && job.ending.is_none()) {
            job.ending = Some((Instant::now(), 0));
            self.look();
        }
    }

    /// When it is to be looked at again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.job.as_ref()?.ending.map(|(at, _)| at)
    }

    /// Ends what is there now. That nothing is left the starter tells, of whom the kernel says it, or nobody has its mark. False: it was
    /// looked at often enough.
    pub(super) fn look(&mut self) -> bool {
        self.wake();
        let ending = self.members().and_then(|set| set.end());
        if ending == Some(Ending::Done) && self.job.as_ref().is_some_and(|job| job.over) {
            self.job = None;
        }
        let seen = ending.is_some();
        if !seen {
            self.group(KILL);
        }
        let Some((at, looks)) = self.job.as_mut().and_then(|job| job.ending.as_mut()) else { return true };
        *looks = looks.saturating_add(1);
        let later = if *looks < OFTEN { SOON } else { LATER };
        *at = Instant::now().checked_add(later).unwrap_or(*at);
        *looks <= if seen { MAX_LOOKS } else { MAX_BLIND }
    }

    /// What its program left, if anything is left; where it has a mark nobody tells it of that.
    pub(super) fn left(&self) -> Option<ProcessSet<'static>> {
        self.mark?;
        self.job.as_ref().filter(|job| job.over)?;
        self.members()
    }

    /// Ends what is left of its program, and it as well: it is gone, misbehaved or lost its maker. False: something may be left.
    pub(super) fn end_left(&self) -> bool {
        match (self.mark, self.pid) {
            // Where it only misbehaved, or lost its maker, it is still the parent of all of it.
            (None, Some(pid)) => ProcessSet::Below { top: pid, but: &NOBODY }.end().is_some(),
            // It has not been there yet.
            (None, None) => true,
            (Some(mark), _) => {
                let set = ProcessSet::Marked { mark, but: None };
                (0..MAX_ENDS).any(|_| {
                    let done = set.end() == Some(Ending::Done);
                    if !done {
                        // Those who were sent a signal are on their way.
                        drop(sys::channel::wait(&[], Some(SOON)));
                    }
                    done
                })
            }
        }
    }

    /// Lets it go on, if a program has stopped it; to one that runs this is nothing.
    pub(super) fn wake(&self) {
        if let Some(process) = &self.process {
            process.signal(CONTINUE);
        }
    }
}

impl Drop for StarterHandle {
    fn drop(&mut self) {
        // It ends when its socket is closed, if nobody has stopped it.
        if let Some(process) = &self.process {
            process.signal(KILL);
        }
    }
}
