//! Starters: processes of ours that start programs, under a Landlock layer of their own.
//!
//! Programs inherit the layer. So they can signal one another, and neither signal nor trace the agent, which stands outside of
//! it. One process, the maker, puts itself under the layer and makes the starters; each of them has one program at a time, and adopts
//! what that leaves behind. Where the kernel lets nobody adopt, as gVisor's of 2022, a starter marks its programs instead, and what
//! keeps the mark keeps signals from us as well. What a starter says is not believed: a program can end it, or worse.

mod handle;
mod inside;
mod link;
mod mark;
mod messages;
mod process;
mod spawner;

use std::collections::BTreeSet;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::PollFlags;

use crate::files::failure::{error_text, failure};
use crate::tree::{self, ProcessSet};
use crate::words::{Code, Failure, Program};
pub(crate) use handle::ProgramEvent;
use handle::StarterHandle;
use link::Link;
use messages::Order;
use spawner::Spawner;

const KILL: i32 = 9;
/// What is told where the kernel gives no process.
const NO_STARTER: &str = "no process could be made that starts programs (limits.pids)";

/// The agent's side of them.
#[derive(Debug, Default)]
pub(crate) struct Starters {
    maker: Option<Spawner>,
    all: Vec<StarterHandle>,
    orders: u64,
    /// So many starters were asked for.
    made: u64,
    guarded: bool,
    /// This process adopts what lost all starters.
    adopts: bool,
    /// Something runs inside that was to be ended, and was not found.
    escaped: bool,
}

impl Starters {
    /// Makes the first; where that fails it is tried again with the first order. `adopts`: this process is the agent's alone, and may
    /// become the parent of orphans.
    pub(crate) fn begin(adopts: bool) -> Self {
        let adopts = adopts && sys::bare::become_subreaper().is_ok();
        let mut starters = Self { adopts, ..Self::default() };
        drop(starters.add());
        starters
    }

    /// Whether programs are kept from signalling the agent.
    pub(crate) const fn guarded(&self) -> bool {
        self.guarded
    }

    /// Whether something that was to be ended may still run.
    pub(crate) const fn has_escaped(&self) -> bool {
        self.escaped
    }

    /// One more starter, which has not said yet that it is there.
    fn add(&mut self) -> Result<&mut StarterHandle, Failure> {
        let failed = |errno| failure(Code::TooMany, format!("{NO_STARTER}: {}", error_text(errno)));
        if self.maker.is_none() {
            let (maker, guarded) = Spawner::new(self.made).map_err(failed)?;
            self.guarded = guarded;
            self.maker = Some(maker);
        }
        let (ours, theirs) = sys::channel::pair().map_err(|error| failed(error.errno))?;
        let mut mark = None;
        if let Some(maker) = &mut self.maker {
            maker.link.put(vec![0], vec![theirs]);
            // Both count.
            mark = maker.marks.then(|| mark::of(self.made));
            self.made = self.made.saturating_add(1);
        }
        self.all.push(StarterHandle::new(Link::new(ours), mark));
        self.all.last_mut().ok_or_else(|| failure(Code::Failed, "nobody starts programs"))
    }

    /// Orders a program with its three descriptors, or with its terminal; the number under which news come.
    pub(crate) fn order(&mut self, program: Program, descriptors: Vec<OwnedFd>) -> Result<u64, Failure> {
        let id = self.orders.wrapping_add(1);
        let Program { argv, env, cwd, tty, stdin: _ } = program;
        let bytes = messages::encode(&Order { id, argv, env, cwd, tty: tty.is_some() })
            .ok_or_else(|| failure(Code::Invalid, "the program cannot be described"))?;
        self.free();
        let one = match self.all.iter().position(StarterHandle::is_free) {
            Some(at) => self.all.get_mut(at).ok_or_else(|| failure(Code::Failed, "nobody starts programs"))?,
            None => self.add()?,
        };
        one.takes(id);
        one.link.put(bytes, descriptors);
        self.orders = id;
        Ok(id)
    }

