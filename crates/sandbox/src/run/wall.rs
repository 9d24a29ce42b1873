//! `limits.wall`, whatever the supervisor does meanwhile: a look at what a program uses takes as long as the program makes it take, and who
//! looks hears nothing. So from the first such look on a thread of its own waits for the moment too, and has everything inside ended then; the
//! supervisor says why when it hears of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use backends::{Killer, Running};
use policy::Millis;
use sys::scheduling::DeadlineForks;

/// The supervisor comes first where it hears, and waits until all have ended.
const LATER: Duration = Duration::from_millis(20);
/// The thread waits, and sends a few bytes.
const STACK: usize = 64 << 10;

/// The moment, for all who change it, wait for it, or do not wait any longer.
#[derive(Debug, Default)]
pub(super) struct Deadline {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    since: Option<Instant>,
    limit: Option<Millis>,
    /// What ends everything, since the first look that may take long.
    killer: Option<Killer>,
    /// It came, and nobody else was there.
    passed: bool,
    over: bool,
}

impl State {
    /// Later than that it is passed.
    fn at(&self) -> Option<Instant> {
        self.since?.checked_add(Duration::from_millis(self.limit?.0))
    }
}

impl Deadline {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The run may last so long, counted from its start.
    pub(super) fn set(&self, limit: Millis) {
        self.lock().limit = Some(limit);
        self.changed.notify_all();
    }

    /// Somebody asked for the end: who looks does not hold it up.
    pub(super) fn end_now(&self) {
        if let Some(killer) = &self.lock().killer {
            killer.kill();
        }
    }

    fn keep(&self) {
        let mut state = self.lock();
        while !state.over {
            let left = state.at().map(|at| (at + LATER).saturating_duration_since(Instant::now()));
            state = match left {
                Some(Duration::ZERO) => {
                    state.passed = true;
                    if let Some(killer) = &state.killer {
                        killer.kill();
                    }
                    return;
                }
                Some(left) => self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

/// The supervisor's side.
#[derive(Debug)]
pub(super) struct Wall {
    deadline: Arc<Deadline>,
    thread: Option<JoinHandle<()>>,
}

impl Wall {
    /// Of a run that begins now, and may last so long unless somebody said otherwise already.
    pub(super) fn new(deadline: Arc<Deadline>, limit: Option<Millis>, now: Instant) -> Self {
        let mut state = deadline.lock();
        state.since = Some(now);
        state.limit = state.limit.or(limit);
        drop(state);
        Self { deadline, thread: None }
    }

    /// As it is now.
    pub(super) fn limit(&self) -> Option<Millis> {
        self.deadline.lock().limit
    }

    /// When it is passed.
    pub(super) fn at(&self) -> Option<Instant> {
        self.deadline.lock().at()
    }

    /// How much is left.
    pub(super) fn left(&self, now: Instant) -> Option<Duration> {
        self.at().map(|at| at.saturating_duration_since(now))
    }

    /// From now on it is held by a thread too.
    ///
    /// # Errors
    /// There is none, in words: nobody would hold it during a look.
    pub(super) fn hold(&mut self, running: &dyn Running) -> Result<(), String> {
        if self.thread.is_some() {
            return Ok(());
        }
        let failed = |why: &dyn std::fmt::Display| format!("nobody could end it while it is looked at: {why}");
        self.deadline.lock().killer = Some(running.killer().map_err(|error| failed(&error))?);
        let deadline = Arc::clone(&self.deadline);
        let thread = std::thread::Builder::new().name("fumehood-wall".to_owned()).stack_size(STACK);
        let keep = move || {
            // A signal is for the caller's threads.
            sys::signals::block_all();
            deadline.keep();
        };
        let _forks = DeadlineForks::allow().map_err(|errno| failed(&errno))?;
        self.thread = Some(thread.spawn(keep).map_err(|error| failed(&error))?);
        Ok(())
    }

    /// Whether everything inside was ended for it while the supervisor heard nothing.
    pub(super) fn has_passed(&self) -> bool {
        self.deadline.lock().passed
    }
}

impl Drop for Wall {
    fn drop(&mut self) {
        let mut state = self.deadline.lock();
        (state.over, state.killer) = (true, None);
        drop(state);
        self.deadline.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It waits for nothing but this.
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

    use backends::{Exhausted, Sample, StartError, Streams};
    use guest::frames::{End, Exited, FromGuest};
    use policy::report::Limit;
    use sys::channel::Interest;

    use super::super::handle::{Handle, OrderSource, sides};
    use super::super::streams::{Budget, StdStreams};
    use super::super::supervise::{Hooks, Watch, Watched};
    use super::super::watches::Watches;
    use super::*;

    /// A program that makes each look last until everything inside was ended, or for half a minute.
    #[derive(Debug)]
    struct Endless {
        /// The supervisor's end of the control socket, and the guest's.
        control: (OwnedFd, OwnedFd),
        /// Somebody is looking.
        looks: Option<std::sync::mpsc::Sender<()>>,
        /// How the program ended, once it has.
        end: Mutex<Option<End>>,
        /// It ends by itself, and says so, before a look ends.
        by_itself: bool,
    }

    impl Endless {
        fn new(by_itself: bool) -> Self {
            let control = sys::channel::pair().unwrap();
            Self { control, looks: None, end: Mutex::default(), by_itself }
        }

        /// Whether the word to end everything came.
        fn is_told(&self, within: Duration) -> bool {
            let told = [Interest { fd: self.control.1.as_fd(), write: false }];
            sys::channel::wait(&told, Some(within)).unwrap() == [true]
        }
    }

    impl Running for Endless {
        fn pid(&self) -> i32 {
            1
        }
        fn take_streams(&mut self) -> Streams {
            Streams::default()
        }
        fn frames(&self) -> BorrowedFd<'_> {
            self.control.0.as_fd()
        }
        fn read_frames(&mut self) -> Result<(), StartError> {
            Ok(())
        }
        fn next_frame(&mut self) -> Option<FromGuest> {
            let end = self.end.lock().unwrap().take()?;
            Some(FromGuest::Exited(Exited { end, utime_us: 0, stime_us: 0 }))
        }
        fn closed(&self) -> bool {
            false
        }
        fn check_label(&self, _payload: i32) -> Result<(), String> {
            Ok(())
        }
        fn signal(&self, _number: u8) -> Result<(), StartError> {
            Ok(())
        }
        fn kill(&self) {
            self.end.lock().unwrap().get_or_insert(End::Signal { number: 9, core: false });
            // The guest's word wakes the loop.
            sys::channel::send(&self.control.1, &[0]).unwrap();
        }
        fn killer(&self) -> Result<Killer, StartError> {
            Ok(Killer::new(self.control.0.try_clone().unwrap()))
        }
        fn kill_guest(&self) {}
        fn freeze(&mut self, _frozen: bool) -> Result<(), String> {
            Ok(())
        }
        fn end_left(&self) -> Result<(), String> {
            Ok(())
        }
        fn sample(&self) -> Sample {
            if let Some(looks) = &self.looks
                && looks.send(()).is_err()
            {
                // Whoever waited for the first look waits for no other.
            }
            if self.is_told(Duration::from_secs(30)) {
                let end = if self.by_itself { End::Code(0) } else { End::Signal { number: 9, core: false } };
                *self.end.lock().unwrap() = Some(end);
                sys::channel::send(&self.control.1, &[0]).unwrap();
            }
            Sample::default()
        }
        fn last_sample(&self) -> Sample {
            Sample::default()
        }
        fn locks(&self, _most: u64) -> Result<u64, StartError> {
            Ok(0)
        }
        fn written_bytes(&self) -> Option<u64> {
            None
        }
        fn full_places(&self) -> Vec<Exhausted> {
            Vec::new()
        }
        fn memory_by_survey(&self) -> bool {
            true
        }
        fn bring_back(&mut self, _within: Option<Duration>) -> Result<Option<(File, Vec<String>)>, String> {
            Ok(None)
        }
        fn begin_end(&mut self) {}
        fn end(self: Box<Self>) {}
    }

    /// How such a run ends; `with` speaks to its handle once somebody is looking.
    fn watched(mut program: Endless, wall: Option<Millis>, with: impl FnOnce(&Handle) + Send) -> (Watched, bool) {
        let (looks, begun) = std::sync::mpsc::channel();
        program.looks = Some(looks);
        let (handle, mailbox) = sides("r-1", 1, Instant::now()).unwrap();
        let watches = Watches { wall, memory: Some(policy::Bytes(1)), ..Watches::default() };
        let budget = Budget::new(None);
        let mut streams = StdStreams { input: None, streams: Vec::new(), terminal: None, socket: None, budget };
        let mut orders = OrderSource::new(mailbox, None);
        let (mut warned, mut check, mut frozen) = (|_: &str| (), |_| None, |_, _: &_, _: &mut dyn Running| ());
        let hooks = Hooks { warned: &mut warned, check_host: &mut check, while_frozen: &mut frozen };
        let result = std::thread::scope(|scope| {
            scope.spawn(move || {
                begun.recv().unwrap();
                with(&handle);
            });
            Watch::new(&watches, &mut program, &mut streams, &mut orders, hooks).run()
        });
        let told = program.is_told(Duration::ZERO);
        (result, told)
    }

    fn limit(watched: &Watched) -> Option<Limit> {
        watched.facts.ended_for.as_ref().map(|(limit, _)| *limit)
    }

    #[test]
    fn a_look_without_end_does_not_hold_up_the_wall() {
        let (ended, told) = watched(Endless::new(false), Some(Millis(50)), |_| ());
        assert_eq!((limit(&ended), ended.facts.signal, told), (Some(Limit::Wall), Some(9), true));
        let (by_itself, _) = watched(Endless::new(true), Some(Millis(50)), |_| ());
        assert_eq!((limit(&by_itself), by_itself.facts.code), (None, Some(0)), "it was over before");
    }

    #[test]
    fn a_look_without_end_holds_up_neither_an_end_that_is_asked_for_nor_another_wall() {
        let (ended, told) = watched(Endless::new(false), None, Handle::kill);
        assert_eq!((limit(&ended), ended.facts.killed, told), (None, true, true));
        let (ended, told) = watched(Endless::new(false), None, |handle| handle.set_wall(Duration::from_millis(60)));
        assert_eq!((limit(&ended), told), (Some(Limit::Wall), true));
    }

    #[test]
    fn a_wall_that_was_moved_in_time_ends_nothing_at_its_old_moment() {
        let (deadline, began) = (Arc::<Deadline>::default(), Instant::now());
        let program = Endless::new(false);
        let mut wall = Wall::new(Arc::clone(&deadline), Some(Millis(50)), began);
        wall.hold(&program).unwrap();
        deadline.set(Millis(3_600_000));
        assert!(!program.is_told(Duration::from_millis(200)) && !wall.has_passed());
        drop(wall);
        // What is said later reaches nobody.
        deadline.end_now();
        assert!(!program.is_told(Duration::ZERO));
    }
}