    /// Those are free of whose programs nothing is left.
    fn free(&mut self) {
        let over: Vec<&mut StarterHandle> = self.all.iter_mut().filter(|one| one.left().is_some()).collect();
        if over.is_empty() {
            return;
        }
        let left: Vec<ProcessSet<'_>> = over.iter().filter_map(|one| one.left()).collect();
        for (one, _) in over.into_iter().zip(tree::gone(&left)).filter(|(_, gone)| *gone) {
            one.job = None;
        }
    }

    fn of(&mut self, order: u64) -> Option<&mut StarterHandle> {
        self.all.iter_mut().find(|one| one.order() == Some(order))
    }

    /// Lets who starts a program go on, if a program has stopped it; to one that runs this is nothing.
    pub(crate) fn wake(&mut self, order: u64) {
        if let Some(maker) = &self.maker {
            maker.wake();
        }
        if let Some(one) = self.of(order) {
            one.wake();
        }
    }

    /// Sends a signal to all that descends from a program, while that runs.
    pub(crate) fn signal(&mut self, order: u64, number: i32) {
        match self.of(order) {
            Some(one) if number == KILL => one.end(),
            Some(one) => one.signal(number),
            None => {}
        }
    }

    /// Ends a program, and all that descends from it.
    pub(crate) fn end(&mut self, order: u64) {
        if let Some(one) = self.of(order) {
            one.end();
        }
    }

    pub(crate) fn waits<'a>(&'a self, add: &mut dyn FnMut(BorrowedFd<'a>, PollFlags)) {
        let links = self.all.iter().map(|one| &one.link);
        for link in self.maker.iter().map(|maker| &maker.link).chain(links) {
            add(link.socket(), link.flags());
        }
    }

    /// When something that is being ended is to be looked at again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.all.iter().filter_map(StarterHandle::due).min()
    }

    /// Looks at what is being ended, where that is due.
    pub(crate) fn look(&mut self) {
        let Some(due) = self.due() else { return };
        let now = Instant::now();
        if due > now {
            return;
        }
        if let Some(maker) = &self.maker {
            maker.wake();
        }
        for one in self.all.iter_mut().filter(|one| one.due().is_some_and(|at| at <= now)) {
            self.escaped |= !one.look();
        }
    }

    /// What they said, each with the number of the order.
    pub(crate) fn hear(&mut self) -> Vec<(u64, ProgramEvent)> {
        let mut told = Vec::new();
        // After its first word the maker says nothing.
        let gone = self.maker.as_mut().is_some_and(|maker| {
            let (news, lives) = maker.link.hear();
            !lives || !news.is_empty()
        });
        let mut lost = gone;
        let ours = self.numbers();
        for mut one in std::mem::take(&mut self.all) {
            let lives = one.hear(|pid| pid > 1 && !ours.contains(&pid), &mut told) && !gone;
            if lives {
                self.all.push(one);
                continue;
            }
            if let Some(order) = one.order() {
                let none = || ProgramEvent::Failed(failure(Code::TooMany, NO_STARTER));
                told.push((order, if one.pid.is_some() || gone { ProgramEvent::Gone } else { none() }));
            }
            lost |= one.pid.is_some();
            if !one.is_free() {
                self.escaped |= !one.end_left();
            }
        }
        if gone {
            self.maker = None;
        }
        if lost {
            self.end_orphans();
        }
        if self.adopts {
            while sys::reap::any().is_some() {}
        }
        // What many programs at once needed is not kept for ever.
        let mut spare = false;
        self.all.retain(|one| !one.is_free() || !std::mem::replace(&mut spare, true));
        told
    }

    /// The processes that no program is.
    fn numbers(&self) -> BTreeSet<i32> {
        let parent = rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get());
        let makers = self.maker.iter().map(|maker| maker.pid);
        self.all.iter().filter_map(|one| one.pid).chain(makers).chain([parent, sys::caller::pid()]).collect()
    }

    /// Ends what a starter that is gone left: its maker adopted it, and we what that had.
    fn end_orphans(&mut self) {
        let but = self.numbers();
        let ends = |top| ProcessSet::Below { top, but: &but }.end().is_some();
        // Where starters mark what they start nobody adopts, and all of it was found by the mark.
        if let Some(maker) = self.maker.as_ref().filter(|maker| !maker.marks) {
            self.escaped |= !ends(maker.pid);
        }
        if self.adopts {
            self.escaped |= !ends(sys::caller::pid());
        }
    }
}
